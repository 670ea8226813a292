"""What `holdfast bench` does: an instance of its own, one worker in this process, and four measurements in it.

- The numbers are those of this process with this database: its own enqueues, its own worker, jobs that do nothing.
- A job counts as run when the database has it as final.
"""

import secrets
import string
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct, structs

from holdfast.app import App
from holdfast.cli import instance, tables
from holdfast.cli.command import Call
from holdfast.cli.output import say, say_json
from holdfast.clock import Clock, monotonic, sleep
from holdfast.config import Settings
from holdfast.database_url import resolve, shown
from holdfast.declare import JobType
from holdfast.errors import Invalid, Unavailable
from holdfast.stores.moving import open_side

NAME = "bench"  # of the queue; the instance has it with some letters behind it
JOB_TYPE = "bench_nothing"
LOT = 1000
MOST_SINGLE = 500  # jobs enqueued one at a time
MOST_LATE = 200  # jobs whose start is waited for
REST = 0.02  # seconds between two of these
PATIENCE = 30.0  # seconds without any job begun


class Measured(Struct, frozen=True, omit_defaults=True):
    """So many jobs; a rate, or seconds from enqueue to the first line of the handler."""

    jobs: int
    per_second: float = 0.0
    p50: float = 0.0
    p99: float = 0.0


def run(call: Call, jobs: int) -> None:
    if call.instance is not None:
        raise Invalid("--instance: a bench makes an instance of its own, which it removes afterwards. Leave it out.")
    with _database(call.settings()) as settings, _own_instance(settings) as app:
        url = shown(instance.database(settings))
        if not call.json:
            say(f"Measures {url} in instance `{app.name}` …")
        found = _measure(app, jobs)
    if call.json:
        say_json({"url": url, "instance": app.name, **msgspec.to_builtins(found)})
    else:
        _show(found)


@contextmanager
def _database(settings: Settings) -> Iterator[Settings]:
    if settings.url is not None:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        yield structs.replace(settings, url=f"sqlite:///{folder}/bench.db")


@contextmanager
def _own_instance(settings: Settings) -> Iterator[App]:
    """An instance whose name nobody else has, and that is gone afterwards."""
    name = NAME + "_" + "".join(secrets.choice(string.ascii_lowercase) for _ in range(8))
    app, url = instance.named(settings, name), instance.database(settings)
    if resolve(url) == ("sqlite", ":memory:"):
        raise Invalid("An instance in memory ends with its connection and cannot be measured. Name a file.")
    side = open_side(url, name, Clock())
    try:
        with app:
            yield app
    finally:
        if side.version():
            side.remove()
        side.close()


def _measure(app: App, jobs: int) -> dict[str, Measured]:
    begun: list[float] = []

    @app.queue(NAME).job(name=JOB_TYPE)
    async def nothing(number: int) -> None:
        begun.append(monotonic())

    single, late = min(jobs, MOST_SINGLE), min(jobs, MOST_LATE)
    app.store.queues()  # sets the instance up
    found = {
        "enqueue": Measured(single, single / _took(lambda: [nothing.enqueue(number=each) for each in range(single)])),
        "enqueue_many": Measured(jobs, jobs / _took(lambda: _enqueue_many(nothing, jobs))),
    }
    with app.worker():
        _wait(app, begun, jobs + single)
        found["worker"] = Measured(jobs + single, (jobs + single) / (monotonic() - begun[0]))
        waits = _latencies(app, nothing, late, begun)
    found["latency"] = Measured(late, p50=waits[(late - 1) // 2], p99=waits[(late - 1) * 99 // 100])
    return found


def _took(action: Callable[[], Any]) -> float:
    began = monotonic()
    action()
    return monotonic() - began


def _enqueue_many(job_type: JobType, jobs: int) -> None:
    for first in range(0, jobs, LOT):
        job_type.enqueue_many([{"number": each} for each in range(first, min(first + LOT, jobs))])


def _wait(app: App, begun: list[float], jobs: int) -> None:
    """Until so many have begun and none is left."""
    last, since = -1, monotonic()
    while len(begun) < jobs or any(app.store.counts()[NAME].get(status) for status in ("pending", "running")):
        if len(begun) != last:
            last, since = len(begun), monotonic()
        elif monotonic() - since > PATIENCE:
            raise Unavailable(
                f"Of {jobs:,} jobs {len(begun):,} began, and then none for {PATIENCE:g} s. Is somebody at work in this instance?"
            )
        sleep(0.002)


def _latencies(app: App, job_type: JobType, jobs: int, begun: list[float]) -> list[float]:
    found = []
    for number in range(jobs):
        sleep(REST)
        before, began = len(begun), monotonic()
        job_type.enqueue(number=number)
        _wait(app, begun, before + 1)
        found.append(begun[-1] - began)
    return sorted(found)


def _show(found: dict[str, Measured]) -> None:
    def rate(name: str) -> str:
        return f"{found[name].per_second:,.0f} a second"

    waits = found["latency"]
    rows = (
        ("enqueue, one at a time", "enqueue", rate("enqueue")),
        (f"enqueue, {min(LOT, found['enqueue_many'].jobs):,} at a time", "enqueue_many", rate("enqueue_many")),
        ("run by one worker", "worker", rate("worker")),
        ("start on an idle worker", "latency", f"p50 {tables.span(waits.p50)}, p99 {tables.span(waits.p99)}"),
    )
    cells = [(words, f"{found[name].jobs:,}", told) for words, name, told in rows]
    tables.show(tables.listing(("", "jobs", "measured"), cells, right=("jobs",)))
