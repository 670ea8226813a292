"""What an explanation is made from: everything around a job that may be a reason for where it is."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.jobs import wording
from holdfast.jobs.breaker import Breaker
from holdfast.jobs.holds import Hold
from holdfast.jobs.job import Attempt, AttemptEnd, Job
from holdfast.jobs.placement import DUTIES, Preference
from holdfast.jobs.throttle import Candidate, Usage

MOST_BEFORE = 1000  # jobs before it in line that are counted; behind that it is "more than"
MOST_DETAILED = 50  # jobs or workers that are named one by one


class Place(StrEnum):
    """Which table beside the row says where to look for a job that nobody has."""

    READY = "ready"
    WAITING = "waiting"
    PARKED = "parked"
    UNDECIDED = "undecided"
    ASIDE = "aside"
    HELD = "held"


class WorkerSeen(Struct, frozen=True):
    """A worker, as far as it matters for who runs what."""

    id: int
    name: str
    host: str
    queues: tuple[str, ...]
    types: tuple[str, ...]
    labels: tuple[str, ...]
    concurrency: int
    beat_time: datetime
    every_queue: bool = False  # also those that were made after it came
    stopping: bool = False
    gone: bool = False
    duties: tuple[str, ...] = DUTIES
    held: int = 0  # jobs that it holds now

    @property
    def takes_jobs(self) -> bool:
        return "run" in self.duties and not self.stopping

    def serves(self, queue: str) -> bool:
        return self.every_queue or queue in self.queues


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that an explanation is made from."""

    job: Job
    now: datetime
    paused: bool = False
    pause_time: datetime | None = None
    paused_by: str | None = None
    holds: tuple[Hold, ...] = ()  # that keep it, a task, from starting
    usage: Usage | None = None  # of the limit and the throttler of its queue; None: it has neither
    pool: str | None = None  # that the throttler counts it in
    users: tuple[int, ...] = ()  # jobs that use the limit, or its pool; the first of them
    user_count: int = 0
    labels: tuple[str, ...] = ()  # that the type requires
    preference: Preference | None = None  # of the type
    ready_time: datetime | None = None  # since when it stands in line
    has_handler: bool = False  # some code has ever declared it
    on_crash: str = "rerun"
    workers: tuple[WorkerSeen, ...] = ()  # the living
    holder: WorkerSeen | None = None  # who has or had it
    place: Place | None = None
    before: tuple[Candidate, ...] = ()  # in line, the head first
    more_before: bool = False  # than MOST_BEFORE
    deadline_time: datetime | None = None
    abort_actor: str | None = None
    abort_time: datetime | None = None
    last_attempt: Attempt | None = None  # the last one with a record
    retried_as: int | None = None
    breaker: Breaker | None = None  # of its type
    durations: tuple[float, ...] = ()  # of recent successes of its type
    ends: tuple[datetime, ...] = ()  # recent ones in its queue, the newest first

    @property
    def due(self) -> bool:
        return self.job.scheduled_run_time <= self.now

    @property
    def able(self) -> list[WorkerSeen]:
        """Live workers that would take it."""
        job = self.job
        return [
            worker
            for worker in self.workers
            if job.job_type in worker.types and worker.serves(job.queue) and worker.takes_jobs
        ]

    @property
    def cause(self) -> AttemptEnd | None:
        """How the attempt ended that left it loose."""
        last = self.last_attempt
        return None if last is None or last.attempt != self.job.attempt else last.outcome

    @property
    def runnable(self) -> list[Candidate]:
        """Those before it that some worker could run now: the others are passed over."""
        return [each for each in self.before if each.runnable]

    def when(self, moment: datetime) -> str:
        return wording.when(moment, self.now)

    @property
    def slots(self) -> int:
        """Of the workers that would take it."""
        return sum(worker.concurrency for worker in self.able)

    @property
    def free_slots(self) -> int:
        return sum(max(0, worker.concurrency - worker.held) for worker in self.able)


def these_workers(workers: Sequence[WorkerSeen]) -> str:
    """`worker 3 (ann-1)` or `2 workers`."""
    if len(workers) == 1:
        return f"worker {workers[0].id} ({workers[0].name})"
    return f"{len(workers)} workers"


def ids_of(workers: Sequence[WorkerSeen]) -> list[int]:
    return [worker.id for worker in workers[:MOST_DETAILED]]
