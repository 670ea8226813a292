"""Processes below a process, or with a mark in their environment: finds them and ends them.

- It uses the standard library only: the keeper imports it, which runs without the rest of Holdfast.
- Linux has `/proc`. Elsewhere `ps` lists the children, and marks are not found.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
END_PATIENCE = 5.0  # seconds until a process that does not end is given up


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def signal_at_parents_death(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, number)


def refuse_readers() -> None:
    """Have the kernel refuse other processes of this user to read this process and those that it forks."""
    _prctl(PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_below() -> None:
    """End every process below this one, and reap them."""
    end_all(_unreaped)


def end_all(find: Callable[[], list[int]]) -> bool:
    """End every process that `find` returns, until it returns none; false if some are left after `END_PATIENCE`.

    All are stopped before the first is killed. A stopped process cannot fork, so none escapes.
    """
    deadline = time.monotonic() + END_PATIENCE
    while True:
        stopped: set[int] = set()
        while fresh := [pid for pid in find() if pid not in stopped]:
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            stopped.update(fresh)
        for pid in stopped:
            _signal(pid, signal.SIGKILL)
        if not stopped or time.monotonic() > deadline:
            return not stopped
        time.sleep(0.002)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _unreaped() -> list[int]:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return descendants(os.getpid())


def living_below(pid: int) -> list[int]:
    """Return the processes below another one that have not ended."""
    return [each for each in descendants(pid) if _state(each) not in ("Z", "X", None)]


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    return _state(pid) in ("T", "t")


def _state(pid: int) -> str | None:
    """The letter that Linux gives to the state of a process; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1].decode()
    except OSError:
        return None if os.path.isdir("/proc/self") else "?"


def marked(mark: str) -> list[int]:
    """Return this user's processes that have `mark` in the environment they were started with."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdecimal() and int(name) != os.getpid():
                with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                    if mark.encode() in file.read().split(b"\0"):
                        found.append(int(name))
    return found


def descendants(pid: int) -> list[int]:
    """Return every process below `pid`. One that has ended counts until its parent reaps it."""
    found: list[int] = []
    more = [pid]
    while more:
        children = _children(more.pop())
        found += children
        more += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        if not os.path.isdir("/proc/self"):
            return _children_by_ps(pid)
    except OSError:
        pass
    return found


def _children_by_ps(pid: int) -> list[int]:
    with os.popen(f"/bin/ps -axo pid=,ppid= | /usr/bin/awk '$2 == {pid:d} {{ print $1 }}'") as listing:
        return [int(word) for word in listing.read().split()]


def count_tasks(pid: int) -> int:
    """Return the number of threads of a process: the links of a folder, so no walk is needed."""
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:
        return 1


def signal_pipe() -> int:
    """Return a descriptor that becomes readable when this process gets a signal that it handles."""
    readable, writable = os.pipe()
    for descriptor in (readable, writable):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return readable


def empty_signal_pipe(readable: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(readable, 4096)
