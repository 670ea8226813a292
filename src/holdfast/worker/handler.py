"""The code of a job type as a worker has it, and the job that a handler is running for."""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from holdfast.errors import HoldfastError
from holdfast.jobs.payload import Signature
from holdfast.stores.contract import Claimed

ISOLATIONS = ("thread", "process")


class Handler(Struct):
    """What to call for a job type. Its retry and response handlers may be added after it."""

    job_type: str
    function: Callable[..., Any]
    signature: Signature
    isolation: str
    retry_handler: Callable[..., Any] | None = None
    response_handler: Callable[..., Any] | None = None

    @property
    def runs_on(self) -> str:
        """Which runner calls it: loop, thread or process."""
        if self.isolation == "process":
            return "process"
        return "loop" if inspect.iscoroutinefunction(self.function) else "thread"


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
