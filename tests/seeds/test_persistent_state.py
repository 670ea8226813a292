"""What the first description of hipq says of a job instance and its states, sentence by sentence."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import WAIT, App, Conflict, Failed, IllegalMove, Job, NoDelay, current_job
from holdfast.clock import MovableClock
from holdfast.jobs import states
from holdfast.jobs.job import State
from holdfast.jobs.states import MOVES, Event
from tests.by_hand import WorkerByHand
from tests.raw_sql import RawSql

FIELDS = (
    *("id", "job_type", "job_key", "state", "error", "attempt"),
    *("scheduled_run_time", "create_time", "update_time"),
)


@pytest.mark.claim("J1", "R7")
def test_a_job_instance_has_these_fields_in_python_and_in_its_row(hipq: App, sql: RawSql) -> None:
    job = hipq.enqueue("mail", "send", job_key="k")
    row = sql.row(job.id)
    for name in FIELDS:
        assert hasattr(job, name)
        assert name in row


@pytest.mark.claim("J1")
def test_id_is_a_numeric_surrogate_key(hipq: App) -> None:
    first, second = hipq.enqueue("mail", "send"), hipq.enqueue("mail", "send")
    assert isinstance(first.id, int)
    assert 0 < first.id < second.id


@pytest.mark.claim("Q3")
def test_each_job_type_runs_a_different_bit_of_code(hipq: App) -> None:
    queue = hipq.queue("mail")

    @queue.job
    def send() -> str:
        return "sent"

    @queue.job
    def scan() -> str:
        return "scanned"

    jobs = [send.enqueue(), scan.enqueue()]
    hipq.run_until_idle()
    assert [job.refresh().result for job in jobs] == ["sent", "scanned"]


@pytest.mark.claim("R3")
def test_job_key_maps_the_result_of_an_external_asynchronous_process_back_to_its_job(
    hipq: App, app: Callable[..., App]
) -> None:
    @hipq.queue("mail").job
    def charge(amount: int) -> Any:
        return WAIT  # the bank will call back, and knows our key only

    jobs = [charge.using(job_key=f"order-{n}").enqueue(amount=n) for n in range(3)]
    hipq.run_until_idle()
    assert {job.refresh().situation for job in jobs} == {"waiting"}

    app().complete("charge", "order-1", {"receipt": 77})  # from another process

    assert [job.refresh().result for job in jobs] == [None, {"receipt": 77}, None]
    assert [job.refresh().state for job in jobs] == ["running", "final", "running"]


@pytest.mark.claim("R3")
def test_the_external_answer_may_go_through_code_of_the_job_type(hipq: App) -> None:
    @hipq.queue("mail").job
    def charge() -> Any:
        return WAIT

    @charge.response_handler
    def answered(job: Job, response: dict[str, bool]) -> str:
        if not response["paid"]:
            raise Failed("the bank said no")
        return f"{job.job_key} is paid"

    yes, no = (charge.using(job_key=key).enqueue() for key in ("order-1", "order-2"))
    hipq.run_until_idle()
    hipq.complete("charge", "order-1", {"paid": True})
    hipq.complete("charge", "order-2", {"paid": False})
    hipq.run_until_idle()

    assert yes.refresh().result == "order-1 is paid"
    assert (no.refresh().outcome, str(no.refresh().error)) == ("failed", "the bank said no")


@pytest.mark.claim("Q5")
def test_many_jobs_of_a_key_may_be_final_but_only_one_is_not(hipq: App, sql: RawSql) -> None:
    @hipq.queue("mail").job
    def send() -> None: ...

    ids = []
    for _ in range(3):
        job = send.using(job_key="k").enqueue()
        same = send.using(job_key="k").enqueue()
        assert (same.id, same.duplicate) == (job.id, True)
        hipq.run_until_idle()
        ids.append(job.id)
    living = send.using(job_key="k").enqueue()

    assert [job.id for job in hipq.find(job_key="k")] == [living.id, *reversed(ids)]
    assert [job.state for job in hipq.find(job_key="k")] == ["initial", "final", "final", "final"]
    other = hipq.enqueue("mail", "scan", job_key="k")  # a key is of its type
    assert not other.duplicate


@pytest.mark.claim("J1")
def test_state_is_one_of_initial_running_error_final() -> None:
    assert [state.value for state in State] == ["initial", "running", "error", "final"]


@pytest.mark.claim("J2", "J5")
def test_attempt_0_has_not_been_tried_and_3_is_the_third_try(hipq: App) -> None:
    seen: list[tuple[int, int]] = []

    @hipq.queue("mail").job(retries=2, retry=NoDelay())
    def send() -> None:
        seen.append((current_job().attempt, job.refresh().attempt))
        raise ValueError

    job = send.enqueue()
    assert job.attempt == 0
    hipq.run_until_idle()
    assert seen == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.claim("J6")
def test_the_three_times_are_when_it_is_wanted_made_and_changed(hipq: App, clock: MovableClock) -> None:
    made = clock.now()
    job = hipq.enqueue("mail", "send", delay=60)
    assert (job.create_time, job.update_time) == (made, made)
    assert (job.scheduled_run_time - made).total_seconds() == 60
    clock.advance(60)
    WorkerByHand(hipq.store).claim_one()
    assert (job.refresh().create_time, job.refresh().update_time) == (made, clock.now())


@pytest.mark.claim("J2")
@pytest.mark.parametrize(
    ("state", "targets"),
    [
        ("initial", {"running"}),
        ("running", {"error", "final"}),
        ("error", {"running", "final"}),
        ("final", set()),
    ],
)
def test_each_state_moves_only_where_the_description_says(state: str, targets: set[str]) -> None:
    """A `running` job may also be tried again as it is, after a crash; nothing else is added."""
    moves = {target.value for (source, _), target in MOVES.items() if source == state}
    assert moves - {state} == targets
    for event in Event:
        if (State(state), event) not in MOVES:
            with pytest.raises(IllegalMove, match=f"`{state}`"):
                states.move(State(state), event)


@pytest.mark.claim("J4")
def test_error_is_none_in_initial_and_running_and_tells_of_it_in_error_and_final(hipq: App, sql: RawSql) -> None:
    job = hipq.enqueue("mail", "send", retries=1)
    worker = WorkerByHand(hipq.store)
    rows = [sql.row(job.id)]
    for _ in range(2):
        call = worker.claim_one()
        rows.append(sql.row(job.id))
        worker.fail(call, retry_delay=0.0)
        rows.append(sql.row(job.id))
    broke = '{"type":"ValueError","message":"it broke","kind":"exception"}'
    assert [(row["state"], row["error"]) for row in rows] == [
        ("initial", "NONE"),
        ("running", "NONE"),
        ("error", broke),
        ("running", "NONE"),
        ("final", broke),
    ]


@pytest.mark.claim("J4")
def test_in_final_state_error_may_be_none(hipq: App, sql: RawSql) -> None:
    job = hipq.enqueue("mail", "send")
    worker = WorkerByHand(hipq.store)
    worker.succeed(worker.claim_one())
    assert (sql.row(job.id)["state"], sql.row(job.id)["error"]) == ("final", "NONE")


@pytest.mark.claim("J3")
def test_final_state_will_never_change(hipq: App, sql: RawSql, clock: MovableClock) -> None:
    job = hipq.enqueue("mail", "send", job_key="k")
    worker = WorkerByHand(hipq.store)
    call = worker.claim_one()
    worker.succeed(call)
    before = sql.row(job.id)
    clock.advance(3600)

    assert worker.succeed(call) == 1  # stale
    for refused in (hipq.abort, lambda job_id: hipq.complete(job_id=job_id)):
        with pytest.raises(Conflict):
            refused(job.id)
    for name in before:
        with sql.refused():
            sql(f"update {{queue:mail}} set {name} = {name} where id = :id", id=job.id)
    assert hipq.retry(job.id).id != job.id  # a new job

    assert sql.row(job.id) == before
