"""Lists and rows as text: PostgreSQL reads that faster than psycopg would write them element by element."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any


def literal(values: Iterable[float]) -> str:
    """A PostgreSQL array of numbers as text."""
    return "{" + ",".join(map(str, values)) + "}"


def words_literal(values: Iterable[str | None]) -> str:
    """A PostgreSQL array of text as text."""
    quoted = (
        "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values
    )
    return "{" + ",".join(quoted) + "}"


def column_literal(values: Sequence[Any]) -> str | None:
    """A PostgreSQL array of numbers, moments or text, as text; None if there are none among the values."""
    if values.count(None) == len(values):
        return None
    if isinstance(next(value for value in values if value is not None), str):
        return words_literal(values)
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


@lru_cache(maxsize=16)
def types_literal(types: tuple[str, ...]) -> str:
    """A worker names the same types in every turn, and there may be a thousand."""
    return words_literal(types)


def line(*values: Any) -> str:
    """A row in COPY's text form."""
    return "\t".join([field(value) for value in values]) + "\n"


def field(value: Any) -> str:
    """A value in such a row."""
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return str(value)
