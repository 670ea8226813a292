"""What every command prints: JSON for programs, sentences for people, complaints on standard error.

Job keys, payloads and errors are other people's text: what could move a terminal's cursor is made visible first.
"""

import json
import sys
from typing import Any

import typer

TOLD = "\N{SYMBOL FOR NULL}"
VISIBLE = {code: chr(ord(TOLD) + code) for code in range(32) if chr(code) not in "\n\t"}
VISIBLE |= dict.fromkeys(range(0x7F, 0xA0), "\N{REPLACEMENT CHARACTER}")


def visible(text: str) -> str:
    """The text without control characters but line ends and tabs."""
    return text.translate(VISIBLE)


def paragraph(text: str) -> str:
    """The text as one line."""
    return visible(" ".join(text.split()))


def say(text: str) -> None:
    """A sentence on standard output, at once: somebody may wait for it at the other end of a pipe."""
    typer.echo(visible(text))
    sys.stdout.flush()


def say_json(value: Any, *, lines: bool = False) -> None:
    """A value on standard output; `lines`: on one line, as one of several."""
    escape = "utf" not in (sys.stdout.encoding or "").lower()
    typer.echo(json.dumps(value, ensure_ascii=escape, indent=None if lines else 2, allow_nan=False))
    sys.stdout.flush()


def complain(text: str) -> None:
    """An error, as one paragraph on standard error."""
    typer.echo(typer.style("Error: ", fg="red") + paragraph(text), err=True)
