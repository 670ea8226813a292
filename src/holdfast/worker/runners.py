"""Calling handlers: on an event loop, in threads, in child processes. Nothing else in Holdfast speaks these three.

- Jobs come in batches and their ends go out in batches: `finished` is a deque, `wake` is called once for many.
- A runner never holds more than `concurrency` jobs begun; what it was handed beyond that waits in `backlog`.
- A timeout runs from the call of the handler (R4). On timeout, abort or stop a coroutine is cancelled, a process is
  ended with all its children, and a thread is abandoned: its late result is nobody's (C1).
"""

import asyncio
import contextvars
import logging
import threading
import types
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.clock import Clock, sleep
from holdfast.jobs.states import Happening, Succeeded
from holdfast.stores.contract import Claimed, Done, Report
from holdfast.worker import attempt
from holdfast.worker.children import Nursery
from holdfast.worker.handler import CALL, Handler

logger = logging.getLogger("holdfast.worker")
End = Done | Report
DEAF_AFTER = 5.0  # seconds a cancelled coroutine has to end
STANDSTILL = 0.003  # seconds without a job begun after which more threads are called


class Runner(ABC):
    """What the worker asks of every way to call a handler."""

    def __init__(
        self, handlers: Mapping[str, Handler], concurrency: int, finished: deque[End], wake: Callable[[], None]
    ) -> None:
        self.handlers = handlers
        self.concurrency = concurrency
        self.clock = Clock()  # never the movable one: a handler takes the time it takes
        self.finished = finished
        self.wake = wake
        self.backlog: deque[Claimed] = deque()
        self.stuck = 0  # abandoned threads that have not come back

    @abstractmethod
    def start(self) -> None:
        """Make ready to be handed jobs."""

    @abstractmethod
    def hand(self, calls: Sequence[Claimed]) -> None:
        """Run these, in this order as far as there is room."""

    @abstractmethod
    def cancel(self, job_id: int, attempt_number: int, why: str, actor: str = "") -> None:
        """End a job that has begun; one that has not is taken from the backlog."""

    @abstractmethod
    def stop(self) -> None:
        """End everything that runs, handing it back."""

    def take_back(self, older_than: float = 0.0) -> list[Claimed]:
        """Jobs not begun that have been waiting here for so many seconds."""
        before = self.clock.monotonic() - older_than
        found = []
        while self.backlog and self.backlog[-1].claimed <= before:
            try:
                found.append(self.backlog.pop())
            except IndexError:
                break
        return found

    def finish(self, end: End) -> None:
        self.finished.append(end)


class LoopRunner(Runner):
    """Coroutines on an event loop of its own thread.

    One task steps through as many jobs as finish without suspending; a job that suspends keeps the task it was
    stepped in (so `current_task`, `asyncio.timeout` and task groups work), and a new task takes the rest.
    """

    def start(self) -> None:
        self.live: dict[int, Claimed] = {}  # begun and suspended
        self._stepper: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="holdfast-loop", daemon=True)
        self._thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.new_event_loop()
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
        if self.backlog and self._stepper is None and len(self.live) < self.concurrency:
            self._stepper = self._loop.create_task(self._step())

    async def _step(self) -> None:
        """Begin jobs one after the other until one suspends; then this task is that job's."""
        backlog, finished, clock = self.backlog, self.finished, self.clock.monotonic
        now = clock()
        while backlog:
            try:
                call = backlog.popleft()
            except IndexError:
                break  # it was taken back meanwhile
            call.began = began = now
            context = contextvars.copy_context()
            try:
                coroutine = context.run(_begin, call, self.handlers[call.job_type])
                waiting_for = context.run(coroutine.send, None)
            except StopIteration as stop:
                now = clock()
                finished.append(attempt.returned(call, stop.value, now - began))
                continue
            except BaseException as error:
                now = clock()
                finished.append(attempt.raised(call, error, now - began))
                continue
            self._stay(call)
            try:
                value = await _forward(context, coroutine, waiting_for)
                end: End = attempt.returned(call, value, clock() - began)
            except BaseException as error:
                end = attempt.raised(call, error, clock() - began)
            if self.live.get(call.id) is call:  # else it was given up, and its end was told then
                self._come_out(call, end)
            return
        self._stepper = None
        self.wake()

    def _stay(self, call: Claimed) -> None:
        """The job suspended: the stepping goes on in another task."""
        call.task, self._stepper = self._stepper, None
        self.live[call.id] = call
        self._step_on()
        self._watch(call)

    def _come_out(self, call: Claimed, end: End) -> None:
        del self.live[call.id]
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
            self._timer = self._loop.call_later(max(0.0, deadline - self.clock.monotonic()) + 0.001, self._end_overdue)

    def _end_overdue(self) -> None:
        self._timer = None
        now = self.clock.monotonic()
        for call in list(self.live.values()):
            if call.timeout is not None and not call.why and now >= call.began + call.timeout:
                self._end(call, "timeout", "")
        for call in self.live.values():
            if not call.why:
                self._watch(call)

    def cancel(self, job_id: int, attempt_number: int, why: str, actor: str = "") -> None:
        self._loop.call_soon_threadsafe(self._cancel, job_id, attempt_number, why, actor)

    def _cancel(self, job_id: int, attempt_number: int, why: str, actor: str) -> None:
        call = self.live.get(job_id)
        if call is None:
            _cancel_in_backlog(self, job_id, attempt_number, why, actor)
        elif call.attempt == attempt_number and not call.why:
            self._end(call, why, actor)

    def _end(self, call: Claimed, why: str, actor: str) -> None:
        call.why, call.actor = why, actor
        call.task.cancel()
        self._loop.call_later(DEAF_AFTER, self._give_up, call)

    def _give_up(self, call: Claimed) -> None:
        """It does not listen to its cancellation: told as ended, and what it does from now on is nobody's."""
        if self.live.get(call.id) is call:
            self.stuck += 1
            about = (call.id, call.job_type, call.attempt, call.why)
            logger.warning("Job %s (%s, attempt %s) ignores its cancellation after %s; it is given up.", *about)
            self._come_out(call, attempt.ended(call, self.clock.monotonic() - call.began))

    def stop(self) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._stop_all, done)
        done.wait(2.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2.0)

    def _stop_all(self, done: threading.Event) -> None:
        calls = list(self.live.values())
        for call in calls:
            call.why = call.why or "stopping"
            call.task.cancel()

        async def wait() -> None:
            if calls:
                await asyncio.wait([call.task for call in calls], timeout=1.5)
            for call in list(self.live.values()):
                self._give_up(call)
            done.set()

        self._stepper = self._loop.create_task(wait())


def _begin(call: Claimed, handler: Handler) -> Coroutine[Any, Any, Any]:
    CALL.set(call)
    coroutine: Coroutine[Any, Any, Any] = handler.function(**handler.signature.convert(call.payload))
    return coroutine


@types.coroutine
def _forward(
    context: contextvars.Context, coroutine: Coroutine[Any, Any, Any], waiting_for: Any
) -> Generator[Any, Any, Any]:
    """Drive a coroutine that was already stepped once; a plain `await` of it is not possible any more."""
    while True:
        try:
            value = yield waiting_for
        except BaseException as error:
            try:
                waiting_for = context.run(coroutine.throw, error)
            except StopIteration as stop:
                return stop.value
        else:
            try:
                waiting_for = context.run(coroutine.send, value)
            except StopIteration as stop:
                return stop.value


def _cancel_in_backlog(runner: Runner, job_id: int, attempt_number: int, why: str, actor: str) -> None:
    for call in list(runner.backlog):
        if call.id == job_id and call.attempt == attempt_number:
            try:
                runner.backlog.remove(call)
            except ValueError:
                return
            call.why, call.actor = why, actor
            runner.finish(attempt.ended(call, 0.0))
            runner.wake()


class ThreadRunner(Runner):
    """Plain functions in threads that take from one shared deque.

    Quick jobs are all done by one or two threads, which is faster than waking many; when the backlog stands still for a
    moment, more threads come, up to `concurrency`. A thread whose job was ended is abandoned and replaced.
    """

    def start(self) -> None:
        self._lock = threading.Lock()
        self._free = threading.Semaphore(0)
        self._idle = 0
        self._taken = 0  # jobs begun so far
        self._mean = 0.0  # seconds a job takes, smoothed
        self._stopping = False
        self._slots: set[_Slot] = set()
        self._nudge = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="holdfast-timeouts", daemon=True)
        self._watcher.start()

    def hand(self, calls: Sequence[Claimed]) -> None:
        self.backlog.extend(calls)
        expected = len(calls) * self._mean
        self._call_threads(max(1, min(len(calls), int(expected / STANDSTILL) + 1)))
        self._nudge.set()

    def _call_threads(self, count: int) -> None:
        """Wake idle threads, or make new ones."""
        with self._lock:
            woken = min(self._idle, count)
            self._idle -= woken
            for _ in range(woken):
                self._free.release()
            for _ in range(min(self.concurrency - len(self._slots), count - woken)):
                slot = _Slot()
                self._slots.add(slot)
                threading.Thread(target=self._serve, args=(slot,), name="holdfast-thread", daemon=True).start()

    def _serve(self, slot: "_Slot") -> None:
        backlog = self.backlog
        while not slot.abandoned and not self._stopping:
            try:
                call = backlog.popleft()
            except IndexError:
                self.wake()
                self._be_idle()
                continue
            self._taken += 1
            self._call(slot, call)
        if slot.abandoned:
            self.stuck -= 1
            logger.warning(
                "A thread that was given up came back; its job had been ended before and what it returned is ignored."
            )

    def _be_idle(self) -> None:
        with self._lock:
            if self.backlog or self._stopping:
                return
            self._idle += 1
        self._free.acquire()

    def _call(self, slot: "_Slot", call: Claimed) -> None:
        clock = self.clock.monotonic
        call.began = clock()
        slot.call = call
        try:
            handler = self.handlers[call.job_type]
            arguments = handler.signature.convert(call.payload)
            value = contextvars.copy_context().run(_call_in_context, call, handler, arguments)
            seconds = clock() - call.began
            end: End = attempt.returned(call, value, seconds)
        except BaseException as error:
            seconds = clock() - call.began
            end = attempt.raised(call, error, seconds)
        slot.call = None
        self._mean += (seconds - self._mean) * 0.05
        if not slot.abandoned:
            self.finished.append(end)
            if seconds > STANDSTILL or not self.backlog:
                self.wake()

    def _watch(self) -> None:
        """Bring more threads while the backlog stands still, and give up those whose time is over."""
        taken = -1
        while not self._stopping:
            self._nudge.wait(self._next_look())
            self._nudge.clear()
            if self.backlog:
                sleep(STANDSTILL)
                if self._taken == taken or self._mean > STANDSTILL:
                    self._call_threads(len(self.backlog))
                taken = self._taken
                self._nudge.set()
            now = self.clock.monotonic()
            for slot in list(self._slots):
                call = slot.call
                if call is not None and call.timeout is not None and not call.why and now >= call.began + call.timeout:
                    self._abandon(slot, call, "timeout", "")

    def _next_look(self) -> float | None:
        """Seconds until the first running job's time is over."""
        calls = [slot.call for slot in list(self._slots)]
        ends = [call.began + call.timeout for call in calls if call is not None and call.timeout is not None]
        return max(0.002, min(ends) - self.clock.monotonic()) if ends else None

    def _abandon(self, slot: "_Slot", call: Claimed, why: str, actor: str) -> None:
        with self._lock:
            if slot.call is not call or slot.abandoned:
                return
            call.why, call.actor, slot.abandoned = why, actor, True
            self._slots.discard(slot)
            self.stuck += 1
        logger.warning(
            "Job %s (%s, attempt %s) is stuck in a thread after %s; the thread is given up.",
            call.id,
            call.job_type,
            call.attempt,
            why,
        )
        self.finish(attempt.ended(call, self.clock.monotonic() - call.began))
        if self.backlog and not self._stopping:
            self._call_threads(1)
        self.wake()

    def cancel(self, job_id: int, attempt_number: int, why: str, actor: str = "") -> None:
        for slot in list(self._slots):
            call = slot.call
            if call is not None and call.id == job_id and call.attempt == attempt_number:
                self._abandon(slot, call, why, actor)
                return
        _cancel_in_backlog(self, job_id, attempt_number, why, actor)

    def stop(self) -> None:
        self._stopping = True
        for slot in list(self._slots):
            call = slot.call
            if call is not None:
                self._abandon(slot, call, "stopping", "")
        for _ in range(len(self._slots)):
            self._free.release()
        self._nudge.set()
        self._watcher.join(2.0)


class _Slot:
    """What one thread is doing."""

    def __init__(self) -> None:
        self.call: Claimed | None = None
        self.abandoned = False


def _call_in_context(call: Claimed, handler: Handler, arguments: dict[str, Any]) -> Any:
    CALL.set(call)
    return handler.function(**arguments)


class ProcessRunner(Runner):
    """Handlers in child processes: those with `isolation="process"`, and any job that must run alone (C3)."""

    MOST = 200  # children at a time

    def start(self) -> None:
        self._lock = threading.Lock()
        self._live: dict[int, Claimed] = {}
        self._timer = threading.Event()
        self._stopping = False
        self._nursery = Nursery(self._perform, self._on_end)
        self._started = False
        self._watcher = threading.Thread(target=self._watch, name="holdfast-timeouts", daemon=True)

    def prepare(self) -> None:
        """Fork what forks the children. Best before the worker has threads."""
        with self._lock:
            if not self._started:
                self._started = True
                self._nursery.start()
                self._watcher.start()

    def hand(self, calls: Sequence[Claimed]) -> None:
        self.prepare()
        self.backlog.extend(calls)
        self._go_on()

    def _go_on(self) -> None:
        while True:
            with self._lock:
                if self._stopping or len(self._live) >= min(self.concurrency, self.MOST) or not self.backlog:
                    return
                call = self.backlog.popleft()
                call.began = self.clock.monotonic()
                self._live[call.id] = call
            try:
                self._nursery.run(call.id, encode_call(call), fresh=call.losses > 0)
            except (OSError, RuntimeError) as error:
                logger.warning(
                    "Job %s (%s): no process could be had for it (%s); it is handed back.",
                    call.id,
                    call.job_type,
                    error,
                )
                with self._lock:
                    self._live.pop(call.id, None)
                self.finish(attempt.handed_back(call))
                self.wake()
                return
            if call.why:  # it was ended before the nursery knew of it
                self._nursery.end(call.id)

    def _perform(self, request: bytes) -> bytes:
        """In the child: the whole attempt; its end as JSON."""
        call = decode_call(request)
        clock = Clock().monotonic
        began = clock()
        try:
            handler, arguments = attempt.prepared(call, self.handlers)
            value = contextvars.copy_context().run(_call_in_context, call, handler, arguments)
            if asyncio.iscoroutine(value):
                value = contextvars.copy_context().run(asyncio.run, value)
            end: End = attempt.returned(call, value, clock() - began)
        except BaseException as error:
            end = attempt.raised(call, error, clock() - began)
        return encode_end(end)

    def _on_end(self, job_id: int, reply: bytes | None, how: str) -> None:
        with self._lock:
            call = self._live.pop(job_id, None)
        if call is None:
            return
        seconds = self.clock.monotonic() - call.began
        if call.why:
            self.finish(attempt.ended(call, seconds))
        elif reply is None:
            logger.warning("Job %s (%s, attempt %s): its process ended: %s.", call.id, call.job_type, call.attempt, how)
            self.finish(attempt.crashed(call))
        else:
            self.finish(decode_end(reply, call))
        self.wake()
        self._go_on()

    def _watch(self) -> None:
        while not self._stopping:
            self._timer.wait(0.05)
            now = self.clock.monotonic()
            for call in list(self._live.values()):
                if call.timeout is not None and not call.why and now >= call.began + call.timeout:
                    call.why = "timeout"
                    self._nursery.end(call.id)

    def cancel(self, job_id: int, attempt_number: int, why: str, actor: str = "") -> None:
        call = self._live.get(job_id)
        if call is not None and call.attempt == attempt_number:
            if not call.why:
                call.why, call.actor = why, actor
                self._nursery.end(job_id)
            return
        _cancel_in_backlog(self, job_id, attempt_number, why, actor)

    def stop(self) -> None:
        self._stopping = True
        if not self._started:
            return
        for call in list(self._live.values()):
            call.why = call.why or "stopping"
            self._nursery.end(call.id, grace=0.5)
        self._nursery.close(1.0)
        for call in list(self._live.values()):
            self.finish(attempt.ended(call, self.clock.monotonic() - call.began))
        self._timer.set()
        self._watcher.join(1.0)


encode_call = msgspec.json.Encoder().encode
decode_call = msgspec.json.Decoder(Claimed).decode
decode_happening = msgspec.json.Decoder(Happening).decode


def encode_end(end: End) -> bytes:
    """The end of an attempt on its way from the child to the worker."""
    return encode_call(Succeeded(end.result, end.seconds) if isinstance(end, Done) else end.happening)


def decode_end(reply: bytes, call: Claimed) -> End:
    happening = decode_happening(reply)
    if isinstance(happening, Succeeded):
        return Done(call, happening.seconds or 0.0, happening.result)
    return Report(call.id, happening, call.attempt, call.job_type, call.lease)
