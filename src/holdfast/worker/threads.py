"""Plain functions in threads."""

import contextvars
import logging
import threading
from collections.abc import Sequence

from holdfast.clock import sleep
from holdfast.stores.contract import Claimed
from holdfast.worker import attempt
from holdfast.worker.runners import End, Runner, cancel_in_backlog

logger = logging.getLogger("holdfast.worker")
STANDSTILL = 0.003  # seconds without a job begun after which more threads are called


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
            value = contextvars.copy_context().run(self.handlers[call.job_type].begin, call)
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
        if ends:
            return max(0.002, min(ends) - self.clock.monotonic())
        return 0.5 if len(self._slots) > self._idle else None  # a thread may be about to begin

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
        cancel_in_backlog(self, job_id, attempt_number, why, actor)

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
