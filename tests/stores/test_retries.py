"""R4, R5: errors, timeouts, and who decides what comes after them."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import GIVE_UP, App, Exponential, Fixed, Invalid, Linear, NoDelay, Retry
from holdfast.clock import MovableClock
from holdfast.jobs.job import Job, JobError, Outcome, State
from holdfast.jobs.retry import encode
from holdfast.jobs.states import Decided
from holdfast.stores.contract import Report, Store
from tests.by_hand import WorkerByHand, add, declare, error

Make = Callable[..., App]


def seconds_to_next(store: Store, job_id: int) -> float:
    return (store.get(job_id).scheduled_run_time - store.now()).total_seconds()


@pytest.mark.claim("R5")
@pytest.mark.parametrize(("retries", "executions"), [(0, 1), (1, 2), (3, 4)])
def test_a_job_is_dead_when_its_retries_are_used_up(
    store: Store, clock: MovableClock, retries: int, executions: int
) -> None:
    job = add(store, retries=retries)
    worker = WorkerByHand(store)
    for number in range(1, executions + 1):
        assert not store.get(job.id).final
        worker.fail(worker.claim_one())
        assert store.get(job.id).failures == number
        clock.advance(301)

    found = store.get(job.id)
    assert (found.state, found.outcome, found.attempt, str(found.error)) == (
        State.FINAL,
        Outcome.ERROR,
        executions,
        "it broke",
    )
    assert worker.claim() == []


@pytest.mark.claim("R5")
def test_three_retries_are_the_default_and_none_is_without_limit(app: Make, store: Store, clock: MovableClock) -> None:
    @app().queue("mail").job(name="letter")
    def letter() -> None: ...

    assert letter.new().retries == 3
    job = add(store, retries=None)
    worker = WorkerByHand(store)
    for _ in range(10):
        worker.fail(worker.claim_one())
        clock.advance(301)
    assert (store.get(job.id).state, store.get(job.id).failures) == (State.ERROR, 10)


@pytest.mark.claim("R5")
def test_by_default_a_timeout_is_retried_at_once_and_an_exception_later_and_later(
    store: Store, clock: MovableClock
) -> None:
    job = add(store, retries=None)
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one(), "timeout")
    assert seconds_to_next(store, job.id) == 0
    delays = []
    for _ in range(12):
        worker.fail(worker.claim_one())
        delays.append(seconds_to_next(store, job.id))
        clock.advance(delays[-1])

    for number, delay in enumerate(delays, 1):
        assert min(2**number, 272) <= delay <= min(2**number * 1.1, 300)


@pytest.mark.claim("R5")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (NoDelay(), [0, 0, 0]),
        (Fixed(5), [5, 5, 5]),
        (Linear(2, 3, most=7), [2, 5, 7]),
        (Exponential(first=3, factor=3, most=20, jitter=0), [3, 9, 20]),
    ],
)
def test_the_types_policy_says_how_soon(store: Store, clock: MovableClock, policy: Any, expected: list[float]) -> None:
    declare(store, retry=encode(policy))
    job = add(store, retries=None)
    worker, delays = WorkerByHand(store), []
    for kind in ("exception", "timeout", "exception"):
        worker.fail(worker.claim_one(), kind)
        delays.append(seconds_to_next(store, job.id))
        clock.advance(delays[-1])

    assert delays == expected


@pytest.mark.claim("R5", "J6")
def test_a_job_in_error_is_not_due_before_its_time(store: Store, clock: MovableClock) -> None:
    declare(store, retry=encode(Fixed(10)))
    job = add(store)
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one())
    assert store.get(job.id).scheduled_run_time == clock.now() + timedelta(seconds=10)

    clock.advance(9.999999)
    assert worker.claim() == []
    clock.advance(0.000001)

    assert worker.claim_one().attempt == 2


@pytest.mark.claim("R5")
@pytest.mark.parametrize("kind", ["payload", "result"])
def test_an_error_that_trying_again_cannot_cure_is_final(store: Store, kind: str) -> None:
    declare(store, has_retry_handler=True)
    job = add(store, retries=3)
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one(), kind)

    assert store.get(job.id).outcome is Outcome.ERROR
    assert store.undecided(["send"]) == []


@pytest.mark.claim("R5")
def test_failures_and_attempt_are_counted_apart(store: Store, clock: MovableClock) -> None:
    job = add(store, retries=None)
    worker = WorkerByHand(store)
    for end, failures in [(worker.hand_back, 0), (worker.fail, 1), (worker.snooze, 1), (worker.fail, 2)]:
        end(worker.claim_one())
        assert store.get(job.id).failures == failures
        clock.advance(600)
    other = WorkerByHand(store)
    other.claim_one()
    other.die()
    assert (store.get(job.id).failures, store.get(job.id).attempt) == (2, 5)
    worker.fail(worker.claim_one(), "failed")

    assert store.get(job.id).failures == 2  # `Failed` passes through `error` only to be recorded


@pytest.mark.claim("R5")
def test_an_error_waits_for_its_retry_handler_where_this_process_has_none(store: Store, clock: MovableClock) -> None:
    declare(store, has_retry_handler=True)
    job = add(store, retries=3)
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one())
    clock.advance(3600)

    assert worker.claim() == []
    assert (store.get(job.id).state, store.get(job.id).failures) == (State.ERROR, 1)
    assert store.undecided(["send"]) == [job.id]
    assert store.undecided(["print"]) == store.undecided([]) == []
    declare(store)  # by code that has none: whoever looks finds it
    assert store.undecided(["send"]) == store.undecided([]) == [job.id]


@pytest.mark.claim("R5")
@pytest.mark.parametrize("failures", [1, 5])
def test_a_retry_handler_is_not_bound_by_retries(store: Store, clock: MovableClock, failures: int) -> None:
    declare(store, has_retry_handler=True)
    job = add(store, retries=0, payload='{"n":1}')
    worker = WorkerByHand(store)
    for number in range(1, failures + 1):
        worker.fail(worker.claim_one())
        decided = Decided(error(), retry_delay=7.0, payload=f'{{"n":{number + 1}}}')
        (change,) = store.report([Report(job.id, decided, number, "send")])
        assert change is not None
        assert store.undecided(["send"]) == []
        found = store.get(job.id)
        assert (found.state, found.payload, found.failures) == (State.ERROR, {"n": number + 1}, number)
        assert seconds_to_next(store, job.id) == 7
        clock.advance(7)

    assert worker.claim_one().payload == f'{{"n":{failures + 1}}}'


@pytest.mark.claim("R5", "J7")
@pytest.mark.parametrize("verdict", [None, JobError("ZeroDivisionError", "the retry handler failed", "retry_handler")])
def test_a_retry_handler_may_give_up_or_fail(store: Store, verdict: JobError | None) -> None:
    declare(store, has_retry_handler=True)
    job = add(store, retries=9)
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one())
    store.report([Report(job.id, Decided(error(), give_up=True, verdict=verdict), 1, "send")])

    found = store.get(job.id)
    assert (found.state, found.outcome, found.failures) == (State.FINAL, Outcome.ERROR, 1)
    assert found.error == (verdict or error())
    assert store.undecided(["send"]) == []
    assert [move.to_state.value for move in store.history(job.id)][-2:] == ["error", "final"]


@pytest.mark.claim("R5")
@pytest.mark.parametrize("retries", [0, 1])
def test_a_retry_handler_that_says_nothing_leaves_it_to_the_policy(store: Store, retries: int) -> None:
    declare(store, has_retry_handler=True, retry=encode(Fixed(11)))
    job = add(store, retries=retries)
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one())
    store.report([Report(job.id, Decided(error(), by_policy=True), 1, "send")])

    found = store.get(job.id)
    assert found.state is (State.ERROR if retries else State.FINAL)
    assert not retries or seconds_to_next(store, job.id) == 11


@pytest.mark.claim("R5", "J5")
def test_a_verdict_about_an_older_attempt_is_stale(store: Store, clock: MovableClock) -> None:
    declare(store, has_retry_handler=True)
    job = add(store)
    worker = WorkerByHand(store)
    worker.fail(worker.claim_one())
    decided = Report(job.id, Decided(error(), retry_delay=0.0), 1, "send")
    assert store.report([decided])[0] is not None
    worker.claim_one()

    assert store.report([decided]) == [None]
    assert store.report([Report(job.id, Decided(error(), give_up=True), 1, "send")]) == [None]

    assert store.get(job.id).attempt == 2


@pytest.mark.claim("R5")
def test_an_app_asks_its_retry_handler_with_the_job_and_the_error(app: Make, clock: MovableClock) -> None:
    holdfast = app()
    asked: list[tuple[Job, JobError]] = []
    answers: list[Any] = [Retry(delay=10, payload={"n": 2}), None, GIVE_UP]

    @holdfast.queue("mail").job(retries=9, retry=Fixed(20))
    def send(n: int) -> None:
        raise ValueError(f"broke {n}")

    @send.retry_handler
    def again(job: Job, error: JobError) -> Any:
        asked.append((job, error))
        return answers[len(asked) - 1]

    job = send.enqueue(1)
    for wait in (10, 20, 0):
        holdfast.run_until_idle()
        if not job.refresh().final:
            assert seconds_to_next(holdfast.store, job.id) == wait
        clock.advance(wait)

    assert [str(error) for _, error in asked] == ["broke 1", "broke 2", "broke 2"]
    assert [seen.attempt for seen, _ in asked] == [1, 2, 3]
    assert (job.refresh().outcome, job.refresh().failures) == (Outcome.ERROR, 3)


@pytest.mark.claim("R5")
@pytest.mark.parametrize("answer", [ZeroDivisionError("oh"), "nonsense", Retry(payload={"wrong": 1})])
def test_a_retry_handler_that_fails_ends_the_job_with_that_error(app: Make, answer: Any) -> None:
    holdfast = app()

    @holdfast.queue("mail").job(retries=9)
    def send(n: int) -> None:
        raise ValueError("broke")

    @send.retry_handler
    def again(job: Job, error: JobError) -> Any:
        if isinstance(answer, ZeroDivisionError):
            raise answer
        return answer

    job = send.enqueue(1)
    holdfast.run_until_idle()

    found = job.refresh()
    assert (found.outcome, found.attempt) == (Outcome.ERROR, 1)
    assert "retry handler" in str(found.error)
    assert str(found.attempts()[0].error) == "broke"


@pytest.mark.claim("R4")
def test_a_timeout_bounds_an_attempt_and_its_error_names_the_limit(app: Make) -> None:
    holdfast = app()

    @holdfast.queue("mail").job(timeout=0.05, retries=0)
    async def send() -> None:
        await asyncio.Event().wait()

    job = send.enqueue()
    holdfast.run_until_idle()

    found = job.refresh()
    assert (found.outcome, found.failures, found.error.kind) == (Outcome.ERROR, 1, "timeout")  # type: ignore[union-attr]
    assert "timeout" in str(found.error)
    assert "0.05 s" in str(found.error)
    assert found.attempts()[0].outcome == "timeout"


@pytest.mark.claim("R4")
def test_thirty_seconds_are_the_default_and_none_is_no_limit(app: Make) -> None:
    queue = app().queue("mail")
    plain = queue.job(lambda: None, name="plain")
    endless = queue.job(lambda: None, name="endless", timeout=None)

    assert plain.enqueue().refresh().timeout == 30
    assert endless.enqueue().refresh().timeout is None
    assert plain.using(timeout=None).enqueue().refresh().timeout is None
    assert endless.using(timeout=1.5).enqueue().refresh().timeout == 1.5
    for bad in (0, -1, float("nan"), float("inf"), "5", True):
        with pytest.raises(Invalid, match="timeout="):
            plain.using(timeout=bad)


@pytest.mark.claim("R4")
def test_the_timeout_of_a_held_job_is_its_workers_affair(store: Store, clock: MovableClock) -> None:
    """Measured by the worker's own clock from the call of the handler, not by the store from the claim."""
    job = add(store, timeout=5)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    clock.advance(3600)

    assert store.end_overdue() is None
    assert store.pulse().overdue_in is None
    assert worker.succeed(call) == 0
    assert store.get(job.id).outcome is Outcome.SUCCESS
