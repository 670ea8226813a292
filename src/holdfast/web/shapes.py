"""What the API answers, as the document describes it. The names are those of `holdfast.views`, which makes the answers.

Nothing is converted to these: a test compares the names with the views, and the document with real answers.
"""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from holdfast.builds.build import BuildState
from holdfast.jobs.job import AttemptEnd, Outcome, Situation, State
from holdfast.web.paging import Complete, Cursor
from holdfast.workflows.states import StepState, WorkflowState

Item = TypeVar("Item")
Status = Literal["pending", "running", "failed", "completed", "dead"]
Id = Annotated[int, Meta(ge=1, examples=[42])]
Seconds = Annotated[float, Meta(description="Seconds.")]


class Page(Struct, Generic[Item]):
    """A part of a list."""

    items: list[Item]
    cursor: Cursor
    complete: Complete


class ErrorShape(Struct):
    """Why an attempt ended in an error."""

    type: Annotated[str, Meta(examples=["ConnectionError"])]
    message: str
    kind: str


class ProgressShape(Struct):
    """How far a handler says it is."""

    fraction: float
    text: str


class AnswerShape(Struct):
    """What was said from outside about a job that waits."""

    result: str | None
    error: ErrorShape | None
    retry: bool
    due: bool


class JobShape(Struct):
    """A job."""

    id: Id
    job_type: Annotated[str, Meta(examples=["send"])]
    job_key: Annotated[str | None, Meta(examples=["welcome-42"])]
    queue: Annotated[str, Meta(examples=["mail"])]
    state: State
    status: Status
    situation: Annotated[Situation | None, Meta(description="Of a running job: held, waiting or loose.")]
    outcome: Outcome | None
    payload: Annotated[
        dict[str, Any],
        Meta(description="Arguments by name; those marked secret are redacted.", examples=[{"to": "a@b.c"}]),
    ]
    result: Any
    error: ErrorShape | None
    attempt: int
    failures: int
    losses: int
    crashes: int
    retries: int | None
    priority: float
    timeout: Seconds | None
    throttle_factor: float
    time_windows: list[str]
    scheduled_run_time: datetime
    expires_time: datetime | None
    create_time: datetime
    update_time: datetime
    start_time: datetime | None
    end_time: datetime | None
    execution_time: Seconds | None
    total_time: Seconds
    worker: str | None
    retry_of: int | None
    progress: ProgressShape | None
    answer: AnswerShape | None
    run: int | None
    duplicate: bool
    archived: bool


class MoveShape(Struct):
    """One line of a job's history."""

    time: datetime
    from_state: State | None
    to_state: State
    attempt: int
    cause: str
    actor: str


class AttemptShape(Struct):
    """One attempt of a job."""

    attempt: int
    start_time: datetime | None
    end_time: datetime | None
    outcome: AttemptEnd | None
    error: ErrorShape | None
    traceback: str | None
    worker: str | None


class LogLineShape(Struct):
    """One line of a job's log. A gap between ids is what was dropped."""

    id: int
    time: datetime
    attempt: int
    level: str
    text: str


class ExplanationShape(Struct):
    """Why a job is not running, or where it runs."""

    reason: Annotated[str, Meta(examples=["throttled"])]
    text: str
    until: datetime | None
    details: dict[str, Any]


class QueueLoadShape(Struct):
    """How full a queue is. A count named in `about` is at least that much."""

    ready: int
    waiting: int
    parked: int
    running: int
    ended_per_second: float
    about: list[str]
    aside: Annotated[int, Meta(description="Due, and out of the way of others while their pool is full.")]
    held: Annotated[int, Meta(description="Tasks of workflows that somebody keeps from starting.")]
    used: Annotated[float, Meta(description="Of its limit, by the jobs that run.")]
    dead: Annotated[int, Meta(description="In the last hour.")]
    due_since: Annotated[datetime | None, Meta(description="When the oldest job that could start was wanted.")]


class QueueShape(Struct):
    """A queue."""

    name: Annotated[str, Meta(examples=["mail"])]
    order: Literal["priority", "schedule"]
    throttle_limit: Annotated[float, Meta(description="Below 1: no limit.")]
    declared_limit: float
    set_limit: float | None
    paused: bool
    table_name: str
    throttler: dict[str, Any] | None
    jobs: Annotated[dict[str, int] | None, Meta(description="How many in each status, if it was asked for.")]
    load: QueueLoadShape | None


class TypeShape(Struct):
    """A job type as it is registered."""

    job_type: str
    queue: str
    default_timeout: Seconds | None
    default_priority: float
    default_throttle_factor: float
    default_time_windows: list[str]
    default_retries: int | None
    on_crash: str
    max_crashes: int | None
    has_handler: bool
    has_retry_handler: bool
    has_response_handler: bool
    labels: list[str]
    secrets: Annotated[
        list[str], Meta(description="Arguments that any code has declared secret. Views do not show them.")
    ]
    schema: Annotated[dict[str, Any] | None, Meta(description="JSON schema of the arguments.")]
    retry: dict[str, Any] | None


class BreakerShape(Struct):
    """The breaker and the retry budget of a job type with adaptive retry."""

    job_type: str
    state: str
    failures: int
    opened_time: datetime | None
    probe_time: datetime | None
    probe: int | None
    successes: float
    retries: float


class StepShape(Struct):
    """A step of a run, with its tasks in numbers."""

    state: StepState
    created: int
    undone: int
    succeeded: int
    failed: int
    errors: int
    all_created: bool
    start_time: datetime | None
    end_time: datetime | None
    creation_held: bool


class HoldShape(Struct):
    """Something that is held, by whom and since when."""

    level: Annotated[str, Meta(examples=["pick"])]
    workflow: str | None
    trigger: str | None
    actor: str
    hold_time: datetime


class RunShape(Struct):
    """A run of a workflow."""

    id: Id
    workflow: Annotated[str, Meta(examples=["report"])]
    trigger: Annotated[str, Meta(examples=["2026-11-15"])]
    state: WorkflowState
    progress: Annotated[float, Meta(ge=0, le=1)]
    aborted: bool
    params: dict[str, Any]
    ignore: list[str]
    priority: float
    create_time: datetime
    update_time: datetime
    end_time: datetime | None
    archived: bool
    steps: dict[str, StepShape]


class ScheduleShape(Struct):
    """A schedule."""

    name: Annotated[str, Meta(examples=["nightly"])]
    job_type: str
    cron: str | None
    zone: str | None
    every: Seconds | None
    at: list[datetime] | None
    start_time: datetime | None
    end_time: datetime | None
    misfire: str
    payload: dict[str, Any] | None
    const: dict[str, Any] | None
    options: dict[str, Any] | None
    next_time: datetime | None
    last_time: datetime | None
    last_job: int | None
    count: int
    source: str
    declared: bool
    removed: bool
    problem: str | None
    create_time: datetime
    update_time: datetime


class FiringShape(Struct):
    """One firing of a schedule."""

    schedule: str
    count: int
    time: datetime
    fire_time: datetime
    job: int
    duplicate: bool
    actor: str


class WorkerShape(Struct):
    """A worker as it joined, and its last sign of life."""

    id: int
    name: str
    host: str
    pid: int
    version: str
    queues: list[str]
    job_types: list[str]
    labels: list[str]
    duties: list[str]
    concurrency: int
    start_time: datetime
    beat_time: datetime
    stopping: bool
    jobs: Annotated[int, Meta(description="In its hands now.")]


class BuildRefShape(Struct):
    """A ref that asked for a build."""

    ref: Annotated[str, Meta(examples=["refs/heads/main"])]
    branch: Annotated[str | None, Meta(description="Of a pull request: the one that it comes from.")]
    tag: str | None
    pull_request: int | None


class BuildShape(Struct):
    """A build of a commit."""

    id: Id
    job_id: Annotated[int, Meta(description="Its current job.")]
    project: Annotated[str, Meta(examples=["demo"])]
    commit: Annotated[str, Meta(description="Its whole name, in hexadecimal digits.")]
    event: Annotated[str, Meta(description="That asked for it: push, tag or pull_request.")]
    branch: str | None
    tag: str | None
    pull_request: int | None
    forge: str
    trusted: Annotated[bool, Meta(description="The commit is in the repository itself: it may see the secrets.")]
    title: str
    author: str
    build_state: BuildState
    outcome: Annotated[Outcome | None, Meta(description="Null until the build is completed.")]
    error: ErrorShape | None
    attempt: int
    start_time: datetime | None
    end_time: datetime | None
    use_time: Annotated[datetime, Meta(description="When somebody last looked into it.")]
    create_time: datetime
    update_time: datetime
    refs: Annotated[
        list[BuildRefShape], Meta(description="That asked for it, the last one last. At most the last fifty.")
    ]
    steps: Annotated[dict[str, StepState], Meta(description="The state of each step.")]


class BuildStepShape(Struct):
    """A step of a build."""

    name: str
    state: StepState
    start_time: datetime | None
    end_time: datetime | None
    hidden: bool
    reason: str | None
    log_start: Annotated[int | None, Meta(description="Bytes of the log before what it said.")]
    log_end: int | None


class OutputShape(Struct):
    """A file that a build made."""

    name: str
    size: int
    step: str


class BuildPageShape(BuildShape):
    """A build with everything about its steps, and its outputs."""

    step_details: list[BuildStepShape]
    outputs: list[OutputShape]
