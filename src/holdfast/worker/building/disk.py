"""The use of a disk by a build, and the free space there.

- Counted: every file below the build's work folder, by the blocks it occupies and at least 4 KiB; and files that a process
  holds open although they have no name any more. A hard link counts by its share.
- If there is a folder that cannot be read, what the disk has lost since the build began counts, if that is more.
- A walk goes on in small pieces, so the keeper can attend to other things. It begins anew each second, or later if it takes
  longer; and at once when the disk has lost so much that the build may have passed its limit.
- It uses the standard library only.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import time
from collections.abc import Iterator

from holdfast.worker.building.memory import BLOCK, nameless_files

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LONGEST_PATH = 2000  # characters; the kernel takes twice as many
LEAST = 4096  # bytes that every file counts as
OF_AN_INODE = 16384  # bytes that a free inode counts as: a disk without inodes is full
STRIDE = 200  # files between two looks at the clock
PIECE, HURRIED_PIECE = 0.01, 0.1  # seconds that one look may take
DUTY = 0.05  # share of the time that walks may take
QUICK = 0.1  # seconds; a walk that took no longer is repeated after each command
BETWEEN = 1.0  # seconds from one walk to the next


def free_bytes(path: str) -> int:
    """Return what may still be written on the disk of `path`, or of the nearest folder above it that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    return min(free, disk.f_favail * OF_AN_INODE) if disk.f_files else free


class Disk:
    """The files of one build while a command runs."""

    def __init__(self, folder: str, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._device = os.stat(folder).st_dev
        self._first_free = self._free_before = free_bytes(folder)
        self._used = self._so_far = 0  # as the last walk found, and as this one has found
        self._next = 0.0
        self._walk: Iterator[int] | None = None
        self._cost = 0.0

    def overuse(self, free: int, processes: list[int], now: float) -> int | None:
        """Go on with the walk. Return how many bytes are used, if that is more than the limit."""
        hurried = self._free_before - free > self._limit - self._used
        if self._walk is None:
            if now < self._next and not hurried:
                return None
            self._walk, self._cost, self._free_before = self._sizes(processes), 0.0, free
        finished = self._go_on(self._walk, now + (HURRIED_PIECE if hurried else PIECE))
        self._cost += time.monotonic() - now
        if finished:
            self._walk = None
            self._next = now + max(BETWEEN, self._cost / DUTY)
        return self._used if self._used > self._limit else None

    def overuse_at_end(self) -> int | None:
        """Return how many bytes are used, if that is more than the limit. Walks only if that is quick or needed."""
        free = free_bytes(self._folder)
        if self._cost > QUICK and self._free_before - free <= self._limit - self._used:
            return None
        self._walk, self._free_before = None, free
        began = time.monotonic()
        self._go_on(self._sizes([]), math.inf)
        self._cost = time.monotonic() - began
        return self._used if self._used > self._limit else None

    def _go_on(self, walk: Iterator[int], deadline: float) -> bool:
        """Whether the walk has ended, or has found too much."""
        for used in walk:
            self._so_far = used
            if used > self._limit:
                break
            if time.monotonic() > deadline:
                return False
        self._used = self._so_far
        return True

    def _sizes(self, processes: list[int]) -> Iterator[int]:
        """The bytes found so far, again and again."""
        used = sum(nameless_files(processes, {self._device}).values())
        more, hidden, number = [(_Place(os.open(self._folder, FOLDER)), ".")], False, 0
        yield used
        while more:
            place, path = more.pop()
            try:
                descriptor = os.open(path, FOLDER, dir_fd=place.descriptor)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:  # a folder without rights
                hidden = True
                continue
            if len(path) > LONGEST_PATH:
                place, path = _Place(os.dup(descriptor)), "."
            try:
                for entry in os.scandir(descriptor):
                    with contextlib.suppress(FileNotFoundError):
                        file = entry.stat(follow_symlinks=False)
                        used += _size(file)
                        if stat.S_ISDIR(file.st_mode) and file.st_dev == self._device:
                            more.append((place, f"{path}/{entry.name}"))
                    number += 1
                    if number % STRIDE == 0:
                        yield used
            finally:
                os.close(descriptor)
        yield max(used, self._first_free - free_bytes(self._folder)) if hidden else used


def _size(file: os.stat_result) -> int:
    size = max(file.st_blocks * BLOCK, LEAST)
    return size if stat.S_ISDIR(file.st_mode) else size // max(1, file.st_nlink)


class _Place:
    """A folder, held open: the beginning of paths that would otherwise be too long."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)
