"""`holdfast jobs`: what programs read and what people read."""

import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import App, views
from tests.cli.conftest import Call
from tests.damage import unguarded
from tests.raw_sql import RawSql


def test_list_gives_programs_all_states_the_newest_first(cli: Call, shop: App, url: str) -> None:
    for job_type, payload in (("send", {"to": "ann"}), ("break_", {}), ("fail", {})):
        shop.enqueue("mail", job_type, payload)
    shop.run_until_idle()
    shop.enqueue("mail", "send", {"to": "bob"}, delay=600)
    found = cli("jobs", "list", "--url", url, "--json").json
    assert [(job["job_type"], job["state"], job["outcome"]) for job in found] == [
        ("send", "initial", None),
        ("fail", "final", "failed"),
        ("break_", "final", "error"),
        ("send", "final", "success"),
    ]
    assert [job["id"] for job in found] == sorted((job["id"] for job in found), reverse=True)
    assert list(found[0]) == list(views.JOB)


def test_list_of_an_empty_instance(cli: Call, shop: App, url: str) -> None:
    assert cli("jobs", "list", "--url", url, "--json").json == []
    assert cli("jobs", "list", "--url", url).out == "There are no such jobs.\n"


def test_list_filters(cli: Call, shop: App, url: str) -> None:
    shop.enqueue("mail", "send", {"to": "ann"}, job_key="a")
    shop.run_until_idle()
    shop.enqueue("mail", "send", {"to": "bob"}, job_key="b")
    shop.enqueue("mail", "fail")

    def keys(*options: str) -> list[str | None]:
        return [job["job_key"] for job in cli("jobs", "list", "--url", url, "--json", *options).json]

    assert keys() == [None, "b", "a"]
    assert keys("--limit", "1") == [None]
    assert keys("--job-type", "send") == ["b", "a"]
    assert keys("--job-key", "a") == ["a"]
    assert keys("--state", "initial") == [None, "b"]
    assert keys("--status", "completed") == ["a"]
    assert keys("--queue", "mail", "--job-type", "fail") == [None]
    assert keys("--queue", "other") == []
    assert keys("--archive") == [None, "b", "a"]
    assert cli("jobs", "list", "--url", url, "--status", "gone").code == 2


def test_list_gives_programs_more_than_it_shows_people(cli: Call, shop: App, url: str) -> None:
    send = shop.job_types["send"]
    shop.enqueue_many([send.new(to=str(number)) for number in range(60)])
    assert len(cli("jobs", "list", "--url", url, "--json").json) == 60
    shown = cli("jobs", "list", "--url", url).out
    assert shown.count(" send ") == 50
    assert "These are the newest 50; --limit shows more." in shown
    assert "newest" not in cli("jobs", "list", "--url", url, "--limit", "60").out


def test_list_shows_people_a_line_for_each_job(cli: Call, shop: App, url: str) -> None:
    broken = shop.enqueue("mail", "break_", {"text": "no\nroute [bold]at[/] all"}, job_key="key-1")
    shop.run_until_idle()
    later = shop.enqueue("mail", "send", {"to": "ann"}, delay=600)
    header, first, second = cli("jobs", "list", "--url", url).out.splitlines()
    assert header.split() == ["id", "type", "key", "queue", "state", "attempt", "when", "error"]
    assert first.split()[:5] == [str(later.id), "send", "mail", "initial", "0"]
    assert re.search(r"in (9|10) min", first)
    assert second.split()[:7] == [str(broken.id), "break_", "key-1", "mail", "final", "error", "1"]
    assert "ValueError: no route [bold]at[/] all" in second


def test_what_is_written_to_a_pipe_is_neither_coloured_nor_cut(cli: Call, shop: App, url: str) -> None:
    shop.enqueue("mail", "send", {"to": "ann"}, job_key="k" * 150)
    out = cli("jobs", "list", "--url", url).out
    assert "k" * 150 in out
    assert "\x1b" not in out
    assert "─" not in out


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_a_terminal_is_not_overrun_and_ids_stay_whole(
    cli: Call, shop: App, url: str, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    shop.enqueue("mail", "break_", {"text": "x" * 200}, job_key="k" * 100)
    shop.run_until_idle()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    for command in (("jobs", "list"), ("jobs", "show", 1), ("queues", "list"), ("workers", "list")):
        out = cli(*command, "--url", url).out
        plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
        assert max(map(len, plain.splitlines())) <= width, plain
        assert "─" in plain or "No worker" in plain
    listed = re.sub(r"\x1b\[[0-9;]*m", "", cli("jobs", "list", "--url", url).out).splitlines()
    assert listed[-1].split()[0] == "1"
    assert "final error" in listed[-1]


def test_text_of_strangers_cannot_move_the_cursor(cli: Call, shop: App, url: str) -> None:
    shop.enqueue("mail", "break_", {"text": "\x1b[2Jcleared\x9b"}, job_key="\x1b]0;title\x07")
    shop.run_until_idle()
    for command in (("jobs", "list"), ("jobs", "show", 1), ("jobs", "attempts", 1)):
        out = cli(*command, "--url", url).out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", out)
        assert "cleared" in out


def test_a_payload_that_is_too_deep_breaks_no_list(cli: Call, shop: App, url: str) -> None:
    job = shop.job_types["send"].enqueue(to="a")
    sql = RawSql(url, "shop")
    for levels in (140, 900, 20_000):
        text = '{"to": ' + "[" * levels + "]" * levels + "}"
        with unguarded(sql):
            sql("UPDATE {queue:mail} SET payload = :payload WHERE id = :id", id=job.id, payload=text)
        assert [found["id"] for found in cli("jobs", "list", "--json", "--url", url).json] == [job.id]
        assert cli("jobs", "show", job.id, "--json", "--url", url).json["payload"]["to"]
        assert cli("jobs", "show", job.id, "--url", url).code == 0
    sql.connection.close()


def test_show_gives_programs_the_job_with_history_and_attempts(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "break_", job_key="k")
    shop.run_until_idle()
    found = cli("jobs", "show", job.id, "--url", url, "--json").json
    assert list(found) == [*views.JOB, "history", "attempts", "explanation"]
    assert [(move["from_state"], move["to_state"]) for move in found["history"]] == [
        (None, "initial"),
        ("initial", "running"),
        ("running", "error"),
        ("error", "final"),
    ]
    assert [(each["attempt"], each["outcome"]) for each in found["attempts"]] == [(1, "error")]
    assert "ValueError: broken" in found["attempts"][0]["traceback"]
    assert found["history"] == cli("jobs", "history", job.id, "--url", url, "--json").json
    assert found["attempts"] == cli("jobs", "attempts", job.id, "--url", url, "--json").json


def test_show_gives_people_facts_history_and_tracebacks(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "break_", {"text": "so what"}, job_key="k")
    shop.run_until_idle()
    out = cli("jobs", "show", job.id, "--url", url).out
    assert out.startswith(f"Job {job.id}  break_  final error\n")
    for words in (
        "job_key ",
        '"text": "so what"',
        "ValueError (exception): so what",
        "\nHistory\n",
        "→ running",
        "\nAttempts\n",
    ):
        assert words in out
    assert "Traceback (most recent call last)" in out
    assert "Traceback" in cli("jobs", "attempts", job.id, "--url", url).out
    assert "→ final" in cli("jobs", "history", job.id, "--url", url).out


def test_show_of_a_job_that_only_waits(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "send", {"to": "ann"}, expires=datetime.now(UTC) + timedelta(hours=1))
    out = cli("jobs", "show", job.id, "--url", url).out
    assert "expires_time" in out
    assert "Attempts" not in out
    assert cli("jobs", "attempts", job.id, "--url", url).out == f"Job {job.id} was not attempted yet.\n"
    assert cli("jobs", "attempts", job.id, "--url", url, "--json").json == []


@pytest.mark.parametrize("verb", ["show", "history", "attempts", "abort", "retry"])
@pytest.mark.parametrize("number", [7, 0, 2**70])
def test_a_job_that_does_not_exist_is_exit_code_three(cli: Call, shop: App, url: str, verb: str, number: int) -> None:
    answer = cli("jobs", verb, number, "--url", url, "--json")
    assert (answer.code, answer.out) == (3, "")
    assert f"There is no job {number}" in answer.err


def test_enqueue_stores_the_job_with_its_options(cli: Call, shop: App, url: str) -> None:
    options = ["--key", "k", "--priority", "1", "--timeout", "5", "--retries", "2", "--at", "2040-01-01T12:00:00+02:00"]
    found = cli("jobs", "enqueue", "mail", "send", '{"to": "ann"}', *options, "--url", url, "--json").json
    assert found == views.job(shop.get(found["id"]))
    assert (found["payload"], found["job_key"], found["duplicate"]) == ({"to": "ann"}, "k", False)
    assert (found["priority"], found["timeout"], found["retries"]) == (1, 5, 2)
    assert found["scheduled_run_time"] == "2040-01-01T10:00:00.000000Z"


def test_enqueue_tells_people_the_id(cli: Call, shop: App, url: str) -> None:
    answer = cli("jobs", "enqueue", "mail", "send", '{"to": "ann"}', "--url", url)
    assert answer.out == f"Job {shop.find()[0].id} (send) is enqueued on mail.\n"


def test_enqueue_reads_a_payload_from_standard_input(
    cli: Call, shop: App, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"to": "bob"}\n'))
    assert cli("jobs", "enqueue", "mail", "send", "-", "--url", url, "--json").json["payload"] == {"to": "bob"}


def test_enqueue_with_a_delay(cli: Call, shop: App, url: str) -> None:
    found = cli("jobs", "enqueue", "mail", "fail", "--delay", "600", "--url", url, "--json").json
    wait = datetime.fromisoformat(found["scheduled_run_time"]) - datetime.fromisoformat(found["create_time"])
    assert wait == timedelta(seconds=600)


def test_enqueue_of_a_taken_key_gives_the_living_job(cli: Call, shop: App, url: str) -> None:
    command = ("jobs", "enqueue", "mail", "send", '{"to": "ann"}', "--key", "k", "--url", url)
    first = cli(*command, "--json").json
    second = cli(*command, "--json").json
    assert (second["id"], second["duplicate"]) == (first["id"], True)
    assert cli(*command).out == f"Job {first['id']} (send) has this key already and is `initial`.\n"
    answer = cli(*command, "--on-duplicate", "raise", "--json")
    assert (answer.code, answer.out) == (4, "")
    assert "still `initial`" in answer.err


@pytest.mark.parametrize(
    "wrong",
    [
        ["not json"],
        ["[1]"],
        ['"text"'],
        ["{"],
        ['{"to": NaN}'],
        ['{"to": "a", "to": "b"}'],
        ['{"to": ' + "[" * 60_000 + "]" * 60_000 + "}"],
        ['{"to": 1e999}'],
        ['{"to": "\\ud800"}'],
        ['{"to": 3}'],
        ['{"tu": "ann"}'],
        ["{}"],
        ['{"to": "a"}', "--at", "tomorrow"],
        ['{"to": "a"}', "--at", "2040-01-01T12:00:00"],
        ['{"to": "a"}', "--at", "2040-01-01T12:00:00Z", "--delay", "3"],
        ['{"to": "a"}', "--delay", "-1"],
        ['{"to": "a"}', "--timeout", "0"],
        ['{"to": "a"}', "--retries", "-1"],
        ['{"to": "a"}', "--on-duplicate", "ignore"],
    ],
)
def test_enqueue_refuses_what_cannot_be_and_stores_nothing(cli: Call, shop: App, url: str, wrong: list[str]) -> None:
    answer = cli("jobs", "enqueue", "mail", "send", *wrong, "--url", url)
    assert (answer.code, answer.out) == (2, "")
    assert "Nobody expected" not in answer.err
    assert shop.find() == []


def test_enqueue_needs_a_queue_that_exists(cli: Call, shop: App, url: str) -> None:
    answer = cli("jobs", "enqueue", "post", "anything", "--url", url)
    assert answer.code == 3
    assert "no queue `post`" in answer.err
    assert cli("jobs", "enqueue", "mail", "anything", "--url", url).code == 0


def test_enqueue_under_another_queue_is_a_conflict(cli: Call, shop: App, url: str) -> None:
    shop.queue("post")
    shop.enqueue("mail", "send", {"to": "ann"})
    assert cli("jobs", "enqueue", "post", "send", '{"to": "ann"}', "--url", url).code == 4


def test_abort_ends_a_job_and_names_who_did_it(cli: Call, shop: App, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    first, second = (shop.enqueue("mail", "fail", delay=600) for _ in range(2))
    assert cli("jobs", "abort", first.id, "--url", url, "--json").json["outcome"] == "aborted"
    assert first.history()[-1].actor == "cli:ann"
    assert cli("jobs", "abort", second.id, "--url", url).out == f"Job {second.id} (fail) is aborted.\n"


def test_abort_of_a_final_job_is_a_conflict(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "fail")
    shop.run_until_idle()
    answer = cli("jobs", "abort", job.id, "--url", url, "--json")
    assert (answer.code, answer.out) == (4, "")
    assert "final" in answer.err


def test_retry_makes_a_new_job_of_a_final_one(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "send", {"to": "ann"}, job_key="k")
    answer = cli("jobs", "retry", job.id, "--url", url)
    assert (answer.code, answer.out) == (4, "")
    shop.run_until_idle()
    new: dict[str, Any] = cli("jobs", "retry", job.id, "--url", url, "--json").json
    assert new["id"] > job.id
    assert (new["retry_of"], new["payload"], new["job_key"], new["state"]) == (job.id, {"to": "ann"}, "k", "initial")
    assert cli("jobs", "retry", job.id, "--url", url).code == 4  # the new one has the key


def test_json_is_escaped_where_the_terminal_has_no_unicode(
    cli: Call, shop: App, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.enqueue("mail", "send", {"to": "Zoë ✓"})
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    cli("jobs", "list", "--url", url, "--json")
    assert json.loads(raw.getvalue().decode("ascii"))[0]["payload"] == {"to": "Zoë ✓"}
