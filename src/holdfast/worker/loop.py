"""Coroutines on an event loop."""

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from holdfast.stores.contract import Claimed
from holdfast.worker import attempt
from holdfast.worker.runners import End, Runner, cancel_in_backlog

logger = logging.getLogger("holdfast.worker")
DEAF_AFTER = 5.0  # seconds a cancelled coroutine has to end


class LoopRunner(Runner):
    """Coroutines on an event loop of its own thread.

    One task steps through as many jobs as finish without suspending; a job that suspends keeps the task it was
    stepped in (so `current_task`, `asyncio.timeout` and task groups work), and a new task takes the rest.
    """

    def start(self) -> None:
        self.live: dict[asyncio.Task[None], Claimed] = {}  # begun and suspended: two attempts of a job may be here
        self._now = self.clock.monotonic
        self._stepper: asyncio.Task[None] | None = None
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="holdfast-loop", daemon=True)
        self._thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.new_event_loop()
        self._context = contextvars.copy_context()  # of all stepping tasks; each job has one of its own
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(ready.set)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def hand(self, calls: Sequence[Claimed]) -> None:
        self.backlog.extend(calls)
        self._loop.call_soon_threadsafe(self._step_on)

    def _step_on(self) -> None:
        if self.backlog and self._stepper is None and not self._stopping and len(self.live) < self.concurrency:
            self._stepper = self._loop.create_task(Steps(self), name="holdfast-step", context=self._context)
            self._stepper.add_done_callback(self._stepped)

    def _stepped(self, task: asyncio.Task[None]) -> None:
        """A task that ended while it was still the stepping one: whatever it was, the next one steps on."""
        if self._stepper is task:
            self._stepper = None
            self._step_on()

    def begin_some(self) -> "Begun | None":
        """Call handlers one after the other until one suspends; None if none of the backlog did."""
        backlog, finished, clock = self.backlog, self.finished, self._now
        now = clock()
        while backlog and not self._stopping:
            try:
                call = backlog.popleft()
            except IndexError:
                break  # it was taken back meanwhile
            call.began = now
            context = contextvars.copy_context()
            try:
                coroutine = context.run(self.handlers[call.job_type].begin, call)
                call.payload = ""  # the handler has it now
                waiting_for = context.run(coroutine.send, None)
            except StopIteration as stop:
                now = clock()
                finished.append(attempt.returned(call, stop.value, now - call.began))
            except BaseException as error:
                now = clock()
                finished.append(attempt.raised(call, error, now - call.began))
            else:
                self._stay(call)
                return call, context, coroutine, waiting_for
        self._stepper = None
        self.wake()
        return None

    def returned(self, call: Claimed, value: Any) -> None:
        self._come_out(call, attempt.returned(call, value, self._now() - call.began))

    def raised(self, call: Claimed, error: BaseException) -> None:
        self._come_out(call, attempt.raised(call, error, self._now() - call.began))

    def _stay(self, call: Claimed) -> None:
        """The job suspended: the stepping goes on in another task."""
        assert self._stepper is not None
        self._stepper.remove_done_callback(self._stepped)
        call.task, self._stepper = self._stepper, None
        self.live[call.task] = call
        self._step_on()
        self._watch(call)

    def _come_out(self, call: Claimed, end: End) -> None:
        if self.live.pop(call.task, None) is None:
            return  # it was given up, and its end was told then
        call.task = None  # they hold each other
        self.finished.append(end)
        self.wake()
        self._step_on()

    def _watch(self, call: Claimed) -> None:
        """One timer for all: it fires at the earliest deadline and looks at everything that is live."""
        if call.timeout is None:
            return
        deadline = call.began + call.timeout
        if self._timer is None or deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self._loop.call_later(max(0.0, deadline - self._now()) + 0.001, self._end_overdue)

    def _end_overdue(self) -> None:
        self._timer = None
        now = self._now()
        for call in list(self.live.values()):
            if call.timeout is not None and not call.why and now >= call.began + call.timeout:
                self._end(call, "timeout", "")
        for call in self.live.values():
            if not call.why:
                self._watch(call)

    def cancel(self, job_id: int, attempt_number: int, why: str, actor: str = "") -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and everything on it has ended
            self._loop.call_soon_threadsafe(self._cancel, job_id, attempt_number, why, actor)

    def _cancel(self, job_id: int, attempt_number: int, why: str, actor: str) -> None:
        found = [call for call in self.live.values() if (call.id, call.attempt) == (job_id, attempt_number)]
        for call in found:
            if not call.why:
                self._end(call, why, actor)
        if not found:
            cancel_in_backlog(self, job_id, attempt_number, why, actor)

    def _end(self, call: Claimed, why: str, actor: str) -> None:
        call.why, call.actor = why, actor
        call.task.cancel()
        self._loop.call_later(DEAF_AFTER, self._give_up, call)

    def _give_up(self, call: Claimed) -> None:
        """It does not listen to its cancellation: told as ended, and what it does from now on is nobody's."""
        if call.task in self.live:
            self.stuck += 1
            about = (call.id, call.job_type, call.attempt, call.why)
            logger.warning("Job %s (%s, attempt %s) ignores its cancellation after %s; it is given up.", *about)
            self._come_out(call, attempt.ended(call, self._now() - call.began))

    def stop(self) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._stop_all, done)
        done.wait(2.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2.0)

    def _stop_all(self, done: threading.Event) -> None:
        self._stopping = True  # what has not begun does not begin now
        tasks = list(self.live)
        for task, call in self.live.items():
            call.why = call.why or "stopping"
            task.cancel()

        async def wait() -> None:
            if tasks:
                await asyncio.wait(tasks, timeout=1.5)
            for call in list(self.live.values()):
                self._give_up(call)
            done.set()

        self._last = self._loop.create_task(wait())


Begun = tuple[Claimed, contextvars.Context, Coroutine[Any, Any, Any], Any]  # and what it waits for


class Steps(Coroutine[Any, Any, None]):
    """What a task runs: jobs one after the other until one suspends, and from then on that job.

    Written as an object and not with `async def`: suspended jobs are many, and this is a quarter of a frame's size.
    """

    __slots__ = ("_call", "_context", "_coroutine", "_runner")

    def __init__(self, runner: LoopRunner) -> None:
        self._runner = runner
        self._coroutine: Coroutine[Any, Any, Any] | None = None

    def send(self, value: Any) -> Any:
        if self._coroutine is not None:
            return self._go_on(self._coroutine.send, value)
        begun = self._runner.begin_some()
        if begun is None:
            raise StopIteration
        self._call, self._context, self._coroutine, waiting_for = begun
        return waiting_for

    def throw(self, *error: Any) -> Any:
        if self._coroutine is None:
            raise error[0]
        return self._go_on(self._coroutine.throw, *error)

    def _go_on(self, way: Callable[..., Any], *values: Any) -> Any:
        try:
            return self._context.run(way, *values)
        except StopIteration as stop:
            self._runner.returned(self._call, stop.value)
        except BaseException as error:
            self._runner.raised(self._call, error)
        raise StopIteration

    def close(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()

    def __await__(self) -> Any:
        raise TypeError("only a task may run this")
