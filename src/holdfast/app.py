"""App: the object users hold. It declares queues and job types, opens a store when it first needs one, and enqueues.

- Declaring does no I/O: safe at import, safe to fork after.
- Names and meanings here are pinned; see docs/reference.
"""

import asyncio
import contextvars
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, overload

import msgspec
from msgspec import Struct, structs

from holdfast.clock import Clock, monotonic, sleep
from holdfast.errors import Conflict, Invalid, NotFound
from holdfast.jobs import payload as payloads
from holdfast.jobs import retry as retries_
from holdfast.jobs import throttle, windows
from holdfast.jobs.job import Attempt, Job, Move, State
from holdfast.jobs.names import check_job_key, check_job_type, check_name, check_table
from holdfast.jobs.payload import Signature
from holdfast.jobs.states import STATUS
from holdfast.stores.contract import Filter, NewJob, QueueDeclared, Store, TypeRow, WorkerRow
from holdfast.stores.open import open_store
from holdfast.version import VERSION
from holdfast.worker.handler import ISOLATIONS, Handler
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.signals import run_until_signal
from holdfast.worker.worker import Worker

UNSET: Any = msgspec.UNSET
ON_DUPLICATE = ("return", "raise", "replace")
ORDERS = ("priority", "schedule")
CRASH_POLICIES = ("rerun", "timeout")
ENGINE_TABLE = re.compile(r"[a-z]+(_[a-z]+)*__")  # of this or any other instance


class App:
    """One instance: its queues, its job types, its database."""

    def __init__(
        self,
        db_config: str | Mapping[str, Any] | None = None,
        name: str | None = None,
        *,
        table_naming_strategy: Callable[[str, str], str] | None = None,
        heartbeat: float | None = None,
        lost_after: float | None = None,
        patience: float = 5.0,
        archive_after: float = 7 * 86400.0,
        payload_limit: int = payloads.MAX_BYTES,
        clock: Clock | None = None,
    ) -> None:
        if name is None:
            name = os.environ.get("HOLDFAST_INSTANCE") or "holdfast"
        self.name = check_name(name, "Instance")
        if name == "sqlite" or name.startswith("sqlite_"):
            raise Invalid(
                f"Instance name {name!r}: SQLite keeps names that begin with `sqlite_` to itself. Choose another."
            )
        self.db_config = db_config or os.environ.get("HOLDFAST_URL") or "sqlite:///holdfast.db"
        self.heartbeat = _seconds(heartbeat, "heartbeat", "HOLDFAST_HEARTBEAT", 5.0)
        self.lost_after = _seconds(lost_after, "lost_after", "HOLDFAST_LOST_AFTER", 30.0)
        if self.lost_after < 2 * self.heartbeat:
            raise Invalid(
                f"lost_after={self.lost_after:g} must be at least twice heartbeat={self.heartbeat:g}, or live workers look lost."
            )
        self.patience = patience
        self.archive_after = archive_after
        self.payload_limit = payload_limit
        self.clock = clock or Clock()
        self._strategy = table_naming_strategy or (lambda instance, queue: f"{instance}_{queue}")
        self._queues: dict[str, Queue] = {}
        self._types: dict[str, JobType] = {}
        self._stored: dict[str, TypeRow] = {}
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._pid = 0
        self._registered = False
        self._transaction: contextvars.ContextVar[tuple[Store, Any, threading.Lock] | None] = contextvars.ContextVar(
            "holdfast_transaction", default=None
        )

    # Declaring

    def queue(self, name: str, *, throttle_limit: float = 0, order: str = "priority") -> "Queue":
        """Declare a queue, or get the declared one."""
        check_name(name, "Queue")
        if order not in ORDERS:
            raise Invalid(f"queue {name!r}: order={order!r}; it may be {' or '.join(map(repr, ORDERS))}.")
        limit = _number(throttle_limit, f"queue {name!r}: throttle_limit")
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
            declared = QueueDeclared(name, table, order, limit)
            queue = self._queues.get(name)
            if queue is None:
                queue = self._queues[name] = Queue(self, declared)
            elif (throttle_limit, order) != (0, "priority"):
                queue.declared = declared
            self._registered = False
            return queue

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
        with self._lock:
            if self._store is None or self._pid != os.getpid():
                self._store = self._open(self.patience)
                self._pid = os.getpid()
                self._registered = False
            if not self._registered:
                self._register(self._store)
            return self._store

    def _open(self, patience: float | None) -> Store:
        store = open_store(self.db_config, self.name, self.clock, patience)
        store.source = self
        try:
            store.set_up()
        except BaseException:
            store.close()
            raise
        return store

    def _register(self, store: Store) -> None:
        store.register(
            [queue.declared for queue in self._queues.values()], [each.row() for each in self._types.values()]
        )
        self._stored = dict(store.types())
        self._registered = True

    def close(self) -> None:
        """Give the database back. The App may be used again afterwards and then connects anew."""
        with self._lock:
            if self._store is not None and self._pid == os.getpid():
                self._store.close()
            self._store = None

    def __enter__(self) -> "App":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Enqueues of this thread or task inside commit or roll back together."""
        if self._transaction.get() is not None:
            raise Invalid("app.transaction() is already open here; transactions do not nest.")
        store = self.store.another(self.patience)
        try:
            with store.transaction() as connection:
                token = self._transaction.set((store, connection, threading.Lock()))
                try:
                    yield connection
                finally:
                    self._transaction.reset(token)
        finally:
            store.close()

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
        return self.add([self._named(queue, job_type, dict(payload or {}), options)], connection)[0]

    def _named(self, queue: str, job_type: str, payload: dict[str, Any], options: dict[str, Any]) -> NewJob:
        check_name(queue, "Queue")
        check_job_type(job_type)
        declared = self._types.get(job_type)
        if declared is not None:
            row, text = declared.row(), declared.signature.check((), payload, limit=self.payload_limit)
        else:
            row = self._stored_type(queue, job_type)
            schema = None if row.schema is None else msgspec.json.decode(row.schema)
            text = payloads.check_by_schema(schema, payload, job_type=job_type, limit=self.payload_limit)
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
                    f"There is no queue `{queue}` in instance `{self.name}`: neither declared nor stored. Declare it with app.queue({queue!r})."
                )
            row = self._stored[job_type] = store.add_type(job_type, queue)
        return row

    def enqueue_many(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Job]:
        """All of them or none, in one transaction: `app.enqueue_many([send.using(…).new(…), other.new(…)])`."""
        jobs = list(jobs)
        for job in jobs:
            if not isinstance(job, NewJob):
                raise Invalid(f"enqueue_many takes what `job_type.new(…)` gives, not {type(job).__qualname__}.")
        return list(self.add(jobs, connection)) if jobs else []

    def add(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Job]:
        open_transaction = self._transaction.get()
        if open_transaction is not None:
            store, own, one_at_a_time = open_transaction
            with one_at_a_time:  # `aenqueue` comes on other threads
                return store.add(jobs, connection if connection is not None else own)
        return self.store.add(jobs, connection)

    # Looking and acting

    def get(self, job_id: int) -> Job:
        """The job as it is now; `NotFound` if there is none."""
        return self.store.get(_job_id(job_id))

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
            raise Invalid(f"state={state!r}: known are {', '.join(State)}.")
        if status is not None and status not in STATUS.values():
            raise Invalid(f"status={status!r}: known are {', '.join(sorted(set(STATUS.values())))}.")
        if not isinstance(limit, int) or limit < 0:
            raise Invalid(f"limit={limit!r}: give a whole number, 0 or more.")
        return list(self.store.find(Filter(job_type, job_key, queue, state, status, None, limit, archive)))

    def history(self, job_id: int) -> Sequence[Move]:
        """Every move of a job so far."""
        return self.store.history(_job_id(job_id))

    def attempts(self, job_id: int) -> Sequence[Attempt]:
        """Every attempt of a job so far."""
        return self.store.attempts(_job_id(job_id))

    def wait(self, job_id: int, timeout: float | None = None) -> Job:
        """Block until the job is final; `TimeoutError` when the time is over."""
        ends = None if timeout is None else monotonic() + timeout
        pause = 0.002
        while True:
            job = self.get(job_id)
            if job.final:
                return job
            if ends is not None and monotonic() >= ends:
                raise TimeoutError(f"Job {job_id} ({job.job_type}) is still `{job.state}` after {timeout:g} s.")
            sleep(pause if ends is None else max(0.0, min(pause, ends - monotonic())))
            pause = min(pause * 1.5, 0.1)

    async def await_final(self, job_id: int, timeout: float | None = None) -> Job:
        """`wait` for the event loop."""
        return await asyncio.to_thread(self.wait, job_id, timeout)

    def abort(self, job_id: int, *, actor: str = "app") -> Job:
        """End a job: at once if nobody runs it, else its worker is asked to. The job as it then is (J10)."""
        return self.store.abort(_job_id(job_id), actor)

    def retry(self, job_id: int, *, actor: str = "app") -> Job:
        """A new job with the type, key and payload of a final one; final itself never changes (J11)."""
        old = self.get(job_id)
        if not old.final:
            raise Conflict(
                f"Job {old.id} is still `{old.state}`; only a final job is retried by hand. Abort it first, or wait for it."
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
        return self.store.retry(new, actor)

    def workers(self) -> Sequence[WorkerRow]:
        """The live workers of the instance."""
        return self.store.workers()

    def pause(self, queue: str, *, actor: str = "app") -> None:
        """No job of the queue starts until it is resumed; what runs goes on."""
        self.store.pause(check_name(queue, "Queue"), True, actor)

    def resume(self, queue: str, *, actor: str = "app") -> None:
        """Let a paused queue go on."""
        self.store.pause(check_name(queue, "Queue"), False, actor)

    def limit(self, queue: str, limit: float | None, *, actor: str = "app") -> None:
        """An operator's throttle_limit, which wins over the declared one until it is taken back with None (Q2)."""
        what = f"queue {queue!r}: throttle_limit"
        self.store.limit(check_name(queue, "Queue"), None if limit is None else _number(limit, what), actor)

    # Working

    @property
    def handlers(self) -> dict[str, Handler]:
        return {name: declared.handler for name, declared in self._types.items()}

    def worker(self, **settings: Any) -> Worker:
        """A worker in the background: `with app.worker(concurrency=8): …`."""
        self.store.pulse()
        return Worker(self.store, self.handlers, self._settings(settings), self.clock, VERSION)

    def run_worker(self, **settings: Any) -> None:
        """Work until a signal ends it: SIGTERM or SIGINT asks, a second one hurries (C5)."""
        run_until_signal(self.worker_for_ever(**settings))

    def worker_for_ever(self, **settings: Any) -> Worker:
        """A worker that waits for its database as long as it takes, from the start (C7)."""
        made = self._settings(settings)
        with self._lock:
            self.close()
            self._store = self._open(None)
            self._pid = os.getpid()
            self._register(self._store)
            self._store.patience = self.patience
        return Worker(self._store, self.handlers, made, self.clock, VERSION)

    def run_until_idle(self, *, max_jobs: int = 100_000) -> int:
        """Run everything that is due, one job at a time; the number of attempts."""
        worker = Worker(self.store, self.handlers, self._settings({"concurrency": 1}), self.clock, VERSION)
        return worker.run_until_idle(max_jobs)

    def _settings(self, given: Mapping[str, Any]) -> WorkerSettings:
        known = set(WorkerSettings.__struct_fields__) - {"heartbeat", "lost_after", "archive_after"}
        for name in given:
            if name not in known:
                raise Invalid(f"worker: unknown setting {name!r}; known are {', '.join(sorted(known))}.")
        values: dict[str, Any] = {
            name: tuple(value) if name in ("queues", "labels") else value
            for name, value in given.items()
            if value is not None
        }
        concurrency = values.get("concurrency", 1)
        if not isinstance(concurrency, int) or concurrency < 1:
            raise Invalid(f"worker: concurrency={concurrency!r}; give a whole number, 1 or more.")
        for queue in values.get("queues", ()):
            check_name(queue, "Queue")
        values |= {"heartbeat": self.heartbeat, "lost_after": self.lost_after, "archive_after": self.archive_after}
        return WorkerSettings(**values)


class Queue:
    """A declared queue: `@queue.job()` makes a function a job type."""

    def __init__(self, app: App, declared: QueueDeclared) -> None:
        self.app = app
        self.declared = declared

    @property
    def name(self) -> str:
        return self.declared.name

    @overload
    def job(self, function: Callable[..., Any]) -> "JobType": ...

    @overload
    def job(
        self,
        *,
        name: str | None = None,
        timeout: float | None = 30,
        retries: int | None = 3,
        retry: retries_.Policy | None = None,
        priority: float = 100,
        throttle_factor: float = 1,
        time_windows: Sequence[str] = (),
        on_crash: str = "rerun",
        max_crashes: int | None = 3,
        isolation: str = "thread",
        labels: Sequence[str] = (),
    ) -> Callable[[Callable[..., Any]], "JobType"]: ...

    def job(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        timeout: float | None = 30,
        retries: int | None = 3,
        retry: retries_.Policy | None = None,
        priority: float = 100,
        throttle_factor: float = 1,
        time_windows: Sequence[str] = (),
        on_crash: str = "rerun",
        max_crashes: int | None = 3,
        isolation: str = "thread",
        labels: Sequence[str] = (),
    ) -> Any:
        """Make a function a job type of this queue."""
        options = TypeOptions(
            timeout,
            retries,
            retry,
            priority,
            throttle_factor,
            tuple(time_windows),
            on_crash,
            max_crashes,
            isolation,
            tuple(labels),
        )

        def decorate(function: Callable[..., Any]) -> JobType:
            return JobType(self, function, name, options)

        return decorate if function is None else decorate(function)


class TypeOptions(Struct, frozen=True):
    """What `@queue.job(…)` was given."""

    timeout: float | None
    retries: int | None
    retry: Any
    priority: float
    throttle_factor: float
    time_windows: tuple[str, ...]
    on_crash: str
    max_crashes: int | None
    isolation: str
    labels: tuple[str, ...]


class JobType:
    """A function that can be enqueued. Called directly, it is the function."""

    def __init__(self, queue: Queue, function: Callable[..., Any], name: str | None, options: TypeOptions) -> None:
        self.app = queue.app
        self.queue = queue
        self.name = check_job_type(name or getattr(function, "__name__", ""))
        self.options = options
        self._check_options()
        self.signature = Signature.of(function)
        self.handler = Handler(self.name, function, self.signature, options.isolation)
        self._row: TypeRow | None = None
        self.app.declare(self)
        self.__doc__ = function.__doc__

    def _check_options(self) -> None:
        options, what = self.options, f"job type `{self.name}`"
        _timeout(options.timeout, what)
        _retries(options.retries, what)
        _number(options.priority, f"{what}: priority")
        throttle.check_factor(options.throttle_factor, self.queue.declared.throttle_limit)
        windows.parse_all(options.time_windows)
        if options.on_crash not in CRASH_POLICIES:
            raise Invalid(f"{what}: on_crash={options.on_crash!r}; it may be {' or '.join(map(repr, CRASH_POLICIES))}.")
        if options.on_crash == "timeout" and options.timeout is None:
            raise Invalid(
                f"{what}: on_crash='timeout' with timeout=None would leave a crashed job running for ever. Give it a timeout."
            )
        if options.max_crashes is not None and (not isinstance(options.max_crashes, int) or options.max_crashes < 1):
            raise Invalid(f"{what}: max_crashes={options.max_crashes!r}; give a whole number, 1 or more, or None.")
        if options.isolation not in ISOLATIONS:
            raise Invalid(f"{what}: isolation={options.isolation!r}; it may be {' or '.join(map(repr, ISOLATIONS))}.")
        if options.retry is not None and not isinstance(options.retry, retries_.Policy):
            raise Invalid(f"{what}: retry={options.retry!r}; give Fixed(…), Linear(…), Exponential(…) or Adaptive(…).")

    def row(self) -> TypeRow:
        """The type as it is registered."""
        if self._row is None:
            options, handler = self.options, self.handler
            self._row = TypeRow(
                job_type=self.name,
                queue=self.queue.name,
                default_timeout=options.timeout,
                default_priority=options.priority,
                default_throttle_factor=options.throttle_factor,
                default_time_windows=options.time_windows,
                default_retries=options.retries,
                retry=retries_.encode(options.retry),
                on_crash=options.on_crash,
                max_crashes=options.max_crashes,
                has_handler=True,
                has_retry_handler=handler.retry_handler is not None,
                has_response_handler=handler.response_handler is not None,
                schema=msgspec.json.encode(self.signature.schema(), order="deterministic").decode(),
                labels=options.labels,
            )
        return self._row

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def using(self, **options: Any) -> "Using":
        """The type with options for the jobs made through it."""
        return Using(self, options)

    def new(self, *args: Any, **kwargs: Any) -> NewJob:
        """A job for `app.enqueue_many`, checked but not stored."""
        return self.using().new(*args, **kwargs)

    def enqueue(self, *args: Any, **kwargs: Any) -> Job:
        """Store a job that calls the function with these arguments; `Invalid` if they do not fit its annotations."""
        return self.using().enqueue(*args, **kwargs)

    async def aenqueue(self, *args: Any, **kwargs: Any) -> Job:
        """`enqueue` for the event loop; concurrent ones share a commit."""
        return await self.using().aenqueue(*args, **kwargs)

    def enqueue_many(self, payloads: Sequence[Mapping[str, Any]]) -> list[Job]:
        return self.using().enqueue_many(payloads)

    def retry_handler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Always asked on an error: `(job, error)` → `Retry`, `GIVE_UP`, or None for the type's policy (R5)."""
        self.handler.retry_handler = function
        self._row = None
        self.app.redeclare()
        return function


class Using:
    """A job type with options."""

    def __init__(self, job_type: JobType, options: dict[str, Any]) -> None:
        self.job_type = job_type
        self.connection = options.pop("connection", None)
        self.options = options
        self._template = new_job(job_type.row(), "{}", options)

    def new(self, *args: Any, **kwargs: Any) -> NewJob:
        text = self.job_type.signature.check(args, kwargs, limit=self.job_type.app.payload_limit)
        return structs.replace(self._template, payload=text)

    def enqueue(self, *args: Any, **kwargs: Any) -> Job:
        return self.job_type.app.add([self.new(*args, **kwargs)], self.connection)[0]

    async def aenqueue(self, *args: Any, **kwargs: Any) -> Job:
        """`enqueue` for the event loop; concurrent ones share a commit."""
        new = self.new(*args, **kwargs)
        return (await asyncio.to_thread(self.job_type.app.add, [new], self.connection))[0]

    def enqueue_many(self, payloads: Sequence[Mapping[str, Any]]) -> list[Job]:
        """All of them or none."""
        return self.job_type.app.enqueue_many([self.new(**payload) for payload in payloads], connection=self.connection)


OPTIONS = (
    "job_key",
    "scheduled_run_time",
    "delay",
    "priority",
    "timeout",
    "throttle_factor",
    "time_windows",
    "expires",
    "on_duplicate",
    "retries",
)


def new_job(row: TypeRow, text: str, options: Mapping[str, Any]) -> NewJob:
    """A job of a type with its own options over the type's defaults, all checked."""
    what = f"job type `{row.job_type}`"
    for name in options:
        if name not in OPTIONS:
            raise Invalid(f"{what}: unknown option {name!r}; known are {', '.join((*OPTIONS, 'connection'))}.")
    get = options.get
    wanted, delay = _moment(get("scheduled_run_time"), "scheduled_run_time"), get("delay")
    if delay is not None:
        if wanted is not None:
            raise Invalid(f"{what}: give delay or scheduled_run_time, not both.")
        delay = delay.total_seconds() if isinstance(delay, timedelta) else _number(delay, f"{what}: delay")
        if not 0 <= delay <= retries_.LONGEST:
            raise Invalid(f"{what}: delay={delay!r}; give seconds from 0 to ten years.")
    on_duplicate = get("on_duplicate", "return")
    if on_duplicate not in ON_DUPLICATE:
        raise Invalid(f"{what}: on_duplicate={on_duplicate!r}; it may be {', '.join(map(repr, ON_DUPLICATE))}.")
    zones = get("time_windows", row.default_time_windows)
    windows.parse_all(zones)
    factor = get("throttle_factor", row.default_throttle_factor)
    throttle.check_factor(factor, 0)
    return NewJob(
        queue=row.queue,
        job_type=row.job_type,
        payload=text,
        job_key=check_job_key(get("job_key")),
        priority=_number(get("priority", row.default_priority), f"{what}: priority"),
        timeout=_timeout(get("timeout", row.default_timeout), what),
        throttle_factor=float(factor),
        retries=_retries(get("retries", row.default_retries), what),
        time_windows=tuple(zones),
        scheduled_run_time=wanted,
        delay=delay,
        expires_time=_moment(get("expires"), "expires"),
        on_duplicate=on_duplicate,
    )


def _job_id(value: Any) -> int:
    if isinstance(value, Job):
        return value.id
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(f"A job id is a number, not {value!r}.")
    return value


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Invalid(f"{what}={value!r}; give a finite number.")
    return float(value)


def _timeout(value: Any, what: str) -> float | None:
    if value is None:
        return None
    seconds = _number(value, f"{what}: timeout")
    if seconds <= 0:
        raise Invalid(f"{what}: timeout={value!r}; give seconds above 0, or None for no limit.")
    return seconds


def _retries(value: Any, what: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise Invalid(f"{what}: retries={value!r}; give a whole number, 0 or more, or None for no limit.")
    return None if value is None else int(value)


def _moment(value: Any, what: str) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None or value.utcoffset() is None:
        raise Invalid(
            f"{what}={value!r} must be an aware datetime; give it a time zone, for example datetime.now(UTC)."
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"{what}={value!r} is outside the years 1 to 9999 in UTC; give a moment inside them.") from None


def _seconds(value: float | None, name: str, variable: str, default: float) -> float:
    text: Any = os.environ.get(variable, default) if value is None else value
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        raise Invalid(f"{name}={text!r}; give a number of seconds.") from None
    if not 0 < seconds < math.inf:
        raise Invalid(f"{name}={text!r}; give a number of seconds above 0.")
    return seconds
