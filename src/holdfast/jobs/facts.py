"""What an explanation is made from: everything around a job that may be a reason for where it is."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.jobs.breaker import Breaker
from holdfast.jobs.job import Attempt, Job
from holdfast.jobs.throttle import Candidate

MOST_BEFORE = 1000  # jobs before it in line that are counted; behind that it is "more than"
MOST_DETAILED = 50  # jobs or workers that are named one by one


class Place(StrEnum):
    """Which table beside the row says where to look for a job that nobody has."""

    READY = "ready"
    WAITING = "waiting"
    PARKED = "parked"
    UNDECIDED = "undecided"


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
    held: int = 0  # jobs that it holds now

    def serves(self, queue: str) -> bool:
        return self.every_queue or queue in self.queues


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that an explanation is made from."""

    job: Job
    now: datetime
    paused: bool = False
    pause_time: datetime | None = None
    paused_by: str | None = None
    throttle_limit: float = 0
    used: float = 0
    users: tuple[int, ...] = ()  # jobs that use the limit, the first of them
    user_count: int = 0
    labels: tuple[str, ...] = ()  # that the type requires
    has_handler: bool = False  # some code has ever declared it
    on_crash: str = "rerun"
    workers: tuple[WorkerSeen, ...] = ()  # the living
    holder: WorkerSeen | None = None  # who has or had it
    place: Place | None = None
    before: tuple[Candidate, ...] = ()  # in line, the head first; one more than MOST_BEFORE if there are more
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
            if job.job_type in worker.types and worker.serves(job.queue) and not worker.stopping
        ]
