"""The keeper of a build as its thread sees it: commands go in, and how they ended comes out."""

import contextlib
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Literal

import msgspec
from msgspec import Struct

from holdfast.builds.order import Limits
from holdfast.clock import monotonic
from holdfast.worker.building import control_group, process_tree

PROGRAM = Path(__file__).with_name("keeper.py")
# Makes empty packages of the names that the program imports by: to import Holdfast itself takes five times as long.
START = """
import sys, types
from os.path import dirname
path, log, echo = sys.argv[1:]
for name in ("holdfast.worker.building", "holdfast.worker", "holdfast"):
    path = dirname(path)
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from holdfast.worker.building import guardian
guardian.main(int(log), int(echo))
"""
PATIENCE = 8.0  # seconds that a keeper has to end everything
TICK = 1.0  # seconds between two looks whether the guardian still runs
MARK = "HOLDFAST_KEEPER"  # variable of every command: the build that it belongs to


class Ended(Struct, frozen=True):
    """How a command ended: by itself, with a code, or because of something."""

    code: int | None
    why: Literal["timeout", "silence", "log", "memory", "processes", "disk", "reserve", "broken", "stopped"] | None = (
        None
    )
    detail: str = ""
    line: int = 0  # which line it came to, from 1 on; 0 if not even the first began
    left: int = 0  # bytes that stay in memory although every process has ended


class Stopped(Exception):
    """The build was told to end."""


class Lost(Exception):
    """The keeper is gone; its processes with it, unless it was killed."""


class _Request(Struct, frozen=True, kw_only=True):
    arguments: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    timeout: float | None
    silence_timeout: float | None
    log_room: int
    memory: int
    processes: int
    file_size: int
    disk: int
    disk_reserve: int
    work: str
    shared_folder: str | None
    group: str | None
    secrets: Sequence[bytes]  # the keeper writes `***` to the log in place of these


class Bounds(Struct, frozen=True, kw_only=True):
    """What bounds the commands of a build: its limits, the folder whose files count, and the machine."""

    limits: Limits
    work: Path
    disk_reserve: int = 0  # bytes that stay free on the disk of that folder
    group_parent: str | None = None  # where a control group can be made for each command


class Keeper:
    """A keeper at work. `stop` may be called from any thread; everything else from one."""

    def __init__(self, log: int, echo: int | None, bounds: Bounds, secrets: Sequence[bytes] = ()) -> None:
        self._bounds, self._secrets = bounds, list(secrets)
        self._lock = threading.Lock()
        self._stop_time: float | None = None
        self._mark = token_hex(8)
        parent = bounds.group_parent
        self._group = None if parent is None else f"{parent}/holdfast-build-{self._mark}"
        # Copies: in the keeper the numbers 0 to 2 are its own.
        kept = [os.dup(descriptor) for descriptor in ((log,) if echo is None else (log, echo))]
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-c", START, str(PROGRAM)),
                    *(str(kept[0]), str(kept[1] if echo is not None else -1)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=kept,
                start_new_session=True,
                cwd="/",
                # Only what Python itself may need to start: builds can read this where there is no sandbox.
                env={name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"},
            )
        finally:
            for descriptor in kept:
                os.close(descriptor)

    def run(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        *,
        timeout: float | None,
        silence_timeout: float | None,
        log_room: int,
        shared_folder: str | None,
    ) -> Ended:
        """Run a command to its end. Raises `Stopped` if the build is to end, and `Lost` if the keeper dies."""
        limits = self._bounds.limits
        request = _Request(
            arguments=arguments,
            env={**env, MARK: self._mark},
            cwd=str(cwd),
            timeout=timeout,
            silence_timeout=silence_timeout,
            log_room=log_room,
            memory=limits.memory,
            processes=limits.processes,
            file_size=limits.file_size,
            disk=limits.disk,
            disk_reserve=self._bounds.disk_reserve,
            work=str(self._bounds.work),
            shared_folder=shared_folder,
            group=self._group,
            secrets=self._secrets,
        )
        assert self._process.stdin is not None
        try:
            with self._lock:
                if self._stop_time is not None:
                    raise Stopped
                self._process.stdin.write(msgspec.json.encode(request) + b"\n")
                self._process.stdin.flush()
            answer = self._answer()
        except (BrokenPipeError, ValueError):
            answer = b""
        if self._stop_time is not None:
            raise Stopped
        ended = msgspec.json.decode(answer, type=Ended) if answer else None
        if ended is None or ended.why == "stopped":
            raise Lost("a process that watches over the build was killed or stopped")
        return ended

    def _answer(self) -> bytes:
        """The keeper's next line; empty if it is gone, stopped, or does not end in time after `stop`."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not selector.select(TICK):
                overstays = self._stop_time is not None and monotonic() > self._stop_time + PATIENCE
                if overstays or process_tree.is_stopped(self._process.pid):
                    return b""
        return self._process.stdout.readline()

    def stop(self) -> None:
        """Have everything ended. `run` raises `Stopped` when it is."""
        with self._lock:
            self._stop_time = self._stop_time or monotonic()
            self._hang_up()

    def close(self) -> None:
        """Return when no process of the build is left."""
        with self._lock:
            self._hang_up()
        try:
            self._process.wait(0 if process_tree.is_stopped(self._process.pid) else PATIENCE)
        except subprocess.TimeoutExpired:
            process_tree.end_all(lambda: process_tree.living_below(self._process.pid))
            self._process.kill()
            self._process.wait()
        if self._group is not None:
            control_group.end_group(self._group)  # a keeper that was killed has left it
        if self._process.returncode != 0:
            process_tree.end_all(lambda: process_tree.marked(f"{MARK}={self._mark}"))
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
