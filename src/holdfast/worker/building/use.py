"""What the commands of a build use, compared with its limits.

- Memory and number of processes are kept by a control group where the worker may make one; else they are measured here.
- Disk and free space are always measured here.
- It uses the standard library only.
"""

from __future__ import annotations

import os
import time

from holdfast.worker.building import process_tree
from holdfast.worker.building.control_group import ControlGroup, end_group
from holdfast.worker.building.disk import Disk, free_bytes
from holdfast.worker.building.memory import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DUTY = 0.2  # share of the time that looks may take
Overuse = tuple[str, str]  # the limit, and how much is used


class Use:
    """The use of one build. Each command is between `begin` and `end`."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._disk = Disk(request["work"], request["disk"])
        self._memory = Memory(request["memory"])
        self._group: ControlGroup | None = None
        self._next = 0.0
        self.left = 0  # bytes in memory that stay although every process has ended

    def begin(self, request: dict[str, Any]) -> None:
        self._request = request
        self._next = 0.0
        self._memory.shared_folder = request["shared_folder"]
        self._group = None
        if request["group"] is not None:
            self._group = ControlGroup(request["group"], request["memory"], request["processes"])

    def join(self) -> None:
        """Count this process, which is new."""
        if self._group is not None:
            self._group.join()

    def overuse(self) -> Overuse | None:
        """Return which limit is passed, and by what. Returns None if it is too early for a look."""
        began = time.monotonic()
        if began < self._next:
            return None
        processes = process_tree.descendants(os.getpid())
        found = self._overuse_of_memory(processes, began) or self._overuse_of_disk(processes)
        ended = time.monotonic()
        self._next = ended + (ended - began) / DUTY
        return found

    def _overuse_of_memory(self, processes: list[int], now: float) -> Overuse | None:
        if self._group is not None:
            return self._group.overuse()
        tasks = sum(map(process_tree.count_tasks, processes))
        if tasks > self._request["processes"]:
            return "processes", str(tasks)
        used = self._memory.overuse(processes, now)
        return None if used is None else ("memory", str(used))

    def _overuse_of_disk(self, processes: list[int]) -> Overuse | None:
        free = free_bytes(self._request["work"])
        if free < self._request["disk_reserve"]:
            return "reserve", str(free)
        used = self._disk.overuse(free, processes, time.monotonic())
        return None if used is None else ("disk", str(used))

    def end(self) -> Overuse | None:
        """Return which limit was passed since the last look, as far as it shows when every process has ended."""
        if self._group is not None:
            found = self._group.overuse()
            end_group(self._request["group"])
        else:
            found = None
        self.left = self._memory.left()
        if self.left > self._request["memory"]:
            found = "memory", str(self.left)
        used = self._disk.overuse_at_end()
        return found or (None if used is None else ("disk", str(used)))
