"""App: the object users hold. It declares queues and job types, opens a store when it first needs one, and enqueues.

- Declaring does no I/O: safe at import, safe to fork after.
- Names and meanings here are pinned; see docs/reference.
"""

import contextvars
import logging
import math
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType, structs

from holdfast import tracing
from holdfast.builds.build import JOB_TYPE as BUILD_TYPE
from holdfast.builds.build import QUEUE as BUILD_QUEUE
from holdfast.clock import EPOCH, Clock, monotonic, sleep
from holdfast.compose import Run, Workflow, submission
from holdfast.config import LONGEST
from holdfast.database_url import resolve
from holdfast.declare import JobType, Queue, new_job, number
from holdfast.errors import Conflict, Invalid, NotFound, Unavailable, backticked, quoted
from holdfast.jobs import damage, holds, routines, schedules, throttlers
from holdfast.jobs import payload as payloads
from holdfast.jobs import retry as retries_
from holdfast.jobs.arguments import choice, refuses_wrong_arguments
from holdfast.jobs.breaker import Breaker
from holdfast.jobs.damage import Damaged
from holdfast.jobs.holds import Hold
from holdfast.jobs.job import LONGEST_MESSAGE, Answer, Attempt, Job, JobError, LogLine, Move, State
from holdfast.jobs.names import check_actor, check_job_type, check_name, check_table, check_text
from holdfast.jobs.numbers import LARGEST_ID, is_finite, is_whole
from holdfast.jobs.placement import DutyRule, check_duty, check_labels, check_rule
from holdfast.jobs.reasons import Explanation
from holdfast.jobs.routines import Routine
from holdfast.jobs.schedules import Schedule
from holdfast.jobs.secrets import EveryName, joined
from holdfast.jobs.states import STATUS
from holdfast.jobs.throttlers import Throttler, ThrottlerFunction
from holdfast.on_demand import (
    Gathered,
    Worker,
    explain,
    gathering,
    in_thread,
    new_worker,
    read_definition,
    rest,
    run_until_signal,
)
from holdfast.routines import called_with_turn
from holdfast.stores.asking import Asking
from holdfast.stores.contract import (
    Filter,
    FiringRow,
    NewJob,
    QueueDeclared,
    RequestKey,
    RoutineRow,
    RunRow,
    ScheduleRow,
    Store,
    Submission,
    TypeRow,
    WorkerRow,
)
from holdfast.stores.open import open_store
from holdfast.version import VERSION
from holdfast.worker.around import Around, check_around, traced, wrapped
from holdfast.worker.handler import LEVELS, Handler
from holdfast.worker.settings import Chore, WorkerSettings
from holdfast.workflows.definition import Definition, is_name, nearest, problems
from holdfast.workflows.functions import table
from holdfast.workflows.partition import Items

logger = logging.getLogger("holdfast.worker")
ORDERS = ("priority", "schedule")
SECRETS_KNOWN = 5.0  # seconds for which what other programs call secret is believed
SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.1  # seconds between two looks at a job that is waited for
ENGINE_TABLE = re.compile(r"[a-z]+(_[a-z]+)*__")  # of this or any other instance


class OpenTransaction:
    """The transaction that enqueues of this thread or task are part of."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.connection: Any = None
        self._one_at_a_time = threading.Lock()
        self.over = False
        self.pid = os.getpid()

    @property
    def ours(self) -> bool:
        """False in a process that was forked inside: to whatever is said on the connection there, our parent listens."""
        return self.pid == os.getpid()

    def refuse_copy(self) -> None:
        if not self.ours:
            raise Invalid(
                "This process was forked inside app.transaction(), which is its parent's: nothing done here can be part of it. "
                "Enqueue in the parent, or fork before the transaction begins."
            )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One at a time on its connection; `Invalid` if its user has ended it there."""
        with self._one_at_a_time:
            if not self.store.is_inside(self.connection):
                raise Invalid(
                    "The transaction of app.transaction() was ended inside it, by a `commit` or `rollback` on its connection: "
                    "nothing can be part of it any more. Leave its end to the block, and roll back a part with a savepoint."
                )
            yield


class App:
    """One instance: its queues, its job types, its database."""

    @refuses_wrong_arguments
    def __init__(
        self,
        db_config: str | Mapping[str, Any] | None = None,
        name: str | None = None,
        *,
        table_naming_strategy: Callable[[str, str], str] | None = None,
        heartbeat: float | None = None,
        lost_after: float | None = None,
        patience: float = 5.0,
        archive_after: float | None = None,
        archive_keep: float | None = None,
        payload_limit: int = payloads.MAX_BYTES,
        clock: Clock | None = None,
    ) -> None:
        if name is None:
            name = os.environ.get("HOLDFAST_INSTANCE") or "holdfast"
        self.name = check_name(name, "Instance")
        if name == "sqlite" or name.startswith("sqlite_"):
            raise Invalid(
                f"Instance name {quoted(name)}: SQLite keeps names that begin with `sqlite_` to itself. Choose another."
            )
        self.db_config = db_config or os.environ.get("HOLDFAST_URL") or "sqlite:///holdfast.db"
        resolve(self.db_config)
        self.heartbeat = _seconds(heartbeat, "heartbeat", "HOLDFAST_HEARTBEAT", 5.0)
        self.lost_after = _seconds(lost_after, "lost_after", "HOLDFAST_LOST_AFTER", 30.0)
        if self.lost_after < 2 * self.heartbeat:
            raise Invalid(
                f"lost_after={self.lost_after:g} must be at least twice heartbeat={self.heartbeat:g}, or live workers look lost."
            )
        self.patience = number(patience, "patience")
        self.archive_after = _seconds(archive_after, "archive_after", "HOLDFAST_ARCHIVE_AFTER", 7 * 86400.0)
        self.archive_keep = _archive_keep(archive_keep, self.archive_after)
        if not is_whole(payload_limit, 1):
            raise Invalid(f"payload_limit={quoted(payload_limit)}; give a number of bytes, 1 or more.")
        self.payload_limit = payload_limit
        self.clock = clock or Clock()
        self._strategy = table_naming_strategy or (lambda instance, queue: f"{instance}_{queue}")
        self._queues: dict[str, Queue] = {}
        self._throttlers: dict[str, Asking] = {}
        self._types: dict[str, JobType] = {}
        self._workflows: dict[str, Workflow] = {}
        self._stored: dict[str, TypeRow] = {}
        self._stored_read = -math.inf  # when they were looked up for their secrets
        self._schedules: dict[str, Schedule] = {}
        self._routines: dict[str, Routine] = {}
        self._arounds: list[Around] = []
        self.chores: list[Chore] = []  # what its workers do with every sweep
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._pid = 0
        self._abandoned: list[Store] = []  # of transactions that are our parent's; to drop one would close it
        self._registered = False
        self._transaction: contextvars.ContextVar[OpenTransaction | None] = contextvars.ContextVar(
            "holdfast_transaction", default=None
        )

    # Declaring

    @refuses_wrong_arguments
    def queue(
        self,
        name: str,
        *,
        throttle_limit: float = 0,
        order: str = "priority",
        throttler: Throttler | ThrottlerFunction | None = None,
    ) -> "Queue":
        """Declare a queue, or get the declared one.

        `throttler` is `share(…)`, `per_key(…)`, `rate(…)`, or a function `(running, candidates)` that answers `ADMIT`,
        `REFUSE` or `Reschedule(…)` for each candidate; `throttle_limit` holds beside it (W3, W4).
        """
        check_name(name, "Queue")
        if order not in ORDERS:
            raise Invalid(f"queue {quoted(name)}: order={quoted(order)}; it may be {' or '.join(map(repr, ORDERS))}.")
        limit = number(throttle_limit, f"queue {quoted(name)}: throttle_limit")
        table = check_table(self._strategy(self.name, name), self.name, name)
        if ENGINE_TABLE.match(table):
            raise Invalid(
                f"The table_naming_strategy gave `{table}` for queue `{name}`: two underscores are reserved. Choose another."
            )
        with self._lock:
            for other in self._queues.values():
                if other.name != name and other.declared.table_name == table:
                    raise Conflict(
                        f"Queues `{other.name}` and `{name}` of instance `{self.name}` would share table `{table}`. Change the table_naming_strategy."
                    )
            declared = QueueDeclared(name, table, order, limit, self._throttler(name, throttler))
            queue = self._queues.get(name)
            if queue is None:
                queue = self._queues[name] = Queue(self, declared)
            elif (throttle_limit, order, throttler) != (0, "priority", None):
                queue.declared = declared
            self._registered = False
            return queue

    def _throttler(self, queue: str, given: Any) -> str | None:
        """As it is registered; a function is kept here for the workers of this process."""
        if given is None or isinstance(given, Throttler):
            return throttlers.encode(given)
        known = throttlers.named(given, f"queue {quoted(queue)}")
        self._throttlers[queue] = Asking(queue, known.name, given)
        return throttlers.encode(known)

    @refuses_wrong_arguments
    def schedule(
        self,
        name: str,
        *,
        job: JobType | str | None = None,
        workflow: Workflow | str | None = None,
        request: Mapping[str, Any] | None = None,
        cron: str | None = None,
        zone: str | None = None,
        every: float | timedelta | None = None,
        at: Sequence[datetime] | datetime | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        payload: Mapping[str, Any] | None = None,
        const: Mapping[str, Any] | None = None,
        misfire: str = "once",
        **options: Any,
    ) -> Schedule:
        """Declare a schedule: jobs made by themselves, one for each of its times over all machines (W6).

        With `workflow` a run is submitted instead; `request` is the template of its trigger (the firing's time unless it
        is given), `params`, `steps`, `ignore` and `priority`. It is stored at the first connection and stays until it is
        removed; an operator's change wins over it.
        """
        if workflow is not None:
            if job is not None or payload is not None:
                raise Invalid(f"schedule {quoted(name)}: give job and payload, or workflow and request.")
            found = self._workflows.get(workflow) if isinstance(workflow, str) else workflow
            if found is None:
                raise Invalid(
                    f"schedule {quoted(name)}: workflow={quoted(workflow)} is no workflow of this app. Declare it before."
                )
            job, payload = found.submitter(), {"trigger": "{time}", **(request or {})}
        elif request is not None:
            raise Invalid(f"schedule {quoted(name)}: request= goes with workflow=; a job takes payload=.")
        job_type = self._types.get(job) if isinstance(job, str) else job
        if not isinstance(job_type, JobType) or job_type.app is not self:
            raise Invalid(
                f"schedule {quoted(name)}: job={quoted(job)} is no job type of this app. Declare it before its schedule."
            )
        timing = {"cron": cron, "zone": zone, "every": every, "at": at, "start": start, "end": end, "misfire": misfire}
        made = self._make_schedule(name, job_type.name, timing, payload, const, options)
        sample = schedules.made(made, 1, EPOCH)
        new_job(job_type.row(), job_type.signature.check((), sample.payload, limit=self.payload_limit), sample.options)
        with self._lock:
            if self._schedules.get(name, made) != made:
                raise Conflict(f"Schedule `{name}` is declared twice in this app. Give one of them another name.")
            self._schedules[name] = made
            self._registered = False
        return made

    def _make_schedule(
        self,
        name: str,
        job_type: str,
        timing: Mapping[str, Any],
        payload: Mapping[str, Any] | None,
        const: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> Schedule:
        return schedules.make(
            name,
            job_type=job_type,
            **timing,
            payload=payload,
            const=const,
            options=options,
            payload_limit=self.payload_limit,
        )

    @refuses_wrong_arguments
    def routine(
        self,
        function: Callable[..., Any] | None = None,
        *,
        every: float | timedelta,
        name: str | None = None,
        scale: int = 1,
        queue: str = "routines",
        keep: int = routines.KEPT,
        retry: retries_.Policy | None = None,
        timeout: float | UnsetType | None = UNSET,
        **options: Any,
    ) -> Any:
        """Make a function a routine: an endless loop over the cluster, in `scale` parts, each run by one worker at a time (F19).

        The function is called with a `RoutineTurn` as its only argument, and again `every` seconds after it returned, for
        ever. It is stored at the first connection; from then on workers that have it take turns.
        """

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            named = name or str(getattr(function, "__name__", ""))
            made = routines.make(named, scale=scale, every=every, keep=keep, policy=retry)
            if named in self._routines:
                raise Conflict(f"Routine `{named}` is declared twice in this app. Give one of them another name.")
            declare = self.queue(queue).job
            declare(name=made.job_type, timeout=timeout, retries=0, **options)(called_with_turn(function))
            with self._lock:
                self._routines[named] = made
                self._registered = False
            return function

        return decorate if function is None else decorate(function)

    def around(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap every attempt: a generator function that takes the job and yields once, while the handler runs.

        What the handler raises is raised at the `yield`. Several nest, the first one declared outermost. A plain one
        wraps handlers and response handlers of every kind; one with `async def` only those with `async def`.
        """
        check_around(function)
        with self._lock:
            self._arounds.append(function)
        return function

    @refuses_wrong_arguments
    def workflow(
        self,
        name: str,
        *,
        params: Mapping[str, Any] | None = None,
        priority: float = 100,
        unique_alive: bool = False,
        fail_fast: bool = False,
        queue: str = "workflows",
        duration: float | None = None,
        version: str | None = None,
        secrets: Sequence[str] = (),
    ) -> Workflow:
        """Declare a workflow; `@workflow.step()` adds its steps (F1). Params named in `secrets` are shown to nobody."""
        if name in self._workflows:
            raise Conflict(f"Workflow `{name}` is declared twice in this app. Give one of them another name.")
        definition = Definition(
            name=name,
            params=table(params, f"workflow {quoted(name)}: params"),
            priority=number(priority, f"workflow {quoted(name)}: priority"),
            unique_alive=unique_alive,
            fail_fast=fail_fast,
            queue=check_name(queue, "Queue"),
            duration=duration,
            version=version,
            secrets=(secrets,) if isinstance(secrets, str) else tuple(secrets),
        )
        if not is_name(name):
            raise Invalid(f"Workflow name {quoted(name)}: use letters, digits, _ and -, at most 200.")
        made = self._workflows[name] = Workflow(self, definition)
        return made

    def load_workflow(self, path: str | Path, handlers: Mapping[str, Callable[..., Any]]) -> Workflow:
        """Declare a workflow that a JSON, TOML or YAML file defines; `handlers` gives each step its function (F1).

        A step's function is found by the name of the step, or by the handler that its definition names. What makes the
        items of a step with `items` is found as `<step>.items`.
        """
        definition = read_definition(path)
        if definition.name in self._workflows:
            raise Conflict(
                f"Workflow `{definition.name}` is declared twice in this app. Give one of them another name."
            )
        lacking = [step.name for step in definition.steps if step.name not in handlers and step.handler not in handlers]
        makers = [f"{step.name}.items" for step in definition.steps if isinstance(step.partition, Items)]
        lacking += [name for name in makers if name not in handlers]
        if lacking:
            raise Invalid(
                f"{path}: no function for {', '.join(f'`{name}`' for name in lacking)}. Give one for each step: handlers={{'{lacking[0]}': …}}."
            )
        made = self._workflows[definition.name] = Workflow(self, definition)
        for step in definition.steps:
            function = handlers[step.name] if step.name in handlers else handlers[step.handler or ""]
            made.handle(step.name, function, handlers.get(f"{step.name}.items"))
        return made

    def workflow_run(self, name: str, trigger: str) -> Run:
        """The run of a workflow that this trigger made; `NotFound` if there is none."""
        return Run(self, self.store.run_of(name, trigger))

    def submit(self, name: str, trigger: str, params: Mapping[str, Any] | None = None, **request: Any) -> Run:
        """Submit a workflow by name, also one that another program declares; `NotFound` if nobody has."""
        declared = self._workflows.get(name)
        if declared is not None:
            return declared.submit(trigger, params, **request)
        stored = self.store.workflows()
        if name not in stored:
            raise NotFound(
                f"There is no workflow {backticked(name)} in instance `{self.name}`.{nearest(name, list(stored))}"
            )
        return Run(self, self.store_run(submission(stored[name], trigger, params, **request)))

    def store_run(self, wanted: Submission) -> RunRow:
        """Of a transaction only enqueues are part: a run would stay although the rest is rolled back."""
        if self._opened() is not None:
            raise Invalid(
                f"Run `{wanted.trigger}` of workflow `{wanted.definition.name}` cannot be submitted inside app.transaction(), of "
                "which only enqueues are part. Submit it afterwards, or enqueue a job that submits it."
            )
        return self.store.submit(wanted)

    def workflow_runs(
        self, name: str | None = None, *, state: str | None = None, limit: int = 50, archive: bool = False
    ) -> list[Run]:
        """Runs, newest first; with `archive` also those in the archive."""
        return [Run(self, row) for row in self.store.runs(name, state, None, limit, archive)]

    @property
    def workflows(self) -> Mapping[str, Workflow]:
        return dict(self._workflows)

    @property
    def queues(self) -> Mapping[str, "Queue"]:
        return dict(self._queues)

    @property
    def job_types(self) -> Mapping[str, "JobType"]:
        return dict(self._types)

    def declare(self, job_type: "JobType") -> None:
        with self._lock:
            if job_type.name in self._types:
                raise Conflict(
                    f"Job type `{job_type.name}` is declared twice in this app. Give one of them another name: @queue.job(name=…)."
                )
            self._types[job_type.name] = job_type
            self._registered = False

    def redeclare(self) -> None:
        self._registered = False

    # The store

    @property
    def store(self) -> Store:
        """The store, opened, set up and told of everything declared so far."""
        return self._store_until(None)

    def _store_until(self, ends: float | None) -> Store:
        """The same for whoever has waited already, and gives up at this moment."""
        with self._lock:
            if self._store is None or self._pid != os.getpid():
                self._store = self._open(self.patience, ends)
                self._pid = os.getpid()
                self._registered = False
            if not self._registered:
                with self._store.until(ends):
                    self._register(self._store)
            return self._store

    def _open(self, patience: float | None, ends: float | None = None) -> Store:
        store = open_store(self.db_config, self.name, self.clock, patience)
        store.source = self
        store.throttlers = self._throttlers
        try:
            with store.until(ends):
                store.set_up()
        except BaseException:
            store.close()
            raise
        return store

    def _register(self, store: Store) -> None:
        store.register(
            [queue.declared for queue in self._queues.values()], [each.row() for each in self._types.values()]
        )
        if self._schedules:
            store.declare_schedules(list(self._schedules.values()))
        sound = [each.definition for each in self._workflows.values() if not problems(each.definition)]
        if sound:
            store.declare_workflows(sound)
        if self._routines:
            store.declare_routines(list(self._routines.values()))
        self._stored, self._stored_read = dict(store.types()), monotonic()
        self._registered = True

    def close(self) -> None:
        """Give the database back. The App may be used again afterwards and then connects anew."""
        with self._lock:
            if self._store is not None and self._pid == os.getpid():
                self._store.close()
            self._store = None

    def point_at(self, db_config: str | Mapping[str, Any], name: str, clock: Clock) -> None:
        """Be the same app on another database, in another instance, by another clock. For tests."""
        with self._lock:
            self.close()
            self.db_config, self.name, self.clock = db_config, check_name(name, "Instance"), clock
            for queue in self._queues.values():
                table = check_table(self._strategy(name, queue.name), name, queue.name)
                queue.declared = structs.replace(queue.declared, table_name=table)

    def __enter__(self) -> "App":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Enqueues of this thread or task inside commit or roll back together."""
        if self._opened() is not None:
            raise Invalid("app.transaction() is already open here; transactions do not nest.")
        store = self.store.another(self.patience)
        opened = OpenTransaction(store)
        try:
            with store.transaction() as connection:
                opened.connection = connection
                token = self._transaction.set(opened)
                try:
                    yield connection
                    opened.refuse_copy()
                    with opened.alone():
                        pass
                finally:
                    opened.over = True  # a task begun inside keeps its copy of the context
                    self._transaction.reset(token)
                    if not opened.ours:
                        store.abandon()
                        self._abandoned.append(store)
        finally:
            store.close()

    def _opened(self) -> OpenTransaction | None:
        """The transaction that is open here."""
        opened = self._transaction.get()
        if opened is None or opened.over:
            return None
        opened.refuse_copy()
        return opened

    # Enqueueing

    def enqueue(
        self,
        queue: str,
        job_type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        connection: Any = None,
        **options: Any,
    ) -> Job:
        """Enqueue by name; a type that is not known yet is registered with its first job (Q3)."""
        if payload is not None and not isinstance(payload, Mapping):
            raise Invalid(
                f"{backticked(job_type)}: payload={quoted(payload)}; give the arguments as a mapping of names to values."
            )
        return self.add([self._named(queue, job_type, dict(payload or {}), options)], connection)[0]

    def enqueue_once(
        self, request: RequestKey, queue: str, job_type: str, payload: Mapping[str, Any], **options: Any
    ) -> Job:
        """`enqueue`, but the same request again gives the job that it made; `Conflict` if it asks for something else."""
        return self.store.add_once(self._named(queue, job_type, dict(payload), options), request)

    def _named(self, queue: str, job_type: str, payload: dict[str, Any], options: dict[str, Any]) -> NewJob:
        check_name(queue, "Queue")
        check_job_type(job_type)
        declared = self._types.get(job_type)
        if declared is not None:
            row, text = declared.row(), declared.signature.check((), payload, limit=self.payload_limit)
        else:
            row = self._stored_type(queue, job_type)
            text = payloads.check_by_schema(_schema_of(row), payload, job_type=job_type, limit=self.payload_limit)
        if row.queue != queue:
            raise Conflict(
                f"Job type `{job_type}` belongs to queue `{row.queue}`, not to `{queue}`. Enqueue it there, or declare it under the other queue."
            )
        return new_job(row, text, options)

    def _stored_type(self, queue: str, job_type: str) -> TypeRow:
        store = self.store
        row = self._stored.get(job_type)
        if row is None or row.queue != queue or row.schema is None:
            self._stored = dict(store.types())
            row = self._stored.get(job_type)
        if row is None:
            if all(stored.name != queue for stored in store.queues()):
                raise NotFound(
                    f"There is no queue `{queue}` in instance `{self.name}`: neither declared nor stored. Declare it with app.queue({quoted(queue)})."
                )
            opened = self._opened()
            if opened is not None:  # another connection would wait for this one
                with opened.alone():
                    return opened.store.add_type(job_type, queue)
            row = self._stored[job_type] = store.add_type(job_type, queue)
        return row

    def enqueue_many(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Job]:
        """All of them or none, in one transaction: `app.enqueue_many([send.using(…).new(…), other.new(…)])`."""
        jobs = list(jobs) if isinstance(jobs, Iterable) else [jobs]
        for job in jobs:
            if not isinstance(job, NewJob):
                raise Invalid(f"enqueue_many takes what `job_type.new(…)` gives, not {type(job).__qualname__}.")
        return list(self.add(jobs, connection)) if jobs else []

    def add(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Job]:
        if not tracing.loaded():
            return self._add(jobs, connection)
        with tracing.enqueueing([new.job_type for new in jobs]) as context:
            return self._add([structs.replace(new, trace=context) for new in jobs], connection)

    def _add(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Job]:
        opened = self._opened()
        if opened is not None:
            with opened.alone():
                return opened.store.add(jobs, connection if connection is not None else opened.connection)
        return self.store.add(jobs, connection)

    async def aadd(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Job]:
        """`add` for the event loop. What belongs to a transaction or a trace of its own is stored by itself."""
        if connection is not None or tracing.loaded() or self._opened() is not None:
            return await in_thread(self.add, jobs, connection)
        return await self._adding.ask(jobs)

    @cached_property
    def _adding(self) -> Gathered[Sequence[NewJob], Sequence[Job]]:
        return gathering(lambda lots, ends: self._store_until(ends).add_each(lots, ends), self.patience)

    # Looking and acting

    def get(self, job_id: int) -> Job:
        """The job as it is now; `NotFound` if there is none."""
        return self.store.get(_job_id(job_id))

    @refuses_wrong_arguments
    def find(
        self,
        *,
        job_type: str | None = None,
        job_key: str | None = None,
        state: str | None = None,
        status: str | None = None,
        queue: str | None = None,
        limit: int = 50,
        archive: bool = False,
    ) -> list[Job]:
        """Jobs, newest first."""
        if state is not None and state not in list(State):
            raise Invalid(f"state={quoted(state)}: known are {', '.join(State)}.")
        if status is not None and status not in STATUS.values():
            raise Invalid(f"status={quoted(status)}: known are {', '.join(sorted(set(STATUS.values())))}.")
        for name, value in (("job_type", job_type), ("job_key", job_key), ("queue", queue)):
            if value is not None and not (isinstance(value, str) and payloads.storable(value) == value):
                raise Invalid(f"{name}={quoted(value)}: give a text that a job can have.")
        _check_count(limit, "limit")
        return list(self.store.find(Filter(job_type, job_key, queue, state, status, None, limit, archive)))

    def history(self, job_id: int) -> Sequence[Move]:
        """Every move of a job so far."""
        return self.store.history(_job_id(job_id))

    def attempts(self, job_id: int) -> Sequence[Attempt]:
        """Every attempt of a job so far."""
        return self.store.attempts(_job_id(job_id))

    def log(self, job_id: int, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """What a job's handler said, oldest first: at most `limit` lines with an id above `after`."""
        _check_count(after, "after")
        _check_count(limit, "limit")
        return self.store.log(_job_id(job_id), after, limit)

    def explain(self, job_id: int) -> Explanation:
        """Why a job is not running: one reason in words and for programs, and a forecast where history has one (E1, E2)."""
        return explain(self.store.facts(_job_id(job_id)))

    def secrets(self, job_type: str) -> Collection[str]:
        """The arguments of a job type that any code has declared secret. The stored declarations are read every five seconds."""
        store, now = self.store, monotonic()  # the first operation registers, which reads the types
        if job_type not in self._stored or now - self._stored_read > SECRETS_KNOWN:
            self._stored, self._stored_read = dict(store.types()), now
        known = self._stored.get(job_type)
        if known is not None and "secrets" in known.damaged:
            return EveryName()
        return self._known_secrets(job_type)

    def _known_secrets(self, job_type: str) -> tuple[str, ...]:
        declared, stored = self._types.get(job_type), self._stored.get(job_type)
        own = () if declared is None else declared.options.secrets
        return own if stored is None else joined(stored.secrets, own)

    def wait(self, job_id: int, timeout: float | None = None) -> Job:
        """Block until the job is final; `TimeoutError` when the time is over."""
        pauses = _pauses(timeout)
        while not (job := self.get(job_id)).final:
            sleep(pauses(job))
        return job

    async def await_final(self, job_id: int, timeout: float | None = None) -> Job:
        """`wait` for the event loop: no thread is kept waiting, and many tasks ask together."""
        pauses = _pauses(timeout)
        while not (job := await self._getting.ask(_job_id(job_id))).final:
            await rest(pauses(job))
        return job

    @cached_property
    def _getting(self) -> Gathered[int, Job]:
        return gathering(lambda job_ids, ends: self._store_until(ends).get_each(job_ids, ends), self.patience)

    def abort(self, job_id: int, *, actor: str = "app") -> Job:
        """End a job: at once if nobody runs it, else its worker is asked to. The job as it then is (J10)."""
        return self.store.abort(_job_id(job_id), check_actor(actor))

    def retry(self, job_id: int, *, actor: str = "app") -> Job:
        """A new job with the type, key and payload of a final one; final itself never changes (J11)."""
        old = self.get(job_id)
        if not old.final:
            raise Conflict(
                f"Job {old.id} is still `{old.state}`; only a final job is retried by hand. Abort it first, or wait for it."
            )
        if old.run is not None:
            workflow, trigger = old.job_type.partition(".")[0], (old.job_key or "").rpartition(":")[0]
            raise Conflict(
                f"Job {old.id} is a task of workflow `{workflow}`; retry its run: app.workflow_run({workflow!r}, {trigger!r}).retry()."
            )
        if old.job_type.startswith(routines.PREFIX) and old.job_key is not None:
            name = old.job_type.removeprefix(routines.PREFIX)
            raise Conflict(f"Job {old.id} is a turn of routine `{name}`, which goes on by itself; it is not retried.")
        if (old.queue, old.job_type) == (BUILD_QUEUE, BUILD_TYPE):
            raise Conflict(f"Job {old.id} is of a build; retry that: `holdfast builds retry {old.payload['build']}`.")
        if copied := [name for name in ("payload", "time_windows") if name in old.damaged]:
            raise Conflict(
                f"Job {old.id} cannot be retried: its stored {' and '.join(copied)} cannot be read, so there is nothing to copy. "
                "Enqueue a new job with the arguments that it should have had."
            )
        names = ("job_type", "job_key", "priority", "timeout", "throttle_factor", "retries", "time_windows")
        declared = self.store.types().get(old.job_type)
        text = payloads.dump(old.payload, what="payload", limit=max(self.payload_limit, payloads.MAX_BYTES))
        new = NewJob(
            queue=declared.queue if declared else old.queue,  # the type may have moved since
            payload=text,
            retry_of=old.id,
            on_duplicate="raise",
            **{name: getattr(old, name) for name in names},
        )
        return self.store.retry(new, check_actor(actor))

    def complete(
        self,
        job_type: str | None = None,
        job_key: str | None = None,
        result: Any = None,
        *,
        job_id: int | None = None,
        actor: str = "app",
    ) -> Job:
        """Answer a job that waits, by type and key or by id: it succeeds, or its response handler decides (R3)."""
        text = None if result is None else payloads.dump(result, what="result", limit=self.payload_limit)
        return self.store.answer(_answered(job_type, job_key, job_id), Answer(text), check_actor(actor))

    def fail(
        self,
        job_type: str | None = None,
        job_key: str | None = None,
        error: str | BaseException | JobError = "failed",
        retry: bool = False,
        *,
        job_id: int | None = None,
        actor: str = "app",
    ) -> Job:
        """Answer a job that waits with a failure: as `raise Failed`, or with `retry` as any other exception (R3)."""
        told = error if isinstance(error, JobError) else JobError("Failed", str(error), "failed")
        if isinstance(error, BaseException):
            told = structs.replace(told, type=type(error).__qualname__)
        told = structs.replace(told, message=payloads.storable(told.message[:LONGEST_MESSAGE]))
        return self.store.answer(
            _answered(job_type, job_key, job_id), Answer(error=told, retry=retry), check_actor(actor)
        )

    def workers(self) -> Sequence[WorkerRow]:
        """The live workers of the instance."""
        return self.store.workers()

    def duty_rules(self) -> Sequence[DutyRule]:
        """The switches of workers' duties, oldest first; the newest that fits a worker decides (F20)."""
        return self.store.duty_rules()

    def switch_duty(
        self,
        duty: str,
        on: bool,
        *,
        label: str | None = None,
        host: str | None = None,
        version: str | None = None,
        actor: str = "app",
    ) -> DutyRule:
        """Switch `run`, `sweep`, `schedule` or `serve` on or off for every worker that fits; they obey within a heartbeat.

        `host` and `version` (Holdfast's) may hold `*` and `?`. Without any of the three it is for all workers.
        """
        return self.store.switch_duty(check_rule(DutyRule(duty, bool(on), label, host, version)), check_actor(actor))

    def drop_duty_rule(self, rule: int, *, actor: str = "app") -> None:
        """Take a switch back; what it fitted goes by the next newest, or by its own settings."""
        self.store.drop_duty_rule(rule, check_actor(actor))

    def breakers(self) -> Sequence[Breaker]:
        """The breaker and the retry budget of each job type with `Adaptive` retry (R6)."""
        return self.store.breakers()

    def reset_breaker(self, job_type: str, *, actor: str = "app") -> Breaker:
        """Close the breaker of a job type and forget its failures and its budget; `NotFound` if it has none."""
        return self.store.reset_breaker(check_job_type(job_type), check_actor(actor))

    def pause(self, queue: str, *, actor: str = "app") -> None:
        """No job of the queue starts until it is resumed; what runs goes on."""
        self.store.pause(check_name(queue, "Queue"), True, check_actor(actor))

    def resume(self, queue: str, *, actor: str = "app") -> None:
        """Let a paused queue go on."""
        self.store.pause(check_name(queue, "Queue"), False, check_actor(actor))

    def limit(self, queue: str, limit: float | None, *, actor: str = "app") -> None:
        """An operator's throttle_limit, which wins over the declared one until it is taken back with None (Q2)."""
        what = f"queue {quoted(queue)}: throttle_limit"
        self.store.limit(check_name(queue, "Queue"), None if limit is None else number(limit, what), check_actor(actor))

    def hold(self, level: str, *, workflow: str | None = None, trigger: str | None = None, actor: str = "app") -> Hold:
        """Keep tasks from starting (`pick`), tasks from being made (`create`) or runs from being submitted (`submit`).

        Of one run, of all of a workflow, or of everything; what runs goes on (F17).
        """
        return self.store.hold(holds.check(level, workflow, trigger), workflow, trigger, check_actor(actor))

    def release(
        self, level: str, *, workflow: str | None = None, trigger: str | None = None, actor: str = "app"
    ) -> None:
        """Take back what `hold` did with the same arguments; `NotFound` if it was not held."""
        self.store.release(holds.check(level, workflow, trigger), workflow, trigger, check_actor(actor))

    def holds(self) -> Sequence[Hold]:
        """What is held, by whom, the oldest first."""
        return self.store.holds()

    # Schedules

    def schedules(self, *, removed: bool = False) -> Sequence[ScheduleRow]:
        """Every schedule that is stored, by name; with `removed` also those that an operator removed."""
        return [row for row in self.store.schedules() if removed or not row.removed]

    def firings(self, schedule: str, limit: int = 50) -> Sequence[FiringRow]:
        """What a schedule has fired, newest first; the last three months are kept."""
        _check_count(limit, "limit")
        return self.store.firings(schedule, limit)

    def add_schedule(
        self,
        name: str,
        queue: str,
        job_type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        const: Mapping[str, Any] | None = None,
        actor: str = "app",
        **given: Any,
    ) -> ScheduleRow:
        """An operator's schedule, stored at once: it wins over a declared one of that name until that is reset (Q2).

        `given` are the times and options of `schedule`.
        """
        timing = {word: given.pop(word) for word in schedules.TIMING if word in given}
        made = self._make_schedule(name, job_type, timing, payload, const, given)
        sample = schedules.made(made, 1, EPOCH)
        self._named(queue, job_type, sample.payload, sample.options)
        return self.store.set_schedule(made, check_actor(actor))

    def reset_schedule(self, schedule: str, *, actor: str = "app") -> ScheduleRow:
        """Take back what an operator changed or removed: the schedule is again as the code declares it."""
        return self.store.reset_schedule(schedule, check_actor(actor))

    def remove_schedule(self, schedule: str, *, actor: str = "app") -> None:
        """It fires no more; one that the code declares stays removed until it is reset or added."""
        self.store.remove_schedule(schedule, check_actor(actor))

    def fire_schedule(self, schedule: str, *, actor: str = "app") -> Job:
        """Fire it now, apart from its times; the job that this made, or the living one with its key."""
        return self.store.fire_schedule(schedule, check_actor(actor))

    # Routines

    def routines(self, *, removed: bool = False) -> Sequence[RoutineRow]:
        """Every routine that is stored, by name, with its parts; with `removed` also those that an operator removed."""
        return [row for row in self.store.routines() if removed or not row.removed]

    def pause_routine(self, routine: str, *, actor: str = "app") -> RoutineRow:
        """No turn of it begins until it is resumed, on any machine and over restarts; those that run end."""
        return self.store.pause_routine(routine, True, check_actor(actor))

    def resume_routine(self, routine: str, *, actor: str = "app") -> RoutineRow:
        """Let a paused or removed routine go on; a paused one goes on from its checkpoints."""
        return self.store.pause_routine(routine, False, check_actor(actor))

    def remove_routine(self, routine: str, *, actor: str = "app") -> None:
        """End a routine and forget its checkpoints. It stays removed, though code declares it, until it is resumed."""
        self.store.remove_routine(routine, check_actor(actor))

    # Working

    @property
    def handlers(self) -> dict[str, Handler]:
        arounds = [traced, *self._arounds] if tracing.loaded() else self._arounds
        return {name: wrapped(self._kept_secret(each.handler), arounds) for name, each in self._types.items()}

    def _kept_secret(self, handler: Handler) -> Handler:
        """It may get jobs with arguments that older code declared secret."""
        names = self._known_secrets(handler.job_type)
        return handler if set(names) == set(handler.secrets) else handler.hiding(names)

    def worker(self, **settings: Any) -> Worker:
        """A worker in the background: `with app.worker(concurrency=8): …`."""
        self.store.pulse()
        return new_worker(self.store, self.handlers, self._settings(settings), self.clock, VERSION, self.chores)

    def run_worker(self, **settings: Any) -> None:
        """Work until a signal ends it: SIGTERM or SIGINT asks, a second one hurries (C5).

        `Unavailable` if this process cannot use the database any more, though others can (C8): start it again.
        """
        worker = self.worker_for_ever(**settings)
        run_until_signal(worker)
        if worker.failure is not None:
            raise Unavailable(worker.failure)

    def worker_for_ever(self, **settings: Any) -> Worker:
        """A worker that waits for its database as long as it takes, from the start (C7)."""
        made = self._settings(settings)
        return new_worker(self.wait_for_store(), self.handlers, made, self.clock, VERSION, self.chores)

    def wait_for_store(self) -> Store:
        """The store, connected anew, set up and told of everything, however long its database takes to come (C7)."""
        with self._lock:
            pause = 0.1
            while True:
                try:
                    return self._connect_patiently()
                except Unavailable as error:
                    if not error.passing:
                        raise
                    logger.warning("The database is not ready: %s", error)
                    sleep(pause)
                    pause = min(2 * pause, 1.0)

    def _connect_patiently(self) -> Store:
        self.close()
        store = self._store = self._open(None)
        self._pid = os.getpid()
        self._register(store)
        store.patience = self.patience
        return store

    def run_until_idle(self, *, max_jobs: int = 100_000) -> int:
        """Run everything that is due, one job at a time; the number of attempts."""
        _check_count(max_jobs, "max_jobs")
        worker = new_worker(
            self.store, self.handlers, self._settings({"concurrency": 1}), self.clock, VERSION, self.chores
        )
        return worker.run_until_idle(max_jobs)

    def _settings(self, given: Mapping[str, Any]) -> WorkerSettings:
        known = set(WorkerSettings.__struct_fields__) - set(_FROM_APP)
        for name in given:
            if name not in known:
                raise Invalid(f"worker: unknown setting {quoted(name)}{choice(name, sorted(known))}")
        values: dict[str, Any] = {
            name: _several(value) if name in ("queues", "labels", "duties") else value
            for name, value in given.items()
            if value is not None
        }
        concurrency = values.get("concurrency", 1)
        if not is_whole(concurrency, 1):
            raise Invalid(f"worker: concurrency={quoted(concurrency)}; give a whole number, 1 or more.")
        for queue in values.get("queues", ()):
            check_name(queue, "Queue")
        check_text(values.get("name", ""), "worker: name")
        values["labels"] = check_labels(values.get("labels", ()), "worker: labels")
        for duty in values.get("duties", ()):
            check_duty(duty)
        if values.get("log_level", "INFO") not in LEVELS:
            raise Invalid(f"worker: log_level={quoted(values['log_level'])}; known are {', '.join(LEVELS)}.")
        limit = values.get("log_limit", 1)
        if not is_whole(limit, 1):
            raise Invalid(f"worker: log_limit={quoted(limit)}; give a number of bytes, 1 or more.")
        values |= {name: getattr(self, name) for name in _FROM_APP}
        return WorkerSettings(**values)


_FROM_APP = ("heartbeat", "lost_after", "archive_after", "archive_keep")  # settings of a worker that are the app's


def _schema_of(row: TypeRow) -> Any:
    """Of a type that other code has declared; `Conflict` if it is damaged."""
    found = None if row.schema is None else damage.read(payloads.load, row.schema)
    if isinstance(found, Damaged):
        raise Conflict(
            f"The stored schema of job type `{row.job_type}` is {found!s:.200}. Start a worker whose code declares the type: that stores it again."
        )
    return found


def _pauses(timeout: float | None) -> Callable[[Job], float]:
    """Between two looks at a job that is not final; `TimeoutError` when the time is over."""
    ends = None if timeout is None else monotonic() + number(timeout, "timeout")
    pause = SHORTEST_PAUSE

    def after(job: Job) -> float:
        nonlocal pause
        now, last = monotonic(), pause
        if ends is not None and now >= ends:
            raise TimeoutError(f"Job {job.id} ({job.job_type}) is still `{job.state}` after {timeout:g} s.")
        pause = min(pause * 1.5, LONGEST_PAUSE)
        return last if ends is None else min(last, ends - now)

    return after


def _job_id(value: Any) -> int:
    if isinstance(value, Job):
        return value.id
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(f"A job id is a number, not {quoted(value)}.")
    if not 0 < value <= LARGEST_ID:
        raise NotFound(f"There is no job {value}: ids are positive 64-bit numbers.")
    return value


def _check_count(value: Any, name: str) -> None:
    if not is_whole(value, 0, LARGEST_ID - 1):
        raise Invalid(f"{name}={quoted(value)}: give a whole number, 0 or more.")


def _several(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _answered(job_type: str | None, job_key: str | None, job_id: int | None) -> int | tuple[str, str]:
    """Which job an answer is for."""
    if job_id is not None:
        if job_type is not None or job_key is not None:
            raise Invalid("Give job_type and job_key, or job_id, not both.")
        return _job_id(job_id)
    if job_type is None or job_key is None:
        raise Invalid("An answer is for a job_type and its job_key, or for a job_id. Give them.")
    check_job_type(job_type)
    key = str(job_key)
    if payloads.storable(key) != key:
        raise NotFound(f"There is no job with key {quoted(key)}: no key has a NUL or half of a surrogate pair.")
    return job_type, key


def _seconds(value: float | None, name: str, variable: str, default: float) -> float:
    text: Any = os.environ.get(variable, default) if value is None else value
    try:
        seconds = float(text)
    except (TypeError, ValueError, OverflowError):
        raise Invalid(f"{name}={quoted(text)}; give a number of seconds.") from None
    if isinstance(text, bool) or not is_finite(seconds) or seconds <= 0:
        raise Invalid(f"{name}={quoted(text)}; give a number of seconds above 0.")
    if seconds > LONGEST:
        raise Invalid(
            f"{name}={quoted(text)}; give a number of seconds that is at most {LONGEST:.0f}, a thousand years."
        )
    return seconds


def _archive_keep(value: float | None, archive_after: float) -> float | None:
    """Seconds from its end for which a job is kept; None: for ever."""
    if value is None and not os.environ.get("HOLDFAST_ARCHIVE_KEEP"):
        return None
    seconds = _seconds(value, "archive_keep", "HOLDFAST_ARCHIVE_KEEP", 0.0)
    if seconds < archive_after:
        raise Invalid(
            f"archive_keep={seconds:g} is shorter than archive_after={archive_after:g}: a job would be let go of before it is archived. "
            "Both count from its end."
        )
    return seconds
