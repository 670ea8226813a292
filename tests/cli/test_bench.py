"""`holdfast bench`: what it measures, and that it leaves nothing behind and nobody's jobs alone."""

import tempfile
from pathlib import Path

import pytest

from holdfast import App
from holdfast.cli import measuring
from holdfast.clock import Clock, MovableClock
from holdfast.stores.contract import WorkerJoin
from holdfast.stores.open import open_store
from tests.cli.conftest import Call, make_shop

FEW = ("--jobs", "20")


def instances(url: str) -> list[str]:
    store = open_store(url, "holdfast", Clock())
    try:
        return list(store.instances())
    finally:
        store.close()


def test_it_measures_and_leaves_nothing_but_what_was_there(cli: Call, shop: App, url: str) -> None:
    before = shop.store.counts()
    answer = cli("bench", "--url", url, *FEW)
    assert answer.code == 0, answer.err
    for words in ("enqueue, one at a time", "enqueue, 20 at a time", "run by one worker", "start on an idle worker"):
        assert words in answer.out
    assert instances(url) == ["shop"]
    assert shop.store.counts() == before
    again = cli("bench", "--url", url, *FEW)
    assert again.code == 0, again.err


def test_programs_get_numbers(cli: Call, url: str) -> None:
    found = cli("bench", "--url", url, *FEW, "--json").json
    assert found["instance"] == "bench"
    assert {name: found[name]["jobs"] for name in ("enqueue", "enqueue_many", "worker", "latency")} == {
        "enqueue": 20,
        "enqueue_many": 20,
        "worker": 40,
        "latency": 20,
    }
    assert all(found[name]["per_second"] > 0 for name in ("enqueue", "enqueue_many", "worker"))
    assert 0 < found["latency"]["p50"] <= found["latency"]["p99"] < 5


def test_without_a_database_it_has_a_file_of_its_own_for_a_while(
    cli: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = cli("bench", *FEW, "--json").json
    assert found["url"].startswith(f"sqlite:///{tmp_path}/")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_not_there_is_not_there_afterwards(cli: Call, tmp_path: Path) -> None:
    assert cli("bench", "--url", f"sqlite:///{tmp_path}/new.db", *FEW).code == 0
    assert list(tmp_path.iterdir()) == []


def test_an_instance_of_somebody_else_is_refused(cli: Call, url: str) -> None:
    with make_shop(url, "bench") as app:
        job = app.enqueue("mail", "send", {"to": "a"})
        answer = cli("bench", "--url", url, *FEW)
        assert answer.code == 4
        assert "There is an instance `bench` already" in answer.err
        assert "--instance" in answer.err
        assert app.get(job.id).state == "initial"
        assert cli("bench", "--url", url, "--instance", "measured", *FEW).code == 0
        assert instances(url) == ["bench"]


@pytest.mark.parametrize("alive", [True, False])
def test_what_a_killed_bench_has_left_is_cleared_away(cli: Call, url: str, alive: bool) -> None:
    with App(url, "bench", clock=Clock() if alive else MovableClock()) as app:

        @app.queue(measuring.NAME).job(name=measuring.JOB_TYPE)
        async def nothing(number: int) -> None: ...

        nothing.enqueue(number=1)
        app.store.join(WorkerJoin("one", "here", 1, "", (measuring.NAME,), (measuring.JOB_TYPE,), (), 1))
    if alive:
        assert cli("bench", "--url", url, *FEW).code == 4
        assert instances(url) == ["bench"]
        return
    assert cli("bench", "--url", url, *FEW, "--json").json["worker"]["jobs"] == 40
    assert instances(url) == []


def test_one_that_is_interrupted_clears_away(cli: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "_latencies", interrupt)
    answer = cli("bench", "--url", url, *FEW)
    assert (answer.code, answer.err) == (1, "Error: Interrupted.\n")
    assert instances(url) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--jobs", "0"), "greater than or equal to 1"),
        (("--jobs", "many"), "--jobs"),
        (("--url", "sqlite://:memory:"), "Name a file"),
        (("--instance", "a b"), "Instance name"),
    ],
)
def test_bad_input_is_usage(cli: Call, given: tuple[str, ...], words: str) -> None:
    answer = cli("bench", *given)
    assert answer.code == 2
    assert words in answer.err
