"""Runs of workflows: submitted, and advanced with the end of every task.

Rules:
- The end of a task and what follows from it (steps that move, tasks that are made) are one transaction: no wake-up can
  be lost, no task made twice.
- Who advances a run has locked its row. Steps keep their tasks in numbers, so nobody ever counts tasks.
- What follows is decided by `holdfast.workflows.plan` and by nothing here.
- A task's job is of type `<workflow>.<step>` and has the key `<trigger>:<task>` (F21).
"""

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from typing import Any

from msgspec import UNSET, Struct, field, structs

from holdfast.clock import Clock
from holdfast.errors import Conflict
from holdfast.jobs.damage import UNREADABLE
from holdfast.jobs.job import Outcome
from holdfast.jobs.numbers import as_stored
from holdfast.jobs.states import DEFAULT_RETRIES, DEFAULT_TIMEOUT, Change
from holdfast.stores.adding import Unstored
from holdfast.stores.contract import Done, NewJob, RunRow, RunStep, StepOfRun, Submission, Turn, TurnAnswer
from holdfast.stores.reader import RowReader
from holdfast.stores.runs import DamagedRun, Runs, decode_object, params_of
from holdfast.stores.statements import RowDict, encode_json
from holdfast.workflows import definition as definitions
from holdfast.workflows.definition import Definition
from holdfast.workflows.partition import Items, Simple, task_name
from holdfast.workflows.partition import decode as decode_partition
from holdfast.workflows.partition import encode as encode_partition
from holdfast.workflows.plan import Ended, Overview, Plan, Planning, Shape, StepRow, account, overview
from holdfast.workflows.states import STEP_STATES, WORKFLOW_STATES, StepState, WorkflowState

FEW = 50  # steps that are read before it is certain that they are needed
FEW_READS = 3  # of the next steps that a plan asks for; if it asks again, an error goes down a chain, and all are read
NOT_BEGUN = (StepState.DORMANT, StepState.SKIP_BY_ERROR)
NO_STEPS: Mapping[str, RunStep] = {}

logger = logging.getLogger("holdfast.workflows")


class TaskEnd(Struct, frozen=True):
    """A task's job became final."""

    step: str
    outcome: Outcome
    makes_items: bool = False
    effects: str | None = None


class Running(Runs):
    """Adds the verbs that move runs on."""

    looks_ahead = False  # it reads slowly, and works out the end of a lone task meanwhile

    def __init__(self, instance: str, clock: Clock) -> None:
        super().__init__(instance, clock)
        self._made: MadeTasks | None = None  # during a turn
        self.writes_more = False  # after the run that is being written, in the same transaction

    # Submitting

    def submit(self, wanted: Submission) -> RunRow:
        """A new run, or the one that has this trigger already (F14)."""
        wanted = structs.replace(wanted, definition=self.kept_secret(wanted.definition))
        definition, names = wanted.definition, {"workflow": wanted.definition.name, "trigger": wanted.trigger}
        with self.work():
            if not self.run("add_trigger", names):
                found = self._found("run_of", names)
                if found is not None:
                    return found
                raise Conflict(
                    f"Workflow `{definition.name}` has run with trigger `{wanted.trigger}` before, and that run is gone. "
                    "A trigger is used once; choose another."
                )
            self.refuse_submission(definition.name)
            self._refuse_second(definition)
            now = self.now()
            run = self.rows("add_run", {**names, **self._submitted(wanted), "now": self.time(now)})[0]["id"]
            self.run("name_trigger", {**names, "run": run})
            for position, step in enumerate(definition.steps):
                params = {"run": run, "name": step.name, "position": position}
                self.run("add_step", {**params, "partition": encode_partition(step.partition).decode()})
            self._audit(wanted.actor, "submit", detail=f"{definition.name}/{wanted.trigger}")
            # Its shape is not remembered before the commit: on SQLite another run may get this id after a rollback.
            head = self._head(self.rows("lock_run", {"id": run})[0], Shape(definition))
            fresh = [StepRow(step.name, step.partition) for step in definition.steps]
            head = structs.replace(head, overview=overview(definition, fresh))
            self._go_on(head, (), head.shape.phases[head.overview.phase])
            return self._run_by_id(run)

    def _submitted(self, wanted: Submission) -> dict[str, Any]:
        return {
            "definition": definitions.encode(wanted.definition),
            "params": encode_json(wanted.params).decode(),
            "step_params": encode_json(wanted.step_params).decode(),
            "ignore": encode_json(wanted.ignore).decode(),
            "priority": as_stored(wanted.priority),
            "unique_alive": wanted.definition.unique_alive,
        }

    def _refuse_second(self, definition: Definition) -> None:
        """Also if it was submitted by code that did not ask for that yet."""
        if definition.unique_alive:
            self.rows("lock_living", {"workflow": definition.name})
            for row in self.rows("living_run", {"workflow": definition.name}):
                raise Conflict(
                    f"Workflow `{definition.name}` has a living run (trigger `{row['trigger']}`) and allows only one. "
                    "Wait for it, or abort it."
                )

    # Advancing

    def exchange_with_tasks(self, turn: Turn, tasks: Sequence[Done]) -> TurnAnswer:
        """A turn with ends of tasks: what follows from them is made and may be claimed in the same transaction.

        Others hear of new tasks only if we did not claim them all.
        """
        with self.lend(turn.worker, len(turn.done)), self.work():
            self.write_notes(turn.notes)
            return self.exchange_inside(turn, tasks)

    def exchange_inside(self, turn: Turn, tasks: Sequence[Done]) -> TurnAnswer:
        """The same inside a transaction, with its notes written."""
        won = [item.call.job_type for item in tasks]
        rest = structs.replace(turn, done=[item for item in turn.done if item.call.run is None], notes=(), won=won)
        self._made = made = MadeTasks()
        self.quiet = True
        try:
            stale = self.finish_tasks(tasks, rest)
        finally:
            self.quiet, self._made = False, None
        answer = self.exchange(rest)
        assert self.lending is not None
        self.lending.told = made.told
        waiting = made.queues.keys() - self.lending.begun - {call.id for call in answer.claimed}
        left = sorted({made.queues[job_id] for job_id in waiting})
        if left:
            self.announce(left)
        elif made.expected is not None:
            self.expect(next(iter(made.queues)), made.expected)
        return structs.replace(answer, stale=answer.stale + stale, told=made.told, left=left)

    @abstractmethod
    def exchange(self, turn: Turn) -> TurnAnswer: ...

    def finish_tasks(self, done: Sequence[Done], rest: Turn) -> int:
        """Settle tasks that ended in plain success and advance their runs; how many were stale. Inside a transaction.

        `rest`: the turn that follows it in the same transaction.
        """
        by_queue: dict[str, list[Done]] = {}
        ends: dict[int, dict[int, TaskEnd]] = {}
        for item in done:
            by_queue.setdefault(item.call.queue, []).append(item)
            if item.call.run is not None:
                end = task_end(item.call.job_type, item.call.job_key, Outcome.SUCCESS, item.effects)
                ends.setdefault(item.call.run, {})[item.call.id] = end
        looks = [look for run in sorted(ends) for look in self._looks(run, ends[run].values())]
        expected = self.expected(done, rest)
        if expected is not None:
            self.settle_ahead(by_queue, expected)
            (counted,) = ([*each.values()] for each in ends.values())
            self._go_on(expected.head, counted, [end.step for end in counted], found=expected.steps)
            return 0
        settled, found = self.settle_and_look(by_queue, looks if not self.adaptive else (), rest)
        if self.adaptive:  # breakers are locked before runs
            self.count_successes([item for item in done if item.call.id in settled], 0)
            found = self.rows_of(looks)
        if len(ends) == 1:
            self.go_along(rest)
        for index, run in enumerate(sorted(ends)):
            counted = [end for job_id, end in ends[run].items() if job_id in settled]
            if counted:
                self._advance(found[2 * index], found[2 * index + 1], counted)
        return len(done) - len(settled)

    @abstractmethod
    def settle_and_look(
        self, by_queue: Mapping[str, Sequence[Done]], looks: Sequence[tuple[str, Mapping[str, Any]]], rest: Turn
    ) -> tuple[set[int], list[list[dict[str, Any]]]]:
        """Settle plain success, then ask; the ids of those that were not stale, and the answers. Inside a transaction.

        A store may make the rest of the turn in between, where much is done: then the run is not locked meanwhile.
        """

    def go_along(self, turn: Turn) -> None:
        """The next run that is written is the last thing before this turn. A store may send both together."""

    def expect(self, job_id: int, expected: "Expected") -> None:
        """A lone task was made and claimed: a store that looks ahead keeps what its end is going to find."""

    def expected(self, done: Sequence[Done], rest: Turn) -> "Expected | None":
        """What was kept, if this is such an end and `rest` can go along with it."""
        return None

    def settle_ahead(self, by_queue: Mapping[str, Sequence[Done]], expected: "Expected") -> None:
        """Settle and ask without waiting for the answers: what follows is worked out meanwhile. It is committed only
        if everything was as expected.
        """
        raise NotImplementedError

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
            found, steps = self.rows_of(self._looks(run, ends[run]))
            self._advance(found, steps, ends[run])

    def _looks(self, run: int, ends: Iterable[TaskEnd]) -> list[tuple[str, Mapping[str, Any]]]:
        """What has to be known to advance a run, the lock first."""
        touched = list(dict.fromkeys(end.step for end in ends))
        shape = self._shapes.get(run)
        return self.look_at(run, {*touched, *(likely(shape, touched) if shape else ())})

    def look_at(self, run: int, names: Iterable[str]) -> list[tuple[str, Mapping[str, Any]]]:
        return [("lock_run", {"id": run}), ("steps_named", self._naming(run, names))]

    def _advance(self, found: Sequence[RowDict], steps: Sequence[RowDict], ends: Sequence[TaskEnd]) -> None:
        """Count what ended, and do what follows from it."""
        touched = list(dict.fromkeys(end.step for end in ends))
        for row in found:  # none: it was deleted, and its tasks are nobody's
            try:
                head, known = self._head(row), self._by_name(steps)
            except DamagedRun as error:
                logger.error("The end of a task is stored, and not counted. %s", error)
                continue
            if head.over:
                self._count_only(head, ends)
            else:
                self._go_on(head, ends, touched, found=known)

    def _head(self, row: RowDict, shape: Shape | None = None) -> "RunHead":
        """`DamagedRun` if what decides how it goes on cannot be read."""
        read = RowReader(row)
        state, ignore = read.one_of("state", WorkflowState, WorkflowState.STUCK), read.texts("ignore")
        if read.damaged:
            raise self.damaged_run(row["id"], "run", *read.damaged)
        return RunHead(
            id=row["id"],
            trigger=row["trigger"],
            shape=self._shape(row["id"]) if shape is None else shape,
            overview=Overview(**{name: row[name] for name in Overview.__struct_fields__}),
            params=row["params"],
            step_params=row["step_params"],
            published=row["published"],
            publication=row["publication"],
            ignore=ignore,
            priority=row["priority"],
            aborted=bool(row["aborted"]),
            over=WORKFLOW_STATES[state].done,
        )

    def _count_only(self, head: "RunHead", ends: Sequence[TaskEnd]) -> None:
        """The run is over; what still ends is only counted, and what it brought about is kept for a retry."""
        effects = [decode_object(end.effects) for end in ends if end.effects]
        known = self._steps_named(head.id, {*(end.step for end in ends), *_chosen(effects)})
        now = {row.name: row for row in account([step.counts for step in known.values()], counts_of(ends))}
        self._put_steps(head.id, known, (now | _repartitioned(now, effects)).values())
        told = self._publish(head, effects)
        if told is not head:
            self.run("put_published", {name: getattr(told, name) for name in ("id", "published", "publication")})

    def _go_on(
        self,
        head: "RunHead",
        ends: Sequence[TaskEnd],
        touched: Sequence[str],
        changed: Iterable[StepRow] = (),
        found: Mapping[str, RunStep] = NO_STEPS,
    ) -> None:
        """Plan with the steps that were touched; others than those `found` are read when the plan asks for them.

        `changed`: steps as they are now for another reason than an end.
        """
        effects = [decode_object(end.effects) for end in ends if end.effects]
        known = dict(found)
        wanted = {*touched, *_chosen(effects)} - known.keys()
        if wanted:
            known |= self._steps_named(head.id, wanted)
        may_create, reads = True, 0
        while True:
            before = {name: step.counts for name, step in known.items()}
            now = {row.name: row for row in account(list(before.values()), counts_of(ends))}
            now.update({row.name: row for row in changed})
            now.update(_repartitioned(now, effects))
            may_create = may_create and not self._creation_held(head, known.values())
            planned = Planning(head.shape, now, head.overview, head.ignore, may_create, before).made(touched)
            if isinstance(planned, Plan):
                break
            reads += 1
            known |= self._steps_named(head.id, planned.names if reads < FEW_READS else head.shape.steps.keys())
        head = self._publish(head, effects)
        self._carry_out(head, planned, known, {end.step for end in ends if end.makes_items})

    def _creation_held(self, head: "RunHead", steps: Iterable[RunStep]) -> bool:
        """A release that came after the steps were read has not seen what waits here: it counts, or waits for us."""
        names = {"workflow": head.shape.definition.name, "run": head.id}
        return any(step.creation_held for step in steps) and bool(self.rows("keep_creation", names))

    def _publish(self, head: "RunHead", effects: Sequence[Mapping[str, Any]]) -> "RunHead":
        """With the params that tasks published (F13)."""
        told = [each["publish"] for each in effects if each.get("publish")]
        if not told:
            return head
        number, new = head.publication + 1, definitions.merged(*told)
        self.run("add_publication", {"run": head.id, "number": number, "params": encode_json(new).decode()})
        text = encode_json(definitions.merged(decode_object(head.published), new)).decode()
        return structs.replace(head, published=text, publication=number)

    def _put_steps(self, run: int, known: Mapping[str, RunStep], steps: Iterable[StepRow]) -> None:
        """Those that changed."""
        for step in changed_steps(known, steps, self.time(self.given_now())):
            self.run("put_step", {**step, "run": run})

    def _carry_out(
        self, head: "RunHead", planned: Plan, known: Mapping[str, RunStep], made_items: Iterable[str]
    ) -> None:
        """Write what was planned, and make the jobs of new tasks."""
        partitions = {row.name: row.partition for row in planned.steps}
        jobs = [
            self._task_job(head, tasks.step, task_name(partitions[tasks.step], tasks.step, index), {"index": index})
            for tasks in planned.tasks
            for index in range(tasks.first, tasks.first + tasks.count)
        ]
        wanted = [name for name in planned.items if name in made_items or known[name].items_job is None]
        jobs += [self._task_job(head, name, f"{name}.items", {"items": True}) for name in wanted]
        made_items = list(made_items)
        again = [job for name in planned.again for job in self.erred_again(head, name)]
        if again:
            stored = self.insert(again)
            if self._made is not None:
                self._made.queues.update((job.id, job.queue) for job in stored)
        self.writes_more = bool(made_items or wanted)
        added = self._put_run(head, planned.overview, known, planned.steps, jobs)
        if self._made is not None:
            self._made.queues.update(zip(added, (job.queue for job in jobs), strict=True))
            if self.looks_ahead:
                self._made.expected = expected_after(head, planned, known) if len(self._made.queues) == 1 else None
            for tasks in planned.tasks:
                if not tasks.first:
                    self._made.told |= self._told_to_tasks(head, tasks.step, planned)
        makers = dict(zip(wanted, added[len(added) - len(wanted) :], strict=True))
        for name in dict.fromkeys([*made_items, *wanted]):
            params = {"run": head.id, "name": name, "cursor": known[name].cursor}
            self.run("put_items", {**params, "items_job": makers.get(name)})

    def erred_again(self, head: "RunHead", step: str) -> list[NewJob]:
        """The erred tasks of a step as new jobs (J11), when a retry of the run comes to them."""
        found = []
        job_type = f"{head.shape.definition.name}.{step}"
        for job in self.rows("erred_tasks", {"job_type": job_type, **keys_of(head.id, head.trigger)}):
            task = job["job_key"].rpartition(":")[2]
            if task != f"{step}.items":
                told = decode_object(job["payload"])
                found.append(structs.replace(self._task_job(head, step, task, told), retry_of=job["id"]))
        return found

    def _put_run(
        self,
        head: "RunHead",
        seen: Overview,
        known: Mapping[str, RunStep],
        steps: Iterable[StepRow],
        jobs: Sequence[NewJob] = (),
    ) -> list[int]:
        """With the steps that changed, and new jobs; the ids of these."""
        now = self.time(self.given_now())
        params = {
            **{name: getattr(seen, name) for name in Overview.__struct_fields__},
            "id": head.id,
            "state": seen.state.value,
            "published": head.published,
            "publication": head.publication,
            "aborted": head.aborted,
            "done": WORKFLOW_STATES[seen.state].done,
            "now": now,
        }
        return self.put_run(params, changed_steps(known, steps, now), jobs)

    def put_run(self, run: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], jobs: Sequence[NewJob]) -> list[int]:
        """A run, those of its steps that changed, and new jobs; the ids of these."""
        for step in steps:
            self.run("put_step", {**step, "run": run["id"]})
        self.run("put_run", run)
        return self.insert_alike(jobs)

    def _told_to_tasks(self, head: "RunHead", step: str, planned: Plan) -> Mapping[tuple[int, str, int], StepOfRun]:
        """What the tasks of a step are told, if that is known here: whoever claims them does not have to ask."""
        rows = {row.name: row for row in planned.steps}
        shape, declared = head.shape, head.shape.steps[step]
        before = {*declared.after, *shape.earlier(declared.phase)}
        if not before <= rows.keys():
            return {}
        row = {"params": head.params, "step_params": head.step_params}
        try:
            params = params_of(shape, step, row, decode_object(head.published))
        except UNREADABLE:
            return {}  # the tasks say so when they are run
        seen = {name: rows[name].state.value for name in before}
        secrets = shape.definition.secrets
        told = StepOfRun(shape.definition.name, head.trigger, declared, RunStep(rows[step]), params, seen, secrets)
        return {(head.id, step, head.publication): told}

    def _task_job(self, head: "RunHead", step: str, task: str, told: Mapping[str, Any]) -> NewJob:
        declared, definition = head.shape.steps[step], head.shape.definition
        timeout, retries = None if "items" in told else declared.timeout, declared.retries
        return NewJob(
            queue=declared.queue or definition.queue,
            job_type=f"{definition.name}.{step}",
            payload=encode_json({**told, "publication": head.publication}).decode(),
            job_key=f"{head.trigger}:{task}",
            priority=as_stored(head.priority if declared.priority is None else declared.priority),
            timeout=DEFAULT_TIMEOUT if timeout is UNSET else timeout,
            timeout_named=timeout is not UNSET,
            retries=DEFAULT_RETRIES if retries is UNSET else retries,
            retries_named=retries is not UNSET,
            run=head.id,
        )

    def add_items(
        self, run: int, step: str, produced: int, items: Sequence[Any], cursor: Any, last: bool
    ) -> int | None:
        """More tasks of a step, from the job that makes its items: `produced` were there before.

        How many more may be made now; None if this maker is not the one that is waited for any more.
        """
        with suppress(Overtaken):
            with self.glancing():
                found = self.rows_of([("run_head", {"id": run}), *self.look_at(run, [step])[1:]])
                head, before = self._waiting_for(produced, *found)
            jobs = self._item_jobs(head, step, produced, items)
            with suppress(Outdated), self.lend():
                return self._store_items(head, before.counts, jobs, cursor, last)
            with self.work():  # locked from the beginning: in a run whose tasks publish all the time it might not end
                head, before = self._waiting_for(produced, *self.rows_of(self.look_at(run, [step])))
                jobs = self._item_jobs(head, step, produced, items)
                return self._store_items(head, before.counts, jobs, cursor, last)
        return None

    def went_on(self, head: "RunHead", step: RunStep) -> None:
        """A maker has stored items that were not the last ones. A store may expect the next ones."""

    def items_stored(self, run: int, step: str) -> bool:
        """Wait for items that a maker has handed in; False if they are not waited for any more. Here they are stored at once."""
        return True

    def undone_tasks(self, run: int, step: str) -> int:
        """Of a step; 0 if it is gone."""
        with self.glancing():
            return sum(found.counts.undone for found in self._steps_named(run, [step]).values())

    def _item_jobs(self, head: "RunHead", step: str, produced: int, items: Sequence[Any]) -> list[NewJob]:
        """They differ by key and payload only."""
        name = task_name(Items(), step, produced)
        first, stem = self._task_job(head, step, name, {}), f"{head.trigger}:{name.rpartition('-')[0]}"
        rest = f'"publication":{head.publication}}}'
        return [
            structs.replace(
                first,
                job_key=f"{stem}-{index}",
                payload=f'{{"index":{index},"item":{encode_json(item).decode()},{rest}',
            )
            for index, item in enumerate(items, produced)
        ]

    def _store_items(self, seen: "RunHead", counts: StepRow, jobs: Sequence[NewJob], cursor: Any, last: bool) -> int:
        """Before the run is locked, so that its other tasks may end meanwhile. How many more may be made."""
        run, step = seen.id, counts.name
        with self.making():
            found, left = self.insert_and_look(jobs, self.look_at(run, [step]))
            head, before = self._waiting_for(counts.created, *found)
            if (head.publication, head.priority) != (seen.publication, seen.priority):
                raise Outdated
            made, undone = before.counts.created + len(jobs), before.counts.undone + len(jobs)
            room = head.shape.steps[step].most_undone - undone
            if room < 0:
                raise Overtaken  # it was told of room that others have used since
            if left:
                self.insert(left)
            counts = structs.replace(before.counts, created=made, undone=undone, all_created=last)
            text = encode_json(cursor).decode() if cursor is not None else before.cursor
            maker = {"run": run, "name": step, "items_job": before.items_job, "cursor": text}
            if last:
                self.run("put_items", maker)
                self._go_on(head, (), [step], [counts])
            else:
                changed = changed_steps({step: before}, [counts], self.time(self.given_now()))
                self.put_made(maker, [{**each, "run": run} for each in changed])
                self.went_on(head, structs.replace(before, counts=counts))
            return room

    def glancing(self) -> AbstractContextManager[None]:
        """Around questions that nothing is decided by alone."""
        return self.work(write=False)

    def making(self) -> AbstractContextManager[None]:
        """Around the transaction that stores items; `insert_and_look` is first in it."""
        return self.work()

    def put_made(self, maker: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> None:
        """How far a maker of items is: the last thing in that transaction."""
        self.run_all([("put_items", maker, ""), *(("put_step", step, "") for step in steps)])

    def _waiting_for(
        self, produced: int, found: Sequence[RowDict], steps: Sequence[RowDict]
    ) -> "tuple[RunHead, RunStep]":
        """The run and the step whose next items are waited for; `Overtaken` if they are not, or not from there on."""
        for row, step in zip(found, map(self._run_step, steps), strict=False):  # none: it was deleted
            head, counts = self._head(row), step.counts
            waits = counts.state is StepState.START and counts.created == produced and not counts.all_created
            if waits and not head.over and not step.creation_held:
                return head, step
        raise Overtaken

    def insert_and_look(
        self, jobs: Sequence[NewJob], looks: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> tuple[list[list[dict[str, Any]]], Sequence[NewJob]]:
        """Jobs of one step, then questions. The answers, and the jobs that need a second look before they are stored.

        Not before the answers are good: who has the run and waits for the keys of its tasks waits for those who end them.
        """
        self.insert_alike(jobs)
        return self.rows_of(looks), ()

    def locked_head(self, run: int) -> "RunHead":
        """To be changed in this transaction."""
        for row in self.rows("lock_run", {"id": run}):
            return self._head(row)
        archived = self._run_by_id(run)
        raise Conflict(f"{archived.title} is in the archive ({archived.state}): nothing about it changes any more.")

    def fill_run(self, run: int) -> None:
        for row in self.rows("lock_run", {"id": run}):
            names = [each["name"] for each in self.rows("steps_to_fill", {"run": run})]
            head = self._head(row)
            if names and not head.over:
                self._go_on(head, (), names)


class Overtaken(Unstored):
    """Somebody else has made these items, or nobody wants them any more."""


class Outdated(Unstored):
    """The jobs of these items would have to say something else by now."""


class RunHead(Struct, frozen=True, kw_only=True):
    """A run without its steps: what is needed whenever a task ends."""

    id: int
    trigger: str
    shape: Shape
    overview: Overview
    params: str  # JSON, as the next two
    step_params: str
    published: str
    publication: int
    ignore: tuple[str, ...]
    priority: float
    aborted: bool
    over: bool


class Expected(Struct, frozen=True):
    """A run and those of its steps that have to be known when its only undone task ends, if nobody else touches it."""

    head: RunHead
    steps: dict[str, RunStep]

    def is_so(self, head: RunHead, steps: Mapping[str, RunStep]) -> bool:
        """When steps began and ended is not counted on."""
        seen = {name: structs.replace(step, start_time=None, end_time=None) for name, step in steps.items()}
        return head == self.head and seen == self.steps


def expected_after(head: RunHead, planned: Plan, known: Mapping[str, RunStep]) -> Expected | None:
    """None if it is not a lone task that was made, or if more has to be known at its end than is known now."""
    shape, seen = head.shape, planned.overview
    if (
        seen.started != 1
        or len(planned.tasks) != 1
        or (seen.phase_undone == 1 and shape.next_phase(seen.phase) is not None)
    ):
        return None
    name = planned.tasks[0].step
    followers = shape.followers.get(name, ())
    fresh = {each: RunStep(StepRow(each, shape.steps[each].partition)) for each in followers}
    now = {row.name: RunStep(row, known[row.name].items_job, known[row.name].cursor) for row in planned.steps}
    steps = {each: (fresh | now).get(each) for each in {name, *likely(shape, [name])}}
    found = {each: step for each, step in steps.items() if step is not None}
    lacking = len(found) < len(steps) or not steps.keys() >= set(followers)
    if (
        lacking
        or now[name].counts.undone != 1
        or any(isinstance(step.counts.partition, Items) for step in found.values())
    ):
        return None
    return Expected(structs.replace(head, overview=seen), found)


class MadeTasks(Struct):
    """The jobs that were made in a turn, by id the queue of each, and what the tasks of steps that began are told."""

    queues: dict[int, str] = field(default_factory=dict)
    told: dict[tuple[int, str, int], StepOfRun] = field(default_factory=dict)
    expected: Expected | None = None  # by the end of the only one


COUNTS = ("created", "undone", "succeeded", "failed", "errors", "all_created")


def changed_steps(known: Mapping[str, RunStep], steps: Iterable[StepRow], now: Any) -> list[dict[str, Any]]:
    """As they are stored."""
    found = []
    for step in steps:
        was = known[step.name].counts
        if step != was:
            began = was.state is StepState.DORMANT and step.state is not StepState.DORMANT
            values = {name: getattr(step, name) for name in COUNTS}
            values |= {"name": step.name, "state": step.state.value, "began": began, "now": now}
            values["partition"] = encode_partition(step.partition).decode()
            found.append(values | {"done": STEP_STATES[step.state].done})
    return found


def likely(shape: Shape, touched: Iterable[str]) -> set[str]:
    """What will be asked for when steps of one task end: those that come after them, and all that these wait for."""
    found: set[str] = set()
    for name in touched:
        if isinstance(shape.steps[name].partition, Simple):
            for follower in shape.followers.get(name, ()):
                found |= {follower, *shape.steps[follower].after}
    return found if len(found) <= FEW else set()


def task_end(job_type: str, job_key: str | None, outcome: Outcome, effects: str | None = None) -> TaskEnd:
    step, maker, success = _ends_of(job_type)
    if outcome is Outcome.SUCCESS and effects is None and not (job_key is not None and job_key.endswith(maker)):
        return success
    return TaskEnd(step, outcome, makes_items(step, job_key), effects)


@lru_cache(maxsize=1000)
def _ends_of(job_type: str) -> tuple[str, str, TaskEnd]:
    """The step, how the key of the job ends that makes its items, and the end that nearly all of its tasks have."""
    step = step_of(job_type)
    return step, f":{step}.items", TaskEnd(step, Outcome.SUCCESS)


def step_of(job_type: str) -> str:
    """Whose tasks are of this type."""
    return job_type.partition(".")[2]


def makes_items(step: str, job_key: str | None) -> bool:
    """Whether the job with this key makes the tasks of that step, and is none of them itself."""
    return job_key is not None and job_key.endswith(f":{step}.items")


def counts_of(ends: Sequence[TaskEnd]) -> list[Ended]:
    """In numbers; a job that only made items counts when it did not succeed: its failure is the step's."""
    names = {Outcome.SUCCESS: "succeeded", Outcome.FAILED: "failed"}
    found: Counter[tuple[str, str, bool]] = Counter()
    for end, count in Counter(ends).items():
        found[end.step, names.get(end.outcome, "errors"), end.makes_items] += count
    return [
        Ended(step, **{name: count}, counted=not makes_items)
        for (step, name, makes_items), count in found.items()
        if not (makes_items and name == "succeeded")
    ]


def _chosen(effects: Iterable[Mapping[str, Any]]) -> set[str]:
    """The steps for which tasks chose another partition."""
    return {name for each in effects for name in each.get("repartition", {})}


def _repartitioned(rows: Mapping[str, StepRow], effects: Sequence[Mapping[str, Any]]) -> dict[str, StepRow]:
    """Steps that still sleep, or will again after a retry, with the partitions that tasks chose for them (F13)."""
    found = {}
    for each in effects:
        for name, partition in each.get("repartition", {}).items():
            if name in rows and rows[name].state in NOT_BEGUN:
                found[name] = structs.replace(rows[name], partition=decode_partition(encode_json(partition)))
    return found


def keys_of(run: int, trigger: str) -> dict[str, Any]:
    """What the keys of a run's jobs lie between (F21)."""
    return {"run": run, "low": f"{trigger}:", "high": f"{trigger};"}
