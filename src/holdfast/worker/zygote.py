"""The zygote: a single-threaded process that forks the children, waits for them and kills what is to be killed."""

import contextlib
import errno
import gc
import math
import os
import select
import signal
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from holdfast.clock import monotonic
from holdfast.worker.processes import (
    adopt_orphans,
    die_with_parent,
    flush_streams,
    fork,
    left_processes,
    own_processes,
    reset_signals,
    run_and_exit,
    signal_group,
)

FRAME = struct.Struct(">Qc")  # before what goes between worker and child: its length, and one of the kinds below
CALL, LAST, MESSAGE = b"r", b"l", b"m"  # a request or reply; one that is the child's last; something said in between
NOTE = struct.Struct(">cQq")  # between worker and zygote: one of the kinds below, a child's token, a number
FORK, END, CLOSE = b"f", b"e", b"c"  # to the zygote: with the child's socket; grace in ms; grace in ms
BORN, UNBORN, DIED = b"b", b"u", b"d"  # from the zygote: process id; errno; wait status
PATIENCE = 5.0  # seconds that a killed process may take to go, before its end is told all the same
LOOK_AGAIN = 0.02  # seconds between looks at what a dead child left
LOOK_FOR_WORKER = 2.0  # seconds between looks whether the worker lives, where nothing tells


def fork_zygote(perform: "Perform") -> tuple[socket.socket, int]:
    ours, theirs = socket_pair()
    worker = os.getpid()
    with theirs:
        try:
            pid = fork()
        except OSError:
            ours.close()
            raise
        if pid == 0:
            ours.close()
            run_and_exit(lambda: _Zygote(theirs, perform, worker).tend())
    return ours, pid


@dataclass(eq=False, slots=True)
class _Charge:
    """What the zygote knows of a child."""

    pid: int
    kill_time: float | None = None  # until then it and its group may end by themselves
    status: int | None = None  # how it died
    death_time: float | None = None

    def last_time(self) -> float:
        """When it should have been gone; infinite while it may live."""
        return max((time for time in (self.kill_time, self.death_time) if time is not None), default=math.inf)


class _Zygote:
    """Forks children, waits for them, and kills them with all they started. A process of one thread."""

    def __init__(self, control: socket.socket, perform: "Perform", worker: int) -> None:
        self._control = control
        self._perform = perform
        self._worker = worker
        self._pid = os.getpid()
        self._charges: dict[int, _Charge] = {}
        self._close_time: float | None = None

    def tend(self) -> None:
        """Serve the worker until it closes the nursery or dies; then leave nothing behind."""
        os.setsid()  # a terminal's signals are for the worker to judge
        reset_signals()
        self._wake_reader, self._wake_writer = socket_pair()
        self._wake_writer.setblocking(False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        # Not to be killed: it has to bury first. The signal also comes when only the forking thread ends.
        die_with_parent(signal.SIGTERM)
        adopt_orphans()
        gc.freeze()  # a collection in a child would otherwise copy every page
        while self._close_time is None or (self._charges and monotonic() < self._close_time + PATIENCE):
            self._listen()
            self._kill_overdue()
            self._tell_deaths(self._kill_strangers())

    def _listen(self) -> None:
        """Wait for a note, a signal or the next thing to do; take the note."""
        poll = select.poll()
        poll.register(self._wake_reader, select.POLLIN)
        if self._close_time is None:
            poll.register(self._control, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(self._seconds_to_next() * 1000)}
        if self._wake_reader.fileno() in ready:
            self._wake_reader.recv(4096)
        if self._control.fileno() in ready:
            self._take_note()
        if os.getppid() != self._worker:
            self._close(0)

    def _seconds_to_next(self) -> float:
        if any(charge.status is not None for charge in self._charges.values()):
            return LOOK_AGAIN
        times = [charge.kill_time for charge in self._charges.values() if charge.kill_time is not None]
        return max(0.0, min([LOOK_FOR_WORKER, *(time - monotonic() for time in times)]))

    def _take_note(self) -> None:
        note, descriptors = b"", list[int]()
        with contextlib.suppress(OSError):
            note, descriptors, _, _ = socket.recv_fds(self._control, NOTE.size, 1)
        if len(note) < NOTE.size:  # notes are far smaller than what a socket splits: the worker is gone
            self._close(0)
            return
        kind, token, number = NOTE.unpack(note)
        if kind == FORK:
            self._bear(token, descriptors)
        elif kind == CLOSE:
            self._close(number / 1000)
        elif token in self._charges:
            self._end(self._charges[token], number / 1000)

    def _bear(self, token: int, descriptors: list[int]) -> None:
        if not descriptors:
            self._tell(UNBORN, token, errno.EMFILE)
            return
        os.set_inheritable(descriptors[0], False)
        try:
            pid = fork()
            if pid == 0:
                run_and_exit(lambda: self._live(descriptors[0]))
        except OSError as error:
            self._tell(UNBORN, token, error.errno or errno.EAGAIN)
        else:
            with contextlib.suppress(OSError):  # it may have done so itself, or be dead
                os.setpgid(pid, pid)
            self._charges[token] = _Charge(pid)
            self._tell(BORN, token, pid)
        finally:
            os.close(descriptors[0])

    def _live(self, descriptor: int) -> None:
        """In the child: perform calls until the socket ends, or after the last one."""
        os.setpgid(0, 0)
        reset_signals()
        for connection in (self._control, self._wake_reader, self._wake_writer):
            connection.close()
        die_with_parent(signal.SIGKILL)
        adopt_orphans()
        if os.getppid() != self._pid:
            return
        pid = os.getpid()
        wire = Wire(socket.socket(fileno=descriptor))
        last = False
        while not last:
            frame = wire.receive()
            if frame is None:
                return
            request, kind = frame
            if kind == MESSAGE:
                continue  # to a call that has ended
            reply = self._perform(request, wire)
            if os.getpid() != pid:
                return  # a copy that the handler forked and let return: only one may answer
            flush_streams()
            last = left_processes() or kind == LAST
            wire.send(reply, LAST if last else CALL)

    def _close(self, grace: float) -> None:
        if self._close_time is None or monotonic() + grace < self._close_time:
            self._close_time = monotonic() + grace
            for charge in self._charges.values():
                self._end(charge, grace)

    def _end(self, charge: _Charge, grace: float) -> None:
        kill_time = monotonic() + grace
        charge.kill_time = kill_time if charge.kill_time is None else min(kill_time, charge.kill_time)
        if charge.status is None:
            signal_group(charge.pid, signal.SIGTERM)

    def _kill_overdue(self) -> None:
        """Note which children died, and kill those whose grace is over."""
        now = monotonic()
        for charge in self._charges.values():
            if charge.status is not None:
                continue
            pid, status = os.waitpid(charge.pid, os.WNOHANG)
            if pid:
                charge.status, charge.death_time = status, now
            elif charge.kill_time is not None and now >= charge.kill_time:
                signal_group(charge.pid, signal.SIGKILL)
                os.kill(charge.pid, signal.SIGKILL)  # it may have left its group

    def _kill_strangers(self) -> bool:
        """Kill the processes that dead children left to the zygote; true if some are not gone yet.

        The kill makes their own children the zygote's, so repeating it goes through all generations.
        """
        now = monotonic()
        children = {charge.pid for charge in self._charges.values() if charge.status is None}
        spared = {
            charge.pid for charge in self._charges.values() if charge.kill_time is not None and now < charge.kill_time
        }
        left = False
        for pid in own_processes():
            if pid in children or os.waitpid(pid, os.WNOHANG)[0] or os.getpgid(pid) in spared:
                continue
            with contextlib.suppress(PermissionError):  # of another user now: nobody here can end it
                os.kill(pid, signal.SIGKILL)
                left = True
        return left

    def _tell_deaths(self, strangers: bool) -> None:
        """Tell the worker of each child that is gone with its group and all it left."""
        now = monotonic()
        for token, charge in list(self._charges.items()):
            spared = charge.kill_time is not None and now < charge.kill_time
            gone = now > charge.last_time() + PATIENCE
            if charge.status is not None and not gone:
                group = signal_group(charge.pid, 0 if spared else signal.SIGKILL)
                gone = not group and not strangers
            if gone:
                del self._charges[token]
                self._tell(DIED, token, signal.SIGKILL if charge.status is None else charge.status)

    def _tell(self, kind: bytes, token: int, number: int) -> None:
        with contextlib.suppress(OSError):  # a dead worker is noticed in `_listen`
            self._control.sendall(NOTE.pack(kind, token, number))


class Wire:
    """The child's end of its socket. While a call is performed, messages may go both ways, from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        self._connection = connection
        self._pid = os.getpid()
        self._sending = Lock()
        self._received = bytearray()

    def send(self, body: bytes, kind: bytes = MESSAGE) -> None:
        """OSError if the socket is gone, or belongs to another process: a copy that the handler forked has no say."""
        if os.getpid() != self._pid:
            raise OSError(errno.EBADF, "only the child itself may speak to its worker")
        with self._sending:
            self._connection.sendall(FRAME.pack(len(body), kind) + body)

    def receive(self, wait: bool = True) -> tuple[bytes, bytes] | None:
        """The next frame and its kind; None at the end, or when not waiting and there is none. One thread at a time."""
        while (frame := unpack(self._received)) is None:
            try:
                piece = self._connection.recv(65536, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not piece:
                return None
            self._received += piece
        return frame


Perform = Callable[[bytes, Wire], bytes]


def socket_pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(True)  # whatever default timeout the application has set
    return pair


def unpack(received: bytearray) -> tuple[bytes, bytes] | None:
    """Take the first frame: what it holds, and its kind; None while some of it is missing."""
    if len(received) < FRAME.size:
        return None
    length, kind = FRAME.unpack_from(received)
    end = FRAME.size + length
    if len(received) < end:
        return None
    body = bytes(memoryview(received)[FRAME.size : end])
    del received[:end]
    return body, kind
