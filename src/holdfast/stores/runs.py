"""Workflows and their runs as they are stored: declared, looked at by those who wait for them or show them.

A run keeps the definition it began with; it is read once. A run that has left the live tables is found in the archive.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from holdfast.clock import Clock
from holdfast.errors import Conflict, NotFound, backticked
from holdfast.jobs import damage
from holdfast.jobs.damage import Damaged
from holdfast.jobs.job import Job
from holdfast.jobs.secrets import joined
from holdfast.stores.contract import RunRow, RunStep, StepOfRun
from holdfast.stores.holding import Holding
from holdfast.stores.reader import RowReader
from holdfast.stores.statements import RowDict
from holdfast.workflows import definition as definitions
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.partition import Simple
from holdfast.workflows.partition import decode as decode_partition
from holdfast.workflows.plan import Shape, StepRow
from holdfast.workflows.states import StepState, WorkflowState

MOST = 1000  # rows of one look
SHAPES = 200  # definitions that are remembered
decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class Runs(Holding):
    """Adds the verbs that look at runs."""

    def __init__(self, instance: str, clock: Clock) -> None:
        super().__init__(instance, clock)
        self._shapes: dict[int, Shape] = {}
        self._secret_params: dict[str, tuple[str, ...]] = {}  # by workflow: params that any code has called secret
        self._published: dict[int, tuple[int, dict[str, Any]]] = {}  # by run: after how many publications

    # Declaring

    def declare_workflows(self, declared: Sequence[Definition]) -> None:
        """Store what the code declares, if it differs from what is stored."""
        known = self.workflows()
        new = [each for each in declared if known.get(each.name) != self.kept_secret(each)]
        if new:
            with self.work():
                self._read_workflows()
                for each in sorted(new, key=lambda definition: definition.name):
                    params = {"name": each.name, "definition": definitions.encode(self.kept_secret(each))}
                    self.run("put_workflow", {**params, "now": self.time(self.now())})
                self._read_workflows()

    def workflows(self) -> Mapping[str, Definition]:
        """Every workflow that some code has declared, by name."""
        with self.lone():
            return self._read_workflows()

    def _read_workflows(self) -> dict[str, Definition]:
        found = {row["name"]: damage.read(definitions.decode, row["definition"]) for row in self.rows("workflows")}
        sound = {name: text for name, text in found.items() if not isinstance(text, Damaged)}
        self._secret_params = {name: definition.secrets for name, definition in sound.items() if definition.secrets}
        return sound

    def kept_secret(self, definition: Definition) -> Definition:
        """As it is stored: schedules may have params that older code declared secret, so their names stay."""
        return structs.replace(
            definition, secrets=joined(self._secret_params.get(definition.name, ()), definition.secrets)
        )

    # Looking

    def run_of(self, workflow: str, trigger: str) -> RunRow:
        """The run that a trigger made, also an archived one."""
        with self.work(write=False):
            found = self._found("run_of", {"workflow": workflow, "trigger": trigger})
            return self._no_run(workflow, trigger) if found is None else found

    def run_by_id(self, run: int) -> RunRow:
        with self.work(write=False):
            return self._run_by_id(run)

    def _run_by_id(self, run: int) -> RunRow:
        found = self._found("run", {"id": run})
        if found is None:
            raise NotFound(f"There is no run {run} in instance `{self.instance}`.")
        return found

    def _found(self, name: str, params: Mapping[str, Any]) -> RunRow | None:
        """Among the live runs, else in the archive."""
        for where in (name, f"archived_{name}"):
            for row in self.rows(where, params):
                return self._run_row(row)
        return None

    def runs(
        self,
        workflow: str | None = None,
        state: str | None = None,
        before: int | None = None,
        limit: int = 50,
        archive: bool = False,
    ) -> Sequence[RunRow]:
        """Newest first; with `archive` also those in the archive."""
        with self.work(write=False):
            params = {"workflow": workflow, "state": state, "before": before, "limit": limit}
            rows = self.rows("runs", params)
            if archive:
                rows = sorted([*rows, *self.rows("archived_runs", params)], key=lambda row: -row["id"])[:limit]
            return [self._run_row(row) for row in rows]

    def run_state(self, run: int) -> WorkflowState:
        """For those who wait: without its steps."""
        with self.lone():
            for row in self.rows("run_head", {"id": run}) or self.rows("archived_run", {"id": run}):
                return WorkflowState(row["state"])
        raise NotFound(f"There is no run {run} in instance `{self.instance}`.")

    def step_of_run(self, run: int, step: str, publication: int | None = None) -> StepOfRun:
        """What tasks of a step that were made after so many publications are told; None: after all so far.

        The steps it has nothing to do with are not read.
        """
        with self.work(write=False):
            for row in self.rows("run_head", {"id": run}):
                shape = self._shape(run)
                declared = shape.steps[step]
                known = self._steps_named(run, {step, *declared.after, *shape.earlier(declared.phase)})
                params = params_of(shape, step, row, self._published_by(row, publication))
                seen = {name: each.counts.state.value for name, each in known.items() if name != step}
                secrets = shape.definition.secrets
                return StepOfRun(shape.definition.name, row["trigger"], declared, known[step], params, seen, secrets)
            raise NotFound(f"There is no run {run} in instance `{self.instance}`.")

    def _published_by(self, row: RowDict, publication: int | None) -> dict[str, Any]:
        """What was published up to a publication (F13). Tasks come in their order, so each is read about once."""
        if publication is None or publication >= row["publication"]:
            return decode_object(row["published"])
        number, params = self._published.pop(row["id"], (0, {}))
        if number > publication:
            number, params = 0, {}
        told = self.rows("publications", {"run": row["id"], "after": number, "upto": publication})
        params = definitions.merged(params, *(decode_object(each["params"]) for each in told))
        self._published[row["id"]] = publication, params
        while len(self._published) > SHAPES:
            self._published.pop(next(iter(self._published)))
        return params

    def tasks(self, run: int, step: str, after: int = 0, limit: int = MOST) -> Sequence[Job]:
        """The jobs of a step's tasks, in the order they were made; of a task that was retried the last one."""
        with self.work(write=False):
            row = self._run_by_id(run)
            params = {"run": run, "job_type": f"{row.workflow}.{step}", "after": after, "limit": limit}
            params["items"] = f"{row.trigger}:{step}.items"
            found = [self.job_of(each) for name in ("tasks", "archived_tasks") for each in self.rows(name, params)]
        last = {job.job_key: job for job in sorted(found, key=lambda job: job.id)}  # while its jobs follow a run
        return sorted(last.values(), key=lambda job: job.id)[:limit]

    def _run_row(self, row: RowDict) -> RunRow:
        archived, read = "archive_time" in row, RowReader(row)
        steps = [
            self._run_step(each) for each in self.rows("archived_steps" if archived else "steps", {"run": row["id"]})
        ]
        return RunRow(
            id=row["id"],
            workflow=row["workflow"],
            trigger=row["trigger"],
            state=read.one_of("state", WorkflowState, WorkflowState.STUCK),
            definition=read.read("definition", definitions.decode, lambda _: outline(row["workflow"], steps)),
            params=read.table("params"),
            step_params=read.table("step_params"),
            published=read.table("published"),
            publication=row["publication"],
            ignore=read.texts("ignore"),
            priority=row["priority"],
            progress=round(row["progress"], 4),
            aborted=bool(row["aborted"]),
            create_time=self._known(row["create_time"]),
            update_time=self._known(row["update_time"]),
            end_time=self.moment(row["end_time"]),
            steps=tuple(steps),
            holds=() if archived else self.holds_of(row["workflow"], row["id"]),
            archived=archived,
            damaged=tuple(read.damaged),
        )

    def _run_step(self, row: RowDict) -> RunStep:
        read = RowReader(row)
        return RunStep(
            counts=StepRow(
                name=row["name"],
                partition=read.read("partition", decode_partition, lambda _: Simple()),
                state=read.one_of("state", StepState, StepState.ERROR),
                created=row["created"],
                undone=row["undone"],
                succeeded=row["succeeded"],
                failed=row["failed"],
                errors=row["errors"],
                all_created=bool(row["all_created"]),
            ),
            items_job=row["items_job"],
            cursor=row["cursor"],
            start_time=self.moment(row["start_time"]),
            end_time=self.moment(row["end_time"]),
            creation_held=bool(row["creation_held"]),
            damaged=tuple(read.damaged),
        )

    def _no_run(self, workflow: str, trigger: str) -> RunRow:
        raise NotFound(
            f"There is no run of workflow {backticked(workflow)} with trigger {backticked(trigger)} in instance `{self.instance}`."
        )

    def _shape(self, run: int) -> Shape:
        """A run's definition, read once: it never changes."""
        shape = self._shapes.get(run)
        if shape is None:
            definition = damage.read(definitions.decode, self.rows("definition_of", {"id": run})[0]["definition"])
            if isinstance(definition, Damaged):
                raise self.damaged_run(run, "run", "definition")
            shape = self._shapes[run] = Shape(definition)
            while len(self._shapes) > SHAPES:
                self._shapes.pop(next(iter(self._shapes)))
        return shape

    def _steps_named(self, run: int, names: Iterable[str]) -> dict[str, RunStep]:
        return self._by_name(self.rows("steps_named", self._naming(run, names)))

    def _naming(self, run: int, names: Iterable[str]) -> dict[str, Any]:
        return {"run": run, "names": self.words(sorted(names))}

    def _by_name(self, rows: Iterable[RowDict]) -> dict[str, RunStep]:
        """Steps that something is decided by; `DamagedRun` if one of them cannot be read."""
        found = {row["name"]: (row["run"], self._run_step(row)) for row in rows}
        for run, step in found.values():
            if step.damaged:
                raise self.damaged_run(run, "step", *step.damaged)
        return {name: step for name, (_, step) in found.items()}

    def refuse_damaged(self, row: RunRow) -> None:
        """`DamagedRun` for one whose row, or a step's, cannot be read: nothing may be decided by it."""
        if row.damaged:
            raise self.damaged_run(row.id, "run", *row.damaged)
        for step in row.steps:
            if step.damaged:
                raise self.damaged_run(row.id, "step", *step.damaged)

    def damaged_run(self, run: int, table: str, *columns: str) -> "DamagedRun":
        return DamagedRun(
            f"Run {run} of instance `{self.instance}` cannot go on: in table `{self.instance}__{table}` {damaged_columns(columns)} cannot be "
            "read. Write what stood there before, for instance from a backup, and try again."
        )


class DamagedRun(Conflict):
    """A run that nothing can be decided about, because a column of its row or of a step's row cannot be read."""


def outline(workflow: str, steps: Iterable[RunStep]) -> Definition:
    """What is known of a definition that cannot be read: the names of its steps."""
    return Definition(name=workflow, steps=tuple(StepDefinition(name=step.counts.name) for step in steps))


def damaged_columns(columns: Sequence[str]) -> str:
    return f"the column{'s' * (len(columns) > 1)} {', '.join(f'`{name}`' for name in columns)}"


def params_of(shape: Shape, step: str, row: Mapping[str, Any], published: Mapping[str, Any]) -> dict[str, Any]:
    """Of a run's row, for a step; later sources win (F13)."""
    asked = decode_object(row["step_params"]).get(step, {})
    given = decode_object(row["params"])
    return definitions.merged(shape.definition.params, given, shape.steps[step].params, asked, published)
