"""A fleet as it is played: queues, the jobs that come, and the workers that are there, as frozen values.

- Nothing here does I/O, reads a clock or draws a number.
- Queues and types are what the store registers; what only a simulation knows stands beside them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from typing import Any

from msgspec import Struct

from holdfast.jobs.retry import LONGEST
from holdfast.jobs.windows import Window
from holdfast.stores.contract import NewJob, QueueDeclared, TypeRow

HOUR = 3600.0
DAY = 86_400.0
LEAST = 0.001  # seconds of an attempt: without any, one that fails and is tried again at once would stop the clock


class Fixed(Struct, frozen=True):
    """Always as long."""

    seconds: float


class Exponential(Struct, frozen=True):
    """Without memory, `mean` seconds on average before `least` and `most` cut them off."""

    mean: float
    least: float = 0.0
    most: float = LONGEST


class Percentiles(Struct, frozen=True):
    """Lognormal between its points, and beyond the outer two along the line through them.

    A point is how many standard deviations from the middle it lies, and the logarithm of the seconds there.
    """

    points: tuple[tuple[float, float], ...]
    least: float = 0.0
    most: float = LONGEST


Duration = Fixed | Exponential | Percentiles


class Every(Struct, frozen=True):
    """One each so many seconds."""

    seconds: float
    during: tuple[Window, ...] = ()


class Poisson(Struct, frozen=True):
    """By chance, so many in an hour on average; `per_hour` has one number, or one for each hour of the day."""

    per_hour: tuple[float, ...]
    during: tuple[Window, ...] = ()


class Burst(Struct, frozen=True):
    """So many at certain times of each day, spread by chance over `within` seconds."""

    count: int
    at: tuple[time, ...]
    within: float = 0.0
    during: tuple[Window, ...] = ()


Arrivals = Every | Poisson | Burst


class TypePlan(Struct, frozen=True):
    """What becomes of the jobs of a type."""

    row: TypeRow
    template: NewJob
    arrivals: tuple[Arrivals, ...] = ()
    duration: Duration = Fixed(1.0)
    failure_rate: float = 0.0
    keys: int = 0  # how many different keys there are; 0: no keys
    expires_after: float | None = None
    payload: Mapping[str, Mapping[str, float]] = {}  # argument → value → weight


class WorkerPlan(Struct, frozen=True):
    """Workers that are alike."""

    name: str
    count: int = 1
    concurrency: int = 100
    queues: tuple[str, ...] = ()  # none: all
    labels: tuple[str, ...] = ()
    types: tuple[str, ...] | None = None  # None: all whose labels they have
    start: tuple[time, ...] = ()  # of each day; none: there from the beginning
    stop: tuple[time, ...] = ()
    crashes: tuple[time, ...] = ()  # of each day
    crashes_every: float | None = None  # seconds between crashes of one of them, on average
    restart_after: float | None = 10.0  # seconds from a crash to the next start; None: it stays away
    grace: float = 10.0

    def handles(self, rows: Mapping[str, TypeRow]) -> tuple[str, ...]:
        """The types that they run, by the rule of a worker: those whose labels they have."""
        wanted = tuple(rows) if self.types is None else self.types
        return tuple(sorted(name for name in wanted if set(rows[name].labels) <= set(self.labels)))


class Ending(Struct, frozen=True):
    """How one attempt of a recorded job went."""

    seconds: float
    succeeded: bool = True
    expected: bool = False  # it raised `Failed`


class Recorded(Struct, frozen=True):
    """A job that was: when it came, what it had of its own, and how its attempts went."""

    time: datetime
    job_type: str
    options: Mapping[str, Any]  # of a `NewJob`; the rest is as its type says
    endings: tuple[Ending, ...]


class Fleet(Struct, frozen=True, kw_only=True):
    """Everything that is played."""

    start: datetime
    seconds: float
    zone: str = "UTC"
    seed: int = 1
    queues: tuple[QueueDeclared, ...]
    types: Mapping[str, TypePlan]
    workers: tuple[WorkerPlan, ...]
    recorded: Sequence[Recorded] = ()
    lost_after: float = 30.0
