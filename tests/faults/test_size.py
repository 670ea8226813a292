"""A million finished and a million waiting jobs: claims, every page and the archive read as much as with a few.

What is read is counted, not timed: with so many jobs more, whatever reads them one by one reads many times as much.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from holdfast import App
from holdfast.stores.archiving import LOT
from holdfast.stores.contract import Done, Want
from holdfast.web.app import create
from tests.by_hand import WorkerByHand
from tests.faults import crowd
from tests.faults.crowd import Effort, effort_of
from tests.faults.results import Fault, sizes
from tests.postgres_on_demand import own_server
from tests.raw_sql import RawSql
from tests.web.conftest import ADDRESS, token
from tests.web.furnished import routes

FEW = 60_000  # more than a page or a claim may look at, of the dead and beside the archive too
NAME = "crowd"
PLAIN, LIMITED = "plain", "limited"
LIMIT = 100.0
LONG_AGO, FAR = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
FILTERS = (
    "",
    *("job_type=noop", "job_type=none", "job_key=same", "job_type=noop&job_key=same", "job_type=noop&job_key=own7"),
    *("queue=plain", "queue=limited&job_key=own7", "queue=none", "worker=1", "worker=7", "run=1", "retry_of=1"),
    *(f"state={state}" for state in ("initial", "running", "error", "final")),
    *(f"status={status}" for status in ("pending", "running", "failed", "completed", "dead")),
    *(f"situation={situation}" for situation in ("held", "waiting", "loose")),
    *(f"outcome={outcome}" for outcome in ("success", "failed", "error", "aborted")),
    *("priority=200", "priority=7", "attempt=1", "attempt=7", "failures=0", "failures=7", "error=broken", "error=no"),
    *(
        f"{name}_time_{end}"
        for name in ("create", "scheduled_run", "end")
        for end in (f"since={FAR}", f"until={LONG_AGO}")
    ),
    "state=final&attempt=7&limit=1000",
)


@pytest.fixture(params=["sqlite", "sqlite analyzed", "postgres"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Makes databases of their own; nobody vacuums them meanwhile, which would be counted too."""
    if request.param.startswith("sqlite"):
        yield lambda name: f"sqlite:///{tmp_path}/{name}.db"
        return
    server = own_server("fsync=off", "full_page_writes=off", "autovacuum=off", "max_wal_size=8GB")
    server.start()
    yield server.create
    server.remove()


@pytest.mark.fault(13)
@pytest.mark.parametrize("many", sizes(3 * FEW, 1_000_000))
def test_claims_pages_and_the_archive_read_as_much_among_a_million_jobs(
    fresh: Callable[[str], str], request: pytest.FixtureRequest, fault: Fault, many: int
) -> None:
    analyzed = "analyzed" in request.node.name
    queries = FILTERS if many > 3 * FEW else FILTERS[::8]
    few, full = (dict(read(fresh(f"jobs{count}"), count, queries, analyzed)) for count in (FEW, many))
    fault.injected("finished jobs", many)
    fault.injected("waiting jobs", many)
    fault.measured(actions=len(few))
    assert few.keys() == full.keys()
    assert {name: (few[name], full[name]) for name in few if not few[name].like(full[name])} == {}


def read(url: str, count: int, queries: Sequence[str], analyzed: bool) -> Iterator[tuple[str, Effort]]:
    """What each action reads among so many finished and so many waiting jobs."""
    with program(url) as app:
        app.find(limit=1)
        shown = token(app, "read")
    crowd.fill(url, NAME, (PLAIN, LIMITED), count)
    if analyzed:
        execute(url, "analyze")  # we never do; a stranger may, and then SQLite makes other plans
    yield from claims(url)
    yield from pages(url, shown, count, queries)
    yield from archive(url, shown, count, queries)


def execute(url: str, statement: str) -> None:
    sql = RawSql(url, NAME)
    sql(statement)
    sql.close()


def program(url: str) -> App:
    app = App(url, name=NAME)
    app.queue(PLAIN).job(name="noop")(nothing)
    app.queue(LIMITED, throttle_limit=LIMIT).job(name="limited_noop")(nothing)
    return app


def nothing() -> None: ...


def of_store(url: str, action: Callable[[App], Any]) -> Effort:
    def run(done: Callable[[], None]) -> None:
        with program(url) as app:
            action(app)
            done()

    return effort_of(url, run)


def claims(url: str) -> Iterator[tuple[str, Effort]]:
    def claim(app: App, queue: str, expected: int, settles: bool = True) -> None:
        worker = WorkerByHand(app.store, ("noop",), (queue,))
        calls = worker.turn(wants=[Want(queue, 50, 50)], promote=True).claimed
        assert len(calls) == expected
        if settles:
            leases = sorted({call.lease for call in calls})
            worker.turn(done=[Done(call, 1.0, None) for call in calls], ended_leases=leases)

    yield "enqueue", of_store(url, lambda app: app.job_types["noop"].enqueue())
    yield "enqueue of a key", of_store(url, lambda app: app.job_types["noop"].using(job_key="same").enqueue())
    yield "claim", of_store(url, lambda app: claim(app, PLAIN, 50))
    yield "throttled claim", of_store(url, lambda app: claim(app, LIMITED, 50))
    for number in range(2):
        yield f"throttled claim that fills {number}", of_store(url, lambda app: claim(app, LIMITED, 50, False))
    yield "claim from a full queue", of_store(url, lambda app: claim(app, LIMITED, 0))


def pages(url: str, shown: str, count: int, queries: Sequence[str]) -> Iterator[tuple[str, Effort]]:
    """Every address that is read over HTTP, lists with each of their filters, jobs both finished and waiting."""
    with program(url) as app:
        found = [route.path for route in routes(app) if route.method == "GET" and route.needs == "read"]
    paths = [re.sub(r"\{\w+\}", "x", re.sub(r"\{\w+_id\}", "1", path)) for path in found]
    jobs = {"finished": count // 4, "waiting": count + count // 4}
    for path in paths:
        if "events" in path or path.startswith(("/static", "/archive")):
            continue
        if "/jobs/1" in path:
            for name, job in jobs.items():
                yield f"{path} {name}", of_page(url, shown, path.replace("/jobs/1", f"/jobs/{job}"))
        elif path in ("/jobs", "/api/v1/jobs"):
            for query in queries:
                yield f"{path}?{query}", of_page(url, shown, f"{path}?{query}")
        else:
            yield path, of_page(url, shown, path.replace("/x", f"/{LIMITED}"))


def of_page(url: str, shown: str, address: str) -> Effort:
    def run(done: Callable[[], None]) -> None:
        with program(url) as app, TestClient(create(app), base_url=ADDRESS) as client:
            answer = client.get(address, headers={"Authorization": f"Bearer {shown}"}, follow_redirects=False)
            assert answer.status_code < 500, answer.text
            done()

    return effort_of(url, run)


def archive(url: str, shown: str, count: int, queries: Sequence[str]) -> Iterator[tuple[str, Effort]]:
    """Its first lots, and what is read when half of all that is finished is in it."""
    for number in range(2):
        yield f"archive: lot {number}", of_store(url, lambda app: app.store.archive(0))
    with program(url) as app:
        moved = 2 * LOT
        while moved < count // 2:
            moved += app.store.archive(0)
    if url.startswith("postgresql"):
        execute(url, "vacuum analyze")
    for query in queries:
        for path, more in (("/archive", ""), ("/jobs", "&archive=yes"), ("/api/v1/jobs", "&archive=true")):
            yield f"archive: {path}?{query}", of_page(url, shown, f"{path}?{query}{more}")
