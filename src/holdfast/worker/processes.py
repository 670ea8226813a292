"""What processes of Holdfast do alike: fork cleanly, end with their parent, adopt orphans, and say how one ended."""

import contextlib
import ctypes
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import NoReturn

logger = logging.getLogger("holdfast.worker")
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36


def left_processes() -> bool:
    """Whether this process has living children; dead ones are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def own_processes() -> list[int]:
    """The children of this process and what it adopted; empty where there is no Linux /proc of its namespace."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def signal_group(group: int, number: int) -> bool:
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


def refuse_readers() -> None:
    """Have the kernel refuse other processes of this user to read this one; Linux only. A program that it starts is free."""
    _prctl(PR_SET_DUMPABLE, 0)


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
