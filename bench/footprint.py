"""What a worker costs while it waits, per job in its hand, and at its start."""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench.places import Place, Postgres, load
from bench.processes import ENVIRONMENT, ROOT, wait_for, workers

BARE_TASKS = """
import asyncio, psutil

async def handler():
    await asyncio.sleep(300)

async def main():
    await asyncio.sleep(0.1)
    before = psutil.Process().memory_info().rss
    tasks = [asyncio.create_task(handler()) for _ in range({count})]
    await asyncio.sleep(0.5)
    print((psutil.Process().memory_info().rss - before) / {count}, flush=True)
    __import__("os")._exit(0)

asyncio.run(main())
"""


class Idle(Struct, frozen=True):
    """A worker with nothing to do."""

    memory: float  # MB
    cpu: float  # percent of a core
    transactions: float  # per second, on PostgreSQL


def idle(place: Place, seconds: float) -> Idle:
    url = place.fresh()
    load(url, 1)
    with workers(url, place.folder, 1) as started:
        marks = started[0].marks
        assert marks
        wait_for(lambda: marks.begun() == 1, 20, "the worker runs a first job", started)
        time.sleep(12)  # PostgreSQL counts what an idle connection did up to ten seconds later
        if isinstance(place, Postgres):
            place.leave_alone()  # autovacuum's transactions are not the worker's
        before = place.transactions() if isinstance(place, Postgres) else 0
        cpu, began = started[0].cpu(), time.monotonic()
        time.sleep(seconds)
        after = place.transactions() if isinstance(place, Postgres) else 0
        took = time.monotonic() - began
        return Idle(started[0].memory(), (started[0].cpu() - cpu) / took * 100, (after - before) / took)


def memory_per_job(place: Place, count: int) -> float:
    """Bytes of resident memory for each sleeping job in hand, all of them in hand at once."""
    url = place.fresh()
    load(url, count)  # which end at once, and leave the database's page cache as full as it gets
    with workers(url, place.folder, count, concurrency=count) as started:
        marks = started[0].marks
        assert marks
        wait_for(lambda: marks.begun() == count, 60, "the worker has run as many jobs before", started)
        time.sleep(0.5)
        before = started[0].own_memory()
        load(url, count, "sleeper", seconds=300)
        wait_for(lambda: sum(bytes(marks.counts[:count])) == 2 * count, 60, f"{count} jobs in hand", started, every=0.1)
        time.sleep(0.5)
        found = (started[0].own_memory() - before) * 1e6 / count
        started[0].kill()
        return found


def memory_per_bare_task(count: int) -> float:
    """The same for asyncio tasks that only sleep, without any queue: what the handlers themselves take."""
    command = [sys.executable, "-c", BARE_TASKS.format(count=count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return float(done.stdout)


def start_time(code: str, runs: int) -> float:
    """Milliseconds to run a piece of Python beyond a bare interpreter's start."""
    bare, ours = [], []
    _timed([sys.executable, "-c", code])  # leaves the bytecode behind, as an installation does
    for _ in range(runs):
        bare.append(_timed([sys.executable, "-c", "pass"]))
        ours.append(_timed([sys.executable, "-c", code]))
    return median(ours) - median(bare)


def help_time(runs: int) -> float | None:
    """Milliseconds of `holdfast --help`; None where there is no such command yet."""
    program = Path(sys.executable).with_name("holdfast")
    command = [str(program), "--help"] if program.exists() else [sys.executable, "-m", "holdfast.cli", "--help"]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, timeout=30, check=False)
    if done.returncode or not done.stdout:
        return None
    return median(_timed(command) for _ in range(runs))


def _timed(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, timeout=30, check=True)
    return (time.monotonic() - began) * 1000
