"""J10: an abort ends a job from wherever it is, and never twice."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App, IllegalMove, NotFound
from holdfast.clock import MovableClock
from holdfast.jobs.job import Outcome, State
from holdfast.jobs.states import Aborted
from holdfast.stores.contract import Claimed, Store
from tests.by_hand import WorkerByHand, add, declare
from tests.faults.fleet import until
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("J10")


def check_aborted(store: Store, job_id: int, attempt: int = 1, actor: str = "ann") -> None:
    job = store.get(job_id)
    assert (job.state, job.outcome, job.attempt, job.failures) == (State.FINAL, Outcome.ABORTED, attempt, 0)
    assert str(job.error) == f"aborted by {actor}"
    assert job.end_time is not None


def test_a_job_that_has_not_begun_walks_to_final_without_its_handler(app: Callable[..., App]) -> None:
    holdfast = app()
    called = []

    @holdfast.queue("mail").job
    def send() -> None:
        called.append(1)

    job = send.enqueue()
    ended = holdfast.abort(job.id, actor="ann")

    assert holdfast.run_until_idle() == 0
    assert called == []
    check_aborted(holdfast.store, job.id)
    assert ended == holdfast.get(job.id)
    assert ended.start_time is None  # such a walk is not a start (W1)


def test_a_job_that_waits_for_its_time_is_ended_at_once(store: Store) -> None:
    job = add(store, delay=3600)

    store.abort(job.id, "ann")

    check_aborted(store, job.id)


def test_a_job_in_error_is_ended_and_never_retried(store: Store, clock: MovableClock) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one())

    ended = store.abort(job.id, "ann")

    assert (ended.outcome, ended.failures) == (Outcome.ABORTED, 1)
    clock.advance(3600)
    assert worker.claim() == []
    assert [attempt.outcome for attempt in store.attempts(job.id)] == ["error"]


def test_a_job_whose_retry_handler_has_not_answered_is_ended(store: Store) -> None:
    declare(store, has_retry_handler=True)
    job = add(store)
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one())
    assert store.undecided(["send"]) == [job.id]

    store.abort(job.id, "ann")

    assert store.undecided(["send"]) == []
    assert store.get(job.id).outcome is Outcome.ABORTED


@pytest.mark.parametrize("end", [WorkerByHand.hand_back, WorkerByHand.snooze, lambda worker, call: worker.die()])
def test_a_loose_job_is_ended_at_once(store: Store, end: Callable[[WorkerByHand, Claimed], object]) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    end(worker, worker.claim_one())

    store.abort(job.id, "ann")

    check_aborted(store, job.id)
    assert WorkerByHand(store).claim() == []


def test_a_parked_job_is_ended(store: Store) -> None:
    job = add(store)
    store.park([])

    store.abort(job.id, "ann")

    check_aborted(store, job.id)
    assert store.park(["send"]) == 0


def test_a_held_job_is_ended_by_its_worker(store: Store, sql: RawSql) -> None:
    job = add(store)
    worker, other = WorkerByHand(store), WorkerByHand(store)
    call = worker.claim_one()

    asked = store.abort(job.id, "ann")

    assert (asked.state, asked.outcome) == (State.RUNNING, None)
    assert store.aborts(worker.id) == [(job.id, 1, "ann")]
    assert store.aborts(other.id) == []
    assert store.pulse().aborts
    worker.obey_abort(call)
    check_aborted(store, job.id)
    assert sql("select * from {abort}") == []


def test_a_held_job_that_succeeds_in_spite_of_it_has_succeeded(store: Store, sql: RawSql, clock: MovableClock) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    store.abort(job.id, "ann")

    assert worker.succeed(call) == 0

    clock.advance(11)
    assert store.end_old_aborts(10) == 0
    assert store.get(job.id).outcome is Outcome.SUCCESS
    assert sql("select * from {abort}") == []


def test_after_ten_seconds_the_row_is_ended_without_its_worker(store: Store, clock: MovableClock) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    store.abort(job.id, "ann")

    clock.advance(9.9)
    assert store.end_old_aborts(10) == 0
    assert store.get(job.id).state is State.RUNNING
    clock.advance(0.1)
    assert store.end_old_aborts(10) == 1

    check_aborted(store, job.id)
    assert worker.succeed(call) == 1  # too late


def test_a_held_job_of_a_worker_that_is_gone_is_ended_at_once(store: Store) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    worker.claim_one()
    store.leave(worker.id)  # without handing back

    store.abort(job.id, "ann")

    check_aborted(store, job.id)
    assert store.recover_strays() == 0


def test_a_lost_job_that_waits_for_its_timeout_is_ended_at_once(store: Store, clock: MovableClock) -> None:
    declare(store, on_crash="timeout")
    job = add(store, timeout=30)
    worker = WorkerByHand(store)
    worker.claim_one()
    worker.die()

    store.abort(job.id, "ann")

    check_aborted(store, job.id)
    clock.advance(31)
    assert store.end_overdue() is None
    check_aborted(store, job.id)


@pytest.mark.parametrize(
    "end", ["lost", "lost under timeout", "raised", "raised for a retry handler", "snoozed", "handed back"]
)
def test_a_wish_is_not_forgotten_when_the_attempt_ends_by_itself(store: Store, clock: MovableClock, end: str) -> None:
    """It was asked for while the job was held; when nobody holds it any more, the row is ended at once."""
    declare(store, on_crash="timeout" if end == "lost under timeout" else "rerun", has_retry_handler="handler" in end)
    job = add(store)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    store.abort(job.id, "ann")

    if end.startswith("lost"):
        worker.die()
    elif end == "snoozed":
        worker.snooze(call, 5)
    elif end == "handed back":
        worker.hand_back(call)
    else:
        worker.fail(call)

    check_aborted(store, job.id)
    clock.advance(3600)
    assert WorkerByHand(store).claim() == []
    assert store.end_old_aborts(10) == 0


def test_asking_twice_is_asking_once(store: Store, clock: MovableClock) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    call = worker.claim_one()

    store.abort(job.id, "ann")
    clock.advance(5)
    store.abort(job.id, "bob")

    assert store.aborts(worker.id) == [(job.id, 1, "ann")]
    clock.advance(5)
    assert store.end_old_aborts(10) == 1  # ten seconds after the first wish
    assert store.aborts(worker.id) == []
    assert worker.tell(call, Aborted("bob")) is None
    check_aborted(store, job.id)


@pytest.mark.claim("J3")
@pytest.mark.parametrize("end", ["success", "failed", "aborted", "archived"])
def test_a_final_job_cannot_be_aborted(store: Store, sql: RawSql, clock: MovableClock, end: str) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    if end == "aborted":
        store.abort(job.id, "ann")
        worker.obey_abort(call)
    elif end == "failed":
        worker.fail(call, "failed")
    else:
        worker.succeed(call)
    if end == "archived":
        store.archive(-1)
    before, history = store.get(job.id), store.history(job.id)
    clock.advance(1)

    with pytest.raises(IllegalMove, match=rf"Job {job.id} is `final` .* may not become `running` or `error`"):
        store.abort(job.id, "bob")

    assert store.get(job.id) == before
    assert store.history(job.id) == history
    assert sql.value("select count(*) from {audit} where actor = 'bob'") == 0


def test_a_job_that_does_not_exist_cannot_be_aborted(store: Store) -> None:
    with pytest.raises(NotFound, match="There is no job 7"):
        store.abort(7, "ann")


@pytest.mark.claim("J2")
def test_an_abort_and_a_claim_at_once_leave_one_winner(store: Store) -> None:
    """Either the claim came first and the worker is asked, or the abort did and nothing is claimed."""
    worker, other = WorkerByHand(store), store.another(5)
    for _ in range(10):
        job = add(store)
        thread = threading.Thread(target=other.abort, args=(job.id, "ann"))
        thread.start()
        calls = worker.claim()
        thread.join()
        found = store.get(job.id)
        assert found.attempt == 1
        if calls:
            assert found.state is State.RUNNING
            worker.obey_abort(calls[0])
        check_aborted(store, job.id)
    other.close()


def test_the_error_of_an_aborted_job_says_who(store: Store) -> None:
    job = add(store)
    ended = store.abort(job.id, "ann@example.org")

    assert ended.error is not None
    assert (ended.error.type, ended.error.kind, str(ended.error)) == (
        "Aborted",
        "aborted",
        "aborted by ann@example.org",
    )


@pytest.mark.parametrize("limit", [None, 5.0])
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_an_abort_does_not_wait_for_a_claim_that_waits_for_it(store: Any, sql: RawSql, limit: float | None) -> None:
    """The job is handed back while its abort begins, and claimed again when the abort has its row."""
    store.limit("mail", limit, "me")
    job, worker, other = add(store), WorkerByHand(store), store.another(5)
    call, claimed = worker.claim_one(), list[list[Claimed]]()
    claims, locks = threading.Thread(target=lambda: claimed.append(worker.claim(1))), other._lock

    def lock(ids: Any) -> Any:
        other._lock = locks
        worker.hand_back(call)
        found = locks(ids)
        claims.start()
        waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        until(lambda: sql(waits), what="the claim waits")
        return found

    other._lock = lock
    assert other.abort(job.id, "me").final
    claims.join()
    other.close()
    assert (claimed, sql("select * from {ready}")) == ([[]], [])
