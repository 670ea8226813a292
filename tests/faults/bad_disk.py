"""A disk that fails at the n-th write: SQLite's own files, with the faults put in between them and the system.

`Disk` is the default file system of every apsw connection opened while it is there. It counts the writes, truncations and syncs
of the files under a folder, and from the `fails_at`-th on lets each of them fail, as a full or broken disk would, or only some.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

NEVER = 2**62
BASE = apsw.vfs_names()[0]  # the default, before it is another


class Disk(apsw.VFS):
    """Every other file system in the process goes on as before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count, self.fails_at, self.heals_at, self.failed = str(folder), 0, NEVER, NEVER, 0
        self.error: type[apsw.Error] = apsw.FullError
        super().__init__("holdfast-bad-disk", base=BASE, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return File(self, name, flags) if path and str(path).startswith(self.folder) else super().xOpen(name, flags)

    def breaks(self, at: int, error: type[apsw.Error], times: int = NEVER) -> None:
        """From the `at`-th write from now on, so many fail; unless that is said, every one."""
        self.count, self.failed, self.fails_at, self.heals_at, self.error = 0, 0, at, at + times, error

    def heals(self) -> None:
        self.fails_at = NEVER

    def touched(self) -> None:
        self.count += 1
        if self.fails_at <= self.count < self.heals_at:
            self.failed += 1
            raise self.error("on purpose")


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self.disk = disk
        super().__init__(BASE, name, flags)

    def xWrite(self, content: Any, offset: int) -> None:
        self.disk.touched()
        super().xWrite(content, offset)

    def xTruncate(self, size: int) -> None:
        self.disk.touched()
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self.disk.touched()
        super().xSync(flags)


@contextmanager
def bad_disk(folder: Path) -> Iterator[Disk]:
    disk = Disk(folder)
    try:
        yield disk
    finally:
        disk.heals()
        disk.unregister()
