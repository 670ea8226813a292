"""`run_until_idle` leaves nothing behind that only a sweep ends or moves, and is a worker like any other meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import WAIT, App, Invalid, Retry, Snooze
from holdfast.clock import MovableClock
from tests.faults.fleet import until

Make = Callable[..., App]


@pytest.mark.claim("W1")
@pytest.mark.parametrize("then", [None, Retry(delay=50), Snooze(50)])
def test_a_job_that_expired_before_it_came_due_is_ended(app: Make, clock: MovableClock, then: Exception | None) -> None:
    own = app()

    @own.queue("mail").job()
    def send() -> None:
        if then is not None:
            raise then

    job = send.using(delay=50 if then is None else 0, expires=clock.now() + timedelta(seconds=60)).enqueue()
    own.run_until_idle()
    clock.advance(60)

    assert own.run_until_idle() == 0
    found = job.refresh()
    assert (found.state, found.outcome, found.attempt) == ("final", "error", 1)
    assert found.error is not None
    assert found.error.kind == "expired"


@pytest.mark.claim("W5")
def test_a_job_that_came_due_when_its_window_had_closed_is_moved(app: Make, clock: MovableClock) -> None:
    own = app()
    send: Any = own.queue("mail").job(lambda: None, name="send", time_windows=["00:00-01:00"])
    job = send.using(delay=1800).enqueue()
    clock.advance(3600)

    assert own.run_until_idle() == 0
    assert (job.refresh().attempt, job.refresh().scheduled_run_time) == (0, clock.now() + timedelta(hours=23))


@pytest.mark.claim("W1")
def test_more_than_one_sweep_takes_are_ended_too(app: Make, clock: MovableClock) -> None:
    own = app()
    send: Any = own.queue("mail").job(lambda: None, name="send")
    send.using(delay=50, expires=clock.now() + timedelta(seconds=60)).enqueue_many([{}] * 2100)
    clock.advance(60)

    own.run_until_idle()
    assert own.find(state="initial") == []


@pytest.mark.claim("C2")
def test_a_job_that_takes_its_time_is_not_given_to_a_worker_beside_it(url: str, instance: str) -> None:
    settings: Any = {"name": instance, "heartbeat": 0.2, "lost_after": 1}
    runs: list[int] = []
    with App(url, **settings) as own, App(url, **settings) as beside:

        def slow() -> None:
            runs.append(1)
            until(lambda: beside.workers()[0].beat >= 8)

        _, declared = (app.queue("work").job(slow, name="slow") for app in (own, beside))
        job = declared.enqueue()
        running = threading.Thread(target=own.run_until_idle)
        running.start()
        until(lambda: runs)
        with beside.worker():
            running.join(20)
        found = job.refresh()

    assert (runs, found.outcome, found.attempt) == ([1], "success", 1)
    assert "holdfast-pulse" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.claim("J10")
def test_a_job_that_it_runs_can_be_aborted_from_elsewhere(url: str, instance: str) -> None:
    seen: list[str] = []
    with App(url, name=instance) as own, App(url, name=instance) as elsewhere:

        @own.queue("work").job
        async def slow() -> None:
            seen.append("began")
            try:
                await asyncio.sleep(8)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        job = slow.enqueue()
        running = threading.Thread(target=own.run_until_idle)
        running.start()
        until(lambda: seen)
        elsewhere.abort(job.id)
        running.join(20)
        found = job.refresh()

    assert (found.outcome, seen) == ("aborted", ["began", "cancelled"])
    assert "holdfast-pulse" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.claim("C1")
def test_objects_whose_call_is_a_coroutine_are_awaited(app: Make) -> None:
    own = app()

    class Twice:
        async def __call__(self, n: int) -> int:
            await asyncio.sleep(0)
            return 2 * n

    class Answered:
        async def __call__(self, job: Any, response: int) -> int:
            return 3 * response

    class Step:
        async def __call__(self, task: Any) -> None:
            task.publish(rows=3)

    queue, chain = own.queue("mail"), own.workflow("chain")
    twice = queue.job(Twice(), name="twice", retries=0)
    ask = queue.job(lambda: WAIT, name="ask")
    ask.response_handler(Answered())
    chain.step(name="first")(Step())
    job, asked, run = twice.enqueue(n=4), ask.enqueue(), chain.submit(trigger="1")
    own.run_until_idle()
    own.complete(job_id=asked.id, result=5)
    own.run_until_idle()

    assert (job.refresh().result, asked.refresh().result, run.refresh().state) == (8, 15, "SUCCESS")
    assert asyncio.run(twice(4)) == 8


def test_an_argument_may_be_called_self(app: Make) -> None:
    own = app()

    @own.queue("mail").job
    def keep(self: int, args: int = 0) -> int:
        return self

    jobs = [keep.enqueue(self=1), keep.using(priority=1).enqueue(self=2), *own.enqueue_many([keep.new(self=3)])]
    jobs.append(asyncio.run(keep.aenqueue(self=4)))
    own.run_until_idle()

    assert [job.refresh().result for job in jobs] == [1, 2, 3, 4]
    assert keep(self=5) == 5


@pytest.mark.claim("R2")
def test_a_function_that_yields_is_no_job_type(app: Make) -> None:
    own = app()

    def numbers(n: int) -> Any:
        yield n

    async def numbers_on_the_loop(n: int) -> Any:
        yield n

    for function in (numbers, numbers_on_the_loop):
        with pytest.raises(Invalid, match=f"job type `{function.__name__}`: its function yields"):
            own.queue("mail").job(function)
    assert own.job_types == {}
