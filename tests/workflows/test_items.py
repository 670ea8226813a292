"""F12 at length: a step of thousands of items. What the database has seen itself is the proof, not a look now and then."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import App, Job, compose
from holdfast.compose import Workflow
from tests.faults.fleet import until
from tests.raw_sql import RawSql

MOST = 300
TASK = "new.run is not null and new.job_key not like '%.items'"
UNDONE = "select count(*) from {queue:workflows} where state <> 'final' and job_key not like '%.items'"


def bear_witness(sql: RawSql) -> None:
    """From now on it is written down with all new tasks how many are undone then. Who makes tasks has the run's lock."""
    sql("create table {witness} (undone bigint)")
    sql("create index {witness_undone} on {queue:workflows} (job_key) where state <> 'final'")
    if sql.postgres:
        body = f"begin insert into {{witness}} {UNDONE}; return null; end"
        sql(f"create function {{witness_added}}() returns trigger language plpgsql as $$ {body} $$")
        sql("create trigger w after insert on {queue:workflows} for each statement execute function {witness_added}()")
    else:  # which has triggers for rows only, and is left to write it down for the last of many
        last = "new.id = (select last from {sequence})"
        write = f"insert into {{witness}} {UNDONE};"
        sql(f"create trigger {{w}} after insert on {{queue:workflows}} when {TASK} and {last} begin {write} end")


@pytest.mark.claim("F12")
@pytest.mark.parametrize("size", [3000, pytest.param(20_000, marks=pytest.mark.faults)])
def test_of_thousands_of_items_never_more_are_undone_than_allowed(
    app: Callable[..., App], sql: RawSql, size: int
) -> None:
    own = app()
    workflow = own.workflow("w")
    given: list[int] = []
    done = 0

    def numbers(task: Any) -> Iterator[int]:
        for number in range(size):
            given.append(number - done)
            yield number

    @workflow.step(items=numbers, max_undone=MOST)
    async def each(task: Any) -> None:
        nonlocal done
        done += 1

    own.store.queues()
    bear_witness(sql)
    with own.worker(concurrency=100):
        run = workflow.submit("t").wait(100)
    assert (run.state, run.steps["each"].succeeded, done) == ("SUCCESS", size, size)
    assert MOST / 2 <= sql.value("select max(undone) as most from {witness}") <= MOST
    assert max(given) <= MOST, "more items were asked for than may be undone"


@pytest.mark.claim("F12")
def test_who_waits_for_items_does_not_keep_coroutines_from_running(app: Callable[..., App]) -> None:
    own = app()
    workflow, released = own.workflow("w"), threading.Event()

    def numbers(task: Any) -> Iterator[int]:
        assert released.wait(60)
        yield 1

    @workflow.step()
    async def other(task: Any) -> None:
        await asyncio.sleep(0)
        released.set()

    @workflow.step(items=numbers)
    async def each(task: Any) -> None: ...

    with own.worker():
        assert workflow.submit("t").wait(100).state == "SUCCESS"


@pytest.mark.claim("F12", "F6")
@pytest.mark.parametrize("error", [ValueError("no more"), StopIteration("odd")])
def test_items_that_cannot_be_given_are_an_error_of_the_step(app: Callable[..., App], error: Exception) -> None:
    class Broken:
        def __iter__(self) -> Iterator[int]:
            raise error

    own = app()
    workflow = own.workflow("w")

    @workflow.step(items=lambda task: Broken(), retries=0)
    async def each(task: Any) -> None: ...

    run = workflow.submit("t")
    own.run_until_idle()
    assert run.refresh().state == "ERROR"


@pytest.mark.claim("F12")
def test_tasks_end_while_the_next_ones_are_being_stored(app: Callable[..., App], sql: RawSql) -> None:
    """On SQLite there is one writer at a time. On PostgreSQL neither the run nor the event loop waits for the maker."""
    if not sql.postgres:
        pytest.skip("one writer at a time")
    own = app()
    workflow = own.workflow("w")

    @workflow.step(items=lambda task: range(20), max_undone=10)
    async def each(task: Any) -> None:
        if 5 <= task.item < 10:
            await asyncio.sleep(0.2)  # until the next ones are asked for

    def ended() -> bool:
        return bool(sql.value("select succeeded from {step}") == 10)

    own.store.queues()
    with sql.transaction(), own.worker():
        sql("insert into {key} (job_type, job_key, id) values ('w.each', 't:each.item-10', -1)")
        run = workflow.submit("t")
        until(ended, what="all that were made have ended")
        sql("delete from {key} where id = -1")
        sql("commit")
        assert run.wait(60).state == "SUCCESS"
        sql("begin")
    assert run.refresh().steps["each"].succeeded == 20


def listed(own: App, size: int, most: int, function: Callable[[Any], Any]) -> Workflow:
    workflow = own.workflow("w")
    workflow.step(name="each", items=lambda task: range(size), max_undone=most)(function)
    return workflow


def makers(own: App) -> list[Job]:
    return own.find(job_type="w.each", job_key="t:each.items")


@pytest.mark.claim("F12")
def test_a_maker_goes_on_while_tasks_end(app: Callable[..., App], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STILL", "LONGEST"):
        monkeypatch.setattr(compose, name, 60.0)
    own = app()

    async def quick(task: Any) -> None: ...

    workflow = listed(own, 400, 20, quick)
    with own.worker(concurrency=10):
        assert workflow.submit("t").wait(100).state == "SUCCESS"
    assert [job.result for job in makers(own)] == [400]


@pytest.mark.claim("F12")
def test_a_maker_does_not_wait_where_one_job_runs_at_a_time(
    app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STILL", "LONGEST"):
        monkeypatch.setattr(compose, name, 600.0)
    own = app()
    workflow = listed(own, 60, 20, lambda task: None)
    with own.worker(concurrency=1):
        assert workflow.submit("t").wait(20).state == "SUCCESS"
    assert len(makers(own)) > 3


@pytest.mark.claim("F12")
@pytest.mark.parametrize("limit", ["STILL", "LONGEST"])
def test_a_maker_leaves_the_rest_to_the_next_one(
    app: Callable[..., App], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Nothing ends for a while, or it has been at it for long."""
    for name in ("STILL", "LONGEST"):
        monkeypatch.setattr(compose, name, 0.0 if name == limit else 600.0)
    own, go_on = app(), threading.Event()
    workflow = listed(own, 60, 20, lambda task: go_on.wait(100))
    with own.worker(concurrency=4):
        run = workflow.submit("t")
        until(lambda: makers(own) and makers(own)[0].state == "final", what="the first maker has ended")
        assert run.refresh().steps["each"].undone == 20
        go_on.set()
        assert run.wait(100).state == "SUCCESS"
    assert len(makers(own)) > 1


@pytest.mark.claim("F12")
def test_a_maker_does_not_go_on_for_ever_because_there_is_room(
    app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "LONGEST", 0.0)
    own = app()
    monkeypatch.setattr(type(own.store), "lot", 5)
    workflow = listed(own, 40, 20, lambda task: None)
    with own.worker(concurrency=4):
        assert workflow.submit("t").wait(100).state == "SUCCESS"
    assert {job.result for job in makers(own)} <= {0, 5}
