"""Handlers in child processes."""

import asyncio
import contextvars
import itertools
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.clock import Clock
from holdfast.jobs.states import Happening, Succeeded
from holdfast.stores.contract import Claimed, Done, Report
from holdfast.worker import attempt
from holdfast.worker.capture import Capture
from holdfast.worker.children import Nursery
from holdfast.worker.dispatch import Dispatch, Message, Reply
from holdfast.worker.handler import Handler
from holdfast.worker.runners import End, Runner, cancel_in_backlog
from holdfast.worker.scribe import Scribe
from holdfast.worker.zygote import Wire

logger = logging.getLogger("holdfast.worker")


class ProcessRunner(Runner):
    """Handlers in child processes: those with `isolation="process"`, and any job that must run alone (C3)."""

    MOST = 200  # children at a time

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        concurrency: int,
        finished: deque[End],
        wake: Callable[[], None],
        scribe: Scribe,
        log_level: str,
    ) -> None:
        super().__init__(handlers, concurrency, finished, wake)
        self._scribe = scribe
        self._log_level = log_level

    def start(self) -> None:
        self._lock = threading.Lock()
        self._live: dict[int, Claimed] = {}  # by number: two attempts of a job may be here
        self._numbers = itertools.count(1)
        self._timer = threading.Event()
        self._stopping = False
        self._nursery = Nursery(self._perform, self._on_end, self._on_message)
        self._started = False
        self._watcher = threading.Thread(target=self._watch, name="holdfast-timeouts", daemon=True)

    def prepare(self) -> None:
        """Fork what forks the children. Best before the worker has threads."""
        with self._lock:
            if not self._started:
                self._nursery.start()
                self._watcher.start()
                self._started = True

    def hand(self, calls: Sequence[Claimed]) -> None:
        try:
            self.prepare()
        except OSError as error:
            self._refuse(list(calls), error)
            return
        self.backlog.extend(calls)
        self._go_on()

    def _go_on(self) -> None:
        while True:
            with self._lock:
                if self._stopping or len(self._live) >= min(self.concurrency, self.MOST) or not self.backlog:
                    return
                call = self.backlog.popleft()
                call.began = self.clock.monotonic()
                number = next(self._numbers)
                self._live[number] = call
            try:
                self._nursery.run(number, encode_call(call), fresh=call.losses > 0)
            except (OSError, RuntimeError) as error:
                with self._lock:
                    self._live.pop(number, None)
                self._refuse([call, *self.take_back()], error)
                return
            if call.why:  # it was ended before the nursery knew of it
                self._end(number)

    def _refuse(self, calls: Sequence[Claimed], error: Exception) -> None:
        """No process can be had: others may have more luck."""
        logger.warning("No process could be had for %s jobs (%s); they are handed back.", len(calls), error)
        for call in calls:
            self.finish(attempt.handed_back(call))
        self.wake()

    def _perform(self, request: bytes, wire: Wire) -> bytes:
        """In the child: the whole attempt; its end as JSON."""
        call = decode_call(request)
        call.notes = dispatch = Dispatch(wire)
        capture = Capture(dispatch, self._log_level)
        capture.install()
        try:
            return self._attempt(call)
        finally:
            capture.remove()
            dispatch.close()

    def _attempt(self, call: Claimed) -> bytes:
        clock = Clock().monotonic
        began = clock()
        try:
            context = contextvars.copy_context()
            value = context.run(self.handlers[call.job_type].begin, call)
            if asyncio.iscoroutine(value):
                value = context.run(asyncio.run, value)
            end: End = attempt.returned(call, value, clock() - began)
        except BaseException as error:
            if call.why == "crashed":  # on demand of a test
                os.kill(os.getpid(), signal.SIGKILL)
            end = attempt.raised(call, error, clock() - began)
        try:
            return encode_end(end)
        except Exception as error:
            return encode_end(attempt.raised(call, error, clock() - began))

    def _on_message(self, number: int, message: bytes) -> None:
        """What the handler in the child says about its job."""
        call = self._live.get(number)
        if call is None:
            return
        said = decode_message(message)
        if said.progress is not None or said.lines:
            self._scribe.hear(call, said.progress, said.lines)
        if said.checkpoint is not None:
            self._scribe.save(call, said.checkpoint, lambda error: self._acknowledge(number, said.number, error))

    def _acknowledge(self, number: int, save: int, error: Exception | None) -> None:
        self._nursery.tell(number, encode_call(Reply(save, None if error is None else str(error))))

    def _on_end(self, number: int, reply: bytes | None, how: str) -> None:
        with self._lock:
            call = self._live.pop(number, None)
        if call is None:
            return
        seconds = self.clock.monotonic() - call.began
        if call.why:
            self.finish(attempt.ended(call, seconds))
        elif reply is None:
            logger.warning("Job %s (%s, attempt %s): its process ended: %s.", call.id, call.job_type, call.attempt, how)
            self.finish(attempt.crashed(call))
        else:
            self.finish(self._end_of(reply, call, seconds))
        self.wake()
        self._go_on()

    def _end_of(self, reply: bytes, call: Claimed, seconds: float) -> End:
        try:
            return decode_end(reply, call)
        except Exception as error:
            return attempt.raised(call, error, seconds)

    def _watch(self) -> None:
        while not self._stopping:
            self._timer.wait(0.05 if self._live else 0.5)
            now = self.clock.monotonic()
            for number, call in list(self._live.items()):
                if call.timeout is not None and not call.why and now >= call.began + call.timeout:
                    call.why = "timeout"
                    self._end(number)

    def cancel(self, job_id: int, attempt_number: int, why: str, actor: str = "") -> None:
        for number, call in list(self._live.items()):
            if (call.id, call.attempt) == (job_id, attempt_number):
                if not call.why:
                    call.why, call.actor = why, actor
                    self._end(number)
                return
        cancel_in_backlog(self, job_id, attempt_number, why, actor)

    def _end(self, number: int, grace: float = 2.0) -> None:
        """Tell the handler, should it ask, and end its process."""
        self._nursery.tell(number, encode_call(Reply(cancelled=True)))
        self._nursery.end(number, grace)

    def stop(self) -> None:
        self._stopping = True
        if not self._started:
            return
        for number, call in list(self._live.items()):
            call.why = call.why or "stopping"
            self._end(number, grace=0.5)
        self._nursery.close(1.0)
        for number in list(self._live):
            self._on_end(number, None, "")
        self._timer.set()
        self._watcher.join(1.0)


encode_call = msgspec.json.Encoder().encode
decode_call = msgspec.json.Decoder(Claimed).decode
decode_message = msgspec.json.Decoder(Message).decode
decode_happening = msgspec.json.Decoder(Happening).decode


def encode_end(end: End) -> bytes:
    """The end of an attempt on its way from the child to the worker."""
    return encode_call(Succeeded(end.result, end.seconds, end.effects) if isinstance(end, Done) else end.happening)


def decode_end(reply: bytes, call: Claimed) -> End:
    happening = decode_happening(reply)
    if isinstance(happening, Succeeded):
        return attempt.succeeded(call, happening.seconds or 0.0, happening.result, happening.effects)
    return Report(call.id, happening, call.attempt, call.job_type, call.lease, queue=call.queue)
