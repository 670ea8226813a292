"""What a store promises: the values that cross its border, and the verbs.

- A store is one connection to one instance. Threads may share it; whoever must not wait opens `another()`.
- Every verb is one transaction. It raises `Unavailable` when the database cannot be used within `patience` seconds.
- A write about an attempt that no longer owns its job is *stale*: nothing is changed, the answer says so.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Protocol

from msgspec import Struct

from holdfast.builds.build import Build, BuildStep, Telling
from holdfast.builds.context import Context, event_of
from holdfast.builds.labels import PullRequestLabels
from holdfast.jobs.breaker import Breaker
from holdfast.jobs.facts import Facts
from holdfast.jobs.holds import Hold, Level
from holdfast.jobs.job import Answer, Attempt, Job, JobError, LogLine, Move, Progress
from holdfast.jobs.payload import MAX_BYTES
from holdfast.jobs.placement import DUTIES, PREFER_FOR, DutyRule
from holdfast.jobs.routines import Routine
from holdfast.jobs.schedules import Schedule
from holdfast.jobs.secrets import EveryName, Redaction, redacted
from holdfast.jobs.states import Change, Happening
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.plan import StepRow
from holdfast.workflows.states import WorkflowState


class QueueDeclared(Struct, frozen=True):
    """A queue as the code declares it."""

    name: str
    table_name: str
    claim_order: str = "priority"
    throttle_limit: float = 0
    throttler: str | None = None  # as JSON


class QueueRow(Struct, frozen=True):
    """A queue as it is stored; what an operator set wins over what the code declared (Q2)."""

    name: str
    table_name: str
    claim_order: str
    declared_limit: float
    throttler: str | None
    set_limit: float | None
    paused: bool

    @property
    def throttle_limit(self) -> float:
        return self.declared_limit if self.set_limit is None else self.set_limit

    @property
    def throttled(self) -> bool:
        """Jobs are claimed from it under its lock."""
        return self.throttle_limit >= 1 or self.throttler is not None


class TypeRow(Struct, frozen=True):
    """A job type as it is registered (Q3)."""

    job_type: str
    queue: str
    default_timeout: float | None = 30
    default_priority: float = 100
    default_throttle_factor: float = 1
    default_time_windows: tuple[str, ...] = ()
    default_retries: int | None = 3
    timeout_named: bool = False  # the code says it; else it is the default
    retries_named: bool = False
    retry: str | None = None
    on_crash: str = "rerun"
    max_crashes: int | None = 3
    has_handler: bool = False
    has_retry_handler: bool = False
    has_response_handler: bool = False
    schema: str | None = None
    labels: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()  # arguments that nobody is shown
    prefers: tuple[str, ...] = ()
    prefer_for: float = PREFER_FOR
    damaged: tuple[str, ...] = ()  # columns that cannot be read


class NewJob(Struct, frozen=True, gc=False):
    """A job to be added, complete: the type's defaults are already in it."""

    queue: str
    job_type: str
    payload: str
    job_key: str | None = None
    priority: float = 100
    timeout: float | None = 30
    throttle_factor: float = 1
    retries: int | None = 3
    timeout_named: bool = False  # somebody asked for it; else it is the default
    retries_named: bool = False
    time_windows: tuple[str, ...] = ()
    scheduled_run_time: datetime | None = None
    delay: float | None = None
    expires_time: datetime | None = None
    on_duplicate: str = "return"
    retry_of: int | None = None
    run: int | None = None  # whose task it is
    trace: str | None = None  # what its spans belong to, as JSON


class Claimed(Struct, gc=False):
    """One attempt in a worker's hand. Not frozen: the runner notes on it when it began. Small: there may be many."""

    queue: str
    lease: int
    id: int
    attempt: int
    job_type: str
    job_key: str | None
    payload: str
    timeout: float | None
    losses: int
    answer: str | None = None  # to the wait of the attempt before, or to one that is still to come
    checkpoint: str | None = None  # what an attempt before has saved
    run: int | None = None  # whose task it is
    job: Job | None = None  # for a response handler
    began: float = 0.0  # monotonic: when it was claimed, and then when its handler was called
    why: str = ""  # why it was cancelled: timeout, aborted, stopping, crashed
    actor: str = ""  # who had it aborted
    task: Any = None  # the task it is suspended in
    trace: str | None = None  # what its span belongs to
    hidden: Redaction = Redaction()  # of its secret arguments
    notes: Any = None  # where its progress, log and checkpoint go
    limit: int = MAX_BYTES  # bytes that its result or checkpoint may have


class Done(Struct, frozen=True):
    """Plain success of an attempt."""

    call: Claimed
    seconds: float
    result: str | None
    effects: str | None = None  # of a task: what it publishes for those after it


class Report(Struct, frozen=True):
    """Something that happened to a job. Without `attempt` it is about the job, whatever attempt it is in."""

    job_id: int
    happening: Happening
    attempt: int | None = None
    job_type: str = ""
    lease: int = 0
    actor: str | None = None  # from outside: leaves an audit row
    action: str = ""
    queue: str = ""  # of an attempt in a worker


class Line(Struct, frozen=True, gc=False):
    """Something that a handler said for its job's log."""

    said: float  # on the monotonic clock
    level: str
    text: str
    skipped: int = 0  # lines before it that nobody had room for


class Note(Struct, frozen=True):
    """What an attempt says about itself while it holds its job; None: nothing new."""

    job_id: int
    attempt: int
    queue: str
    progress: Progress | None = None
    checkpoint: str | None = None  # as JSON
    lines: Sequence[Line] = ()
    log_limit: int = 1 << 20  # bytes that the job's log may have


class Want(Struct, frozen=True):
    """Room for so many jobs of a queue; `free` of them could begin at once."""

    queue: str
    room: int
    free: int = 1


class Turn(Struct, frozen=True):
    """What a worker has to tell and what it wants, in one transaction."""

    worker: int
    pump: int = 0
    done: Sequence[Done] = ()
    reports: Sequence[Report] = ()
    ended_leases: Sequence[int] = ()
    wants: Sequence[Want] = ()
    types: tuple[str, ...] = ()
    promote: bool = False
    notes: Sequence[Note] = ()  # of the jobs that end with this turn: written before their end
    won: Sequence[str] = ()  # the types of successes of this turn that are settled already
    late: tuple[tuple[str, float], ...] = ()  # types of which it takes what has been due for so many seconds
    deaf: tuple[str, ...] = ()  # types whose answers it leaves to workers that have their response handler


class TurnAnswer(Struct, frozen=True):
    """What came of a turn."""

    claimed: Sequence[Claimed]
    stale: int
    changes: Sequence[Change | None]
    wake_in: float | None = None  # seconds until the next job's time comes; known after `promote`
    full: Mapping[
        str, float | None
    ] = {}  # throttled queues whose due jobs may not start; seconds until they might, if known
    told: "Mapping[tuple[int, str, int], StepOfRun]" = {}  # by run, step and publication: for tasks that were made
    look_in: float | None = None  # seconds until there may be jobs that this look could not see
    locked: Sequence[str] = ()  # throttled queues whose lock somebody else kept: they were not asked
    promoted: int = 0  # jobs whose time has come
    left: Sequence[str] = ()  # queues in whose line stand tasks that were made


class WorkerJoin(Struct, frozen=True):
    """How a worker introduces itself."""

    name: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    types: tuple[str, ...]
    labels: tuple[str, ...]
    concurrency: int
    lock_path: str | None = None
    every_queue: bool = False  # also those made after it came
    duties: tuple[str, ...] = DUTIES


class WorkerRow(Struct, frozen=True):
    """A live worker."""

    id: int
    name: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    types: tuple[str, ...]
    labels: tuple[str, ...]
    concurrency: int
    beat: int
    lock_path: str | None
    start_time: datetime
    beat_time: datetime
    stopping: bool
    every_queue: bool = False
    duties: tuple[str, ...] = DUTIES

    @property
    def takes_jobs(self) -> bool:
        return "run" in self.duties and not self.stopping


class Pulse(Struct, frozen=True):
    """What a sweeper has to do now, asked in one go."""

    overdue_in: float | None  # seconds until the next deadline of a job that nobody holds
    shut: bool  # due jobs that may not start any more
    aborts: bool  # wishes to end jobs
    strays: bool  # leases of workers that are gone
    undecided: bool  # errors that a retry handler has to judge
    tripped: bool  # types whose breaker is not closed
    aborting: bool  # runs that were aborted, with tasks that are not
    releasing: bool  # holds that were released, with something that did not come forward


class QueueLoad(Struct, frozen=True):
    """How full a queue is. A count named in `about` is at least that much."""

    name: str
    paused: bool
    throttle_limit: float
    ready: int
    waiting: int  # for their time
    parked: int  # no live worker handles their type
    running: int
    ended_per_second: float
    about: tuple[str, ...] = ()
    aside: int = 0  # due, and out of the way of others while their pool is full
    held: int = 0  # tasks of workflows that somebody keeps from starting
    used: float = 0.0  # of its limit, by the jobs that run
    dead: int = 0  # in the last hour
    due_since: datetime | None = None  # when the oldest job that could start was wanted


class Running(Struct, frozen=True):
    """A job that a worker holds."""

    id: int
    job_type: str
    job_key: str | None
    queue: str
    attempt: int
    start_time: datetime
    worker: str | None
    progress: Progress | None
    timeout: float | None = None


class Ended(Struct, frozen=True):
    """Jobs of a queue that ended together."""

    queue: str
    end_time: datetime
    count: int


class Glance(Struct, frozen=True):
    """An instance at one moment."""

    time: datetime
    queues: tuple[QueueLoad, ...]
    slowest: tuple[Running, ...]  # the job that has been running longest first
    in_hand: Mapping[int, int]  # worker → jobs
    unhandled: Mapping[str, int] = {}  # job type that no live worker handles → due jobs of it
    deaths: tuple[datetime, ...] = ()  # of the last hour, the newest first, up to a bound
    ends: tuple[Ended, ...] = ()  # transactions that ended jobs, the newest first, up to a bound
    ends_since: datetime | None = None  # they are all there are after this; None: all there are


class ScheduleRow(Struct, frozen=True):
    """A schedule as it is stored; what an operator set wins over what the code declared (W6)."""

    schedule: Schedule  # the one in force
    source: str  # of that one: code or operator
    declared: bool  # the code declares one of this name
    removed: bool  # by an operator: it does not fire
    next_time: datetime | None
    last_time: datetime | None  # of the last firing
    last_job: int | None
    count: int  # firings so far
    problem: str | None  # why it could not fire when it last was due
    create_time: datetime
    update_time: datetime

    @property
    def name(self) -> str:
        return self.schedule.name


class FiringRow(Struct, frozen=True):
    """One firing of a schedule."""

    schedule: str
    count: int  # its number, from 1
    time: datetime  # the schedule's
    fire_time: datetime  # when it happened
    job: int
    duplicate: bool  # a living job had the key, so none was made
    actor: str  # `schedule`, or who fired it by hand


class Fired(Struct, frozen=True):
    """What came of a look at the schedules."""

    wake_in: float | None  # seconds until there is more to do
    count: int = 0  # firings
    told: tuple[str, ...] = ()  # sentences about what did not go as planned


class PartRow(Struct, frozen=True):
    """A part of a routine."""

    index: int
    turn: Job | None  # the living one; None: the routine is paused, or waits for turns of another scale to end
    turns: int  # that have ended
    failures: int  # of them in a row, up to now
    next_time: datetime | None  # of its next turn
    last_job: int | None
    last_end_time: datetime | None
    last_outcome: str | None
    error: JobError | None  # the last one there was
    error_time: datetime | None
    checkpoint: Any  # what its turns saved last


class RoutineRow(Struct, frozen=True):
    """A routine as it is stored (F19)."""

    routine: Routine
    paused: bool
    removed: bool  # by an operator
    create_time: datetime
    update_time: datetime
    parts: tuple[PartRow, ...]
    damaged: tuple[str, ...] = ()  # columns that cannot be read

    @property
    def name(self) -> str:
        return self.routine.name


class Filter(Struct, frozen=True):
    """What `find` and `page` look for; None means anything. Only `page` looks at what stands behind `archive`."""

    job_type: str | None = None
    job_key: str | None = None
    queue: str | None = None
    state: str | None = None
    status: str | None = None
    before: int | None = None
    limit: int = 50
    archive: bool = False
    live: bool = True  # False: nothing but the archive
    outcome: str | None = None
    situation: str | None = None
    worker: int | None = None
    run: int | None = None
    retry_of: int | None = None
    priority: float | None = None
    attempt: int | None = None
    failures: int | None = None
    error: str | None = None  # stands somewhere in it
    create_time_since: datetime | None = None  # and with it
    create_time_until: datetime | None = None  # and without it
    scheduled_run_time_since: datetime | None = None
    scheduled_run_time_until: datetime | None = None
    end_time_since: datetime | None = None
    end_time_until: datetime | None = None


class Page(Struct, frozen=True):
    """A part of a list, newest first."""

    jobs: Sequence[Job]
    before: int | None  # where the next one begins; None: there is no more
    complete: bool  # False: it looked at as many jobs as one page may, and there may be more that fit


class ArchivePage(Struct, frozen=True):
    """Which part of the archive to read; None means anything."""

    job_type: str | None = None
    queue: str | None = None
    since: datetime | None = None  # of the end, and with it
    until: datetime | None = None  # of the end, and without it
    after: int = 0
    limit: int = 1000


class RunPage(Struct, frozen=True):
    """Which part of the archived runs to read; None means anything."""

    workflow: str | None = None
    since: datetime | None = None  # of the end, and with it
    until: datetime | None = None  # of the end, and without it
    after: int = 0
    limit: int = 1000


class News(Enum):
    """What a watch has heard of."""

    ANYTHING = "anything"
    JOBS = "jobs"  # became due
    ABORT = "abort"  # somebody wants a job in a worker's hand to end, or holds it
    QUEUES = "queues"  # one was paused, resumed or given a limit
    SCHEDULES = "schedules"  # one was added, changed or removed


class Taker(Protocol):
    """A worker of this process, as an enqueue knows it. The enqueue may be interrupted at any line, and nothing is lost by that."""

    @property
    def offering(self) -> threading.Lock:
        """Is locked from before an offer until after its end, by `with` and nothing else: that lets go of it in any case."""
        ...

    def may_offer(self, queue: str) -> bool:
        """Whether it is worth while to lock `offering`."""
        ...

    def offer(self, queue: str) -> Turn | None:
        """A claim to be made in the transaction of an enqueue, if it still has nothing in hand."""
        ...

    def give(self, claimed: Sequence[Claimed]) -> None:
        """What came of an offer; perhaps nothing."""
        ...

    def let_go(self) -> None:
        """`offering` is not locked any more."""
        ...

    def lend(self, queue: str, job_type: str, most: int, worker: int | None, ending: int) -> Turn | None:
        """Room for jobs that are about to be made, and begin with that; `take` is called then.

        None if there is none, another `worker` is wanted, or we may be interrupted. So many of its jobs are `ending` in the
        same transaction.
        """
        ...

    def take(
        self, turn: Turn, claimed: Sequence[Claimed] | None, told: "Mapping[tuple[int, str, int], StepOfRun]"
    ) -> None:
        """What came of a loan, and what it is told of tasks among it. None: nobody knows, for the answer was lost."""
        ...


class Watch(Protocol):
    """A running watch for changes made elsewhere."""

    def close(self) -> None: ...


class Submission(Struct, frozen=True, kw_only=True):
    """A workflow that is to run."""

    definition: Definition
    trigger: str
    params: dict[str, Any] = {}
    step_params: dict[str, dict[str, Any]] = {}
    ignore: tuple[str, ...] = ()
    priority: float = 100
    actor: str = "app"


class RunStep(Struct, frozen=True):
    """A step of a run."""

    counts: StepRow
    items_job: int | None = None
    cursor: str | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    creation_held: bool = False  # its tasks may not be made (F17)
    damaged: tuple[str, ...] = ()  # columns that cannot be read


class StepOfRun(Struct, frozen=True):
    """What the tasks of one step of a run are told."""

    workflow: str
    trigger: str
    declared: StepDefinition
    step: RunStep
    params: dict[str, Any]
    dependencies: dict[str, str]
    secrets: tuple[str, ...] = ()  # params that nobody is shown


class RunRow(Struct, frozen=True):
    """A run of a workflow."""

    id: int
    workflow: str
    trigger: str
    state: WorkflowState
    definition: Definition
    params: dict[str, Any]
    step_params: dict[str, Any]
    published: dict[str, Any]
    publication: int
    ignore: tuple[str, ...]
    priority: float
    progress: float
    aborted: bool
    create_time: datetime
    update_time: datetime
    end_time: datetime | None
    steps: tuple[RunStep, ...]
    holds: tuple[Hold, ...] = ()  # that it is kept back by
    archived: bool = False
    damaged: tuple[str, ...] = ()  # columns that cannot be read

    @property
    def secrets(self) -> Collection[str]:
        """The params that nobody is shown; all of them if the definition, which names them, cannot be read."""
        return EveryName() if "definition" in self.damaged else self.definition.secrets

    @property
    def shown_params(self) -> dict[str, Any]:
        """Without those that nobody is shown."""
        return redacted(self.params, self.secrets, whole="params" in self.damaged)

    @property
    def shown_published(self) -> dict[str, Any]:
        return redacted(self.published, self.secrets, whole="published" in self.damaged)

    @property
    def title(self) -> str:
        return f"Run `{self.trigger}` of workflow `{self.workflow}`"


class Restored(Struct, frozen=True):
    """What was done to an instance after its database was restored from a backup."""

    ids_after: int  # the ids of new jobs are greater
    workers: int  # of the backup, now lost
    jobs: int  # that they held
    sessions: int  # browser sessions and login links that ended


class NewToken(Struct, frozen=True, kw_only=True):
    """A token of a program, or a login link, to be stored by the hash of its secret."""

    name: str
    hash: str
    scope: str
    kind: str = "token"  # or login
    queues: tuple[str, ...] | None = None  # it reaches only these; None: all
    lasts: timedelta | None = None  # None: until it is revoked
    server: int | None = None  # the only server that accepts a login link


class TokenRow(Struct, frozen=True):
    """A token, a login link or a session, without its secret."""

    id: int
    name: str
    kind: str  # token, login or session
    scope: str
    queues: tuple[str, ...] | None  # it reaches only these; None: all
    create_time: datetime
    expires_time: datetime | None
    use_time: datetime | None  # of the last use, to the minute
    idle_expires_time: datetime | None  # of a session: its end, unless it is used before


class SessionLimits(Struct, frozen=True):
    """How long a browser's session lasts."""

    lifetime: timedelta = timedelta(days=7)
    idle_timeout: timedelta = timedelta(days=1)  # without use


class NewDelivery(Struct, frozen=True, kw_only=True):
    """What a forge sent for a project. It counts once."""

    project: str
    forge: str
    id: str
    body: str | None = None  # its SHA-256, where the id is not signed: the body counts once, under any id
    labels: PullRequestLabels | None = None  # to keep as the last known ones
    default_branch: str | None = None  # of the repository, if the forge says it


class NewBuild(Struct, frozen=True, kw_only=True):
    """A build that somebody asks for."""

    project: str
    commit: str
    ref: str
    branch: str | None = None
    tag: str | None = None
    pull_request: int | None = None
    forge: str = "generic"
    trusted: bool = True
    title: str = ""
    author: str = ""
    delivery: NewDelivery | None = None  # that asks for it
    rebuild: bool = False  # also what has a result
    supersedes: bool = False  # older builds of the branch; those of the pull request always
    timeout: float | None = 600.0
    tells: bool = False  # the forge wants to be told
    actor: str = "app"

    @property
    def context(self) -> Context:
        """What the result depends on besides the commit."""
        event = event_of(self.pull_request, self.tag)
        return Context(trusted=self.trusted, event=event, branch=self.branch, tag=self.tag)


class Received(Struct, frozen=True):
    """What came of asking for a build (B4)."""

    build: Build
    how: str  # new, joined, reported, again
    superseded: tuple[int, ...] = ()
    left: int | None = None  # the job that it had before, whose folder nobody needs


class EndedBuild(Struct, frozen=True):
    """A build whose job is final, while nobody has written its files or compared them with the job."""

    id: int
    job_id: int
    project: str
    commit: str
    context: Context
    begun: bool
    completed: bool  # its builder has written them
    outcome: str
    error: str | None


class StatusRow(Struct, frozen=True):
    """A commit status that the forge has still to be told."""

    id: int
    build: int
    step: str | None
    state: str
    description: str
    create_time: datetime
    branch: str | None = None  # that asked for the report; None with the tag: the build's own
    tag: str | None = None


class BuildFilter(Struct, frozen=True):
    """Which builds to list; None means any."""

    project: str | None = None
    branch: str | None = None  # that it was built for, or that asked for its result
    trusted: bool | None = None
    commit: str | None = None
    state: str | None = None
    before: int | None = None
    limit: int = 50
    cache: int = 200  # how many completed builds are cached


class AuditRow(Struct, frozen=True):
    """What somebody did from outside."""

    id: int
    time: datetime
    actor: str
    action: str
    job: int | None
    attempt: int | None
    queue: str | None
    detail: str | None


class AttemptRecord(Struct, frozen=True):
    """An attempt that did not end in plain success."""

    id: int
    job: int
    attempt: int
    outcome: str
    state: str  # of the job after it
    time: datetime
    error: JobError | None


class RecentEnd(Struct, frozen=True):
    """A job that ended lately."""

    job_type: str
    outcome: str
    execution_time: float | None


class DamagedRow(Struct, frozen=True):
    """A row with columns that cannot be read."""

    table: str
    key: str  # by which it is found in its table
    columns: Mapping[str, str]  # each with the reason
    living: bool = False  # a job that has not ended


class RequestKey(Struct, frozen=True):
    """A request that must not be carried out twice."""

    owner: str
    key: str
    print: str  # of what it asks for


class Store(Protocol):
    """One connection to one instance."""

    patience: float | None
    pumps: int  # how many connections a worker's turn profits from
    lot: int  # how many items are best stored at a time
    listeners: list[Callable[[], None]]  # called in this process after jobs became due
    takers: list[Taker]  # the workers of this process
    source: Any  # what the job values that it makes are to ask for more
    throttlers: dict[str, Any]  # by queue: the throttler functions that this process has

    @property
    def generation(self) -> int:
        """How often it has connected."""
        ...

    def files(self) -> tuple[str, ...]: ...

    def lock_path(self) -> str | None: ...

    def address(self) -> tuple[str, str, str] | None:
        """Where another process finds this database: its kind, a path or connection string, the instance. None: none can."""
        ...

    hears_itself: bool

    def hush(self) -> None: ...

    def listen(self) -> None: ...

    def changed(self, waited: bool = False) -> bool: ...

    def another(self, patience: float | None = None) -> "Store": ...

    def until(self, ends: float | None) -> AbstractContextManager[None]:
        """Whatever patience there is, nothing waits for the database after this moment."""
        ...

    def give_way(self, still: float, lock: float | None = None) -> None:
        """Be ended by the database when a transaction stands still for so long, and wait no longer than `lock` for those of others."""
        ...

    def abandon(self) -> None: ...

    def close(self) -> None: ...

    # The instance
    def set_up(self) -> None: ...

    def migrate(self) -> Sequence[str]: ...

    def begin_anew(self, ids_after: int | None, in_folder: int, owner: str | None, actor: str) -> Restored: ...

    def instances(self) -> Sequence[str]: ...

    def check(self) -> Sequence[tuple[str, bool, str]]: ...

    def damaged_rows(self, newest: int) -> Sequence[DamagedRow]:
        """Rows with columns that cannot be read, among the newest of tables that grow, and all of the others."""
        ...

    def ready(self) -> None: ...

    def now(self) -> datetime: ...

    # Queues and types
    def register(self, queues: Sequence[QueueDeclared], types: Sequence[TypeRow]) -> None: ...

    def queues(self) -> Sequence[QueueRow]: ...

    def types(self) -> Mapping[str, TypeRow]: ...

    def add_type(self, job_type: str, queue: str) -> TypeRow: ...

    def pause(self, queue: str, paused: bool, actor: str) -> None: ...

    def limit(self, queue: str, limit: float | None, actor: str) -> None: ...

    def counts(self) -> Mapping[str, Mapping[str, int]]: ...

    def glance(self) -> Glance: ...

    def breakers(self) -> Sequence[Breaker]: ...

    def breaker(self, job_type: str) -> Breaker | None: ...

    def reset_breaker(self, job_type: str, actor: str) -> Breaker: ...

    # Jobs
    def add(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Job]: ...

    def add_each(self, lots: Sequence[Sequence[NewJob]], ends: float) -> Sequence[Sequence[Job] | Exception]: ...

    def traces(self, jobs: Sequence[int]) -> Mapping[int, str]: ...

    def add_once(self, new: NewJob, request: RequestKey) -> Job: ...

    def transaction(self) -> AbstractContextManager[Any]: ...

    def is_inside(self, connection: Any) -> bool:
        """Whether the connection that `transaction` gave is in one still: its user may have ended it."""
        ...

    def get(self, job_id: int) -> Job: ...

    def get_each(self, job_ids: Sequence[int], ends: float) -> Sequence[Job | Exception]: ...

    def find(self, wanted: Filter) -> Sequence[Job]: ...

    def page(self, wanted: Filter) -> Page: ...

    def last_records(self) -> tuple[int, int]: ...

    def records(self, audit: int, attempt: int, limit: int) -> tuple[Sequence[AuditRow], Sequence[AttemptRecord]]: ...

    def recent_ends(self) -> Sequence[RecentEnd]: ...

    def size(self) -> int: ...

    def history(self, job_id: int) -> Sequence[Move]: ...

    def attempts(self, job_id: int) -> Sequence[Attempt]: ...

    def log(self, job_id: int, after: int = 0, limit: int = 1000) -> Sequence[LogLine]: ...

    def facts(self, job_id: int) -> Facts: ...

    def step_facts(self, run: int, step: str) -> tuple[RunRow, Facts | None]: ...

    def report(self, reports: Sequence[Report]) -> Sequence[Change | None]: ...

    def abort(self, job_id: int, actor: str) -> Job: ...

    def answer(self, job: int | tuple[str, str], answer: Answer, actor: str) -> Job: ...

    def retry(self, new: NewJob, actor: str) -> Job: ...

    # Schedules
    def declare_schedules(self, schedules: Sequence[Schedule]) -> None: ...

    def schedules(self) -> Sequence[ScheduleRow]: ...

    def firings(self, name: str, limit: int) -> Sequence[FiringRow]: ...

    def set_schedule(self, schedule: Schedule, actor: str) -> ScheduleRow: ...

    def reset_schedule(self, name: str, actor: str) -> ScheduleRow: ...

    def remove_schedule(self, name: str, actor: str) -> None: ...

    def fire_schedule(self, name: str, actor: str) -> Job: ...

    def fire_due(self) -> Fired: ...

    # Routines
    def declare_routines(self, routines: Sequence[Routine]) -> None: ...

    def routines(self) -> Sequence[RoutineRow]: ...

    def pause_routine(self, name: str, paused: bool, actor: str) -> RoutineRow: ...

    def remove_routine(self, name: str, actor: str) -> None: ...

    def revive_routines(self) -> int: ...

    # Workflows and their runs
    def declare_workflows(self, declared: Sequence[Definition]) -> None: ...

    def workflows(self) -> Mapping[str, Definition]: ...

    def submit(self, wanted: Submission) -> RunRow: ...

    def run_of(self, workflow: str, trigger: str) -> RunRow: ...

    def run_by_id(self, run: int) -> RunRow: ...

    def run_state(self, run: int) -> WorkflowState: ...

    def step_of_run(self, run: int, step: str, publication: int | None = None) -> StepOfRun: ...

    def runs(
        self,
        workflow: str | None = None,
        state: str | None = None,
        before: int | None = None,
        limit: int = 50,
        archive: bool = False,
    ) -> Sequence[RunRow]: ...

    def tasks(self, run: int, step: str, after: int = 0, limit: int = 1000) -> Sequence[Job]: ...

    def add_items(
        self, run: int, step: str, produced: int, items: Sequence[Any], cursor: Any, last: bool
    ) -> int | None: ...

    def items_stored(self, run: int, step: str) -> bool: ...

    def undone_tasks(self, run: int, step: str) -> int: ...

    def retry_run(self, run: int, actor: str) -> RunRow: ...

    def abort_run(self, run: int, actor: str) -> RunRow: ...

    def abort_tasks(self, run: int, actor: str) -> int: ...

    def go_on_aborting(self) -> int: ...

    def archive_run(self, run: int, actor: str) -> RunRow: ...

    def delete_run(self, run: int, actor: str) -> None: ...

    def holds(self) -> Sequence[Hold]: ...

    def hold(self, level: Level, workflow: str | None, trigger: str | None, actor: str) -> Hold: ...

    def release(self, level: Level, workflow: str | None, trigger: str | None, actor: str) -> None: ...

    def bring_forward(self) -> int: ...

    # Who may ask over HTTP
    def add_token(self, new: NewToken, actor: str) -> TokenRow: ...

    def token(self, hash: str, kind: str) -> TokenRow | None: ...

    def tokens(self, alive_within: float) -> Sequence[TokenRow]: ...

    def use_token(self, token: int, idle_timeout: timedelta | None) -> None: ...

    def revoke_token(self, named: str, actor: str) -> int: ...

    def revoke_sessions(self, actor: str) -> int: ...

    def log_in(self, link: str, session: str, limits: SessionLimits, server: int | None) -> bool: ...

    def log_in_with_token(self, token: str, session: str, limits: SessionLimits) -> bool: ...

    def log_out(self, session: str) -> None: ...

    def add_server(self, address: str) -> int: ...

    def beat_server(self, server: int) -> bool: ...

    def drop_server(self, server: int) -> None: ...

    def newest_server(self, alive_within: float) -> str | None: ...

    # Builds
    def receive_build(self, new: NewBuild) -> Received: ...

    def receive_labelled_build(self, new: NewBuild, label: str) -> Received | None: ...

    def identity(self) -> str: ...

    def end_builds(
        self,
        project: str,
        branch: str | None,
        pull_request: int | None,
        actor: str,
        delivery: NewDelivery | None = None,
        tag: str | None = None,
    ) -> Sequence[int]: ...

    def take_delivery(self, delivery: NewDelivery) -> None: ...

    def default_branch(self, project: str) -> str | None: ...

    def put_default_branch(self, project: str, branch: str) -> None: ...

    def builds(self, wanted: BuildFilter) -> Sequence[Build]: ...

    def build(self, build: int, cache: int) -> Build: ...

    def builds_of_branch(self, project: str, branch: str, limit: int, cache: int) -> Sequence[Build]: ...

    def build_of_job(self, job: int, cache: int) -> Build | None: ...

    def cached_builds(self, cache: int) -> Sequence[tuple[int, datetime]]: ...

    def use_build(self, build: int) -> None: ...

    def begin_build(self, job: int, attempt: int) -> bool: ...

    def tell_steps(self, job: int, attempt: int, steps: Sequence[BuildStep], told: Sequence[Telling]) -> bool: ...

    def complete_build(
        self,
        job: int,
        attempt: int,
        steps: Sequence[BuildStep] | None,
        told: Sequence[Telling],
        found: str | None = None,
        condition_names: Sequence[str] | None = None,
    ) -> bool: ...

    def abort_build(self, build: int, actor: str) -> Job: ...

    def retry_build(self, build: int, actor: str, timeout: float | None = None) -> Received: ...

    def ended_builds(self, limit: int = 100) -> Sequence[EndedBuild]: ...

    def agree_on_builds(self, jobs: Sequence[int]) -> None: ...

    def build_jobs(self, jobs: Sequence[int]) -> Mapping[int, tuple[bool, bool]]: ...

    def old_builds(self, unused_for: float, limit: int = 100) -> Sequence[tuple[int, int]]: ...

    def drop_build(self, build: int, job: int) -> bool: ...

    def next_status(self, build: int) -> StatusRow | None: ...

    def drop_status(self, status: int) -> None: ...

    def tell_untold(self) -> int: ...

    def forget_deliveries(self, limit: int = 5000) -> None: ...

    # The worker
    def exchange(self, turn: Turn) -> TurnAnswer: ...

    def note(self, notes: Sequence[Note], waits: bool = True) -> Sequence[bool | None]: ...

    def join(self, worker: WorkerJoin) -> int: ...

    def pulse(self) -> "Pulse": ...

    def beat(self, worker: int, stopping: bool = False) -> bool: ...

    def leave(self, worker: int) -> None: ...

    def workers(self) -> Sequence[WorkerRow]: ...

    def aborts(self, worker: int) -> Sequence[tuple[int, int, str]]: ...

    def set_duties(self, worker: int, duties: Sequence[str]) -> None: ...

    def duty_rules(self) -> Sequence[DutyRule]: ...

    def switch_duty(self, rule: DutyRule, actor: str) -> DutyRule: ...

    def drop_duty_rule(self, rule: int, actor: str) -> None: ...

    def undecided(self, types: Sequence[str]) -> Sequence[int]:
        """Errors that retry handlers of these types are to judge, or the policy, as no registered code has one (R5)."""
        ...

    def watch(self, wake: Callable[[News | str], None]) -> Watch:
        """Calls `wake` with what it heard of; with the name of a queue, if jobs became due there and that is known."""
        ...

    # The sweeper
    def lose(self, worker: int, beat: int | None = None) -> int | None: ...

    def disown(self, worker: int, pump: int, known: Sequence[int]) -> int: ...

    def recover_strays(self) -> int: ...

    def end_overdue(self) -> float | None: ...

    def end_old_aborts(self, seconds: float) -> int: ...

    def shut(self) -> int: ...

    def park(self, handled: Sequence[str]) -> int: ...

    def parked_types(self) -> dict[str, int]: ...

    def park_tripped(self) -> bool: ...

    def restore(self, after: int, count: int, older_than: float) -> tuple[int, int]: ...

    # The archive
    def audit_archiving(self, actor: str, older_than: float, keep: float | None) -> None: ...

    def archive(self, older_than: float, limit: int = 10_000) -> int: ...

    def archived(self, wanted: ArchivePage) -> Sequence[Job]: ...

    def attempts_of(self, jobs: Sequence[Job]) -> Mapping[int, Sequence[Attempt]]: ...

    def forget(self, older_than: float, limit: int = 10_000) -> int: ...

    def archive_runs(self, older_than: float, limit: int = 100) -> int: ...

    def archived_runs(self, wanted: RunPage) -> Sequence[RunRow]: ...

    def forget_runs(self, older_than: float, limit: int = 1000) -> int: ...

    def tidy(self, thorough: bool = True) -> str | None: ...
