"""`holdfast queues` and `holdfast workers list`."""

import pytest

from holdfast import Adaptive, App
from holdfast.web.shapes import QueueShape, WorkerShape
from tests.cli.conftest import Call
from tests.raw_sql import RawSql


def test_list_counts_the_jobs_of_each_queue(cli: Call, shop: App, url: str) -> None:
    shop.queue("post", throttle_limit=4, order="schedule")
    shop.enqueue("mail", "fail")
    shop.run_until_idle()
    shop.enqueue("mail", "send", {"to": "ann"})
    mail, post = cli("queues", "list", "--url", url, "--json").json
    assert (mail["name"], mail["jobs"]) == (
        "mail",
        {"pending": 1, "running": 0, "failed": 0, "completed": 0, "dead": 1},
    )
    assert set(mail) == set(QueueShape.__struct_fields__)
    assert (mail["load"]["ready"], mail["load"]["dead"]) == (1, 1)
    assert (post["name"], post["throttle_limit"], post["order"], post["paused"]) == ("post", 4, "schedule", False)
    header, first, second = (line.split() for line in cli("queues", "list", "--url", url).out.splitlines())
    assert header == ["queue", "pending", "running", "failed", "completed", "dead", "limit", "order"]
    assert first == ["mail", "1", "0", "0", "0", "1", "–", "priority"]
    assert second == ["post", "0", "0", "0", "0", "0", "4", "schedule"]


def test_pause_and_resume_are_stored_and_may_be_repeated(cli: Call, shop: App, url: str) -> None:
    for _ in range(2):
        assert cli("queues", "pause", "mail", "--url", url, "--json").json["paused"] is True
    assert "paused" in cli("queues", "list", "--url", url).out
    shop.enqueue("mail", "fail")
    assert shop.run_until_idle() == 0
    for _ in range(2):
        assert cli("queues", "resume", "mail", "--url", url, "--json").json["paused"] is False
    assert shop.run_until_idle() == 1


def test_people_are_told_what_became_of_the_queue(cli: Call, shop: App, url: str) -> None:
    assert cli("queues", "pause", "mail", "--url", url).out.startswith("Queue `mail` is paused")
    assert cli("queues", "resume", "mail", "--url", url).out == "Queue `mail` is open.\n"


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_queue_that_does_not_exist_is_exit_code_three(cli: Call, shop: App, url: str, verb: str) -> None:
    answer = cli("queues", verb, "post", "--url", url)
    assert (answer.code, answer.out) == (3, "")
    assert "no queue `post`" in answer.err


def test_a_name_that_no_queue_can_have_is_exit_code_two(cli: Call, shop: App, url: str) -> None:
    assert cli("queues", "pause", "no queue!", "--url", url).code == 2


def test_workers_are_listed_the_newest_first(cli: Call, shop: App, url: str) -> None:
    assert cli("workers", "list", "--url", url, "--json").json == []
    assert cli("workers", "list", "--url", url).out == "No worker is alive.\n"
    with shop.worker(name="first", concurrency=3, labels=["gpu"]), shop.worker(name="second", concurrency=2):
        second, first = cli("workers", "list", "--url", url, "--json").json
        assert set(first) == set(WorkerShape.__struct_fields__)
        assert first["jobs"] == 0
        assert (first["name"], first["labels"], first["concurrency"]) == ("first", ["gpu"], 3)
        assert (second["name"], second["queues"], second["job_types"]) == (
            "second",
            ["mail"],
            ["break_", "fail", "send"],
        )
        _, line, _ = cli("workers", "list", "--url", url).out.splitlines()
        assert line.split()[:3] == [str(second["id"]), "second", "mail"]
    assert cli("workers", "list", "--url", url, "--json").json == []


@pytest.mark.claim("R6")
def test_breakers_are_listed_and_reset(cli: Call, shop: App, url: str) -> None:
    assert cli("queues", "breakers", "--url", url, "--json").json == []
    assert "no breakers" in cli("queues", "breakers", "--url", url).out

    @shop.queue("mail").job(retries=0, retry=Adaptive(breaker=2, probe=3600))
    def call() -> None:
        raise ConnectionError("down")

    for _ in range(3):
        call.enqueue()
    shop.run_until_idle()
    (found,) = cli("queues", "breakers", "--url", url, "--json").json
    assert (found["job_type"], found["state"], found["failures"], found["probe"]) == ("call", "open", 2, None)
    assert found["probe_time"] > found["opened_time"]
    header, row = cli("queues", "breakers", "--url", url).out.splitlines()
    assert header.split()[:3] == ["job", "type", "state"]
    assert row.split()[:3] == ["call", "open", "2"]

    assert cli("queues", "reset", "call", "--url", url, "--json").json["state"] == "closed"
    assert shop.run_until_idle() == 1
    assert "is closed" in cli("queues", "reset", "call", "--url", url).out
    refused = cli("queues", "reset", "send", "--url", url)
    assert refused.code == 3
    assert "has no breaker" in refused.err


@pytest.mark.claim("Q2")
def test_a_limit_is_set_and_given_back_to_the_code(cli: Call, shop: App, url: str) -> None:
    shop.queue("mail", throttle_limit=10)
    shop.find()
    told = cli("queues", "limit", "mail", "4", "--url", url, "--json").json
    assert (told["throttle_limit"], told["declared_limit"], told["set_limit"]) == (4, 10, 4)
    assert cli("queues", "limit", "mail", "2.5", "--url", url).out == "Queue `mail` has a limit of 2.5.\n"
    assert cli("queues", "limit", "mail", "0", "--url", url).out == "Queue `mail` has no limit.\n"
    told = cli("queues", "limit", "mail", "declared", "--url", url, "--json").json
    assert (told["throttle_limit"], told["set_limit"]) == (10, None)


@pytest.mark.claim("Q2")
def test_a_limit_that_is_no_number_is_exit_code_two(cli: Call, shop: App, url: str) -> None:
    for wrong in ("many", "nan"):
        answer = cli("queues", "limit", "mail", wrong, "--url", url)
        assert (answer.code, answer.out) == (2, "")
    assert cli("queues", "limit", "post", "4", "--url", url).code == 3


@pytest.mark.claim("Q2")
def test_who_acted_is_written_down(cli: Call, shop: App, url: str) -> None:
    cli("queues", "pause", "mail", "--url", url)
    sql = RawSql(url, "shop")
    (row,) = sql("select actor, action, queue from {audit}")
    sql.close()
    assert row["actor"].startswith("cli:")
    assert (row["action"], row["queue"]) == ("pause", "mail")
