"""C2, C3, J12: what becomes of the jobs of a worker that is gone."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.jobs.job import AttemptEnd, Outcome, Situation, State
from holdfast.jobs.states import ALONE_AFTER, MOST_LOSSES
from holdfast.stores.contract import Store, WorkerJoin
from holdfast.worker.sweeper import Vigil
from tests.by_hand import WorkerByHand, add, declare
from tests.raw_sql import RawSql


@pytest.mark.fault(3, "a worker is started with the same host and process number")
@pytest.mark.claim("C2")
def test_every_start_of_a_worker_is_somebody_new(store: Store, clock: MovableClock) -> None:
    joining = WorkerJoin("same", "same host", 4711, "1", ("mail",), ("send",), ("gpu",), 8, "/tmp/lock")
    first = store.join(joining)
    store.leave(first)
    second, third = store.join(joining), store.join(joining)
    store.leave(third)
    clock.advance(8 * 86400)
    store.archive(0)  # forgets workers that are long gone
    fourth = store.join(joining)

    assert len({first, second, third, fourth}) == 4
    assert [row.id for row in store.workers()] == [second, fourth]
    row = store.workers()[0]
    assert (row.name, row.host, row.pid, row.version, row.queues) == ("same", "same host", 4711, "1", ("mail",))
    assert (row.types, row.labels, row.concurrency, row.lock_path) == (("send",), ("gpu",), 8, "/tmp/lock")


@pytest.mark.claim("C2")
def test_a_heartbeat_is_a_counter_and_tells_a_worker_that_it_was_called_lost(store: Store, clock: MovableClock) -> None:
    worker = WorkerByHand(store)
    beats = []
    for _ in range(3):
        assert store.beat(worker.id)
        beats.append(store.workers()[0].beat)
        clock.set(clock.now() - timedelta(hours=1))  # the time has nothing to do with it
    assert beats == [1, 2, 3]
    assert store.beat(worker.id, stopping=True)
    assert store.workers()[0].stopping

    worker.die()

    assert not store.beat(worker.id)
    assert store.workers() == []


@pytest.mark.fault(4, "a clock that jumps while workers are watched")
@pytest.mark.claim("C2")
def test_only_a_counter_watched_standing_still_makes_a_worker_lost(store: Store, clock: MovableClock) -> None:
    still, alive = WorkerByHand(store), WorkerByHand(store)
    vigil = Vigil(clock, lost_after=30)

    def look(generation: int = 1) -> list[int]:
        store.beat(alive.id)
        return vigil.look(store.workers(), generation)

    assert look() == []
    for _ in range(5):
        clock.advance(5)
        assert look() == []
    clock.set(clock.now() + timedelta(days=1))  # the machine's clock jumps: durations do not notice
    assert look() == []
    clock.advance(4)
    assert look() == []
    clock.advance(1)
    assert look() == [still.id]

    assert look(generation=2) == []  # a new connection: what happened meanwhile is unknown
    clock.advance(16)
    assert look(generation=2) == []  # we did not look for too long ourselves
    for _ in range(3):
        clock.advance(10)
        lost = look(generation=2)
    assert lost == [still.id]


@pytest.mark.claim("C3", "J12")
def test_jobs_of_a_lost_worker_are_loose_at_once_and_start_again_first(store: Store, clock: MovableClock) -> None:
    jobs = [add(store) for _ in range(3)]
    worker, other = WorkerByHand(store), WorkerByHand(store)
    worker.succeed(worker.claim_one())
    worker.claim(2)
    own = other.claim()
    later = add(store)
    clock.advance(1)

    assert worker.die() == 2

    for job in jobs[1:]:
        found = store.get(job.id)
        assert (found.state, found.situation, found.worker) == (State.RUNNING, Situation.LOOSE, None)
        assert (found.failures, found.losses, found.crashes, found.attempt) == (0, 1, 0, 1)
        assert found.scheduled_run_time == job.scheduled_run_time
    assert own == []
    assert [(call.id, call.attempt) for call in other.claim(10)] == [(jobs[1].id, 2), (jobs[2].id, 2), (later.id, 1)]


@pytest.mark.fault(3, "two sweepers call the same worker lost")
@pytest.mark.claim("C3")
def test_a_worker_is_lost_only_once_and_others_keep_their_jobs(store: Store) -> None:
    lost, kept = add(store), add(store)
    worker, other = WorkerByHand(store), WorkerByHand(store)
    worker.claim_one()
    call = other.claim_one()

    assert (worker.die(), worker.die()) == (1, 0)

    assert store.get(lost.id).losses == 1
    assert store.get(kept.id).situation is Situation.HELD
    assert other.succeed(call) == 0


@pytest.mark.fault(3, "a sweeper that was stopped between its look and what it does about it")
@pytest.mark.claim("C2", "C4")
def test_a_sweeper_that_knows_an_old_counter_takes_no_live_workers_jobs(store: Store, clock: MovableClock) -> None:
    worker = WorkerByHand(store)
    add(store)
    call = worker.claim_one()
    vigil = Vigil(clock, 30)
    vigil.look(store.workers(), 0, 1)
    for number in range(2, 5):
        clock.advance(12)
        seen = store.workers()
        lost = vigil.look(seen, 0, number)
    assert lost == [worker.id]
    store.beat(worker.id, False)  # it was only slow, and the sweeper after it
    assert store.lose(worker.id, seen[0].beat) is None
    assert worker.succeed(call) == 0
    assert store.lose(worker.id, store.workers()[0].beat) == 0


@pytest.mark.claim("C3")
def test_a_hand_back_is_neither_a_loss_nor_a_failure(store: Store) -> None:
    job = add(store)
    for _ in range(5):
        worker = WorkerByHand(store)
        worker.hand_back(worker.claim_one())

    found = store.get(job.id)
    assert (found.losses, found.crashes, found.failures, found.attempt) == (0, 0, 0, 5)
    assert found.situation is Situation.LOOSE


@pytest.mark.claim("C3")
def test_three_losses_in_a_row_make_a_job_run_alone_and_only_then_crashes_count(store: Store) -> None:
    job = add(store)
    story = []
    while not store.get(job.id).final:
        worker = WorkerByHand(store)
        call = worker.claim_one()
        alone = call.losses >= ALONE_AFTER
        worker.die()
        found = store.get(job.id)
        story.append((alone, found.losses, found.crashes))

    assert story == [(False, 1, 0), (False, 2, 0), (False, 3, 0), (True, 4, 1), (True, 5, 2), (True, 5, 3)]
    assert (found.outcome, found.attempt, found.failures) == (Outcome.ERROR, 6, 0)
    assert found.error is not None
    assert "3 times" in str(found.error)
    assert "max_crashes=3" in str(found.error)
    assert [attempt.outcome for attempt in store.attempts(job.id)] == [AttemptEnd.LOST] * 6


@pytest.mark.fault(7, "a worker with 50 jobs is lost 10 times")
@pytest.mark.claim("C3")
def test_a_loss_together_with_others_is_no_evidence_against_a_job(store: Store) -> None:
    jobs = [add(store) for _ in range(50)]
    for _ in range(10):
        worker = WorkerByHand(store)
        assert len(worker.claim(50)) == 50
        worker.die()
    assert {(found.final, found.losses, found.crashes) for found in map(store.get, [job.id for job in jobs])} == {
        (False, 10, 0)
    }
    worker = WorkerByHand(store)
    calls = worker.claim(50)
    worker.succeed(*calls[1:])
    worker.die()
    assert [store.get(job.id).crashes for job in jobs] == [1] + 49 * [0]  # of it alone it was evidence


@pytest.mark.fault(7, "a job takes 30 workers with it")
@pytest.mark.claim("C3")
@pytest.mark.parametrize("max_crashes", [3, None])
def test_a_job_that_every_worker_is_lost_with_ends_although_others_were_there(
    store: Store, max_crashes: int | None
) -> None:
    declare(store, max_crashes=max_crashes)
    killer = add(store, priority=1)
    for _ in range(MOST_LOSSES):
        assert not store.get(killer.id).final
        neighbour, worker = add(store, job_type="print"), WorkerByHand(store)
        worker.claim(2)
        worker.die()
        other = WorkerByHand(store, types=("print",))
        other.succeed(*other.claim(2))
        assert store.get(neighbour.id).outcome == "success"
    assert store.get(killer.id).final == (max_crashes is not None)
    assert max_crashes is None or "30 workers in a row" in str(store.get(killer.id).error)


@pytest.mark.claim("C3")
@pytest.mark.parametrize(("max_crashes", "attempts"), [(1, 1), (2, 2), (None, None)])
def test_the_crash_limit_is_the_types_and_none_is_never(
    store: Store, max_crashes: int | None, attempts: int | None
) -> None:
    declare(store, max_crashes=max_crashes)
    job = add(store)
    worker = WorkerByHand(store)
    for _ in range(attempts or 8):
        assert not store.get(job.id).final
        worker.crash(worker.claim_one())

    assert store.get(job.id).final == (attempts is not None)


@pytest.mark.claim("C3")
@pytest.mark.parametrize("end", [WorkerByHand.fail, WorkerByHand.snooze])
def test_losses_are_forgotten_when_an_attempt_ends_otherwise(store: Store, clock: MovableClock, end: object) -> None:
    job = add(store)
    for _ in range(2):
        worker = WorkerByHand(store)
        worker.claim_one()
        worker.die()
    worker = WorkerByHand(store)
    end(worker, worker.claim_one())  # type: ignore[operator]

    assert (store.get(job.id).losses, store.get(job.id).crashes) == (0, 0)


@pytest.mark.claim("R4")
def test_what_becomes_overdue_during_a_look_is_looked_at_next(
    store: Store, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not seen by the look, and would have waited for the next sweep that comes by itself."""
    declare(store, on_crash="timeout")
    job = add(store, timeout=30)
    worker = WorkerByHand(store)
    worker.claim_one()
    worker.die()
    clock.advance(29)
    own: Any = store
    look = own._end_overdue_page

    def long_look(*asked: Any) -> Any:
        found = look(*asked)
        clock.advance(2)
        return found

    monkeypatch.setattr(own, "_end_overdue_page", long_look)
    assert store.end_overdue() == 0
    assert store.end_overdue() is None
    assert store.get(job.id).state is State.ERROR


@pytest.mark.claim("C3", "J12", "R4")
def test_under_timeout_a_lost_job_stays_held_until_its_time_is_over(store: Store, clock: MovableClock) -> None:
    declare(store, on_crash="timeout")
    job = add(store, timeout=30)
    worker = WorkerByHand(store)
    worker.claim_one()
    clock.advance(10)

    assert worker.die() == 1

    found = store.get(job.id)
    assert (found.state, found.situation, found.attempt, found.losses) == (State.RUNNING, Situation.HELD, 1, 0)
    assert WorkerByHand(store).claim() == []
    assert store.recover_strays() == 0
    assert store.pulse().overdue_in == pytest.approx(20)
    clock.advance(19)
    assert store.end_overdue() == pytest.approx(1)
    assert store.get(job.id).situation is Situation.HELD
    clock.advance(1)
    assert store.pulse().overdue_in == pytest.approx(0)
    assert store.end_overdue() is None

    found = store.get(job.id)
    assert (found.state, found.failures) == (State.ERROR, 1)
    assert "timeout" in str(found.error)
    assert "30 s" in str(found.error)
    assert found.scheduled_run_time == clock.now()  # a timeout is retried at once
    assert WorkerByHand(store).claim_one().attempt == 2


@pytest.mark.claim("C3", "J5")
def test_under_timeout_a_lost_worker_that_lives_may_still_finish(store: Store, clock: MovableClock) -> None:
    declare(store, on_crash="timeout")
    job = add(store, timeout=30)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    worker.die()

    assert worker.succeed(call) == 0

    clock.advance(31)
    store.end_overdue()
    assert store.get(job.id).outcome is Outcome.SUCCESS


@pytest.mark.claim("C3", "J5", "R4")
@pytest.mark.parametrize("late", [11, 3600])
def test_the_deadline_of_a_lost_attempt_does_not_hit_the_next_one(
    store: Store, clock: MovableClock, late: float
) -> None:
    declare(store, on_crash="timeout")
    job = add(store, timeout=30)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    worker.die()
    worker.fail(call, retry_delay=0.0)  # it lived after all
    clock.advance(20)
    second = WorkerByHand(store)
    again = second.claim_one()
    clock.advance(late)  # attempt 1 would be over by now; attempt 2 is its worker's affair

    store.end_overdue()

    found = store.get(job.id)
    assert (found.attempt, found.situation, found.failures) == (2, Situation.HELD, 1)
    assert second.succeed(again) == 0


@pytest.mark.claim("R4", "C3")
def test_a_timeout_of_a_lost_job_uses_up_its_retries(store: Store, clock: MovableClock) -> None:
    declare(store, on_crash="timeout")
    job = add(store, timeout=30, retries=1)
    for _ in range(2):
        worker = WorkerByHand(store)
        worker.claim_one()
        worker.die()
        clock.advance(30)
        store.end_overdue()

    found = store.get(job.id)
    assert (found.outcome, found.failures, found.attempt) == (Outcome.ERROR, 2, 2)
    assert [attempt.outcome for attempt in store.attempts(job.id)] == [AttemptEnd.TIMEOUT] * 2


@pytest.mark.claim("C3", "J12")
def test_the_timeout_of_a_loose_job_stands_still(store: Store, clock: MovableClock) -> None:
    job = add(store, timeout=30)
    worker = WorkerByHand(store)
    worker.claim_one()
    clock.advance(29)
    worker.die()
    clock.advance(3600)

    assert store.pulse().overdue_in is None
    assert store.end_overdue() is None
    assert store.get(job.id).situation is Situation.LOOSE
    assert WorkerByHand(store).claim_one().attempt == 2


@pytest.mark.claim("C4")
def test_jobs_of_workers_that_left_without_a_word_are_found(store: Store, sql: RawSql) -> None:
    left, vanished = add(store), add(store)
    first, second = WorkerByHand(store), WorkerByHand(store)
    first.claim_one()
    second.claim_one()
    assert not store.pulse().strays
    store.leave(first.id)
    sql("delete from {worker} where id = :id", id=second.id)

    assert store.pulse().strays
    assert store.recover_strays() == 2

    assert not store.pulse().strays
    assert [store.get(job.id).situation for job in (left, vanished)] == [Situation.LOOSE] * 2
    assert store.recover_strays() == 0


@pytest.mark.claim("R1")
def test_jobs_claimed_in_a_turn_whose_answer_was_lost_are_handed_back(store: Store) -> None:
    known, unheard = add(store), add(store)
    worker, other = WorkerByHand(store), WorkerByHand(store)
    call = worker.claim_one()
    worker.turn(wants=[], types=())
    (silent,) = worker.claim()
    foreign = add(store)
    other.claim_one()

    assert store.disown(worker.id, 0, [call.lease]) == 1

    assert store.get(known.id).situation is Situation.HELD
    assert (store.get(unheard.id).situation, store.get(unheard.id).losses) == (Situation.LOOSE, 0)
    assert store.get(foreign.id).situation is Situation.HELD
    assert worker.succeed(silent) == 1
    assert store.disown(worker.id, 1, []) == 0  # another pump's


@pytest.mark.claim("J12")
def test_a_loose_job_obeys_pause_order_and_the_time_before_it_starts_again(store: Store, clock: MovableClock) -> None:
    job, urgent = add(store), add(store, priority=1, delay=1)
    worker = WorkerByHand(store)
    worker.snooze(worker.claim_one(), 60)
    assert worker.claim() == []
    clock.advance(60)
    store.pause("mail", True, "ann")
    assert worker.claim() == []
    store.pause("mail", False, "ann")

    assert [(call.id, call.attempt) for call in worker.claim(10)] == [(urgent.id, 1), (job.id, 2)]
