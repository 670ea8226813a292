"""A million finished and a million waiting jobs beside: claims, the dashboard and the archive take as long as with a few."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.beside import POSTGRES, SQLITE, _load_postgres, _load_sqlite
from bench.places import TABLE
from bench.worker import QUEUE, bench_app
from tests.by_hand import WorkerByHand
from tests.faults.results import Fault
from tests.postgres_server import Server

FEW, MANY = 10_000, 1_000_000
ROUNDS = 15
FLAT = 3.0  # times as long, and a little for the clock of a busy machine
A_LITTLE = 0.030  # seconds


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes databases of their own."""
    if request.param == "sqlite":
        return lambda name: f"sqlite:///{tmp_path}/{name}.db"
    server: Server = request.getfixturevalue("postgres")
    return lambda name: server.create(f"{name}_{tmp_path.name[-20:]}".lower().replace("-", "_"))


@pytest.mark.fault(13)
@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_claims_pages_and_the_archive_are_as_quick_beside_a_million_jobs(
    fresh: Callable[[str], str], fault: Fault
) -> None:
    few, many = measured(fresh("few"), FEW), measured(fresh("many"), MANY)
    fault.injected("finished jobs", MANY)
    fault.injected("waiting jobs", MANY)
    fault.measured(**{f"{name}_ms": f"{few[name] * 1000:.1f} → {many[name] * 1000:.1f}" for name in few})
    slower = {name: (few[name], many[name]) for name in few if many[name] > FLAT * few[name] + A_LITTLE}
    assert slower == {}


def measured(url: str, rows: int) -> dict[str, float]:
    """The median of each, in seconds, with so many finished and so many waiting jobs."""
    app = bench_app(url)
    with app:
        app.find(limit=1)
        load(url, rows)
        store = app.store
        worker = WorkerByHand(store, ("noop",), (QUEUE,))

        def claim() -> None:
            worker.succeed(*worker.claim(50, QUEUE))

        app.job_types["noop"].using(priority=1).enqueue_many([{"i": 1}] * 100)
        return {
            "claim_and_settle_50": median(claim),
            "enqueue": median(lambda: app.job_types["noop"].enqueue(i=1)),
            "glance": median(store.glance),
            "page_of_jobs": median(lambda: app.find(limit=50)),
            "archive_200": median(lambda: store.archive(0, 200)),
        }


def median(action: Callable[[], Any], rounds: int = ROUNDS) -> float:
    action()  # the first one makes plans and fills caches
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def load(url: str, rows: int) -> None:
    """Finished ones first; in SQLite the waiting ones have the numbers behind them."""
    texts = POSTGRES if url.startswith("postgresql") else SQLITE
    named = {"count": rows, "spare": 0, "ahead": texts["at once"], "table": TABLE}
    finished, ended, jobs, waiting = (texts[name].format(**named) for name in ("finished", "ended", "jobs", "waiting"))
    waiting += " where state = 'initial'"
    if url.startswith("postgresql"):
        _load_postgres(url, [finished, ended, jobs, waiting])
        _analyze(url)
    else:
        jobs = jobs.replace("select n,", f"select n + {rows},")
        _load_sqlite(url.removeprefix("sqlite:///"), [finished, ended, jobs, waiting], 2 * rows)


def _analyze(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze")
