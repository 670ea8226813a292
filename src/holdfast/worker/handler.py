"""The code of a job type as a worker has it, and the job that a handler is running for."""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.errors import HoldfastError, Invalid
from holdfast.jobs.job import Answer
from holdfast.jobs.payload import Signature
from holdfast.stores.contract import Claimed

ISOLATIONS = ("thread", "process")
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

    def runs_on(self, answered: bool = False) -> str:
        """Which runner calls it (or, `answered`, its response handler): loop, thread or process."""
        if self.isolation == "process":
            return "process"
        function = self.response_handler if answered else self.function
        return "loop" if inspect.iscoroutinefunction(function) else "thread"

    def begin(self, call: Claimed) -> Any:
        """Call what this attempt is for: the handler with its arguments, or the response handler with the answer (R3)."""
        CALL.set(call)
        if call.answer is None:
            return self.function(**self.signature.convert(call.payload))
        if self.response_handler is None:
            raise Invalid(f"job type `{self.job_type}` has no response handler in this worker's code; deploy it here.")
        answer = decode_answer(call.answer)
        response = answer.error if answer.error else None if answer.result is None else decode_any(answer.result)
        return self.response_handler(call.job, response)


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
        return bool(self._call.why)

    def __repr__(self) -> str:
        return f"CurrentJob(id={self.id}, job_type={self.job_type!r}, attempt={self.attempt})"


CALL: ContextVar[Claimed] = ContextVar("holdfast_call")


def current_job() -> CurrentJob:
    """The job that this code runs for; an error outside a handler."""
    try:
        return CurrentJob(CALL.get())
    except LookupError:
        raise HoldfastError("current_job() was called outside a handler: no job is running here.") from None
