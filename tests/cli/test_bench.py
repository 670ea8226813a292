"""`holdfast bench`: what it measures, and that it leaves nothing behind and nobody's jobs alone."""

import re
import tempfile
from pathlib import Path

import pytest

from holdfast import App
from holdfast.cli import measuring
from tests.cli.conftest import Call, instances, make_shop

FEW = ("--jobs", "20")


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
    assert re.fullmatch("bench_[a-z]{8}", found["instance"])
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


def test_an_instance_that_is_called_bench_is_left_alone(cli: Call, url: str) -> None:
    with make_shop(url, "bench") as app:
        job = app.enqueue("mail", "send", {"to": "a"})
        assert cli("bench", "--url", url, *FEW).code == 0
        assert app.get(job.id).state == "initial"
        assert instances(url) == ["bench"]


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
        (("--jobs", "0"), "0 is not in the range x>=1"),
        (("--jobs", "many"), "--jobs"),
        (("--url", "sqlite://:memory:"), "Name a file"),
        (("--instance", "shop"), "an instance of its own"),
    ],
)
def test_bad_input_is_usage(cli: Call, given: tuple[str, ...], words: str) -> None:
    answer = cli("bench", *given)
    assert answer.code == 2
    assert words in answer.err
