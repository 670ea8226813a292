"""What every command prints: JSON for programs, sentences for people, complaints on standard error.

Job keys, payloads and errors are other people's text: what could move a terminal's cursor is made visible first.
"""

import io
import json
import os
import re
import sys
from contextlib import suppress
from typing import Any, TextIO

PICTURES = ord("\N{SYMBOL FOR NULL}")
VISIBLE = {code: chr(PICTURES + code) for code in range(32) if chr(code) not in "\n\t"}
VISIBLE |= dict.fromkeys(range(0x7F, 0xA0), "\N{REPLACEMENT CHARACTER}")


URL = re.compile(r"([A-Za-z][\w+.-]*://)(\S*@\S*)")
USER_ONLY = re.compile(r"[^:@/]*(?::…)?@[^@]*")


class Unwritable(OSError):
    """Standard output takes nothing: its disk is full, its terminal is gone."""


class Output(io.FileIO):
    """Standard output, told from every other file by its errors. A reader that went away is no error of it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Unwritable(error.errno, error.strerror) from error


def prepare() -> None:
    """The streams as commands expect them, whatever they were given.

    - A terminal that lacks a character gets a question mark and no error.
    - Who has closed one is not told what would stand there. No other file may get its number.
    """
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _known_by_its_errors(sys.stdout)


def _nowhere() -> TextIO:
    return open(os.devnull, "w")


def _known_by_its_errors(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    with suppress(OSError):
        stream.flush()  # whoever calls this may have printed before
    raw = Output(stream.fileno(), "w", closefd=False)
    through = stream.write_through
    return io.TextIOWrapper(
        raw if through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=through,
    )


def silence(stream: TextIO) -> None:
    """Nobody can be told anything on this stream any more, nor may Python try it at its exit."""
    with suppress(OSError):  # it may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def visible(text: str) -> str:
    """The text without control characters but line ends and tabs."""
    return text.translate(VISIBLE)


def without_login(text: str) -> str:
    """Return the text with `…` for the rest of each URL that has more than a user before its `@`."""
    return URL.sub(lambda found: found[0] if USER_ONLY.fullmatch(found[2]) else f"{found[1]}…", text)


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
    """An error, as one paragraph on standard error. Where that takes nothing, the exit code has to do."""
    try:
        print(f"Error: {paragraph(without_login(text))}", file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)
