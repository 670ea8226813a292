"""How long the API takes for its lists when the store has a million jobs: `python -m bench.lists [--jobs N] [--url URL]`.

The jobs are of four types on two queues; most have ended, some wait, a few are dead. Times are the server's own, in this
process, without a network.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from litestar.testing import TestClient

from holdfast import App, Failed
from holdfast.web import secret
from holdfast.web.app import create

BATCH = 5000
ROUNDS = 20
PATHS = (
    "/api/v1/jobs",
    "/api/v1/jobs?limit=200",
    "/api/v1/jobs?state=initial",
    "/api/v1/jobs?state=running",
    "/api/v1/jobs?state=error",
    "/api/v1/jobs?status=dead",
    "/api/v1/jobs?status=completed",
    "/api/v1/jobs?job_type=rare",
    "/api/v1/jobs?job_type=often&job_key=key-17",
    "/api/v1/jobs?queue=busy&status=completed",
    "/api/v1/jobs?priority=7",
    "/api/v1/jobs?error=nobody",
    "/api/v1/queues",
    "/api/v1/types",
    "/api/v1/workers",
    "/api/v1/workflows",
    "/api/v1/schedules",
    "/metrics",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--url", help="the database; a new SQLite file if not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        app = fleet(options.url or f"sqlite:///{Path(folder) / 'lists.db'}")
        began = time.perf_counter()
        fill(app, options.jobs)
        print(f"{options.jobs:,} jobs after {time.perf_counter() - began:.0f} s")
        measure(app)
        app.close()


def fleet(url: str) -> App:
    app = App(url, name="lists", patience=60)
    busy, calm = app.queue("busy"), app.queue("calm")

    @busy.job(name="often")
    def often(n: int) -> int:
        return n

    @busy.job(name="failing", retries=0)
    def failing(n: int) -> None:
        raise Failed("no")

    @calm.job(name="later")
    def later(n: int) -> None: ...

    @calm.job(name="rare")
    def rare(n: int) -> None: ...

    return app


def fill(app: App, jobs: int) -> None:
    """A rare one first, then ended, dead and waiting ones by turns."""
    types = app.job_types
    types["rare"].enqueue(n=0)
    added = 1
    with app.worker(concurrency=16):
        while added < jobs:
            count = min(BATCH, jobs - added)
            rows = [
                types["later"].using(delay=86400).new(n=n)
                if n % 10 == 0
                else types["failing"].new(n=n)
                if n % 100 == 1
                else types["often"].using(job_key=f"key-{added + n}").new(n=n)
                for n in range(count)
            ]
            app.enqueue_many(rows)
            added += count
        while any(load.ready for load in app.store.glance().queues):
            time.sleep(0.5)


def measure(app: App) -> None:
    made = secret.new()
    app.store.add_token(
        f"bench-{made[-6:]}", secret.hashed(made), kind="token", scope="read", lasts=None, actor="bench"
    )
    with TestClient(create(app), base_url="http://localhost") as client:
        client.headers["Authorization"] = f"Bearer {made}"
        print(f"{'path':<50} {'median':>9} {'worst':>9}  items")
        for path in PATHS:
            times, answer = [], None
            for _ in range(ROUNDS):
                began = time.perf_counter()
                answer = client.get(path)
                times.append((time.perf_counter() - began) * 1000)
            assert answer is not None
            assert answer.status_code == 200, answer.text
            print(f"{path:<50} {statistics.median(times):>6.1f} ms {max(times):>6.1f} ms  {items(answer)}")


def items(answer: Any) -> str:
    if answer.headers["content-type"] != "application/json":
        return ""
    page = answer.json()
    return f"{len(page['items'])}{'' if page['complete'] else ', cut'}"


if __name__ == "__main__":
    main()
