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
        self._lock = threading.Lock()
        self._unsent = Unwritten("")
        self._window_ends = 0.0
        self._sent = 0
        self._over = False
        self._cancelled = False
        self._asking = threading.Lock()
        self._number = 0

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
            with self._lock:
                self._send()  # in the order in which it was said
            try:
                self._wire.send(encode(Message(checkpoint=text, number=self._number)))
                reply = self._wait_for(self._number)
            except OSError as error:
                raise Unavailable(f"Job {call.id}: its checkpoint cannot be sent to the worker: {error}.") from error
        if reply.error is not None:
            raise Unavailable(reply.error)

    def _wait_for(self, number: int) -> Reply:
        """Answers to others are to checkpoints that nobody waits for any more."""
        while True:
            frame = self._wire.receive()
            if frame is None:
                raise ConnectionResetError("the worker is gone")
            reply = self._heard(frame)
            if reply is not None and reply.number == number:
                return reply

    def cancelled(self) -> bool:
        """Whether the worker has said so; while another thread waits for an answer, that one hears of it."""
        if not self._cancelled and self._asking.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    while (frame := self._wire.receive(wait=False)) is not None:
                        self._heard(frame)
            finally:
                self._asking.release()
        return self._cancelled

    def _heard(self, frame: tuple[bytes, bytes]) -> Reply | None:
        body, kind = frame
        if kind != MESSAGE:
            return None
        reply = decode_reply(body)
        self._cancelled = self._cancelled or reply.cancelled
        return reply

    def _send_if_allowed(self) -> None:
        now = monotonic()
        if now >= self._window_ends:
            self._window_ends, self._sent = now + WINDOW, 0
        if self._sent < MOST_MESSAGES:
            self._sent += 1
            self._send()

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, Unwritten("")
        if not self._over and (unsent.progress or unsent.lines):
            lines = tuple((line.level, line.text, line.skipped) for line in unsent.lines)
            with contextlib.suppress(OSError):  # the socket was closed by the handler, or this is a copy it forked
                self._wire.send(encode(Message(unsent.progress, lines)))

    def close(self) -> None:
        """At the end of the call: send the rest, and nothing after that."""
        with self._lock:
            self._send()
            self._over = True
