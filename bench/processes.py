"""Processes of a measurement: started apart, watched from outside, ended on any exit."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from bench.marks import Marks

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / "bench" / "environments"
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)


class Stalled(Exception):
    """A measurement did not come to its end in time, or came to a wrong one."""


class Started:
    """One process with its children, and the marks that its handlers leave."""

    def __init__(
        self, command: Sequence[str], log: Path, marks: Marks | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.marks = marks
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment or ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.seen = psutil.Process(self.process.pid)

    def cpu(self) -> float:
        """Seconds of CPU used so far, with all children."""
        return cpu_of(self.seen)

    def memory(self) -> float:
        """Resident megabytes, with all children; pages that they share count once."""
        total = 0
        for process in _tree(self.seen):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().pss
        return total / 1e6

    def own_memory(self) -> float:
        """Resident megabytes of the process alone: what it comes to share less, as it writes, is no growth."""
        return float(self.seen.memory_info().rss / 1e6)

    def dead(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """As a crash would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(5)

    def stop(self, patience: float = 5.0) -> None:
        """Ask, wait, then end the whole group."""
        if not self.dead():
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def cpu_of(process: psutil.Process) -> float:
    """Seconds of CPU of a process and its children, those that ended included."""
    total = 0.0
    for each in _tree(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system
            if each.pid == process.pid:
                total += times.children_user + times.children_system
    return total


def _tree(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@contextlib.contextmanager
def workers(url: str, folder: Path, size: int, count: int = 1, *more: str, **settings: Any) -> Iterator[list[Started]]:
    """So many of our worker processes; `app=` are settings of their app, others of the worker."""
    app = settings.pop("app", {})
    started: list[Started] = []
    try:
        for index in range(count):
            marks = Marks(folder / f"marks-{os.getpid()}-{time.monotonic_ns()}", size)
            command = [sys.executable, "-m", "bench.worker", url, "--marks", str(marks.path), "--size", str(size)]
            command += ["--settings", json.dumps(settings), "--app", json.dumps(app), *more]
            started.append(Started(command, folder / f"worker-{index}.log", marks))
        yield started
    finally:
        end_all(started)


def end_all(started: Sequence[Started]) -> None:
    for each in started:
        each.stop()
        if each.marks:
            each.marks.remove()


def wait_for(
    condition: Callable[[], bool], seconds: float, what: str, started: Sequence[Started] = (), every: float = 0.005
) -> float:
    """When the condition became true; `Stalled` if it does not in time or the processes die."""
    ends = time.monotonic() + seconds
    while True:
        now = time.monotonic()
        if condition():
            return now
        if now > ends:
            raise Stalled(f"not in {seconds:g} s: {what}{_last_words(started)}")
        if started and all(each.dead() for each in started):
            raise Stalled(f"every process died before: {what}{_last_words(started)}")
        time.sleep(every)


def _last_words(started: Sequence[Started]) -> str:
    return "".join(f"; {each.log.read_text(errors='replace')[-600:]}" for each in started)
