"""Marks that handlers leave: how often each job was begun, and when. One file per worker process, mapped into memory.

A job has one byte of count and one float of time (the system-wide monotonic clock), so a driver can tell lost jobs from
doubled ones and knows each latency. Slot `size` is for jobs that only stand beside the measured ones.
"""

import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path


class Marks:
    """The marks of one worker process."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        slots = (size + 8) // 8 * 8  # at least one to spare, and the times behind them aligned
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(slots * 9)
        with path.open("r+b") as file:
            # All of it now, or the marks of a worker would look like memory that grows with its jobs.
            self._map = mmap.mmap(file.fileno(), slots * 9, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        self.counts = memoryview(self._map)[:slots]
        self.times = memoryview(self._map)[slots:].cast("d")

    def hit(self, number: int) -> None:
        """Job `number` was begun now."""
        self.times[number] = time.monotonic()
        if self.counts[number] < 255:
            self.counts[number] += 1

    def begun(self) -> int:
        """How many jobs were begun at least once."""
        return self.size - bytes(self.counts[: self.size]).count(0)

    def remove(self) -> None:
        self.counts.release()
        self.times.release()
        self._map.close()
        os.unlink(self.path)


def lost(all_marks: Sequence[Marks]) -> int:
    """Jobs that nobody began."""
    return sum(not any(each) for each in zip(*(bytes(marks.counts[: marks.size]) for marks in all_marks), strict=True))


def doubled(all_marks: Sequence[Marks]) -> int:
    """Jobs that were begun more than once."""
    return sum(sum(each) > 1 for each in zip(*(bytes(marks.counts[: marks.size]) for marks in all_marks), strict=True))
