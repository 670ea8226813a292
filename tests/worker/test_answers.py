"""R3 with real handlers: `WAIT`, response handlers of every kind, and answers from Python and from another App."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import WAIT, App, Conflict, Failed, Invalid, Job, JobError, current_job
from holdfast.clock import MovableClock
from tests.faults.fleet import until

pytestmark = pytest.mark.claim("R3")


def test_a_handler_that_waits_is_completed_from_another_app(app: Callable[..., App]) -> None:
    own, elsewhere = app(), app()

    @own.queue("mail").job
    def charge(order: str) -> Any:
        return WAIT

    job = charge.using(job_key="order-7").enqueue(order="7")
    own.run_until_idle()
    assert (job.refresh().state, job.refresh().situation) == ("running", "waiting")
    answered = elsewhere.complete("charge", "order-7", result={"paid": 12})
    assert (answered.id, answered.outcome, answered.result) == (job.id, "success", {"paid": 12})


def test_an_app_fails_a_job_by_id_and_says_why(app: Callable[..., App]) -> None:
    own = app()

    @own.queue("mail").job
    async def charge() -> Any:
        return WAIT(timeout=60)

    job = charge.enqueue()
    own.run_until_idle()
    failed = own.fail(job_id=job.id, error=ValueError("card expired"))
    assert (failed.outcome, failed.error and failed.error.type, str(failed.error)) == (
        "failed",
        "ValueError",
        "card expired",
    )


def test_what_an_answer_is_for_must_be_clear(app: Callable[..., App]) -> None:
    own = app()
    own.queue("mail")
    for which in ({}, {"job_type": "a"}, {"job_type": "a", "job_key": "b", "job_id": 1}, {"job_id": "x"}):
        with pytest.raises(Invalid):
            own.complete(**which)
    with pytest.raises(Invalid, match="WAIT"):
        WAIT(timeout=-1)


@pytest.mark.parametrize(
    "way", ["thread", "loop", "process", "loop handler, thread response", "thread handler, loop response"]
)
def test_the_response_handler_and_not_the_handler_is_called_with_the_answer(app: Callable[..., App], way: str) -> None:
    own = app()
    isolation = {"isolation": "process"} if way == "process" else {}

    def handler(order: int) -> Any:
        return WAIT

    async def coroutine(order: int) -> Any:
        return WAIT

    def answered(job: Job, response: Any) -> Any:
        return [job.payload["order"], job.job_key, response["paid"], current_job().attempt]

    async def answered_later(job: Job, response: Any) -> Any:
        await asyncio.sleep(0)
        return answered(job, response)

    charge = own.queue("mail").job(name="charge", **isolation)(coroutine if way.startswith("loop") else handler)
    charge.response_handler(answered_later if way in ("loop", "thread handler, loop response") else answered)
    job = charge.using(job_key="k").enqueue(order=7)
    assert own.run_until_idle() == 1
    loose = own.complete("charge", "k", result={"paid": 12})
    assert (loose.situation, loose.state) == ("loose", "running")
    assert own.run_until_idle() == 1
    assert (job.refresh().outcome, job.refresh().result) == ("success", [7, "k", 12, 2])


@pytest.mark.parametrize(("retry", "kind"), [(False, "failed"), (True, "exception")])
def test_a_response_handler_is_told_of_a_failure_and_decides(app: Callable[..., App], retry: bool, kind: str) -> None:
    own = app()
    seen = []

    @own.queue("mail").job
    def charge() -> Any:
        return WAIT

    @charge.response_handler
    def answered(job: Job, response: Any) -> None:
        seen.append(response)
        raise Failed(f"sorry: {response}")

    job = charge.enqueue()
    own.run_until_idle()
    own.fail(job_id=job.id, error="no money", retry=retry)
    own.run_until_idle()
    assert (job.refresh().outcome, str(job.refresh().error)) == ("failed", "sorry: no money")
    assert seen == [JobError("Failed", "no money", kind)]


@pytest.mark.claim("R4")
def test_a_wait_times_out_although_no_process_holds_the_job(app: Callable[..., App], clock: Any) -> None:
    own = app()

    @own.queue("mail").job(timeout=60)
    def charge() -> Any:
        return WAIT

    job = charge.enqueue()
    own.run_until_idle()
    clock.advance(61)
    own.run_until_idle()
    assert (job.refresh().outcome, "timeout" in str(job.refresh().error)) == ("error", True)
    with pytest.raises(Conflict):
        own.complete(job_id=job.id)


def test_a_live_worker_gives_its_slot_back_while_a_job_waits(url: str, instance: str) -> None:
    with App(url, name=instance) as app:

        @app.queue("mail").job
        def charge(order: int) -> Any:
            return WAIT if order < 3 else order

        with app.worker(concurrency=1):
            waits = charge.enqueue_many([{"order": order} for order in range(3)])
            assert charge.enqueue(order=3).unwrap(30) == 3
            until(lambda: all(job.refresh().situation == "waiting" for job in waits))
            for job in waits:
                app.complete(job_id=job.id, result=job.id)
            assert [job.unwrap(30) for job in waits] == [job.id for job in waits]


@pytest.fixture
def programs(app: Callable[..., App]) -> Callable[..., App]:
    """Programs that declare `ask`, each with a response handler or without. The last one made is registered."""

    def make(responding: bool = False, limit: int = 0) -> App:
        made = app()
        ask = made.queue("mail", throttle_limit=limit).job(lambda: WAIT, name="ask")
        if responding:
            ask.response_handler(lambda job, response: ["heard", response])
        made.store.pulse()
        return made

    return make


def test_an_answer_waits_for_a_worker_that_has_the_response_handler(
    programs: Callable[..., App], clock: MovableClock
) -> None:
    old, new = programs(), programs(responding=True)
    job = old.enqueue("mail", "ask")
    old.run_until_idle()
    old.complete(job_id=job.id, result=7)

    for _ in range(3):
        assert old.run_until_idle() == 0
        clock.advance(3600)

    found = job.refresh()
    assert (found.situation, found.attempt, found.failures, found.error) == ("loose", 1, 0, None)
    assert new.run_until_idle() == 1
    assert (job.refresh().outcome, job.refresh().result, job.refresh().attempt) == ("success", ["heard", 7], 2)


def test_an_answer_that_waits_for_another_worker_stands_in_nobodys_way(programs: Callable[..., App]) -> None:
    old, new = programs(), programs(responding=True)
    waits, early, other = (old.enqueue("mail", "ask") for _ in range(3))
    old.complete(job_id=early.id, result="early")
    old.run_until_idle()
    old.complete(job_id=waits.id, result=7)
    more = old.enqueue("mail", "ask", priority=200)
    old.run_until_idle()
    assert [job.refresh().situation for job in (waits, early, other, more)] == ["loose", "loose", "waiting", "waiting"]
    assert [job.refresh().attempt for job in (waits, early, other, more)] == [1, 1, 1, 1]
    assert new.run_until_idle() == 2


def test_under_a_limit_an_answer_is_left_to_others_for_a_second_and_then_stands_in_nobodys_way(
    programs: Callable[..., App], clock: MovableClock
) -> None:
    old, new = programs(limit=1), programs(limit=1, responding=True)
    first, second = old.enqueue("mail", "ask"), old.enqueue("mail", "ask", delay=10)
    old.run_until_idle()
    old.complete(job_id=first.id, result=7)
    assert (old.run_until_idle(), first.refresh().attempt) == (0, 1)
    assert new.run_until_idle() == 1  # no time has passed
    assert (first.refresh().result, first.refresh().attempt) == (["heard", 7], 2)

    clock.advance(10)
    old.run_until_idle()
    old.complete(job_id=second.id, result=8)
    assert (old.run_until_idle(), second.refresh().attempt) == (0, 1)
    third = old.enqueue("mail", "ask", priority=200)
    clock.advance(1)
    old.run_until_idle()
    assert (second.refresh().situation, second.refresh().attempt) == ("loose", 2)
    assert third.refresh().situation == "waiting"
    new.complete(job_id=third.id, result=9)
    clock.advance(60)
    assert new.run_until_idle() == 2
    assert [job.refresh().result for job in (second, third)] == [["heard", 8], ["heard", 9]]


def test_a_worker_meets_an_answer_at_most_once_if_the_response_handler_comes_after_it(url: str, instance: str) -> None:
    with App(url, name=instance) as old, App(url, name=instance) as new:
        _, ask = (app.queue("mail").job(lambda: WAIT, name="ask") for app in (old, new))
        job = old.enqueue("mail", "ask")
        with old.worker() as worker:
            until(lambda: job.refresh().situation == "waiting")
            ask.response_handler(lambda job, response: ["heard", response])
            new.store.pulse()
            new.complete(job_id=job.id, result=7)
            until(lambda: worker.deaf == ("ask",))
            attempts = job.refresh().attempt
            with new.worker():
                assert job.unwrap(30) == ["heard", 7]
        assert (attempts, job.refresh().attempt) == (2, 3)


@pytest.mark.parametrize("met", [False, True])
@pytest.mark.parametrize("answer", ["result", "error"])
def test_an_answer_ends_the_job_if_the_code_has_no_response_handler_any_more(
    programs: Callable[..., App], clock: MovableClock, answer: str, met: bool
) -> None:
    old, _ = programs(), programs(responding=True)
    job = old.enqueue("mail", "ask")
    old.run_until_idle()
    if answer == "result":
        old.complete(job_id=job.id, result=7)
    else:
        old.fail(job_id=job.id, error="no money")
    if met:
        old.run_until_idle()
        clock.advance(60)
    assert job.refresh().situation == "loose"

    programs().run_until_idle()

    found = job.refresh()
    wanted = ("success", 7, "None") if answer == "result" else ("failed", None, "no money")
    assert (found.outcome, found.result, str(found.error)) == wanted


@pytest.mark.parametrize("limit", [0, 3])
def test_workers_with_and_without_the_response_handler_lose_no_answer(url: str, instance: str, limit: int) -> None:
    with App(url, name=instance) as old, App(url, name=instance) as new:
        _, ask = (
            app.queue("mail", throttle_limit=limit).job(lambda: WAIT, name="ask", throttle_factor=0.1)
            for app in (old, new)
        )
        ask.response_handler(lambda job, response: ["heard", response])
        old.store.pulse()
        jobs = ask.enqueue_many([{}] * 10)
        with old.worker(), new.worker():
            until(lambda: all(job.refresh().situation == "waiting" for job in jobs), 20)
            for job in jobs:
                old.complete(job_id=job.id, result=job.id)
            until(lambda: all(job.refresh().final for job in jobs), 60)
        ended = [job.refresh() for job in jobs]

    assert [job.result for job in ended] == [["heard", job.id] for job in jobs]
