"""How long the server takes for its pages, lists and metrics when the store has a million jobs, idle and beside a busy worker.

The jobs are of seven types on three queues: most have ended and half of these are in the archive, others are due, wait for
their time, for a retry or for room in a throttled queue, are dead, or of a type that nobody handles; and there are runs of
workflows. Times are the server's own, in this process, without a network. `python -m bench.pages URL` is the worker.
"""

import contextlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from litestar.testing import TestClient
from msgspec import Struct

from bench.processes import Started
from holdfast import App, Failed, Fixed
from holdfast.stores.contract import NewToken
from holdfast.web import secret
from holdfast.web.app import create

BATCH = 5000
ROUNDS = 7
RUNS = 200
LIMIT = 10
PATIENCE = 600.0  # seconds for the worker to run what it is given
DAY = 86_400
HTML = {"Accept": "text/html"}
PAGES = (
    "/",
    "/jobs",
    "/jobs?status=pending",
    "/jobs?status=running",
    "/jobs?status=failed",
    "/jobs?status=completed",
    "/jobs?status=dead",
    "/jobs?queue=narrow&status=pending",
    "/jobs?job_type=rare",
    "/jobs?job_key=key-17",
    "/jobs?error=nobody",
    "/jobs?priority=7",
    "/jobs?outcome=aborted",
    "/jobs?archive=yes&job_key=key-17",
    "/jobs?create_time_until=2001-01-01T00:00",
    "/jobs/{ended}",
    "/jobs/{throttled}",
    "/jobs/{due}",
    "/jobs/{dead}",
    "/workflows",
    "/workflows?state=ERROR",
    "/workflows/report/run-0",
    "/workflows/report/run-0?step=count",
    "/builds",
    "/queues",
    "/workers",
    "/schedules?name=nightly",
    "/archive",
    "/archive?job_type=rare",
    "/archive?error=nobody",
    "/archive?outcome=success&end_time_since=2001-01-01T00:00",
    "/settings",
)
LISTS = (
    "/api/v1/jobs",
    "/api/v1/jobs?limit=200",
    "/api/v1/jobs?state=initial",
    "/api/v1/jobs?state=running",
    "/api/v1/jobs?state=error",
    "/api/v1/jobs?state=final",
    "/api/v1/jobs?status=dead",
    "/api/v1/jobs?status=completed",
    "/api/v1/jobs?job_type=rare",
    "/api/v1/jobs?job_type=often&job_key=key-17",
    "/api/v1/jobs?job_key=key-17",
    "/api/v1/jobs?queue=busy&status=completed",
    "/api/v1/jobs?queue=narrow&state=initial",
    "/api/v1/jobs?priority=7",
    "/api/v1/jobs?error=nobody",
    "/api/v1/jobs?worker=1",
    "/api/v1/jobs?run=1",
    "/api/v1/jobs?archive=true",
    "/api/v1/jobs?archive=true&error=nobody",
    "/api/v1/jobs?archive=true&job_type=rare",
    "/api/v1/jobs/{ended}",
    "/api/v1/jobs/{ended}/history",
    "/api/v1/jobs/{throttled}/explain",
    "/api/v1/queues",
    "/api/v1/types",
    "/api/v1/breakers",
    "/api/v1/workers",
    "/api/v1/workflows",
    "/api/v1/workflows?state=SUCCESS",
    "/api/v1/workflows/report/run-0/steps/count/tasks",
    "/api/v1/holds",
    "/api/v1/schedules",
    "/api/v1/schedules/nightly/firings",
)
METRICS = "/metrics"


class Known(Struct, frozen=True):
    """Jobs that are looked at one by one."""

    ended: int
    throttled: int
    due: int
    dead: int


class Asked(Struct, frozen=True):
    """How long the answers to one address took."""

    path: str
    median: float  # milliseconds
    worst: float


def fleet(url: str) -> App:
    app = App(url, patience=60)
    busy, calm, narrow = app.queue("busy"), app.queue("calm"), app.queue("narrow", throttle_limit=LIMIT)

    @busy.job
    async def often(n: int) -> int:
        return n

    @busy.job(retries=0)
    def failing(n: int) -> None:
        raise Failed("no")

    @busy.job(retry=Fixed(DAY))
    def flaky(n: int) -> None:
        raise ConnectionError("nobody answers")

    @calm.job
    def later(n: int) -> None: ...

    @calm.job
    def rare(n: int) -> None: ...

    @narrow.job
    async def limited(n: int) -> None: ...

    report = app.workflow("report")

    @report.step()
    def prepare(task: Any) -> None: ...

    @report.step(after=["prepare"], shards=8)
    def count(task: Any) -> None: ...

    @report.step(after=["count"], retries=0)
    def print_(task: Any) -> None:
        if task.run.trigger.endswith("7"):
            raise ValueError("no paper")

    app.schedule("nightly", cron="0 3 * * *", zone="UTC", job=rare, payload={"n": 0})
    return app


def fill(url: str, jobs: int) -> Known:
    """The instance with so many jobs in every state."""
    with fleet(url) as app:
        types = app.job_types
        types["rare"].enqueue(n=0)
        with working(url):
            for trigger in range(RUNS):
                app.workflows["report"].submit(f"run-{trigger}")
            ended = add(app, "often", jobs * 3 // 10, keyed=True)
            finish(app)
            while app.store.archive(0):
                pass
            ended = add(app, "often", jobs * 3 // 10, keyed=True)
            dead = add(app, "failing", jobs // 200)
            add(app, "flaky", jobs // 200)
            finish(app)
        add(app, "later", jobs // 10, delay=DAY)
        throttled = add(app, "limited", jobs // 10)
        for number in range(3):
            app.enqueue("calm", "unknown", {"n": number})
        due = add(app, "often", jobs * 2 // 10, keyed=True)
        return Known(ended, throttled, due, dead)


def add(app: App, job_type: str, count: int, keyed: bool = False, **options: Any) -> int:
    """So many jobs; the id of the last."""
    kind, last = app.job_types[job_type], 0
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        rows = [kind.using(**options, **({"job_key": f"key-{n}"} if keyed else {})).new(n=n) for n in numbers]
        last = app.enqueue_many(rows)[-1].id
    return last


def finish(app: App) -> None:
    """Until the worker has nothing more to do."""
    ends = time.monotonic() + PATIENCE
    while any(load.ready or load.running for load in app.store.glance().queues):
        assert time.monotonic() < ends, "the worker did not come to an end"
        time.sleep(0.2)


@contextlib.contextmanager
def working(url: str) -> Iterator[None]:
    """A worker in a process of its own."""
    started = Started([sys.executable, "-m", "bench.pages", url], Path(os.devnull))
    try:
        yield
    finally:
        started.stop()


def measure(url: str, known: Known) -> list[Asked]:
    """Every address, asked in turns: what one leaves in a cache helps no other."""
    with fleet(url) as app:
        made = secret.new()
        name = f"bench-{made[-6:]}".replace("_", "-").lower()
        app.store.add_token(NewToken(name=name, hash=secret.hashed(made), scope="read"), "bench")
        with TestClient(create(app), base_url="http://localhost") as client:
            client.headers["Authorization"] = f"Bearer {made}"
            times: dict[str, list[float]] = {path: [] for path in (*PAGES, *LISTS, METRICS)}
            for _ in range(ROUNDS + 1):
                for path, taken in times.items():
                    filled = path.format(**{field: getattr(known, field) for field in known.__struct_fields__})
                    began = time.perf_counter()
                    answer = client.get(filled, headers=HTML if path in PAGES else {})
                    taken.append((time.perf_counter() - began) * 1000)
                    assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
    return [Asked(path, statistics.median(taken[1:]), max(taken[1:])) for path, taken in times.items()]


def main() -> None:
    """The worker, until its driver is gone."""
    app = fleet(sys.argv[1])
    stop = threading.Event()
    threading.Thread(target=lambda: (os.read(0, 1), stop.set()), daemon=True).start()
    with app.worker(concurrency=100):
        stop.wait()


if __name__ == "__main__":
    main()
