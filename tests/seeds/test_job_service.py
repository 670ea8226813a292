"""What the description of the asynchronous job service says, sentence by sentence."""

from collections.abc import Callable

import pytest

from holdfast import App, Failed
from holdfast.clock import MovableClock
from holdfast.jobs.states import MOVES, STATUS, Event
from tests.by_hand import WorkerByHand
from tests.raw_sql import RawSql

STORED = (
    *("execution_time", "failures", "error", "create_time", "start_time", "end_time"),
    *("job_type", "payload", "result", "status"),
)


@pytest.mark.claim("R2", "J8")
def test_a_job_is_completed_when_it_gives_a_result(hipq: App) -> None:
    @hipq.queue("mail").job
    def add(a: int, b: int) -> int:
        return a + b

    job = add.enqueue(2, 3)
    hipq.run_until_idle()
    assert (job.refresh().status, job.refresh().result) == ("completed", 5)


@pytest.mark.claim("R5", "J8")
def test_a_job_is_dead_when_it_failed_multiple_times_by_the_retry_limit(hipq: App, clock: MovableClock) -> None:
    """Retry limit: 3 retries."""
    ran = []

    @hipq.queue("mail").job
    def send() -> None:
        ran.append(job.refresh().status)
        raise ConnectionError("nobody is there")

    job = send.enqueue()
    statuses = []
    while hipq.run_until_idle():
        statuses.append(job.refresh().status)
        clock.advance(3600)

    assert job.retries == 3
    assert ran == ["running"] * 4
    assert statuses == ["failed", "failed", "failed", "dead"]
    assert (job.refresh().failures, str(job.refresh().error)) == (4, "nobody is there")


@pytest.mark.claim("R4", "R5")
def test_a_job_has_30_seconds_and_is_retried_immediately_after_a_timeout(hipq: App, clock: MovableClock) -> None:
    @hipq.queue("mail").job
    def send() -> None: ...

    job = send.enqueue()
    assert (job.timeout, job.retries) == (30, 3)
    worker = WorkerByHand(hipq.store)
    for attempt in (1, 2, 3):
        clock.advance(30)
        worker.fail(worker.claim_one(), "timeout")
        found = job.refresh()
        assert (found.status, found.attempt, found.scheduled_run_time) == ("failed", attempt, clock.now())
    worker.fail(worker.claim_one(), "timeout")
    assert (job.refresh().status, job.refresh().attempt) == ("dead", 4)
    assert [each.outcome for each in job.attempts()] == ["timeout"] * 4


@pytest.mark.claim("R4")
def test_a_job_fails_when_it_lasts_longer_than_its_timeout(hipq: App) -> None:
    ran = []

    @hipq.queue("mail").job(timeout=0.05, retries=1)
    async def hang() -> None:
        import asyncio

        ran.append(1)
        await asyncio.sleep(30)

    job = hang.enqueue()
    hipq.run_until_idle()  # the retry too: it is due at once
    assert len(ran) == 2
    assert job.refresh().status == "dead"
    assert "timeout" in str(job.refresh().error)


@pytest.mark.claim("R1")
def test_the_client_does_not_wait_and_goes_on_with_other_things(hipq: App, app: Callable[..., App]) -> None:
    @hipq.queue("mail").job
    def send() -> str:
        return "sent"

    assert hipq.find() == []
    client = app()
    jobs = [client.enqueue("mail", "send") for _ in range(3)]
    assert {job.status for job in jobs} == {"pending"}
    assert hipq.run_until_idle() == 3
    assert {job.refresh().status for job in jobs} == {"completed"}


@pytest.mark.claim("R7")
def test_the_important_metadata_is_stored(hipq: App) -> None:
    @hipq.queue("mail").job(retries=0)
    def send(to: str) -> str:
        if to == "nobody":
            raise Failed("nobody is there")
        return f"to {to}"

    good, bad = send.enqueue("ann"), send.enqueue("nobody")
    hipq.run_until_idle()
    for job in (good.refresh(), bad.refresh()):
        for name in STORED:
            assert hasattr(job, name)
        assert job.start_time is not None
        assert job.end_time is not None
        assert job.create_time <= job.start_time <= job.end_time
        assert job.execution_time is not None
        assert job.execution_time >= 0
        assert job.job_type == "send"
    assert (good.refresh().payload, good.refresh().result) == ({"to": "ann"}, "to ann")
    assert str(bad.refresh().error) == "nobody is there"


@pytest.mark.claim("J8", "J2")
def test_failed_is_reached_from_running_and_dead_from_failed() -> None:
    """In the words of this service: pending, running, failed, completed, dead."""
    assert set(STATUS.values()) == {"pending", "running", "failed", "completed", "dead"}
    into_error = {source for (source, event), target in MOVES.items() if target == "error" and source != target}
    assert into_error == {"running"}
    assert {source for (source, event) in MOVES if event is Event.END} == {"error"}


@pytest.mark.claim("J7")
def test_a_dead_job_was_failed_just_before(hipq: App) -> None:
    job = hipq.enqueue("mail", "send", retries=0)
    worker = WorkerByHand(hipq.store)
    worker.fail(worker.claim_one())
    assert [(move.from_state, move.to_state) for move in job.history()][-2:] == [
        ("running", "error"),
        ("error", "final"),
    ]


@pytest.mark.claim("C3", "R1")
def test_a_job_is_not_failed_if_the_system_crashes_and_starts_anew_and_clean(hipq: App) -> None:
    ran = []

    @hipq.queue("mail").job
    def send() -> str:
        ran.append("clean")
        return "sent"

    job = send.enqueue()
    crashed = WorkerByHand(hipq.store)
    call = crashed.claim_one()
    crashed.die()
    assert (job.refresh().status, job.refresh().failures, job.refresh().error) == ("running", 0, None)

    hipq.run_until_idle()  # the system starts up

    found = job.refresh()
    assert (found.status, found.result, found.failures, found.attempt) == ("completed", "sent", 0, 2)
    assert ran == ["clean"]
    assert crashed.succeed(call, result='"of before"') == 1  # what the crashed one still had to say is ignored
    assert job.refresh().result == "sent"


@pytest.mark.claim("C5")
def test_nor_if_its_thread_is_interrupted_before_finishing(hipq: App) -> None:
    job = hipq.enqueue("mail", "send")
    worker = WorkerByHand(hipq.store)
    worker.hand_back(worker.claim_one())
    assert (job.refresh().status, job.refresh().failures) == ("running", 0)
    assert worker.claim_one().attempt == 2


@pytest.mark.claim("C4")
def test_a_job_that_keeps_on_pending_is_detected_and_runs(hipq: App, sql: RawSql, clock: MovableClock) -> None:
    """Those that were created X time ago, to prevent errors with the ones created recently; X is 60 s."""

    @hipq.queue("mail").job
    def send() -> str:
        return "sent"

    old = send.enqueue()
    sql("delete from {ready}")
    clock.advance(50)
    recent = send.enqueue()
    sql("delete from {ready}")
    assert hipq.run_until_idle() == 0
    clock.advance(11)

    assert hipq.run_until_idle() == 1

    assert (old.refresh().status, recent.refresh().status) == ("completed", "pending")
    clock.advance(50)
    assert hipq.run_until_idle() == 1
