"""Noticing that another process wrote to the SQLite file: inotify on its WAL where there is one, else the file's size and time."""

import contextlib
import ctypes
import os
import select
import struct
import sys
import threading
from collections.abc import Callable

from holdfast.stores.contract import News

IN_MODIFY, IN_CREATE, IN_NONBLOCK, IN_CLOEXEC = 0x2, 0x100, 0o4000, 0o2000000
EVENT = struct.Struct("iIII")
POLL = 0.05  # seconds between looks where there is no inotify
TOGETHER = 0.002  # seconds after a call in which further writes are taken together: a commit is many of them


class FileWatch:
    """Calls `wake` after somebody, this process included, wrote to the WAL."""

    def __init__(self, path: str, wake: Callable[[], None]) -> None:
        self._path = path
        self._wake = wake
        self._stop_reader, self._stop_writer = os.pipe()
        self._inotify = _inotify(os.path.dirname(os.path.abspath(path)))
        self._thread = threading.Thread(target=self._run, name="holdfast-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.write(self._stop_writer, b"x")
        self._thread.join()
        for descriptor in (self._stop_reader, self._stop_writer, self._inotify):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def _run(self) -> None:
        if self._inotify >= 0:
            self._run_inotify()
        else:
            self._run_poll()

    def _run_inotify(self) -> None:
        wanted = (os.path.basename(self._path) + "-wal").encode()
        while True:
            readable, _, _ = select.select([self._inotify, self._stop_reader], [], [])
            if self._stop_reader in readable:
                return
            if wanted in _names(os.read(self._inotify, 65536)):
                self._wake()
                select.select([self._stop_reader], [], [], TOGETHER)

    def _run_poll(self) -> None:
        seen = None
        while not select.select([self._stop_reader], [], [], POLL)[0]:
            with contextlib.suppress(OSError):
                status = os.stat(self._path + "-wal")
                now = status.st_size, status.st_mtime_ns
                if seen is not None and now != seen:
                    self._wake()
                seen = now


class MemoryWatch:
    """Hears what is told on the one connection that a database in memory has: there is no file to watch."""

    def __init__(self, watchers: list[Callable[[News], None]], wake: Callable[[News], None]) -> None:
        self._watchers, self._wake = watchers, wake
        watchers.append(wake)

    def close(self) -> None:
        self._watchers.remove(self._wake)


def _inotify(folder: str) -> int:
    """A descriptor that tells of changes in the folder; -1 where the machine has no such thing."""
    if not sys.platform.startswith("linux"):
        return -1
    library = ctypes.CDLL(None, use_errno=True)
    descriptor: int = library.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
    if descriptor >= 0 and library.inotify_add_watch(descriptor, os.fsencode(folder), IN_MODIFY | IN_CREATE) < 0:
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
