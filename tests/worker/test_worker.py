"""A live worker in this process: every way to call a handler, and every way an attempt ends."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import GIVE_UP, App, Failed, Fixed, HoldfastError, NoDelay, Retry, Snooze, current_job
from holdfast.worker import worker as worker_module
from holdfast.worker.worker import Worker
from tests.faults.fleet import until


@pytest.fixture
def app(url: str, instance: str) -> Iterator[App]:
    with App(url, name=instance, heartbeat=0.5, lost_after=5) as app:
        app.queue("work")
        yield app


def job_type(app: App, function: Callable[..., Any], **options: Any) -> Any:
    return app.queue("work").job(**options)(function)


WAYS = {"loop": {}, "thread": {}, "process": {"isolation": "process"}}


def in_the_way(way: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function as a coroutine where it is to run on the loop."""
    if way != "loop":
        return function

    async def coroutine(x: int = 0) -> Any:
        return function(x)

    return coroutine


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("C1", "R2", "R7")
def test_a_handler_runs_and_its_return_value_is_the_result(app: App, way: str) -> None:
    double = job_type(app, in_the_way(way, lambda x=0: x * 2), name="double", **WAYS[way])
    with app.worker(concurrency=4) as worker:
        job = double.enqueue(x=21).wait(30)
    assert (job.state, job.outcome, job.result, job.attempt, job.failures) == ("final", "success", 42, 1, 0)
    assert job.worker == str(worker.id)
    assert job.execution_time is not None
    assert job.create_time <= job.start_time <= job.end_time


def raise_(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("error", "outcome", "kind", "failures", "attempts"),
    [
        (ValueError("boo"), "error", "exception", 2, 2),
        (Failed("nobody listens"), "failed", "failed", 0, 1),
        (SystemExit(3), "error", "exception", 2, 2),
        (KeyboardInterrupt(), "error", "exception", 2, 2),
        (asyncio.CancelledError(), "error", "exception", 2, 2),
        (Retry("not yet", delay=0), "error", "retry", 2, 2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
@pytest.mark.claim("R2", "R5", "J7", "J9")
def test_whatever_a_handler_raises_is_an_outcome(
    app: App, way: str, error: BaseException, outcome: str, kind: str, failures: int, attempts: int
) -> None:
    bad = job_type(app, in_the_way(way, lambda x=0: raise_(error)), name="bad", retries=1, retry=NoDelay(), **WAYS[way])
    with app.worker(concurrency=4):
        job = bad.enqueue().wait(30)
    assert (job.outcome, job.error.kind, job.failures, job.attempt) == (outcome, kind, failures, attempts)
    assert str(job.error) == (str(error) or type(error).__name__)
    ends = job.attempts()
    assert [end.attempt for end in ends] == list(range(1, attempts + 1))
    assert all(type(error).__name__ in end.traceback for end in ends)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("R2")
def test_a_snoozed_job_comes_back_without_a_failure(app: App, way: str) -> None:
    def snoozes_once(x: int = 0) -> int:
        if current_job().attempt == 1:
            raise Snooze(0.1)
        return current_job().attempt

    job = job_type(app, in_the_way(way, snoozes_once), name="snoozes", **WAYS[way]).enqueue()
    with app.worker(concurrency=4):
        ended = job.wait(30)
    assert (ended.outcome, ended.result, ended.failures) == ("success", 2, 0)
    assert [end.outcome for end in job.attempts()] == ["snoozed", "success"]


def wait_for_ever(way: str) -> Callable[..., Any]:
    if way != "loop":
        return lambda x=0: threading.Event().wait()

    async def coroutine(x: int = 0) -> None:
        await asyncio.Event().wait()

    return coroutine


@pytest.mark.fault(7, "a handler that does not return")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("R4", "C1")
def test_an_attempt_that_takes_too_long_ends_in_a_timeout(app: App, way: str) -> None:
    slow = job_type(app, wait_for_ever(way), name="slow", timeout=0.3, retries=1, **WAYS[way])
    with app.worker(concurrency=4, grace=0.1):
        job = slow.enqueue().wait(30)
    assert (job.outcome, job.error.kind, job.failures, job.attempt) == ("error", "timeout", 2, 2)
    assert "timeout" in str(job.error)
    assert "0.3" in str(job.error)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("J10", "C1")
def test_a_running_job_is_ended_by_its_worker_when_somebody_aborts_it(app: App, way: str) -> None:
    job = job_type(app, wait_for_ever(way), name="endless", **WAYS[way]).enqueue()
    with app.worker(concurrency=4, grace=0.1):
        until(lambda: job.refresh().state == "running", what="it runs")
        asked = app.abort(job.id, actor="ann")
        assert asked.state in ("running", "final")
        ended = job.wait(30)
    assert (ended.outcome, ended.attempt, ended.failures) == ("aborted", 1, 0)
    assert [(move.to_state, move.actor) for move in job.history()][-1] == ("final", "ann")


@pytest.mark.fault(7, "a coroutine ignores its cancellation")
@pytest.mark.claim("C1")
def test_a_coroutine_that_ignores_its_cancellation_is_given_up(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.loop.DEAF_AFTER", 0.2)

    async def deaf() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    async def good() -> int:
        return 1

    stubborn, fine = job_type(app, deaf, timeout=0.1, retries=0), job_type(app, good)
    with app.worker(concurrency=1, grace=0.1) as worker:
        ended = stubborn.enqueue().wait(30)
        assert fine.enqueue().unwrap(30) == 1
        assert worker.loop.stuck == 1
    assert (ended.outcome, ended.error.kind) == ("error", "timeout")


@pytest.mark.fault(7, "a thread ignores its timeout")
@pytest.mark.claim("C1", "J5")
def test_the_late_result_of_an_abandoned_thread_is_ignored(app: App) -> None:
    release, came_back = threading.Event(), threading.Event()

    def late() -> str:
        release.wait(30)
        came_back.set()
        return "late"

    job = job_type(app, late, timeout=0.2, retries=0).enqueue()
    with app.worker(concurrency=1) as worker:
        ended = job.wait(30)
        assert worker.threads.stuck == 1
        release.set()
        until(came_back.is_set)
        until(lambda: worker.threads.stuck == 0, what="the thread is done")
    assert (ended.outcome, ended.result) == ("error", None)
    assert job.refresh() == ended


@pytest.mark.claim("R5")
def test_the_retry_handler_decides_time_payload_and_end(app: App) -> None:
    seen = []

    def bad(x: int) -> None:
        raise ValueError(f"x is {x}")

    bad_type = job_type(app, bad, retries=0)

    @bad_type.retry_handler
    def again(job: Any, error: Any) -> Any:
        seen.append((job.attempt, job.payload["x"], str(error)))
        return Retry(delay=0, payload={"x": job.payload["x"] + 1}) if job.payload["x"] < 3 else GIVE_UP

    with app.worker(concurrency=2):
        ended = bad_type.enqueue(x=1).wait(30)
    assert seen == [(1, 1, "x is 1"), (2, 2, "x is 2"), (3, 3, "x is 3")]
    assert (ended.outcome, ended.failures, ended.payload, str(ended.error)) == ("error", 3, {"x": 3}, "x is 3")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda: raise_(RuntimeError("oops")), "oops"),
        (lambda: 5, "returned int"),
        (lambda: Retry(payload={"y": 1}), "payload"),
    ],
    ids=["raises", "returns nonsense", "wrong payload"],
)
@pytest.mark.claim("R5")
def test_a_retry_handler_that_fails_ends_the_job_with_that_error(
    app: App, answer: Callable[[], Any], text: str
) -> None:
    def bad(x: int) -> None:
        raise ValueError("first")

    bad_type = job_type(app, bad)
    bad_type.retry_handler(lambda job, error: answer())
    with app.worker(concurrency=2):
        ended = bad_type.enqueue(x=1).wait(30)
    assert ended.outcome == "error"
    assert text in str(ended.error)
    assert str(ended.attempts()[0].error) == "first"


@pytest.mark.claim("R5")
def test_a_retry_handler_that_says_nothing_leaves_it_to_the_policy(app: App) -> None:
    asked = []
    bad = job_type(app, lambda: raise_(ValueError("no")), name="bad", retries=2, retry=NoDelay())
    bad.retry_handler(lambda job, error: asked.append(job.attempt))
    with app.worker(concurrency=2):
        ended = bad.enqueue().wait(30)
    assert asked == [1, 2, 3]
    assert (ended.outcome, ended.failures) == ("error", 3)


@pytest.mark.claim("R5")
def test_a_retry_handler_elsewhere_is_asked_by_the_worker_that_has_it(url: str, instance: str) -> None:
    """A timeout found by a process without the code: the job waits in `error` for the retry handler."""
    with App(url, name=instance, heartbeat=0.5, lost_after=5) as app:
        crashes = job_type(app, lambda: None, name="crashes", timeout=0.1, on_crash="timeout", retries=0)
        crashes.retry_handler(lambda job, error: Retry(delay=0))
        job = crashes.enqueue()
        dead = Worker(app.store, app.handlers, app._settings({}), app.clock, "0")
        dead.store = app.store
        dead.join()
        call = dead.claim_one()
        assert call is not None
        app.store.lose(dead.id)
        with App(url, name=instance) as stranger:
            until(
                lambda: stranger.store.end_overdue() is None or job.refresh().state == "error", what="its time is over"
            )
            assert (job.refresh().state, job.refresh().error.kind) == ("error", "timeout")
            assert stranger.run_until_idle() == 0
        with app.worker():
            ended = job.wait(30)
    assert (ended.outcome, ended.attempt, ended.failures) == ("success", 2, 1)


@pytest.mark.claim("W1")
def test_a_job_starts_when_its_time_has_come_and_not_before(app: App) -> None:
    when = job_type(app, lambda: time.time(), name="when")
    with app.worker():
        wanted = datetime.now(UTC) + timedelta(seconds=0.7)
        job = when.using(scheduled_run_time=wanted).enqueue()
        ran = job.unwrap(30)
    assert ran >= wanted.timestamp()
    assert ran - wanted.timestamp() < 5
    assert job.refresh().start_time >= wanted


@pytest.mark.claim("W2")
def test_one_slot_runs_the_due_jobs_in_claim_order(app: App) -> None:
    order: list[int] = []
    note = job_type(app, lambda i: order.append(i), name="note")
    for i, priority in enumerate([100, 5, 100, -1, 5]):
        note.using(priority=priority).enqueue(i=i)
    with app.worker(concurrency=1):
        until(lambda: len(order) == 5)
    assert order == [3, 1, 4, 0, 2]


@pytest.mark.claim("R1")
def test_what_is_claimed_ahead_of_slow_jobs_is_handed_back_for_others(app: App) -> None:
    """A worker that was quick has jobs in hand when slow ones come: another worker gets them."""
    release = threading.Event()
    quick = job_type(app, lambda i: None, name="quick")
    slow = job_type(app, lambda i: release.wait(60), name="slow", timeout=90)
    with app.worker(concurrency=2) as first:
        quick.enqueue_many([{"i": i} for i in range(3000)])
        until(lambda: first.hand.attempts > 1000)
        jobs = slow.enqueue_many([{"i": i} for i in range(300)])
        until(lambda: app.find(job_type="slow", state="running"), what="a slow one runs")
        until(lambda: not first.threads.backlog and first.hand.count <= 2, what="only what runs is in hand")
        release.set()
        ended = [job.wait(60) for job in jobs]
    assert {(job.outcome, job.failures, job.losses) for job in ended} == {("success", 0, 0)}


@pytest.mark.fault(12, "jobs of a type that no worker knows")
@pytest.mark.claim("Q4")
def test_jobs_of_a_type_nobody_handles_wait_and_do_not_slow_others(app: App, url: str) -> None:
    with App(url, name=app.name) as other:
        unknown = other.queue("work").job(name="unknown", priority=1)(lambda: None)
        unknown.enqueue_many([{} for _ in range(3000)])
        good = job_type(app, lambda: 1, name="good").enqueue()
        with app.worker(concurrency=2) as worker:
            assert good.unwrap(30) == 1
            until(lambda: not app.store.rows("head_types", {"queue": "work", "limit": 10}), what="they are parked")
            assert app.store.counts()["work"] == {"pending": 3000, "completed": 1}
            worker.stop()
        with other.worker(concurrency=100):
            until(
                lambda: other.store.counts()["work"] == {"completed": 3001}, what="a worker that has the type runs them"
            )


@pytest.mark.claim("C1")
def test_current_job_tells_a_handler_what_it_runs_for(app: App) -> None:
    about = job_type(
        app,
        lambda: [current_job().id, current_job().attempt, current_job().job_key, current_job().cancelled],
        name="about",
    )
    with app.worker():
        job = about.using(job_key="k").enqueue()
        assert job.unwrap(30) == [job.id, 1, "k", False]
    with pytest.raises(HoldfastError, match="outside a handler"):
        current_job()


@pytest.mark.claim("C1")
def test_tasks_groups_timeouts_and_context_variables_work_in_a_coroutine_from_its_first_line(app: App) -> None:
    async def modern() -> list[bool]:
        task = asyncio.current_task()
        async with asyncio.timeout(5):
            async with asyncio.TaskGroup() as group:
                child = group.create_task(asyncio.sleep(0.01, True))
            await asyncio.sleep(0)
        return [child.result(), task is asyncio.current_task(), task is not None]

    job = job_type(app, modern).enqueue()
    with app.worker():
        assert job.unwrap(30) == [True, True, True]


@pytest.mark.claim("C5")
def test_a_second_stop_ends_the_grace_period(app: App) -> None:
    job = job_type(app, wait_for_ever("loop"), name="endless").enqueue()
    worker = app.worker(grace=60)
    worker.start()
    until(lambda: job.refresh().state == "running")
    began = time.monotonic()
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until(lambda: worker.stopping)
    worker.stop(hurry=True)
    stopping.join(30)
    assert time.monotonic() - began < 30
    assert (job.refresh().state, job.refresh().situation) == ("running", "loose")


@pytest.mark.claim("C5")
def test_everybody_sees_at_once_that_a_worker_is_stopping(url: str, instance: str) -> None:
    with App(url, name=instance, heartbeat=600, lost_after=3600) as app:
        begun = threading.Event()

        async def endless() -> None:
            begun.set()
            await asyncio.Event().wait()

        job_type(app, endless, name="endless").enqueue()
        worker = app.worker(grace=600)
        worker.start()
        assert begun.wait(60)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        until(lambda: app.workers()[0].stopping, what="it tells")
        worker.stop(hurry=True)
        stopping.join(60)


@pytest.mark.claim("C5")
def test_what_would_begin_just_when_the_handlers_are_ended_is_handed_back_too(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "LONG_IN_BACKLOG", 1e9)  # so that it does not come back before
    began, go_on, told = threading.Event(), threading.Event(), threading.Event()

    async def endless(first: bool) -> None:
        if first:
            began.set()
            go_on.wait(60)  # the loop stands still, and the other one waits behind it
        await asyncio.Event().wait()

    jobs = job_type(app, endless).enqueue_many([{"first": True}, {"first": False}])
    worker = app.worker(grace=60)
    worker.start()
    until(began.is_set)
    until(lambda: worker.hand.count == 2)
    stop = (worker.loop._stop_all, told)  # what `stop` asks of the loop, which finds it before the next handler
    worker.loop._loop.call_soon_threadsafe(*stop)
    go_on.set()
    until(told.is_set)
    worker.stop(hurry=True)

    found = [job.refresh() for job in jobs]
    assert [(job.state, job.situation, job.failures) for job in found] == [("running", "loose", 0)] * 2


@pytest.mark.claim("C2")
def test_a_worker_that_was_called_lost_goes_on_under_a_new_identity(app: App) -> None:
    good = job_type(app, lambda: 1, name="good")
    with app.worker() as worker:
        first = worker.id
        app.store.lose(first)
        until(lambda: worker.id != first, what="it has a new identity")
        assert good.enqueue().unwrap(30) == 1
        assert [row.id for row in app.store.workers()] == [worker.id]


@pytest.mark.claim("C2")
def test_a_dead_worker_on_the_same_machine_is_known_by_its_lock(tmp_path: Path) -> None:
    """On SQLite nobody has to wait for a heartbeat to be missed."""
    with App(f"sqlite:///{tmp_path}/x.db", heartbeat=60, lost_after=600) as app:
        job = job_type(app, lambda: os.getpid(), name="pid").enqueue()
        child = os.fork()
        if child == 0:
            worker = Worker(app.store, app.handlers, app._settings({}), app.clock, "0")
            worker.store = app.store
            worker.join()
            worker.claim_one()
            os._exit(0)
        os.waitpid(child, 0)
        assert job.refresh().situation == "held"
        with app.worker():
            assert job.unwrap(20) == os.getpid()
        assert [end.outcome for end in job.attempts()] == ["lost", "success"]


@pytest.mark.claim("R5")
def test_a_job_that_fails_is_tried_again_as_often_as_its_retries_say(app: App) -> None:
    bad = job_type(app, lambda: raise_(ValueError("no")), name="bad", retry=Fixed(0.01))
    with app.worker():
        ended = bad.enqueue().wait(30)
    assert (ended.attempt, ended.failures, ended.status) == (4, 4, "dead")


@pytest.mark.claim("B5")
@pytest.mark.parametrize("kind", ["worker", "worker_for_ever"])
def test_every_worker_does_the_chores_of_its_app_with_its_sweeps(app: App, kind: str) -> None:
    swept = threading.Event()
    app.chores.append(lambda store, everything: swept.set())
    worker: Worker = getattr(app, kind)()
    worker.start()
    try:
        assert swept.wait(60)
    finally:
        worker.stop()


@pytest.mark.claim("J10", "C5")
def test_an_abort_that_comes_after_the_handlers_were_ended_is_no_trouble(app: App) -> None:
    worker = app.worker()
    worker.start()
    worker.stop()
    for runner in worker.runners:
        runner.cancel(1, 1, "aborted", "ann")
