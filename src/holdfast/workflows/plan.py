"""What a run needs next: which steps move, and which tasks are to be made. Pure; a store carries it out in one transaction.

Making tasks may end a step at once (an empty partition) and so start others: settling and making take turns until
neither changes anything.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from holdfast.workflows import states
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.partition import Items, Partition, count
from holdfast.workflows.states import Step, StepState, WorkflowState


class StepRow(Struct, frozen=True):
    """A step of a run as a store keeps it: its state and its tasks in numbers, so that nobody has to count them."""

    name: str
    partition: Partition
    state: StepState = StepState.DORMANT
    created: int = 0
    undone: int = 0
    succeeded: int = 0
    failed: int = 0
    errors: int = 0
    all_created: bool = False

    @property
    def done_tasks(self) -> int:
        return self.succeeded + self.failed + self.errors


class NewTasks(Struct, frozen=True):
    """Tasks of a step to be made: so many from an index on."""

    step: str
    first: int
    count: int


class Plan(Struct, frozen=True):
    """What to write."""

    steps: tuple[StepRow, ...]
    tasks: tuple[NewTasks, ...]
    items: tuple[str, ...]  # steps whose items are wanted: a job of their own makes them
    state: WorkflowState
    progress: float


class Ended(Struct, frozen=True):
    """Tasks of a step that ended since the last plan."""

    step: str
    succeeded: int = 0
    failed: int = 0
    errors: int = 0
    counted: bool = True  # among the tasks that were undone


def account(rows: Sequence[StepRow], ended: Sequence[Ended]) -> list[StepRow]:
    """The steps with what ended counted in."""
    now = {row.name: row for row in rows}
    for end in ended:
        row = now[end.step]
        over = end.succeeded + end.failed + end.errors if end.counted else 0
        now[end.step] = structs.replace(
            row,
            undone=row.undone - over,
            succeeded=row.succeeded + end.succeeded,
            failed=row.failed + end.failed,
            errors=row.errors + end.errors,
        )
    return list(now.values())


def plan(definition: Definition, rows: Sequence[StepRow], ignore: Sequence[str] = (), may_create: bool = True) -> Plan:
    """Everything that follows from where the steps are now."""
    now = {row.name: row for row in rows}
    made: dict[str, NewTasks] = {}
    wanted: dict[str, None] = {}
    while True:
        settled = states.settle(_as_steps(definition, now, ignore), definition.fail_fast)
        moved = [step for step in settled if step.state is not now[step.name].state]
        for step in moved:
            now[step.name] = structs.replace(now[step.name], state=step.state)
        erred = {step.phase for step in settled if step.result is states.Result.ERROR} if definition.fail_fast else ()
        created = False
        for declared in definition.steps if may_create else ():
            if declared.phase not in erred:
                created |= _create(declared, now, made, wanted)
        if not (moved or created):
            break
    steps = _as_steps(definition, now, ignore)
    return Plan(
        steps=tuple(now[step.name] for step in definition.steps),
        tasks=tuple(made.values()),
        items=tuple(wanted),
        state=states.workflow_state(steps),
        progress=progress(definition, list(now.values())),
    )


def _as_steps(definition: Definition, rows: dict[str, StepRow], ignore: Sequence[str]) -> list[Step]:
    return [_as_step(step, rows[step.name], step.can_ignore and step.name in ignore) for step in definition.steps]


def _as_step(step: StepDefinition, row: StepRow, ignored: bool) -> Step:
    return Step(
        step.name,
        row.state,
        step.after,
        step.phase,
        step.can_fail,
        ignored,
        row.undone,
        row.succeeded,
        row.failed,
        row.errors,
        row.all_created,
    )


def _create(step: StepDefinition, now: dict[str, StepRow], made: dict[str, NewTasks], wanted: dict[str, None]) -> bool:
    """Make as many tasks of a step as may be undone at a time; whether that changed anything."""
    row = now[step.name]
    if row.state is not StepState.START or row.all_created or row.failed or row.errors:
        return False
    if isinstance(row.partition, Items):
        if row.undone < step.most_undone:
            wanted[step.name] = None
        return False
    total = count(row.partition)
    room = step.most_undone - row.undone
    more = room if total is None else min(room, total - row.created)
    if more <= 0 and (total is None or row.created < total):
        return False
    before = made.get(step.name)
    if more > 0:
        made[step.name] = NewTasks(
            step.name, row.created if before is None else before.first, more + (before.count if before else 0)
        )
    created = row.created + max(0, more)
    now[step.name] = structs.replace(
        row, created=created, undone=row.undone + max(0, more), all_created=total is not None and created >= total
    )
    return True


def progress(definition: Definition, rows: Sequence[StepRow]) -> float:
    """The fraction of the run that is done (F15)."""
    by_name = {row.name: row for row in rows}
    return states.progress(
        [
            (_as_step(step, by_name[step.name], False), step.effort, count(by_name[step.name].partition))
            for step in definition.steps
        ]
    )
