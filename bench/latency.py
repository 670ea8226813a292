"""From the call of enqueue to the first line of the handler, on an idle worker: one job each 20 ms."""

import json
import time
from collections.abc import Sequence

import apsw
from msgspec import Struct

from bench.places import Place
from bench.processes import Stalled, Started, wait_for, workers
from bench.worker import bench_app, enqueue_steadily

GAP = 0.02


class Latency(Struct, frozen=True):
    """Milliseconds."""

    p50: float
    p99: float


def from_another_process(place: Place, count: int) -> Latency:
    url = place.fresh()
    with bench_app(url) as app, workers(url, place.folder, count) as started:
        app.job_types["noop"].enqueue(i=count)
        marks = started[0].marks
        assert marks
        wait_for(lambda: marks.counts[count] > 0, 20, "the worker runs a first job", started)
        time.sleep(1)
        began = enqueue_steadily(app, count, GAP)
        return measured(began, started)


def from_the_same_process(place: Place, count: int) -> Latency:
    url = place.fresh()
    with workers(url, place.folder, count, 1, "--enqueue", str(count), "--gap", str(GAP)) as started:
        marks = started[0].marks
        assert marks
        wait_for(lambda: marks.begun() == count, 30 + count * GAP, f"{count} jobs begun", started, every=0.2)
        output = started[0].process.stdout
        assert output
        return measured(json.loads(output.readline()), started)


def bare_commit(place: Place, count: int) -> Latency:
    """SQLite's own part of it: two rows and a commit, after as long a rest."""
    database = apsw.Connection(str(place.folder / "bare.db"))
    for setting in ("journal_mode=wal", "synchronous=full"):
        database.execute(f"pragma {setting}")
    database.execute("create table if not exists bare (id integer primary key, payload text)")
    taken = []
    for _ in range(count):
        time.sleep(GAP)
        began = time.perf_counter()
        with database:
            database.executemany("insert into bare (payload) values (?)", [("{}",), ("{}",)])
        taken.append((time.perf_counter() - began) * 1000)
    database.close()
    return quantiles(taken)


def measured(began: Sequence[float], started: Sequence[Started], first: int = 0) -> Latency:
    """What the marks of the worker say of jobs that were enqueued at these moments, numbered from `first`."""
    marks = started[0].marks
    assert marks
    last = first + len(began)
    wait_for(lambda: 0 not in marks.counts[first:last], 20, f"{len(began)} jobs begun", started, every=0.05)
    return quantiles([(marks.times[first + number] - moment) * 1000 for number, moment in enumerate(began)])


def quantiles(milliseconds: Sequence[float]) -> Latency:
    if not milliseconds:
        raise Stalled("no latency was measured")
    ordered = sorted(milliseconds)
    return Latency(ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))])
