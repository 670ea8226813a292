"""What came of a build, as `completed` keeps it, and what is told while it runs."""

from datetime import datetime

import msgspec
from msgspec import Struct

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


class BuildResult(Struct, frozen=True, kw_only=True):
    """A build that ended: the content of `completed`."""

    outcome: str  # success, failed, error, aborted
    error: str | None = None  # a sentence; None after success
    commit: str | None = None
    start_time: datetime | None = None  # None if no builder ever began
    end_time: datetime
    steps: dict[str, StepState] = {}  # by name, in the order in which they ran
    details: tuple[StepResult, ...] = ()
    outputs: tuple[Output, ...] = ()


def encode(result: BuildResult) -> bytes:
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


decode = msgspec.json.Decoder(BuildResult).decode
