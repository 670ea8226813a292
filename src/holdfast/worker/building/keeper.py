"""The inner of the two processes that watch over a build: it runs the build's commands one at a time.

- It adopts every process that its commands leave behind, and ends them all when a command has ended: daemons too.
- It reads one request a line, and answers each with one line. When its input ends, or the guardian does, it ends everything.
- What commands print goes from a terminal of their own to the log, counted and with secrets blotted out.
- It uses the standard library and its neighbours only.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import fcntl
import json
import os
import pty
import resource
import selectors
import signal
import struct
import sys
import termios
import time

from holdfast.worker.building import process_tree
from holdfast.worker.building.use import Overuse, Use

TYPE_CHECKING = False
if TYPE_CHECKING:  # to import it would take a quarter of the time in which a keeper is there
    from typing import Any, NoReturn

TICK = 0.1  # seconds between two looks at what the processes use
PROGRESS = 9  # the descriptor on which the commands say which line they are at
ROWS, COLUMNS = 40, 120
NICER = 5  # a build steps behind the worker's own heartbeat
BLOT = b"***"


def main(log: int, echo: int, guardian: int) -> None:
    """Serve requests until there are no more."""
    process_tree.adopt_orphans()
    process_tree.signal_at_parents_death(signal.SIGTERM)
    keeper = Keeper(_own(log), None if echo < 0 else _own(echo), guardian)
    os.dup2(os.open(os.devnull, os.O_RDONLY), PROGRESS, inheritable=False)  # nothing else may get this number
    try:
        while True:
            request = keeper.next_request()
            if request is None:
                return
            answer = keeper.run(request)
            os.write(1, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        return
    finally:
        process_tree.end_below()


def _own(descriptor: int) -> int:
    """The descriptor under a number that no command inherits and that nothing else uses."""
    copy: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return copy


class Keeper:
    def __init__(self, log: int, echo: int | None, guardian: int) -> None:
        self._log, self._echo, self._guardian = log, echo, guardian
        self._input = b""
        self._ended = False
        self._use: Use | None = None
        self._woken = process_tree.signal_pipe()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._be_told)

    def _be_told(self, *_: object) -> None:
        self._ended = True

    def next_request(self) -> dict[str, Any] | None:
        while b"\n" not in self._input and not self._ended:
            self._hear()
        line, _, self._input = self._input.partition(b"\n")
        found: dict[str, Any] | None = None if self._ended else json.loads(line)
        return found

    def _hear(self) -> None:
        heard = os.read(0, 1 << 20)
        self._input += heard
        self._ended = self._ended or not heard

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one command from its start to the end of its last process. Return how it ended."""
        try:
            use = self._use = self._use or Use(request)
            use.begin(request)
        except OSError as error:
            return {"code": None, "why": "broken", "detail": str(error), "line": 0, "left": 0}
        command = Command(request, self._log, self._echo)
        began = time.monotonic()
        try:
            command.start(use)
            why, detail = self._watch(command, use, began)
            process_tree.end_below()
            command.drain()
            at_end = use.end() or ("", "")
            if not why:
                why, detail = ("log", "") if command.full else at_end
        except OSError as error:
            process_tree.end_below()
            why, detail = "broken", str(error)
        finally:
            command.close()
        code = None if why == "broken" else command.code
        return {"code": code, "why": why or None, "detail": detail, "line": command.line, "left": use.left}

    def _watch(self, command: Command, use: Use, began: float) -> Overuse:
        """Return when the command has ended, or has to end: then why, and how much it uses."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (0, self._woken, *command.descriptors()):
                selector.register(descriptor, selectors.EVENT_READ)
            while command.code is None:
                for key, _ in selector.select(TICK):
                    self._attend(key.fd, command, selector)
                now = time.monotonic()
                why = command.overdue(now - began, now)
                if self._ended or os.getppid() != self._guardian:
                    why, self._ended = "stopped", True
                found = (why, "") if why else use.overuse()
                if found:
                    return found
        return "", ""

    def _attend(self, descriptor: int, command: Command, selector: selectors.BaseSelector) -> None:
        if descriptor == 0:
            self._hear()
        elif descriptor == self._woken:
            process_tree.empty_signal_pipe(self._woken)
            command.reap()
        elif command.read(descriptor) == b"":
            selector.unregister(descriptor)


class Command:
    """A command, its processes, its terminal."""

    def __init__(self, request: dict[str, Any], log: int, echo: int | None) -> None:
        self._request = request
        self._log, self._echo = log, echo
        self._room: int = request["log_room"]
        self._blotter = Blotter([binascii.a2b_base64(pattern) for pattern in request["secrets"]])
        self._heard = time.monotonic()
        self.full = False
        self._pid = 0
        self._terminal = self._progress = -1
        self._said = b""
        self.code: int | None = None

    def start(self, use: Use) -> None:
        self._terminal, outside = pty.openpty()
        self._progress, told = os.pipe()
        _plain(outside)
        for descriptor in (self._terminal, self._progress):
            os.set_blocking(descriptor, False)
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            self._become(outside, told, use)
        os.close(outside)
        os.close(told)

    def _become(self, terminal: int, told: int, use: Use) -> NoReturn:
        """In the new process: the command."""
        try:
            process_tree.signal_at_parents_death(signal.SIGKILL)
            os.setsid()  # and no controlling terminal: who asks for a password there would wait for ever
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((told, PROGRESS), (nothing, 0), (terminal, 1), (terminal, 2)):
                os.dup2(source, target)
            signal.set_wakeup_fd(-1)
            for number in (
                signal.SIGPIPE,
                signal.SIGXFSZ,
                signal.SIGCHLD,
                signal.SIGTERM,
                signal.SIGHUP,
                signal.SIGINT,
            ):
                signal.signal(number, signal.SIG_DFL)
            os.nice(NICER)
            os.umask(0o022)
            os.chdir(self._request["cwd"])
            _limit(self._request)
            use.join()
            arguments = self._request["arguments"]
            os.execve(arguments[0], arguments, self._request["env"])
        except BaseException as error:
            os.write(2, f"{error}\n".encode("utf-8", "replace"))
        finally:
            os._exit(127)

    def descriptors(self) -> tuple[int, int]:
        return self._terminal, self._progress

    def read(self, descriptor: int) -> bytes | None:
        """Take what is there: None if that is nothing yet, empty when nothing will come any more."""
        try:
            found = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EIO:  # what Linux says when no process has the terminal any more
                raise
            return b""
        if descriptor == self._progress:
            self._said = (self._said + found)[-100:]
        elif found:
            self._heard = time.monotonic()
            self._write(self._blotter.through(found))
        return found

    def _write(self, text: bytes) -> None:
        kept = text[: max(0, self._room)]
        self.full = self.full or len(kept) < len(text)
        self._room -= len(kept)
        _write_all(self._log, kept)
        if self._echo is not None:
            _write_all(self._echo, kept)

    @property
    def line(self) -> int:
        """Which line it came to, from 1 on; 0 if it did not begin."""
        words = self._said.decode("ascii", "replace").split("\n")[:-1]
        return int(words[-1]) if words and words[-1].isdecimal() and len(words[-1]) < 7 else 0

    def overdue(self, seconds: float, now: float) -> str | None:
        """Whether it is over because of time or of what it printed."""
        timeout, silence = self._request["timeout"], self._request["silence_timeout"]
        if self.full:
            return "log"
        if timeout is not None and seconds >= timeout:
            return "timeout"
        return "silence" if silence is not None and now - self._heard >= silence else None

    def reap(self) -> None:
        """Bury the dead, and see whether the command itself is among them."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._pid:
                    self.code = os.waitstatus_to_exitcode(status)

    def drain(self) -> None:
        """What was printed before the end and not read yet. All processes are gone, so this ends."""
        for descriptor in self.descriptors():
            while self.read(descriptor):
                pass
        self._write(self._blotter.rest())

    def close(self) -> None:
        for descriptor in self.descriptors():
            if descriptor >= 0:
                os.close(descriptor)


class Blotter:
    """Replaces secrets in a stream, wherever it is cut and however they overlap: no byte of any of them gets through."""

    def __init__(self, secrets: list[bytes]) -> None:
        self._secrets = secrets
        self._held = b""
        self._hidden = 0  # how many of the bytes that are held have been blotted out already

    def through(self, text: bytes) -> bytes:
        """What may be shown now; the beginning of what may become a secret is held back."""
        text = self._held + text
        held = max((self._overlap(text, secret) for secret in self._secrets), default=0)
        return self._shown(text, len(text) - held)

    def rest(self) -> bytes:
        return self._shown(self._held, len(self._held))

    def _shown(self, text: bytes, end: int) -> bytes:
        """The text up to there, with a blot for each stretch of secrets; what follows is held."""
        shown, at, hidden = b"", min(self._hidden, end), max(0, self._hidden - end)
        for start, stop in self._stretches(text):
            if start >= end:
                break
            if stop > at:
                shown += text[at:start] + (b"" if start < self._hidden else BLOT)
                at = min(stop, end)
                hidden = max(0, stop - end)
        self._held, self._hidden = text[end:], hidden
        return shown + text[at:end]

    def _stretches(self, text: bytes) -> list[tuple[int, int]]:
        """Where secrets stand, in order; those that touch or overlap are one."""
        found: list[tuple[int, int]] = []
        places = ((at, at + len(secret)) for secret in self._secrets for at in _places(text, secret))
        for start, stop in sorted(places):
            if found and start <= found[-1][1]:
                found[-1] = found[-1][0], max(found[-1][1], stop)
            else:
                found.append((start, stop))
        return found

    @staticmethod
    def _overlap(text: bytes, secret: bytes) -> int:
        """How much of the text's end is the beginning of the secret."""
        at = text.find(secret[:1], max(0, len(text) - len(secret) + 1))
        while at >= 0 and not secret.startswith(text[at:]):
            at = text.find(secret[:1], at + 1)
        return len(text) - at if at >= 0 else 0


def _places(text: bytes, secret: bytes) -> list[int]:
    """Where it begins, also where two of them overlap."""
    found = []
    at = text.find(secret)
    while at >= 0:
        found.append(at)
        at = text.find(secret, at + 1)
    return found


def _limit(request: dict[str, Any]) -> None:
    """Limits that the kernel keeps for each process. Of these, the number of processes does not bind root."""
    limits = [(resource.RLIMIT_DATA, request["memory"]), (resource.RLIMIT_FSIZE, request["file_size"])]
    limits += [(resource.RLIMIT_CORE, 0)]
    if os.getuid() != 0:
        limits += [(resource.RLIMIT_NPROC, request["processes"] + _tasks_of(os.getuid()))]
    for name, most in limits:
        _, hard = resource.getrlimit(name)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(name, (value, value))


def _tasks_of(user: int) -> int:
    """How many threads a user has, which the kernel counts together with those to come."""
    total = 0
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with contextlib.suppress(OSError):
                    total += process_tree.count_tasks(int(name)) if _user_of(name) == user else 0
    return total


def _user_of(pid: str) -> int:
    """A process that others may not read looks like one of root, but for its status."""
    owner = os.stat(f"/proc/{pid}").st_uid
    if owner != 0:
        return owner
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Uid:"))


def _plain(terminal: int) -> None:
    """No echo, and line ends as they are written."""
    settings = termios.tcgetattr(terminal)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))


def _write_all(descriptor: int, text: bytes) -> None:
    while text:
        text = text[os.write(descriptor, text) :]
