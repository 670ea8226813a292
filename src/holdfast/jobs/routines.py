"""Routines: endless loops over the cluster, cut into parts of which one worker at a time takes a turn (F19).

- A turn is a job. When it ends, however it ends, the next turn of its part is made in the same transaction; so a part
  has one living turn at most, and its key keeps it so.
- Nothing here does I/O or reads a clock.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.errors import Invalid, quoted
from holdfast.jobs import retry
from holdfast.jobs.job import JobError, Outcome
from holdfast.jobs.names import JOB_TYPE, LONGEST_TYPE
from holdfast.jobs.states import Happening, Raised, Succeeded, named_time

PREFIX = "routine."  # before the name of a routine: the type of its turns
MOST_PARTS = 1000
MOST_KEPT = 10_000
KEPT = 100


class Routine(Struct, frozen=True):
    """A routine as the code declares it."""

    name: str
    every: float  # seconds from the end of a turn to the next one of its part
    scale: int = 1  # how many parts it has
    keep: int = KEPT  # ended turns that are kept of each part
    retry: str | None = None  # how long a part waits after errors, as JSON

    @property
    def job_type(self) -> str:
        return PREFIX + self.name

    def key(self, index: int) -> str:
        """Of the living turn of a part."""
        return f"{self.name}:{index}"


class Turned:
    """What the handler of a turn returns: its result, and when it wants the next turn, if it said so."""

    def __init__(self, value: Any, delay: float | None = None) -> None:
        self.value = value
        self.effects = {"delay": delay}


class TurnEnd(Struct, frozen=True):
    """How a turn ended, as far as the next one depends on it."""

    outcome: Outcome
    error: JobError | None = None
    named_time: datetime | None = None  # when the handler wants the next


def make(name: Any, *, scale: Any, every: Any, keep: Any, policy: Any) -> Routine:
    """A checked routine; `Invalid` says what is wrong."""
    what = f"routine {quoted(name)}"
    if not isinstance(name, str) or not JOB_TYPE.fullmatch(name) or len(PREFIX + name) > LONGEST_TYPE:
        raise Invalid(
            f"{what}: give a name of letters, digits, `_`, `-` and `.`, at most {LONGEST_TYPE - len(PREFIX)}."
        )
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= retry.LONGEST:
        raise Invalid(f"{what}: every={quoted(every)}; give seconds from 0 to ten years, or a timedelta.")
    if policy is not None and (not isinstance(policy, retry.Policy) or isinstance(policy, retry.Adaptive)):
        raise Invalid(f"{what}: retry={quoted(policy)}; give NoDelay(), Fixed(…), Linear(…) or Exponential(…).")
    return Routine(
        name,
        float(seconds),
        _whole(scale, f"{what}: scale", 1, MOST_PARTS),
        _whole(keep, f"{what}: keep", 1, MOST_KEPT),
        retry.encode(policy),
    )


def decode(text: str) -> Routine:
    """A routine as it is stored; `Invalid`, or an error of msgspec's, for anything that is none."""
    found = read_routine(text)
    return make(found.name, scale=found.scale, every=found.every, keep=found.keep, policy=retry.decode(found.retry))


read_routine = msgspec.json.Decoder(Routine).decode


def _whole(value: Any, what: str, lowest: int, highest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise Invalid(f"{what}={quoted(value)}; give a whole number from {lowest} to {highest}.")
    return value


def end_of(
    outcome: Outcome, error: JobError | None, happening: Happening, delay: float | None, now: datetime
) -> TurnEnd:
    """A turn's end from what happened to its job; `delay` is what a successful one asked for."""
    wanted = None
    if isinstance(happening, Raised):
        wanted = named_time(happening.retry_at, happening.retry_delay, now)
    elif isinstance(happening, Succeeded):
        wanted = named_time(None, delay, now)
    return TurnEnd(outcome, None if outcome is Outcome.ABORTED else error, wanted)


def failures_after(end: TurnEnd, failures: int) -> int:
    """How many turns in a row have failed; one that an operator aborted tells nothing."""
    if end.outcome is Outcome.ABORTED:
        return failures
    return 0 if end.outcome is Outcome.SUCCESS else failures + 1


def next_time(routine: Routine, end: TurnEnd, failures: int, now: datetime, luck: float) -> datetime:
    """When the next turn begins: after `every` seconds, after errors later than that, or when the handler said."""
    if end.named_time is not None:
        return end.named_time
    seconds = routine.every
    if end.outcome is not Outcome.SUCCESS and failures:
        policy = retry.decode(routine.retry) or retry.DEFAULT
        seconds = max(seconds, retry.delay(policy, failures, "", luck))
    return now + timedelta(seconds=seconds)
