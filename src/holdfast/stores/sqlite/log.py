"""The write-ahead log as a file: whether it is still the one that we opened, and room in it before it is needed.

- It is looked at after every commit, and not with `stat`: since 6.13 Linux gives a file whose times were looked at finer ones
  with its next write, which then has to wait for the file system's journal. That cost each commit 50 µs. `statx` asks for
  nothing but the inode and the size.
- A commit that makes the file longer waits for the journal too, 70 µs and more. So zeros are written behind its end
  before. SQLite reads a log up to the first frame that is not valid, and one of zeros never is.
"""

import ctypes
import os
from typing import NamedTuple

INODE, SIZE = 0x100, 0x200  # what is asked of statx
HERE = -100  # paths are relative to the working directory
ROOM = bytes(256 * 1024)
LARGEST = 4000 * (4096 + 24)  # bytes; about where SQLite begins it anew (`wal_autocheckpoint`)


class Look(NamedTuple):
    """At a file."""

    inode: int
    size: int


class Log:
    """Used by whoever has its connection."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._look = look_at(path)
        self._inode, self._size = self._look()

    def is_gone(self) -> bool:
        """Asked after a commit: deleted, or another file than it was. One that had to become longer gets room for more."""
        try:
            inode, size = self._look()
        except FileNotFoundError:
            return True
        grown, self._size = size - self._size, size
        # Not if others have made room: what they write into it ends elsewhere.
        if inode == self._inode and grown > 0 and grown % len(ROOM) and size < LARGEST:
            self._make_room()
        return inode != self._inode

    def _make_room(self) -> None:
        """Appended, whatever is there by then: nobody's frames are written over."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if os.fstat(descriptor).st_ino == self._inode:
                self._size += os.write(descriptor, ROOM)
        except OSError:
            pass  # the disk is full, perhaps: that is for the next commit to say
        finally:
            os.close(descriptor)


def look_at(path: str) -> "Statx | Stat":
    """The quickest way that this machine has."""
    quick, slow = Statx(path), Stat(path)
    try:
        if quick() == slow():
            return quick
    except (AttributeError, OSError):
        pass  # another system, or an old one
    return slow


class Stat:
    """By what every system has."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self) -> Look:
        found = os.stat(self._path)
        return Look(found.st_ino, found.st_size)


class Statx:
    """By what Linux has."""

    def __init__(self, path: str) -> None:
        self._answer = ctypes.create_string_buffer(256)
        self._asked = (HERE, os.fsencode(path), 0, INODE | SIZE, self._answer)
        self._inode = ctypes.c_uint64.from_buffer(self._answer, 32)
        self._size = ctypes.c_uint64.from_buffer(self._answer, 40)

    def __call__(self) -> Look:
        if library.statx(*self._asked):
            raise FileNotFoundError(self._asked[1])
        return Look(self._inode.value, self._size.value)


library = ctypes.PyDLL(None)  # keeps the interpreter: to give it away would take longer than the call
