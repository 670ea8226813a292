"""The states of tasks, steps and workflows, and how a step's state follows from its tasks and its dependencies.

    DORMANT ──▶ START ──▶ READY ──▶ SUCCESS
       │          │          │
       │          └──────────┴──▶ FAILED · ACCEPTABLE_FAILED · ERROR
       └──▶ IGNORED · ACCEPTABLE_FAILED · SKIP_BY_FAILED · SKIP_BY_ERROR

Rules:
- Every state is a pair: done or not, and a result (F2). What follows hangs on the pairs, not on the names.
- A step is started or skipped only when all its dependencies are done, and decided only when all its created tasks
  are done, so the order in which things finish cannot matter (F4).
- Error beats failed at every level (F5).
- Nothing here does I/O or reads a clock.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, structs

from holdfast.errors import IllegalMove


class Result(StrEnum):
    """What is certain about something."""

    UNKNOWN = "unknown"
    SUCCESS = "success"
    FAILED = "failed"  # as expected to happen at times
    ERROR = "error"  # an exception


class Pair(Struct, frozen=True):
    """What a state stands for."""

    done: bool
    result: Result


UNDONE = Pair(False, Result.UNKNOWN)
SUCCESS = Pair(True, Result.SUCCESS)
FAILED = Pair(True, Result.FAILED)
ERROR = Pair(True, Result.ERROR)


class TaskState(StrEnum):
    UNDONE = "UNDONE"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    ERROR = "ERROR"


TASK_STATES: Mapping[TaskState, Pair] = MappingProxyType(
    {TaskState.UNDONE: UNDONE, TaskState.SUCCESS: SUCCESS, TaskState.FAILED: FAILED, TaskState.ERROR: ERROR}
)


class StepState(StrEnum):
    DORMANT = "DORMANT"
    START = "START"  # its tasks are being created
    READY = "READY"  # all its tasks are created
    SUCCESS = "SUCCESS"
    ACCEPTABLE_FAILED = "ACCEPTABLE_FAILED"
    IGNORED = "IGNORED"
    FAILED = "FAILED"
    SKIP_BY_FAILED = "SKIP_BY_FAILED"
    ERROR = "ERROR"
    SKIP_BY_ERROR = "SKIP_BY_ERROR"


STEP_STATES: Mapping[StepState, Pair] = MappingProxyType(
    {
        StepState.DORMANT: UNDONE,
        StepState.START: UNDONE,
        StepState.READY: UNDONE,
        StepState.SUCCESS: SUCCESS,
        StepState.ACCEPTABLE_FAILED: SUCCESS,
        StepState.IGNORED: SUCCESS,
        StepState.FAILED: FAILED,
        StepState.SKIP_BY_FAILED: FAILED,
        StepState.ERROR: ERROR,
        StepState.SKIP_BY_ERROR: ERROR,
    }
)

MOVES: Mapping[StepState, frozenset[StepState]] = MappingProxyType(
    {
        StepState.DORMANT: frozenset(
            {
                StepState.START,
                StepState.READY,
                StepState.IGNORED,
                StepState.ACCEPTABLE_FAILED,
                StepState.SKIP_BY_FAILED,
                StepState.SKIP_BY_ERROR,
            }
        ),
        StepState.START: frozenset({StepState.READY, StepState.FAILED, StepState.ACCEPTABLE_FAILED, StepState.ERROR}),
        StepState.READY: frozenset({StepState.SUCCESS, StepState.FAILED, StepState.ACCEPTABLE_FAILED, StepState.ERROR}),
    }
)

# By retry of a workflow that ended in error (F16).
RETRY_MOVES: Mapping[StepState, frozenset[StepState]] = MappingProxyType(
    {
        StepState.ERROR: frozenset({StepState.START, StepState.READY}),
        StepState.SKIP_BY_ERROR: frozenset({StepState.DORMANT}),
    }
)


class WorkflowState(StrEnum):
    UNDONE = "UNDONE"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    ERROR = "ERROR"
    STUCK = "STUCK"  # nothing runs, nothing can start, not all is done; cannot happen to a checked definition


WORKFLOW_STATES: Mapping[WorkflowState, Pair] = MappingProxyType(
    {
        WorkflowState.UNDONE: UNDONE,
        WorkflowState.SUCCESS: SUCCESS,
        WorkflowState.FAILED: FAILED,
        WorkflowState.ERROR: ERROR,
        WorkflowState.STUCK: Pair(False, Result.ERROR),
    }
)


class Step(Struct, frozen=True):
    """A step as its state is decided from: what was declared, what was asked for, and its tasks in numbers."""

    name: str
    state: StepState = StepState.DORMANT
    after: tuple[str, ...] = ()
    phase: int = 0
    can_fail: bool = False
    ignored: bool = False  # it may be ignored, and the request asks for it
    undone: int = 0
    succeeded: int = 0
    failed: int = 0
    errors: int = 0
    all_created: bool = False

    @property
    def done(self) -> bool:
        return STEP_STATES[self.state].done

    @property
    def result(self) -> Result:
        return STEP_STATES[self.state].result

    @property
    def spoiled(self) -> bool:
        """A task failed or erred: no more are created (F4)."""
        return self.failed + self.errors > 0


def move(step: Step, to: StepState) -> Step:
    """The step in another state; `IllegalMove`, naming both, where there is no such move."""
    if to not in MOVES.get(step.state, ()):
        raise IllegalMove(f"Step `{step.name}` in state `{step.state}` may not become `{to}`.")
    return structs.replace(step, state=to)


def way(before: Step, after: Step) -> tuple[StepState, ...]:
    """The states that a step went through between two looks at it, the last one included; empty if there is no way.

    The shortest way by the tables that its tasks allow: with tasks it has begun, and if all were created it was `READY`.
    """
    decided = StepState.READY if after.all_created else StepState.START
    if after.state is StepState.ACCEPTABLE_FAILED and not after.undone + after.succeeded + after.failed + after.errors:
        decided = StepState.DORMANT
    again = StepState.READY if before.all_created else StepState.START

    def unlike(way: Sequence[StepState]) -> tuple[bool, bool, int]:
        return way[0] is StepState.ERROR and way[1] is not again, way[-2] is not decided, len(way)

    ways = [] if before.state is after.state else _ways((before.state,), after.state)
    return min(ways, key=unlike, default=(before.state,))[1:]


def _ways(past: tuple[StepState, ...], to: StepState) -> Iterator[tuple[StepState, ...]]:
    """Every way that passes no state twice."""
    if past[-1] is to:
        yield past
        return
    moves = MOVES.get(past[-1], frozenset()) | RETRY_MOVES.get(past[-1], frozenset())
    for state in StepState:
        if state in moves and state not in past:
            yield from _ways((*past, state), to)


def next_state(step: Step, dependencies: Sequence[Result], phase_open: bool, cut: bool = False) -> StepState:
    """The state a step goes to now; its own if it stays.

    `dependencies` are the results of what it comes after. `cut`: with `fail_fast`, another step of its phase erred (F9).
    """
    if step.state is StepState.DORMANT:
        return _begun(step, dependencies, phase_open, cut)
    if step.done or step.undone:
        return StepState.READY if step.state is StepState.START and step.all_created else step.state
    return _decided(step, cut)


def _begun(step: Step, dependencies: Sequence[Result], phase_open: bool, cut: bool) -> StepState:
    if cut:
        return StepState.SKIP_BY_ERROR
    if not phase_open or Result.UNKNOWN in dependencies:
        return step.state
    if Result.ERROR in dependencies:
        return StepState.SKIP_BY_ERROR
    if Result.FAILED in dependencies:
        return StepState.ACCEPTABLE_FAILED if step.can_fail else StepState.SKIP_BY_FAILED
    return StepState.IGNORED if step.ignored else StepState.START


def _decided(step: Step, cut: bool) -> StepState:
    """All tasks that were created are done."""
    if step.errors:
        return StepState.ERROR
    if step.failed:
        return StepState.ACCEPTABLE_FAILED if step.can_fail else StepState.FAILED
    if step.state is StepState.START:
        if step.all_created:
            return StepState.READY
        return StepState.ERROR if cut else StepState.START
    return StepState.SUCCESS


def settle(steps: Sequence[Step], fail_fast: bool = False) -> list[Step]:
    """Every step moved as far as it goes by itself: to a fixed point, the same whatever the order."""
    now = {step.name: step for step in steps}
    moved = True
    while moved:
        # What has started is decided before anything begins: an error that is known cuts its phase (F9).
        moved = _moved(now, fail_fast, begun=True) or _moved(now, fail_fast, begun=False)
    return [now[step.name] for step in steps]


def _moved(now: dict[str, Step], fail_fast: bool, begun: bool) -> bool:
    """One move of each step that has begun, or that has not; whether there was any."""
    open_to = open_phase(list(now.values()))
    erred = {step.phase for step in now.values() if step.state is StepState.ERROR} if fail_fast else set[int]()
    moved = False
    for step in list(now.values()):
        if begun is not (step.state is StepState.DORMANT):
            dependencies = [now[name].result for name in step.after]
            to = next_state(step, dependencies, step.phase <= open_to, step.phase == open_to and step.phase in erred)
            if to is not step.state:
                now[step.name] = move(step, to)
                moved = True
    return moved


def open_phase(steps: Sequence[Step]) -> int:
    """The last phase that has started: all steps of all smaller ones are done, whatever their results (F11)."""
    undone = [step.phase for step in steps if not step.done]
    return min(undone) if undone else max((step.phase for step in steps), default=0)


def workflow_state(steps: Sequence[Step]) -> WorkflowState:
    """Of settled steps (F9, F10)."""
    if all(step.done for step in steps):
        results = {step.result for step in steps}
        if Result.ERROR in results:
            return WorkflowState.ERROR
        return WorkflowState.FAILED if Result.FAILED in results else WorkflowState.SUCCESS
    if any(step.state in (StepState.START, StepState.READY) for step in steps):
        return WorkflowState.UNDONE
    return WorkflowState.STUCK


def abort(steps: Sequence[Step]) -> list[Step]:
    """Started steps end `ERROR`, dormant ones of every phase `SKIP_BY_ERROR`; done ones stay (F16)."""
    ends = {
        StepState.DORMANT: StepState.SKIP_BY_ERROR,
        StepState.START: StepState.ERROR,
        StepState.READY: StepState.ERROR,
    }
    return [move(step, ends[step.state]) if step.state in ends else step for step in steps]


def retry(steps: Sequence[Step]) -> list[Step]:
    """What erred is undone again, what failed stays as it is (F16). Their erred tasks are to run again as new jobs."""
    return [_undone_again(step) for step in steps]


def _undone_again(step: Step) -> Step:
    if step.state is StepState.SKIP_BY_ERROR:
        return structs.replace(step, state=StepState.DORMANT)
    if step.state is StepState.ERROR:
        state = StepState.READY if step.all_created else StepState.START
        return structs.replace(step, state=state, undone=step.undone + step.errors, errors=0)
    return step


def progress(steps: Sequence[tuple[Step, float, int | None]]) -> float:
    """From 0.00 to 1.00: efforts of steps with a success result, plus the done share of started ones (F15).

    Each step comes with its effort and how many tasks it will have, None where nobody knows.
    """
    efforts = weighed([effort for _, effort, _ in steps])
    done = sum(effort * share(step, tasks) for effort, (step, _, tasks) in zip(efforts, steps, strict=True))
    return round(done / sum(efforts), 4) if steps else 1.0


def weighed(efforts: Sequence[float]) -> list[float]:
    """The efforts of steps; where all are 0 they count alike."""
    return list(efforts) if any(efforts) else [1.0] * len(efforts)


def share(step: Step, tasks: int | None) -> float:
    """How much of a step is done, from 0 to 1."""
    if step.result is Result.SUCCESS:
        return 1.0
    done = step.succeeded + step.failed + step.errors
    if step.state not in (StepState.START, StepState.READY) or not done:
        return 0.0
    known = done + step.undone if step.all_created else tasks
    return 0.0 if known is None else min(1.0, done / known)
