"""I8: what a run says of its steps, what its steps say of their tasks, and what the tasks' jobs are, agree.

Everything is counted anew from the rows of the jobs and decided anew by the pure functions, so a task that was made
twice, an end that was not counted, or a wake-up that was lost shows at any moment between two transactions.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.jobs.states import TASK_STATE
from holdfast.workflows import definition as definitions
from holdfast.workflows import partition as partitions
from holdfast.workflows.partition import Items, count, task_name
from holdfast.workflows.plan import STARTED, Overview, StepRow, as_step, overview
from holdfast.workflows.states import StepState, TaskState, WorkflowState, settle, workflow_state

Row = Mapping[str, Any]
COUNTED = {TaskState.UNDONE: "undone", TaskState.SUCCESS: "succeeded", TaskState.FAILED: "failed"}


def check_runs(runs: Iterable[Row], steps: Iterable[Row], jobs: Iterable[Row], holds: bool = False) -> None:
    """Raises AssertionError naming the run and the step. `holds`: somebody holds runs, so tasks may be left unmade."""
    steps_of: dict[int, list[Row]] = {}
    for step in steps:
        steps_of.setdefault(step["run"], []).append(step)
    jobs_of: dict[int, list[Row]] = {}
    for job in jobs:
        if job["run"] is not None:
            jobs_of.setdefault(job["run"], []).append(job)
    for run in runs:
        RunCheck(run, steps_of.get(run["id"], []), jobs_of.get(run["id"], [])).check(holds)


class RunCheck:
    """One run with its steps and all jobs its tasks ever had."""

    def __init__(self, run: Row, steps: Iterable[Row], jobs: Iterable[Row]) -> None:
        self.run = run
        self.title = f"I8: run {run['workflow']}/{run['trigger']}"
        self.definition = definitions.decode(run["definition"])
        self.steps = {step["name"]: step for step in steps}
        self.last: dict[str, dict[str, Row]] = {name: {} for name in self.steps}  # the newest job of each task
        for job in sorted(jobs, key=lambda job: job["id"]):
            step = job["job_type"].removeprefix(f"{run['workflow']}.")
            self.last[step][job["job_key"].removeprefix(f"{run['trigger']}:")] = job

    def check(self, holds: bool) -> None:
        rows = [self._row(step) for step in self.steps.values()]
        assert {row.name for row in rows} == {step.name for step in self.definition.steps}, f"{self.title}: its steps"
        for row in rows:
            self._check_tasks(row)
        self._check_states(rows, holds)
        self._check_numbers(rows)

    def _row(self, step: Row) -> StepRow:
        counts = {name: step[name] for name in ("created", "undone", "succeeded", "failed", "errors")}
        return StepRow(
            name=step["name"],
            partition=partitions.decode(step["partition"]),
            state=StepState(step["state"]),
            all_created=bool(step["all_created"]),
            **counts,
        )

    def _check_tasks(self, row: StepRow) -> None:
        tasks = dict(self.last[row.name])
        maker = tasks.pop(f"{row.name}.items", None) if isinstance(row.partition, Items) else None
        where = f"{self.title}, step `{row.name}` ({row.state})"
        made = {task_name(row.partition, row.name, index) for index in range(row.created)}
        assert tasks.keys() == made, f"{where}: tasks {sorted(tasks.keys() ^ made)[:5]} should not be, or should"
        total = count(row.partition)
        assert total is None or row.created <= total, f"{where}: {row.created} tasks of {total}"
        found = Counter(COUNTED.get(TaskState(TASK_STATE[job["outcome"]]), "errors") for job in tasks.values())
        if self._comes_later(row):  # what erred runs again, and is undone already
            found["undone"] += found.pop("errors", 0)
        failed_maker = COUNTED.get(TaskState(TASK_STATE[maker["outcome"]]), "errors") if maker else "undone"
        for name in ("undone", "succeeded", "failed", "errors"):
            # A maker of items that did not succeed is its step's failure, until a retry.
            most = found[name] + (name == failed_maker and name in ("failed", "errors"))
            assert found[name] <= getattr(row, name) <= most, f"{where}: {getattr(row, name)} {name}, {found[name]} are"
        declared = next(step for step in self.definition.steps if step.name == row.name)
        assert row.undone <= declared.most_undone, f"{where}: {row.undone} tasks are undone"

    def _comes_later(self, row: StepRow) -> bool:
        """A retry has begun it again, and its tasks wait for its phase."""
        phase = next(step.phase for step in self.definition.steps if step.name == row.name)
        return row.state in STARTED and phase > self.run["phase"]

    def _check_states(self, rows: list[StepRow], holds: bool) -> None:
        declared = {step.name: step for step in self.definition.steps}
        ignored = json.loads(self.run["ignore"])
        steps = [
            as_step(declared[row.name], row, declared[row.name].can_ignore and row.name in ignored) for row in rows
        ]
        state = WorkflowState(self.run["state"])
        assert workflow_state(steps) is state, f"{self.title} is {state}, its steps are {workflow_state(steps)}"
        if self.run["aborted"]:
            return
        for now, settled in zip(steps, settle(steps, self.definition.fail_fast), strict=True):
            assert now.state is settled.state, f"{self.title}, step `{now.name}` is {now.state}, not {settled.state}"
        for row in rows if not holds else ():
            if not self._comes_later(row):
                self._check_going_on(row, declared[row.name].most_undone)

    def _check_going_on(self, row: StepRow, most: int) -> None:
        """Of a step whose tasks are being made, as many as may be undone are, or somebody is at it."""
        if row.state is not StepState.START or row.all_created or row.failed or row.errors:
            return
        maker = self.last[row.name].get(f"{row.name}.items")
        if isinstance(row.partition, Items):
            alive = maker is not None and maker["state"] != "final"
            assert alive or row.undone * 2 > most, f"{self.title}, step `{row.name}`: nobody makes its items"
        else:
            assert self._cut(row) or row.undone == most, f"{self.title}, step `{row.name}`: {row.undone} of {most} made"

    def _cut(self, row: StepRow) -> bool:
        phases = {step.name: step.phase for step in self.definition.steps}
        erred = {phases[name] for name, step in self.steps.items() if step["state"] == StepState.ERROR}
        return self.definition.fail_fast and phases[row.name] in erred

    def _check_numbers(self, rows: list[StepRow]) -> None:
        """The numbers that are kept about all steps are what counting gives."""
        if WorkflowState(self.run["state"]) is not WorkflowState.UNDONE:
            return
        counted = overview(self.definition, rows)
        for name in Overview.__struct_fields__:
            kept, now = self.run[name], getattr(counted, name)
            same = abs(kept - now) < 0.001 if name == "progress" else kept == now
            assert same, f"{self.title}: {name} is kept as {kept} and counted as {now}"
