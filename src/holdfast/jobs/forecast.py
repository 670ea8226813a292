"""What history tells of the future: how long a type usually takes, and how fast a queue moves (E2).

Where there is not enough history the answer is None and not a guess.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

ENOUGH_SUCCESSES = 5  # of a type, before its usual duration is told
ENOUGH_ENDS = 10  # of jobs of a queue, before its speed is told


class Usual(Struct, frozen=True):
    """How long jobs of a type take, in seconds."""

    median: float
    most: float  # nine of ten take no longer
    successes: int  # that this is taken from


def usual(seconds: Sequence[float]) -> Usual | None:
    """From the durations of recent successes."""
    if len(seconds) < ENOUGH_SUCCESSES:
        return None
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return Usual(ordered[last // 2], ordered[-(-last * 9 // 10)], len(ordered))


def speed(ends: Sequence[datetime], since: datetime, now: datetime) -> float | None:
    """Ends per second in a queue: of all that came since this time, or of the last few before.

    `ends` has the newest first. A job that is due since then has seen the queue at work: times at which the queue
    was idle do not count.
    """
    counted = max(ENOUGH_ENDS, sum(end >= since for end in ends))
    if len(ends) < counted:
        return None
    seconds = (now - ends[counted - 1]).total_seconds()
    return counted / seconds if seconds > 0 else None


def start(now: datetime, ends_needed: int, per_second: float | None) -> datetime | None:
    """When a job in line starts: after so many ends of others."""
    if ends_needed <= 0:
        return now
    return None if per_second is None else now + timedelta(seconds=ends_needed / per_second)


def end(start_time: datetime | None, took: Usual | None, now: datetime) -> datetime | None:
    """When a job that starts or started then ends; None too for one that takes longer than nine of ten do."""
    if start_time is None or took is None:
        return None
    for seconds in (took.median, took.most):
        ends = start_time + timedelta(seconds=seconds)
        if ends > now:
            return ends
    return None
