"""The keeper of a build as its thread sees it: commands go in, and how they ended comes out."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from holdfast.builds.order import Limits

PROGRAM = Path(__file__).with_name("keeper.py")
PATIENCE = 8.0  # seconds that a keeper has to end everything


class Ended(Struct, frozen=True):
    """How a command ended: by itself, with a code, or because of something."""

    code: int | None
    why: Literal["timeout", "silence", "log", "memory", "processes", "broken", "stopped"] | None = None
    detail: str = ""
    line: int = 0  # which line it came to, from 1 on; 0 if not even the first began


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
    secrets: Sequence[str]


class Keeper:
    """A keeper at work. `stop` may be called from any thread; everything else from one."""

    def __init__(self, log: int, echo: int | None, limits: Limits, secrets: Sequence[str] = ()) -> None:
        self._limits, self._secrets = limits, list(secrets)
        self._lock = threading.Lock()
        self._stopped = False
        # Copies: in the keeper the numbers 0 to 2 are its own.
        kept = [os.dup(descriptor) for descriptor in ((log,) if echo is None else (log, echo))]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(PROGRAM), str(kept[0]), str(kept[1] if echo is not None else -1)],
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
    ) -> Ended:
        """Run a command to its end; `Stopped` if the build is told to end meanwhile, `Lost` if the keeper dies."""
        request = _Request(
            arguments=arguments,
            env=env,
            cwd=str(cwd),
            timeout=timeout,
            silence_timeout=silence_timeout,
            log_room=log_room,
            memory=self._limits.memory,
            processes=self._limits.processes,
            file_size=self._limits.file_size,
            secrets=self._secrets,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            with self._lock:
                if self._stopped:
                    raise Stopped
                self._process.stdin.write(msgspec.json.encode(request) + b"\n")
                self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except (BrokenPipeError, ValueError):
            answer = b""
        if self._stopped:
            raise Stopped
        if not answer:
            raise Lost("the process that watches over the build was killed")
        return msgspec.json.decode(answer, type=Ended)

    def stop(self) -> None:
        """Have everything ended. `run` raises `Stopped` when it is."""
        with self._lock:
            self._stopped = True
            self._hang_up()

    def close(self) -> None:
        """Returns when no process of the build is left."""
        with self._lock:
            self._hang_up()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
