"""`holdfast serve` and `holdfast dev`: real processes that are asked over HTTP."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import psutil
import pytest

from holdfast import App
from tests.cli.terminal import Call, Program, eventually
from tests.postgres_on_demand import SETTINGS, own_server

MODULE = """
from holdfast import App

app = App({url!r}, name="shop")
queue = app.queue("work")

@queue.job()
def answer() -> int:
    return {answer}
"""

Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    programs: list[Program] = []

    def begin(*arguments: str, **variables: str) -> Program:
        folder = tmp_path / f"program{len(programs)}"
        folder.mkdir()
        programs.append(Program(folder, *arguments, **variables))
        return programs[-1]

    yield begin
    for program in programs:
        program.close()


def write(folder: Path, url: str, answer: object = 42) -> str:
    (folder / "shop.py").write_text(MODULE.format(url=url, answer=answer))
    return str(folder)


def told(program: Program) -> list[dict[str, Any]]:
    return [json.loads(line) for line in program.out.splitlines() if line.endswith("}")]


def address(program: Program) -> dict[str, Any]:
    """What it says once it can be asked."""

    def found() -> dict[str, Any] | None:
        assert program.process.poll() is None, program.log
        return next((each for each in told(program) if each["event"] == "serve"), None)

    return eventually(found)


def test_serve_listens_when_its_types_are_there_and_lets_a_browser_in_once(
    url: str, tmp_path: Path, start: Start, cli: Call
) -> None:
    folder = write(tmp_path, url)
    program = start("serve", "shop:app", "--port", "0", "--json", PYTHONPATH=folder_path(folder))
    said = address(program)
    assert said["address"].startswith("http://127.0.0.1:")
    with App(url, name="shop") as app:
        assert "answer" in app.store.types()
    with httpx.Client(base_url=said["address"], timeout=30) as browser:
        assert browser.get("/healthz").status_code == 200
        assert browser.get("/api/v1/jobs").status_code == 401
        assert browser.get(said["login"]).status_code == 303
        assert browser.get("/api/v1/jobs").status_code == 200
    assert httpx.get(said["login"], timeout=30).status_code == 401
    token = cli("tokens", "create", "--scope", "read", "--json", "--url", url).json["token"]
    assert httpx.get(
        f"{said['address']}/api/v1/jobs", headers={"Authorization": f"Bearer {token}"}, timeout=30
    ).json() == {"items": [], "cursor": None, "complete": True}
    program.stop()
    assert program.ended().code == 0


def folder_path(folder: str) -> str:
    return f"{Path(__file__).parents[2] / 'src'}:{folder}"


def test_serve_without_a_module_serves_the_instance(sqlite_url: str, start: Start) -> None:
    program = start("serve", "--port", "0", "--json", "--url", sqlite_url)
    assert address(program)["instance"] == "holdfast"
    program.stop(signal.SIGINT)
    assert program.ended().code == 0


def test_other_machines_are_let_in_only_with_credentials(sqlite_url: str, start: Start, cli: Call) -> None:
    refused = cli("serve", "--host", "0.0.0.0", "--port", "0", "--url", sqlite_url)
    assert refused.code == 2
    assert "holdfast tokens create" in refused.err
    made = cli("tokens", "create", "ci", "--days", "0", "--url", sqlite_url)
    assert made.code == 0
    assert cli("serve", "--host", "0.0.0.0", "--port", "0", "--url", sqlite_url).code == 2
    assert cli("tokens", "create", "people", "--url", sqlite_url).code == 0
    program = start("serve", "--host", "0.0.0.0", "--port", "0", "--json", "--url", sqlite_url)
    host, _, port = address(program)["address"].removeprefix("http://").rpartition(":")
    called = {"Host": f"{host}:{port}"}  # by the name that it has printed
    assert httpx.get(f"http://127.0.0.1:{port}/healthz", headers=called, timeout=30).status_code == 200
    assert (
        httpx.get(f"http://127.0.0.1:{port}/healthz", headers={"Host": "evil.example"}, timeout=30).status_code == 421
    )


def test_a_port_that_is_taken_is_said_so(sqlite_url: str, start: Start, cli: Call) -> None:
    port = address(start("serve", "--port", "0", "--json", "--url", sqlite_url))["address"].rpartition(":")[2]
    answer = cli("serve", "--port", port, "--url", sqlite_url)
    assert answer.code == 5
    assert "--port" in answer.err


@pytest.mark.claim("C7")
def test_at_a_standby_a_command_ends_and_serve_waits_until_it_is_promoted(start: Start, cli: Call) -> None:
    primary, standby = own_server(*SETTINGS), own_server(*SETTINGS)
    primary.start()
    try:
        with App(primary.create("shop")) as app:
            app.find()
        standby.follow(primary)
        url = standby.url("shop")
        refused = cli("jobs", "list", "--url", url)
        assert refused.code == 5
        assert "standby. Point the URL at the primary." in refused.err
        program = start("serve", "--port", "0", "--json", "--url", url)
        eventually(lambda: program.log.count("standby. Point the URL at the primary.") > 1)
        assert program.process.poll() is None
        standby.promote()
        assert httpx.get(f"{address(program)['address']}/readyz", timeout=30).status_code == 200
    finally:
        standby.remove()
        primary.remove()


@pytest.mark.long
def test_dev_works_and_starts_anew_when_the_module_changes(sqlite_url: str, tmp_path: Path, start: Start) -> None:
    folder = write(tmp_path, sqlite_url)
    program = start("dev", "shop:app", "--port", "0", "--json", PYTHONPATH=folder_path(folder))
    address(program)
    with App(sqlite_url, name="shop") as app:
        assert app.enqueue("work", "answer").unwrap(60) == 42
        write(tmp_path, sqlite_url, 4711)
        eventually(lambda: any(each["event"] == "reload" for each in told(program)))

        def answers_anew() -> bool:
            return bool(app.enqueue("work", "answer").unwrap(60) == 4711)

        eventually(answers_anew)
        write(tmp_path, sqlite_url, 0)
        (tmp_path / "shop.py").write_text("this is no Python")
        eventually(lambda: "cannot be imported" in program.log)
        assert program.process.poll() is None
        write(tmp_path, sqlite_url, 7)
        eventually(lambda: len([each for each in told(program) if each["event"] == "reload"]) >= 3 or None)
        eventually(lambda: app.enqueue("work", "answer").unwrap(60) == 7)
    program.stop()
    assert program.ended().code == 0


def test_dev_needs_no_module(sqlite_url: str, start: Start) -> None:
    program = start("dev", "--port", "0", "--json", "--url", sqlite_url)
    said = address(program)
    assert httpx.get(f"{said['address']}/readyz", timeout=30).status_code == 200
    program.stop()
    assert program.ended().code == 0


@pytest.mark.claim("C5")
def test_what_serves_and_works_dies_with_the_one_that_watches(sqlite_url: str, tmp_path: Path, start: Start) -> None:
    """At once, though it has a job in hand."""
    folder = write(tmp_path, sqlite_url, "__import__('time').sleep(60)")
    program = start("dev", "shop:app", "--port", "0", "--json", PYTHONPATH=folder_path(folder))
    address(program)
    (below,) = psutil.Process(program.process.pid).children()
    with App(sqlite_url, name="shop") as app:
        job = app.enqueue("work", "answer")
        eventually(lambda: job.refresh().situation == "held")

    def gone() -> bool:
        try:
            return below.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    program.process.kill()
    killed = monotonic()
    eventually(gone)
    assert monotonic() - killed < 5, "the grace of a worker that is stopped is 10 s"
