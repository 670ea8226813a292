"""`holdfast schedules`: list, history, add, remove and fire."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import App
from tests.cli.conftest import Call

pytestmark = pytest.mark.claim("W6")


def add(cli: Call, url: str, *options: str, name: str = "nightly", payload: str = '{"to": "ada"}') -> Any:
    return cli("schedules", "add", name, "mail", "send", payload, *options, "--url", url)


def test_an_added_schedule_is_listed_with_all_that_is_known_about_it(cli: Call, shop: App, url: str) -> None:
    made = add(cli, url, "--cron", "0 3 * * *", "--zone", "Europe/Amsterdam", "--misfire", "all", "--json").json
    assert (made["name"], made["job_type"], made["cron"]) == ("nightly", "send", "0 3 * * *")
    assert (made["zone"], made["misfire"], made["source"], made["declared"]) == (
        "Europe/Amsterdam",
        "all",
        "operator",
        False,
    )
    assert made["payload"] == {"to": "ada"}
    assert (made["count"], made["last_time"], made["last_job"], made["problem"]) == (0, None, None, None)
    (listed,) = cli("schedules", "list", "--url", url, "--json").json
    assert listed == made
    assert datetime.fromisoformat(listed["next_time"]) > datetime.now(UTC)


def test_the_newest_comes_first_and_the_table_tells_when(cli: Call, shop: App, url: str) -> None:
    assert cli("schedules", "list", "--url", url).out == "There are no schedules.\n"
    assert "comes next at" in add(cli, url, "--every", "600", name="ten").out
    add(cli, url, "--cron", "30 2 * * *", "--zone", "UTC", "--key", "only")
    names = [each["name"] for each in cli("schedules", "list", "--url", url, "--json").json]
    assert names == ["nightly", "ten"]
    header, nightly, ten = cli("schedules", "list", "--url", url).out.splitlines()
    assert header.split()[:4] == ["schedule", "when", "zone", "job"]
    assert nightly.startswith("nightly")
    assert "30 2 * * *" in nightly
    assert "every 600 s" in ten


def test_points_in_time_a_start_an_end_and_constants(cli: Call, shop: App, url: str) -> None:
    at = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    options = ("--at", at.isoformat(), "--start", "2026-01-01T00:00:00Z", "--end", "2999-01-01T00:00:00+01:00")
    payload = '{"to": "{who}", "subject": "no {number}, {time:%Y}"}'
    made = add(cli, url, *options, "--const", "who=ada", "--const", "number=7", "--json", payload=payload).json
    assert (made["const"], made["payload"]["to"]) == ({"who": "ada", "number": 7}, "{who}")
    assert datetime.fromisoformat(made["at"][0]) == at
    assert made["end_time"] == "2998-12-31T23:00:00.000000Z"
    job = cli("schedules", "fire", "nightly", "--url", url, "--json").json
    assert job["payload"] == {"to": "ada", "subject": f"no 7, {datetime.now(UTC):%Y}"}


def test_firing_makes_a_job_now_and_the_history_tells(cli: Call, shop: App, url: str) -> None:
    add(cli, url, "--every", "86400", "--key", "only-one", "--priority", "3")
    assert cli("schedules", "history", "nightly", "--url", url).out == "Schedule `nightly` has not fired yet.\n"
    job = cli("schedules", "fire", "nightly", "--url", url, "--json").json
    assert (job["state"], job["job_key"], job["priority"], job["payload"]) == ("initial", "only-one", 3, {"to": "ada"})
    again = cli("schedules", "fire", "nightly", "--url", url)
    assert again.out == f"Schedule `nightly` made no job: job {job['id']} (send) has its key and is `initial`.\n"
    second, first = cli("schedules", "history", "nightly", "--url", url, "--json").json
    assert (first["count"], first["job"], first["duplicate"]) == (1, job["id"], False)
    assert (second["count"], second["job"], second["duplicate"]) == (2, job["id"], True)
    assert first["actor"].startswith("cli:")
    assert "had the key already" in cli("schedules", "history", "nightly", "--url", url).out
    assert shop.run_until_idle() == 1


def test_a_removed_schedule_is_gone_and_what_code_declares_can_be_taken_back(cli: Call, shop: App, url: str) -> None:
    shop.schedule("ten", every=600, job="send", payload={"to": "code"})
    shop.find()
    add(cli, url, "--every", "60", name="ten")
    assert cli("schedules", "remove", "ten", "--url", url).out == "Schedule `ten` is removed.\n"
    assert cli("schedules", "list", "--url", url, "--json").json == []
    (removed,) = cli("schedules", "list", "--removed", "--url", url, "--json").json
    assert (removed["name"], removed["removed"], removed["next_time"]) == ("ten", True, None)
    assert cli("schedules", "remove", "ten", "--url", url).code == 3
    back = cli("schedules", "add", "ten", "--declared", "--url", url, "--json").json
    assert (back["source"], back["every"], back["payload"]) == ("code", 600, {"to": "code"})


@pytest.mark.parametrize("verb", ["remove", "fire", "history"])
def test_a_schedule_that_is_not_there_is_exit_code_three(cli: Call, shop: App, url: str, verb: str) -> None:
    answer = cli("schedules", verb, "nothing", "--url", url)
    assert (answer.code, answer.out) == (3, "")
    assert "There is no schedule `nothing`" in answer.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "give one of cron, every and at"),
        (("--cron", "0 3 * * *"), "cron needs the zone"),
        (("--cron", "0 33 * * *", "--zone", "UTC"), "its hour `33` is wrong"),
        (("--every", "0"), "every=0.0"),
        (("--at", "tomorrow"), "--at is 'tomorrow'"),
        (("--every", "60", "--end", "2026-01-01T00:00:00"), "without a time zone"),
        (("--every", "60", "--misfire", "maybe"), "misfire='maybe'"),
        (("--every", "60", "--const", "novalue"), "write it as NAME=VALUE"),
        (("--every", "60", "--const", 'n={"a": 1, "a": 2}'), "has the name 'a' twice"),
        (("--every", "60", "--const", "n=" + "[" * 60_000), "nested too deeply"),
        (("--every", "60", "--declared"), "leave everything else out"),
    ],
)
def test_what_is_wrong_is_exit_code_two_and_nothing_is_stored(
    cli: Call, shop: App, url: str, options: tuple[str, ...], told: str
) -> None:
    answer = add(cli, url, *options)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err
    assert shop.schedules() == []


def test_a_payload_with_a_name_twice_is_refused(cli: Call, shop: App, url: str) -> None:
    answer = cli("schedules", "add", "hello", "mail", "send", '{"to": "a", "to": "b"}', "--every", "60", "--url", url)
    assert (answer.code, answer.out) == (2, "")
    assert "has the name 'to' twice" in answer.err
    assert shop.schedules() == []


def test_arguments_that_the_type_does_not_take_are_refused(cli: Call, shop: App, url: str) -> None:
    for payload in ('{"too": "ada"}', "[]", "{"):
        assert add(cli, url, "--every", "60", payload=payload).code == 2
    assert cli("schedules", "add", "x", "--url", url).code == 2
    assert cli("schedules", "add", "x", "post", "scan", "--every", "60", "--url", url).code == 3
    assert cli("schedules", "add", "x", "--declared", "--url", url).code == 3
    assert shop.schedules() == []
