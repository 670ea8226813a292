"""Declaring queues and job types, and making jobs of them: what `@queue.job()` gives, checked where it is written."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, overload

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from holdfast.errors import Invalid, quoted
from holdfast.jobs import retry as retries_
from holdfast.jobs import throttle, windows
from holdfast.jobs.arguments import choice, refuses_wrong_arguments
from holdfast.jobs.job import Job
from holdfast.jobs.names import check_job_key, check_job_type
from holdfast.jobs.numbers import LARGEST, as_stored, is_finite, is_whole, seconds_of
from holdfast.jobs.payload import Signature, called
from holdfast.jobs.placement import PREFER_FOR, Preference, check_labels, check_preference
from holdfast.jobs.states import DEFAULT_RETRIES, DEFAULT_TIMEOUT
from holdfast.stores.contract import NewJob, QueueDeclared, TypeRow
from holdfast.worker.handler import ISOLATIONS, Handler

ON_DUPLICATE = ("return", "raise", "replace")
CRASH_POLICIES = ("rerun", "timeout")


class Declares(Protocol):
    """The App, as far as what is declared in it knows it."""

    payload_limit: int

    def declare(self, job_type: "JobType") -> None: ...

    def redeclare(self) -> None: ...

    def add(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Job]: ...

    async def aadd(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Job]: ...

    def enqueue_many(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Job]: ...


class Queue:
    """A declared queue: `@queue.job()` makes a function a job type."""

    def __init__(self, app: Declares, declared: QueueDeclared) -> None:
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
        timeout: float | UnsetType | None = UNSET,
        retries: int | UnsetType | None = UNSET,
        retry: retries_.Policy | None = None,
        priority: float = 100,
        throttle_factor: float = 1,
        time_windows: Sequence[str] = (),
        on_crash: str = "rerun",
        max_crashes: int | None = 3,
        isolation: str = "thread",
        labels: Sequence[str] = (),
        secrets: Sequence[str] = (),
        prefers: Sequence[str] = (),
        prefer_for: float = PREFER_FOR,
    ) -> Callable[[Callable[..., Any]], "JobType"]: ...

    @refuses_wrong_arguments
    def job(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        timeout: float | UnsetType | None = UNSET,
        retries: int | UnsetType | None = UNSET,
        retry: retries_.Policy | None = None,
        priority: float = 100,
        throttle_factor: float = 1,
        time_windows: Sequence[str] = (),
        on_crash: str = "rerun",
        max_crashes: int | None = 3,
        isolation: str = "thread",
        labels: Sequence[str] = (),
        secrets: Sequence[str] = (),
        prefers: Sequence[str] = (),
        prefer_for: float = PREFER_FOR,
    ) -> Any:
        """Make a function a job type of this queue. A job has 30 s and 3 retries unless it is said."""
        options = TypeOptions(
            DEFAULT_TIMEOUT if timeout is UNSET else timeout,
            timeout is not UNSET,
            DEFAULT_RETRIES if retries is UNSET else retries,
            retries is not UNSET,
            retry,
            priority,
            throttle_factor,
            windows.listed(time_windows),
            on_crash,
            max_crashes,
            isolation,
            check_labels(labels, "labels"),
            tuple(secrets),
            check_preference(check_labels(prefers, "prefers"), prefer_for, "prefers"),
        )

        def decorate(function: Callable[..., Any]) -> JobType:
            return JobType(self, function, name, options)

        return decorate if function is None else decorate(function)


class TypeOptions(Struct, frozen=True):
    """What `@queue.job(…)` was given."""

    timeout: float | None
    timeout_named: bool
    retries: int | None
    retries_named: bool
    retry: Any
    priority: float
    throttle_factor: float
    time_windows: tuple[str, ...]
    on_crash: str
    max_crashes: int | None
    isolation: str
    labels: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    preference: Preference | None = None


class JobType:
    """A function that can be enqueued. Called directly, it is the function."""

    def __init__(self, queue: Queue, function: Callable[..., Any], name: str | None, options: TypeOptions) -> None:
        self.app = queue.app
        self.queue = queue
        self.name = check_job_type(name or getattr(function, "__name__", ""))
        self.options = options
        self._check_options()
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise Invalid(
                f"job type `{self.name}`: its function yields, so that a call of it does nothing yet, and what a job does is done "
                "when its function returns. Return a list, or enqueue a job for each."
            )
        self.signature = Signature.of(function, secrets=options.secrets)
        self._check_secrets()
        self.handler = Handler(
            self.name,
            called(function),
            self.signature,
            options.isolation,
            options.labels,
            secrets=options.secrets,
            preference=options.preference,
            payload_limit=self.app.payload_limit,
        )
        self._row: TypeRow | None = None
        self._plain: Using | None = None
        self.app.declare(self)
        self.__doc__ = function.__doc__

    def _check_options(self) -> None:
        options, what = self.options, f"job type `{self.name}`"
        timeout_of(options.timeout, what)
        retries_of(options.retries, what)
        number(options.priority, f"{what}: priority")
        throttle.check_factor(options.throttle_factor, self.queue.declared.throttle_limit)
        windows.parse_all(options.time_windows)
        if options.on_crash not in CRASH_POLICIES:
            raise Invalid(
                f"{what}: on_crash={quoted(options.on_crash)}; it may be {' or '.join(map(repr, CRASH_POLICIES))}."
            )
        if options.on_crash == "timeout" and options.timeout is None:
            raise Invalid(
                f"{what}: on_crash='timeout' with timeout=None would leave a crashed job running for ever. Give it a timeout."
            )
        if options.max_crashes is not None and not is_whole(options.max_crashes, 1):
            raise Invalid(
                f"{what}: max_crashes={quoted(options.max_crashes)}; give a whole number, 1 or more and at most {LARGEST:,}, or None."
            )
        if options.isolation not in ISOLATIONS:
            raise Invalid(
                f"{what}: isolation={quoted(options.isolation)}; it may be {' or '.join(map(repr, ISOLATIONS))}."
            )
        if options.retry is not None and not isinstance(options.retry, retries_.Policy):
            raise Invalid(
                f"{what}: retry={quoted(options.retry)}; give Fixed(…), Linear(…), Exponential(…) or Adaptive(…)."
            )

    def _check_secrets(self) -> None:
        if not self.options.secrets:
            return
        schema = self.signature.schema()
        known, others = schema.get("properties", {}), schema.get("additionalProperties", False) is not False
        for name in self.options.secrets:
            if name not in known and not others:
                raise Invalid(
                    f"job type `{self.name}`: secrets={quoted(list(self.options.secrets))}; it has no argument `{name}`. "
                    f"The arguments are {', '.join(f'`{each}`' for each in known) or 'none'}."
                )

    def row(self) -> TypeRow:
        """The type as it is registered."""
        if self._row is None:
            options, handler = self.options, self.handler
            self._row = TypeRow(
                job_type=self.name,
                queue=self.queue.name,
                default_timeout=None if options.timeout is None else float(options.timeout),
                default_priority=as_stored(options.priority),
                default_throttle_factor=as_stored(options.throttle_factor),
                default_time_windows=options.time_windows,
                default_retries=options.retries,
                timeout_named=options.timeout_named,
                retries_named=options.retries_named,
                retry=retries_.encode(options.retry),
                on_crash=options.on_crash,
                max_crashes=options.max_crashes,
                has_handler=True,
                has_retry_handler=handler.retry_handler is not None,
                has_response_handler=handler.response_handler is not None,
                schema=msgspec.json.encode(self.signature.schema(), order="deterministic").decode(),
                labels=options.labels,
                secrets=options.secrets,
                prefers=options.preference.labels if options.preference else (),
                prefer_for=options.preference.seconds if options.preference else PREFER_FOR,
            )
        return self._row

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def using(self, **options: Any) -> "Using":
        """The type with options for the jobs made through it."""
        if options:
            return Using(self, options)
        if self._plain is None:
            self._plain = Using(self, {})
        return self._plain

    def new(self, /, *args: Any, **kwargs: Any) -> NewJob:
        """A job for `app.enqueue_many`, checked but not stored."""
        return self.using().new(*args, **kwargs)

    def enqueue(self, /, *args: Any, **kwargs: Any) -> Job:
        """Store a job that calls the function with these arguments; `Invalid` if they do not fit its annotations."""
        return self.using().enqueue(*args, **kwargs)

    async def aenqueue(self, /, *args: Any, **kwargs: Any) -> Job:
        """`enqueue` for the event loop; tasks that do so at the same time share a commit."""
        return await self.using().aenqueue(*args, **kwargs)

    def enqueue_many(self, payloads: Sequence[Mapping[str, Any]]) -> list[Job]:
        return self.using().enqueue_many(payloads)

    def retry_handler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Always asked on an error: `(job, error)` → `Retry`, `GIVE_UP`, or None for the type's policy (R5)."""
        self.handler.retry_handler = function
        self._row = None
        self.app.redeclare()
        return function

    def response_handler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Called with `(job, response)` when a job that returned `WAIT` is answered; what it does ends the job (R3).

        The response is the result that `complete` was given, or the `JobError` that `fail` was given.
        """
        self.handler.response_handler = called(function)
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

    def new(self, /, *args: Any, **kwargs: Any) -> NewJob:
        text = self.job_type.signature.check(args, kwargs, limit=self.job_type.app.payload_limit)
        return structs.replace(self._template, payload=text)

    def enqueue(self, /, *args: Any, **kwargs: Any) -> Job:
        return self.job_type.app.add([self.new(*args, **kwargs)], self.connection)[0]

    async def aenqueue(self, /, *args: Any, **kwargs: Any) -> Job:
        """`enqueue` for the event loop; tasks that do so at the same time share a commit."""
        new = self.new(*args, **kwargs)
        return (await self.job_type.app.aadd([new], self.connection))[0]

    def enqueue_many(self, payloads: Sequence[Mapping[str, Any]]) -> list[Job]:
        """All of them or none."""
        given = list(payloads) if isinstance(payloads, Iterable) else [payloads]
        for payload in given:
            if type(payload) is not dict and not isinstance(payload, Mapping):  # the second question is slow
                raise Invalid(
                    f"{self.job_type.name}: enqueue_many takes the arguments of each job, as [{{'name': 'value'}}, …], not {quoted(payload)}."
                )
        check, limit = self.job_type.signature.check, self.job_type.app.payload_limit
        texts = [check((), payload if type(payload) is dict else dict(payload), limit=limit) for payload in given]
        jobs = [structs.replace(self._template, payload=text) for text in texts]
        return self.job_type.app.enqueue_many(jobs, connection=self.connection)


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
            raise Invalid(f"{what}: unknown option {quoted(name)}{choice(name, (*OPTIONS, 'connection'))}")
    get = options.get
    wanted, delay = moment_of(get("scheduled_run_time"), "scheduled_run_time"), get("delay")
    if delay is not None:
        if wanted is not None:
            raise Invalid(f"{what}: give delay or scheduled_run_time, not both.")
        seconds = seconds_of(delay)
        if not is_finite(seconds) or not 0 <= seconds <= retries_.LONGEST:
            raise Invalid(f"{what}: delay={quoted(delay)}; give seconds from 0 to ten years, or a timedelta.")
        delay = float(seconds)
    on_duplicate = get("on_duplicate", "return")
    if on_duplicate not in ON_DUPLICATE:
        raise Invalid(f"{what}: on_duplicate={quoted(on_duplicate)}; it may be {', '.join(map(repr, ON_DUPLICATE))}.")
    timeout = timeout_of(get("timeout", row.default_timeout), what)
    if timeout is None and row.on_crash == "timeout":
        raise Invalid(
            f"{what}: timeout=None, but its on_crash='timeout' ends a crashed job by its timeout. Give the job one."
        )
    time_windows = windows.listed(get("time_windows", row.default_time_windows))
    windows.parse_all(time_windows)
    factor = get("throttle_factor", row.default_throttle_factor)
    throttle.check_factor(factor, 0)
    return NewJob(
        queue=row.queue,
        job_type=row.job_type,
        payload=text,
        job_key=check_job_key(get("job_key")),
        priority=number(get("priority", row.default_priority), f"{what}: priority"),
        timeout=timeout,
        throttle_factor=as_stored(factor),
        retries=retries_of(get("retries", row.default_retries), what),
        timeout_named="timeout" in options or row.timeout_named,
        retries_named="retries" in options or row.retries_named,
        time_windows=time_windows,
        scheduled_run_time=wanted,
        delay=delay,
        expires_time=moment_of(get("expires"), "expires"),
        on_duplicate=on_duplicate,
    )


def number(value: Any, what: str) -> float:
    if not is_finite(value):
        raise Invalid(f"{what}={quoted(value)}; give a finite number.")
    return as_stored(value)


def timeout_of(value: Any, what: str) -> float | None:
    if value is None:
        return None
    seconds = number(value, f"{what}: timeout")
    if seconds <= 0:
        raise Invalid(f"{what}: timeout={quoted(value)}; give seconds above 0, or None for no limit.")
    return seconds


def retries_of(value: Any, what: str) -> int | None:
    if value is not None and not is_whole(value, 0):
        raise Invalid(
            f"{what}: retries={quoted(value)}; give a whole number, 0 or more and at most {LARGEST:,}, or None for no limit."
        )
    return None if value is None else int(value)


def moment_of(value: Any, what: str) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None or value.utcoffset() is None:
        raise Invalid(
            f"{what}={quoted(value)} must be an aware datetime; give it a time zone, for example datetime.now(UTC)."
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Invalid(
            f"{what}={quoted(value)} is outside the years 1 to 9999 in UTC; give a moment inside them."
        ) from None
