"""Keeps secrets of the environment from other processes of the same user: a build without a sandbox is one.

- Linux shows the variables that a process was started with in `/proc/PID/environ`, also those that it has removed since.
  They are overwritten there, in the process's own memory.
- `hide_process` has the kernel refuse other processes of this user what they could read in /proc: memory, variables,
  open files. It does not bind root.
"""

import ctypes
import os
import sys
from collections.abc import Iterable

from holdfast.worker.processes import refuse_readers

ENV_START = 47  # the place of `env_start` in /proc/self/stat, behind the name of the program; `env_end` follows


def take(names: Iterable[str]) -> dict[str, str]:
    """Remove variables from the environment; their values. Programs that are started later do not get them."""
    found = {name: os.environ.pop(name) for name in names if name in os.environ}
    _overwrite(found)
    return found


def conceal(names: Iterable[str]) -> None:
    """Keep variables for this process and the programs that it starts, but show them to no other process."""
    found = [name for name in names if name in os.environ]
    for name in found:
        os.environ[name] = os.environ[name]  # a copy, which is what `getenv` of C finds from now on
    _overwrite(found)


def hide_process() -> None:
    """Let no other process of this user read this one. It writes no core dump then, and takes no debugger but root's."""
    refuse_readers()


def _overwrite(names: Iterable[str]) -> None:
    """Fill the values with zeros where the kernel found them when the process was started."""
    wanted = {os.fsencode(name) for name in names}
    if not wanted or sys.platform != "linux":
        return
    with open("/proc/self/stat", "rb") as file:
        start, end = map(int, file.read().rpartition(b")")[2].split()[ENV_START : ENV_START + 2])
    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in wanted and value:
            ctypes.memset(at + len(name) + 1, 0, len(value))
        at += len(entry) + 1
