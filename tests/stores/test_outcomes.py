"""J4, J7, J8, R2, R7: how a job ends, what is stored with it, and in which words it reads."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import App, Failed, JobFailed, Retry, Snooze
from holdfast.clock import MovableClock
from holdfast.jobs.job import JobError, Outcome, Situation, State
from holdfast.jobs.states import STATUS, TASK_STATE, Raised
from holdfast.stores.contract import Store
from tests.by_hand import WorkerByHand, add, error
from tests.raw_sql import RawSql

Make = Callable[..., App]


def run(app: App, body: Callable[..., Any], **options: Any) -> Any:
    """One job of this handler, run until nothing is due."""
    job = app.queue("mail").job(body, name="send", **options).enqueue()
    app.run_until_idle()
    return job.refresh()


@pytest.mark.claim("R2", "J7")
@pytest.mark.parametrize(
    "result", [None, 0, "text", [1, {"a": None}], {"deep": [1.5, "ünï 😀", "\0 \\ '\" \t\n"]}, True]
)
def test_what_the_handler_returns_is_the_result(app: Make, result: Any) -> None:
    job = run(app(), lambda: result)

    assert (job.state, job.outcome, job.result, job.error) == (State.FINAL, Outcome.SUCCESS, result, None)
    assert job.unwrap(0) == result


@pytest.mark.claim("R2", "J7")
def test_failed_ends_a_job_without_a_retry(app: Make) -> None:
    def send() -> None:
        raise Failed("no such address")

    job = run(app(), send, retries=3)

    assert (job.outcome, job.attempt, job.failures, job.status) == (Outcome.FAILED, 1, 0, "dead")
    assert job.error == JobError("Failed", "no such address", "failed")
    with pytest.raises(JobFailed, match=r"ended `failed` in attempt 1: no such address") as raised:
        job.unwrap(0)
    assert raised.value.job == job


@pytest.mark.claim("R2", "R5")
def test_retry_names_its_next_time_and_counts(app: Make, clock: MovableClock) -> None:
    holdfast, at = app(), clock.now() + timedelta(hours=5)
    answers = iter([Retry("busy", delay=77), Retry(at=at), Retry("again", delay=0), Retry("and again")])

    @holdfast.queue("mail").job(retries=2)
    def send() -> None:
        raise next(answers)

    job = send.enqueue()
    holdfast.run_until_idle()
    assert (job.refresh().state, job.refresh().failures) == (State.ERROR, 1)
    assert job.refresh().scheduled_run_time == clock.now() + timedelta(seconds=77)
    assert job.refresh().error == JobError("Retry", "busy", "retry")
    clock.advance(77)
    holdfast.run_until_idle()
    assert (job.refresh().scheduled_run_time, job.refresh().failures) == (at, 2)
    clock.set(at)
    holdfast.run_until_idle()

    ended = job.refresh()
    assert (ended.outcome, ended.failures, ended.attempt) == (Outcome.ERROR, 3, 3)


@pytest.mark.claim("R2", "J12")
def test_snooze_ends_an_attempt_without_an_error(app: Make, clock: MovableClock) -> None:
    holdfast = app()
    answers = iter([Snooze(60), Snooze(0, "not yet")])

    @holdfast.queue("mail").job(retries=0)
    def send() -> str:
        for answer in answers:
            raise answer
        return "sent"

    job = send.enqueue()
    assert holdfast.run_until_idle() == 1
    found = job.refresh()
    assert (found.state, found.situation, found.failures, found.error) == (State.RUNNING, Situation.LOOSE, 0, None)
    assert found.scheduled_run_time == clock.now() + timedelta(seconds=60)
    clock.advance(60)

    assert holdfast.run_until_idle() == 2
    assert (job.refresh().result, job.refresh().attempt, job.refresh().failures) == ("sent", 3, 0)


@pytest.mark.claim("R2", "J7")
@pytest.mark.parametrize(
    "raised",
    [
        ValueError("oh"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        KeyError("k"),
        Exception(),
    ],
)
@pytest.mark.parametrize("colour", ["plain", "async"])
def test_any_other_exception_is_an_error(app: Make, raised: BaseException, colour: str) -> None:
    def plain() -> None:
        raise raised

    async def coloured() -> None:
        raise raised

    job = run(app(), plain if colour == "plain" else coloured, retries=0)

    assert (job.state, job.outcome, job.failures) == (State.FINAL, Outcome.ERROR, 1)
    assert job.error.kind == "exception"
    assert job.error.type == type(raised).__qualname__
    assert str(job.error)
    assert type(raised).__name__ in job.attempts()[0].traceback


@pytest.mark.claim("R2")
@pytest.mark.parametrize("value", [object(), float("nan"), {1: 2}, "x" * (1024 * 1024 + 1), "\ud800"])
def test_a_result_that_json_cannot_carry_is_an_error_that_is_not_retried(app: Make, value: Any) -> None:
    job = run(app(), lambda: value, retries=3)

    assert (job.outcome, job.attempt, job.result) == (Outcome.ERROR, 1, None)
    assert job.error.kind == "result"


@pytest.mark.claim("J4")
def test_no_error_is_stored_as_the_word_none_and_reads_as_none(store: Store, sql: RawSql, clock: MovableClock) -> None:
    job = add(store)
    worker = WorkerByHand(store)

    def stored() -> tuple[str, JobError | None]:
        return sql.row(job.id)["error"], store.get(job.id).error

    assert stored() == ("NONE", None)
    call = worker.claim_one()
    assert stored() == ("NONE", None)
    worker.fail(call)
    assert stored()[1] == error()
    assert str(store.get(job.id).error) == "it broke"
    assert json.loads(stored()[0]) == {"type": "ValueError", "message": "it broke", "kind": "exception"}
    clock.advance(60)
    call = worker.claim_one()
    assert stored() == ("NONE", None)
    worker.hand_back(call)
    assert stored() == ("NONE", None)
    worker.succeed(worker.claim_one())
    assert stored() == ("NONE", None)


@pytest.mark.claim("J4")
def test_an_error_whose_message_is_none_is_still_an_error(store: Store) -> None:
    add(store, retries=0)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    worker.tell(call, Raised(JobError("E", "NONE", "exception")))

    assert str(store.get(call.id).error) == "NONE"
    assert store.get(call.id).outcome is Outcome.ERROR


@pytest.mark.claim("J7")
def test_a_final_job_with_an_error_was_in_error_just_before(store: Store) -> None:
    ended = []
    worker = WorkerByHand(store)
    for kind in ("failed", "exception", "timeout", "payload", "result"):
        add(store, retries=0)
        call = worker.claim_one()
        worker.fail(call, kind)
        ended.append(call.id)
    ended.append(store.abort(add(store).id, "ann").id)

    for job_id in ended:
        *_, before, last = store.history(job_id)
        assert [str(before.from_state), str(before.to_state), str(last.to_state)] == ["running", "error", "final"]
        assert before.time == last.time == store.get(job_id).end_time
    outcomes = [store.get(job_id).outcome for job_id in ended]
    assert outcomes == ["failed", "error", "error", "error", "error", "aborted"]


@pytest.mark.claim("J8")
def test_one_row_reads_in_every_vocabulary(store: Store, clock: MovableClock) -> None:
    worker, seen = WorkerByHand(store), []

    def note(job_id: int) -> None:
        job = store.get(job_id)
        assert job.status == STATUS[job.state, job.outcome]
        seen.append((job.state.value, job.status, TASK_STATE[job.outcome]))

    note(add(store, delay=9).id)
    ends = [lambda call: None, worker.fail, worker.succeed, lambda call: worker.fail(call, "failed")]
    for end in ends:
        job = add(store)
        end(worker.claim_one())
        note(job.id)
    add(store, retries=0)
    call = worker.claim_one()
    worker.fail(call)
    note(call.id)
    note(store.abort(add(store).id, "ann").id)

    assert seen == [
        ("initial", "pending", "UNDONE"),
        ("running", "running", "UNDONE"),
        ("error", "failed", "UNDONE"),
        ("final", "completed", "SUCCESS"),
        ("final", "dead", "FAILED"),
        ("final", "dead", "ERROR"),
        ("final", "dead", "ERROR"),
    ]
    assert store.counts() == {"mail": {"pending": 1, "running": 1, "failed": 1, "completed": 1, "dead": 3}}


@pytest.mark.claim("J8")
@pytest.mark.parametrize("status", ["pending", "running", "failed", "completed", "dead"])
def test_jobs_are_found_by_state_status_type_key_and_queue_newest_first(
    app: Make, status: str, clock: MovableClock
) -> None:
    holdfast = app()

    @holdfast.queue("mail").job(retries=1)
    def send(how: str) -> None:
        if how == "failed":
            raise ValueError
        if how == "dead":
            raise Failed
        if how == "running":
            raise Snooze(60)

    jobs = [send.enqueue(how) for how in ("failed", "completed", "dead", "running")]
    holdfast.run_until_idle()
    jobs += [send.using(job_key="k", delay=60).enqueue("pending"), send.using(delay=60).enqueue("pending")]

    found = holdfast.find(status=status)

    expected = [job.id for job in reversed(jobs) if job.payload["how"] == status]
    assert [job.id for job in found] == expected
    assert {job.status for job in found} == {status}
    assert holdfast.find(state=found[0].state.value, status=status) == found
    assert holdfast.find(status=status, limit=1) == found[:1]
    assert holdfast.find(status=status, state="initial") == (found if status == "pending" else [])
    assert [job.id for job in holdfast.find(job_key="k")] == [jobs[4].id]
    assert [job.id for job in holdfast.find(job_type="send", queue="mail")] == [job.id for job in reversed(jobs)]
    assert holdfast.find(job_type="other") == holdfast.find(queue="other") == holdfast.find(limit=0) == []


@pytest.mark.claim("R7")
def test_a_job_keeps_everything_that_is_said_about_it(store: Store, clock: MovableClock) -> None:
    born = clock.now()
    job = add(
        store,
        payload='{"to":"a","n":[1,2.5,null,true,"é"]}',
        job_key="k",
        priority=7.5,
        timeout=8.5,
        throttle_factor=0.25,
        retries=5,
    )
    worker = WorkerByHand(store)
    clock.advance(1)
    worker.fail(worker.claim_one())
    clock.advance(60)
    started = clock.now()
    call = worker.claim_one()
    clock.advance(3)
    worker.succeed(call, result='{"ok":true}', seconds=2.5)

    found = store.get(job.id)
    assert found.payload == {"to": "a", "n": [1, 2.5, None, True, "é"]}
    assert (found.result, found.error, found.outcome, found.failures, found.attempt) == (
        {"ok": True},
        None,
        "success",
        1,
        2,
    )
    assert (found.job_type, found.job_key, found.queue, found.worker) == ("send", "k", "mail", str(worker.id))
    assert (found.priority, found.timeout, found.throttle_factor, found.retries) == (7.5, 8.5, 0.25, 5)
    assert (found.create_time, found.start_time, found.end_time) == (born, started, clock.now())
    assert found.update_time == found.end_time
    assert (found.execution_time, found.total_time) == (2.5, 3.5)
    assert [str(attempt.error) for attempt in store.attempts(job.id)] == ["it broke", "None"]
    assert call.payload == '{"to":"a","n":[1,2.5,null,true,"é"]}'
    assert (call.job_key, call.timeout, call.job_type, call.queue, call.losses) == ("k", 8.5, "send", "mail", 0)


@pytest.mark.claim("R7")
def test_the_time_of_each_attempt_adds_to_the_total(store: Store, clock: MovableClock) -> None:
    job = add(store, retries=None)
    worker = WorkerByHand(store)
    for end in (worker.fail, worker.snooze, worker.hand_back):  # each says it took 1 s
        end(worker.claim_one())
        clock.advance(600)
    assert (store.get(job.id).execution_time, store.get(job.id).total_time) == (1.0, 3.0)

    worker.succeed(worker.claim_one(), seconds=0.5)

    assert (store.get(job.id).execution_time, store.get(job.id).total_time) == (0.5, 3.5)


@pytest.mark.claim("R7")
def test_a_job_that_was_never_called_has_no_times_of_running(store: Store) -> None:
    job = add(store)
    assert (job.start_time, job.end_time, job.execution_time, job.total_time, job.worker) == (None, None, None, 0, None)

    ended = store.abort(job.id, "ann")

    assert (ended.start_time, ended.execution_time, ended.total_time, ended.worker) == (None, None, 0, None)
    assert ended.end_time == ended.update_time


@pytest.mark.claim("R7")
def test_waiting_for_a_job_gives_it_when_it_is_final_and_an_error_when_the_time_is_over(app: Make) -> None:
    holdfast = app()
    send = holdfast.queue("mail").job(lambda: 5, name="send")
    job = send.enqueue()
    for wait in (job.wait, job.unwrap):
        with pytest.raises(TimeoutError, match=rf"Job {job.id} \(send\) is still `initial` after 0 s"):
            wait(0)
    with pytest.raises(TimeoutError):
        asyncio.run(job.aunwrap(0))
    holdfast.run_until_idle()

    assert job.wait(0) == job.refresh()
    assert job.unwrap(0) == asyncio.run(job.aunwrap(0)) == 5
