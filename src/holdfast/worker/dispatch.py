"""What a handler in a child process says about its job, on its way to the worker.

- A few messages go at once; of more, only the newest lines are kept and go when the flood lets up, or at the end of the
  call. So a handler that logs without end does not keep its worker busy.
- A checkpoint is answered when it is stored.
"""

import contextlib
import threading

import msgspec
from msgspec import Struct

from holdfast.clock import monotonic
from holdfast.errors import Unavailable
from holdfast.jobs.job import Progress
from holdfast.stores.contract import Claimed, Line
from holdfast.worker.scribe import Unwritten
from holdfast.worker.zygote import MESSAGE, Wire

WINDOW = 0.25  # seconds in which
MOST_MESSAGES = 100  # so many messages are sent


class Message(Struct, frozen=True, omit_defaults=True):
    """From the child: what is new."""

    progress: Progress | None = None
    lines: tuple[tuple[str, str, int], ...] = ()  # level, text, and how many were skipped before it
    checkpoint: str | None = None
    number: int = 0  # of the checkpoint


class Reply(Struct, frozen=True, omit_defaults=True):
    """From the worker: a checkpoint is stored, or why not; or the call is to end."""

    number: int = 0
    error: str | None = None
    cancelled: bool = False


encode = msgspec.json.Encoder().encode
decode_reply = msgspec.json.Decoder(Reply).decode


class Dispatch:
    """One for each call, in the child."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._lock = threading.RLock()  # re-entrant: a handler of signals, or a destructor, may log at any moment
        self._sending = False
        self._unsent = Unwritten("")
        self._window_ends = 0.0
        self._sent = 0
        self._over = False
        self._cancelled = False
        self._asking = threading.RLock()
        self._number = 0
        self._answers: dict[int, Reply] = {}

    def progress(self, call: Claimed, progress: Progress) -> None:
        with self._lock:
            self._unsent.progress = progress
            self._send_if_allowed()

    def line(self, call: Claimed, level: str, text: str) -> None:
        with self._lock:
            self._unsent.add(Line(0.0, level, text))
            self._send_if_allowed()

    def checkpoint(self, call: Claimed, text: str) -> None:
        with self._asking:
            self._number += 1
            number = self._number
            self._send_unsent()  # in the order in which it was said
            try:
                self._send(Message(checkpoint=text, number=number))
                reply = self._wait_for(number)
            except OSError as error:
                raise Unavailable(f"Job {call.id}: its checkpoint cannot be sent to the worker: {error}.") from error
        if reply.error is not None:
            raise Unavailable(reply.error)

    def _wait_for(self, number: int) -> Reply:
        while number not in self._answers:
            frame = self._wire.receive()
            if frame is None:
                raise ConnectionResetError("the worker is gone")
            self._hear(frame)
        return self._answers.pop(number)

    def cancelled(self) -> bool:
        """Whether the worker has said so; while another thread waits for an answer, that one hears of it."""
        if not self._cancelled and self._asking.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    while (frame := self._wire.receive(wait=False)) is not None:
                        self._hear(frame)
            finally:
                self._asking.release()
        return self._cancelled

    def _hear(self, frame: tuple[bytes, bytes]) -> None:
        body, kind = frame
        if kind == MESSAGE:
            reply = decode_reply(body)
            self._cancelled = self._cancelled or reply.cancelled
            if reply.number:
                self._answers[reply.number] = reply

    def _send_if_allowed(self) -> None:
        now = monotonic()
        if now >= self._window_ends:
            self._window_ends, self._sent = now + WINDOW, 0
        if self._sent < MOST_MESSAGES:
            self._sent += 1
            self._send_unsent()

    def _send_unsent(self) -> None:
        with self._lock:
            if self._sending:
                return  # it goes with the next ones
            unsent, self._unsent = self._unsent, Unwritten("")
            if not self._over and (unsent.progress or unsent.lines):
                lines = tuple((line.level, line.text, line.skipped) for line in unsent.lines)
                with contextlib.suppress(OSError):  # the socket was closed by the handler, or this is a copy it forked
                    self._send(Message(unsent.progress, lines))

    def _send(self, message: Message) -> None:
        with self._lock:
            if self._sending:
                raise OSError("this interrupts the sending of another message")
            self._sending = True
            try:
                self._wire.send(encode(message))
            finally:
                self._sending = False

    def close(self) -> None:
        """At the end of the call: send the rest, and nothing after that."""
        with self._lock:
            self._send_unsent()
            self._over = True
