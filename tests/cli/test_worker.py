"""`holdfast worker`: real processes that run jobs and stop when they are told to."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import App
from tests.cli.terminal import Call, Program, eventually, run

MODULE = """
import asyncio, os
from holdfast import App

app = App({arguments})
queue = app.queue("work")
other = app.queue("other")

@queue.job()
def add(a: int, b: int) -> int:
    return a + b

@queue.job(timeout=60)
async def gate(path: str) -> int:
    open(path + ".began", "w").close()
    while not os.path.exists(path):
        await asyncio.sleep(0.02)
    return os.getpid()

@other.job()
def rest() -> None:
    pass
"""

Start = Callable[..., Program]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    made.mkdir()
    return made


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Starts a program in the folder and waits until it works."""
    started: list[Program] = []

    def start(*arguments: str, workers: int = 1, **variables: str) -> Program:
        started.append(Program(folder, "worker", *arguments, **variables))
        eventually(lambda: started[-1].log.count(" works on ") >= workers or started[-1].process.poll() is not None)
        return started[-1]

    yield start
    for program in started:
        program.close()


@pytest.fixture
def importing(folder: Path) -> Iterator[None]:
    """What a command that imports a user's module changes in this process is as it was afterwards."""
    path, environment = list(sys.path), dict(os.environ)
    yield
    for name, module in list(sys.modules.items()):
        if folder in Path(getattr(module, "__file__", None) or "").parents:
            del sys.modules[name]
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environment)


def write(folder: Path, arguments: str = "") -> None:
    (folder / "shop.py").write_text(MODULE.replace("{arguments}", arguments))


def app_of(url: str, name: str = "shop") -> App:
    return App(url, name=name)


def test_a_worker_runs_jobs_and_stops_when_told_to(url: str, folder: Path, start: Start) -> None:
    write(folder, f"{url!r}, name='shop'")
    worker = start("shop:app")
    with app_of(url) as app:
        job = app.enqueue("work", "add", {"a": 1, "b": 2})
        assert job.unwrap(30) == 3
        worker.stop()
        answer = worker.ended()
        assert app.store.workers() == []
    assert answer.code == 0
    first, last = answer.out.splitlines()
    assert first == "Worker of instance `shop` starts: work, other; 3 job types; concurrency 100. Ctrl-C stops it."
    assert last == "Worker 1 has stopped after 1 attempt."
    assert "INFO    Worker 1 (" in answer.err


def test_programs_are_told_of_start_and_end_in_lines_of_json(url: str, folder: Path, start: Start) -> None:
    write(folder, f"{url!r}, name='shop'")
    worker = start("shop:app", "--json", "--queues", "work", "--concurrency", "3")
    with app_of(url) as app:
        app.enqueue("work", "add", {"a": 1, "b": 2}).wait(30)
    worker.stop(signal.SIGINT)
    first, last = map(json.loads, worker.ended().out.splitlines())
    told = {"event": "start", "instance": "shop", "queues": ["work"], "job_types": ["add", "gate", "rest"]}
    assert first == {**told, "concurrency": 3, "processes": 1}
    assert last == {"event": "stop", "worker": 1, "attempts": 1}


def test_options_reach_the_worker(url: str, folder: Path, start: Start) -> None:
    write(folder, f"{url!r}, name='shop'")
    options = ["--queues", "work", "--concurrency", "7", "--labels", "gpu,big", "--labels", "eu", "--name", "anna"]
    start("shop:app", *options)
    with app_of(url) as app:
        (worker,) = app.store.workers()
    assert (worker.queues, worker.concurrency, worker.labels, worker.name) == (
        ("work",),
        7,
        ("gpu", "big", "eu"),
        "anna",
    )


def test_running_jobs_are_finished_before_the_worker_ends(url: str, folder: Path, start: Start) -> None:
    write(folder, f"{url!r}, name='shop'")
    worker = start("shop:app", "--grace", "60")
    with app_of(url) as app:
        job = app.enqueue("work", "gate", {"path": str(folder / "open")})
        eventually((folder / "open.began").exists)
        worker.stop()
        eventually(lambda: app.store.workers()[0].stopping)
        (folder / "open").touch()
        assert worker.ended().code == 0
        assert job.refresh().outcome == "success"


def test_a_second_signal_hurries_it_and_the_job_is_handed_back(url: str, folder: Path, start: Start) -> None:
    write(folder, f"{url!r}, name='shop'")
    worker = start("shop:app", "--grace", "600")
    with app_of(url) as app:
        job = app.enqueue("work", "gate", {"path": str(folder / "open")})
        eventually((folder / "open.began").exists)
        worker.stop()
        eventually(lambda: app.store.workers()[0].stopping)
        worker.stop()
        assert worker.ended().code == 0
        found = job.refresh()
        assert (found.state, found.situation, found.failures) == ("running", "loose", 0)


def test_several_processes_share_the_work_and_all_end(url: str, folder: Path, start: Start) -> None:
    write(folder, f"{url!r}, name='shop'")
    worker = start("shop:app", "--processes", "2", "--concurrency", "1", "--name", "w", workers=2)
    with app_of(url) as app:
        assert sorted(row.name for row in app.store.workers()) == ["w-0", "w-1"]
        gates = [app.enqueue("work", "gate", {"path": str(folder / "open")}) for _ in range(2)]
        eventually(lambda: all(job.refresh().state == "running" for job in gates))
        (folder / "open").touch()
        assert len({job.unwrap(30) for job in gates}) == 2
        worker.stop()
        answer = worker.ended()
        assert app.store.workers() == []
    assert answer.code == 0
    assert "concurrency 1, 2 processes" in answer.out
    assert answer.out.count("has stopped after 1 attempt.") == 2


def test_what_the_code_leaves_open_comes_from_the_environment(url: str, folder: Path, start: Start) -> None:
    write(folder)
    variables = {"HOLDFAST_URL": url, "HOLDFAST_INSTANCE": "harbour", "HOLDFAST_WORKER_CONCURRENCY": "5"}
    start("shop:app", **variables)
    with app_of(url, "harbour") as app:
        assert [worker.concurrency for worker in app.store.workers()] == [5]


def test_what_the_code_leaves_open_comes_from_the_file(sqlite_url: str, folder: Path, start: Start) -> None:
    write(folder)
    (folder / "holdfast.toml").write_text(f'url = "{sqlite_url}"\ninstance = "harbour"\n[worker]\nconcurrency = 5\n')
    start("shop:app", "--concurrency", "6")
    with app_of(sqlite_url, "harbour") as app:
        assert [worker.concurrency for worker in app.store.workers()] == [6]


def test_what_the_code_says_wins(sqlite_url: str, folder: Path, start: Start) -> None:
    write(folder, f"{sqlite_url!r}, name='shop'")
    start("shop:app", HOLDFAST_URL="sqlite:///elsewhere.db", HOLDFAST_INSTANCE="harbour")
    assert not (folder / "elsewhere.db").exists()
    with app_of(sqlite_url) as app:
        assert list(app.store.instances()) == ["shop"]
        assert len(app.store.workers()) == 1


def test_an_instance_may_be_named_where_the_code_names_none(sqlite_url: str, folder: Path, start: Start) -> None:
    write(folder, f"{sqlite_url!r}")
    start("shop:app", "--instance", "harbour")
    with app_of(sqlite_url, "harbour") as app:
        assert list(app.store.instances()) == ["harbour"]


@pytest.mark.usefixtures("importing")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Name the app that has them: `holdfast worker shop:app`"),
        (["shop:app", "--url", "sqlite:///x.db"], "--url beside shop:app"),
        (["shop:app", "--instance", "other"], "shop:app is instance `shop` by its code"),
        (["missing:app"], "there is no module `missing`"),
        (["shop.inner:app"], "there is no module `shop.inner`"),
        ([":app"], "cannot be imported: ValueError: Empty module name"),
        (["shop:nothing"], "module `shop` has no `nothing`. It has `shop:app`"),
        (["shop:add"], "that is no App but a JobType"),
        (["needs:app"], "cannot be imported: No module named 'nowhere_to_be_found'"),
        (["broken:app"], "cannot be imported: ZeroDivisionError: division by zero. --debug shows where"),
        (["ends:app"], "cannot be imported: the module calls sys.exit(0)"),
        (["ends_badly:app"], "cannot be imported: the module calls sys.exit(7)"),
        (["wrong:app"], "Instance name"),
        (["shop:app", "--queues", "wokr"], "declares no queue `wokr`; it has work, other"),
        (["shop:app", "--queues", "work,"], "a name is empty"),
        (["shop:app", "--concurrency", "0"], "--concurrency is 0"),
        (["shop:app", "--processes", "0"], "--processes is 0"),
        (["shop:app", "--grace", "-1"], "--grace is -1"),
    ],
)
def test_what_cannot_work_is_exit_code_two_and_makes_no_database(
    cli: Call, monkeypatch: pytest.MonkeyPatch, folder: Path, arguments: list[str], complaint: str
) -> None:
    monkeypatch.chdir(folder)
    write(folder, "'sqlite:///shop.db', name='shop'")
    (folder / "needs.py").write_text("import nowhere_to_be_found\n")
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "ends.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "ends_badly.py").write_text("import sys\nsys.exit(7)\n")
    (folder / "wrong.py").write_text("import holdfast\napp = holdfast.App(name='Not A Name')\n")
    answer = cli("worker", *arguments)
    assert (answer.code, answer.out) == (2, ""), answer
    assert complaint in answer.err
    assert answer.err.count("\n") == 1
    assert list(folder.glob("*.db*")) == []


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_database_that_is_refused_ends_it_at_once(sqlite_url: str, folder: Path, processes: str) -> None:
    write(folder, f"{sqlite_url!r}, name='shop'")
    (folder.parent / "jobs.db").write_text("this is not a database, but it is long enough to be taken for one" * 20)
    answer = run(folder, "worker", "shop:app", "--processes", processes)
    assert answer.code == 5
    assert answer.err.startswith("Error: SQLite file ")
    assert answer.err.count("\n") == 1


def test_debug_shows_where_the_users_module_broke(folder: Path) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    answer = run(folder, "worker", "broken:app", "--debug")
    assert answer.code == 2
    assert 'broken.py", line 1' in answer.err
