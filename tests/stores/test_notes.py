"""Progress, checkpoint and log in the store: fenced by the attempt, capped, and read in order."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import NotFound, Progress
from holdfast.clock import MovableClock
from holdfast.jobs.states import Waited
from holdfast.stores.contract import Claimed, Done, Line, Note, Store
from tests.by_hand import WorkerByHand, add
from tests.raw_sql import RawSql


@pytest.fixture
def worker(store: Store) -> WorkerByHand:
    return WorkerByHand(store)


def note(call: Claimed, *texts: str, **more: Any) -> Note:
    lines = [Line(0.0, "INFO", text) for text in texts]
    return Note(call.id, call.attempt, call.queue, **{"lines": lines, **more})


def texts(store: Store, job_id: int) -> list[str]:
    return [line.text for line in store.log(job_id)]


def ids(store: Store, job_id: int) -> Sequence[int]:
    return [line.id for line in store.log(job_id)]


@pytest.mark.claim("R7")
def test_what_an_attempt_says_is_stored_with_its_job(store: Store, worker: WorkerByHand, clock: MovableClock) -> None:
    job = add(store)
    call = worker.claim_one()
    clock.advance(5)
    assert store.note([note(call, "one", "two", progress=Progress(0.4, "two of five"), checkpoint='{"page":2}')]) == [
        True
    ]
    found = store.get(job.id)
    assert (found.state, found.attempt, found.progress) == ("running", 1, Progress(0.4, "two of five"))
    assert found.update_time == clock.now()
    lines = store.log(job.id)
    assert [(line.id, line.attempt, line.level, line.text) for line in lines] == [
        (1, 1, "INFO", "one"),
        (2, 1, "INFO", "two"),
    ]


@pytest.mark.claim("R7")
def test_what_is_not_said_again_stays(store: Store, worker: WorkerByHand, sql: RawSql) -> None:
    job = add(store)
    call = worker.claim_one()
    store.note([note(call, progress=Progress(0.4, "four"), checkpoint='"first"')])
    store.note([note(call, checkpoint='"second"')])
    store.note([note(call, "a line")])
    assert store.get(job.id).progress == Progress(0.4, "four")
    assert sql.row(job.id)["checkpoint"] == '"second"'
    store.note([note(call, progress=Progress(0.5))])
    assert store.get(job.id).progress == Progress(0.5, "")
    worker.succeed(call)
    assert store.get(job.id).progress == Progress(0.5, "")


@pytest.mark.claim("R8")
def test_the_next_attempt_is_claimed_with_the_last_checkpoint(store: Store, worker: WorkerByHand) -> None:
    add(store)
    call = worker.claim_one()
    assert call.checkpoint is None
    store.note([note(call, checkpoint='{"page":7}')])
    worker.die()
    assert WorkerByHand(store).claim_one().checkpoint == '{"page":7}'


@pytest.mark.claim("R8")
def test_a_checkpoint_outlives_errors(store: Store, worker: WorkerByHand, clock: MovableClock) -> None:
    add(store)
    call = worker.claim_one()
    store.note([note(call, checkpoint="7")])
    worker.fail(call)
    clock.advance(3600)
    assert worker.claim_one().checkpoint == "7"


def lost(worker: WorkerByHand, call: Claimed) -> None:
    worker.die()


def taken_by_another(worker: WorkerByHand, call: Claimed) -> None:
    worker.die()
    WorkerByHand(worker.store).claim_one()


def ended(worker: WorkerByHand, call: Claimed) -> None:
    worker.succeed(call)


def failed(worker: WorkerByHand, call: Claimed) -> None:
    worker.fail(call)


def waits(worker: WorkerByHand, call: Claimed) -> None:
    worker.tell(call, Waited(1.0, None, False))


@pytest.mark.claim("J5", "J3", "R7")
@pytest.mark.parametrize("what", [lost, taken_by_another, ended, failed, waits], ids=lambda what: what.__name__)
def test_an_attempt_that_does_not_hold_its_job_writes_nothing(
    store: Store, worker: WorkerByHand, sql: RawSql, what: Any
) -> None:
    job = add(store)
    call = worker.claim_one()
    what(worker, call)
    before = sql.row(job.id)
    late = note(call, "late", progress=Progress(0.9), checkpoint='"late"')
    assert store.note([late]) == [False]
    assert (sql.row(job.id), store.log(job.id)) == (before, [])


@pytest.mark.claim("J5")
@pytest.mark.parametrize("waits", [True, False])
def test_a_stale_note_does_not_hinder_those_beside_it(store: Store, worker: WorkerByHand, waits: bool) -> None:
    first, second = add(store), add(store)
    stale, live = worker.claim(2)
    worker.succeed(stale)
    assert store.note([note(stale, "late"), note(live, "in time")], waits) == [False, True]
    assert (texts(store, first.id), texts(store, second.id)) == ([], ["in time"])


@pytest.mark.claim("R7")
def test_a_turn_writes_what_its_attempts_said_before_it_ends_them(store: Store, worker: WorkerByHand) -> None:
    done, broken = add(store), add(store)
    calls = worker.claim(2)
    notes = [note(call, "last words", progress=Progress(1.0), checkpoint="1") for call in calls]
    assert worker.turn(done=[Done(calls[0], 1.0, None)], ended_leases=[], notes=[notes[0]]).stale == 0
    assert store.get(done.id).final
    assert (store.get(done.id).progress, texts(store, done.id)) == (Progress(1.0), ["last words"])
    store.note([notes[1]])
    worker.fail(calls[1])
    assert texts(store, broken.id) == ["last words"]


@pytest.mark.claim("R7")
def test_lines_are_counted_on_through_the_attempts(store: Store, worker: WorkerByHand, clock: MovableClock) -> None:
    job = add(store)
    call = worker.claim_one()
    store.note([note(call, "first")])
    worker.fail(call)
    clock.advance(3600)
    store.note([note(worker.claim_one(), "second")])
    assert [(line.id, line.attempt, line.text) for line in store.log(job.id)] == [(1, 1, "first"), (2, 2, "second")]


@pytest.mark.claim("R7")
def test_a_log_is_read_in_pieces(store: Store, worker: WorkerByHand) -> None:
    job = add(store)
    store.note([note(worker.claim_one(), *"abcde")])
    assert [line.text for line in store.log(job.id, limit=2)] == ["a", "b"]
    assert [line.text for line in store.log(job.id, after=2, limit=2)] == ["c", "d"]
    assert store.log(job.id, after=5) == []
    with pytest.raises(NotFound, match="There is no job 4711"):
        store.log(4711)
    with pytest.raises(NotFound, match="There is no job 9223372036854775808"):
        store.log(2**63)


@pytest.mark.claim("R7")
def test_a_log_keeps_its_newest_lines_and_the_gap_is_seen(store: Store, worker: WorkerByHand) -> None:
    job = add(store)
    call = worker.claim_one()
    for number in range(20):
        store.note([note(call, f"{number:04}", log_limit=5 * 104)])
    assert texts(store, job.id) == [f"{number:04}" for number in range(15, 20)]
    assert ids(store, job.id) == list(range(16, 21))


@pytest.mark.claim("R7")
def test_a_batch_larger_than_the_cap_leaves_its_end(store: Store, worker: WorkerByHand, sql: RawSql) -> None:
    job = add(store)
    call = worker.claim_one()
    store.note([note(call, *[f"{number:04}" for number in range(1000)], log_limit=3 * 104)])
    assert texts(store, job.id) == ["0997", "0998", "0999"]
    store.note([note(call, "x" * 5000, log_limit=3 * 104)])
    assert ids(store, job.id) == [1001]
    assert sql.value("select count(*) from {log}") == 1


@pytest.mark.claim("R7")
def test_lines_skipped_on_the_way_are_counted(store: Store, worker: WorkerByHand) -> None:
    job = add(store)
    call = worker.claim_one()
    store.note([note(call, "first")])
    store.note([note(call, lines=[Line(0.0, "INFO", "later", skipped=40)])])
    assert ids(store, job.id) == [1, 42]


@pytest.mark.claim("R7")
def test_lines_have_the_time_at_which_they_were_said(store: Store, worker: WorkerByHand, clock: MovableClock) -> None:
    job = add(store)
    call = worker.claim_one()
    said, at = clock.monotonic(), clock.now()
    clock.advance(2)
    store.note([note(call, lines=[Line(said, "INFO", "two seconds ago"), Line(clock.monotonic(), "INFO", "now")])])
    assert [line.time for line in store.log(job.id)] == [at, clock.now()]
    store.note([note(call, lines=[Line(said, "INFO", "told late")])])
    assert store.log(job.id)[-1].time == clock.now()  # never before the line before it


@pytest.mark.claim("R7")
def test_the_log_of_an_archived_job_can_still_be_read(store: Store, worker: WorkerByHand, clock: MovableClock) -> None:
    job = add(store)
    call = worker.claim_one()
    store.note([note(call, "kept", progress=Progress(0.5, "half"), checkpoint="1")])
    worker.succeed(call)
    clock.advance(3600)
    assert store.archive(60) == 1
    assert store.get(job.id).archived
    assert (store.get(job.id).progress, texts(store, job.id)) == (Progress(0.5, "half"), ["kept"])
