"""The kit for users' tests: their app on an empty database, by a clock of the test, with crashes on demand."""

import asyncio
import os
import sqlite3
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import ANY

import apsw
import psycopg
import pytest

from holdfast import App, Conflict, HoldfastError, Invalid, NoDelay, current_job
from holdfast.clock import Clock
from holdfast.testing import Rehearsal, crash_here, rehearse

pytest_plugins = ["pytester"]
WAYS = ("thread", "loop", "process", "process loop")


def shop(url: str = "sqlite:///never-opened.db") -> App:
    """An app as users have it: made at import, with a database and a clock of its own."""
    app = App(url, name="shop")

    @app.queue("mail").job(retries=2)
    def send(to: str, at: datetime | None = None, options: dict[str, Any] | None = None) -> str:
        if to == "busy":
            raise ConnectionError("busy")
        return f"sent to {to}"

    @app.queue("post").job
    async def scan(page: int) -> int:
        return page

    return app


@pytest.fixture
def jobs(rehearse: Callable[..., Rehearsal], url: str) -> Rehearsal:
    """A rehearsal on either database."""
    return rehearse(shop(), url)


def test_an_app_has_an_empty_database_and_a_movable_clock_and_afterwards_its_own_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = shop("sqlite:///own.db")
    app.job_types["send"].enqueue(to="stored before")

    with rehearse(app) as jobs:
        assert (jobs.app, app.clock, app.db_config) == (app, jobs.clock, "sqlite://:memory:")
        jobs.assert_not_enqueued()
        app.job_types["send"].using(delay=60).enqueue(to="ada")
        assert jobs.run_until_idle() == 0
        jobs.clock.advance(60)
        assert jobs.run_until_idle() == 1

    assert (app.db_config, app.name, type(app.clock)) == ("sqlite:///own.db", "shop", Clock)
    assert [job.payload["to"] for job in app.find()] == ["stored before"]
    app.close()


def test_every_rehearsal_begins_with_nothing(url: str) -> None:
    app = shop()
    names = set()
    for _ in range(2):
        with rehearse(app, url) as jobs:
            jobs.assert_not_enqueued()
            app.job_types["send"].using(job_key="k").enqueue(to="ada")
            names.add(app.name)
            jobs.run_until_idle()
    assert len(names) == 2
    assert app.name == "shop"
    assert not os.path.exists("never-opened.db")


def test_without_an_app_there_is_a_new_one(rehearse: Callable[..., Rehearsal]) -> None:
    jobs = rehearse()

    @jobs.app.queue("mail").job
    def send() -> str:
        return "sent"

    assert send.enqueue().refresh().state == "initial"
    assert jobs.run_until_idle() == 1
    assert jobs.assert_enqueued(send, outcome="success").result == "sent"


def test_queues_have_the_tables_of_the_rehearsed_instance_and_then_their_own(url: str) -> None:
    app = App(
        "sqlite:///never-opened.db", name="shop", table_naming_strategy=lambda instance, queue: f"{queue}_{instance}"
    )
    mail = app.queue("mail")
    with rehearse(app, url, name="rehearsed_tables_" + "".join(chr(97 + int(c, 16)) for c in uuid.uuid4().hex[:12])):
        assert mail.declared.table_name == f"mail_{app.name}"
        app.find()
    assert mail.declared.table_name == "mail_shop"


def test_what_was_enqueued_is_found_by_type_payload_and_options(jobs: Rehearsal) -> None:
    send, scan = jobs.app.job_types["send"], jobs.app.job_types["scan"]
    moment = datetime(2026, 5, 1, 12, tzinfo=UTC)
    first = send.using(job_key="k", delay=60).enqueue(to="ada", at=moment, options={"copy": True, "tags": ["a"]})
    second = send.using(priority=5).enqueue(to="bob")
    third = scan.enqueue(page=1)

    assert jobs.assert_enqueued(send).id == first.id
    assert jobs.assert_enqueued("send", {"to": "bob"}).id == second.id
    assert jobs.assert_enqueued(payload={"page": 1}).id == third.id
    assert jobs.assert_enqueued(send, {"at": moment, "options": {"copy": True}}).id == first.id
    assert jobs.assert_enqueued(send, {"to": ANY}, priority=5, queue="mail", job_key=None).id == second.id
    assert jobs.assert_enqueued(send, delay=60, job_key="k").id == first.id
    assert jobs.assert_enqueued(send, delay=timedelta(minutes=1)).id == first.id
    assert jobs.assert_enqueued(send, scheduled_run_time=jobs.clock.now() + timedelta(seconds=60)).id == first.id
    assert jobs.assert_enqueued(count=3).id == first.id
    assert [job.id for job in jobs.enqueued()] == [first.id, second.id, third.id]
    assert jobs.enqueued(send, {"to": "eve"}) == []
    jobs.assert_not_enqueued(send, {"to": "eve"})
    jobs.assert_not_enqueued(send, {"options": {"copy": False}})

    jobs.run_until_idle()
    assert jobs.assert_enqueued(send, outcome="success").id == second.id  # ended ones count


def test_a_failed_assertion_lists_what_was_enqueued_instead_the_nearest_first(jobs: Rehearsal) -> None:
    send, scan = jobs.app.job_types["send"], jobs.app.job_types["scan"]
    with pytest.raises(AssertionError, match=r"^jobs of type `send`: none enqueued. There are no jobs at all.$"):
        jobs.assert_enqueued(send)
    scan.enqueue(page=1)
    send.using(priority=5).enqueue(to="bob")
    send.using(job_key="k", delay=60).enqueue(to="ada")

    with pytest.raises(AssertionError) as failed:
        jobs.assert_enqueued(send, {"to": "ada"}, priority=5)

    headline, *lines = str(failed.value).splitlines()
    assert (
        headline == "jobs of type `send` with payload {'to': 'ada'} and priority=5: none enqueued. 3 enqueued in all:"
    )
    assert lines == [
        "  2 send {'to': 'bob'}, initial, differs in to",
        "  3 send {'to': 'ada'}, initial, job_key='k', delay=60, differs in priority",
        "  1 scan {'page': 1}, initial",
    ]
    with pytest.raises(AssertionError, match=r"2 enqueued, not 1\."):
        jobs.assert_enqueued(send, count=1)
    with pytest.raises(AssertionError, match=r"jobs of type `scan`: 1 enqueued, not 0\."):
        jobs.assert_not_enqueued(scan)
    scan.using().enqueue_many([{"page": number} for number in range(40)])
    with pytest.raises(AssertionError, match="and 13 more"):
        jobs.assert_enqueued("nothing")


def test_a_misspelt_option_is_no_failed_assertion(jobs: Rehearsal) -> None:
    with pytest.raises(Invalid, match="unknown option 'proirity'"):
        jobs.assert_enqueued("send", proirity=5)
    with pytest.raises(Invalid, match="assert_not_enqueued"):
        jobs.assert_enqueued("send", count=0)


def crashing(app: App, way: str, **options: Any) -> Any:
    def plain(attempt: int | None = None) -> int:
        crash_here(attempt)
        return current_job().attempt

    async def awaited(attempt: int | None = None) -> int:
        await asyncio.sleep(0)
        crash_here(attempt)
        return current_job().attempt

    isolation = {"isolation": "process"} if "process" in way else {}
    return app.queue("work").job(name="work", **isolation, **options)(awaited if "loop" in way else plain)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("C3")
def test_a_job_whose_worker_is_lost_is_recovered_and_that_is_no_failure(jobs: Rehearsal, way: str) -> None:
    work = crashing(jobs.app, way, retries=0)
    job = work.enqueue(attempt=1)

    assert jobs.run_until_idle() == 2

    job = job.refresh()
    assert (job.outcome, job.attempt, job.failures, job.result) == ("success", 2, 0, 2)
    assert [attempt.outcome for attempt in job.attempts()] == ["lost", "success"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("C3")
def test_a_job_that_crashes_always_ends_at_the_crash_limit(jobs: Rehearsal, way: str) -> None:
    job = crashing(jobs.app, way, max_crashes=2).enqueue()

    jobs.run_until_idle()

    job = job.refresh()
    assert (job.outcome, job.failures) == ("error", 0)
    assert job.error is not None
    assert job.error.kind == "crash"


@pytest.mark.claim("C3")
def test_a_crash_under_on_crash_timeout_holds_the_job_until_then(jobs: Rehearsal) -> None:
    work = crashing(jobs.app, "thread", on_crash="timeout", timeout=30, retries=1, retry=NoDelay())
    job = work.enqueue(attempt=1)

    assert jobs.run_until_idle() == 1
    assert job.refresh().state == "running"
    jobs.clock.advance(31)
    jobs.run_until_idle()

    assert (job.refresh().outcome, job.refresh().attempt, job.refresh().failures) == ("success", 2, 1)


def test_a_crash_leaves_transactions_and_what_catches_exceptions_as_a_crash_does(jobs: Rehearsal) -> None:
    send = jobs.app.job_types["send"]
    told: list[str] = []

    @jobs.app.queue("work").job
    def work() -> None:
        send.enqueue(to="committed before")
        try:
            with jobs.app.transaction():
                send.enqueue(to="never committed")
                crash_here(attempt=1)
        except Exception:
            told.append("a crash is no exception to be handled")

    work.enqueue()
    jobs.run_until_idle()

    assert told == []
    assert [job.payload["to"] for job in jobs.enqueued(send)] == [
        "committed before",
        "committed before",
        "never committed",
    ]


def test_a_crash_in_a_task_group_is_a_crash(jobs: Rehearsal) -> None:
    @jobs.app.queue("work").job
    async def work() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(part())
        return "done"

    async def part() -> None:
        await asyncio.sleep(0)
        crash_here(attempt=1)

    job = work.enqueue()
    jobs.run_until_idle()
    assert (job.refresh().result, job.refresh().failures) == ("done", 0)


def test_a_crash_in_a_live_worker_is_recovered_as_well(jobs: Rehearsal) -> None:
    job = crashing(jobs.app, "thread").enqueue(attempt=1)
    with jobs.app.worker():
        assert job.unwrap(30) == 2


def test_crash_here_needs_a_job_to_crash() -> None:
    with pytest.raises(HoldfastError, match="outside a handler"):
        crash_here()


def test_the_same_key_is_refused_in_a_rehearsal_as_ever(rehearse: Callable[..., Rehearsal]) -> None:
    jobs = rehearse(shop())
    send = jobs.app.job_types["send"].using(job_key="k", on_duplicate="raise")
    send.enqueue(to="ada")
    with pytest.raises(Conflict):
        send.enqueue(to="ada")


def test_pytest_has_the_fixture_where_holdfast_is_installed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(rehearse):
            jobs = rehearse()
            jobs.app.queue("mail").job(name="send")(lambda: None)
            jobs.assert_enqueued("send")
        """
    )
    others = [f"-pno:{name}" for name in ("cacheprovider", "faker", "hypothesispytest", "schemathesis")]
    said = pytester.runpytest_subprocess(*others)
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(["*AssertionError: jobs of type `send`: none enqueued. There are no jobs at all."])
    pytester.runpytest_subprocess("--fixtures", *others).stdout.fnmatch_lines(
        ["rehearse*", "*empty database and a movable clock*"]
    )


@pytest.mark.claim("Q6")
def test_in_memory_a_lent_connection_is_refused_with_what_to_do(
    rehearse: Callable[..., Rehearsal], postgres_url: str
) -> None:
    app = shop()
    rehearse(app)
    lent = (psycopg.connect(postgres_url), apsw.Connection(":memory:"), sqlite3.connect(":memory:"))
    for connection in lent:
        with pytest.raises(Invalid, match=r"lives in memory, .*: rehearse\(app, url\)\.$"):
            app.job_types["send"].using(connection=connection).enqueue(to="ada")
        connection.close()

    with app.transaction():
        app.job_types["send"].enqueue(to="bob")
    assert [job.payload["to"] for job in app.find()] == ["bob"]


@pytest.mark.claim("Q6")
def test_a_lent_connection_is_rehearsed_on_its_database(rehearse: Callable[..., Rehearsal], postgres_url: str) -> None:
    app = shop()
    jobs = rehearse(app, postgres_url)
    for to, end in (("ada", "commit"), ("bob", "rollback")):
        with psycopg.connect(postgres_url) as connection:
            app.job_types["send"].using(connection=connection).enqueue(to=to)
            getattr(connection, end)()
    jobs.assert_enqueued("send", {"to": "ada"}, count=1)
    jobs.assert_not_enqueued("send", {"to": "bob"})
