"""Performs builds: what the handler of job type `build` calls.

- `await perform(order, folder, tell)` makes `<folder>` anew (it is the build's own: `<builds>/<job_id>`), clones, runs the
  steps, collects the outputs, writes `completed` and gives the `BuildResult`; failures are in it, not raised.
- `tell(change: StepChange)` is called for each move of a step, in order, on the thread of the build; what it raises is
  logged and changes nothing.
- When its job is aborted or its time is over, `perform` is cancelled: it ends every process, writes `completed` with that
  outcome and lets the cancellation pass on, with the text of `completed` if the time was over. When its worker stops, the
  job is handed back and nothing is completed.
- `conclude(result)` is what the handler returns, or raises `Failed` or `BuildError`.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from holdfast.builds.order import BuildOrder
from holdfast.builds.result import BuildResult, Owner, StepChange, owned
from holdfast.jobs.outcome import Failed
from holdfast.jobs.secrets import Redaction
from holdfast.stores.contract import Claimed
from holdfast.worker.attempt import Overdue
from holdfast.worker.building import folder as folders
from holdfast.worker.building.folder import read_completed, remove_leftovers
from holdfast.worker.building.performance import BLOT, Build, Place, Stop, Tell
from holdfast.worker.handler import CALL, CurrentJob
from holdfast.workflows.states import STEP_STATES, StepState

__all__ = [
    "BuildError",
    "conclude",
    "correct_end",
    "end_without_builder",
    "hide",
    "perform",
    "read_completed",
    "remove_leftovers",
]


class BuildError(Exception):
    """A build could not be performed, or its time was over: nothing was found out about the code."""


async def perform(order: BuildOrder, folder: Path, tell: Tell, place: Place | None = None) -> BuildResult:
    """Perform a build in its own folder, which is made anew. Cancel it to end it."""
    stop, call = Stop(), CALL.get(None)
    build = Build(_within(order, call), folder.absolute(), _with_progress(tell), stop, place)
    done = _on_a_thread(build.run)
    while True:
        try:
            result = await asyncio.shield(done)
            break
        except asyncio.CancelledError:
            if done.cancelled():
                raise
            stop.say((call.why if call is not None else "") or "aborted")
    if stop.why == "timeout" and result is not None and result.outcome == "error":
        raise Overdue(result.error)
    if build.stopped or result is None:
        raise asyncio.CancelledError
    return result


def hide(secrets: Iterable[str]) -> Redaction:
    """Take these out of all that the job of this context says from now on, and how."""
    hidden = Redaction(tuple(secrets), shown=BLOT)
    call = CALL.get(None)
    if call is not None:
        call.hidden = hidden
    return hidden


def _within(order: BuildOrder, call: Claimed | None) -> BuildOrder:
    """Its job has a timeout of its own, of the day it was made; the shorter one counts, and is told."""
    if call is None or call.timeout is None:
        return order
    return structs.replace(order, timeout=call.timeout if order.timeout is None else min(order.timeout, call.timeout))


def _on_a_thread(function: Callable[[], BuildResult | None]) -> "asyncio.Future[BuildResult | None]":
    """Call it on a thread of its own that the interpreter's end does not wait for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[BuildResult | None] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: BuildResult | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error is not None else done.set_result(result)

    def body() -> None:
        result, error = None, None
        try:
            result = context.run(function)
        except BaseException as raised:
            error = raised
        loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=body, name="holdfast-build", daemon=True).start()
    return done


def _with_progress(tell: Tell) -> Tell:
    """Tell, and say in the job's progress which step runs."""
    call = CALL.get(None)
    if call is None:
        return tell
    job, known = CurrentJob(call), dict[str, StepState]()

    def told(change: StepChange) -> None:
        known[change.step] = change.state
        if change.state is StepState.READY:
            done = sum(STEP_STATES[state].done for state in known.values())
            job.progress(done / len(known), change.step)
        tell(change)

    return told


def conclude(result: BuildResult) -> dict[str, Any]:
    """The result of the build's job; raises `Failed` or `BuildError` where the build did not succeed."""
    if result.outcome == "failed":
        raise Failed(result.error or "failed")
    if result.outcome != "success":
        raise BuildError(result.error or result.outcome)
    return {"steps": dict(result.steps), "outputs": [output.name for output in result.outputs]}


def correct_end(folder: Path, found: BuildResult, outcome: str, why: str, now: datetime) -> BuildResult:
    """The build's job ended otherwise than its builder wrote: `completed` says what the job says, and the log why."""
    result = structs.replace(found, outcome=outcome, error=None if outcome == "success" else why, end_time=now)
    folders.write_ended(folder, result, f"{why}\n")
    return result


def end_without_builder(folder: Path, owner: Owner, outcome: str, why: str, now: datetime) -> BuildResult:
    """The files of a build that ended while no builder had it: aborted in the queue, or lost with its builder (B3).

    `why` is a sentence for the log and for `completed`. A log that is there is kept.
    """
    result = owned(BuildResult(outcome=outcome, error=why, end_time=now), owner)
    folders.write_ended(folder, result, f"{why}\n")
    return result
