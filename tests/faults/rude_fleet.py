"""Handlers that do what handlers should not, among well-behaved ones; the same app in the test and in its worker."""

import asyncio
import ctypes
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from typing import Any

from holdfast import App, current_job

MOST_EATEN = 400 * 2**20  # bytes


def make_app(url: str, name: str, heartbeat: float = 0.5, lost_after: float = 5.0) -> App:
    app = App(url, name=name, heartbeat=heartbeat, lost_after=lost_after)
    queue = app.queue("work")

    @queue.job
    async def good(i: int) -> int:
        return i

    @queue.job(isolation="process", max_crashes=2)
    def segfaults() -> None:
        ctypes.string_at(0)

    @queue.job(isolation="process", max_crashes=2)
    def eats_memory() -> None:
        """Until it is killed for it; no machine is to suffer if nobody does."""
        eaten = bytearray()
        while len(eaten) < MOST_EATEN:
            eaten += b"x" * 2**20
        time.sleep(3600)

    @queue.job(isolation="process", retries=0)
    def eats_all_it_may() -> int:
        """It has a limit, as `ulimit -v` sets it, and meets it."""
        resource.setrlimit(resource.RLIMIT_AS, (MOST_EATEN, MOST_EATEN))
        return len(bytes(MOST_EATEN))

    @queue.job(timeout=1, retries=0)
    async def ignores_cancellation() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                current_job().log("no")

    @queue.job(timeout=1, retries=0, isolation="process")
    def ignores_signals(pids: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(pids, "a") as file:
            file.write(f"{os.getpid()}\n")
        while True:
            time.sleep(3600)

    @queue.job(timeout=1, retries=0, isolation="process")
    def forks(pids: str) -> None:
        """A child with a child of its own, deaf to SIGTERM."""
        code = f"import os, signal, time; signal.signal(15, 1); os.fork(); open({pids!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(3600)"
        subprocess.run([sys.executable, "-c", code], check=True)

    @queue.job(isolation="process")
    def closes_streams() -> str:
        os.close(1)
        os.close(2)
        return "still here"

    @queue.job
    def closes_stdout() -> str:
        """Everybody's: this handler is in the worker itself."""
        sys.stdout.close()
        return "still here"

    @queue.job(timeout=600)
    def floods(megabytes: int) -> int:
        return flood(megabytes)

    @queue.job(timeout=600, isolation="process")
    def floods_from_a_process(megabytes: int) -> int:
        return flood(megabytes)

    @queue.job(timeout=1, retries=0)
    def never_returns() -> None:
        while True:
            time.sleep(3600)

    return app


def flood(megabytes: int) -> int:
    line = os.urandom(50_000).hex()  # no database makes less of it
    for number in range(10 * megabytes):
        current_job().log(f"{number} {line}")  # a text of its own: whoever keeps it needs the room
    return megabytes


def enqueue_all(app: App, pids: str, megabytes: int) -> dict[str, Any]:
    arguments: dict[str, dict[str, Any]] = {
        "forks": {"pids": pids},
        "ignores_signals": {"pids": pids},
        "floods": {"megabytes": megabytes},
        "floods_from_a_process": {"megabytes": megabytes},
    }
    return {
        name: job_type.enqueue(**arguments.get(name, {})) for name, job_type in app.job_types.items() if name != "good"
    }


if __name__ == "__main__":
    url, name, concurrency, heartbeat, lost_after = sys.argv[1:]
    logging.basicConfig(level=logging.INFO)
    make_app(url, name, float(heartbeat), float(lost_after)).run_worker(concurrency=int(concurrency), grace=1.0)
