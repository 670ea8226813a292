"""`holdfast simulate`: a fleet from a description, with changes beside it, or a day that was."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import App, Fixed
from holdfast.cli import progress
from holdfast.clock import MovableClock
from tests.cli.conftest import Call

SHOP = Path(__file__).resolve().parents[2] / "examples" / "simulation" / "shop.toml"
SMALL = """
[queues.mail]
throttle_limit = 1

[types.send]
arrivals = { every = 10 }
duration = 15
timeout = "none"

[workers.one]
concurrency = 4
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "fleet.toml"
    file.write_text(SMALL)
    return str(file)


@pytest.mark.long
def test_the_example_is_played(cli: Call) -> None:
    answer = cli("simulate", str(SHOP))
    assert answer.code == 0, answer.err
    for words in (
        "jobs in 24 h from 2026-01-05T00:00:00Z, seed 1",
        "newsletter",
        "limit use",
        "utilisation",
        "Backlog",
    ):
        assert words in answer.out
    assert "█" in answer.out
    assert answer.err == ""


def test_who_would_wait_long_is_told_so_early(cli: Call, small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVERY", "EARLY", "LONG"):
        monkeypatch.setattr(progress, name, 0.0)
    answer = cli("simulate", small, "--hours", "1", "--json")
    assert answer.code == 0
    assert answer.err.startswith("As it goes this takes about ")
    assert len(answer.err.splitlines()) == 1, "where there is no terminal that is all"
    assert json.loads(answer.out)["described"]["jobs"]
    both = cli("simulate", small, "--hours", "1", "--set", "queues.mail.limit=2").err.splitlines()
    assert [line.partition(": As it goes")[0] for line in both] == ["As described", "With the change"]
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    told = cli("simulate", small, "--hours", "1").err
    assert re.search(r"\d+\.\d% of the time is over, [\d,]+ jobs so far, about .* left", told)


def test_a_change_is_shown_beside_it(cli: Call, small: str) -> None:
    answer = cli("simulate", small, "--hours", "1", "--set", "queues.mail.limit=2")
    assert "As described, and with queues.mail.limit=2:" in answer.out
    rows = {tuple(line.split()[:3]): line.split()[3:] for line in answer.out.splitlines()}
    assert rows["queue", "mail", "limit"][:4] == ["use", "100%", "75%", "−25"]
    wait = next(line for line in answer.out.splitlines() if line.startswith("send") and "wait max" in line)
    assert wait.endswith("−100%")


def test_programs_get_both_with_their_differences(cli: Call, small: str) -> None:
    alone = cli("simulate", small, "--hours", "1", "--json").json
    assert (alone["changed"], alone["set"], alone["differences"]) == (None, [], None)
    assert alone["described"]["jobs"] == 359
    assert alone["described"]["queues"]["mail"]["limit_use"] == pytest.approx(1, abs=0.01)
    assert len(alone["described"]["queues"]["mail"]["backlog"]) == 96

    both = cli("simulate", small, "--hours", "1", "--set", "queues.mail.throttle_limit=2", "--json").json
    assert both["described"] == alone["described"]
    assert both["changed"]["types"]["send"]["wait"]["max"] == 0
    assert both["differences"]["send: wait max"]["changed"] == 0
    assert both["differences"]["queue mail: at limit"]["described"] > 0.9


def test_what_was_not_measured_is_no_zero(cli: Call, small: str) -> None:
    nobody = ("simulate", small, "--hours", "1", "--set", "workers.one.count=0")
    told = [line.split() for line in cli(*nobody).out.splitlines()]
    for what in ("wait p50", "wait p99", "wait max", "turnaround p99"):
        row = next(line for line in told if line[:3] == ["send", *what.split()])
        assert (row[-2] != "–", row[-1]) == (True, "–"), row
    assert ["worker", "one", "utilisation", "25%", "–"] in told
    differences = cli(*nobody, "--json").json["differences"]
    assert differences["send: wait p99"]["described"] > 0
    for what in ("send: wait p99", "send: turnaround p99", "worker one: utilisation"):
        assert differences[what]["changed"] is None
    assert differences["send: left"]["changed"] == 359


def test_duplicates_are_shown_where_there_are_any(cli: Call, small: str, tmp_path: Path) -> None:
    assert "duplicates" not in cli("simulate", small, "--hours", "1").out
    assert "duplicates" not in cli("simulate", small, "--hours", "1", "--set", "queues.mail.limit=2").out
    file = tmp_path / "keys.toml"
    file.write_text(SMALL.replace("duration", "keys = 1\nduration"))
    lines = [line.split() for line in cli("simulate", str(file), "--hours", "1").out.splitlines()]
    rows = {line[0]: line for line in lines if line}
    assert rows["send"][-4] == "179"
    assert rows["type"][-4] == "duplicates"
    both = cli("simulate", str(file), "--hours", "1", "--set", "types.send.duration=5").out
    assert ["send", "duplicates", "179", "0", "−100%"] in [line.split() for line in both.splitlines()]


def test_a_seed_gives_the_same_again(cli: Call, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(SMALL.replace("{ every = 10 }", "{ per_hour = 200 }"))
    first, again, other = (
        cli("simulate", str(file), "--hours", "2", "--seed", seed, "--json").out for seed in ("7", "7", "8")
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "Name a file that describes the fleet, or --from-archive DAY"),
        (("nowhere.toml",), 3, "There is no file nowhere.toml"),
        (("FILE", "--days", "1", "--hours", "1"), 2, "Give --days or --hours, not both."),
        (("FILE", "--hours", "-1"), 2, "Error: --hours: `hours` is -1.0; give a number above 0"),
        (("FILE", "--days", "0"), 2, "Error: --days: `days` is 0.0; give a number above 0"),
        (("FILE", "--days", "2", "--set", "simulation.days=0"), 2, "Error: --set simulation.days=0: `days` is 0; give"),
        (("FILE", "--seed", "-1", "--set", "workers.one.count=2"), 2, "Error: --seed: `seed` is -1; give a whole"),
        (
            ("FILE", "--set", "queues.mial.limit=3", "--set", "types.send.retries=x"),
            2,
            "(1) --set queues.mial.limit=3: `mial` is none of the queues. Did you mean `mail`? "
            "(2) --set types.send.retries=x: `retries`",
        ),
        (("FILE", "--set", "queues"), 2, "is no change; write what and how"),
        (("--from-archive", "yesterday"), 2, "write a day as 2026-12-24"),
        (("--from-archive", "9999-12-31"), 2, "give a day of a year from 1970 to 9000."),
    ],
)
def test_what_is_wrong_is_told(cli: Call, small: str, arguments: tuple[str, ...], code: int, words: str) -> None:
    answer = cli("simulate", *(small if each == "FILE" else each for each in arguments))
    assert (answer.code, answer.out) == (code, "")
    assert words in answer.err


@pytest.fixture
def yesterday(url: str) -> App:
    """Twenty jobs of a day, one every minute from noon on, that took two minutes each; one failed, one is wanted later."""
    clock = MovableClock(datetime(2026, 3, 2, 12, tzinfo=UTC))
    with App(url, name="shop", clock=clock) as app:
        mail = app.queue("mail", throttle_limit=1)
        state = {"fails": 1}

        @mail.job(timeout=None, retries=1, retry=None, priority=50)
        def send(number: int) -> None:
            clock.advance(120)
            if state["fails"]:
                state["fails"] -= 1
                raise ValueError("once")

        for number in range(20):
            options = {"delay": 3600} if number == 19 else {}
            send.using(job_key=f"k{number}", **options).enqueue(number=number)
        app.run_until_idle()
        clock.advance(2 * 3600)
        app.run_until_idle()
        app.store.archive(3600)  # a part of them
    return app


def test_a_day_that_was_is_played_again(cli: Call, yesterday: App, url: str, tmp_path: Path) -> None:
    missing = cli("simulate", "--from-archive", "2026-03-02", "--url", url)
    assert (missing.code, "No worker that runs jobs is alive" in missing.err) == (3, True)
    assert cli("simulate", "--from-archive", "2026-03-09", "--url", url).code == 3

    file = tmp_path / "workers.toml"
    file.write_text("[workers.some]\nconcurrency = 10\n")
    day = ("simulate", str(file), "--from-archive", "2026-03-02", "--url", url, "--json")
    played = cli(*day, "--set", "queues.mail.throttle_limit=5").json
    for name in ("described", "changed"):
        send = played[name]["types"]["send"]
        assert (send["arrived"], send["succeeded"], send["retries"]) == (20, 20, 1)
    assert played["described"]["start"] == "2026-03-02T00:00:00Z"
    assert played["described"]["queues"]["mail"]["most_in_use"] == 1
    assert played["changed"]["queues"]["mail"]["most_in_use"] == 5
    assert played["described"]["types"]["send"]["wait"]["max"] == pytest.approx(19 * 120, abs=130)
    assert played["changed"]["types"]["send"]["wait"]["max"] < 600
    assert timedelta(seconds=played["described"]["seconds"]) == timedelta(days=1)


def test_a_job_of_a_day_that_the_settings_of_today_refuse_is_told_and_the_others_are_played(
    cli: Call, url: str
) -> None:
    clock = MovableClock(datetime(2026, 3, 2, 12, tzinfo=UTC))
    with App(url, name="shop", clock=clock) as app:
        mail = app.queue("mail", throttle_limit=5)

        @mail.job
        def send() -> None: ...

        send.using(throttle_factor=4).enqueue_many([{}, {}])
        send.using(expires=clock.now() + timedelta(minutes=1)).enqueue()
        app.run_until_idle()
        app.limit("mail", 3)
    Path("workers.toml").write_text("[workers.some]\n")
    day = ("simulate", "workers.toml", "--from-archive", "2026-03-02", "--url", url)
    later = ("--set", "types.send.time_windows=['20:00-21:00']")

    played = cli(*day, *later, "--json").json
    assert [played[name]["types"]["send"]["refused"] for name in ("described", "changed")] == [2, 3]
    assert played["described"]["types"]["send"]["succeeded"] == 1
    assert "throttle_factor 4.0 is above the queue's throttle_limit 3.0" in played["described"]["first_refusal"]
    told = cli(*day, *later).out
    assert "Refused when they came: 2. The first is `send`: throttle_factor 4.0 is above" in told
    assert "Refused when they came, with the change: 3." in told


def test_the_jobs_of_a_day_whose_type_no_longer_fits_under_the_limit_are_counted(cli: Call, url: str) -> None:
    with App(url, name="shop", clock=MovableClock(datetime(2026, 3, 2, 12, tzinfo=UTC))) as app:
        mail = app.queue("mail", throttle_limit=5)
        mail.job(name="send", throttle_factor=4)(lambda: None).enqueue()
        mail.job(name="scan")(lambda: None).enqueue()
        app.run_until_idle()
    Path("workers.toml").write_text("[workers.some]\n")
    day = ("simulate", "workers.toml", "--from-archive", "2026-03-02", "--url", url)
    played = cli(*day, "--set", "queues.mail.throttle_limit=3", "--json").json
    types = {name: played[name]["types"] for name in ("described", "changed")}
    assert [types[name]["send"]["refused"] for name in types] == [0, 1]
    assert [types[name]["scan"]["succeeded"] for name in types] == [1, 1]
    assert played["changed"]["first_refusal"].startswith("`send`: throttle_factor 4.0 is above the queue's")


def test_a_negative_limit_of_an_instance_is_none(cli: Call, yesterday: App, url: str) -> None:
    with App(url, name="shop") as app:
        app.limit("mail", -1)
    Path("workers.toml").write_text("[workers.some]\n")
    played = cli("simulate", "workers.toml", "--from-archive", "2026-03-02", "--url", url, "--json").json
    assert played["described"]["queues"]["mail"]["throttle_limit"] is None
    assert played["described"]["types"]["send"]["succeeded"] == 20


def test_living_workers_are_those_of_the_day(cli: Call, yesterday: App, url: str) -> None:
    with App(url, name="shop") as app:
        app.queue("mail", throttle_limit=1).job(name="send")(lambda number: None)
        with app.worker(concurrency=3, labels=["eu"]):
            played = cli("simulate", "--from-archive", "2026-03-02", "--url", url, "--json").json
    assert played["described"]["workers"]["workers-1"]["slots"] == 3
    assert played["described"]["types"]["send"]["succeeded"] == 20


def test_workers_that_run_no_jobs_are_not_among_them(cli: Call, yesterday: App, url: str) -> None:
    day = ("simulate", "--from-archive", "2026-03-02", "--url", url, "--json")
    with App(url, name="shop") as app, App(url, name="shop") as idle:
        app.queue("mail", throttle_limit=1).job(name="send")(lambda number: None)
        with app.worker(concurrency=5, duties=["sweep"]), idle.worker(concurrency=7):
            assert cli(*day).code == 3
            with app.worker(concurrency=3):
                played = cli(*day).json
    assert [each["slots"] for each in played["described"]["workers"].values()] == [3]


def test_a_job_that_failed_and_had_not_ended_ends_as_is_usual_for_its_type(cli: Call, url: str) -> None:
    clock = MovableClock(datetime(2026, 3, 2, 12, tzinfo=UTC))
    with App(url, name="shop", clock=clock) as app:

        @app.queue("mail").job(retries=None, retry=Fixed(3600))
        def send(fails: bool) -> None:
            clock.advance(20)
            if fails:
                raise ValueError("not yet")

        send.enqueue_many([{"fails": True}, {"fails": False}])
        app.run_until_idle()
    Path("workers.toml").write_text("[workers.some]\n")
    played = cli("simulate", "workers.toml", "--from-archive", "2026-03-02", "--url", url, "--json").json
    sent = played["described"]["types"]["send"]
    assert (sent["succeeded"], sent["retries"], sent["left"]) == (2, 1, 0)
    assert sent["turnaround"]["max"] == pytest.approx(3640, abs=2)


def test_a_day_whose_jobs_would_be_tried_again_without_end_is_refused(cli: Call, url: str) -> None:
    clock = MovableClock(datetime(2026, 3, 2, 12, tzinfo=UTC))
    with App(url, name="shop", clock=clock) as app:

        @app.queue("mail").job(retries=0)
        def send(fails: bool) -> None:
            clock.advance(0.01)
            if fails:
                raise ValueError("never")

        send.enqueue_many([{"fails": True}, {"fails": False}])
        app.run_until_idle()
    Path("workers.toml").write_text("[workers.some]\n")
    day = (
        "simulate",
        "workers.toml",
        "--from-archive",
        "2026-03-02",
        "--url",
        url,
        "--set",
        "types.send.retries='none'",
    )
    assert cli(*day).code == 0
    answer = cli(*day, "--set", "types.send.retry={kind='none'}")
    assert (answer.code, answer.out) == (2, "")
    assert (
        "Type `send`: about 8,640,000 retries come in 24 h, and at most 1,000,000 are played; give them" in answer.err
    )
    late = cli(*day, "--set", "types.send.timeout=0.001")
    assert "about 172,800,000 retries come in 24 h" in late.err
