"""What every command prints: JSON for programs, sentences for people, complaints on standard error.

Job keys, payloads and errors are other people's text: what could move a terminal's cursor is made visible first.
"""

import io
import json
import os
import sys
from contextlib import suppress
from typing import Any

PICTURES = ord("\N{SYMBOL FOR NULL}")
VISIBLE = {code: chr(PICTURES + code) for code in range(32) if chr(code) not in "\n\t"}
VISIBLE |= dict.fromkeys(range(0x7F, 0xA0), "\N{REPLACEMENT CHARACTER}")


def forgive() -> None:
    """A terminal that lacks a character gets a question mark and no error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def silence() -> None:
    """Nobody can be told anything on standard output any more, nor may Python try it at its exit."""
    with suppress(OSError):  # it may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def visible(text: str) -> str:
    """The text without control characters but line ends and tabs."""
    return text.translate(VISIBLE)


def paragraph(text: str) -> str:
    """The text as one line."""
    return visible(" ".join(text.split()))


def say(text: str) -> None:
    """A sentence on standard output, at once: somebody may wait for it at the other end of a pipe."""
    print(visible(text), flush=True)


def say_json(value: Any, *, lines: bool = False) -> None:
    """A value on standard output; `lines`: on one line, as one of several."""
    escape = "utf" not in (sys.stdout.encoding or "").lower()
    print(json.dumps(value, ensure_ascii=escape, indent=None if lines else 2, allow_nan=False), flush=True)


def complain(text: str) -> None:
    """An error, as one paragraph on standard error."""
    print(f"Error: {paragraph(text)}", file=sys.stderr, flush=True)
