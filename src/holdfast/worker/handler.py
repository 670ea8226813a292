"""The code of a job type as a worker has it, and the job that a handler is running for."""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec
from msgspec import Struct, structs

from holdfast.errors import HoldfastError, Invalid, quoted
from holdfast.jobs import payload
from holdfast.jobs.job import Answer, Progress
from holdfast.jobs.numbers import as_stored
from holdfast.jobs.payload import Signature, storable
from holdfast.jobs.placement import Preference
from holdfast.stores.contract import Claimed

ISOLATIONS = ("thread", "process")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LONGEST_LINE = 10_000  # characters of a line of the log
LONGEST_PROGRESS = 1_000  # characters of the text beside the fraction
decode_answer = msgspec.json.Decoder(Answer).decode
decode_any = msgspec.json.Decoder().decode


class Handler(Struct):
    """What to call for a job type. Its retry and response handlers may be added after it."""

    job_type: str
    function: Callable[..., Any]
    signature: Signature
    isolation: str
    labels: tuple[str, ...] = ()
    retry_handler: Callable[..., Any] | None = None
    response_handler: Callable[..., Any] | None = None
    secrets: tuple[str, ...] = ()  # arguments that nobody is shown
    preference: Preference | None = None
    payload_limit: int = payload.MAX_BYTES

    def runs_on(self, answered: bool = False) -> str:
        """Which runner calls it (or, `answered`, its response handler): loop, thread or process."""
        if self.isolation == "process":
            return "process"
        function = self.response_handler if answered else self.function
        return "loop" if inspect.iscoroutinefunction(function) else "thread"

    def hiding(self, names: tuple[str, ...]) -> "Handler":
        """The same with other secret arguments."""
        return structs.replace(self, secrets=names, signature=self.signature.hiding(names))

    def begin(self, call: Claimed) -> Any:
        """Call what this attempt is for: the handler with its arguments, or the response handler with the answer (R3)."""
        self.prepare(call)
        if call.answer is None:
            return self.function(**self.signature.convert(call.payload))
        assert self.response_handler is not None
        answer = decode_answer(call.answer)
        response = answer.failure or (None if answer.result is None else decode_any(answer.result))
        return self.response_handler(call.job, response)

    def prepare(self, call: Claimed) -> None:
        """What the code of the attempt finds, whichever part of it comes first."""
        call.limit = self.payload_limit
        CALL.set(call)


class Notes(Protocol):
    """Where what handlers say about their jobs goes."""

    def progress(self, call: Claimed, progress: Progress) -> None: ...

    def line(self, call: Claimed, level: str, text: str) -> None: ...

    def checkpoint(self, call: Claimed, text: str) -> None:
        """Returns when it is stored; `Unavailable` if it cannot be."""
        ...

    def cancelled(self) -> bool:
        """Somebody said so who cannot say it on the call."""
        ...


class CurrentJob:
    """The job that the calling handler runs for."""

    def __init__(self, call: Claimed) -> None:
        self._call = call

    @property
    def id(self) -> int:
        return self._call.id

    @property
    def attempt(self) -> int:
        return self._call.attempt

    @property
    def job_type(self) -> str:
        return self._call.job_type

    @property
    def job_key(self) -> str | None:
        return self._call.job_key

    @property
    def queue(self) -> str:
        return self._call.queue

    @property
    def cancelled(self) -> bool:
        """Its time is over, it was aborted, or its worker stops: whatever it returns from now on is ignored."""
        return bool(self._call.why) or (self._call.notes is not None and self._call.notes.cancelled())

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far it is, from 0 to 1. Costs next to nothing: the last one said is stored a few times a second."""
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise Invalid(f"progress {quoted(fraction)}: give a number from 0 to 1, as progress(0.4, 'two of five').")
        if self._call.notes is not None:
            told = cut(self._call.hidden.apply(str(text)), LONGEST_PROGRESS)
            self._call.notes.progress(self._call, Progress(as_stored(fraction), told))

    def log(self, text: object, *values: object, level: str = "INFO") -> None:
        """Add a line to the job's log; with values, `%s` in the text stands for them as in `logging`."""
        name = str(level).upper()
        if name not in LEVELS:
            raise Invalid(f"log level {quoted(level)}: known are {', '.join(LEVELS)}.")
        if self._call.notes is not None:
            told = cut(self._call.hidden.apply(_filled(str(text), values)), LONGEST_LINE)
            self._call.notes.line(self._call, name, told)

    @property
    def checkpoint(self) -> Any:
        """What this attempt or one before it saved last, or None. Assigning a value that JSON can hold saves it.

        It is stored when the assignment returns, which takes a commit, also on the event loop. What is read is a copy:
        assign it again to save a change.
        """
        return None if self._call.checkpoint is None else decode_any(self._call.checkpoint)

    @checkpoint.setter
    def checkpoint(self, value: Any) -> None:
        text = payload.dump(value, what="checkpoint", limit=self._call.limit)
        if self._call.notes is not None:
            self._call.notes.checkpoint(self._call, text)
        self._call.checkpoint = text

    def __repr__(self) -> str:
        return f"CurrentJob(id={self.id}, job_type={self.job_type!r}, attempt={self.attempt})"


def cut(text: str, longest: int) -> str:
    """Text that every database takes, not longer than it may be."""
    return storable(text if len(text) <= longest else text[: longest - 1] + "…")


def _filled(text: str, values: tuple[object, ...]) -> str:
    if not values:
        return text
    try:
        return text % values
    except (TypeError, ValueError, KeyError):
        return " ".join([text, *map(str, values)])


CALL: ContextVar[Claimed] = ContextVar("holdfast_call")


def current_job() -> CurrentJob:
    """The job that this code runs for; an error outside a handler."""
    try:
        return CurrentJob(CALL.get())
    except LookupError:
        raise HoldfastError("current_job() was called outside a handler: no job is running here.") from None
