"""Real worker processes for tests that kill them: an app with handlers that misbehave, and a way to run it elsewhere."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import App, Fixed, current_job
from holdfast.routines import RoutineTurn

ROOT = Path(__file__).parents[2]


def make_app(url: str, name: str = "fleet", heartbeat: float = 0.5, lost_after: float = 2.0, routine: str = "") -> App:
    """The same app in the test and in its workers."""
    app = App(url, name=name, heartbeat=heartbeat, lost_after=lost_after)
    queue = app.queue("work")

    @queue.job(timeout=60)
    async def nap(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    @queue.job(timeout=60)
    async def tells(seconds: float) -> float:
        """As `nap`, and says that it has begun."""
        current_job().progress(0.0, "begun")
        await asyncio.sleep(seconds)
        return seconds

    @queue.job(timeout=60)
    def block(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    @queue.job(timeout=2, on_crash="timeout", retries=0)
    async def fragile(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @queue.job(max_crashes=2)
    async def segfault() -> None:
        ctypes.string_at(0)

    @queue.job(isolation="process", max_crashes=2, retries=0)
    def segfault_alone() -> None:
        ctypes.string_at(0)

    @queue.job(retries=2, retry=Fixed(0.05))
    async def quick(i: int) -> int:
        return i

    @queue.job(timeout=60)
    async def gate(path: str, tells: bool = False) -> str:
        """Ends when the file exists."""
        if tells:
            current_job().progress(0.0, "begun")
        while not os.path.exists(path):
            await asyncio.sleep(0.02)
        return "open"

    @queue.job(timeout=60)
    async def resume(path: str) -> object:
        """Saves a checkpoint and waits for the file; an attempt that finds one ends with it."""
        job = current_job()
        found = job.checkpoint
        if found is None:
            job.progress(0.7, "seven pages")
            job.log("saving")
            job.checkpoint = {"page": 7}
            while not os.path.exists(path):
                await asyncio.sleep(0.02)
        return found

    if routine:

        @app.routine(every=0.05, timeout=60)
        async def walk(turn: RoutineTurn) -> object:
            """Saves a checkpoint and waits for the file."""
            found = turn.checkpoint
            turn.checkpoint = {"turn": turn.number, "step": 1}
            while not os.path.exists(routine):
                await asyncio.sleep(0.02)
            return {"found": found}

    return app


class Worker:
    """A worker in a process of its own."""

    def __init__(
        self,
        url: str,
        log: Path,
        name: str = "fleet",
        concurrency: int = 1100,
        heartbeat: float = 0.5,
        lost_after: float = 2.0,
        routine: str = "",
        module: str = "tests.faults.fleet",
        more: Sequence[str] = (),
        within: Sequence[str] = (),
    ) -> None:
        """`within`: a program that runs what is named behind it."""
        self.log = log
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [
            *within,
            sys.executable,
            "-m",
            module,
            url,
            name,
            str(concurrency),
            str(heartbeat),
            str(lost_after),
            *((routine,) if module == "tests.faults.fleet" else more),
        ]
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=output)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def terminate(self, timeout: float = 30) -> int:
        self.process.terminate()
        return self.process.wait(timeout)


@contextmanager
def worker(url: str, tmp_path: Path, **settings: object) -> Iterator[Worker]:
    """A worker that is gone at the end, whatever happened."""
    started = Worker(url, tmp_path / "worker.log", **settings)  # type: ignore[arg-type]
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.send_signal(signal.SIGCONT)
            started.process.kill()
            started.process.wait(30)


def until(condition: Callable[[], Any], timeout: float = 60, what: str = "") -> Any:
    """Wait for something to become true; fails the test if it does not."""
    ends = time.monotonic() + timeout
    while time.monotonic() < ends:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {timeout:g} s: {what or condition}")


if __name__ == "__main__":
    url, name, concurrency, heartbeat, lost_after, routine = sys.argv[1:]
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    make_app(url, name, float(heartbeat), float(lost_after), routine).run_worker(
        concurrency=int(concurrency), grace=5.0
    )
