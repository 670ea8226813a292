"""J5: the attempt is the fence. What an older attempt says changes nothing and is an ordinary answer."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.clock import MovableClock
from holdfast.jobs.job import State
from holdfast.jobs.states import Aborted, HandedBack, Happening, Lost, Raised, Snoozed, Succeeded
from holdfast.stores.contract import Claimed, Done, Report, Store
from tests.by_hand import WorkerByHand, add, error
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("J5")

SAYINGS: list[Happening] = [
    Succeeded('"late"', 1.0),
    Raised(error(), "late", 1.0),
    Raised(error("failed"), "late", 1.0),
    Raised(error("timeout"), None, 1.0),
    Snoozed(5.0, 1.0),
    HandedBack(1.0),
    Lost(),
    Lost(alone=True),
    Aborted("late", 1.0),
]


def superseded(store: Store, how: str) -> tuple[WorkerByHand, Claimed]:
    """A worker whose attempt 1 no longer owns its job."""
    add(store, job_key="k")
    worker = WorkerByHand(store)
    call = worker.claim_one()
    if how in ("handed back", "claimed again"):
        worker.hand_back(call)
    elif how in ("lost", "lost and claimed again"):
        worker.die()
    elif how == "snoozed":
        worker.snooze(call, 60)
    elif how == "in error":
        worker.fail(call)
    elif how == "succeeded":
        worker.succeed(call)
    elif how == "failed":
        worker.fail(call, "failed")
    elif how == "aborted":
        store.abort(call.id, "me")
        worker.obey_abort(call)
    if "again" in how:
        again = WorkerByHand(store).claim_one()
        assert (again.id, again.attempt) == (call.id, 2)
    return worker, call


WAYS = [
    "handed back",
    "lost",
    "snoozed",
    "in error",
    "succeeded",
    "failed",
    "aborted",
    "claimed again",
    "lost and claimed again",
]


@pytest.mark.parametrize("how", WAYS)
def test_a_late_report_changes_nothing_whatever_it_says(
    store: Store, sql: RawSql, clock: MovableClock, how: str
) -> None:
    worker, call = superseded(store, how)
    clock.advance(1)
    before, history, attempts = sql.row(call.id), store.history(call.id), store.attempts(call.id)

    for saying in SAYINGS:
        assert worker.tell(call, saying) is None
    assert worker.succeed(call, result='"late"') == 1
    assert worker.turn(done=[Done(call, 1.0, None)], reports=[Report(call.id, Snoozed(1.0), 1)]).stale == 2

    assert sql.row(call.id) == before
    assert (store.history(call.id), store.attempts(call.id)) == (history, attempts)


@pytest.mark.parametrize("results", [("1", "1", "1"), ("1", "2", "3")], ids=["alike", "different"])
@pytest.mark.parametrize("how", WAYS)
def test_a_late_success_among_others_changes_nothing(
    store: Store, sql: RawSql, how: str, results: tuple[str, ...]
) -> None:
    """Those with one result are settled by a statement of their own."""
    worker, late = superseded(store, how)
    other = WorkerByHand(store)
    other.claim(10)  # what is loose by now
    before = sql.row(late.id)
    for _ in range(2):
        add(store)
    calls = [late, *other.claim(2)]
    assert worker.turn(done=[Done(*ends) for ends in zip(calls, (1.0, 2.0, 3.0), results, strict=True)]).stale == 1
    assert sql.row(late.id) == before
    for call, seconds, result in zip(calls[1:], (2.0, 3.0), results[1:], strict=True):
        row = sql.row(call.id)
        assert (row["outcome"], row["execution_time"], str(row["result"])) == ("success", seconds, result)


def test_a_report_about_an_attempt_that_has_not_begun_is_stale_too(store: Store, sql: RawSql) -> None:
    job = add(store)
    before = sql.row(job.id)

    for attempt in (0, 1, 2):
        for saying in SAYINGS:
            assert store.report([Report(job.id, saying, attempt)]) == [None]

    assert sql.row(job.id) == before


def test_a_report_about_a_job_that_does_not_exist_is_stale(store: Store) -> None:
    worker = WorkerByHand(store)
    add(store)
    call = worker.claim_one()
    ghost = Claimed(**{name: getattr(call, name) for name in Claimed.__struct_fields__})
    ghost.id = 999

    assert worker.tell(ghost, Snoozed(1.0)) is None
    assert worker.succeed(ghost) == 1


def test_among_many_only_the_stale_ones_are_left_out(store: Store) -> None:
    worker = WorkerByHand(store)
    for key in (None, "a", None, "b", None):
        add(store, job_key=key)
    calls = worker.claim(10)
    store.abort(calls[1].id, "me")
    worker.obey_abort(calls[1])
    worker.hand_back(calls[2])

    assert worker.succeed(*calls, result='"done"') == 2

    found = [store.get(call.id) for call in calls]
    assert [job.outcome for job in found] == ["success", "aborted", None, "success", "success"]
    assert [job.result for job in found] == ["done", None, None, "done", "done"]


def test_the_same_success_told_twice_counts_once(store: Store, clock: MovableClock) -> None:
    worker = WorkerByHand(store)
    add(store)
    call = worker.claim_one()
    assert worker.succeed(call, seconds=2.0) == 0
    clock.advance(1)
    before = store.get(call.id)

    assert worker.succeed(call, seconds=2.0) == 1

    assert store.get(call.id) == before
    assert before.total_time == 2.0


@pytest.mark.claim("J2")
@pytest.mark.parametrize("saying", [Snoozed(0.0), HandedBack(), Raised(error(), retry_delay=0.0)])
def test_of_many_writers_about_one_attempt_exactly_one_is_heard(store: Store, saying: Happening) -> None:
    job = add(store)
    WorkerByHand(store).claim_one()
    stores = [store.another(5) for _ in range(6)]
    start = threading.Barrier(6)

    def tell(own: Store) -> int:
        start.wait()
        return sum(change is not None for change in own.report([Report(job.id, saying, 1)]))

    with ThreadPoolExecutor(6) as pool:
        heard = list(pool.map(tell, stores))
    for own in stores:
        own.close()

    assert sum(heard) == 1
    assert store.get(job.id).attempt == 1
    assert len(store.attempts(job.id)) == 1


@pytest.mark.claim("R1")
def test_of_many_workers_exactly_one_gets_a_job(store: Store) -> None:
    ids = [add(store).id for _ in range(30)]
    workers = [WorkerByHand(store.another(5)) for _ in range(6)]
    start = threading.Barrier(6)

    def work(worker: WorkerByHand) -> list[Claimed]:
        start.wait()
        calls: list[Claimed] = []
        while found := worker.claim(2):
            calls += found
        return calls

    with ThreadPoolExecutor(6) as pool:
        calls = [call for found in pool.map(work, workers) for call in found]
    for worker in workers:
        worker.store.close()

    assert sorted(call.id for call in calls) == ids
    assert {call.attempt for call in calls} == {1}


def test_attempt_starts_at_nought_and_only_a_claim_raises_it(store: Store, clock: MovableClock) -> None:
    job = add(store, retries=None)
    assert job.attempt == 0
    worker = WorkerByHand(store)
    ends: list[Callable[[Claimed], object]] = [worker.snooze, worker.hand_back, worker.fail, lambda _: worker.die()]
    for number, end in enumerate(ends, 1):
        call = worker.claim_one()
        assert (call.attempt, store.get(job.id).attempt) == (number, number)
        end(call)
        found = store.get(job.id)
        assert (found.attempt, found.state) == (number, State.ERROR if end == worker.fail else State.RUNNING)
        clock.advance(60)
