"""What is counted while a fleet is played, and what is known of it afterwards.

- Times are whole microseconds; what is told is seconds.
- A wait lasts from the moment a job was first wanted (its `scheduled_run_time`) to its first start; a turnaround from its
  enqueue to its end.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

SECOND = 1_000_000
COLUMNS = 96  # stretches of time of which the backlog is told


class Spread(Struct, frozen=True):
    """How a number of seconds is spread."""

    count: int = 0
    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class TypeResult(Struct, frozen=True, kw_only=True):
    """What became of the jobs of a type."""

    queue: str
    arrived: int
    duplicates: int
    refused: int  # by the store, as they came
    started: int  # attempts
    succeeded: int
    dead: int
    retries: int
    timeouts: int
    lost: int
    expired: int
    left: int  # living at the end
    wait: Spread
    turnaround: Spread


class QueueResult(Struct, frozen=True, kw_only=True):
    """What became of a queue."""

    throttle_limit: float | None
    wait: Spread
    in_use: float  # throttle_factor in use, on average
    most_in_use: float
    limit_use: float | None  # share of the limit in use, on average
    at_limit: float | None  # share of the time in which no job of factor 1 would have fitted
    most_backlog: int
    backlog: tuple[int, ...]  # the most in each stretch


class WorkerResult(Struct, frozen=True, kw_only=True):
    """What became of workers that are alike."""

    workers: int
    slots: int
    utilisation: float  # share of the slots' time in which a job ran, while they were there
    busiest: float  # of them
    attempts: int
    crashes: int


class Result(Struct, frozen=True, kw_only=True):
    """What became of a fleet."""

    start: str
    seconds: float
    stretch: float  # seconds of each stretch of the backlog
    seed: int
    jobs: int
    first_refusal: str | None  # why the first job was refused, if one was
    types: dict[str, TypeResult]
    queues: dict[str, QueueResult]
    workers: dict[str, WorkerResult]


class TypeTally:
    """Of one type."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.counts: Counter[str] = Counter()
        self.waits, self.turnarounds = array("q"), array("q")

    def result(self, left: int) -> TypeResult:
        names = (
            "arrived",
            "duplicates",
            "refused",
            "started",
            "succeeded",
            "dead",
            "retries",
            "timeouts",
            "lost",
            "expired",
        )
        counts = {name: self.counts[name] for name in names}
        return TypeResult(
            queue=self.queue, **counts, left=left, wait=spread(self.waits), turnaround=spread(self.turnarounds)
        )


class QueueTally:
    """Of one queue: what is in use now, and since when."""

    def __init__(self, limit: float, start: int) -> None:
        self.limit = limit
        self.wanted, self.served = array("q"), array("q")  # when jobs began and ceased to wait
        self._used, self._most, self._since = 0.0, 0.0, start
        self._area, self._full = 0.0, 0

    @property
    def free(self) -> float:
        """Of the limit."""
        return self.limit - self._used + 1e-9 if self.limit >= 1 else float("inf")

    def use(self, factor: float, now: int) -> None:
        """So much more is in use, or less."""
        self._pass(now)
        self._used += factor
        self._most = max(self._most, self._used)

    def _pass(self, now: int) -> None:
        spent = now - self._since
        self._area += self._used * spent
        if self.limit >= 1 and self._used > self.limit - 1 + 1e-9:
            self._full += spent
        self._since = now

    def result(self, start: int, end: int, waits: Iterable[Sequence[int]]) -> QueueResult:
        self._pass(end)
        length = max(1, end - start)
        backlog = peaks(self.wanted, self.served, start, end)
        limited = self.limit >= 1
        every = array("q")
        for each in waits:
            every.extend(each)
        return QueueResult(
            throttle_limit=self.limit if limited else None,
            wait=spread(every),
            in_use=self._area / length,
            most_in_use=self._most,
            limit_use=self._area / length / self.limit if limited else None,
            at_limit=self._full / length if limited else None,
            most_backlog=max(backlog, default=0),
            backlog=tuple(backlog),
        )


class WorkerTally:
    """Of one place for a worker: the time in which one was there, and in which its slots were in use."""

    def __init__(self) -> None:
        self.there = self.busy = 0
        self.attempts = self.crashes = 0


def of_workers(tallies: Sequence[WorkerTally], concurrency: int) -> WorkerResult:
    there, busy = sum(each.there for each in tallies), sum(each.busy for each in tallies)
    shares = [each.busy / (each.there * concurrency) for each in tallies if each.there]
    return WorkerResult(
        workers=len(tallies),
        slots=len(tallies) * concurrency,
        utilisation=busy / (there * concurrency) if there else 0.0,
        busiest=max(shares, default=0.0),
        attempts=sum(each.attempts for each in tallies),
        crashes=sum(each.crashes for each in tallies),
    )


def spread(values: Sequence[int]) -> Spread:
    """Of microseconds."""
    if not values:
        return Spread()
    ordered, last = sorted(values), len(values) - 1
    parts = [ordered[round(last * share)] / SECOND for share in (0.5, 0.9, 0.99, 1.0)]
    return Spread(len(values), sum(values) / len(values) / SECOND, *parts)


def peaks(wanted: Iterable[int], served: Iterable[int], start: int, end: int) -> list[int]:
    """The most jobs that waited at once, in each stretch of the time."""
    changes = sorted([(at, 1) for at in wanted if at < end] + [(at, -1) for at in served if at < end])
    length = max(1, end - start)
    found = [0] * COLUMNS
    waiting, column = 0, 0
    for at, change in changes:
        here = min(COLUMNS - 1, max(0, (at - start) * COLUMNS // length))
        for between in range(column + 1, here + 1):
            found[between] = waiting
        column = here
        waiting += change
        found[column] = max(found[column], waiting)
    for between in range(column + 1, COLUMNS):
        found[between] = waiting
    return found
