"""`holdfast jobs complete` and `fail`: answers to jobs that wait."""

from typing import Any

import pytest

from holdfast import WAIT, App, Job
from tests.cli.conftest import Call

pytestmark = pytest.mark.claim("R3")


@pytest.fixture
def charge(shop: App) -> Any:
    @shop.queue("mail").job(retries=2)
    def charge(order: int) -> Any:
        return WAIT

    return charge


@pytest.fixture
def waiting(shop: App, charge: Any) -> Job:
    job: Job = charge.using(job_key="order-7").enqueue(order=7)
    shop.run_until_idle()
    return job


def test_complete_by_type_and_key_gives_the_job_its_result(cli: Call, waiting: Job, url: str) -> None:
    told = cli("jobs", "complete", "charge", "order-7", "--result", '{"ok": true}', "--url", url)
    assert told.out == f"Job {waiting.id} (charge) is answered and final: success.\n"
    assert waiting.refresh().result == {"ok": True}


def test_complete_by_id_for_programs(cli: Call, waiting: Job, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    found = cli("jobs", "complete", str(waiting.id), "--url", url, "--json").json
    assert (found["id"], found["outcome"], found["result"]) == (waiting.id, "success", None)
    assert waiting.history()[-1].actor == "cli:ann"


def test_fail_ends_it_and_fail_with_retry_does_not(cli: Call, shop: App, charge: Any, waiting: Job, url: str) -> None:
    again = cli("jobs", "fail", "charge", "order-7", "--error", "try later", "--retry", "--url", url, "--json").json
    assert (again["state"], again["error"]["message"]) == ("error", "try later")
    other = charge.using(job_key="order-8").enqueue(order=8)
    shop.run_until_idle()
    assert cli("jobs", "fail", str(other.id), "--error", "no money", "--url", url).code == 0
    assert (other.refresh().outcome, str(other.refresh().error)) == ("failed", "no money")


def test_an_answer_that_comes_early_is_kept(cli: Call, charge: Any, url: str) -> None:
    job = charge.using(job_key="k").enqueue(order=9)
    told = cli("jobs", "complete", "charge", "k", "--url", url)
    assert told.out == f"Job {job.id} (charge) does not wait yet; the answer is kept until it does.\n"
    assert cli("jobs", "complete", "charge", "k", "--url", url).code == 4


def test_a_wrong_job_or_answer_changes_nothing(cli: Call, waiting: Job, url: str) -> None:
    assert cli("jobs", "complete", "charge", "no-such-key", "--url", url).code == 3
    for number in ("999999", "99999999999999999999"):
        assert cli("jobs", "complete", number, "--url", url).code == 3
    results = (["charge", "order-7", "--result", text] for text in ("{", '{"ok": true, "ok": false}'))
    for wrong in (["charge"], ["²"], ["charge", "order-7", "more"], *results):
        assert cli("jobs", "complete", *wrong, "--url", url).code == 2
    assert waiting.refresh().situation == "waiting"
    cli("jobs", "complete", "charge", "order-7", "--url", url)
    assert cli("jobs", "complete", "charge", "order-7", "--url", url).code == 4
