"""`holdfast serve` and `holdfast dev`: real processes that are asked over HTTP."""

import json
import re
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

    def begin(*arguments: str, **options: Any) -> Program:
        folder = tmp_path / f"program{len(programs)}"
        folder.mkdir()
        programs.append(Program(folder, *arguments, **options))
        return programs[-1]

    yield begin
    for program in programs:
        program.close()


def write(folder: Path, url: str, answer: object = 42) -> str:
    (folder / "shop.py").write_text(MODULE.format(url=url, answer=answer))
    return str(folder)


def events_of(program: Program) -> list[dict[str, Any]]:
    return [json.loads(line) for line in program.out.splitlines() if line.endswith("}")]


def address(program: Program) -> dict[str, Any]:
    """What it says once it can be asked."""

    def found() -> dict[str, Any] | None:
        assert program.process.poll() is None, program.log
        return next((each for each in events_of(program) if each["event"] == "serve"), None)

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
        link = cli("login-link", "--url", url).out.strip()
        assert link.startswith(f"{said['address']}/login?token=hf_")
        assert browser.get(link).status_code == 303
        assert browser.get("/api/v1/jobs").status_code == 200
    assert httpx.get(link, timeout=30).status_code == 401
    token = cli("tokens", "create", "--scope", "read", "--json", "--url", url).json["token"]
    assert httpx.get(
        f"{said['address']}/api/v1/jobs", headers={"Authorization": f"Bearer {token}"}, timeout=30
    ).json() == {"items": [], "cursor": None, "complete": True}
    program.stop()
    assert program.ended().code == 0


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_link_is_printed_to_a_terminal_alone(sqlite_url: str, start: Start, options: list[str]) -> None:
    arguments = ("serve", "--port", "0", "--url", sqlite_url, *options)
    piped, seen = start(*arguments), start(*arguments, terminal=True)
    eventually(lambda: "holdfast login-link" in piped.out)
    assert "token=" not in piped.out + piped.log
    found = eventually(lambda: LINK.search(seen.out))
    assert "token=" not in seen.log
    assert httpx.get(found[0], timeout=30).status_code == 303
    assert httpx.get(found[0], timeout=30).status_code == 401


LINK = re.compile(r"http[^\s\"]*/login\?token=hf_[\w-]{43}")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_printed_link_dies_with_its_server(sqlite_url: str, start: Start, cli: Call, end: signal.Signals) -> None:
    """Also at every other server of the instance: the link is of no use in an old log."""
    arguments = ("serve", "--port", "0", "--json", "--url", sqlite_url)
    first, other = start(*arguments, terminal=True), start(*arguments)
    link, elsewhere = address(first)["login"], address(other)["address"]
    token = link.partition("/login")[2]
    assert httpx.get(f"{elsewhere}/login{token}", timeout=30).status_code == 401
    first.stop(end)
    first.ended()
    assert httpx.get(f"{elsewhere}/login{token}", timeout=30).status_code == 401
    again = address(start(*arguments))["address"]
    assert httpx.get(f"{again}/login{token}", timeout=30).status_code == 401
    if end == signal.SIGTERM:
        assert cli("tokens", "list", "--json", "--url", sqlite_url).json == []


def test_a_link_of_the_command_works_once_at_every_server(url: str, start: Start, cli: Call) -> None:
    cli("migrate", "--url", url, "--instance", "shop")
    arguments = ("serve", "--port", "0", "--json", "--url", url)
    older = address(start(*arguments))["address"]
    newer = address(start(*arguments))["address"]
    made = cli("login-link", "--name", "ann", "--scope", "operate", "--json", "--url", url).json
    assert made["login"].startswith(f"{newer}/login?token=hf_")
    assert (made["name"], made["scope"]) == ("ann", "operate")
    at_the_older = made["login"].replace(newer, older)
    assert httpx.get(at_the_older, timeout=30).status_code == 303
    assert {httpx.get(link, timeout=30).status_code for link in (at_the_older, made["login"])} == {401}
    (session,) = cli("tokens", "list", "--json", "--url", url).json
    assert (session["name"], session["kind"], session["scope"]) == ("ann", "session", "operate")


def test_a_link_leads_to_a_server_that_runs(sqlite_url: str, tmp_path: Path, start: Start, cli: Call) -> None:
    quick = tmp_path / "quick.toml"
    quick.write_text("heartbeat = 0.2\nlost_after = 2\n")
    arguments = ("--url", sqlite_url, "--config", str(quick))
    older = address(start("serve", "--port", "0", "--json", *arguments))["address"]
    newer = start("serve", "--port", "0", "--json", *arguments)
    where = address(newer)["address"]
    eventually(lambda: cli("login-link", *arguments).out.startswith(where))
    newer.stop(signal.SIGKILL)
    eventually(lambda: cli("login-link", *arguments).out.startswith(older))


def test_without_a_server_there_is_no_address(shop: App, url: str, cli: Call) -> None:
    answer = cli("login-link", "--url", url)
    assert (answer.code, "holdfast serve" in answer.err, "--public-url" in answer.err) == (3, True, True)
    assert shop.store.tokens(30.0) == []
    assert cli("login-link", "--url", url, "--public-url", "https://jobs.example.com").out.startswith(
        "https://jobs.example.com/login?token=hf_"
    )


@pytest.mark.parametrize(("option", "value"), [("--scope", "produce"), ("--scope", "all"), ("--name", "a b")])
def test_a_link_for_nobody_is_refused(shop: App, url: str, cli: Call, option: str, value: str) -> None:
    answer = cli("login-link", option, value, "--public-url", "https://jobs.example.com", "--url", url)
    assert (answer.code, value in answer.err) == (2, True)
    assert shop.store.tokens(30.0) == []


@pytest.mark.parametrize("named", ["option", "variable", "file"])
def test_the_public_address_stands_in_links_and_makes_cookies_secure(
    sqlite_url: str, tmp_path: Path, start: Start, cli: Call, named: str
) -> None:
    public = "https://jobs.example.com"
    (tmp_path / "public.toml").write_text(f'[web]\npublic_url = "{public}"\n')
    options: dict[str, list[str]] = {
        "option": ["--public-url", public],
        "file": ["--config", str(tmp_path / "public.toml")],
    }
    variables = {"HOLDFAST_PUBLIC_URL": public} if named == "variable" else {}
    arguments = ("serve", "--port", "0", "--json", "--url", sqlite_url, *options.get(named, ()))
    said = address(start(*arguments, terminal=True, **variables))
    assert said["public_url"] == public
    assert said["login"].startswith(f"{public}/login?token=hf_")
    link = cli("login-link", "--url", sqlite_url).out.strip()
    for each in (said["login"], link):
        assert each.startswith(f"{public}/login?token=hf_")
        behind = each.replace(public, said["address"])
        answer = httpx.get(behind, headers={"Host": "jobs.example.com"}, timeout=30)
        assert answer.status_code == 303
        assert "; secure" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize(
    "wrong", ["jobs.example.com", "ftp://x", "https://a/b", "https://u@a", "https://a?b", "https://a:0"]
)
def test_a_public_address_that_is_none_is_refused(sqlite_url: str, cli: Call, wrong: str) -> None:
    answer = cli("serve", "--public-url", wrong, "--url", sqlite_url)
    assert (answer.code, "https://jobs.example.com" in answer.err) == (2, True)


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
        eventually(lambda: any(each["event"] == "reload" for each in events_of(program)))

        def answers_anew() -> bool:
            return bool(app.enqueue("work", "answer").unwrap(60) == 4711)

        eventually(answers_anew)
        write(tmp_path, sqlite_url, 0)
        (tmp_path / "shop.py").write_text("this is no Python")
        eventually(lambda: "cannot be imported" in program.log)
        assert program.process.poll() is None
        write(tmp_path, sqlite_url, 7)
        eventually(lambda: len([each for each in events_of(program) if each["event"] == "reload"]) >= 3 or None)
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
