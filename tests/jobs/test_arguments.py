"""Arguments that a function of the API does not have, or lacks, are refused as wrong values are: with what there is."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Invalid, Retry, Snooze, per_key, rate, share
from holdfast.testing import rehearse

WRONG = """
from holdfast import App, rate

App(nam="shop")
App("sqlite:///jobs.db", name="shop").queue("mail", limit=5)
App("sqlite:///jobs.db", name="shop").queue("mail", throttle_limit=5).job(retrys=3)
rate(5)
rate(5, per=60)
"""


@pytest.fixture
def app() -> App:
    return App("sqlite://:memory:", name="shop")


def declared(app: App) -> Any:
    @app.queue("mail").job
    def send(to: str) -> None: ...

    return send


CALLS: list[tuple[Callable[[App], Any], str]] = [
    (lambda app: rate(5), "rate(…) lacks `per`. Its arguments are count, per, burst."),
    (lambda app: per_key("customer"), "per_key(…) lacks `limit`."),
    (lambda app: share(), "share(…) lacks `key` and `shares`."),
    (lambda app: App(nam="shop"), "App(…): unknown argument 'nam'; did you mean `name`? Known are db_config, name,"),
    (lambda app: App("a", "b", "c"), "App(…) takes `db_config`, `name` by position. Give the others by name;"),
    (lambda app: app.queue("mail", limit=5), "queue(…): unknown argument 'limit'; did you mean `throttle_limit`?"),
    (lambda app: app.queue("mail", name="post"), "queue(…): `name` is given twice, by position and by name."),
    (
        lambda app: app.queue("mail").job(retrys=3),
        "job(…): unknown argument 'retrys'; did you mean `retry` or `retries`?",
    ),
    (lambda app: app.find(stat="final"), "find(…): unknown argument 'stat'; did you mean `state` or `status`?"),
    (lambda app: app.workflow("report", parms={}), "workflow(…): unknown argument 'parms'; did you mean `params`?"),
    (lambda app: app.workflow("report").step(shard=4), "step(…): unknown argument 'shard'; did you mean `shards`?"),
    (lambda app: app.routine(lambda turn: None), "routine(…) lacks `every`."),
    (lambda app: app.schedule(job="send"), "schedule(…) lacks `name`."),
    (lambda app: app.schedule("daily", job=declared(app), cronn=1), "unknown option 'cronn'; did you mean `cron`?"),
    (lambda app: declared(app).using(retrys=3), "unknown option 'retrys'; did you mean `retries`?"),
    (lambda app: declared(app).using(colour="red"), "unknown option 'colour'; known are job_key,"),
    (lambda app: app.worker(concurency=3), "unknown setting 'concurency'; did you mean `concurrency`?"),
    (lambda app: rehearse(app).__enter__().enqueued(prio=1), "unknown option 'prio'; did you mean `priority`?"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_a_call_that_cannot_be_is_refused_with_what_there_is(
    app: App, call: Callable[[App], Any], message: str
) -> None:
    with pytest.raises(Invalid, match=re.escape(message)):
        call(app)


def test_an_error_of_the_body_stays_as_it_is(app: App) -> None:
    def strategy(instance: str, queue: str) -> str:
        return len(5)

    with pytest.raises(TypeError, match="object of type 'int' has no len"):
        App("sqlite://:memory:", table_naming_strategy=strategy).queue("mail")


def test_signatures_and_docs_stay_as_they_are_written() -> None:
    assert list(inspect.signature(rate).parameters) == ["count", "per", "burst"]
    assert list(inspect.signature(App).parameters)[:2] == ["db_config", "name"]
    assert App.queue.__doc__ is not None
    assert "Declare a queue" in App.queue.__doc__


@pytest.mark.long
def test_a_type_checker_sees_the_same_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        f"--cache-dir={tmp_path}/cache",
        file,
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path).stdout
    assert sorted(set(re.findall(r"wrong.py:(\d+): error", found))) == ["4", "5", "6", "7"], found


@pytest.mark.parametrize("delay", ["5m", -1, True, float("nan")])
def test_a_delay_that_is_none_is_told_what_it_takes(app: App, delay: Any) -> None:
    with pytest.raises(Invalid, match=r"job type `send`: delay=.*; give seconds from 0 to ten years, or a timedelta\."):
        declared(app).using(delay=delay)
    for outcome in (lambda: Retry(delay=delay), lambda: Snooze(delay)):
        with pytest.raises(Invalid, match="give seconds, 0 or more, or a timedelta"):
            outcome()


def test_a_delay_is_seconds_or_a_timedelta(app: App) -> None:
    send = declared(app)
    jobs = [send.using(delay=delay).enqueue(to="ada") for delay in (300, timedelta(minutes=5))]
    assert [round((job.scheduled_run_time - job.create_time).total_seconds()) for job in jobs] == [300, 300]
