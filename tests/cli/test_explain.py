"""`holdfast jobs explain`: one command answers why a job is not running."""

import re

import pytest

from holdfast import App, views
from tests.cli.conftest import Call

pytestmark = pytest.mark.claim("E1")


def test_explain_gives_people_the_reason_and_a_sentence(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "send", {"to": "ann"})

    assert cli("jobs", "explain", job.id, "--url", url).out == (
        f"no_worker: Job {job.id} (send) waits for a worker: none is running.\n"
    )


def test_explain_tells_people_the_other_reasons_too(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "send", {"to": "ann"}, delay=600)
    shop.pause("mail", actor="bob")

    first, second, third = cli("jobs", "explain", job.id, "--url", url).out.splitlines()

    assert re.match(r"not_due: Job \d+ \(send\) is not due until .* \(in (9|10) min\)\.$", first)
    assert second.startswith("also paused: ")
    assert second.endswith(", by bob.")
    assert third.startswith("also no_worker: ")


def test_explain_gives_programs_the_structure(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "send", {"to": "ann"}, delay=600)

    found = cli("jobs", "explain", job.id, "--url", url, "--json").json

    assert list(found) == list(views.EXPLANATION)
    assert (found["reason"], found["until"]) == ("not_due", views.job(job)["scheduled_run_time"])
    assert found["text"].startswith(f"Job {job.id} (send) is not due until")
    assert found["details"]["scheduled_run_time"] == found["until"]
    assert [other["reason"] for other in found["details"]["also"]] == ["no_worker"]


def test_explain_of_a_final_job_tells_how_it_ended(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "break_")
    shop.run_until_idle()

    out = cli("jobs", "explain", job.id, "--url", url).out

    assert out.startswith(f"final: Job {job.id} (break_) ended `error` at ")
    assert "ValueError: broken" in out


def test_explain_of_no_job_is_not_found(cli: Call, shop: App, url: str) -> None:
    answer = cli("jobs", "explain", 17, "--url", url)

    assert (answer.code, answer.out) == (3, "")
    assert "no job 17" in answer.err


def test_text_of_strangers_cannot_move_the_cursor(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "break_", {"text": "\x1b[2Jcleared\x9b [bold]x[/]"})
    shop.run_until_idle()

    out = cli("jobs", "explain", job.id, "--url", url).out

    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", out)
    assert "cleared" in out
    assert "[bold]x[/]" in out


def test_show_tells_why_a_job_is_not_running(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "send", {"to": "ann"})

    assert "no_worker: Job" in cli("jobs", "show", job.id, "--url", url).out
    assert cli("jobs", "show", job.id, "--url", url, "--json").json["explanation"]["reason"] == "no_worker"
