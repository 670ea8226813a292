"""Running calls in child processes that can be killed, with everything they started, without harm to the worker.

Three kinds of process take part:
- The worker has a `Nursery`. It talks to each child over a socket of its own, so a call costs two messages.
- The zygote is forked from the worker once, and children from the zygote when they are needed: what the worker had
  loaded at `start` is there without import or pickle, and a fork copies no threads. The zygote alone waits for and
  kills, so no signal can meet a process number that was given out again.
- A child performs one call at a time. It leads a process group and, on Linux, adopts what its descendants orphan; what
  it leaves when it dies comes to the zygote, where a process that is not a child is killed. So nothing escapes by a
  session of its own or a double fork. Elsewhere only the group is killed.

The worker's death reaches the zygote as the end of its socket, or by signal; the zygote's death kills the children.
While a call is performed, messages may go both ways. All of it is opaque bytes; standard input and output belong to the handlers.
"""

import contextlib
import itertools
import logging
import os
import selectors
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from holdfast.clock import monotonic
from holdfast.worker.processes import how_it_ended, signal_group
from holdfast.worker.zygote import (
    BORN,
    CALL,
    CLOSE,
    DIED,
    END,
    FORK,
    FRAME,
    LAST,
    MESSAGE,
    NOTE,
    PATIENCE,
    Perform,
    fork_zygote,
    socket_pair,
    unpack,
)

logger = logging.getLogger("holdfast.worker")

SURPLUS_SECONDS = 1.0  # a child idle for so long is ended if there are more than `spare`


class Nursery:
    """Performs calls in child processes; may be used from any thread.

    `on_end(call_id, reply, how)` is called exactly once for each call, in a thread of the nursery: with the reply, or
    with None and how the child ended; `on_message(call_id, message)` before that, for each message of the child, and must
    not block. Of a call that `end` or `close` was asked to end the reply is always None, and
    by then its child and all its descendants are gone.
    """

    def __init__(
        self,
        perform: Perform,
        on_end: Callable[[int, bytes | None, str], None],
        on_message: Callable[[int, bytes], None] = lambda *_: None,
        *,
        spare: int = 4,
        idle_seconds: float = 30.0,
    ) -> None:
        self._new_family = partial(_Family, perform, on_end, on_message, spare, idle_seconds)
        self._lock = threading.Lock()
        self._family: _Family | None = None
        self._closed = False

    def start(self) -> None:
        """Fork the zygote. Best before the process has threads; `run` does it if it was not done."""
        self._living_family()

    def run(self, call_id: int, request: bytes, fresh: bool = False) -> None:
        """Perform the request in an idle child or a new one; `fresh` is a new one that ends after the call.

        OSError if the machine has no room for another process or socket; the call has not begun then.
        """
        frame = FRAME.pack(len(request), LAST if fresh else CALL) + request
        while not self._living_family().begin(call_id, frame, fresh):
            pass  # the child or the zygote died before it had the request: another one gets it

    def tell(self, call_id: int, message: bytes) -> None:
        """Say something to the child that performs the call; once it has ended, no effect."""
        family = self._family
        if family is not None:
            family.tell(call_id, message)

    def end(self, call_id: int, grace: float = 2.0) -> None:
        """Terminate the call's process group, after the grace kill it with all descendants; once ended, no effect."""
        family = self._family
        if family is not None:
            family.end(call_id, grace)

    def close(self, grace: float = 2.0) -> None:
        """End all calls, children and the zygote. Returns when they are gone; a second time has no effect."""
        with self._lock:
            self._closed = True
        if self._family is not None:
            self._family.close(grace)

    def _living_family(self) -> "_Family":
        with self._lock:
            if self._closed:
                raise RuntimeError("The nursery is closed; a call can only be run before `close`.")
            if self._family is None or self._family.lost:
                self._family = self._new_family()
            return self._family


@dataclass(eq=False, slots=True)
class _Child:
    """What the worker knows of a child."""

    token: int
    connection: socket.socket
    call_id: int | None = None
    pid: int | None = None
    leaving: bool = False  # it is not given another call
    ending: bool = False  # nor does a reply count: its death ends the call
    idle_time: float = 0.0
    received: bytearray = field(default_factory=bytearray)
    sending: threading.Lock = field(default_factory=threading.Lock)

    def hang_up(self) -> None:
        """Let the child read the end of its socket, after which it exits."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        self.hang_up()
        with self.sending:  # else another thread could be sending to a descriptor that means something new
            self.connection.close()


class _Family:
    """One zygote and its children, seen from the worker. With the zygote all is lost, and another family begins."""

    def __init__(
        self,
        perform: Perform,
        on_end: Callable[[int, bytes | None, str], None],
        on_message: Callable[[int, bytes], None],
        spare: int,
        idle_seconds: float,
    ) -> None:
        self.lost = False
        self._on_end = on_end
        self._on_message = on_message
        self._spare = spare
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._tokens = itertools.count()
        self._children: dict[int, _Child] = {}
        self._calls: dict[int, _Child] = {}
        self._idle: list[_Child] = []  # the last one used is the next one used, so those not needed grow old
        self._control, self._zygote = fork_zygote(perform)
        self._notes = bytearray()  # from the zygote, not yet whole
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._control, selectors.EVENT_READ, None)
        self._reader = threading.Thread(target=self._read, name="holdfast-children", daemon=True)
        self._reader.start()

    def begin(self, call_id: int, frame: bytes, fresh: bool) -> bool:
        """Give the call to a child; false if what should have had it is gone, and never saw it."""
        with self._lock:
            if self.lost:
                return False
            if call_id in self._calls:
                raise ValueError(f"Call {call_id} is already running; every running call needs a number of its own.")
            reused = bool(self._idle) and not fresh
            child = self._idle.pop() if reused else self._ask_for_child()
            if child is None:
                return False
            child.call_id = call_id
            self._calls[call_id] = child
        try:
            with child.sending:
                child.connection.sendall(frame)
        except OSError:  # it is dead: of a new one the zygote tells why, which ends the call
            return not reused or not self._take_back(child, call_id)
        return True

    def tell(self, call_id: int, message: bytes) -> None:
        with self._lock:
            child = self._calls.get(call_id)
        if child is not None:
            with contextlib.suppress(OSError), child.sending:  # it may be dying
                child.connection.sendall(FRAME.pack(len(message), MESSAGE) + message)

    def end(self, call_id: int, grace: float) -> None:
        with self._lock:
            child = self._calls.get(call_id)
            if child is not None:
                child.ending = True
                self._tell(END, child.token, grace)

    def close(self, grace: float) -> None:
        with self._lock:
            for child in self._children.values():
                child.ending = True
            self._tell(CLOSE, 0, grace)
        if threading.current_thread() is not self._reader:
            self._reader.join(grace + 2 * PATIENCE)
            if self._reader.is_alive() and not self.lost:
                os.kill(self._zygote, signal.SIGKILL)
                self._reader.join(PATIENCE)

    def _ask_for_child(self) -> _Child | None:
        ours, theirs = socket_pair()
        child = _Child(next(self._tokens), ours)
        with theirs:
            try:
                socket.send_fds(self._control, [NOTE.pack(FORK, child.token, 0)], [theirs.fileno()])
            except ConnectionError:
                self.lost = True
                ours.close()
                return None
        self._children[child.token] = child
        # Adding to a selector from another thread is sound with epoll and kqueue; only the reader takes away.
        self._selector.register(ours, selectors.EVENT_READ, child)
        return child

    def _take_back(self, child: _Child, call_id: int) -> bool:
        with self._lock:
            if child.ending or child.call_id != call_id:
                return False
            child.call_id = None
            del self._calls[call_id]
            return True

    def _tell(self, kind: bytes, token: int, grace: float) -> None:
        with contextlib.suppress(OSError):  # a dead zygote is noticed by the reader
            self._control.sendall(NOTE.pack(kind, token, round(grace * 1000)))

    def _read(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select(self._end_idle_children()):
                    if key.data is None:
                        if not self._hear_zygote():
                            return
                    elif key.data.token in self._children:  # else buried a moment ago
                        self._receive(key.data)
        finally:
            self._lose_all()

    def _end_idle_children(self) -> float | None:
        """End the children that nobody needed; in how many seconds to look again."""
        with self._lock:
            while self._idle:
                allowed = SURPLUS_SECONDS if len(self._idle) > self._spare else self._idle_seconds
                left = self._idle[0].idle_time + allowed - monotonic()
                if left > 0:
                    return left
                self._idle.pop(0).hang_up()
        return None

    def _receive(self, child: _Child) -> bool:
        """Take what the child sent; false if there was nothing or will be nothing."""
        try:
            piece = child.connection.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece:  # not yet its death: a descendant may hold the socket, and a handler may have closed it
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.connection)
            return False
        child.received += piece
        while (frame := unpack(child.received)) is not None:
            body, kind = frame
            if kind == MESSAGE:
                self._hear(child, body)
            else:
                child.leaving = child.leaving or kind == LAST
                self._settle(child, body, "")
        return True

    def _hear(self, child: _Child, message: bytes) -> None:
        call_id = child.call_id
        if call_id is None:
            return
        try:
            self._on_message(call_id, message)
        except Exception:
            logger.exception("A message of call %s was not taken.", call_id)

    def _hear_zygote(self) -> bool:
        """Take what the zygote tells; false at its end."""
        try:
            piece = self._control.recv(65536)
        except OSError:
            piece = b""
        self._notes += piece
        whole = len(self._notes) - len(self._notes) % NOTE.size
        for kind, token, number in NOTE.iter_unpack(self._notes[:whole]):
            if kind == BORN:
                with self._lock:
                    self._children[token].pid = number
            elif kind == DIED:
                self._bury(token, how_it_ended(number))
            else:
                self._bury(token, f"could not be started: {os.strerror(number)}")
        del self._notes[:whole]
        return bool(piece)

    def _bury(self, token: int, how: str) -> None:
        with self._lock:
            child = self._children.pop(token)
            child.leaving = True
            if child in self._idle:
                self._idle.remove(child)
        while self._receive(child):  # a reply may still be on the way
            pass
        with contextlib.suppress(KeyError):
            self._selector.unregister(child.connection)
        child.forget()
        self._settle(child, None, how)

    def _settle(self, child: _Child, reply: bytes | None, how: str) -> None:
        with self._lock:
            call_id = child.call_id
            if reply is not None and child.ending:
                child.hang_up()  # its death ends the call
                return
            if call_id is None:
                return
            child.call_id = None
            del self._calls[call_id]
            if reply is not None and not child.leaving:
                child.idle_time = monotonic()
                self._idle.append(child)
        try:
            self._on_end(call_id, reply, how)
        except Exception:
            logger.exception("The end of call %s was not taken.", call_id)

    def _lose_all(self) -> None:
        """The zygote is dead, on request or not, and its children with it."""
        with self._lock:
            self.lost = True
            self._idle.clear()
            children = list(self._children.values())
            self._children.clear()
        self._selector.close()
        self._control.close()
        how = "nobody knows how"
        with contextlib.suppress(ChildProcessError):
            how = how_it_ended(os.waitpid(self._zygote, 0)[1])
        for child in children:
            if child.pid is not None:
                signal_group(child.pid, signal.SIGKILL)
            child.forget()
            self._settle(child, None, f"lost with its parent process: {how}")
