"""How the columns of a row become values: none of this raises, whatever a column holds.

A `RowReader` remembers which columns of its row are damaged, and why.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from holdfast.jobs import damage, retry, throttlers, windows
from holdfast.jobs import payload as payloads
from holdfast.jobs.damage import Damaged
from holdfast.jobs.job import Answer, JobError, Outcome, Situation, State
from holdfast.jobs.throttlers import Function, Throttler
from holdfast.stores.statements import RowDict

T = TypeVar("T")
DAMAGED = "damaged"  # the kind of an error that cannot be read
decode_error = msgspec.json.Decoder(JobError).decode
decode_answer = msgspec.json.Decoder(Answer).decode
decode_words = msgspec.json.Decoder(tuple[str, ...]).decode


class RowReader:
    """One row."""

    def __init__(self, row: RowDict) -> None:
        self.row = row
        self.damaged: dict[str, Damaged] = {}

    def read(self, column: str, decode: Callable[[str], T], otherwise: Callable[[Damaged], T]) -> T:
        """What the column says; what `otherwise` makes of it if it is damaged."""
        found = damage.read(decode, self.row[column])
        if isinstance(found, Damaged):
            self.damaged[column] = found
            return otherwise(found)
        return found

    def value(self, column: str) -> Any:
        """Any JSON."""
        return None if self.row[column] is None else self.read(column, payloads.load, damage.shown)

    def table(self, column: str) -> dict[str, Any]:
        """A JSON object."""
        return self.read(column, load_table, damage.shown)

    def texts(self, column: str) -> tuple[str, ...]:
        """A list of texts; of a damaged one the only text says so."""
        return () if self.row[column] is None else self.read(column, decode_words, only_text)

    def windows(self, column: str) -> tuple[str, ...]:
        """Time windows to go by: damaged ones keep no job from starting."""
        return () if self.row[column] is None else self.read(column, load_windows, lambda _: ())

    def error(self, column: str) -> JobError | None:
        """The stored form: the word NONE, or JSON (J4)."""
        text = self.row[column]
        return None if text is None or text == "NONE" else self.read(column, decode_error, damaged_error)

    def answer(self, column: str) -> Answer | None:
        """Of a job that waits, or is going to."""
        return None if self.row[column] is None else self.read(column, decode_answer, damaged_answer)

    def one_of(self, column: str, kind: Callable[[str], T], otherwise: T) -> T:
        """A word that stands for a value of an enum."""
        return self.read(column, kind, lambda _: otherwise)


def state_of(read: RowReader) -> State:
    """Of a job. One that cannot be read counts as final: nothing is done to it."""
    return read.one_of("state", State, State.FINAL)


def outcome_of(read: RowReader) -> Outcome | None:
    return None if read.row["outcome"] is None else read.one_of("outcome", Outcome, Outcome.ERROR)


def situation_of(read: RowReader) -> Situation | None:
    """Of a running job; one that cannot be read counts as held."""
    return None if read.row["situation"] is None else read.one_of("situation", Situation, Situation.HELD)


def error_of(text: str | None) -> JobError | None:
    """The error in a text."""
    return RowReader({"error": text}).error("error")


def texts_of(text: str | None) -> tuple[str, ...]:
    """The list in a text."""
    return RowReader({"texts": text}).texts("texts")


@lru_cache(maxsize=1024)
def read_policy(text: str | None) -> retry.Policy | None:
    """A policy that cannot be read is the default one."""
    found = None if text is None else damage.read(retry.decode, text)
    return None if isinstance(found, Damaged) else found


@lru_cache(maxsize=64)
def read_throttler(text: str | None) -> Throttler | None:
    """One that cannot be read is a function that no worker has: nothing is claimed until code declares the queue again."""
    found = None if text is None else damage.read(throttlers.decode, text)
    return Function(str(found)) if isinstance(found, Damaged) else found


def only_text(damaged: Damaged) -> tuple[str, ...]:
    return (str(damaged),)


def damaged_error(damaged: Damaged) -> JobError:
    return JobError("Damaged", str(damaged), DAMAGED)


def damaged_answer(damaged: Damaged) -> Answer:
    """It counts as a failure: nobody knows what the outside system said."""
    return Answer(error=damaged_error(damaged))


def load_table(text: str) -> dict[str, Any]:
    """A JSON object; `ValueError` for any other JSON."""
    found = payloads.load(text)
    if not isinstance(found, dict):
        raise ValueError("it is JSON, but not an object")
    return found


def load_windows(text: str) -> tuple[str, ...]:
    """Time windows that can be read."""
    found = decode_words(text)
    windows.parse_all(found)
    return found
