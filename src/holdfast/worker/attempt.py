"""One attempt, in the order things happen: find the handler, convert the payload, call, judge.

Judging turns whatever the call did into a value: `Done` for plain success, else a `Report` of what happened.
"""

import traceback as tracebacks
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from holdfast.errors import Invalid
from holdfast.jobs import payload
from holdfast.jobs.job import JobError
from holdfast.jobs.outcome import Failed, Retry, Snooze, Wait
from holdfast.jobs.states import Aborted, HandedBack, Lost, Raised, Snoozed
from holdfast.stores.contract import Claimed, Done, Report
from holdfast.worker.handler import Handler

LONGEST_TRACEBACK = 20_000


def prepared(call: Claimed, handlers: Mapping[str, Handler]) -> tuple[Handler, dict[str, Any]]:
    """The handler and its arguments."""
    handler = handlers[call.job_type]
    return handler, handler.signature.convert(call.payload)


def returned(call: Claimed, value: Any, seconds: float) -> Done | Report:
    """The handler returned."""
    if call.timeout is not None and seconds > call.timeout:
        return timed_out(call, seconds)
    if value is None:
        return Done(call, seconds, None)
    if isinstance(value, Wait):
        error = JobError("Invalid", "the handler returned WAIT, which this version does not support", "result")
        return _report(call, Raised(error, None, seconds))
    try:
        return Done(call, seconds, payload.dump(value, what="result"))
    except Invalid as error:
        return _report(call, Raised(JobError("Invalid", str(error), "result"), None, seconds))


def raised(call: Claimed, error: BaseException, seconds: float) -> Report:
    """The handler raised, or was made to. Whatever it is, this does not raise."""
    try:
        return _raised(call, error, seconds)
    except Exception as broken:
        told = JobError(
            type(error).__qualname__, f"an exception that cannot be told: {type(broken).__qualname__}", "exception"
        )
        return _report(call, Raised(told, None, seconds))


def _raised(call: Claimed, error: BaseException, seconds: float) -> Report:
    if call.why == "timeout":
        return timed_out(call, seconds)
    if call.why == "aborted":
        return _report(call, Aborted(call.actor, seconds))
    if call.why == "stopping":
        return _report(call, HandedBack(seconds))
    if isinstance(error, Snooze):
        return _report(call, Snoozed(error.delay, seconds))
    text = storable("".join(tracebacks.format_exception(type(error), error, _beyond_us(error)))[-LONGEST_TRACEBACK:])
    told = JobError(type(error).__qualname__, _message(error), _kind(error))
    at, delay = (error.at, error.delay) if isinstance(error, Retry) else (None, None)
    return _report(call, Raised(told, text, seconds, at, delay))


def _beyond_us(error: BaseException) -> TracebackType | None:
    """The traceback from the handler on; how it was called is nobody's business."""
    found = error.__traceback__
    while (
        found is not None
        and found.tb_next is not None
        and found.tb_frame.f_globals.get("__name__", "").startswith("holdfast.worker")
    ):
        found = found.tb_next
    return found


def _kind(error: BaseException) -> str:
    if isinstance(error, Failed):
        return "failed"
    if isinstance(error, Retry):
        return "retry"
    if isinstance(error, payload.Mismatch):
        return "payload"
    return "exception"


def _message(error: BaseException) -> str:
    """Its text, made safe to store; an exception without a text is told by its name."""
    try:
        text = str(error) or type(error).__qualname__
    except Exception as broken:
        text = f"{type(error).__qualname__} (its text cannot be had: {type(broken).__qualname__})"
    return storable(text)[:10_000]


def storable(text: str) -> str:
    """Text that every database takes: whole characters, and no NUL."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def timed_out(call: Claimed, seconds: float) -> Report:
    error = JobError("Timeout", f"timeout: not finished after {call.timeout:g} s", "timeout")
    return _report(call, Raised(error, None, seconds))


def ended(call: Claimed, seconds: float) -> Report:
    """Whatever it was doing, it was told to end and nobody waits for it: `why` says what came of it."""
    return raised(call, TimeoutError(call.why), seconds)


def crashed(call: Claimed) -> Report:
    """Its child process died with nothing else in it."""
    return _report(call, Lost(alone=True))


def handed_back(call: Claimed) -> Report:
    """It was claimed ahead and not begun."""
    return _report(call, HandedBack(None))


def _report(call: Claimed, happening: Any) -> Report:
    return Report(call.id, happening, call.attempt, call.job_type, call.lease)
