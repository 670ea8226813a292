"""Declaring workflows, submitting them, and their runs as values that can be asked again."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any, Protocol

from msgspec import UNSET, Struct, UnsetType

from holdfast.clock import monotonic, sleep
from holdfast.declare import JobType, Queue, number
from holdfast.errors import Conflict, Invalid, backticked, quoted
from holdfast.jobs import payload as payloads
from holdfast.jobs import retry as retries_
from holdfast.jobs.arguments import refuses_wrong_arguments
from holdfast.jobs.holds import Level
from holdfast.jobs.job import Job
from holdfast.jobs.names import check_actor
from holdfast.jobs.outcome import Failed, Snooze, Wait
from holdfast.jobs.placement import PREFER_FOR, check_labels
from holdfast.jobs.states import TASK_STATE
from holdfast.on_demand import apart, explain_step
from holdfast.stores.contract import RunRow, RunStep, Store, Submission
from holdfast.worker.handler import current_job
from holdfast.workflows import definition as definitions
from holdfast.workflows import functions
from holdfast.workflows import partition as partitions
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.reasons import StepExplanation
from holdfast.workflows.states import STEP_STATES, WORKFLOW_STATES, StepState, TaskState, WorkflowState
from holdfast.workflows.task import Published, Task, TaskContext

GLANCE, STILL = 0.001, 0.03  # seconds between two looks of a maker of items for room, and without any that ended
LONGEST = 1.0  # seconds after which a maker leaves the rest to the next one, so that its worker may stop
PARTITIONS = ("shardConf", "packConf")  # TasCreed's names; a request of TasCreed may have them
WHILE_HELD = 60.0  # seconds after which a submission that is held is tried again


class Composes(Protocol):
    """The App, as far as workflows know it."""

    @property
    def store(self) -> Store: ...

    def queue(self, name: str) -> Queue: ...

    def store_run(self, wanted: Submission) -> RunRow: ...


class Workflow:
    """A declared workflow: `@workflow.step()` makes a function a step, `submit` makes a run."""

    def __init__(self, app: Composes, definition: Definition) -> None:
        self.app = app
        self._definition = definition
        self._steps: dict[str, StepDefinition] = {step.name: step for step in definition.steps}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._submitter: JobType | None = None

    @property
    def name(self) -> str:
        return self._definition.name

    @property
    def definition(self) -> Definition:
        """As it stands now; a run keeps the one it began with."""
        names = {name: getattr(self._definition, name) for name in Definition.__struct_fields__}
        return Definition(**{**names, "steps": tuple(self._steps.values())})

    @refuses_wrong_arguments
    def step(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        after: Sequence[str] = (),
        phase: int = 0,
        shards: int | None = None,
        packs: tuple[int, int | None, int] | None = None,
        items: Callable[..., Any] | None = None,
        max_undone: int | None = None,
        can_fail: bool = False,
        can_ignore: bool = False,
        archive: bool = False,
        effort: float = 1,
        params: Mapping[str, Any] | None = None,
        retries: int | UnsetType | None = UNSET,
        retry: retries_.Policy | None = None,
        timeout: float | UnsetType | None = UNSET,
        priority: float | None = None,
        isolation: str = "thread",
        labels: Sequence[str] = (),
        prefers: Sequence[str] = (),
        prefer_for: float = PREFER_FOR,
        queue: str | None = None,
        duration: float | None = None,
    ) -> Any:
        """Make a function a step: it is called once for each task, with the task as its only argument."""

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            declared = StepDefinition(
                name=name or str(getattr(function, "__name__", "")),
                after=functions.names(after, "after"),
                phase=phase,
                partition=partitions.of(shards, packs, items),
                can_fail=can_fail,
                can_ignore=can_ignore,
                archive=archive,
                effort=effort,
                params=functions.table(params, "params"),
                max_undone=max_undone,
                retries=retries,
                retry=retries_.encode(retry),
                timeout=timeout,
                priority=priority,
                queue=queue,
                labels=check_labels(labels, "labels"),
                prefers=check_labels(prefers, "prefers"),
                prefer_for=prefer_for,
                duration=duration,
            )
            if declared.name in self._steps:
                raise Conflict(
                    f"Workflow `{self.name}` has two steps named `{declared.name}`. Give one another name: step(name=…)."
                )
            self._handle(declared, function, items, isolation)
            self._steps[declared.name] = declared
            return function

        return decorate if function is None else decorate(function)

    def handle(
        self,
        step: str,
        function: Callable[..., Any],
        items: Callable[..., Any] | None = None,
        isolation: str = "thread",
    ) -> None:
        """The function of a step that is defined already."""
        self._handle(self._steps[step], function, items, isolation)

    def _handle(
        self,
        declared: StepDefinition,
        function: Callable[..., Any],
        items: Callable[..., Any] | None,
        isolation: str,
    ) -> None:
        functions.check_function(function, declared.name)
        if items is not None:
            functions.check_items(items, declared.name)
        made = None if items is None else Items(self.app, items)
        queue = self.app.queue(declared.queue or self._definition.queue)
        queue.job(
            name=f"{self.name}.{declared.name}",
            timeout=declared.timeout,
            retries=declared.retries,
            retry=retries_.decode(declared.retry),
            isolation=isolation,
            labels=declared.labels,
            prefers=declared.prefers,
            prefer_for=declared.prefer_for,
        )(called_with_task(function, made, self._steps))
        self._functions[declared.name] = function

    @refuses_wrong_arguments
    def submit(
        self,
        trigger: str,
        params: Mapping[str, Any] | None = None,
        *,
        steps: Mapping[str, Mapping[str, Any]] | None = None,
        ignore: Sequence[str] = (),
        priority: float | None = None,
        actor: str = "app",
    ) -> "Run":
        """A new run, or the one that this trigger has made before (F14). Everything wrong with it is told at once."""
        lacking = [f"steps.{name}: has no function in this app" for name in self._steps if name not in self._functions]
        wanted = submission(self.definition, trigger, params, steps, ignore, priority, actor, lacking)
        return Run(self.app, self.app.store_run(wanted))

    def submitter(self) -> JobType:
        """The job type of a schedule's firings: its handler submits a run. Its trigger makes a repetition harmless (F14)."""
        if self._submitter is None:
            name, hidden = f"{definitions.SUBMITS}{self.name}", ("params", "steps") if self._definition.secrets else ()
            self._submitter = self.app.queue(self._definition.queue).job(name=name, secrets=hidden)(
                self._submit_scheduled
            )
        return self._submitter

    def _submit_scheduled(
        self,
        trigger: str,
        params: dict[str, Any] | None = None,
        steps: dict[str, dict[str, Any]] | None = None,
        ignore: list[str] | None = None,
        priority: float | None = None,
    ) -> int:
        """What a hold keeps back waits for its release; what is refused for another reason is no error of the job's."""
        try:
            return self.submit(
                trigger, params, steps=steps, ignore=ignore or (), priority=priority, actor="schedule"
            ).id
        except Conflict as refused:
            if any(hold.level is Level.SUBMIT and hold.covers(self.name, trigger) for hold in self.app.store.holds()):
                raise Snooze(WHILE_HELD) from None
            raise Failed(str(refused)) from None

    def run(self, trigger: str) -> "Run":
        """The run that this trigger made."""
        return Run(self.app, self.app.store.run_of(self.name, trigger))


@refuses_wrong_arguments
def submission(
    definition: Definition,
    trigger: str,
    params: Mapping[str, Any] | None = None,
    steps: Mapping[str, Mapping[str, Any]] | None = None,
    ignore: Sequence[str] = (),
    priority: float | None = None,
    actor: str = "app",
    lacking: Sequence[str] = (),
) -> Submission:
    """What is to be stored; `Invalid` with everything that is wrong with the definition and with the request."""
    given = functions.table(params, "params")
    asked = {
        name: functions.table(each, f"steps[{quoted(name)}]") for name, each in functions.table(steps, "steps").items()
    }
    ignored = functions.names(ignore, "ignore")
    problems = [*definitions.problems(definition), *lacking, *request_problems(definition, asked, ignored)]
    if problems:
        told = "; ".join(text.removesuffix(".") for text in problems)
        raise Invalid(f"Workflow `{definition.name}` cannot run: {told}{'' if told.endswith('?') else '.'}")
    payloads.dump(given, what="params")
    payloads.dump(asked, what="steps")
    return Submission(
        definition=definition,
        trigger=definitions.check_trigger(trigger),
        params=given,
        step_params=asked,
        ignore=ignored,
        priority=definition.priority if priority is None else number(priority, "priority"),
        actor=check_actor(actor),
    )


def request_problems(
    definition: Definition, steps: Mapping[str, Mapping[str, Any]], ignore: Sequence[str]
) -> Iterator[str]:
    """What is wrong with a request."""
    names = {step.name: step for step in definition.steps}
    for name in steps:
        if name not in names:
            yield f"the request names {backticked(name)}, which is no step.{definitions.nearest(name, list(names))}"
        else:
            yield from _partition_problems(names[name], steps[name])
    for name in ignore:
        if name not in names:
            yield f"the request asks to ignore {backticked(name)}, which is no step.{definitions.nearest(name, list(names))}"
        elif not names[name].can_ignore:
            yield f"the request asks to ignore {backticked(name)}, which may not be ignored; declare it with can_ignore=True"


def _partition_problems(step: StepDefinition, params: Mapping[str, Any]) -> Iterator[str]:
    """A param of this name would change no task. A step that declares it may have it."""
    for key in PARTITIONS:
        if key in params and key not in step.params:
            yield (
                f"the request gives step {backticked(step.name)} a `{key}`, which cuts no step of one run into tasks; give it in the "
                "definition, or call `task.repartition` in a step before it"
            )


def called_with_task(
    function: Callable[..., Any], items: "Items | None", steps: Mapping[str, StepDefinition]
) -> Callable[..., Any]:
    """The handler of a step's job type."""
    function = payloads.called(function)
    if inspect.iscoroutinefunction(function):

        async def task(context: TaskContext) -> Any:
            if context.makes_items and items is not None:
                return await items.make_on_loop(context)
            made = Task(context, steps)
            value = await function(made)
            return value if made.effects is None else with_effects(made, value)

        return task

    def task_in_thread(context: TaskContext) -> Any:
        if context.makes_items and items is not None:
            return items.make(context)
        made = Task(context, steps)
        value = function(made)
        return value if made.effects is None else with_effects(made, value)

    return task_in_thread


def with_effects(task: Task, value: Any) -> Any:
    """What a function returned whose task brings something about."""
    if isinstance(value, Wait):
        raise Invalid(
            f"Task `{task.name}` publishes something and returns WAIT. What a task publishes comes with its success, and the "
            "answer from outside brings only that; publish in a step after it."
        )
    return Published(value, task.effects or {})


class Items:
    """Makes the tasks of a step from what a function of the user gives, a bounded number at a time (F12)."""

    def __init__(self, app: Composes, function: Callable[..., Any]) -> None:
        self._app = app
        self._function = function
        self._resumes = "cursor" in inspect.signature(function).parameters
        self._open: dict[
            tuple[int, str], tuple[Iterator[Any], int]
        ] = {}  # iterators to go on with, and how far they are

    def make(self, context: TaskContext) -> int:
        """As many tasks as may be undone, and more while others end; how many were made. The rest is another job's."""
        place, produced, room, made = (context.run, context.step), context.produced, context.room, 0
        iterator, at = self._open.pop(place, (None, -1))
        if iterator is None or at != produced:
            iterator = self._begun(context)
        until = monotonic() + LONGEST
        try:
            while room > 0 and not current_job().cancelled:
                size = min(self._app.store.lot, room)
                lot = list(islice(iterator, size))
                left = self._add(context, produced, lot, last=len(lot) < size)
                if left is None:
                    return made  # somebody else has made them
                produced, made = produced + len(lot), made + len(lot)
                if len(lot) < size:
                    return made
                if left < context.enough:
                    left = self._room_soon(context, until)
                room = left if monotonic() < until else 0
        except BaseException:
            with suppress(Exception):
                self._app.store.items_stored(*place)
            raise
        if self._app.store.items_stored(*place):
            self._open[place] = iterator, produced
        while len(self._open) > MOST_OPEN:
            self._open.pop(next(iter(self._open)))
        return made

    async def make_on_loop(self, context: TaskContext) -> int:
        """The same; the user's code and the database may block, and are asked beside the event loop."""
        return await apart(self.make, context)

    def _add(self, context: TaskContext, produced: int, lot: list[Any], last: bool) -> int | None:
        """Room for more; None if these are not waited for any more."""
        items, cursor = functions.pairs(lot, context.step) if self._resumes else (lot, None)
        written = payloads.dump_each(items, lambda at: f"item {produced + at} of step `{context.step}`")
        payloads.dump(cursor, what="the cursor")
        return self._app.store.add_items(context.run, context.step, produced, written, cursor, last)

    def _room_soon(self, context: TaskContext, until: float) -> int:
        """Room that is worth another lot, once enough tasks have ended. 0 if these take their time, or ours is over."""
        undone, ended_at = context.most_undone, monotonic()
        while context.most_undone - undone < context.enough:
            if monotonic() > min(until, ended_at + STILL):
                return 0
            sleep(GLANCE)
            seen = self._app.store.undone_tasks(context.run, context.step)
            if seen < undone:
                undone, ended_at = seen, monotonic()
        return context.most_undone - undone

    def _begun(self, context: TaskContext) -> Iterator[Any]:
        """From the cursor on; or from the start, past what was made before."""
        task = Task(context)
        if self._resumes:
            return functions.iterated(self._function(task, cursor=context.cursor), context.step)
        found = functions.iterated(self._function(task), context.step)
        next(islice(found, context.produced, context.produced), None)
        return found


MOST_OPEN = 100


class TaskOfRun(Struct, frozen=True):
    """A task and the job that runs it."""

    name: str
    state: TaskState
    job: Job


class StepView:
    """A step of a run, as it was when the run was read."""

    def __init__(self, app: Composes, run: int, step: RunStep) -> None:
        self._app, self._run, self._step = app, run, step

    @property
    def name(self) -> str:
        return self._step.counts.name

    @property
    def state(self) -> StepState:
        return self._step.counts.state

    @property
    def done(self) -> bool:
        return STEP_STATES[self.state].done

    @property
    def created(self) -> int:
        """How many of its tasks there are so far."""
        return self._step.counts.created

    @property
    def undone(self) -> int:
        return self._step.counts.undone

    @property
    def succeeded(self) -> int:
        return self._step.counts.succeeded

    @property
    def failed(self) -> int:
        return self._step.counts.failed

    @property
    def errors(self) -> int:
        return self._step.counts.errors

    @property
    def start_time(self) -> datetime | None:
        return self._step.start_time

    @property
    def end_time(self) -> datetime | None:
        return self._step.end_time

    def explain(self) -> StepExplanation:
        """Why it is not done, or how it was done, as it is now (E1)."""
        row, task = self._app.store.step_facts(self._run, self.name)
        return explain_step(row, self.name, self._app.store.now(), task)

    def tasks(self, limit: int = 1000) -> list[TaskOfRun]:
        """Its tasks in the order they were made, each with the last job that ran it."""
        return [
            TaskOfRun((job.job_key or "").rpartition(":")[2], TaskState(TASK_STATE[job.outcome]), job)
            for job in self._app.store.tasks(self._run, self.name, limit=limit)
        ]

    def __repr__(self) -> str:
        return f"StepView({self.name}: {self.state}, {self.created - self.undone} of {self.created} tasks done)"


class Run:
    """A run as it was when it was read; `refresh()` gives a newer one."""

    def __init__(self, app: Composes, row: RunRow) -> None:
        self._app, self._row = app, row
        self.steps: dict[str, StepView] = {step.counts.name: StepView(app, row.id, step) for step in row.steps}

    @property
    def id(self) -> int:
        return self._row.id

    @property
    def name(self) -> str:
        """Of its workflow."""
        return self._row.workflow

    @property
    def trigger(self) -> str:
        return self._row.trigger

    @property
    def state(self) -> WorkflowState:
        return self._row.state

    @property
    def progress(self) -> float:
        """From 0.00 to 1.00 (F15)."""
        return self._row.progress

    @property
    def aborted(self) -> bool:
        return self._row.aborted

    @property
    def params(self) -> dict[str, Any]:
        return self._row.params

    @property
    def create_time(self) -> datetime:
        return self._row.create_time

    @property
    def end_time(self) -> datetime | None:
        return self._row.end_time

    @property
    def done(self) -> bool:
        return WORKFLOW_STATES[self.state].done

    @property
    def archived(self) -> bool:
        return self._row.archived

    @property
    def row(self) -> RunRow:
        return self._row

    def refresh(self) -> "Run":
        return Run(self._app, self._app.store.run_by_id(self.id))

    def wait(self, timeout: float | None = None) -> "Run":
        """Block until it is done; the run read again, or `TimeoutError`."""
        ends = None if timeout is None else monotonic() + timeout
        pause = 0.005
        while not WORKFLOW_STATES[state := self._app.store.run_state(self.id)].done:
            if ends is not None and monotonic() >= ends:
                raise TimeoutError(f"{self._row.title} is still `{state}` after {timeout:g} s.")
            sleep(pause if ends is None else max(0.0, min(pause, ends - monotonic())))
            pause = min(pause * 1.5, 0.1)
        return self.refresh()

    def retry(self, *, actor: str = "app") -> "Run":
        """Run what erred again (F16); `Conflict` unless it ended in `ERROR`."""
        return Run(self._app, self._app.store.retry_run(self.id, check_actor(actor)))

    def abort(self, *, actor: str = "app") -> "Run":
        """End everything of it that is not done (F16)."""
        return Run(self._app, self._app.store.abort_run(self.id, check_actor(actor)))

    def archive(self, *, actor: str = "app") -> "Run":
        """Move it to the archive now, with its jobs (F18); `Conflict` unless it is done."""
        return Run(self._app, self._app.store.archive_run(self.id, check_actor(actor)))

    def delete(self, *, actor: str = "app") -> None:
        """Forget it and its jobs, in the archive too; its trigger stays used. `Conflict` unless it is done."""
        self._app.store.delete_run(self.id, check_actor(actor))

    def __repr__(self) -> str:
        return f"Run({self.name}/{self.trigger}: {self.state}, {self.progress:.0%})"
