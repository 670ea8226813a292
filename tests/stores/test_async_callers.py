"""Tasks of an event loop: what they enqueue at the same time is stored together, and whoever waits keeps no thread from others."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import apsw
import psycopg
import pytest

from holdfast import App, Conflict, Job, NotFound, Unavailable
from holdfast.clock import monotonic
from holdfast.declare import JobType
from holdfast.stores.postgres import connection
from tests.raw_sql import RawSql

Make = Callable[..., App]


def declared(holdfast: App) -> JobType:
    return holdfast.queue("mail").job(lambda to: to, name="send")


async def together(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.claim("Q6")
def test_tasks_that_enqueue_at_the_same_time_share_a_commit(app: Make, sql: RawSql) -> None:
    holdfast = app()
    send = declared(holdfast)
    send.enqueue("before")
    commits: list[None] = []
    if not sql.postgres:
        holdfast.store.connection.database.set_commit_hook(lambda: bool(commits.append(None)))  # type: ignore[attr-defined]
    jobs = asyncio.run(together(*(send.aenqueue(str(number)) for number in range(50))))
    assert [job.payload["to"] for job in jobs] == [str(number) for number in range(50)]
    assert [job.id for job in jobs] == sorted({job.id for job in jobs})
    if sql.postgres:
        commits += [None for _ in sql("select distinct xmin from {queue:mail} where id > 1")]
    assert len(commits) == 1


@pytest.mark.claim("Q5")
def test_the_error_of_one_task_is_its_own(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)
    send.using(job_key="taken").enqueue("before")
    refused = send.using(job_key="taken", on_duplicate="raise")
    first, error, last = asyncio.run(together(send.aenqueue("a"), refused.aenqueue("b"), send.aenqueue("c")))
    assert isinstance(error, Conflict)
    assert [job.refresh().payload["to"] for job in (first, last)] == ["a", "c"]
    assert len(holdfast.find()) == 3


@pytest.mark.claim("Q5")
def test_tasks_with_one_key_get_one_job(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)
    jobs = asyncio.run(together(*(send.using(job_key="k").aenqueue(str(number)) for number in range(20))))
    assert len({job.id for job in jobs}) == len(holdfast.find()) == 1
    assert [job.duplicate for job in jobs] == [False, *[True] * 19]


def test_a_task_that_is_cancelled_before_its_turn_enqueues_nothing(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)

    async def work() -> Job:
        goes = asyncio.ensure_future(send.aenqueue("goes"))
        stays = asyncio.ensure_future(send.aenqueue("stays"))
        await asyncio.sleep(0)  # both have asked
        goes.cancel()
        return await stays

    stayed = asyncio.run(work())
    assert [job.id for job in holdfast.find()] == [stayed.id]


def test_event_loops_of_several_threads_enqueue_beside_each_other(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)

    def loop(_: int) -> int:
        return len(asyncio.run(together(*(send.aenqueue("a") for _ in range(10)))))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(loop, range(4))) == 40
    assert len(holdfast.find(limit=100)) == 40


@pytest.mark.timeout(30)
def test_tasks_that_wait_for_jobs_keep_no_thread_of_the_event_loop(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)
    jobs = [send.enqueue(str(number)) for number in range(20)]

    async def work() -> list[Any]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waiting = [asyncio.ensure_future(job.aunwrap()) for job in jobs]
        await asyncio.sleep(0.05)
        await asyncio.to_thread(holdfast.run_until_idle)  # in the only thread there is
        return await asyncio.gather(*waiting)

    assert asyncio.run(work()) == [str(number) for number in range(20)]


@pytest.mark.timeout(30)
def test_whoever_gives_up_waiting_leaves_nothing_behind(app: Make) -> None:
    send = declared(app())
    job = send.enqueue("never")

    async def work() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job.aunwrap(), 0.05)

    asyncio.run(work())  # which waits for the threads of the loop


def test_each_task_that_waits_gets_its_own_answer(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)
    old, new = send.enqueue("old"), send.enqueue("new")
    holdfast.run_until_idle()
    asked = (holdfast.await_final(job_id) for job_id in (old.id, 4711, new.id, old.id))
    first, missing, second, again = asyncio.run(together(*asked))
    assert isinstance(missing, NotFound)
    assert "4711" in str(missing)
    assert (first.result, second.result, again) == ("old", "new", first)


@pytest.fixture
def away(url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[App], Any]:
    """The database cannot be had: nobody answers, or on SQLite somebody keeps it locked."""

    def refuse(*_: Any) -> None:
        raise psycopg.OperationalError("connection refused")

    @contextmanager
    def go_away(holdfast: App) -> Iterator[None]:
        with monkeypatch.context() as patch:
            if url.startswith("postgresql"):
                patch.setattr(connection, "connect", refuse)
                if holdfast._store is not None:
                    holdfast._store.connection._discard()  # type: ignore[attr-defined]
                yield
                return
            stranger = apsw.Connection(url.removeprefix("sqlite://"))
            stranger.execute("begin exclusive")
            yield
            stranger.close()

    return go_away


PATIENCE = 4.0  # seconds; a task that waits behind another one needs nearly twice as long
COMING = (0.0, 0.05, 0.4, 0.8)  # seconds after which each task asks


async def seconds_of(call: Coroutine[Any, Any, Any], after: float) -> float:
    await asyncio.sleep(after)
    began = monotonic()
    with pytest.raises(Unavailable):
        await call
    return monotonic() - began


@pytest.mark.claim("C7")
@pytest.mark.parametrize("asks", ["enqueue", "wait"])
def test_a_task_waits_for_the_database_no_longer_than_its_patience_whoever_waits_before_it(
    app: Make, away: Callable[[App], Any], sql: RawSql, asks: str
) -> None:
    if asks == "wait" and not sql.postgres:
        pytest.skip("whoever writes to the file keeps nobody from reading it")
    holdfast = app(patience=PATIENCE)
    send = declared(holdfast)
    job = send.enqueue("before")

    async def work() -> list[float]:
        calls = (send.aenqueue("a") if asks == "enqueue" else job.aunwrap() for _ in COMING)
        return await asyncio.gather(*map(seconds_of, calls, COMING))

    with away(holdfast):
        waited = asyncio.run(work())
    assert [1.0 < seconds < 2 * PATIENCE - COMING[-1] for seconds in waited] == [True] * 4, waited
    assert len(holdfast.find()) == 1


@pytest.mark.claim("C7")
def test_so_does_a_task_that_finds_the_database_away_from_the_beginning(
    app: Make, away: Callable[[App], Any], sql: RawSql
) -> None:
    if not sql.postgres:
        pytest.skip("a file is opened before it is asked")
    holdfast = app(patience=PATIENCE)
    send = declared(holdfast)

    async def work() -> list[float]:
        return await asyncio.gather(*(seconds_of(send.aenqueue("a"), after) for after in COMING))

    with away(holdfast):
        waited = asyncio.run(work())
    assert [1.0 < seconds < 2 * PATIENCE - COMING[-1] for seconds in waited] == [True] * 4, waited


def test_tasks_that_waited_for_the_database_are_stored_when_it_is_back(app: Make, away: Callable[[App], Any]) -> None:
    holdfast = app(patience=20.0)
    send = declared(holdfast)
    send.enqueue("before")

    async def work() -> list[Any]:
        with away(holdfast):
            tasks = [asyncio.ensure_future(send.aenqueue("first"))]
            await asyncio.sleep(0.1)
            tasks += [asyncio.ensure_future(send.aenqueue("later"))]
            await asyncio.sleep(0.4)
        return await asyncio.gather(*tasks)

    assert [job.payload["to"] for job in asyncio.run(work())] == ["first", "later"]
