"""R3, R4: a job that waits is ended from outside; every order in which an answer and something else can come."""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Conflict, NotFound
from holdfast.clock import MovableClock
from holdfast.jobs.job import Answer, JobError, Situation
from holdfast.jobs.states import UNHEARD_FOR, Answered, Lost, Raised, Waited
from holdfast.stores.contract import Claimed, Done, Filter, NewJob, Report, Store, Want
from tests.by_hand import WorkerByHand, declare, error
from tests.invariants import Invariants
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("R3")
YES = Answer('{"ok":true}')
NO = Answer(error=JobError("Failed", "the bank says no", "failed"))
BROKEN = Answer(error=JobError("Failed", "the bank fell over", "failed"), retry=True)


def waiting(
    store: Store, worker: WorkerByHand, key: str | None = "k", wait: Waited | None = None, **options: Any
) -> Claimed:
    """A job that waits for its answer."""
    (job,) = store.add([NewJob("mail", "send", "{}", job_key=key, **options)])
    call = next(call for call in worker.claim(10) if call.id == job.id)
    assert worker.tell(call, wait or Waited(0.5)) is not None
    return call


@pytest.fixture
def worker(store: Store) -> WorkerByHand:
    return WorkerByHand(store)


def test_a_job_that_waits_is_running_and_bound_to_no_worker(store: Store, worker: WorkerByHand) -> None:
    call = waiting(store, worker)
    job = store.get(call.id)
    assert (job.state, job.situation, job.worker, job.attempt) == ("running", "waiting", None, 1)
    assert worker.claim(10) == []
    assert store.glance().in_hand == {}
    assert list(store.page(Filter(worker=worker.id)).jobs) == []


ENDS: dict[str, tuple[Callable[[Store, MovableClock, int], object], str]] = {
    "waits": (lambda store, clock, job: None, ""),
    "completed": (lambda store, clock, job: store.answer(job, YES, "ann"), "ann"),
    "failed": (lambda store, clock, job: store.answer(job, NO, "ann"), "ann"),
    "aborted": (lambda store, clock, job: store.abort(job, "ann"), "ann"),
    "timed out": (lambda store, clock, job: (clock.advance(86401), store.end_overdue()), "holdfast"),
}


@pytest.mark.claim("J9", "R7")
@pytest.mark.parametrize("end", ENDS)
def test_whose_attempt_it_was_that_waited_is_told_while_it_waits_and_for_ever(
    store: Store, worker: WorkerByHand, clock: MovableClock, end: str
) -> None:
    call = waiting(store, worker)
    act, actor = ENDS[end]
    act(store, clock, call.id)
    claimed, *ends = store.history(call.id)[1:]
    assert (claimed.cause, claimed.actor) == ("claimed", f"worker {worker.id}")
    assert {move.actor for move in ends} == ({actor} if actor else set())
    assert [attempt.worker for attempt in store.attempts(call.id)] == [str(worker.id)]


@pytest.mark.parametrize("by_id", [True, False])
def test_it_is_completed_by_key_or_by_id(store: Store, worker: WorkerByHand, by_id: bool) -> None:
    call = waiting(store, worker)
    job = store.answer(call.id if by_id else ("send", "k"), YES, "ann")
    assert (job.state, job.outcome, job.result, job.attempt, job.execution_time) == (
        "final",
        "success",
        {"ok": True},
        1,
        0.5,
    )
    last = store.history(call.id)[-1]
    assert (last.from_state, last.to_state, last.cause, last.actor) == ("running", "final", "success", "ann")


def test_to_fail_it_is_as_to_raise_failed(store: Store, worker: WorkerByHand) -> None:
    call = waiting(store, worker)
    job = store.answer(("send", "k"), NO, "ann")
    assert (job.outcome, str(job.error), job.failures) == ("failed", "the bank says no", 0)
    moves = [(move.from_state, move.to_state, move.actor) for move in store.history(call.id)[-2:]]
    assert moves == [("running", "error", "ann"), ("error", "final", "ann")]


@pytest.mark.claim("R5")
def test_to_fail_it_with_retry_is_as_an_exception(store: Store, worker: WorkerByHand, clock: MovableClock) -> None:
    call = waiting(store, worker)
    job = store.answer(call.id, BROKEN, "ann")
    assert (job.state, job.failures, job.error and job.error.kind) == ("error", 1, "exception")
    clock.advance(2)
    again = worker.claim_one()
    assert (again.id, again.attempt, again.answer) == (call.id, 2, None)
    worker.tell(again, Waited())
    assert store.get(call.id).situation is Situation.WAITING  # it waits for an answer of its own


def bring(store: Store, worker: WorkerByHand, where: str) -> int:
    """A job that does not wait yet."""
    (job,) = store.add([NewJob("mail", "send", "{}", job_key="k")])
    if where != "initial":
        call = worker.claim_one()
        if where == "error":
            worker.fail(call, retry_delay=5.0)
        elif where == "loose":
            worker.hand_back(call)
    return job.id


@pytest.mark.fault(8, "an answer before the wait, and a second one")
@pytest.mark.parametrize("where", ["initial", "held", "loose", "error"])
def test_an_answer_that_comes_early_is_kept_until_the_job_waits(
    store: Store, worker: WorkerByHand, clock: MovableClock, where: str
) -> None:
    job_id = bring(store, worker, where)
    before = store.get(job_id)
    kept = store.answer(job_id, YES, "ann")
    assert (kept.state, kept.situation, kept.attempt) == (before.state, before.situation, before.attempt)
    with pytest.raises(Conflict, match="first one counts"):
        store.answer(("send", "k"), NO, "bob")
    clock.advance(10)
    held = Claimed("mail", 0, job_id, 1, "send", "k", "{}", 30, 0)
    call = held if where == "held" else worker.claim_one()
    worker.fail(call, retry_delay=1.0)  # it survives retries
    clock.advance(10)
    worker.tell(worker.claim_one(), Waited(0.5))
    job = store.get(job_id)
    assert (job.state, job.outcome, job.result) == ("final", "success", {"ok": True})
    told = [(move.cause, move.actor) for move in store.history(job_id)]
    assert ("answer kept", "ann") in told
    assert "answer unused" not in [cause for cause, _ in told]


def test_an_early_answer_to_a_job_that_ends_without_waiting_is_shown_as_unused(
    store: Store, worker: WorkerByHand
) -> None:
    job_id = bring(store, worker, "initial")
    store.answer(job_id, YES, "ann")
    worker.succeed(worker.claim_one(), result="7")
    assert store.get(job_id).result == 7
    assert [move.cause for move in store.history(job_id)] == [
        "enqueued",
        "answer kept",
        "claimed",
        "success",
        "answer unused",
    ]


@pytest.mark.claim("J9")
def test_each_answer_is_told_with_its_own_actor_also_if_two_are_about_one_attempt(
    store: Store, worker: WorkerByHand, clock: MovableClock
) -> None:
    call = waiting(store, worker)
    store.answer(call.id, BROKEN, "alice")
    clock.advance(0.5)
    store.answer(call.id, YES, "bob")
    told = [(move.to_state, move.cause, move.actor) for move in store.history(call.id)]
    assert told[-2:] == [("error", "error", "alice"), ("error", "answer kept", "bob")]


@pytest.mark.claim("J9")
def test_of_several_early_answers_only_the_last_can_be_unused(
    store: Store, worker: WorkerByHand, clock: MovableClock
) -> None:
    job_id = bring(store, worker, "initial")
    store.answer(job_id, BROKEN, "alice")
    worker.tell(worker.claim_one(), Waited(0.5))
    store.answer(job_id, YES, "bob")
    clock.advance(2)
    worker.succeed(worker.claim_one())
    told = [(move.cause, move.actor) for move in store.history(job_id)]
    assert [each for each in told if each[0].startswith("answer")] == [
        ("answer kept", "alice"),
        ("answer kept", "bob"),
        ("answer unused", "holdfast"),
    ]


@pytest.mark.fault(8, "an answer after the end or the timeout, and to a wrong key")
def test_an_answer_to_a_final_job_is_a_conflict_and_to_none_is_not_found(store: Store, worker: WorkerByHand) -> None:
    call = waiting(store, worker)
    store.answer(call.id, YES, "ann")
    before = store.get(call.id)
    for which in (call.id, ("send", "k")):
        with pytest.raises(Conflict, match="final"):
            store.answer(which, NO, "bob")
    for which in (call.id + 1000, ("send", "other"), ("nobody", "k")):
        with pytest.raises(NotFound):
            store.answer(which, YES, "bob")
    assert store.get(call.id) == before


def test_the_newest_job_of_a_key_is_meant(store: Store, worker: WorkerByHand) -> None:
    first = waiting(store, worker)
    store.answer(("send", "k"), YES, "ann")
    second = waiting(store, worker)
    assert store.answer(("send", "k"), NO, "ann").id == second.id
    assert store.get(first.id).outcome == "success"


def test_an_archived_job_takes_no_answer(store: Store, worker: WorkerByHand, clock: MovableClock) -> None:
    call = waiting(store, worker)
    store.answer(call.id, YES, "ann")
    clock.advance(100)
    store.archive(60)
    for which in (call.id, ("send", "k")):
        with pytest.raises(Conflict, match="final"):
            store.answer(which, NO, "bob")


@pytest.mark.claim("R4")
def test_a_wait_ends_after_24_hours_where_nobody_names_a_time(
    store: Store, worker: WorkerByHand, clock: MovableClock
) -> None:
    call = waiting(store, worker)
    clock.advance(86_000)
    store.end_overdue()
    assert store.get(call.id).state == "running"
    clock.advance(500)
    store.end_overdue()
    job = store.get(call.id)
    assert (job.state, job.outcome, job.error and job.error.kind) == ("final", "error", "timeout")  # not retried
    with pytest.raises(Conflict):
        store.answer(call.id, YES, "ann")


@pytest.mark.claim("R4")
def test_a_named_timeout_covers_the_wait_too(store: Store, worker: WorkerByHand, clock: MovableClock) -> None:
    call = waiting(store, worker, timeout=60.0, timeout_named=True)
    assert (store.end_overdue() or 0) == pytest.approx(60, abs=1)
    clock.advance(61)
    store.end_overdue()
    assert store.get(call.id).outcome == "error"


@pytest.mark.claim("R4")
def test_a_named_timeout_counts_from_the_call_not_from_the_return(
    store: Store, worker: WorkerByHand, clock: MovableClock
) -> None:
    (job,) = store.add([NewJob("mail", "send", "{}", timeout=60.0, timeout_named=True)])
    call = worker.claim_one()
    clock.advance(50)
    worker.tell(call, Waited(50.0))
    clock.advance(11)
    store.end_overdue()
    assert store.get(job.id).outcome == "error"


@pytest.mark.claim("R4")
def test_a_wait_of_its_own_length_counts_from_the_return(
    store: Store, worker: WorkerByHand, clock: MovableClock
) -> None:
    (job,) = store.add([NewJob("mail", "send", "{}", timeout=60.0, timeout_named=True)])
    call = worker.claim_one()
    clock.advance(50)
    worker.tell(call, Waited(50.0, 100.0, True))
    clock.advance(90)
    store.end_overdue()
    assert store.get(job.id).state == "running"
    clock.advance(11)
    store.end_overdue()
    assert store.get(job.id).outcome == "error"


@pytest.mark.claim("R4")
@pytest.mark.parametrize(
    ("wait", "options", "text"),
    [
        (Waited(0.25, 1.0, True), {}, "timeout: no answer within 1 s of its WAIT"),
        (
            Waited(0.25, 1.0, True),
            {"timeout": 60.0, "timeout_named": True},
            "timeout: no answer within 1 s of its WAIT",
        ),
        (Waited(0.25), {"timeout": 1.5, "timeout_named": True}, "timeout: no answer within 1.5 s of its start"),
        (Waited(0.25), {}, "timeout: no answer within 86400 s of its WAIT"),
    ],
)
def test_a_wait_that_times_out_says_the_limit_that_was_named(
    store: Store, worker: WorkerByHand, clock: MovableClock, wait: Waited, options: dict[str, Any], text: str
) -> None:
    (job,) = store.add([NewJob("mail", "send", "{}", **options)])
    call = worker.claim_one()
    clock.advance(0.2556)
    worker.tell(call, wait)
    clock.advance(86_401)
    store.end_overdue()
    assert str(store.get(job.id).error) == text


@pytest.mark.claim("R4")
def test_a_wait_without_limit_never_ends_by_itself(store: Store, worker: WorkerByHand, clock: MovableClock) -> None:
    call = waiting(store, worker, wait=Waited(0.1, None, True))
    clock.advance(10 * 365 * 86_400)
    assert store.end_overdue() is None
    assert store.answer(call.id, YES, "ann").outcome == "success"


@pytest.mark.claim("R4", "R5")
def test_a_wait_that_times_out_is_retried_if_retries_are_named(
    store: Store, worker: WorkerByHand, clock: MovableClock
) -> None:
    call = waiting(store, worker, retries=1, retries_named=True)
    clock.advance(86_401)
    store.end_overdue()
    assert (store.get(call.id).state, store.get(call.id).failures) == ("error", 1)
    again = worker.claim_one()
    assert (again.id, again.attempt) == (call.id, 2)


@pytest.mark.claim("R4", "R5")
def test_a_wait_that_times_out_goes_to_the_retry_handler(store: Store, clock: MovableClock) -> None:
    declare(store, "ask", has_retry_handler=True)
    worker = WorkerByHand(store, ("ask",))
    (job,) = store.add([NewJob("mail", "ask", "{}")])
    worker.tell(worker.claim_one(), Waited())
    clock.advance(86_401)
    store.end_overdue()
    assert (store.get(job.id).state, store.undecided(("ask",))) == ("error", [job.id])


@pytest.mark.claim("W3")
def test_a_job_that_waits_counts_against_the_limit_until_it_is_answered(store: Store, worker: WorkerByHand) -> None:
    store.limit("mail", 1, "ann")
    call = waiting(store, worker)
    (other,) = store.add([NewJob("mail", "send", "{}")])
    assert worker.claim(10) == []
    store.answer(call.id, YES, "ann")
    assert worker.claim_one().id == other.id


@pytest.mark.claim("W3", "C4")
def test_a_wait_whose_lease_was_lost_gets_it_back(
    store: Store, worker: WorkerByHand, clock: MovableClock, sql: RawSql
) -> None:
    call = waiting(store, worker, timeout=60.0, timeout_named=True)
    sql("delete from {lease}")
    assert store.end_overdue() is None
    assert store.restore(0, 1000, -1)[1] == 1
    clock.advance(61)
    store.end_overdue()
    assert store.get(call.id).outcome == "error"


@pytest.mark.claim("J10")
def test_to_abort_a_job_that_waits_ends_it_at_once(store: Store, worker: WorkerByHand) -> None:
    call = waiting(store, worker)
    assert store.abort(call.id, "ann").outcome == "aborted"
    with pytest.raises(Conflict):
        store.answer(call.id, YES, "bob")
    assert store.end_overdue() is None  # nothing is left of the wait


@pytest.mark.fault(8, "an answer while it is being aborted")
@pytest.mark.claim("J10", "J5")
def test_an_answer_to_a_job_that_is_being_aborted_is_kept_and_the_abort_wins(
    store: Store, worker: WorkerByHand
) -> None:
    job_id = bring(store, worker, "held")
    store.abort(job_id, "ann")
    store.answer(job_id, YES, "bob")
    call = Claimed("mail", 0, job_id, 1, "send", "k", "{}", 30, 0)
    worker.tell(call, Waited())
    assert store.get(job_id).outcome == "aborted"
    assert store.history(job_id)[-1].cause == "answer unused"


@pytest.mark.fault(8, "an answer while it is being recovered")
@pytest.mark.claim("C3")
def test_an_answer_to_a_job_that_is_being_recovered_is_kept(store: Store, worker: WorkerByHand) -> None:
    job_id = bring(store, worker, "held")
    second = WorkerByHand(store)
    store.lose(worker.id)
    store.answer(job_id, YES, "ann")
    call = second.claim_one()
    assert (call.id, call.attempt) == (job_id, 2)
    second.tell(call, Waited())
    assert store.get(job_id).result == {"ok": True}
    late = Claimed("mail", 0, job_id, 1, "send", "k", "{}", 30, 0)
    assert worker.tell(late, Waited()) is None  # the first attempt is stale


@pytest.mark.claim("C3")
def test_a_worker_that_is_lost_does_not_take_what_waits_with_it(store: Store, worker: WorkerByHand) -> None:
    call = waiting(store, worker)
    store.lose(worker.id)
    assert store.get(call.id).situation is Situation.WAITING
    assert store.answer(call.id, YES, "ann").outcome == "success"


@pytest.fixture
def asking(store: Store) -> WorkerByHand:
    """A worker for a type that has a response handler."""
    declare(store, "ask", has_response_handler=True)
    return WorkerByHand(store, ("ask",))


def test_an_answer_makes_the_job_loose_and_a_new_attempt_is_for_the_response_handler(
    store: Store, asking: WorkerByHand
) -> None:
    (job,) = store.add([NewJob("mail", "ask", "{}", job_key="k")])
    asking.tell(asking.claim_one(), Waited(0.5))
    answered = store.answer(("ask", "k"), YES, "ann")
    assert (answered.state, answered.situation, answered.attempt) == ("running", "loose", 1)
    with pytest.raises(Conflict, match="first one counts"):
        store.answer(("ask", "k"), NO, "bob")
    call = asking.claim_one()
    assert (call.id, call.attempt, call.answer) == (
        job.id,
        2,
        '{"result":"{\\"ok\\":true}","error":null,"retry":false,"due":true}',
    )
    asking.succeed(call, result="8")
    assert store.get(job.id).result == 8
    ends = [(each.attempt, each.outcome) for each in store.attempts(job.id)]
    assert ends == [(1, "answered"), (2, "success")]


@pytest.mark.claim("W2")
@pytest.mark.parametrize("late", [(), (("print", 5.0),)])
@pytest.mark.parametrize("count", [3, 30])
def test_a_claim_passes_over_answers_that_are_left_to_others_and_nothing_else(
    store: Store, asking: WorkerByHand, clock: MovableClock, count: int, late: tuple[tuple[str, float], ...]
) -> None:
    jobs = store.add([NewJob("mail", "ask", "{}", job_key=str(number)) for number in range(count)])
    for call in asking.claim(count):
        asking.tell(call, Waited(0.5))
    for job in jobs:
        store.answer(job.id, YES, "ann")
    lost = asking.claim_one()  # an answer, too
    asking.tell(lost, Lost())
    early = store.add([NewJob("mail", "ask", "{}", job_key=f"early {number}") for number in range(count)])
    for job in early:
        store.answer(job.id, YES, "ann")
    others = store.add([NewJob("mail", "print", "{}")] * count)
    clock.advance(6)
    deaf = WorkerByHand(store, ("ask", "print") if not late else ("ask",), late=late)

    claimed = deaf.turn(wants=[Want("mail", 100)], promote=True, deaf=("ask",)).claimed

    assert [call.id for call in claimed] == [job.id for job in (*early, *others)]
    assert {call.id for call in asking.claim(100)} == {job.id for job in jobs}


@pytest.mark.claim("Q4", "C3")
@pytest.mark.parametrize("limit", [0.0, 5.0])
def test_an_answer_that_a_worker_without_the_response_handler_met_comes_again_after_a_while(
    store: Store, asking: WorkerByHand, clock: MovableClock, limit: float
) -> None:
    store.limit("mail", limit, "ann")
    (job,) = store.add([NewJob("mail", "ask", "{}")])
    asking.tell(asking.claim_one(), Waited(0.5))
    store.answer(job.id, YES, "ann")
    asking.tell(asking.claim_one(), Lost())
    for attempt in (3, 4, 5):
        asking.tell(asking.claim_one(), Answered(Answer(YES.result, due=True), unheard=True))
        assert asking.claim() == []
        row = store.get(job.id)
        assert (row.situation, row.attempt, row.failures, row.losses) == ("loose", attempt, 0, 1)
        clock.advance(UNHEARD_FOR * attempt)
    call = asking.claim_one()
    assert (call.id, call.attempt) == (job.id, 6)
    assert call.answer is not None


def test_whoever_leaves_an_answer_to_others_tells_them_of_room_that_it_made_and_of_nothing_else(
    store: Store, asking: WorkerByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a limit. Or two that lack the response handler would wake each other for as long as it stands there."""
    store.limit("mail", 3, "tests")
    WorkerByHand(store, ("ask",))
    (job,) = store.add([NewJob("mail", "ask", "{}")])
    asking.tell(asking.claim_one(), Waited(0.5))
    (other,) = store.add([NewJob("mail", "ask", "{}")])
    held = asking.claim_one()
    store.answer(job.id, YES, "ann")
    told: list[str] = []
    monkeypatch.setattr(type(store), "announce", lambda self, queues: told.extend(queues))
    asked: dict[str, Any] = {"wants": [Want("mail", 1, 1)], "deaf": ("ask",)}
    answer = asking.turn(**asked)
    assert (answer.claimed, answer.full, told) == ([], {"mail": 1.0}, [])
    assert asking.turn(reports=[Report(other.id, Waited(0.5), held.attempt, "ask", held.lease)], **asked).claimed == []
    assert told == ["mail"]


def test_an_answer_that_nobody_has_a_response_handler_for_any_more_is_found_by_all(
    store: Store, asking: WorkerByHand, clock: MovableClock
) -> None:
    (job,) = store.add([NewJob("mail", "ask", "{}")])
    asking.tell(asking.claim_one(), Waited(0.5))
    store.answer(job.id, YES, "ann")
    asking.tell(asking.claim_one(), Answered(Answer(YES.result, due=True), unheard=True))
    declare(store, "ask")
    clock.advance(60)

    asking.tell(asking.claim_one(), Answered(Answer(YES.result, due=True), unheard=True))

    assert (store.get(job.id).outcome, store.get(job.id).result) == ("success", {"ok": True})


def test_an_early_answer_goes_to_the_response_handler_when_the_job_waits(store: Store, asking: WorkerByHand) -> None:
    (job,) = store.add([NewJob("mail", "ask", "{}")])
    call = asking.claim_one()
    store.answer(job.id, NO, "ann")
    asking.tell(call, Waited(0.5))
    again = asking.claim_one()
    assert again.answer is not None
    assert "the bank says no" in again.answer


def test_the_response_handler_is_called_again_after_a_crash_or_a_retry(
    store: Store, asking: WorkerByHand, clock: MovableClock
) -> None:
    (job,) = store.add([NewJob("mail", "ask", "{}")])
    asking.tell(asking.claim_one(), Waited())
    store.answer(job.id, YES, "ann")
    first = asking.claim_one()
    asking.fail(first)
    clock.advance(5)
    second = asking.claim_one()
    other = WorkerByHand(store, ("ask",))
    store.lose(asking.id)
    third = other.claim_one()
    assert [call.attempt for call in (first, second, third)] == [2, 3, 4]
    assert first.answer == second.answer == third.answer
    assert first.answer is not None


def test_a_response_handler_may_wait_for_another_answer(store: Store, asking: WorkerByHand) -> None:
    (job,) = store.add([NewJob("mail", "ask", "{}")])
    asking.tell(asking.claim_one(), Waited())
    store.answer(job.id, YES, "ann")
    asking.tell(asking.claim_one(), Waited())
    assert store.get(job.id).situation is Situation.WAITING
    store.answer(job.id, NO, "ann")
    assert "the bank says no" in (asking.claim_one().answer or "")


AtOnce = Callable[..., list[Any]]
ROUNDS = 12  # of things that come at the same moment, whichever is first


@pytest.fixture
def at_once(store: Store) -> Iterator[AtOnce]:
    """What each of some actions is told, on a connection of its own, at the same moment; a refusal is an answer too.

    Whoever comes last to the barrier is the first to go on: each time it is another one.
    """
    own, turns = [store.another(5) for _ in range(3)], itertools.count()
    with ThreadPoolExecutor(len(own)) as pool:

        def act_at_once(*actions: Callable[[Store], Any]) -> list[Any]:
            begin = threading.Barrier(len(actions))

            def act(action: Callable[[Store], Any], its: Store) -> Any:
                begin.wait()
                try:
                    return action(its)
                except Conflict as refusal:
                    return refusal

            turn = next(turns) % len(actions)
            found = list(pool.map(act, (*actions[turn:], *actions[:turn]), own))
            return [*found[len(actions) - turn :], *found[: len(actions) - turn]]

        yield act_at_once
    for each in own:
        each.close()


@pytest.mark.fault(8, "an answer at the moment of the wait")
def test_an_answer_and_the_wait_come_at_the_same_moment(store: Store, sql: RawSql, at_once: AtOnce) -> None:
    """Whichever is first, the job ends with the answer, once."""
    worker = WorkerByHand(store)
    for _ in range(ROUNDS):
        (job,) = store.add([NewJob("mail", "send", "{}")])
        call = worker.claim_one()
        at_once(lambda own, job=job: own.answer(job.id, YES, "ann"), lambda _, call=call: tell(worker, call))
        assert store.get(job.id).result == {"ok": True}
    Invariants(sql).check([], {})


@pytest.mark.fault(8, "two answers at the same moment")
def test_of_two_answers_at_the_same_moment_one_counts_and_the_other_is_told_so(
    store: Store, worker: WorkerByHand, sql: RawSql, at_once: AtOnce
) -> None:
    for _ in range(ROUNDS):
        call = waiting(store, worker)
        yes, no = at_once(
            lambda own, call=call: own.answer(call.id, YES, "ann"),
            lambda own: own.answer(("send", "k"), NO, "bob"),
        )
        assert isinstance(yes, Conflict) != isinstance(no, Conflict)
        assert store.get(call.id).outcome == ("failed" if isinstance(yes, Conflict) else "success")
    Invariants(sql).check([], {})


@pytest.mark.fault(8, "an answer at the moment of the timeout")
def test_an_answer_and_the_timeout_come_at_the_same_moment(
    store: Store, worker: WorkerByHand, clock: MovableClock, sql: RawSql, at_once: AtOnce
) -> None:
    for _ in range(ROUNDS):
        call = waiting(store, worker, timeout=30, retries=0)
        clock.advance(31)
        answered, _ = at_once(lambda own, call=call: own.answer(call.id, YES, "ann"), lambda own: own.end_overdue())
        job = store.get(call.id)
        assert (job.outcome, job.attempt) == ("error" if isinstance(answered, Conflict) else "success", 1)
        with pytest.raises(Conflict):
            store.answer(call.id, NO, "bob")
        assert store.get(call.id) == job
    Invariants(sql).check([], {})


@pytest.mark.fault(8, "an answer at the moment of an abort")
@pytest.mark.parametrize("where", ["waiting", "held"])
def test_an_answer_and_an_abort_come_at_the_same_moment(store: Store, sql: RawSql, at_once: AtOnce, where: str) -> None:
    """A job that waits ends by whichever is first; one that is held by the abort, and its answer is not used."""
    worker = WorkerByHand(store)
    for _ in range(ROUNDS):
        (job,) = store.add([NewJob("mail", "send", "{}")])
        call = worker.claim_one()
        if where == "waiting":
            worker.tell(call, Waited())
        answered, aborted = at_once(
            lambda own, job=job: own.answer(job.id, YES, "ann"),
            lambda own, job=job: own.abort(job.id, "bob"),
        )
        if where == "waiting":
            assert isinstance(answered, Conflict) != isinstance(aborted, Conflict)
            assert store.get(job.id).outcome == ("aborted" if isinstance(answered, Conflict) else "success")
        else:
            tell(worker, call)
            assert (store.get(job.id).outcome, store.history(job.id)[-1].cause) == ("aborted", "answer unused")
    Invariants(sql).check([], {})


@pytest.mark.fault(8, "an answer at the moment of a recovery")
def test_an_answer_and_a_recovery_come_at_the_same_moment(store: Store, sql: RawSql, at_once: AtOnce) -> None:
    """And the word of the lost worker that the job waits. The answer is not lost, and the first attempt has no more to say."""
    for _ in range(ROUNDS):
        lost, other = WorkerByHand(store), WorkerByHand(store)
        (job,) = store.add([NewJob("mail", "send", "{}")])
        call = lost.claim_one()
        told = at_once(
            lambda own, job=job: own.answer(job.id, YES, "ann"),
            lambda own, lost=lost: own.lose(lost.id),
            lambda _, lost=lost, call=call: tell(lost, call),
        )
        assert not [each for each in told if isinstance(each, Conflict)]
        for again in other.claim():
            assert (again.id, again.attempt) == (job.id, 2)
            tell(other, again)
        found = store.get(job.id)
        assert (found.outcome, found.result) == ("success", {"ok": True})
        assert tell(lost, call) is None
    Invariants(sql).check([], {})


def tell(worker: WorkerByHand, call: Claimed) -> Any:
    return worker.tell(call, Waited())


@pytest.mark.claim("J5")
def test_a_late_report_of_the_attempt_that_waits_is_stale(store: Store, worker: WorkerByHand) -> None:
    call = waiting(store, worker)
    assert worker.turn(done=[Done(call, 1.0, None)]).stale == 1
    late = Claimed("mail", 7, call.id, call.attempt, "send", "k", "{}", 30, 0)
    assert worker.tell(late, Raised(error())) is None
    assert store.get(call.id).situation is Situation.WAITING
