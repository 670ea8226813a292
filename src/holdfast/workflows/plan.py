"""What a run needs next: which steps move, and which tasks are to be made. Pure; a store carries it out in one transaction.

- Only what can have changed is looked at: the steps whose tasks ended, those that come after them, and a phase when it
  opens. So a run of a thousand steps costs as much for each as a run of ten.
- What must be known of all steps together is kept in numbers, the `Overview`.
- What has begun is decided first, then others begin, then tasks are made: with `fail_fast` an error that is known cuts
  its phase, wherever the erred step stands (F9).
- Making tasks may end a step at once (an empty partition) and so start others.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, structs

from holdfast.workflows import states
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.partition import Items, Partition, count
from holdfast.workflows.states import STEP_STATES, Result, Step, StepState, WorkflowState


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


class Overview(Struct, frozen=True):
    """All steps of a run in numbers."""

    phase: int  # that is open
    phase_undone: int  # steps of it
    phase_erred: bool  # a step of it is `ERROR`
    undone: int  # steps of all phases
    started: int  # steps whose tasks are being made or done
    failed: bool
    erred: bool
    progress: float

    @property
    def state(self) -> WorkflowState:
        if self.undone:
            return WorkflowState.UNDONE if self.started else WorkflowState.STUCK
        if self.erred:
            return WorkflowState.ERROR
        return WorkflowState.FAILED if self.failed else WorkflowState.SUCCESS


class Plan(Struct, frozen=True):
    """What to write."""

    steps: tuple[StepRow, ...]  # those that were looked at
    tasks: tuple[NewTasks, ...]
    items: tuple[str, ...]  # steps whose items are wanted: a job of their own makes them
    overview: Overview
    again: tuple[str, ...] = ()  # steps whose erred tasks run again, now that their phase has come

    @property
    def state(self) -> WorkflowState:
        return self.overview.state

    @property
    def progress(self) -> float:
        return self.overview.progress


class Missing(Struct, frozen=True):
    """Steps that must be known before a plan can be made."""

    names: tuple[str, ...]


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
    """Everything that follows from where all the steps are now."""
    before = {row.name: row for row in rows}
    found = Planning(Shape(definition), before, overview(definition, rows), ignore, may_create).made(before)
    assert isinstance(found, Plan)
    return found


def overview(definition: Definition, rows: Sequence[StepRow]) -> Overview:
    """Counted from all steps; a store keeps it and does not count again."""
    phases = {step.name: step.phase for step in definition.steps}
    undone = [row.name for row in rows if not STEP_STATES[row.state].done]
    phase = min((phases[name] for name in undone), default=max(phases.values(), default=0))
    results = {row.name: STEP_STATES[row.state].result for row in rows}
    return Overview(
        phase=phase,
        phase_undone=sum(phases[name] == phase for name in undone),
        phase_erred=any(row.state is StepState.ERROR and phases[row.name] == phase for row in rows),
        undone=len(undone),
        started=sum(row.state in STARTED for row in rows),
        failed=Result.FAILED in results.values(),
        erred=Result.ERROR in results.values(),
        progress=progress(definition, rows),
    )


STARTED = (StepState.START, StepState.READY)


class Shape:
    """A definition with its questions answered once."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.fail_fast = definition.fail_fast
        self.steps = {step.name: step for step in definition.steps}
        efforts = states.weighed([step.effort for step in definition.steps])
        self.efforts = dict(zip(self.steps, efforts, strict=True))
        self.effort = sum(efforts)
        self.followers: dict[str, list[str]] = {}
        self.phases: dict[int, list[str]] = {}
        for step in definition.steps:
            self.phases.setdefault(step.phase, []).append(step.name)
            for name in step.after:
                self.followers.setdefault(name, []).append(step.name)

    def earlier(self, phase: int) -> list[str]:
        """The steps of all phases before one."""
        return [name for other, names in self.phases.items() if other < phase for name in names]

    def next_phase(self, phase: int) -> int | None:
        return min((other for other in self.phases if other > phase), default=None)


class Planning:
    """One plan on its way. `rows` are the steps that are known so far; `Missing` says which others are needed."""

    def __init__(
        self,
        shape: Shape,
        rows: Mapping[str, StepRow],
        seen: Overview,
        ignore: Sequence[str] = (),
        may_create: bool = True,
        before: Mapping[str, StepRow] | None = None,
    ) -> None:
        self._shape = shape
        self._before = rows if before is None else before  # as the overview knows them
        self._now = dict(rows)
        self._seen = seen
        self._ignore = ignore
        self._may_create = may_create
        self._tasks: dict[str, NewTasks] = {}
        self._items: dict[str, None] = {}
        self._again: list[str] = []

    def made(self, touched: Iterable[str]) -> Plan | Missing:
        """What follows from changes of these steps."""
        begun, asleep, to_fill = dict[str, None](), dict[str, None](), dict[str, None]()
        more: Iterable[str] = touched
        while True:
            for name in more:
                (asleep if self._sleeps(name) else begun)[name] = None
            if begun or asleep:
                name = _taken(begun or asleep)
                more = self._needed(name) or self._looked_at(self._shape.steps[name])
                missing = tuple(other for other in more if other not in self._now)
                if missing:
                    return Missing(missing)
                to_fill[name] = None
            elif to_fill:
                name = _taken(to_fill)
                more = [name] if self._create(self._shape.steps[name]) else []
            else:
                break
        steps, tasks, items = tuple(self._now.values()), tuple(self._tasks.values()), tuple(self._items)
        return Plan(steps, tasks, items, self._finished(), tuple(self._again))

    def _sleeps(self, name: str) -> bool:
        return name in self._now and self._now[name].state is StepState.DORMANT

    def _needed(self, name: str) -> list[str]:
        """What must be known to look at a step and is not."""
        if name not in self._now:
            return [name]
        if not self._sleeps(name):
            return []
        return [other for other in self._shape.steps[name].after if other not in self._now]

    def _looked_at(self, step: StepDefinition) -> list[str]:
        """Move one step as far as it goes; the steps that this may move."""
        while True:
            row = self._now[step.name]
            waits_for = step.after if self._sleeps(step.name) else ()
            results = [STEP_STATES[self._now[name].state].result for name in waits_for]
            facts = as_step(step, row, step.can_ignore and step.name in self._ignore)
            to = states.next_state(facts, results, step.phase <= self._seen.phase, self._cut(step))
            if to is row.state:
                return []
            states.move(facts, to)
            self._now[step.name] = structs.replace(row, state=to)
            self._count(step, row.state, to)
            if STEP_STATES[to].done:
                return self._following(step, to)

    def _cut(self, step: StepDefinition) -> bool:
        return self._shape.fail_fast and self._seen.phase_erred and step.phase == self._seen.phase

    def _count(self, step: StepDefinition, was: StepState, to: StepState) -> None:
        done, result = STEP_STATES[to].done, STEP_STATES[to].result
        here = step.phase == self._seen.phase  # what a retry runs again may be of a later one
        self._seen = structs.replace(
            self._seen,
            started=self._seen.started + (to in STARTED) - (was in STARTED),
            undone=self._seen.undone - done,
            phase_undone=self._seen.phase_undone - (done and here),
            phase_erred=self._seen.phase_erred or (to is StepState.ERROR and here),
            failed=self._seen.failed or result is Result.FAILED,
            erred=self._seen.erred or result is Result.ERROR,
        )

    def _following(self, step: StepDefinition, state: StepState) -> list[str]:
        """Whom the end of a step may move: the next phase, all of a phase that is cut, or what comes after it."""
        while self._seen.phase_undone == 0 and self._seen.undone:
            phase = self._shape.next_phase(self._seen.phase)
            assert phase is not None, "steps are undone, and no phase is left for them"
            opened = self._shape.phases[phase]
            if any(name not in self._now for name in opened):
                return opened
            undone = sum(not STEP_STATES[self._now[name].state].done for name in opened)
            erred = any(self._now[name].state is StepState.ERROR for name in opened)
            self._seen = structs.replace(self._seen, phase=phase, phase_undone=undone, phase_erred=erred)
            self._again += [name for name in opened if self._now[name].state in STARTED]
            if undone:
                return opened
        if self._shape.fail_fast and state is StepState.ERROR:
            return self._shape.phases[step.phase]
        followers = self._shape.followers.get(step.name, [])
        return [name for name in followers if self._shape.steps[name].phase <= self._seen.phase]

    def _create(self, step: StepDefinition) -> bool:
        """Make as many tasks of a step as may be undone at a time; whether that changed anything."""
        row = self._now[step.name]
        if row.state is not StepState.START or row.all_created or row.failed or row.errors:
            return False
        if not self._may_create or self._cut(step) or step.phase > self._seen.phase:
            return False
        if isinstance(row.partition, Items):
            if row.undone * 2 <= step.most_undone:
                self._items[step.name] = None
            return False
        total, room = count(row.partition), step.most_undone - row.undone
        more = max(0, room if total is None else min(room, total - row.created))
        made, all_created = row.created + more, total is not None and row.created + more >= total
        if not more and not all_created:
            return False
        if more:
            known = self._tasks.get(step.name, NewTasks(step.name, row.created, 0))
            self._tasks[step.name] = structs.replace(known, count=known.count + more)
        self._now[step.name] = structs.replace(row, created=made, undone=row.undone + more, all_created=all_created)
        return True

    def _finished(self) -> Overview:
        """The numbers after it, the progress moved by what changed."""
        if not self._seen.undone and not (self._seen.failed or self._seen.erred):
            return structs.replace(self._seen, progress=1.0)
        moved = sum(
            self._shape.efforts[name]
            * (share(self._shape.steps[name], row) - share(self._shape.steps[name], self._before[name]))
            for name, row in self._now.items()
            if row != self._before[name]
        )
        now = self._seen.progress + (moved / self._shape.effort if self._shape.effort else 0.0)
        return structs.replace(self._seen, progress=min(1.0, max(0.0, now)))


def _taken(names: dict[str, None]) -> str:
    """The first of them, which is not among them any more."""
    name = next(iter(names))
    del names[name]
    return name


def as_step(step: StepDefinition, row: StepRow, ignored: bool = False) -> Step:
    """A step as its state is decided from."""
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


def progress(definition: Definition, rows: Sequence[StepRow]) -> float:
    """The fraction of the run that is done (F15)."""
    by_name = {row.name: row for row in rows}
    return states.progress(
        [
            (as_step(step, by_name[step.name]), step.effort, count(by_name[step.name].partition))
            for step in definition.steps
        ]
    )


def share(step: StepDefinition, row: StepRow) -> float:
    """How much of a step is done, from 0 to 1."""
    return states.share(as_step(step, row), count(row.partition))
