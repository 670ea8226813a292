"""Workers at full rate under random kills, for minutes: descriptors, memory, dead rows and logs stay bounded, without a slope.

`SOAK=30 make faults ARGS="-k soak"` soaks for so many minutes; without it, for two. One worker is never killed: its
descriptors and its memory are the ones that are watched. PostgreSQL vacuums by itself and waits for the disk,
and is told to clean up oftener than by default, so that two minutes are enough to see what stays; half an hour writes more
than memory holds.
"""

import itertools
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
PLATEAU = ("max_wal_size=128MB", "min_wal_size=64MB", "checkpoint_timeout=30s", "autovacuum_naptime=5s")
AHEAD = 4000  # jobs in line, so that workers are never idle
KEPT_ROWS = 20_000  # of those that ended at once
# How much more of each for 1000 jobs is a leak, and how much in all is none, whatever the slope.
SLOPES = {
    "descriptors": (0.01, 2),
    "memory": (1024, 2**20),  # bytes
    "dead": (20, 100_000),  # rows; autovacuum comes once a minute
    "log": (4096, 64 * 2**20),  # bytes; a checkpoint comes when it does
}
DEAD = "select coalesce(sum(n_dead_tup), 0) as dead from pg_stat_user_tables where relname like :mine"
WAL = "select coalesce(sum(size), 0) as size from pg_ls_waldir()"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    server = Server(settings=PLATEAU).start()
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
    check_all(sql, fault, url)
    feed.close()
    sql.close()


def check_all(sql: RawSql, fault: Fault, url: str) -> None:
    """All invariants. They are looked through in memory, so of a great many rows first by statements, then of those that say most."""
    wrong = """select j.id from {queue:work} j left join (select job, count(*) as count from {attempt} group by job) a on a.job = j.id
      where j.state <> 'final' or j.outcome <> 'success' or j.error <> 'NONE' or j.attempt <> coalesce(a.count, 0) + 1 or j.end_time is null
        or j.start_time < j.scheduled_run_time or j.end_time < j.start_time limit 5"""
    assert sql(wrong) == []
    for place in ("ready", "waiting", "aside", "parked", "undecided", "held", "key", "dead", "lease", "abort"):
        assert sql(f"select 1 from {{{place}}} limit 1") == [], f"something is left in {place}"
    sql(
        "delete from {queue:work} where attempt = 1 and id < (select max(id) from {queue:work}) - :kept", kept=KEPT_ROWS
    )
    fault.check(url, sql.instance)


def started(sql: RawSql) -> int:
    found: int = sql.value("select count(*) as done from {queue:work} where state = 'final'")
    return found


def look(sql: RawSql, witness: Worker, folder: Path) -> Look:
    process = psutil.Process(witness.process.pid)
    dead = int(sql.value(DEAD, mine=f"{sql.instance}%")) if sql.postgres else 0
    log = int(sql.value(WAL)) if sql.postgres else (folder / "jobs.db-wal").stat().st_size
    stored = sql.value("select coalesce(max(id), 0) as last from {queue:work}")
    return Look(time.monotonic(), int(stored), process.num_fds(), process.memory_info().rss, dead, log)


def judge(looks: list[Look], fault: Fault, jobs: int, again: int) -> None:
    """Over the second half, when everything is warm, nothing grows with the jobs that are done."""
    later = looks[len(looks) // 2 :]
    seconds = looks[-1].time - looks[0].time
    slopes = {name: slope([each.done for each in later], [getattr(each, name) for each in later]) for name in SLOPES}
    fault.measured(
        seconds=round(seconds),
        jobs=jobs,
        jobs_per_second=round(jobs / seconds),
        twice=again,
        **{f"{name}_per_1000_jobs": round(1000 * each, 3) for name, each in slopes.items()},
        **{name: f"{getattr(looks[0], name)} → {getattr(looks[-1], name)}" for name in SLOPES},
    )
    grown = (later[-1].done - later[0].done) / 1000
    for name, (most, noise) in SLOPES.items():
        most_grown = max(most * grown, noise)
        assert slopes[name] * 1000 * grown <= most_grown, (
            f"{name}: {1000 * slopes[name]:.1f} more for 1000 jobs, {grown:.0f} times"
        )


def slope(x: list[int], y: list[int]) -> float:
    """Of the line that is nearest to most: the median of the slopes of all pairs (Theil and Sen)."""
    pairs = itertools.combinations(zip(x, y, strict=True), 2)
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if a[0] != b[0])
