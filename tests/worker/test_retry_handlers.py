"""R2, R5, R6: what a retry handler is asked, when, and what becomes of its answer; adaptive retry in a live worker."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import GIVE_UP, WAIT, Adaptive, App, Failed, Fixed, NoDelay, Retry, Unavailable
from holdfast.clock import MovableClock
from holdfast.jobs.job import Job, JobError
from holdfast.worker import judge
from holdfast.worker.worker import Worker
from tests.faults.fleet import until


@pytest.fixture
def app(url: str, instance: str) -> Iterator[App]:
    with App(url, name=instance, heartbeat=0.5, lost_after=5) as app:
        app.queue("work")
        yield app


@pytest.fixture
def still(url: str, instance: str) -> Iterator[tuple[App, MovableClock]]:
    """An App whose time stands still."""
    clock = MovableClock()
    with App(url, name=instance, clock=clock) as app:
        yield app, clock


def raise_(error: BaseException) -> Any:
    raise error


@pytest.mark.claim("R5")
def test_a_retry_handler_sees_the_job_in_error_with_this_failure_counted(still: tuple[App, MovableClock]) -> None:
    app, clock = still
    seen: list[Job] = []
    send = app.queue("work").job(lambda n: raise_(ValueError("broke")), name="send", retries=9)

    @send.retry_handler
    def again(job: Job, error: JobError) -> Any:
        seen.append(job)
        return Retry(at=clock.now() + timedelta(seconds=5)) if len(seen) < 3 else GIVE_UP

    send.enqueue(n=1)
    for _ in range(3):
        app.run_until_idle()
        clock.advance(5)

    assert [(job.state, job.status, job.situation, job.attempt, job.failures) for job in seen] == [
        ("error", "failed", None, number, number) for number in (1, 2, 3)
    ]
    assert {str(job.error) for job in seen} == {"broke"}


@pytest.mark.claim("R5", "R2")
@pytest.mark.parametrize(
    ("end", "kinds"),
    [
        ("exception", ["exception"]),
        ("system exit", ["exception"]),
        ("retry", ["retry"]),
        ("timeout", ["timeout"]),
        ("failed", []),
        ("abort", []),
        ("result", []),
    ],
)
def test_a_retry_handler_is_asked_about_every_error_that_can_be_retried_and_no_other(
    app: App, end: str, kinds: list[str]
) -> None:
    asked: list[str] = []
    running = threading.Event()

    async def work() -> Any:
        running.set()
        match end:
            case "exception":
                raise ValueError("broke")
            case "system exit":
                raise SystemExit(2)
            case "retry":
                raise Retry("later", delay=3600)
            case "failed":
                raise Failed("no")
            case "result":
                return object()
            case _:
                await asyncio.Event().wait()

    send = app.queue("work").job(work, name="send", timeout=0.2 if end == "timeout" else 30)
    send.retry_handler(lambda job, error: (asked.append(error.kind), GIVE_UP)[1])
    with app.worker(concurrency=2):
        job = send.enqueue()
        if end == "abort":
            until(running.is_set)
            app.abort(job.id)
        ended = job.wait(30)

    assert asked == kinds
    assert ended.outcome == {"failed": "failed", "abort": "aborted"}.get(end, "error")


@pytest.mark.claim("R5")
def test_ten_seconds_are_what_a_retry_handler_has() -> None:
    assert judge.PATIENCE == 10


@pytest.mark.claim("R5")
@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_retry_handler_that_takes_too_long_ends_the_job_and_its_late_answer_is_ignored(
    app: App, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    monkeypatch.setattr(judge, "PATIENCE", 0.1)
    release, came_back = threading.Event(), threading.Event()
    send = app.queue("work").job(lambda: raise_(ValueError("broke")), name="send", retries=9, retry=NoDelay())

    def plain(job: Job, error: JobError) -> Any:
        release.wait(30)
        came_back.set()
        return Retry(delay=0)

    async def coloured(job: Job, error: JobError) -> Any:
        return plain(job, error)

    send.retry_handler(plain if colour == "plain" else coloured)
    with app.worker(concurrency=2):
        job = send.enqueue()
        ended = job.wait(30)
        release.set()
        until(came_back.is_set)

    assert (ended.outcome, ended.attempt, ended.error.kind) == ("error", 1, "retry_handler")
    assert "longer than 0.1 s" in str(ended.error)
    assert str(ended.attempts()[0].error) == "broke"
    assert job.refresh() == ended


@pytest.mark.claim("R5")
@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt(), Retry("raised, not returned")])
def test_whatever_a_retry_handler_raises_ends_the_job(app: App, raised: BaseException) -> None:
    """`Retry` is returned; one that is raised is taken as returned."""
    asked: list[int] = []
    send = app.queue("work").job(lambda: raise_(ValueError("broke")), name="send")

    @send.retry_handler
    def again(job: Job, error: JobError) -> Any:
        asked.append(job.attempt)
        if len(asked) > 1:
            return GIVE_UP
        raise raised

    with app.worker(concurrency=2):
        ended = send.enqueue().wait(30)

    assert ended.outcome == "error"
    assert ended.attempt == (2 if isinstance(raised, Retry) else 1)


@pytest.mark.claim("R5", "R2")
def test_a_retry_handler_that_says_nothing_keeps_the_time_that_the_handler_named(
    still: tuple[App, MovableClock],
) -> None:
    app, clock = still
    send = app.queue("work").job(lambda: raise_(Retry("429", delay=42)), name="send", retries=1, retry=Fixed(5))
    send.retry_handler(lambda job, error: None)
    job = send.enqueue()
    app.run_until_idle()

    assert job.refresh().scheduled_run_time == clock.now() + timedelta(seconds=42)
    clock.advance(42)
    app.run_until_idle()
    assert (job.refresh().outcome, job.refresh().failures) == ("error", 2)


@pytest.mark.claim("R5")
def test_a_retry_handlers_time_counts_and_not_the_one_that_the_handler_named(still: tuple[App, MovableClock]) -> None:
    app, clock = still
    send = app.queue("work").job(lambda: raise_(Retry("429", delay=42)), name="send", retries=0)
    send.retry_handler(lambda job, error: Retry(delay=7))
    job = send.enqueue()
    app.run_until_idle()

    assert job.refresh().scheduled_run_time == clock.now() + timedelta(seconds=7)


@pytest.mark.claim("R5", "Q7")
@pytest.mark.parametrize("payload", [{"n": "one"}, {}, {"n": 1, "more": 2}, {"n": float("nan")}])
def test_the_payload_of_a_retry_is_checked_like_any_other(still: tuple[App, MovableClock], payload: Any) -> None:
    app, _ = still

    def send(n: int) -> None:
        raise ValueError("broke")

    declared = app.queue("work").job(send, retries=9)
    declared.retry_handler(lambda job, error: Retry(delay=0, payload=payload))
    job = declared.enqueue(n=1)
    app.run_until_idle()

    ended = job.refresh()
    assert (ended.outcome, ended.payload, ended.error.kind) == ("error", {"n": 1}, "payload")  # type: ignore[union-attr]
    assert "retry handler's payload" in str(ended.error)


@pytest.mark.claim("R5", "C7")
def test_an_outage_while_a_retry_handler_is_asked_is_not_its_fault(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    outages = [Unavailable("gone"), Unavailable("still gone")]
    read = Worker._read
    monkeypatch.setattr(Worker, "_read", lambda self, job_id: raise_(outages.pop()) if outages else read(self, job_id))
    send = app.queue("work").job(lambda: raise_(ValueError("broke")), name="send", retries=0)
    send.retry_handler(lambda job, error: Retry(delay=0) if job.attempt == 1 else GIVE_UP)
    with app.worker(concurrency=2):
        ended = send.enqueue().wait(30)

    assert outages == []
    assert (ended.attempt, str(ended.error)) == (2, "broke")


@pytest.mark.claim("R6")
@pytest.mark.parametrize("retries", [None, 0])
def test_workers_probe_an_open_breaker_in_time_and_go_on_when_it_closes(app: App, retries: int | None) -> None:
    """The poll is far away: they know when to look. Many jobs: without retries each probe uses one up."""
    healthy = threading.Event()
    calls: list[int] = []
    failed: set[int] = set()

    async def send(n: int) -> int:
        calls.append(n)
        if not healthy.is_set():
            failed.add(n)
            raise ConnectionError("down")
        return n

    policy = Adaptive(first=0, jitter=0, most=0.5, breaker=3, probe=0.2)  # what is over the budget waits for `most`
    declared = app.queue("work").job(send, retries=retries, retry=policy)
    with app.worker(concurrency=1, poll=60), app.worker(concurrency=1, poll=60):
        jobs = [declared.enqueue(n=n) for n in range(100)]
        until(lambda: app.breakers()[0].state != "closed", what="it opens")
        seen = len(calls)
        until(lambda: len(calls) >= seen + 3, what="it is probed again and again")
        assert app.breakers()[0].state != "closed"
        healthy.set()
        ended = [job.wait(30) for job in jobs]

    dead = set() if retries is None else failed
    assert {job.result for job in ended if job.outcome == "success"} == set(range(100)) - dead
    assert app.breakers()[0].state == "closed"


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.claim("R5")
@pytest.mark.parametrize("error", [Speechless(), ValueError("a\0b"), ValueError("\ud800")])
def test_an_error_of_a_retry_handler_that_cannot_be_told_ends_the_job(
    still: tuple[App, MovableClock], error: Exception
) -> None:
    app, _ = still
    send = app.queue("work").job(lambda: raise_(ValueError("broke")), name="send")
    send.retry_handler(lambda job, _: raise_(error))

    job = send.enqueue()
    app.run_until_idle()

    found = job.refresh()
    assert (found.outcome, found.error.kind, found.error.type) == ("error", "retry_handler", type(error).__name__)


@pytest.mark.claim("R5")
def test_an_answer_of_a_retry_handler_that_nobody_foresaw_ends_the_job(still: tuple[App, MovableClock]) -> None:
    app, _ = still
    odd = Retry()
    odd.payload = [1]  # type: ignore[assignment]
    send = app.queue("work").job(lambda: raise_(ValueError("broke")), name="send")
    send.retry_handler(lambda job, error: odd)

    job = send.enqueue()
    app.run_until_idle()

    assert (job.refresh().outcome, job.refresh().error.kind) == ("error", "retry_handler")


@pytest.mark.claim("R2", "W5")
@pytest.mark.parametrize("time", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
def test_a_time_at_either_end_of_the_calendar_is_a_time(still: tuple[App, MovableClock], time: datetime) -> None:
    app, clock = still
    later = app.queue("work").job(lambda: raise_(Retry(at=time)), name="later", retries=1, time_windows=["00:00-12:00"])

    job = later.enqueue()
    app.run_until_idle()

    found = job.refresh()
    if time > clock.now():
        assert (found.state, found.scheduled_run_time.year, found.scheduled_run_time.hour < 12) == ("error", 2126, True)
    else:
        assert (found.outcome, found.attempt, found.scheduled_run_time) == ("error", 2, clock.now())


@pytest.mark.claim("R4", "R5")
@pytest.mark.parametrize(("named", "attempts"), [({}, 1), ({"retries": 2}, 3)])
def test_a_wait_that_nobody_answers_is_left_to_the_policy_only_where_retries_are_named(
    still: tuple[App, MovableClock], named: dict[str, int], attempts: int
) -> None:
    app, clock = still
    ask = app.queue("work").job(lambda: WAIT(timeout=60), name="ask", **named)
    ask.retry_handler(lambda job, error: None)
    job = ask.enqueue()
    for _ in range(5):
        app.run_until_idle()
        clock.advance(400)
    assert (job.refresh().state, job.refresh().attempt) == ("final", attempts)
    assert (job.refresh().error.kind, job.refresh().error.type) == ("timeout", "Unanswered")


@pytest.fixture
def programs(url: str, instance: str) -> Iterator[tuple[Callable[..., App], MovableClock]]:
    """Programs that declare `send`, which fails, each with a retry handler or without. The last one made is registered."""
    clock = MovableClock()
    with ExitStack() as stack:

        def make(answer: Any = None, **options: Any) -> App:
            app = stack.enter_context(App(url, name=instance, clock=clock))
            send: Any = app.queue("work").job(lambda: raise_(ValueError("broke")), name="send", **options)
            if answer is not None:
                send.retry_handler(lambda job, error: answer)
            app.store.pulse()
            return app

        yield make, clock


@pytest.mark.claim("R5", "E1")
def test_an_error_stays_until_a_process_comes_that_has_the_retry_handler(
    programs: tuple[Callable[..., App], MovableClock],
) -> None:
    make, clock = programs
    old, new = make(), make(Retry(delay=60))
    job = old.enqueue("work", "send")

    for _ in range(3):
        old.run_until_idle()
        clock.advance(3600)

    found = job.refresh()
    assert (found.state, found.attempt, str(found.error)) == ("error", 1, "broke")
    assert job.explain().reason == "retry_handler"
    new.run_until_idle()
    assert (job.refresh().state, job.explain().reason) == ("error", "retry_delay")
    clock.advance(60)
    assert old.run_until_idle() == 1


@pytest.mark.claim("R5")
@pytest.mark.parametrize("retries", [0, 1])
def test_the_policy_decides_errors_whose_retry_handler_the_code_has_no_more(
    programs: tuple[Callable[..., App], MovableClock], retries: int
) -> None:
    make, clock = programs
    old, _ = make(retry=Fixed(11)), make(GIVE_UP, retry=Fixed(11))
    job = old.enqueue("work", "send", retries=retries)
    old.run_until_idle()
    assert job.explain().reason == "retry_handler"

    newest = make(retry=Fixed(11))
    newest.run_until_idle()

    found = job.refresh()
    assert (found.state, str(found.error), found.failures) == ("error" if retries else "final", "broke", 1)
    assert not retries or found.scheduled_run_time == clock.now() + timedelta(seconds=11)


@pytest.mark.claim("R5")
def test_a_worker_without_the_retry_handler_leaves_errors_to_one_that_has_it(url: str, instance: str) -> None:
    settings: Any = {"name": instance, "heartbeat": 0.2, "lost_after": 5}
    with App(url, **settings) as old, App(url, **settings) as new:
        _, send = (app.queue("work").job(lambda: raise_(ValueError("broke")), name="send") for app in (old, new))
        send.retry_handler(lambda job, error: GIVE_UP if job.attempt > 1 else Retry(delay=0))
        old.store.pulse()
        jobs = send.enqueue_many([{}] * 10)
        with old.worker():
            until(lambda: all(job.refresh().failures for job in jobs), 20)
            with new.worker():
                until(lambda: all(job.refresh().final for job in jobs), 20)
        ended = [job.refresh() for job in jobs]

    assert {(job.attempt, str(job.error)) for job in ended} == {(2, "broke")}
