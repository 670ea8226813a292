"""What a build is, and its state as a view of its job, its files and the cache (B2, B3).

A build has no machine of its own:
- ACTIVE are the builds whose job is not final.
- `begun` and `completed` say what a builder has made in the build's folder, and are written after it.
- CACHED are the most recently used of the completed builds.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.builds.context import Context
from holdfast.jobs.job import JobError, Outcome
from holdfast.workflows.states import STEP_STATES, StepState

QUEUE = "builds"
JOB_TYPE = "build"
STATUS_QUEUE = "build_statuses"
STATUS_TYPE = "build_status"  # tells the forge of a build; its key is the build's id
GENERATED = "generated"  # a folder: the outputs
COMPLETED = "completed"  # a file: written last
LOG = "log"


class BuildState(StrEnum):
    RECEIVED = "Freshly received"
    BUILDING = "Building"
    CACHED = "Completed-Cached"
    COMPLETED = "Completed"


class Happening(StrEnum):
    """What may happen to a build."""

    WEBHOOK = "webhook"
    BUILDER_AVAILABLE = "builder available"
    FINISH = "finish"
    FAILURE = "failure"
    ABORT = "abort"
    CACHE_FULL = "cache full"
    USE = "use"
    RETRY = "retry"


MOVES: Mapping[tuple[BuildState | None, Happening], BuildState] = {
    (None, Happening.WEBHOOK): BuildState.RECEIVED,
    (BuildState.RECEIVED, Happening.BUILDER_AVAILABLE): BuildState.BUILDING,
    (BuildState.RECEIVED, Happening.ABORT): BuildState.CACHED,
    (BuildState.BUILDING, Happening.FINISH): BuildState.CACHED,
    (BuildState.BUILDING, Happening.FAILURE): BuildState.CACHED,
    (BuildState.BUILDING, Happening.ABORT): BuildState.CACHED,
    (BuildState.CACHED, Happening.CACHE_FULL): BuildState.COMPLETED,
    (BuildState.COMPLETED, Happening.USE): BuildState.CACHED,
    (BuildState.CACHED, Happening.RETRY): BuildState.RECEIVED,
    (BuildState.COMPLETED, Happening.RETRY): BuildState.RECEIVED,
}


class Standing(Struct, frozen=True):
    """Where a build stands in one of its states: what is in `job_id/`, and what is in memory."""

    exists: tuple[str, ...]
    absent: tuple[str, ...]
    active: bool
    cached: bool


STANDINGS: Mapping[BuildState, Standing] = {
    BuildState.RECEIVED: Standing((), ("",), active=True, cached=False),
    BuildState.BUILDING: Standing((GENERATED,), (), active=True, cached=False),
    BuildState.CACHED: Standing((GENERATED, COMPLETED, LOG), (), active=False, cached=True),
    BuildState.COMPLETED: Standing((GENERATED, COMPLETED, LOG), (), active=False, cached=False),
}


class BuildStep(Struct, frozen=True):
    """A step of the build file."""

    name: str
    state: str
    start_time: datetime | None = None
    end_time: datetime | None = None
    hidden: bool = False
    reason: str | None = None
    log_start: int | None = None  # bytes of the log before what it said
    log_end: int | None = None


class Telling(Struct, frozen=True):
    """Something that the forge is to be told; of the whole build if it names no step."""

    state: str  # pending, success, failed, error, aborted
    description: str
    step: str | None = None


class BuildRef(Struct, frozen=True):
    """A ref that asked for a build."""

    ref: str
    branch: str | None = None
    tag: str | None = None
    pull_request: int | None = None

    @property
    def name(self) -> str:
        """For people: `#7 topic`, `main`, `v1`; the ref itself if it is none of these."""
        number = "" if self.pull_request is None else f"#{self.pull_request} "
        return f"{number}{self.branch or self.tag or ''}".strip() or self.ref


class Line(Struct, frozen=True, omit_defaults=True):
    """What wants a commit built: a pull request, a branch or a tag; without any of them, a request by hand."""

    pull_request: int | None = None
    branch: str | None = None  # of a pull request: the one that it comes from
    tag: str | None = None


def still_wanted(
    lines: Sequence[Line], pull_request: int | None, branch: str | None, tag: str | None = None
) -> tuple[Line, ...]:
    """Return the lines that are left when a pull request, branch or tag is deleted, or wants another commit (B4).

    A pull request and the branch that it comes from are one: a push there tells of both.
    """
    gone = {line for line in lines if branch is not None and line.branch == branch}
    gone |= {line for line in lines if tag is not None and line.tag == tag}
    if pull_request is not None:
        asked = {line for line in lines if line.pull_request == pull_request}
        gone |= asked | {Line(branch=line.branch) for line in asked if line.branch is not None}
    return tuple(line for line in lines if line not in gone)


class Build(Struct, frozen=True, kw_only=True):
    """A commit of a project that is, or was, built in one context."""

    id: int
    job_id: int  # its current one
    project: str
    commit: str
    event: str  # that asked for it: push, tag or pull_request
    ref: str
    branch: str | None
    tag: str | None
    pull_request: int | None
    refs: tuple[BuildRef, ...]  # that asked for it, the last one last; of very many the last ones
    forge: str
    trusted: bool
    title: str
    author: str
    build_state: BuildState
    outcome: Outcome | None  # None until it is completed
    error: JobError | None
    attempt: int
    steps: tuple[BuildStep, ...]
    start_time: datetime | None
    end_time: datetime | None
    use_time: datetime
    create_time: datetime
    update_time: datetime

    @property
    def active(self) -> bool:
        """Whether it is in ACTIVE."""
        return STANDINGS[self.build_state].active

    @property
    def context(self) -> Context:
        """What its result depends on besides the commit."""
        return Context(trusted=self.trusted, event=self.event, branch=self.branch, tag=self.tag)

    @property
    def words(self) -> str:
        return f"Build {self.id} ({self.project} {self.commit[:10]})"


def state_of(final: bool, begun: bool, completed: bool, cached: bool) -> BuildState:
    """A job that ended without a builder leaves its build where it was until the files are written (B3)."""
    if final and completed:
        return BuildState.CACHED if cached else BuildState.COMPLETED
    return BuildState.BUILDING if begun else BuildState.RECEIVED


def job_key(project: str, commit: str, build: int | None = None) -> str:
    """The key of a build's job; with the build's id if an active build of the same commit has the short one."""
    return f"{project}:{commit}" if build is None else f"{project}:{commit}:{build}"


ENDS = {"success": "The build succeeded.", "failed": "The build failed.", "aborted": "The build was aborted."}


def first_words(build: Build, how: str) -> list[Telling]:
    """What a forge is told when a build is asked for: that it waits, or what came of it before."""
    if how == "joined":
        return []
    if how == "reported":
        steps = [telling for step in build.steps if (telling := step_words(step)) is not None]
        return [*steps, last_words(str(build.outcome))]
    return [Telling("pending", "The build waits for a builder.")]


def last_words(outcome: str) -> Telling:
    """What a forge is told of a build that is over."""
    return Telling(outcome, ENDS.get(outcome, "The build could not be done."))


def step_words(step: BuildStep) -> Telling | None:
    """What a forge is told of a step; None of one that is hidden or has not begun."""
    meaning = STEP_STATES[StepState(step.state)]
    if step.hidden or step.state == StepState.DORMANT:
        return None
    state = meaning.result.value if meaning.done else "pending"
    return Telling(state, step.reason or f"{step.name}: {step.state.lower().replace('_', ' ')}", step.name)
