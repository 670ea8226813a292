"""Workers at full rate under random kills, for minutes: descriptors, memory, dead rows and logs stay bounded, without a slope.

`SOAK=30 make faults ARGS="-k soak"` soaks for so many minutes; without it, for two. One worker is never killed: its
descriptors and its memory are the ones that are watched. PostgreSQL has stock settings, it vacuums by itself and waits for
the disk; half an hour writes more than memory holds.
"""

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from msgspec import Struct

from holdfast import App
from tests.faults.fleet import Worker, make_app, until
from tests.faults.results import Fault
from tests.postgres_server import Server
from tests.raw_sql import RawSql

MINUTES = float(os.environ.get("SOAK", "2"))
AHEAD = 4000  # jobs in line, so that workers are never idle
MOST_ROWS = 100_000  # that all invariants are checked over; beyond, by counting
DEAD = "select coalesce(sum(n_dead_tup), 0) as dead from pg_stat_user_tables where relname like :mine"
WAL = "select coalesce(sum(size), 0) as size from pg_ls_waldir()"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    server = Server().start()
    yield server.create("soak")
    server.remove()


class Look(Struct, frozen=True):
    """How things stood at one moment."""

    time: float
    done: int
    descriptors: int
    memory: int
    dead: int
    log: int


class Feeder(threading.Thread):
    """Enqueues as fast as the workers work."""

    def __init__(self, app: App, sql: RawSql) -> None:
        super().__init__(daemon=True)
        self.app, self.sql, self.accepted, self.over = app, sql, 0, threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            if self.sql.value("select count(*) as ready from {ready}") < AHEAD:
                self.app.job_types["quick"].enqueue_many([{"i": self.accepted + number} for number in range(1000)])
                self.accepted += 1000
            else:
                self.over.wait(0.05)


@contextmanager
def fleet(url: str, name: str, folder: Path) -> Iterator[list[Worker]]:
    workers = [start(url, name, folder) for _ in range(3)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait(30)


def start(url: str, name: str, folder: Path) -> Worker:
    return Worker(url, folder / "worker.log", name=name, concurrency=50)


@pytest.mark.fault(15)
@pytest.mark.claim("R1", "C2", "C3")
@pytest.mark.faults
@pytest.mark.timeout(MINUTES * 60 + 900)
def test_a_soak_under_kills_leaves_no_slope(url: str, instance: str, tmp_path: Path, fault: Fault) -> None:
    seconds = MINUTES * 60
    luck = fault.luck(20261116)
    looks: list[Look] = []
    feed, sql = RawSql(url, instance), RawSql(url, instance)
    with make_app(url, instance) as app:
        app.find(limit=1)
        feeder = Feeder(app, feed)
        with fleet(url, instance, tmp_path) as workers:
            feeder.start()
            until(lambda: started(sql) > 1000, what="they work")
            ends = time.monotonic() + seconds
            next_kill = time.monotonic() + 1
            while time.monotonic() < ends:
                time.sleep(min(1.0, seconds / 20))
                looks.append(look(sql, workers[0], tmp_path))
                if time.monotonic() >= next_kill:
                    victim = luck.randrange(1, len(workers))
                    workers[victim].kill()
                    fault.injected("kill -9 of a worker at full rate")
                    workers[victim] = start(url, instance, tmp_path)
                    next_kill = time.monotonic() + luck.uniform(2, 8)
            feeder.over.set()
            feeder.join(60)
            until(lambda: not sql("select 1 from {queue:work} where state <> 'final' limit 1"), 300, "all are final")
            assert workers[0].process.poll() is None
        ended = sql("select outcome, count(*) as count, sum(attempt - 1) as again from {queue:work} group by outcome")
        assert [(row["outcome"], row["count"]) for row in ended] == [("success", feeder.accepted)]
        judge(looks, fault, feeder.accepted, int(ended[0]["again"]))
    feed.close()
    sql.close()
    if feeder.accepted <= MOST_ROWS:
        fault.check(url, instance)


def started(sql: RawSql) -> int:
    found: int = sql.value("select count(*) as done from {queue:work} where state = 'final'")
    return found


def look(sql: RawSql, witness: Worker, folder: Path) -> Look:
    process = psutil.Process(witness.process.pid)
    dead = int(sql.value(DEAD, mine=f"{sql.instance}%")) if sql.postgres else 0
    log = int(sql.value(WAL)) if sql.postgres else (folder / "jobs.db-wal").stat().st_size
    ended = sql.value("select coalesce(max(id), 0) as last from {ended}")
    return Look(time.monotonic(), int(ended), process.num_fds(), process.memory_info().rss, dead, log)


def judge(looks: list[Look], fault: Fault, jobs: int, again: int) -> None:
    third = max(1, len(looks) // 3)
    first, last = looks[third : 2 * third] or looks, looks[-third:]

    def typical(name: str, of: list[Look]) -> float:
        return statistics.median(getattr(each, name) for each in of)

    seconds = looks[-1].time - looks[0].time
    fault.measured(
        seconds=round(seconds),
        jobs=jobs,
        jobs_per_second=round(jobs / seconds),
        twice=again,
        descriptors=f"{typical('descriptors', first):g} → {typical('descriptors', last):g}",
        megabytes=f"{typical('memory', first) / 2**20:.0f} → {typical('memory', last) / 2**20:.0f}",
        dead_rows=f"{typical('dead', first):g} → {typical('dead', last):g}",
        log_megabytes=f"{typical('log', first) / 2**20:.0f} → {typical('log', last) / 2**20:.0f}",
    )
    assert typical("descriptors", last) <= typical("descriptors", first) + 10
    assert typical("memory", last) <= typical("memory", first) * 1.2 + 20 * 2**20
    assert typical("dead", last) <= typical("dead", first) * 3 + 200_000
    assert typical("log", last) <= typical("log", first) * 2 + 64 * 2**20
