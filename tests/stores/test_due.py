"""W1, J6: nothing starts before its time or after its expiry."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast import App, Invalid, Retry
from holdfast.clock import MovableClock
from holdfast.jobs.job import Outcome, State
from holdfast.stores.contract import QueueDeclared, Store
from tests.by_hand import WorkerByHand, add
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("W1")


@pytest.mark.claim("J6")
def test_a_job_is_wanted_now_unless_it_says_otherwise(store: Store, clock: MovableClock) -> None:
    job = add(store)

    assert (job.scheduled_run_time, job.create_time, job.update_time) == (clock.now(),) * 3
    assert store.get(job.id) == job
    assert WorkerByHand(store).claim_one().id == job.id


@pytest.mark.claim("J6")
def test_a_job_does_not_start_a_microsecond_before_its_time(store: Store, clock: MovableClock) -> None:
    at = clock.now() + timedelta(seconds=60)
    jobs = [add(store, scheduled_run_time=at), add(store, delay=60)]
    worker = WorkerByHand(store)
    assert [job.scheduled_run_time for job in jobs] == [at, at]

    clock.set(at - timedelta(microseconds=1))
    assert worker.claim(10) == []
    clock.set(at)

    assert [call.id for call in worker.claim(10)] == [job.id for job in jobs]


def test_a_hint_that_says_otherwise_does_not_start_it_earlier(store: Store, sql: RawSql, clock: MovableClock) -> None:
    job = add(store, delay=60)
    sql(
        "insert into {ready} (queue, major, minor, id, job_type, throttle_factor, ready_time) "
        "select queue, 100, 0, id, job_type, 1, create_time from {job} where id = :id",
        id=job.id,
    )

    assert WorkerByHand(store).claim(10) == []

    assert store.get(job.id).state is State.INITIAL


def test_a_time_in_the_past_is_now_in_the_order_of_times(store: Store, clock: MovableClock) -> None:
    first = add(store)
    earlier = add(store, scheduled_run_time=clock.now() - timedelta(days=1))

    assert [call.id for call in WorkerByHand(store).claim(10)] == [earlier.id, first.id]


def test_the_worker_is_told_when_the_next_time_comes(store: Store, clock: MovableClock) -> None:
    worker = WorkerByHand(store)
    assert worker.turn(promote=True).wake_in is None
    add(store, delay=60)
    add(store, delay=5)
    assert worker.turn(promote=True).wake_in == pytest.approx(5)
    clock.advance(6)
    answer = worker.turn(promote=True)
    assert (answer.wake_in, answer.promoted) == (pytest.approx(54), 1)
    assert worker.turn(promote=True).promoted == 0


@pytest.mark.parametrize("state", ["initial", "error", "loose", "scheduled", "paused"])
def test_an_expired_job_ends_without_a_start(store: Store, clock: MovableClock, state: str) -> None:
    expires = clock.now() + timedelta(seconds=60)
    job = add(store, expires_time=expires, delay=10 if state == "scheduled" else None)
    worker = WorkerByHand(store)
    if state == "error":
        worker.fail(worker.claim_one())
    elif state == "loose":
        worker.hand_back(worker.claim_one())
    elif state == "paused":
        store.pause("mail", True, "ann")
    before = store.get(job.id)

    clock.set(expires)
    assert worker.claim(10) == []
    store.shut()

    found = store.get(job.id)
    assert (found.state, found.outcome, found.attempt) == (State.FINAL, Outcome.ERROR, 1)
    assert found.error is not None
    assert found.error.kind == "expired"
    assert str(expires) in str(found.error)
    assert (found.start_time, found.failures) == (before.start_time, before.failures)


def test_a_job_that_started_in_time_may_end_after_its_expiry(store: Store, clock: MovableClock) -> None:
    job = add(store, expires_time=clock.now() + timedelta(seconds=60))
    worker = WorkerByHand(store)
    clock.advance(59)
    call = worker.claim_one()
    clock.advance(60)
    store.shut()

    assert worker.succeed(call) == 0
    assert store.get(job.id).outcome is Outcome.SUCCESS


def test_a_change_of_the_queues_order_does_not_make_it_forget_expiries(
    store: Store, instance: str, clock: MovableClock
) -> None:
    job = add(store, expires_time=clock.now() + timedelta(seconds=60))
    store.register([QueueDeclared("mail", f"{instance}_mail", "schedule")], [])
    clock.advance(61)

    assert WorkerByHand(store).claim() == []
    store.shut()

    assert store.get(job.id).outcome is Outcome.ERROR


def test_an_expiry_before_the_start_is_refused_and_nothing_is_stored(
    store: Store, sql: RawSql, clock: MovableClock
) -> None:
    for options in ({}, {"delay": 60.0}, {"job_key": "k", "delay": 60.0}):
        with pytest.raises(Invalid, match=r"expires .* is not after its start"):
            add(store, expires_time=clock.now() + timedelta(seconds=60 if options else 0), **options)
    assert sql.value("select count(*) from {job}") == 0
    assert sql.value("select count(*) from {key}") == 0


def test_an_app_never_calls_the_handler_of_an_expired_job(app: Callable[..., App], clock: MovableClock) -> None:
    holdfast, called = app(), []

    @holdfast.queue("mail").job
    def send(n: int) -> None:
        called.append(n)
        if n == 2:
            raise Retry("later", delay=3600)

    at = clock.now()
    late = send.using(expires=at + timedelta(seconds=60)).enqueue(1)
    again = send.using(expires=at + timedelta(hours=2)).enqueue(2)
    soon = send.using(scheduled_run_time=at + timedelta(seconds=61)).enqueue(3)
    clock.advance(61)
    holdfast.run_until_idle()
    clock.advance(7200)
    holdfast.run_until_idle()
    holdfast.run_until_idle()  # the first one finds that its time has come, and gone

    assert called == [2, 3]
    assert [late.refresh().outcome, again.refresh().outcome, soon.refresh().outcome] == ["error", "error", "success"]
    assert late.refresh().error.kind == again.refresh().error.kind == "expired"  # type: ignore[union-attr]


@pytest.mark.claim("J6")
def test_times_in_other_zones_are_the_same_instants_in_utc(app: Callable[..., App], clock: MovableClock) -> None:
    holdfast = app()

    @holdfast.queue("mail").job
    def send() -> None: ...

    there = timezone(timedelta(hours=5, minutes=45))
    at = (clock.now() + timedelta(hours=1)).astimezone(there)
    job = send.using(scheduled_run_time=at, expires=at + timedelta(hours=1)).enqueue()

    for found in (job, job.refresh()):
        assert (found.scheduled_run_time, found.expires_time) == (at, at + timedelta(hours=1))
        assert found.scheduled_run_time.utcoffset() == found.create_time.utcoffset() == timedelta(0)
        assert found.expires_time is not None
        assert found.expires_time.tzinfo is UTC


def test_a_window_that_closed_moves_a_job_in_error_and_keeps_its_error(store: Store, clock: MovableClock) -> None:
    """W5 for retries; the clock stands at midnight."""
    job = add(store, time_windows=("00:00-01:00",))
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one(), retry_delay=10.0)
    clock.advance(3600)
    assert worker.claim() == []
    assert store.shut() == 1

    found = store.get(job.id)
    assert (found.state, found.attempt, str(found.error)) == (State.ERROR, 1, "it broke")
    assert found.scheduled_run_time == datetime(2026, 1, 2, tzinfo=UTC)
    clock.set(found.scheduled_run_time)
    assert worker.claim_one().attempt == 2


@pytest.mark.claim("C6", "E1")
def test_after_the_clock_was_set_back_jobs_in_line_wait_for_it_and_newer_ones_do_not(
    app: Callable[..., App], clock: MovableClock
) -> None:
    holdfast = app(clock=clock)

    @holdfast.queue("mail").job
    def send() -> None: ...

    before, noon = send.enqueue(), clock.now()
    clock.set(noon - timedelta(hours=1))
    after = send.enqueue()

    assert holdfast.run_until_idle() == 1
    assert (before.refresh().state, after.refresh().state) == (State.INITIAL, State.FINAL)
    told = before.explain()
    assert (told.reason, told.until) == ("not_due", noon)
    clock.set(noon)
    assert holdfast.run_until_idle() == 1
