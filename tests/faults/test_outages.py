"""The database goes away and comes back: workers go on by themselves, nothing is lost, no live worker is robbed."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App, Unavailable
from tests.faults.fleet import make_app, until, worker
from tests.postgres_on_demand import own_server
from tests.postgres_server import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A PostgreSQL of its own, because these tests stop it."""
    server = own_server()
    server.start()
    yield server
    server.remove()


@pytest.mark.claim("C7", "R1")
def test_a_worker_goes_on_by_itself_after_postgresql_was_restarted_under_load(server: Server, tmp_path: Path) -> None:
    url = server.create("load")
    with make_app(url) as app, worker(url, tmp_path) as one:
        total = 30_000
        accepted = 0
        restarts = iter((6_000, 18_000))
        restart_at = next(restarts)
        while accepted < total:
            app.job_types["quick"].enqueue_many([{"i": accepted + i} for i in range(1000)])
            accepted += 1000
            if accepted == restart_at:
                server.restart("immediate" if accepted > 10_000 else "fast")
                restart_at = next(restarts, -1)
        until(lambda: app.store.counts()["work"].get("completed", 0) == total, what="all jobs are done")
        assert app.store.counts()["work"] == {"completed": total}
        assert one.process.poll() is None


@pytest.mark.claim("C2", "C7")
def test_an_outage_longer_than_lost_after_takes_no_live_workers_job(server: Server, tmp_path: Path) -> None:
    url = server.create("outage")
    gate = tmp_path / "gate"
    with make_app(url) as app:
        jobs = app.job_types["gate"].enqueue_many([{"path": str(gate)} for _ in range(50)])
        with worker(url, tmp_path, concurrency=30), worker(url, tmp_path, concurrency=30):
            until(lambda: len(app.find(state="running", limit=100)) == 50, what="both workers have their jobs")
            server.stop()
            time.sleep(4)  # the outage is the thing tested: twice lost_after
            server.start()
            until(lambda: reachable(app), what="the database is back")
            time.sleep(3)  # longer than lost_after: a sweeper that counted the outage would strike now
            gate.touch()
            ended = [job.wait(30) for job in jobs]
        assert {(job.outcome, job.attempt, job.failures) for job in ended} == {("success", 1, 0)}


def reachable(app: App) -> bool:
    try:
        app.find(limit=1)
    except Unavailable:
        return False
    return True


@pytest.mark.claim("C7")
def test_a_worker_started_before_its_database_waits_for_it(server: Server, tmp_path: Path) -> None:
    url = server.create("late")
    server.stop()
    with worker(url, tmp_path) as one:
        until(lambda: one.log.exists(), what="it has started")
        server.start()
        with make_app(url) as app:
            assert app.job_types["quick"].enqueue(i=7).unwrap(30) == 7


@pytest.mark.claim("C7")
def test_a_caller_is_told_that_the_database_is_away(server: Server) -> None:
    url = server.create("caller")
    app = App(url, patience=0.5)
    app.queue("work")
    app.find()
    server.stop()
    with pytest.raises(Unavailable, match="PostgreSQL"):
        app.find()
    server.start()
    assert app.find() == []


@pytest.mark.claim("C2")
def test_a_frozen_fleet_that_thaws_together_loses_nobody(url: str, instance: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with make_app(url, instance) as app:
        jobs = app.job_types["gate"].enqueue_many([{"path": str(gate), "tells": True} for _ in range(20)])
        with (
            worker(url, tmp_path, concurrency=15, name=instance) as one,
            worker(url, tmp_path, concurrency=15, name=instance) as two,
        ):
            until(lambda: all(job.refresh().progress for job in jobs), what="both workers are at their jobs")
            one.send(signal.SIGSTOP)
            two.send(signal.SIGSTOP)
            time.sleep(3)  # frozen for longer than lost_after
            one.send(signal.SIGCONT)
            two.send(signal.SIGCONT)
            time.sleep(1)
            gate.touch()
            ended = [job.wait(30) for job in jobs]
        assert {(job.outcome, job.attempt) for job in ended} == {("success", 1)}
