"""Losing a worker at a chosen point of a handler, without losing the process of the test."""

from holdfast.errors import HoldfastError
from holdfast.worker.handler import CALL


class Crash(BaseException):
    """Ends the handler that called `crash_here`. What it reports is not looked at: the attempt is marked as lost."""


def crash_here(attempt: int | None = None) -> None:
    """Lose the worker of the job that this code runs for, as if it had been killed here; with `attempt`, only in that one.

    The attempt is recorded as lost, `failures` stays as it is, and the job is started again by its `on_crash` policy.
    In a thread or on the event loop the handler is left by an exception that `except Exception` does not catch, so
    `finally` still runs. A child process is really killed.
    """
    try:
        call = CALL.get()
    except LookupError:
        raise HoldfastError("crash_here() was called outside a handler: no job is running here.") from None
    if attempt is None or attempt == call.attempt:
        call.why = "crashed"
        raise Crash(f"crash_here() in attempt {call.attempt} of job {call.id}")
