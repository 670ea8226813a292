"""Runs of workflows: submitted, advanced with the end of every task, retried, aborted, forgotten.

Rules:
- The end of a task and what follows from it (steps that move, tasks that are made) are one transaction: no wake-up can
  be lost, no task made twice.
- Who advances a run has locked its row. Steps keep their tasks in numbers, so nobody ever counts tasks.
- What follows is decided by `holdfast.workflows.plan` and by nothing here.
- A task's job is of type `<workflow>.<step>` and has the key `<trigger>:<task>` (F21).
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from holdfast.errors import Conflict, NotFound
from holdfast.jobs.job import Job, Outcome
from holdfast.jobs.states import Change
from holdfast.stores.adding import Adding
from holdfast.stores.contract import Done, NewJob, RunRow, RunStep, Submission
from holdfast.stores.statements import RowDict, encode_json
from holdfast.workflows import definition as definitions
from holdfast.workflows import states
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.partition import Items, task_name
from holdfast.workflows.partition import decode as decode_partition
from holdfast.workflows.partition import encode as encode_partition
from holdfast.workflows.plan import Ended, NewTasks, Plan, StepRow, account, plan
from holdfast.workflows.states import STEP_STATES, WORKFLOW_STATES, StepState, WorkflowState

MOST = 1000  # rows of one look
decode_object = msgspec.json.Decoder(dict[str, Any]).decode
decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
decode_effects: Any = msgspec.json.Decoder(dict[str, Any]).decode


class TaskEnd(Struct, frozen=True):
    """A task's job became final."""

    step: str
    outcome: Outcome
    makes_items: bool = False
    effects: str | None = None


class Running(Adding):
    """Adds the verbs about runs."""

    # Looking

    def run_of(self, workflow: str, trigger: str) -> RunRow:
        with self.work(write=False):
            for row in self.rows("run_of", {"workflow": workflow, "trigger": trigger}):
                return self._run_row(row)
            return self._no_run(workflow, trigger)

    def run_by_id(self, run: int) -> RunRow:
        with self.work(write=False):
            return self._run_by_id(run)

    def _run_by_id(self, run: int) -> RunRow:
        for row in self.rows("run", {"id": run}):
            return self._run_row(row)
        raise NotFound(f"There is no run {run} in instance `{self.instance}`.")

    def runs(
        self, workflow: str | None = None, state: str | None = None, before: int | None = None, limit: int = 50
    ) -> Sequence[RunRow]:
        """Newest first."""
        with self.work(write=False):
            params = {"workflow": workflow, "state": state, "before": before, "limit": limit}
            return [self._run_row(row) for row in self.rows("runs", params)]

    def tasks(self, run: int, step: str, after: int = 0, limit: int = MOST) -> Sequence[Job]:
        """The jobs of a step's tasks, in the order they were made; of a task that was retried the last one."""
        with self.work(write=False):
            row = self._run_by_id(run)
            params = {"job_type": f"{row.workflow}.{step}", "run": run, "after": after, "limit": limit}
            found = [self.job_of(each) for name in ("tasks", "archived_tasks") for each in self.rows(name, params)]
        last = {job.job_key: job for job in sorted(found, key=lambda job: job.id)}
        items = f"{row.trigger}:{step}.items"
        return sorted((job for key, job in last.items() if key != items), key=lambda job: job.id)[:limit]

    def _run_row(self, row: RowDict) -> RunRow:
        steps = tuple(self._run_step(each) for each in self.rows("steps", {"run": row["id"]}))
        return RunRow(
            id=row["id"],
            workflow=row["workflow"],
            trigger=row["trigger"],
            state=WorkflowState(row["state"]),
            definition=definitions.decode(row["definition"]),
            params=decode_object(row["params"]),
            step_params=decode_object(row["step_params"]),
            published=decode_object(row["published"]),
            publication=row["publication"],
            ignore=decode_names(row["ignore"]),
            priority=row["priority"],
            progress=row["progress"],
            aborted=bool(row["aborted"]),
            create_time=self._known(row["create_time"]),
            update_time=self._known(row["update_time"]),
            end_time=self.moment(row["end_time"]),
            steps=steps,
        )

    def _run_step(self, row: RowDict) -> RunStep:
        return RunStep(
            counts=StepRow(
                name=row["name"],
                partition=decode_partition(row["partition"]),
                state=StepState(row["state"]),
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
        )

    def _no_run(self, workflow: str, trigger: str) -> RunRow:
        raise NotFound(
            f"There is no run of workflow `{workflow}` with trigger `{trigger}` in instance `{self.instance}`."
        )

    # Submitting

    def submit(self, wanted: Submission) -> RunRow:
        """A new run, or the one that has this trigger already (F14)."""
        definition, names = wanted.definition, {"workflow": wanted.definition.name, "trigger": wanted.trigger}
        with self.work():
            if not self.run("add_trigger", names):
                for row in self.rows("run_of", names):
                    return self._run_row(row)
                raise Conflict(
                    f"Workflow `{definition.name}` has run with trigger `{wanted.trigger}` before, and that run is gone. "
                    "A trigger is used once; choose another."
                )
            self._refuse_second(definition)
            now = self.now()
            run = self.rows("add_run", {**names, **self._submitted(wanted), "now": self.time(now)})[0]["id"]
            self.run("name_trigger", {**names, "run": run})
            for position, step in enumerate(definition.steps):
                params = {"run": run, "name": step.name, "position": position}
                self.run("add_step", {**params, "partition": encode_partition(step.partition).decode()})
            self._audit(wanted.actor, "submit", detail=f"{definition.name}/{wanted.trigger}")
            self._advance(run, ())
            return self._run_by_id(run)

    def _submitted(self, wanted: Submission) -> dict[str, Any]:
        return {
            "definition": definitions.encode(wanted.definition),
            "params": encode_json(wanted.params).decode(),
            "step_params": encode_json(wanted.step_params).decode(),
            "ignore": encode_json(wanted.ignore).decode(),
            "priority": wanted.priority,
            "unique_alive": wanted.definition.unique_alive,
        }

    def _refuse_second(self, definition: Definition) -> None:
        if definition.unique_alive:
            for row in self.rows("living_run", {"workflow": definition.name}):
                raise Conflict(
                    f"Workflow `{definition.name}` has a living run (trigger `{row['trigger']}`) and allows only one. "
                    "Wait for it, or abort it."
                )

    # Advancing

    def finish_tasks(self, done: Sequence[Done]) -> int:
        """Settle tasks that ended in plain success and advance their runs; how many were stale. Inside a transaction."""
        stale, ends = 0, dict[int, list[TaskEnd]]()
        for queue in dict.fromkeys(item.call.queue for item in done):
            items = [item for item in done if item.call.queue == queue]
            settled = self.settle_now(queue, items)
            stale += len(items) - len(settled)
            for item in items:
                if item.call.id in settled and item.call.run is not None:
                    end = task_end(item.call.job_type, item.call.job_key, Outcome.SUCCESS, item.effects)
                    ends.setdefault(item.call.run, []).append(end)
        for run in sorted(ends):
            self._advance(run, ends[run])
        return stale

    @abstractmethod
    def settle_now(self, queue: str, done: Sequence[Done]) -> set[int]:
        """Settle plain success inside a transaction; the ids of those that were not stale."""

    def ends_of_tasks(self, changes: Iterable[Change | None]) -> None:
        """Tasks that ended otherwise advance their runs too."""
        ends: dict[int, list[TaskEnd]] = {}
        for change in changes:
            if change is not None and change.final and change.row.run is not None:
                outcome = change.steps[-1].outcome
                assert outcome is not None
                end = task_end(change.row.job_type, change.row.job_key, outcome)
                ends.setdefault(change.row.run, []).append(end)
        for run in sorted(ends):
            self._advance(run, ends[run])

    def _advance(self, run: int, ends: Sequence[TaskEnd]) -> None:
        """Count what ended, and do what follows from it."""
        found = self.rows("lock_run", {"id": run})
        if not found:
            return  # it was deleted, and its tasks are nobody's
        row = self._run_row(found[0])
        counted = account([step.counts for step in row.steps], counts_of(ends))
        row = self._published(structs.replace(row, steps=_with_counts(row.steps, counted)), ends)
        if WORKFLOW_STATES[row.state].done:
            self._put_steps(row, [step.counts for step in row.steps], [])
            return
        made_items = {end.step for end in ends if end.makes_items}
        planned = plan(row.definition, [step.counts for step in row.steps], row.ignore)
        now = self.now()
        self._put_steps(row, planned.steps, made_items)
        self._put_run(row, planned, now)
        self._make_tasks(row, planned, made_items)

    def _published(self, row: RunRow, ends: Sequence[TaskEnd]) -> RunRow:
        """Params that tasks published, and other partitions they chose for steps that still sleep (F13)."""
        published, steps = dict(row.published), {step.counts.name: step for step in row.steps}
        told = [decode_effects(end.effects) for end in ends if end.effects]
        for effects in told:
            published.update(effects.get("publish", {}))
            for name, partition in effects.get("repartition", {}).items():
                step = steps.get(name)
                if step is not None and step.counts.state is StepState.DORMANT:
                    chosen = decode_partition(encode_json(partition))
                    steps[name] = structs.replace(step, counts=structs.replace(step.counts, partition=chosen))
        publication = row.publication + any(effects.get("publish") for effects in told)
        return structs.replace(row, published=published, publication=publication, steps=tuple(steps.values()))

    def _put_steps(self, row: RunRow, steps: Sequence[StepRow], made_items: Iterable[str]) -> None:
        """Those that changed."""
        stored = {
            step.name: step for step in (self._run_step(each).counts for each in self.rows("steps", {"run": row.id}))
        }
        now = self.time(self.now())
        for step in steps:
            if step != stored[step.name]:
                values = {name: getattr(step, name) for name in COUNTS}
                values |= {"state": step.state.value, "partition": encode_partition(step.partition).decode()}
                began = step.state not in (StepState.DORMANT,) and stored[step.name].state is StepState.DORMANT
                ended = STEP_STATES[step.state].done
                times = {"start_time": now if began else None, "end_time": now if ended else None}
                self.run("put_step", {**values, **times, "run": row.id, "name": step.name})
        for name in made_items:
            cursor = next(step.cursor for step in row.steps if step.counts.name == name)
            self.run("put_items", {"run": row.id, "name": name, "items_job": None, "cursor": cursor})

    def _put_run(self, row: RunRow, planned: Plan, now: datetime) -> None:
        ended = WORKFLOW_STATES[planned.state].done
        self.run(
            "put_run",
            {
                "id": row.id,
                "state": planned.state.value,
                "progress": planned.progress,
                "published": encode_json(row.published).decode(),
                "publication": row.publication,
                "aborted": row.aborted,
                "end_time": self.time(now) if ended else None,
                "now": self.time(now),
            },
        )

    def _make_tasks(self, row: RunRow, planned: Plan, made_items: Iterable[str]) -> None:
        jobs = [job for tasks in planned.tasks for job in self._task_jobs(row, planned, tasks)]
        wanted = [name for name in planned.items if name in made_items or self._items_job(row, name) is None]
        items = [self._task_job(row, row.definition.step(name), f"{name}.items", {"items": True}) for name in wanted]
        for name, job in zip(wanted, self.insert(jobs + items)[len(jobs) :] if jobs or items else (), strict=True):
            step = next(step for step in row.steps if step.counts.name == name)
            self.run("put_items", {"run": row.id, "name": name, "items_job": job.id, "cursor": step.cursor})

    def _items_job(self, row: RunRow, name: str) -> int | None:
        return next(step.items_job for step in row.steps if step.counts.name == name)

    def _task_jobs(self, row: RunRow, planned: Plan, tasks: NewTasks) -> list[NewJob]:
        step = row.definition.step(tasks.step)
        partition = next(each.partition for each in planned.steps if each.name == tasks.step)
        return [
            self._task_job(row, step, task_name(partition, step.name, index), {"index": index})
            for index in range(tasks.first, tasks.first + tasks.count)
        ]

    def _task_job(self, row: RunRow, step: StepDefinition, task: str, told: Mapping[str, Any]) -> NewJob:
        payload = {**told, "publication": row.publication}
        return NewJob(
            queue=step.queue or row.definition.queue,
            job_type=f"{row.workflow}.{step.name}",
            payload=encode_json(payload).decode(),
            job_key=f"{row.trigger}:{task}",
            priority=row.priority if step.priority is None else step.priority,
            timeout=None if "items" in told else step.timeout,
            timeout_named=True,
            retries=step.retries,
            retries_named=True,
            run=row.id,
        )

    def add_items(
        self, run: int, step: str, produced: int, items: Sequence[Any], cursor: Any, last: bool
    ) -> int | None:
        """More tasks of a step, from the job that makes its items: `produced` were there before.

        How many more may be made now; None if this maker is not the one that is waited for any more.
        """
        with self.work():
            found = self.rows("lock_run", {"id": run})
            if not found or WORKFLOW_STATES[WorkflowState(found[0]["state"])].done:
                return None
            row = self._run_row(found[0])
            before = next(each for each in row.steps if each.counts.name == step)
            counts = before.counts
            if counts.state is not StepState.START or counts.created != produced or counts.all_created:
                return None
            declared = row.definition.step(step)
            names = [task_name(Items(), step, produced + at) for at in range(len(items))]
            self.insert(
                [
                    self._task_job(row, declared, name, {"index": produced + at, "item": item})
                    for at, (name, item) in enumerate(zip(names, items, strict=True))
                ]
            )
            counts = structs.replace(
                counts, created=counts.created + len(items), undone=counts.undone + len(items), all_created=last
            )
            text = encode_json(cursor).decode() if cursor is not None else before.cursor
            self.run("put_items", {"run": run, "name": step, "items_job": before.items_job, "cursor": text})
            self._put_steps(row, [counts], ())
            if last:
                self._advance(run, ())
            return declared.most_undone - counts.undone

    # Acting

    def retry_run(self, run: int, actor: str) -> RunRow:
        """Undo what erred and run it again; what failed stays (F16)."""
        with self.work():
            row = self._locked_run(run)
            if row.state is not WorkflowState.ERROR:
                raise Conflict(f"{row.title} is `{row.state}`; only one that ended in `ERROR` is retried.")
            again = states.retry([_as_step(row, step) for step in row.steps])
            jobs: list[NewJob] = []
            steps = []
            for step, undone in zip(row.steps, again, strict=True):
                counts = structs.replace(step.counts, state=undone.state)
                if undone.state is not step.counts.state and step.counts.state is StepState.ERROR:
                    erred = self._erred(row, step.counts.name)
                    jobs += erred
                    counts = structs.replace(counts, undone=len(erred), errors=0)
                steps.append(structs.replace(step, counts=counts, items_job=None))
            self._audit(actor, "retry", detail=row.title)
            row = structs.replace(row, steps=tuple(steps), state=WorkflowState.UNDONE, aborted=False)
            for each in steps:
                self.run("put_items", {"run": run, "name": each.counts.name, "items_job": None, "cursor": each.cursor})
            self._put_steps(row, [step.counts for step in steps], ())
            if jobs:
                self.insert(jobs)
            planned = plan(row.definition, [step.counts for step in steps], row.ignore)
            self._put_steps(row, planned.steps, ())
            self._put_run(row, planned, self.now())
            self._make_tasks(row, planned, ())
            return self._run_by_id(run)

    def _erred(self, row: RunRow, step: str) -> list[NewJob]:
        """The erred tasks of a step as new jobs."""
        declared, found = row.definition.step(step), []
        for job in self.rows("erred_tasks", {"job_type": f"{row.workflow}.{step}", "run": row.id}):
            task = job["job_key"].rpartition(":")[2]
            if not task.endswith(".items"):
                told = {**decode_object(job["payload"]), "publication": row.publication}
                found.append(structs.replace(self._task_job(row, declared, task, told), retry_of=job["id"]))
        return found

    def abort_run(self, run: int, actor: str) -> RunRow:
        """End everything of it that is not done (F16). Its jobs are aborted afterwards, one by one."""
        with self.work():
            row = self._locked_run(run)
            if WORKFLOW_STATES[row.state].done:
                raise Conflict(f"{row.title} is `{row.state}` already: it cannot be aborted.")
            ended = states.abort([_as_step(row, step) for step in row.steps])
            steps = [structs.replace(step.counts, state=end.state) for step, end in zip(row.steps, ended, strict=True)]
            self._audit(actor, "abort", detail=row.title)
            self._put_steps(row, steps, ())
            planned = plan(row.definition, steps, row.ignore, may_create=False)
            self._put_run(structs.replace(row, aborted=True), planned, self.now())
        self.abort_tasks(run, actor)
        return self.run_by_id(run)

    def abort_tasks(self, run: int, actor: str) -> int:
        """Abort the living jobs of a run that was aborted; how many."""
        count = 0
        while True:
            with self.work(write=False):
                row = self._run_by_id(run)
                types = self.words([f"{row.workflow}.{step.name}" for step in row.definition.steps])
                living = [each["id"] for each in self.rows("living_tasks", {"types": types, "run": run, "limit": MOST})]
            asked = 0
            for job_id in living:
                asked += self._abort_if_living(job_id, actor)
            count += asked
            if not asked or len(living) < MOST:
                return count

    def _abort_if_living(self, job_id: int, actor: str) -> int:
        try:
            return int(self.abort(job_id, actor).final)
        except Conflict:
            return 0  # it ended meanwhile

    def delete_run(self, run: int, actor: str) -> None:
        """Forget a run that is done; its trigger stays used (F14)."""
        with self.work():
            row = self._locked_run(run)
            if not WORKFLOW_STATES[row.state].done:
                raise Conflict(f"{row.title} is `{row.state}`; only one that is done can be deleted. Abort it first.")
            self.run("drop_run", {"id": run})
            self._audit(actor, "delete", detail=row.title)

    def _locked_run(self, run: int) -> RunRow:
        for row in self.rows("lock_run", {"id": run}):
            return self._run_row(row)
        raise NotFound(f"There is no run {run} in instance `{self.instance}`.")


COUNTS = ("created", "undone", "succeeded", "failed", "errors", "all_created")


def task_end(job_type: str, job_key: str | None, outcome: Outcome, effects: str | None = None) -> TaskEnd:
    step = job_type.partition(".")[2]
    return TaskEnd(step, outcome, (job_key or "").rpartition(":")[2] == f"{step}.items", effects)


def counts_of(ends: Sequence[TaskEnd]) -> list[Ended]:
    """In numbers; a job that only made items counts when it did not succeed: its failure is the step's."""
    found = []
    for end in ends:
        if end.makes_items and end.outcome is Outcome.SUCCESS:
            continue
        names = {Outcome.SUCCESS: "succeeded", Outcome.FAILED: "failed"}
        found.append(Ended(end.step, **{names.get(end.outcome, "errors"): 1}, counted=not end.makes_items))
    return found


def _with_counts(steps: Sequence[RunStep], counts: Sequence[StepRow]) -> tuple[RunStep, ...]:
    by_name = {each.name: each for each in counts}
    return tuple(structs.replace(step, counts=by_name[step.counts.name]) for step in steps)


def _as_step(row: RunRow, step: RunStep) -> states.Step:
    counts = step.counts
    declared = row.definition.step(counts.name)
    return states.Step(
        counts.name,
        counts.state,
        declared.after,
        declared.phase,
        declared.can_fail,
        False,
        counts.undone,
        counts.succeeded,
        counts.failed,
        counts.errors,
        counts.all_created,
    )

