"""Tasks of an event loop: what they enqueue at the same time is stored together, and whoever waits keeps no thread from others."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import App, Conflict, Job, NotFound
from holdfast.declare import JobType
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
