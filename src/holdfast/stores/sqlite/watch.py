"""Noticing that another process wrote to the SQLite file: inotify on its WAL where there is one, else the file's size and time."""

import contextlib
import os
import select
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from holdfast.stores.contract import News
from holdfast.stores.sqlite.log import library
from holdfast.stores.sqlite.shared import Shared, Watcher

IN_MODIFY, IN_CREATE, IN_NONBLOCK, IN_CLOEXEC = 0x2, 0x100, 0o4000, 0o2000000
ALL, DEAF = IN_MODIFY | IN_CREATE, IN_CREATE
EVENT = struct.Struct("iIII")
POLL = 0.05  # seconds between looks where there is no inotify
TOGETHER = 0.002  # seconds after a call in which further writes are taken together: a commit is many of them


class FileWatch:
    """Tells `wake` after somebody wrote to the WAL: others by what the system says, stores of this process by themselves."""

    def __init__(self, log: str, wake: Callable[[News | str], None], shared: Shared, family: Any) -> None:
        self._log = log
        self._wake = wake
        self._stop_reader, self._stop_writer = os.pipe()
        self._folder = os.fsencode(os.path.dirname(log))
        self._inotify = _inotify(self._folder)
        self._lock = threading.Lock()  # who has it may use the descriptor
        self._watcher = Watcher(wake, family)
        self._shared = shared
        shared.watchers.append(self._watcher)
        shared.ears.append(self)
        self._thread = threading.Thread(target=self._run, name="holdfast-watch", daemon=True)
        self._thread.start()

    def hush(self) -> None:
        self._ask_for(DEAF)

    def listen(self) -> None:
        self._ask_for(ALL)

    def _ask_for(self, mask: int) -> None:
        with self._lock:
            if self._inotify >= 0:
                library.inotify_add_watch(self._inotify, self._folder, mask)

    def close(self) -> None:
        self._shared.ears.remove(self)
        self._shared.watchers.remove(self._watcher)
        os.write(self._stop_writer, b"x")
        self._thread.join()
        with self._lock:
            for descriptor in (self._stop_reader, self._stop_writer, self._inotify):
                if descriptor >= 0:
                    with contextlib.suppress(OSError):
                        os.close(descriptor)
            self._inotify = -1

    def _run(self) -> None:
        if self._inotify >= 0:
            self._run_inotify()
        else:
            self._run_poll()

    def _run_inotify(self) -> None:
        wanted = os.fsencode(os.path.basename(self._log))
        both, stop = select.poll(), select.poll()  # not `select`, which takes no descriptor above 1023
        both.register(self._inotify, select.POLLIN)
        for poll in (both, stop):
            poll.register(self._stop_reader, select.POLLIN)
        while self._stop_reader not in dict(both.poll()):
            if wanted in _names(os.read(self._inotify, 65536)):
                self._wake(News.ANYTHING)
                stop.poll(TOGETHER * 1000)

    def _run_poll(self) -> None:
        seen = None
        stop = select.poll()
        stop.register(self._stop_reader, select.POLLIN)
        while not stop.poll(POLL * 1000):
            with contextlib.suppress(OSError):
                status = os.stat(self._log)
                now = status.st_size, status.st_mtime_ns
                if seen is not None and now != seen:
                    self._wake(News.ANYTHING)
                seen = now


class MemoryWatch:
    """Hears what is told on the one connection that a database in memory has: there is no file to watch."""

    def __init__(self, shared: Shared, wake: Callable[[News | str], None], family: Any) -> None:
        self._shared, self._watcher = shared, Watcher(wake, family)
        shared.watchers.append(self._watcher)

    def close(self) -> None:
        self._shared.watchers.remove(self._watcher)


def _inotify(folder: bytes) -> int:
    """A descriptor that tells of changes in the folder; -1 where the machine has no such thing."""
    if not sys.platform.startswith("linux"):
        return -1
    descriptor: int = library.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
    if descriptor >= 0 and library.inotify_add_watch(descriptor, folder, ALL) < 0:
        os.close(descriptor)
        return -1
    return descriptor


def _names(events: bytes) -> set[bytes]:
    """The file names in a read of inotify events."""
    found, at = set(), 0
    while at < len(events):
        length = EVENT.unpack_from(events, at)[3]
        found.add(events[at + EVENT.size : at + EVENT.size + length].rstrip(b"\0"))
        at += EVENT.size + length
    return found
