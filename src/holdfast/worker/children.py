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
Requests and replies are opaque bytes; standard input and output belong to the handlers.
"""

import contextlib
import ctypes
import errno
import gc
import itertools
import logging
import math
import os
import select
import selectors
import signal
import socket
import struct
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from holdfast.clock import monotonic

logger = logging.getLogger("holdfast.worker")

FRAME = struct.Struct(">Q?")  # before a request or reply: its length, and whether it is the child's last
NOTE = struct.Struct(">cQq")  # between worker and zygote: one of the kinds below, a child's token, a number
FORK, END, CLOSE = b"f", b"e", b"c"  # to the zygote: with the child's socket; grace in ms; grace in ms
BORN, UNBORN, DIED = b"b", b"u", b"d"  # from the zygote: process id; errno; wait status

SURPLUS_SECONDS = 1.0  # a child idle for so long is ended if there are more than `spare`
PATIENCE = 5.0  # seconds that a killed process may take to go, before its end is told all the same
LOOK_AGAIN = 0.02  # seconds between looks at what a dead child left
LOOK_FOR_WORKER = 2.0  # seconds between looks whether the worker lives, where nothing tells
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Nursery:
    """Performs calls in child processes; may be used from any thread.

    `on_end(call_id, reply, how)` is called exactly once for each call, in a thread of the nursery: with the reply, or
    with None and how the child ended. Of a call that `end` or `close` was asked to end the reply is always None, and
    by then its child and all its descendants are gone.
    """

    def __init__(
        self,
        perform: Callable[[bytes], bytes],
        on_end: Callable[[int, bytes | None, str], None],
        *,
        spare: int = 4,
        idle_seconds: float = 30.0,
    ) -> None:
        self._new_family = partial(_Family, perform, on_end, spare, idle_seconds)
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
        frame = FRAME.pack(len(request), fresh) + request
        while not self._living_family().begin(call_id, frame, fresh):
            pass  # the child or the zygote died before it had the request: another one gets it

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
        perform: Callable[[bytes], bytes],
        on_end: Callable[[int, bytes | None, str], None],
        spare: int,
        idle_seconds: float,
    ) -> None:
        self.lost = False
        self._on_end = on_end
        self._spare = spare
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._tokens = itertools.count()
        self._children: dict[int, _Child] = {}
        self._calls: dict[int, _Child] = {}
        self._idle: list[_Child] = []  # the last one used is the next one used, so those not needed grow old
        self._control, self._zygote = _fork_zygote(perform)
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
        ours, theirs = _socket_pair()
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
        frame = _unpack(child.received)
        if frame is not None:
            child.received.clear()
            reply, last = frame
            child.leaving = child.leaving or last
            self._settle(child, reply, "")
        return True

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
                _signal_group(child.pid, signal.SIGKILL)
            child.forget()
            self._settle(child, None, f"lost with its parent process: {how}")


def _fork_zygote(perform: Callable[[bytes], bytes]) -> tuple[socket.socket, int]:
    ours, theirs = _socket_pair()
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

    def __init__(self, control: socket.socket, perform: Callable[[bytes], bytes], worker: int) -> None:
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
        self._wake_reader, self._wake_writer = _socket_pair()
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
        connection = socket.socket(fileno=descriptor)
        connection.setblocking(True)
        received, last = bytearray(), False
        while not last:
            piece = connection.recv(65536)
            if not piece:
                return
            received += piece
            frame = _unpack(received)
            if frame is not None:
                received.clear()
                request, last = frame
                reply = self._perform(request)
                if os.getpid() != pid:
                    return  # a copy that the handler forked and let return: only one may answer
                flush_streams()
                last = _left_processes() or last
                connection.sendall(FRAME.pack(len(reply), last) + reply)

    def _close(self, grace: float) -> None:
        if self._close_time is None or monotonic() + grace < self._close_time:
            self._close_time = monotonic() + grace
            for charge in self._charges.values():
                self._end(charge, grace)

    def _end(self, charge: _Charge, grace: float) -> None:
        kill_time = monotonic() + grace
        charge.kill_time = kill_time if charge.kill_time is None else min(kill_time, charge.kill_time)
        if charge.status is None:
            _signal_group(charge.pid, signal.SIGTERM)

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
                _signal_group(charge.pid, signal.SIGKILL)
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
        for pid in _own_processes():
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
                group = _signal_group(charge.pid, 0 if spared else signal.SIGKILL)
                gone = not group and not strangers
            if gone:
                del self._charges[token]
                self._tell(DIED, token, signal.SIGKILL if charge.status is None else charge.status)

    def _tell(self, kind: bytes, token: int, number: int) -> None:
        with contextlib.suppress(OSError):  # a dead worker is noticed in `_listen`
            self._control.sendall(NOTE.pack(kind, token, number))


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(True)  # whatever default timeout the application has set
    return pair


def _unpack(received: bytearray) -> tuple[bytes, bool] | None:
    """A whole request or reply and whether it is the last; None while some of it is missing."""
    if len(received) < FRAME.size:
        return None
    length, last = FRAME.unpack_from(received)
    if len(received) < FRAME.size + length:
        return None
    return bytes(memoryview(received)[FRAME.size :]), last


def _left_processes() -> bool:
    """Whether this process has living children; dead ones are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _own_processes() -> list[int]:
    """The children of this process and what it adopted; empty where there is no Linux /proc of its namespace."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _signal_group(group: int, number: int) -> bool:
    """Send a signal, or 0 for none, to a process group; false if there is no such group."""
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return False
    return True


def fork() -> int:
    """Fork. The child's signals are blocked until it calls `reset_signals`: none may meet its parent's handlers."""
    flush_streams()  # what is buffered would else be written by both
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # from 3.12 on, of a fork beside threads: weighed, and meant
            pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return pid


def run_and_exit(body: Callable[[], int | None]) -> NoReturn:
    """In a forked process: run the body and exit with its result, never returning into the parent's frames."""
    code = 1
    try:
        code = body() or 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        flush_streams()
        os._exit(code)


def reset_signals() -> None:
    """In a forked process: no handler or wake-up descriptor of the parent, and nothing blocked."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def die_with_parent(number: int) -> None:
    """Have the kernel send this signal when the thread that forked this process ends; Linux only."""
    _prctl(PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents die; Linux only."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def how_it_ended(status: int) -> str:
    """A wait status in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with {code}"
    names = {known.value: f" ({known.name})" for known in signal.Signals}
    return f"killed by signal {-code}{names.get(-code, '')}"


def flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed by a handler, or never there
            stream.flush()


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
