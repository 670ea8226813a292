"""What became of an attempt, as a value: `Done` for plain success, else a `Report` of what happened."""

import traceback as tracebacks
from asyncio import CancelledError
from functools import lru_cache
from types import CodeType, TracebackType
from typing import Any

from msgspec import UNSET

from holdfast.errors import Invalid
from holdfast.jobs import payload
from holdfast.jobs.job import LONGEST_MESSAGE, Answer, JobError
from holdfast.jobs.outcome import Failed, Retry, Snooze, Wait
from holdfast.jobs.payload import storable
from holdfast.jobs.routines import Turned
from holdfast.jobs.secrets import Redaction
from holdfast.jobs.states import Aborted, Answered, HandedBack, Lost, Raised, Snoozed, Succeeded, Waited
from holdfast.stores.contract import Claimed, Done, Report
from holdfast.workflows.task import Published

LONGEST_TRACEBACK = 20_000  # characters
MOST_REMEMBERED = 50  # frames of one
HEADING = "Traceback (most recent call last):\n"


class Overdue(CancelledError):
    """The time of a call was over, and it says itself what it was doing then."""


def returned(call: Claimed, value: Any, seconds: float) -> Done | Report:
    """The handler returned."""
    if call.timeout is not None and seconds > call.timeout:
        return timed_out(call, seconds)
    if value is None:
        return Done(call, seconds, None)
    if isinstance(value, Wait):
        named = value.timeout is not UNSET
        return _report(call, Waited(seconds, value.timeout if value.timeout is not UNSET else None, named))
    effects = None
    try:
        if isinstance(value, Published | Turned):
            effects = payload.dump(value.effects, what="what the task publishes")
            value = value.value
        result = None if value is None else payload.dump(value, what="result", limit=call.limit)
        if call.run is not None and result is not None:  # a view of a task does not know the params of its run
            result = without_secrets(result, call.hidden)
        return succeeded(call, seconds, result, effects)
    except Invalid as error:
        return _report(call, Raised(JobError("Invalid", message_of(error, call.hidden), "result"), None, seconds))


def without_secrets(result: str, hidden: Redaction) -> str:
    """The result of a task as it is stored: nothing but views reads it."""
    return payload.dump(hidden.apply_to(payload.load(result)), what="result") if hidden.secrets else result


def succeeded(call: Claimed, seconds: float, result: str | None, effects: str | None) -> Done | Report:
    """Plain success, but for the turn of a routine: with its end the next one is made."""
    if effects is not None and call.run is None:
        return _report(call, Succeeded(result, seconds, effects))
    return Done(call, seconds, result, effects)


def raised(call: Claimed, error: BaseException, seconds: float) -> Report:
    """The handler raised, or was made to. Whatever it is, this does not raise."""
    try:
        return _raised(call, error, seconds)
    except Exception as broken:
        told = JobError(
            type_of(error, call.hidden), f"an exception that cannot be told: {type(broken).__qualname__}", "exception"
        )
        return _report(call, Raised(told, None, seconds))


def _raised(call: Claimed, error: BaseException, seconds: float) -> Report:
    if call.why == "timeout":
        return timed_out(call, seconds, message_of(error, call.hidden) if isinstance(error, Overdue) else None)
    if call.why == "aborted":
        return _report(call, Aborted(call.actor, seconds))
    if call.why == "stopping":
        return _report(call, HandedBack(seconds))
    if call.why == "crashed":
        return _report(call, Lost())
    if isinstance(error, Snooze):
        return _report(call, Snoozed(error.delay, seconds))
    text = storable(call.hidden.apply(traceback_of(error))[-LONGEST_TRACEBACK:])
    told = JobError(type_of(error, call.hidden), message_of(error, call.hidden), _kind(error))
    at, delay = (error.at, error.delay) if isinstance(error, Retry) else (None, None)
    return _report(call, Raised(told, text, seconds, at, delay))


def traceback_of(error: BaseException) -> str:
    """As Python tells it, from the handler on.

    What fails often fails at the same place, and to put its lines together takes longer than all else that an error
    costs a worker: they are remembered.
    """
    found = _beyond_us(error)
    codes: list[CodeType] = []
    places: list[int] = []
    each = found
    while each is not None:
        codes.append(each.tb_frame.f_code)
        places += (id(codes[-1]), each.tb_lasti)
        each = each.tb_next
    if not 0 < len(codes) <= MOST_REMEMBERED or _tells_more(error):
        return "".join(tracebacks.format_exception(type(error), error, found))
    known = _lines_at(tuple(places))
    if not known:
        known[:] = "".join(tracebacks.format_tb(found)), codes
    return "".join((HEADING, known[0], *tracebacks.format_exception_only(type(error), error)))


@lru_cache(maxsize=256)
def _lines_at(places: tuple[int, ...]) -> list[Any]:
    """To be filled by whoever comes first, with the code as well: while that is there no other has its address."""
    return []


def _tells_more(error: BaseException) -> bool:
    """Of another error, or of names that it may have meant."""
    meant = isinstance(error, NameError | AttributeError | ImportError | SyntaxError | BaseExceptionGroup)
    return meant or error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__)


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


def type_of(error: BaseException, hidden: Redaction) -> str:
    """Return the name of its type, which code may make of any text, without the secrets."""
    return storable(hidden.apply(type(error).__qualname__))


def message_of(error: BaseException, hidden: Redaction) -> str:
    """Return its text without the secrets, safe to store; without a text, the name of its type."""
    try:
        text = str(error) or type(error).__qualname__
    except Exception as broken:
        text = f"{type(error).__qualname__} (its text cannot be had: {type(broken).__qualname__})"
    return storable(hidden.apply(text)[:LONGEST_MESSAGE])


def timed_out(call: Claimed, seconds: float, told: str | None = None) -> Report:
    error = JobError("Timeout", told or f"timeout: not finished after {call.timeout:g} s", "timeout")
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


def unheard(call: Claimed, answer: Answer) -> Report:
    """Its response handler is not in this code: it is left to those who have it; where nobody has, the answer ends it."""
    return _report(call, Answered(answer, unheard=True))


def _report(call: Claimed, happening: Any) -> Report:
    return Report(call.id, happening, call.attempt, call.job_type, call.lease, queue=call.queue)
