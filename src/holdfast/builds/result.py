"""What came of a build, as `completed` keeps it, and what is told while it runs."""

from datetime import datetime

import msgspec
from msgspec import Struct, structs

from holdfast.builds.context import Context
from holdfast.workflows.states import StepState

OUTCOMES = ("success", "failed", "error", "aborted")


class StepChange(Struct, frozen=True, kw_only=True):
    """A step came into a state. `log_size` is how long the log was then: what a step said lies between two of them."""

    step: str
    state: StepState
    time: datetime
    hidden: bool = False  # no commit status is wanted
    reason: str | None = None  # why it is skipped, failed or erred
    log_size: int = 0


class StepResult(Struct, frozen=True, kw_only=True):
    """One step of a build that ended."""

    name: str
    state: StepState
    hidden: bool = False
    reason: str | None = None
    start_time: datetime | None = None  # None if it did not run
    end_time: datetime | None = None
    log_start: int | None = None  # bytes of the log before what it said
    log_end: int | None = None


class Output(Struct, frozen=True, kw_only=True):
    """A file in `generated`."""

    name: str
    size: int
    step: str


class Owner(Struct, frozen=True, kw_only=True):
    """The build that a folder is of. Two of one job id differ in the rest: a restored database gives ids out again."""

    instance: str | None  # its name and its identity; None: built on the spot
    project: str
    commit: str
    context: Context
    job_id: int | None  # None: built on the spot


class BuildResult(Struct, frozen=True, kw_only=True):
    """A build that ended: the content of `completed`."""

    outcome: str  # success, failed, error, aborted
    error: str | None = None  # a sentence; None after success
    instance: str | None = None  # whose it is, as `Owner` says; None in a file of an older Holdfast
    project: str | None = None
    commit: str | None = None
    context: Context | None = None
    job_id: int | None = None
    start_time: datetime | None = None  # None if no builder ever began
    end_time: datetime
    steps: dict[str, StepState] = {}  # by name, in the order in which they ran
    details: tuple[StepResult, ...] = ()
    outputs: tuple[Output, ...] = ()
    condition_names: tuple[str, ...] | None = None  # what the conditions of its build file read; None: not known


def owned(result: BuildResult, owner: Owner) -> BuildResult:
    """The result with its owner."""
    return structs.replace(result, **structs.asdict(owner))


def is_of(result: BuildResult, owner: Owner) -> bool:
    """Return whether the result is the owner's. What an older Holdfast left out is not compared."""
    named = {name: getattr(result, name) for name in Owner.__struct_fields__}
    return all(value is None or value == getattr(owner, name) for name, value in named.items())


def encode(result: BuildResult) -> bytes:
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


decode = msgspec.json.Decoder(BuildResult).decode
