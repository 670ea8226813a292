"""Ends of attempts that are told in one turn are written together, and each as if it had been told alone."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.jobs import retry
from holdfast.jobs.job import Answer
from holdfast.jobs.states import Aborted, HandedBack, Happening, Lost, Raised, Snoozed, Succeeded, Waited
from holdfast.stores.contract import Claimed, QueueDeclared, Report, Store, Want
from tests.by_hand import WorkerByHand, add, declare, error
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("J2", "J5", "J9", "R2")
TYPES = ("send", "print", "watched", "judged", "patient", "guarded")


@pytest.fixture
def worker(store: Store, instance: str, clock: MovableClock, monkeypatch: pytest.MonkeyPatch) -> WorkerByHand:
    """It has types of all sorts, in two queues, one of them with a limit; every jitter is the same."""
    monkeypatch.setattr("random.random", lambda: 0.5)
    store.register([QueueDeclared("other", f"{instance}_other", throttle_limit=100)], [])
    declare(store, "print", "other", retry=retry.encode(retry.Fixed(7)))
    declare(store, "watched", retry=retry.encode(retry.Adaptive()))
    declare(store, "judged", has_retry_handler=True)
    declare(store, "patient", has_response_handler=True)
    declare(store, "guarded", on_crash="timeout")
    return WorkerByHand(store, types=TYPES, queues=("mail", "other"))


ENDS: list[tuple[Happening, dict[str, Any]]] = [
    (Raised(error(message='it "broke", {so}\\'), "line\n\ttab", 1.5), {}),
    (Raised(error(), None, 1.0), {"retries": 0}),
    (Raised(error(message="another"), "other", 0.25), {"retries": 0, "job_key": "k"}),
    (Raised(error("failed"), "expected", 1.0), {}),
    (Raised(error("timeout"), None, 30.0), {}),
    (Raised(error("payload"), None, None), {"job_key": "p"}),
    (Raised(error("retry"), "again", 1.0, retry_delay=0.0), {"priority": 5.0}),
    (Raised(error("retry"), "again", 1.0, retry_delay=60.0), {"time_windows": ("22:00-06:00",)}),
    (Raised(error(), None, 1.0), {"job_type": "print", "queue": "other"}),
    (Raised(error(), None, 1.0), {"job_type": "watched"}),
    (Raised(error(), None, 1.0), {"job_type": "judged"}),
    (Snoozed(0.0, 1.0), {}),
    (Snoozed(60.0, 1.0), {"job_type": "print", "queue": "other", "throttle_factor": 2.0}),
    (Waited(1.0), {"job_key": "w"}),
    (Waited(1.0, 5.0, True), {"job_type": "print", "queue": "other", "throttle_factor": 3.0}),
    (Waited(1.0), {"answered": Answer(result='"early"')}),
    (Waited(1.0), {"answered": Answer(error=error("failed", "early")), "job_type": "patient"}),
    (HandedBack(0.5), {}),
    (Lost(alone=True), {"job_key": "l"}),
    (Lost(), {"job_type": "guarded"}),
    (Aborted("somebody", 1.0), {"job_type": "print", "queue": "other"}),
    (Succeeded('{"a": [1, null]}', 1.0), {}),
    (Raised(error(), None, 1.0), {"wished": True}),
    (Raised(error(), None, 1.0), {"stale": True}),
]


def begun(store: Store, worker: WorkerByHand, number: int) -> list[tuple[Claimed, Happening]]:
    """A job for each of the ends, whose attempt has begun; keys are of this number."""
    found = []
    for happening, given in ENDS:
        options = {"payload": f"{number}", **given}
        answered, wished, stale = (options.pop(name, None) for name in ("answered", "wished", "stale"))
        if "job_key" in options:
            options["job_key"] += str(number)
        job = add(store, **options)
        (call,) = worker.turn(wants=[Want(job.queue, 1, 1)], promote=True).claimed
        assert call.id == job.id
        if answered:
            store.answer(job.id, answered, "somebody")
        if wished:
            store.abort(job.id, "somebody")
        if stale:
            worker.fail(call, "failed")
        found.append((call, happening))
    return found


def left_of(store: Store, sql: RawSql, call: Claimed) -> dict[str, Any]:
    """Everything that a job left, without the numbers that no two have in common."""
    row = {name: value for name, value in sql.row(call.id).items() if name not in ("id", "payload", "job_key")}
    held = [lease for lease in sql("select * from {lease}") if call.id in leased(lease["ids"])]
    beside = {
        table: [{name: value for name, value in each.items() if name not in ("id", "job")} for each in found]
        for table, found in (
            ("waiting", sql("select * from {waiting} where id = :id", id=call.id)),
            ("ready", sql("select * from {ready} where id = :id", id=call.id)),
            ("undecided", sql("select * from {undecided} where id = :id", id=call.id)),
            ("dead", sql("select * from {dead} where id = :id", id=call.id)),
            ("abort", sql("select * from {abort} where job = :id", id=call.id)),
            ("lease", [{**each, "ids": None} for each in held if each["worker"] is None]),
        )
    }
    ended = [each for each in sql("select * from {ended}") if call.id in leased(each["ids"])]
    history = [
        (move.from_state, move.to_state, move.attempt, move.cause, move.actor) for move in store.history(call.id)
    ]
    attempts = [{**each, "id": 0, "job": 0} for each in sql("select * from {attempt} where job = :id", id=call.id)]
    return {"row": row, "ended": len(ended), "history": history, "attempts": attempts, **beside}


def leased(ids: Any) -> list[int]:
    return list(ids) if isinstance(ids, list) else [int(each) for each in ids.strip("[]").split(",") if each]


def test_many_ends_at_once_leave_what_each_by_itself_would(
    store: Store, worker: WorkerByHand, sql: RawSql, clock: MovableClock
) -> None:
    apart, together = begun(store, worker, 1), begun(store, worker, 2)
    clock.advance(2)
    told = [reports_of(pairs) for pairs in (apart, together)]
    alone = [worker.turn(reports=[report]).changes[0] for report in told[0]]
    at_once = worker.turn(reports=told[1])

    assert [change is None for change in at_once.changes] == [change is None for change in alone]
    assert at_once.stale == sum(change is None for change in alone) == 1
    for (one, happening), (other, _) in zip(apart, together, strict=True):
        assert left_of(store, sql, other) == left_of(store, sql, one), happening


def reports_of(pairs: list[tuple[Claimed, Happening]]) -> list[Report]:
    return [
        Report(call.id, happening, call.attempt, call.job_type, call.lease, queue=call.queue)
        for call, happening in pairs
    ]


def test_attempts_are_told_of_in_the_order_of_their_ends(store: Store, sql: RawSql) -> None:
    for _ in range(5):
        add(store)
    worker = WorkerByHand(store)
    pairs = [(call, Snoozed(1.0, 1.0)) for call in reversed(worker.claim(5))]
    worker.turn(reports=reports_of(pairs))
    assert [row["job"] for row in sql("select job from {attempt} order by id")] == [call.id for call, _ in pairs]


def test_the_same_end_told_twice_in_one_turn_counts_once(store: Store, sql: RawSql) -> None:
    add(store)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    reports = reports_of([(call, Raised(error(), None, 1.0)), (call, Snoozed(5.0)), (call, Raised(error("failed")))])
    first, *others = worker.turn(reports=reports).changes
    assert (first is not None, others) == (True, [None, None])
    assert (store.get(call.id).failures, len(store.attempts(call.id))) == (1, 1)


@pytest.fixture
def asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many statements the store made since it was asked last."""
    names: list[str] = []
    text = store.text  # type: ignore[attr-defined]

    def noted(name: str, *more: Any, **options: Any) -> Any:
        names.append(name)
        return text(name, *more, **options)

    def count() -> int:
        found = len(names)
        names.clear()
        return found

    monkeypatch.setattr(store, "text", noted)
    return count


KINDS = {
    "retried": Raised(error(), "traceback", 1.0),
    "due again": Raised(error(), "traceback", 1.0, retry_delay=0.0),
    "failed": Raised(error("failed"), "traceback", 1.0),
    "not retried": Raised(error("payload"), "traceback", 1.0),
    "timeout": Raised(error("timeout"), None, 1.0),
    "snoozed": Snoozed(5.0, 1.0),
    "waits": Waited(1.0),
    "handed back": HandedBack(1.0),
    "crashed": Lost(alone=True),
    "aborted": Aborted("somebody", 1.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fifty_ends_are_as_many_statements_as_two(
    store: Store, sql: RawSql, asked: Callable[[], int], kind: str
) -> None:
    worker, counts = WorkerByHand(store), []
    for number in (2, 2, 50):  # the first time something is read that is known later
        for _ in range(number):
            add(store)
        pairs = [(call, KINDS[kind]) for call in worker.claim(number)]
        assert len(pairs) == number
        asked()
        assert None not in worker.turn(reports=reports_of(pairs)).changes
        counts.append(asked())
        assert sql.value("select count(*) from {job} where situation = 'held'") == 0
        pairs = worker.claim(number)  # what is due again is not in the way
        worker.succeed(*pairs)
    assert counts[1] == counts[2]


def test_ends_that_are_too_long_for_one_statement_go_by_several(
    store: Store, sql: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.statements.MOST_TEXT", 100)
    for _ in range(7):
        add(store)
    worker = WorkerByHand(store)
    pairs = [
        (call, Raised(error("failed"), f"{call.id} " * size, 1.0))
        for size, call in zip((1, 20, 90, 1, 1, 60, 1), worker.claim(7), strict=True)
    ]
    assert None not in worker.turn(reports=reports_of(pairs)).changes
    for call, happening in pairs:
        (record,) = store.attempts(call.id)
        assert (store.get(call.id).outcome, record.traceback) == ("failed", happening.traceback)
