"""J9: every move can be read, and every attempt keeps its own error."""

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast import App, Failed, Retry, Snooze
from holdfast.clock import MovableClock
from holdfast.jobs.job import Attempt, AttemptEnd, Move, State
from holdfast.jobs.states import MOVES, Lost
from holdfast.stores.contract import Claimed, Report, Store
from tests.by_hand import WorkerByHand, add, declare, error
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("J9")

LEGAL = {
    (None, State.INITIAL),
    *((state, target) for (state, _), target in MOVES.items() if state is not State.INITIAL),
}
LEGAL |= {(State.INITIAL, State.RUNNING)}


def check_chain(moves: list[Move], attempts: list[Attempt]) -> None:
    """Each move begins where the one before it ended, none is illegal, and attempts and times never go back."""
    assert moves[0].from_state is None
    for before, after in itertools.pairwise(moves):
        assert after.from_state is before.to_state
        assert after.time >= before.time
        assert after.attempt == before.attempt + (after.cause == "claimed")
    assert all((move.from_state, move.to_state) in LEGAL for move in moves)
    assert all(move.cause and move.actor for move in moves)
    assert [attempt.attempt for attempt in attempts] == list(range(1, moves[-1].attempt + 1))
    if moves[-1].to_state is State.FINAL and attempts[-1].outcome is not AttemptEnd.SUCCESS:
        assert moves[-1].from_state is State.ERROR  # J7


def told(store: Store, job_id: int) -> list[str]:
    moves, attempts = list(store.history(job_id)), list(store.attempts(job_id))
    check_chain(moves, attempts)
    return [f"{move.from_state}-{move.to_state} {move.attempt} {move.cause}" for move in moves[1:]]


def test_a_new_job_has_one_move_and_no_attempt(store: Store, clock: MovableClock) -> None:
    job = add(store)

    assert store.history(job.id) == [Move(clock.now(), None, State.INITIAL, 0, "enqueued", "app")]
    assert store.attempts(job.id) == []


def test_plain_success_writes_no_record_and_is_told_all_the_same(
    store: Store, sql: RawSql, clock: MovableClock
) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    claimed_at = clock.advance(1)
    call = worker.claim_one()
    ended_at = clock.advance(1)
    worker.succeed(call)

    assert sql("select * from {attempt}") == sql("select * from {audit}") == []
    name = f"worker {worker.id}"
    assert store.history(job.id)[1:] == [
        Move(claimed_at, State.INITIAL, State.RUNNING, 1, "claimed", name),
        Move(ended_at, State.RUNNING, State.FINAL, 1, "success", name),
    ]
    assert store.attempts(job.id) == [Attempt(1, claimed_at, ended_at, AttemptEnd.SUCCESS, None, None, str(worker.id))]


def test_a_running_attempt_is_told_without_an_end(store: Store, clock: MovableClock) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    worker.claim_one()

    assert told(store, job.id) == ["initial-running 1 claimed"]
    assert store.attempts(job.id) == [Attempt(1, clock.now(), None, None, None, None, str(worker.id))]


ENDS: dict[AttemptEnd, tuple[Callable[[WorkerByHand, Claimed], object], list[str]]] = {
    AttemptEnd.FAILED: (lambda w, c: w.fail(c, "failed"), ["running-error 1 failed", "error-final 1 failed"]),
    AttemptEnd.ERROR: (lambda w, c: w.fail(c), ["running-error 1 error"]),
    AttemptEnd.TIMEOUT: (lambda w, c: w.fail(c, "timeout"), ["running-error 1 timeout"]),
    AttemptEnd.LOST: (lambda w, c: w.die(), ["running-running 1 lost"]),
    AttemptEnd.HANDED_BACK: (lambda w, c: w.hand_back(c), ["running-running 1 handed_back"]),
    AttemptEnd.SNOOZED: (lambda w, c: w.snooze(c), ["running-running 1 snoozed"]),
    AttemptEnd.ABORTED: (
        lambda w, c: (w.store.abort(c.id, "ann"), w.obey_abort(c)),
        ["running-error 1 aborted", "error-final 1 aborted"],
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_every_other_end_of_an_attempt_leaves_a_record(
    store: Store, sql: RawSql, clock: MovableClock, end: AttemptEnd
) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    started = clock.advance(1)
    call = worker.claim_one()
    ended = clock.advance(1)
    act, moves = ENDS[end]
    act(worker, call)

    assert told(store, job.id) == ["initial-running 1 claimed", *moves]
    (attempt,) = store.attempts(job.id)
    has_error = end in (AttemptEnd.FAILED, AttemptEnd.ERROR, AttemptEnd.TIMEOUT, AttemptEnd.ABORTED)
    assert (attempt.attempt, attempt.start_time, attempt.end_time, attempt.outcome) == (1, started, ended, end)
    assert (attempt.error is not None, attempt.worker) == (has_error, str(worker.id))
    assert attempt.traceback == ("traceback of 1" if has_error and end is not AttemptEnd.ABORTED else None)
    assert sql.value("select count(*) from {attempt}") == 1


def test_each_attempt_keeps_its_own_error_and_traceback(store: Store, clock: MovableClock) -> None:
    job = add(store, retries=2)
    for _ in range(3):
        worker = WorkerByHand(store)
        call = worker.claim_one()
        worker.fail(call, traceback=f"line {call.attempt}")
        clock.advance(400)

    attempts = store.attempts(job.id)
    assert [attempt.traceback for attempt in attempts] == ["line 1", "line 2", "line 3"]
    assert len({attempt.worker for attempt in attempts}) == 3
    assert all(attempt.error == error() for attempt in attempts)
    assert told(store, job.id) == [
        "initial-running 1 claimed",
        "running-error 1 error",
        "error-running 2 claimed",
        "running-error 2 error",
        "error-running 3 claimed",
        "running-error 3 error",
        "error-final 3 error",
    ]


def test_a_success_after_errors_is_told_to_the_end(store: Store, clock: MovableClock) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one())
    clock.advance(60)
    worker.succeed(worker.claim_one())

    assert told(store, job.id)[-2:] == ["error-running 2 claimed", "running-final 2 success"]
    assert [attempt.outcome for attempt in store.attempts(job.id)] == ["error", "success"]


@pytest.mark.claim("J7", "J10")
@pytest.mark.parametrize("how", ["lost", "handed back", "snoozed"])
def test_a_loose_job_that_is_aborted_goes_by_way_of_error(store: Store, clock: MovableClock, how: str) -> None:
    job = add(store)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    {
        "lost": lambda: worker.die(),
        "handed back": lambda: worker.hand_back(call),
        "snoozed": lambda: worker.snooze(call, 9),
    }[how]()
    clock.advance(1)
    store.abort(job.id, "ann")

    word = how.replace(" ", "_")
    assert told(store, job.id)[1:] == [f"running-running 1 {word}", "running-error 1 aborted", "error-final 1 aborted"]
    assert [move.actor for move in store.history(job.id)[-2:]] == ["ann", "ann"]


@pytest.mark.claim("J10")
def test_an_abort_from_initial_shows_its_walk_and_its_actor(store: Store) -> None:
    job = add(store)
    store.abort(job.id, "ann")

    assert told(store, job.id) == ["initial-running 1 claimed", "running-error 1 aborted", "error-final 1 aborted"]
    assert [attempt.start_time for attempt in store.attempts(job.id)] == [None]  # its handler was never called
    assert [move.actor for move in store.history(job.id)[-2:]] == ["ann", "ann"]


@pytest.mark.claim("W1")
@pytest.mark.parametrize("state", ["initial", "error", "loose"])
def test_expiry_is_told_by_way_of_error(store: Store, clock: MovableClock, state: str) -> None:
    job = add(store, expires_time=clock.now() + timedelta(seconds=60))
    if state != "initial":
        worker = WorkerByHand(store)
        call = worker.claim_one()
        worker.hand_back(call) if state == "loose" else worker.fail(call)
    clock.advance(61)
    worker = WorkerByHand(store)
    assert worker.claim() == []
    assert store.shut() == 1

    assert told(store, job.id)[-1] == "error-final 1 expired"
    assert store.get(job.id).outcome == "error"


def test_the_crash_limit_is_told_as_a_loss_with_an_error(store: Store) -> None:
    declare(store, max_crashes=1)
    job = add(store)
    worker = WorkerByHand(store)
    worker.tell(worker.claim_one(), Lost(alone=True))

    assert told(store, job.id)[1:] == ["running-error 1 lost", "error-final 1 lost"]
    (attempt,) = store.attempts(job.id)
    assert attempt.error is not None
    assert attempt.error.kind == "crash"


def test_what_is_done_from_outside_leaves_an_audit_row_with_its_actor(
    store: Store, sql: RawSql, clock: MovableClock
) -> None:
    held, free = add(store), add(store, delay=5)
    worker = WorkerByHand(store)
    worker.claim_one()
    store.abort(held.id, "ann")
    store.abort(free.id, "bob")
    store.pause("mail", True, "cleo")
    store.pause("mail", False, "dora")
    store.limit("mail", 5, "eve")

    rows = sql("select actor, action, job, queue from {audit} order by id")
    assert [tuple(row.values()) for row in rows] == [
        ("ann", "abort", held.id, "mail"),
        ("bob", "abort", free.id, "mail"),
        ("cleo", "pause", None, "mail"),
        ("dora", "resume", None, "mail"),
        ("eve", "limit", None, "mail"),
    ]


def test_a_report_from_outside_leaves_an_audit_row(store: Store, sql: RawSql) -> None:
    job = add(store)
    WorkerByHand(store).claim_one()
    store.report([Report(job.id, Lost(), 1, actor="ann", action="lose")])

    assert [tuple(row.values()) for row in sql("select actor, action, job, attempt from {audit}")] == [
        ("ann", "lose", job.id, 1)
    ]


def test_the_record_is_written_in_the_transaction_that_ends_the_attempt(store: Store, sql: RawSql) -> None:
    """If the record cannot be written, the attempt has not ended."""
    job = add(store)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    before = sql.row(job.id)
    if sql.postgres:
        sql("alter table {attempt} add constraint full_up check (job < 0)")
    else:
        sql("create trigger full_up before insert on {attempt} begin select raise(abort, 'full'); end")

    with pytest.raises(Exception, match="full"):
        worker.fail(call)

    assert sql.row(job.id) == before
    sql("alter table {attempt} drop constraint full_up" if sql.postgres else "drop trigger full_up")
    assert worker.fail(call) is not None


@pytest.mark.claim("R2")
def test_an_errors_text_may_hold_anything(app: Callable[..., App]) -> None:
    holdfast = app()

    @holdfast.queue("mail").job(retries=0)
    def send(text: str) -> None:
        raise ValueError(text + "\0 and \ud800")

    job = send.enqueue("tab\t nul\0 slash\\ quote' percent%s ünï 😀")
    holdfast.run_until_idle()

    (attempt,) = holdfast.attempts(job.id)
    assert "tab\t" in str(attempt.error)
    assert "ValueError" in (attempt.traceback or "")
    assert "ünï 😀" in (attempt.traceback or "")


def test_a_traceback_may_hold_what_no_database_keeps(store: Store) -> None:
    add(store)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    worker.fail(call, traceback="nul \0 half \ud800 tab \t ünï 😀 percent %s slash \\")

    (attempt,) = store.attempts(call.id)
    assert attempt.traceback == "nul \\0 half \\ud800 tab \t ünï 😀 percent %s slash \\"


def test_a_job_run_by_an_app_tells_its_story(app: Callable[..., App], clock: MovableClock) -> None:
    holdfast = app()
    stories = iter([Snooze(5), Retry("busy", delay=7), ValueError("oh"), Failed("no")])

    @holdfast.queue("mail").job(retries=None)
    def send() -> None:
        raise next(stories)

    job = send.enqueue()
    for _ in range(4):
        holdfast.run_until_idle()
        clock.advance(60)

    assert [attempt.outcome for attempt in job.attempts()] == ["snoozed", "error", "error", "failed"]
    assert [str(attempt.error) for attempt in job.attempts()] == ["None", "busy", "oh", "no"]
    check_chain(list(job.history()), list(job.attempts()))
