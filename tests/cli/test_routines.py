"""`holdfast routines`: list, show, pause, resume and remove."""

from typing import Any

import pytest

from holdfast import App
from tests.cli.conftest import Call

pytestmark = pytest.mark.claim("F19")


@pytest.fixture
def looping(shop: App) -> App:
    @shop.routine(every=3600, scale=2)
    def poll(turn: Any) -> None:
        turn.checkpoint = {"page": turn.index}
        if turn.index:
            raise ValueError("no such page")

    shop.run_until_idle()
    return shop


def test_it_is_listed_with_its_parts_in_numbers(cli: Call, looping: App, url: str) -> None:
    (found,) = cli("routines", "list", "--url", url, "--json").json
    assert {name: found[name] for name in ("name", "job_type", "every", "scale", "running", "failing", "turns")} == {
        "name": "poll",
        "job_type": "routine.poll",
        "every": 3600.0,
        "scale": 2,
        "running": 0,
        "failing": 1,
        "turns": 2,
    }
    header, row = cli("routines", "list", "--url", url).out.splitlines()
    assert header.split()[:4] == ["routine", "every", "scale", "running"]
    assert row.startswith("poll")


def test_show_tells_of_each_part(cli: Call, looping: App, url: str) -> None:
    shown = cli("routines", "show", "poll", "--url", url, "--json").json
    good, bad = shown["parts"]
    assert (good["state"], good["failures"], good["checkpoint"], good["error"]) == ("waiting", 0, {"page": 0}, None)
    assert (bad["state"], bad["failures"], bad["last_outcome"]) == ("waiting", 1, "error")
    assert bad["error"]["message"] == "no such page"
    assert good["job"] == looping.find(job_key="poll:0", state="initial")[0].id
    told = cli("routines", "show", "poll", "--url", url).out
    assert "ValueError: no such page" in told
    assert '{"page":1}' in told


def test_pause_resume_and_remove(cli: Call, looping: App, url: str) -> None:
    assert cli("routines", "pause", "poll", "--url", url, "--json").json["paused"] is True
    assert "paused" in cli("routines", "list", "--url", url).out
    assert cli("routines", "show", "poll", "--url", url, "--json").json["parts"][0]["state"] == "idle"
    assert "goes on" in cli("routines", "resume", "poll", "--url", url).out
    assert "is removed" in cli("routines", "remove", "poll", "--url", url).out
    assert cli("routines", "list", "--url", url).out == "There are no routines.\n"
    assert cli("routines", "list", "--removed", "--url", url, "--json").json[0]["removed"] is True
    assert cli("routines", "remove", "poll", "--url", url, "--json").json == {"name": "poll", "removed": True}


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "remove"])
def test_one_that_is_not_there_is_said_so(cli: Call, looping: App, url: str, verb: str) -> None:
    answer = cli("routines", verb, "pool", "--url", url)
    assert (answer.code, "no routine `pool`" in answer.err) == (3, True)
