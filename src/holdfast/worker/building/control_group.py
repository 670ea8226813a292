"""A control group (cgroup v2) for each command of a build: the kernel keeps its memory and its number of processes.

- It counts everything: memory that no process maps, buffers of pipes and sockets, files in memory.
- Groups are made beside the worker's own group, in a folder that was delegated to the worker. The worker's own group cannot
  hold them: a group with processes has no groups with limits below it.
- It uses the standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time

ROOT, OWN = "/sys/fs/cgroup", "/proc/self/cgroup"
CONTROLLERS = {"memory", "pids"}
DELEGATED = ("user.delegate", "trusted.delegate")  # attributes by which systemd marks what it has delegated
END_PATIENCE = 5.0  # seconds until the kernel has ended the processes of a group


def find_parent(root: str = ROOT, own: str = OWN) -> str | None:
    """Return the folder in which this process may make groups with limits; None if there is none."""
    group = _own_group(own)
    if group in (None, "/"):
        return None
    assert group is not None
    parent = os.path.normpath(root + os.path.dirname(group))
    if not (os.access(parent, os.W_OK) and os.access(f"{parent}/cgroup.procs", os.W_OK)):
        return None
    if parent != os.path.normpath(root) and not _is_delegated(parent):
        return None
    return parent if _has_controllers(parent) else None


def _own_group(own: str) -> str | None:
    with contextlib.suppress(OSError), open(own, encoding="utf-8") as file:
        return next((line[3:].rstrip("\n") for line in file if line.startswith("0::/")), None)
    return None


def _is_delegated(folder: str) -> bool:
    for name in DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _has_controllers(parent: str) -> bool:
    """Whether groups below it have limits of memory and processes; turns these on where the parent has them."""
    path = f"{parent}/cgroup.subtree_control"
    if not set(_words(path)) >= CONTROLLERS:
        with contextlib.suppress(OSError):
            _write(path, " ".join(f"+{name}" for name in sorted(CONTROLLERS)))
    return set(_words(path)) >= CONTROLLERS


class ControlGroup:
    """The group of one command."""

    def __init__(self, folder: str, memory: int, processes: int) -> None:
        self._folder = folder
        os.makedirs(folder, exist_ok=True)
        limits = {"memory.max": memory, "memory.swap.max": 0, "memory.oom.group": 1, "pids.max": processes}
        for name, value in limits.items():
            if name != "memory.swap.max" or os.path.exists(f"{folder}/{name}"):  # not there on a kernel without swap
                _write(f"{folder}/{name}", str(value))

    def join(self) -> None:
        """Put this process in."""
        _write(f"{self._folder}/cgroup.procs", "0")

    def overuse(self) -> tuple[str, str] | None:
        """Return which limit the kernel has enforced, and the bytes or processes at most at once."""
        if _event(f"{self._folder}/memory.events", "oom_kill"):
            return "memory", self._most("memory")
        if _event(f"{self._folder}/pids.events", "max"):
            return "processes", self._most("pids")
        return None

    def _most(self, controller: str) -> str:
        """Linux 5.19 and later know the peak; before, it is the limit itself."""
        words = _words(f"{self._folder}/{controller}.peak") or _words(f"{self._folder}/{controller}.max")
        return words[0] if words else "0"


def end_group(folder: str) -> None:
    """End every process of a group and remove the group; nothing happens if there is none."""
    deadline = time.monotonic() + END_PATIENCE
    while os.path.isdir(folder) and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            _write(f"{folder}/cgroup.kill", "1")
        try:
            for path, _, _ in os.walk(folder, topdown=False):
                os.rmdir(path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            time.sleep(0.005)


def _event(path: str, name: str) -> int:
    words = _words(path)
    return int(words[words.index(name) + 1]) if name in words else 0


def _words(path: str) -> list[str]:
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        return file.read().split()
    return []


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
