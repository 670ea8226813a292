"""C4, Q4: what nobody would find is found, and put back where it belongs."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from holdfast.clock import MovableClock
from holdfast.jobs.job import Situation, State
from holdfast.jobs.states import Decided
from holdfast.stores.contract import NewJob, QueueDeclared, Report, Store, TypeRow
from tests.by_hand import WorkerByHand, add, declare, error
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("C4")


def sweep(store: Store, older_than: float = 60) -> int:
    """One whole round of `restore`."""
    found, after = 0, 0
    while True:
        after, count = store.restore(after, 2, older_than)
        found += count
        if not after:
            return found


LOST = [
    "initial",
    "scheduled",
    "error",
    "loose",
    "snoozed",
    "expiring",
    "windowed",
    "undecided",
    "retry decided",
    "parked",
]


@pytest.mark.parametrize("kind", LOST)
def test_a_job_that_lost_its_hint_gets_it_back(store: Store, sql: RawSql, clock: MovableClock, kind: str) -> None:
    declare(store, has_retry_handler=kind in ("undecided", "retry decided"))
    worker = WorkerByHand(store)
    job = lose_sight(store, worker, kind, clock)
    shown = {name: sql(f"select * from {{{name}}}") for name in ("ready", "waiting", "parked", "undecided")}
    before = sql.row(job)
    for name in shown:
        sql(f"delete from {{{name}}}")
    assert sweep(store) == 0  # not old enough: its transaction might just be making it
    clock.advance(61)

    assert sweep(store) == 1

    if kind == "windowed":  # placed anew in its window
        assert sql.row(job)["attempt"] == before["attempt"]
    else:
        assert sql.row(job) == before
    assert sweep(store) == 0
    if kind == "undecided":
        assert store.undecided(["send"]) == [job]
    elif kind in ("initial", "loose", "expiring", "parked"):
        assert [call.id for call in worker.claim()] == [job]
    else:
        assert [row["id"] for row in sql("select id from {waiting}") + sql("select id from {ready}")] == [job]


def lose_sight(store: Store, worker: WorkerByHand, kind: str, clock: MovableClock) -> int:
    if kind == "scheduled":
        return add(store, delay=600).id
    if kind == "expiring":
        return add(store, expires_time=clock.now() + timedelta(hours=1)).id
    if kind == "windowed":
        return add(store, time_windows=("01:00-02:00",)).id  # the clock stands at midnight
    job = add(store).id
    if kind == "parked":
        assert store.park(["print"]) == 1
    elif kind in ("error", "undecided", "retry decided"):
        worker.fail(worker.claim_one(), retry_delay=600.0)
        if kind == "retry decided":
            (change,) = store.report([Report(job, Decided(error(), retry_delay=600.0), 1, "send")])
            assert change is not None
    elif kind == "loose":
        worker.hand_back(worker.claim_one())
    elif kind == "snoozed":
        worker.snooze(worker.claim_one(), 600)
    return job


def test_a_restored_job_that_expires_still_does(store: Store, sql: RawSql, clock: MovableClock) -> None:
    job = add(store, expires_time=clock.now() + timedelta(seconds=100))
    sql("delete from {ready}")
    clock.advance(61)
    sweep(store)
    clock.advance(40)

    assert WorkerByHand(store).claim() == []
    assert store.shut() == 1
    assert store.get(job.id).outcome == "error"


def test_a_held_job_without_a_lease_is_loose_again(store: Store, sql: RawSql, clock: MovableClock) -> None:
    lost, kept = add(store), add(store)
    worker = WorkerByHand(store)
    first, second = worker.claim_one(), worker.claim_one()
    sql("delete from {lease} where id = :id", id=first.lease)
    assert sweep(store) == 0
    clock.advance(61)

    assert sweep(store) == 1

    assert (store.get(lost.id).situation, store.get(lost.id).losses) == (Situation.LOOSE, 1)
    assert store.get(kept.id).situation is Situation.HELD
    assert worker.succeed(first) == 1
    assert worker.succeed(second) == 0


def test_a_job_that_waits_its_turn_is_left_alone(store: Store, sql: RawSql, clock: MovableClock) -> None:
    ids = [add(store).id, add(store, delay=10).id, add(store, delay=1000).id]
    worker = WorkerByHand(store)
    held = worker.claim_one()
    failed = add(store)
    worker.fail(worker.claim_one(), retry_delay=500.0)
    parked = add(store, "print")
    store.park(["send"])
    clock.advance(3600)
    before = [sql.row(job_id) for job_id in (*ids, held.id, failed.id, parked.id)]
    hints = [
        sql(f"select * from {{{name}}} order by id") for name in ("ready", "waiting", "parked", "undecided", "lease")
    ]

    assert sweep(store) == 0

    assert [sql.row(job_id) for job_id in (*ids, held.id, failed.id, parked.id)] == before
    assert [
        sql(f"select * from {{{name}}} order by id") for name in ("ready", "waiting", "parked", "undecided", "lease")
    ] == hints


def test_restoring_goes_on_in_slices_over_every_queue(
    store: Store, sql: RawSql, clock: MovableClock, instance: str
) -> None:
    types = [TypeRow("send", "mail"), TypeRow("scan", "post")]
    store.register([QueueDeclared("mail", f"{instance}_mail"), QueueDeclared("post", f"{instance}_post")], types)
    store.add([NewJob(queue, job_type, "{}") for queue, job_type in [("mail", "send"), ("post", "scan")] * 5])
    sql("delete from {ready}")
    clock.advance(61)

    after, found = store.restore(0, 4, 60)
    assert (after, found) == (4, 4)
    after, found = store.restore(after, 4, 60)
    assert (after, found) == (8, 4)
    assert store.restore(after, 4, 60) == (0, 2)
    assert [len(WorkerByHand(store, ["send", "scan"], [queue]).claim(10, queue)) for queue in ("mail", "post")] == [
        5,
        5,
    ]


def test_a_claim_that_finds_nothing_in_an_empty_instance_is_no_error(store: Store) -> None:
    assert store.restore(0, 100, 60) == (0, 0)
    assert WorkerByHand(store).claim(5) == []
    assert store.pulse().overdue_in is None


@pytest.mark.fault(3, "two sweepers at once")
def test_two_sweepers_at_once_do_no_harm(store: Store, sql: RawSql, clock: MovableClock) -> None:
    """Each job is recovered once, whoever comes first."""
    declare(store, "print", on_crash="timeout")
    lost = [add(store).id for _ in range(5)] + [add(store, "print", timeout=5).id for _ in range(5)]
    workers = [WorkerByHand(store) for _ in range(2)]
    for worker in workers:
        worker.claim(5)
    hidden = [add(store).id for _ in range(5)]
    expired = [add(store, expires_time=clock.now() + timedelta(seconds=61)).id for _ in range(5)]
    sql("delete from {ready} where closes_time is null")
    clock.advance(61)
    stores = [store.another(5) for _ in range(3)]
    start = threading.Barrier(3)

    def run(own: Store) -> tuple[int, ...]:
        start.wait()
        counts = (
            sum(own.lose(worker.id) or 0 for worker in workers),
            own.recover_strays(),
            own.shut(),
            own.restore(0, 1000, 60)[1],
        )
        own.end_overdue()
        own.archive(86400)
        return counts

    with ThreadPoolExecutor(3) as pool:
        totals = [sum(counts) for counts in zip(*pool.map(run, stores), strict=True)]
    for own in stores:
        own.close()

    assert totals[0] + totals[1] == 10
    for job_id in lost[:5]:
        assert (store.get(job_id).losses, store.get(job_id).situation) == (1, Situation.LOOSE)
    for job_id in lost[5:]:
        assert (store.get(job_id).failures, store.get(job_id).state) == (1, State.ERROR)
    assert [store.get(job_id).attempt for job_id in expired] == [1] * 5
    assert sorted(call.id for call in WorkerByHand(store).claim(50)) == sorted(lost + hidden)


@pytest.mark.claim("Q4")
def test_jobs_of_a_type_nobody_handles_leave_the_line_and_come_back(
    store: Store, sql: RawSql, clock: MovableClock
) -> None:
    unhandled = [add(store, "print", priority=priority) for priority in (1, 3, 2)]
    handled = add(store)

    assert store.park(["send"]) == 3
    assert [row["id"] for row in sql("select id from {ready}")] == [handled.id]
    assert store.park(["send"]) == 0
    before = [sql.row(job.id) for job in unhandled]
    assert [row["state"] for row in before] == ["initial"] * 3
    assert store.park(["send", "print"]) == 3

    assert [sql.row(job.id) for job in unhandled] == before
    worker = WorkerByHand(store)
    assert [call.id for call in worker.claim(10)] == [unhandled[0].id, unhandled[2].id, unhandled[1].id, handled.id]


@pytest.mark.claim("Q4")
def test_a_worker_that_joins_brings_its_parked_jobs_back(store: Store) -> None:
    job, other = add(store, "print"), add(store)
    store.park([])

    worker = WorkerByHand(store, ["print"])

    assert [call.id for call in worker.claim(10)] == [job.id]
    assert store.get(other.id).state is State.INITIAL


@pytest.mark.claim("Q4", "W1")
def test_a_parked_job_still_expires(store: Store, clock: MovableClock) -> None:
    job = add(store, expires_time=clock.now() + timedelta(seconds=10))
    store.park([])
    clock.advance(11)

    assert store.pulse().shut
    assert store.shut() == 1

    assert store.get(job.id).outcome == "error"
    assert not store.pulse().shut


@pytest.mark.claim("Q4")
def test_jobs_of_a_type_nobody_handles_do_not_slow_the_others(store: Store) -> None:
    store.add([NewJob("mail", "print", "{}", priority=1)] * 50)
    job = add(store)

    assert [call.id for call in WorkerByHand(store, ["send"]).claim(5)] == [job.id]


def test_a_pulse_tells_what_there_is_to_do(store: Store, clock: MovableClock) -> None:
    quiet = store.pulse()
    assert (quiet.overdue_in, quiet.shut, quiet.aborts, quiet.strays, quiet.undecided) == (
        None,
        False,
        False,
        False,
        False,
    )
    declare(store, has_retry_handler=True)
    add(store, expires_time=clock.now() + timedelta(seconds=5))
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one())
    add(store, expires_time=clock.now() + timedelta(seconds=5))
    assert store.pulse().undecided
    assert not store.pulse().shut
    clock.advance(5)
    assert store.pulse().shut


def test_a_stale_hint_of_a_job_that_may_not_start_is_cleared_away(
    store: Store, sql: RawSql, clock: MovableClock
) -> None:
    """A hint that disagrees with its row is deleted on sight, or the sweeper would look at it for ever."""
    job = add(store)
    worker = WorkerByHand(store)
    worker.succeed(worker.claim_one())
    sql(
        "insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time) "
        "select queue, 100, 0, id, job_type, 1, create_time, create_time from {job} where id = :id",
        id=job.id,
    )
    sql("insert into {parked} (job_type, id, queue, closes_time) select job_type, id, queue, create_time from {job}")
    clock.advance(1)
    assert store.pulse().shut

    store.shut()

    assert not store.pulse().shut
    assert store.get(job.id).outcome == "success"
