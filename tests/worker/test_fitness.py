"""A worker whose own process has lost its database ends, so that it is started again; one whose database is away waits."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw
import psycopg
import pytest

from holdfast import App
from holdfast.jobs.job import Job
from holdfast.worker.fitness import Outages
from tests.cli.terminal import Program
from tests.postgres_server import Server

pytestmark = [pytest.mark.claim("C8"), pytest.mark.timeout(240)]
T = TypeVar("T")
PATIENCE = 150.0  # seconds: a loaded machine is slow
MODULE = """
import os, resource, stat, threading, time
from holdfast import App

app = App({url!r}, name="shop", heartbeat=0.2, lost_after=1)
queue = app.queue("mail")
FILES = ("jobs.db", "jobs.db-wal", "jobs.db-shm")

def close_files():
    places = {{(found.st_dev, found.st_ino) for found in (os.stat(name) for name in FILES)}}
    for number in map(int, os.listdir("/dev/fd")):
        try:
            found = os.fstat(number)
        except OSError:
            continue
        if (found.st_dev, found.st_ino) in places:
            os.close(number)

def close_sockets():
    for number in map(int, os.listdir("/dev/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.close(number)
        except OSError:
            pass

@queue.job(timeout=None, retries=0)
def damage(how: str) -> None:
    if os.path.exists("damaged"):
        return
    open("damaged", "w").close()
    if how == "files":
        close_files()
    elif how == "sockets":
        close_sockets()
    else:
        threading.Thread(target=hoard, daemon=True).start()
    time.sleep(0.5)

def hoard():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    kept = []
    while True:
        try:
            kept.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            time.sleep(0.001)

@queue.job()
def add(a: int, b: int) -> int:
    return a + b
"""


def eventually(look: Callable[[], T]) -> T:
    ends = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < ends, f"still {found!r} after {PATIENCE:g} s"
        time.sleep(0.05)
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts a worker of the module on a database, and waits until it works."""
    started: list[Program] = []

    def start(url: str, *arguments: str, workers: int = 1) -> Program:
        (tmp_path / "shop.py").write_text(MODULE.format(url=url))
        program = Program(tmp_path, "worker", "shop:app", *arguments)
        started.append(program)
        eventually(lambda: program.log.count(" works on ") >= workers)
        return program

    yield start
    for program in started:
        program.stop(signal.SIGTERM)
        program.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server().start()
    yield made
    made.remove()


def shop(url: str) -> App:
    app = App(url, name="shop")
    app.queue("mail")
    return app


def enqueue(app: App, job_type: str, **arguments: Any) -> Job:
    return app.enqueue("mail", job_type, arguments)


def is_done(app: App, job: Job) -> bool:
    return app.get(job.id).outcome == "success"


def test_a_worker_whose_descriptors_were_closed_ends_with_an_error(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    program = start(url)
    with shop(url) as app:
        enqueue(app, "damage", how="files")
        assert eventually(lambda: program.process.poll() is not None)
        assert program.process.returncode == 1
        lines = [line for line in program.log.splitlines() if "cannot use its database any more" in line]
        assert len(lines) == 1
        assert "another process can" in lines[0]
        assert "Start the worker again." in lines[0]
        job = enqueue(app, "add", a=1, b=2)
        start(url)
        assert eventually(lambda: is_done(app, job))


def test_a_supervisor_restarts_a_worker_that_cannot_work_any_more(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    program = start(url, "--processes", "2", "--concurrency", "1", workers=2)
    with shop(url) as app:
        enqueue(app, "damage", how="files")
        eventually(lambda: "ended unasked: exited with 1. It is restarted" in program.log)
        eventually(lambda: program.log.count(" works on ") >= 3)
        jobs = [enqueue(app, "add", a=1, b=number) for number in range(10)]
        assert all(eventually(lambda job=job: is_done(app, job)) for job in jobs)  # type: ignore[misc]
        assert program.process.poll() is None


def test_a_worker_opens_sockets_again_that_a_handler_has_closed(
    start: Callable[..., Program], postgres_url: str
) -> None:
    with shop(postgres_url) as app:
        program = start(postgres_url)
        enqueue(app, "damage", how="sockets")
        job = enqueue(app, "add", a=1, b=2)
        assert eventually(lambda: is_done(app, job))
        assert program.process.poll() is None


def test_a_worker_without_a_descriptor_for_a_connection_ends_with_an_error(
    start: Callable[..., Program], server: Server
) -> None:
    url = server.create("shop")
    with shop(url) as app:
        app.queues  # noqa: B018
        program = start(url)
        enqueue(app, "damage", how="hoard")
        eventually(lambda: program.log.count(" works on ") >= 1)
        time.sleep(1.0)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = 'shop'"
            )
        assert eventually(lambda: program.process.poll() is not None)
        assert program.process.returncode == 1
        assert "this process has no file descriptor left" in program.log


def test_a_worker_waits_for_a_server_that_is_away(start: Callable[..., Program], server: Server) -> None:
    url = server.create("shop")
    program = start(url)
    server.stop("immediate")
    time.sleep(12)  # several times `lost_after`, and longer than two probes are apart
    assert program.process.poll() is None
    server.start()
    with shop(url) as app:
        job = eventually(lambda: _enqueued(app))
        assert eventually(lambda: is_done(app, job))
    assert "cannot use its database any more" not in program.log


def _enqueued(app: App) -> Job | None:
    try:
        return enqueue(app, "add", a=1, b=2)
    except Exception:
        return None


def test_a_worker_waits_for_a_file_that_a_stranger_keeps_locked(start: Callable[..., Program], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    program = start(url)
    stranger = apsw.Connection(f"{tmp_path}/jobs.db")
    stranger.execute("begin immediate")
    time.sleep(12)
    assert program.process.poll() is None
    stranger.execute("rollback")
    with shop(url) as app:
        job = enqueue(app, "add", a=1, b=2)
        assert eventually(lambda: is_done(app, job))
    assert "cannot use its database any more" not in program.log


def test_an_outage_lasts_from_its_first_failure_until_the_thread_gets_through() -> None:
    outages = Outages()
    assert outages.longest() is None
    outages.began("pulse")
    first = outages.longest()
    assert first is not None
    assert first[0] == "pulse"
    outages.failed("pulse", "the disk failed.")
    outages.failed("pump", "the disk failed.")
    longest = outages.longest()
    assert longest is not None
    assert (longest[:2], longest[2]) == (first[:2], "the disk failed.")
    outages.worked("pulse")
    assert (outages.longest() or ("",))[0] == "pump"
    outages.worked("pump")
    assert outages.longest() is None
