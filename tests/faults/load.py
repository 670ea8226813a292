"""Jobs without end for a fleet whose database is maltreated, and what can be said afterwards."""

import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from holdfast import App, HoldfastError
from tests.faults.fleet import until
from tests.faults.results import Fault
from tests.raw_sql import RawSql

BACKLOG = 2000
MANY = 100_000  # jobs
BATCH = 100
WINDOW = 1.0  # seconds over which a rate is taken
BACK = 0.5  # of the rate that was: it goes on
NEARLY = 0.8  # of a rate is that rate: so far apart are two moments of one run
LOST_AFTER = 2.0  # of the fleet
LONG = 20  # jobs that run through all of it
ENDED = "select id, cardinality(ids) as count from {ended} where id > :last order by id"
UNSURE = 100  # of the last ends: others that began before them may be stored after them


class Load(threading.Thread):
    """Enqueues as long as it may, and goes on after every error. `url` is where counting goes, whatever is broken."""

    def __init__(self, app: App, url: str, pause: float) -> None:
        super().__init__(daemon=True)
        self.app, self.url, self.pause = app, url, pause
        self.accepted: list[int] = []
        self.refused = 0
        self.done = 0
        self._counted = 0, 0  # up to which end, and how many jobs they are
        self._sql: RawSql | None = None
        self._lock = threading.Lock()
        self._ends = threading.Event()

    def run(self) -> None:
        quick = self.app.job_types["quick"]
        while not self._ends.is_set():
            if len(self.accepted) - self.done > BACKLOG:
                self._ends.wait(0.01)
                self.count()
                continue
            try:
                self.accepted += [job.id for job in quick.enqueue_many([{"i": i} for i in range(BATCH)])]
                self._ends.wait(self.pause)
            except HoldfastError:
                self.refused += 1
                self._ends.wait(0.02)

    def count(self) -> int:
        """How many have ended; while nobody can be asked, as many as before. What was counted is not read again: with millions of
        jobs that would be the load.
        """
        with self._lock:
            try:
                self._sql = self._sql or RawSql(self.url, self.app.name)
                last, before = self._counted
                ends = self._sql(ENDED, last=last)
                self.done = before + sum(end["count"] for end in ends)
                if sure := ends[:-UNSURE]:
                    self._counted = sure[-1]["id"], before + sum(end["count"] for end in sure)
            except psycopg.Error:
                self._sql = None
        return self.done

    def rate(self, seconds: float = 1.0) -> float:
        """Jobs a second, from now on for so long."""
        began, first = time.monotonic(), self.count()
        time.sleep(seconds)
        return (self.count() - first) / (time.monotonic() - began)

    def typical(self, windows: int = 7) -> float:
        """The median of so many rates, one after the other."""
        return statistics.median(self.rate(WINDOW) for _ in range(windows))

    def best(self, enough: float, windows: int = 15) -> float:
        """The best of so many rates, or the first that is enough."""
        found = 0.0
        for _ in range(windows):
            found = max(found, self.rate(WINDOW))
            if found >= enough:
                break
        return found

    def recovery(self, since: float, rate: float, within: float = 60.0) -> float:
        """Seconds from a moment until the rate comes back."""
        seen: deque[tuple[float, int]] = deque()
        while True:
            now, count = time.monotonic(), self.count()
            assert now - since < within, f"after {within:g} s only {count} jobs have ended; it was {rate:.0f} a second"
            seen.append((now, count))
            while len(seen) > 2 and now - seen[1][0] >= WINDOW:
                seen.popleft()
            elapsed = now - seen[0][0]
            if elapsed >= WINDOW and count - seen[0][1] >= BACK * rate * elapsed:
                return max(0.0, seen[0][0] - since)
            time.sleep(0.02)

    def stop(self) -> None:
        self._ends.set()
        self.join(60)

    def close(self) -> None:
        self.stop()
        if self._sql is not None:
            self._sql.connection.close()


@contextmanager
def long_jobs(app: App, folder: Path, count: int = LONG) -> Iterator[None]:
    """Some jobs run through all that is done inside; at the end each has been begun once, by whom it has ended."""
    gate = folder / "gate"
    held = app.job_types["gate"].using(timeout=900).enqueue_many([{"path": str(gate)} for _ in range(count)])
    until(lambda: len(app.find(state="running", job_type="gate", limit=100)) == count, what="they run")
    workers = {job.id: job.refresh().worker for job in held}
    yield
    time.sleep(LOST_AFTER * 1.5)  # whoever counted an outage would strike now
    gate.touch()
    ended = [job.wait(60) for job in held]
    assert {(job.outcome, job.attempt, job.losses) for job in ended} == {("success", 1, 0)}
    assert {job.id: job.worker for job in ended} == workers


@contextmanager
def load(app: App, url: str, fault: Fault, full: bool = True) -> Iterator[Load]:
    """Jobs all the time, as many as can be or (not `full`) some.

    At the end everything accepted has succeeded, nobody was called lost, all invariants hold.
    """
    jobs = Load(app, url, 0.0 if full else 0.1)
    jobs.start()
    try:
        until(lambda: jobs.count() > BATCH, what="the load has begun")
        yield jobs
        jobs.stop()
        until(lambda: nothing_left(url, app.name), 120, what="everything has ended")
    finally:
        jobs.close()
    sql = RawSql(url, app.name)
    outcomes = sql(
        "select outcome, count(*) as count, sum(attempt - 1) as more from {job} where job_type = 'quick' group by outcome"
    )
    lost = sql("select id from {worker} where gone = 'lost'")
    sql.connection.close()
    assert [row["outcome"] for row in outcomes] == ["success"], outcomes
    assert lost == [], "a live worker was called lost"
    fault.measured(jobs=int(outcomes[0]["count"]), twice=int(outcomes[0]["more"]))
    fault.check(url, app.name, thinned(url, app.name, jobs.accepted))


def thinned(url: str, name: str, accepted: list[int]) -> list[int]:
    """What was accepted and is there still. Invariants are looked through in memory: of a great many jobs that ended at once some are
    left, after all that was accepted has been found.
    """
    if len(accepted) <= MANY:
        return accepted
    sql = RawSql(url, name)
    for first in range(0, len(accepted), MANY):
        lot = accepted[first : first + MANY]
        found = sql.value("select count(*) as count from {queue:work} where id = any(:lot)", lot=lot)
        assert found == len(lot), (
            f"I1: {len(lot) - found} of the jobs from {lot[0]} to {lot[-1]} were accepted and are gone"
        )
    last = accepted[-MANY]
    sql("delete from {queue:work} where attempt = 1 and id < :last", last=last)
    again = {row["id"] for row in sql("select id from {queue:work} where id < :last", last=last)}
    sql.connection.close()
    return [job for job in accepted if job >= last or job in again]


def nothing_left(url: str, name: str) -> bool:
    sql = RawSql(url, name)
    try:
        left: Any = sql("select count(*) as count from {job} where state <> 'final'")[0]["count"]
    finally:
        sql.connection.close()
    return bool(left == 0)
