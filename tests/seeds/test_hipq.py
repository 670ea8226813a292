"""What the later description of hipq says of instances, queues, job types and crashes, sentence by sentence."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import App, Conflict, Invalid, Job, JobError, Retry
from holdfast.clock import MovableClock
from holdfast.jobs.job import State
from holdfast.stores.contract import Want
from tests.by_hand import WorkerByHand
from tests.raw_sql import RawSql

Make = Callable[..., App]


def claim(app: App, count: int = 1000) -> list[int]:
    """What a worker with room for everything may start now."""
    worker = WorkerByHand(app.store, tuple(app.job_types))
    return [call.id for call in worker.turn(wants=[Want("mail", count, count)], promote=True).claimed]


@pytest.mark.claim("Q1")
def test_an_application_may_have_several_instances_in_one_database(app: Make, instance: str) -> None:
    one, other = app(), app(name=f"{instance}_two")
    for each in (one, other):
        each.queue("mail")
        each.enqueue("mail", "send", job_key="k")
    assert len(one.find()) == len(other.find()) == 1
    assert one.store.instances() == other.store.instances()


@pytest.mark.claim("Q1")
@pytest.mark.parametrize("name", ["Shop", "shop1", "shop-floor", "_shop", "shop__floor", ""])
def test_names_are_lower_case_alpha_with_underscores(app: Make, name: str) -> None:
    with pytest.raises(Invalid):
        app(name=name)
    with pytest.raises(Invalid):
        app().queue(name)
    app().queue("shop_floor")


@pytest.mark.claim("Q1")
def test_the_default_strategy_names_a_table_after_instance_and_queue(app: Make, instance: str, sql: RawSql) -> None:
    made = app()
    made.queue("mail")
    made.find()
    assert sql("select * from {queue:mail}") == []


@pytest.mark.claim("Q1")
def test_another_strategy_gives_other_names(app: Make, instance: str, sql: RawSql) -> None:
    made = app(table_naming_strategy=lambda hipq, queue: f"{queue}_of_{hipq}")
    made.queue("post")
    job = made.enqueue("post", "send")
    assert sql.value(f"select id from post_of_{instance}") == job.id
    other = app()
    other.queue("post")
    with pytest.raises(Conflict, match=f"post_of_{instance}"):
        other.find()


@pytest.mark.claim("Q1")
def test_db_config_may_be_json(app: Make, url: str, instance: str) -> None:
    written = f'{{"url": "{url}"}}'
    made = app(db_config=written)
    made.queue("mail")
    job = made.enqueue("mail", "send")
    assert app().get(job.id).create_time == job.create_time


@pytest.mark.claim("Q2", "Q3")
def test_a_queue_lists_all_registered_job_types(hipq: App) -> None:
    @hipq.queue("mail").job
    def send() -> None: ...

    hipq.enqueue("mail", "scan")  # you can just create a job instance
    assert {name for name, row in hipq.store.types().items() if row.queue == "mail"} == {"send", "scan"}


@pytest.mark.claim("Q3")
def test_a_job_type_has_these_defaults_and_handlers_and_a_job_may_have_its_own(hipq: App) -> None:
    @hipq.queue("mail").job(timeout=9, priority=8, throttle_factor=7, time_windows=["06:00-07:00"])
    def send() -> None: ...

    @send.retry_handler
    def again(job: Job, error: JobError) -> None: ...

    job = send.enqueue()
    row = hipq.store.types()["send"]
    assert (row.default_timeout, row.default_priority, row.default_throttle_factor, row.default_time_windows) == (
        *(9, 8, 7),
        ("06:00-07:00",),
    )
    assert (row.has_handler, row.has_retry_handler) == (True, True)
    assert (job.timeout, job.priority, job.throttle_factor, job.time_windows) == (9, 8, 7, ("06:00-07:00",))
    own = send.using(timeout=1, priority=2, throttle_factor=3, time_windows=[]).enqueue()
    assert (own.timeout, own.priority, own.throttle_factor, own.time_windows) == (1, 2, 3, ())


@pytest.mark.claim("W3")
def test_throttle_limit_is_how_many_jobs_run_at_a_time(app: Make) -> None:
    """If all jobs have a throttle factor of 1 and the queue throttle limit is 100, then 100 jobs can run at a time."""
    made = app()

    @made.queue("mail", throttle_limit=100).job
    def send() -> None: ...

    jobs = send.enqueue_many([{}] * 130)
    assert {job.throttle_factor for job in jobs} == {1}
    assert claim(made) == [job.id for job in jobs[:100]]
    assert claim(made) == []


@pytest.mark.claim("W3")
def test_a_limit_of_10_and_a_factor_of_2_run_exactly_5(app: Make) -> None:
    made = app()

    @made.queue("mail", throttle_limit=10).job(throttle_factor=2)
    def send() -> None: ...

    jobs = send.enqueue_many([{}] * 12)
    assert claim(made) == [job.id for job in jobs[:5]]
    assert claim(made) == []


@pytest.mark.claim("W3")
@pytest.mark.parametrize("limit", [0, 0.5, -1])
def test_a_limit_below_1_is_no_limit(app: Make, limit: float) -> None:
    made = app()

    @made.queue("mail", throttle_limit=limit).job
    def send() -> None: ...

    assert len(send.enqueue_many([{}] * 150)) == len(claim(made)) == 150


@pytest.mark.claim("W4")
def test_100_slots_are_split_40_30_30_by_region(app: Make) -> None:
    made = app()
    split = holdfast.share("region", {"eu": 40, "us": 30, "ap": 30})

    @made.queue("mail", throttle_limit=100, throttler=split).job
    def send(region: str) -> None: ...

    regions = ["eu", "us", "ap"] * 60
    jobs = send.enqueue_many([{"region": region} for region in regions])
    started = set(claim(made))
    found = [region for job, region in zip(jobs, regions, strict=True) if job.id in started]
    assert {region: found.count(region) for region in ("eu", "us", "ap")} == {"eu": 40, "us": 30, "ap": 30}
    assert claim(made) == []


@pytest.mark.claim("W2")
def test_a_lower_number_is_a_higher_priority_if_throttling_is_enabled(app: Make) -> None:
    made = app()

    @made.queue("mail", throttle_limit=1).job
    def send() -> None: ...

    jobs = {priority: send.using(priority=priority).enqueue() for priority in (50, 3, 100, 1)}
    worker = WorkerByHand(made.store)
    order = []
    for _ in jobs:
        call = worker.claim_one()
        order.append(call.id)
        worker.succeed(call)
    assert order == [jobs[priority].id for priority in (1, 3, 50, 100)]


@pytest.mark.claim("W2")
def test_without_throttling_priority_has_no_effect_on_what_may_run(hipq: App) -> None:
    @hipq.queue("mail").job
    def send() -> None: ...

    jobs = [send.using(priority=priority).enqueue().id for priority in (50, 3, 100, 1)]
    assert sorted(claim(hipq)) == jobs


@pytest.mark.claim("W5")
def test_a_job_runs_inside_its_start_and_end_time_of_day(hipq: App, clock: MovableClock) -> None:
    ran = []

    @hipq.queue("mail").job(time_windows=["03:47:18-04:11:59"])
    def send() -> None:
        ran.append(clock.now())

    send.enqueue()
    for at in ("03:47:17", "03:47:18"):
        clock.set(datetime.fromisoformat(f"2026-01-01T{at}+00:00"))
        hipq.run_until_idle()
    assert ran == [datetime(2026, 1, 1, 3, 47, 18, tzinfo=UTC)]
    clock.set(datetime(2026, 1, 1, 4, 11, 59, tzinfo=UTC))
    late = send.enqueue()
    assert hipq.run_until_idle() == 0
    assert late.refresh().scheduled_run_time == datetime(2026, 1, 2, 3, 47, 18, tzinfo=UTC)


@pytest.mark.claim("R4")
def test_a_job_that_is_not_successful_within_its_timeout_gets_a_timeout_error(hipq: App) -> None:
    @hipq.queue("mail").job(timeout=0.05, retries=0, isolation="process")
    def hang() -> None:
        import time

        time.sleep(30)

    job = hang.enqueue()
    hipq.run_until_idle()
    error = job.refresh().error
    assert error is not None
    assert (error.kind, job.refresh().state) == ("timeout", "final")
    assert "0.05" in str(error)


@pytest.mark.claim("J6")
def test_scheduled_run_time_is_when_it_runs_next_and_in_final_state_the_last_time_wanted(
    hipq: App, clock: MovableClock
) -> None:
    job = hipq.enqueue("mail", "send", delay=10, retries=1)
    worker = WorkerByHand(hipq.store)
    clock.advance(10)
    worker.fail(worker.claim_one(), retry_delay=60.0)
    wanted = clock.now() + timedelta(seconds=60)
    assert job.refresh().scheduled_run_time == wanted
    clock.advance(99)
    worker.succeed(worker.claim_one())
    clock.advance(99)
    assert (job.refresh().state, job.refresh().scheduled_run_time) == ("final", wanted)


@pytest.mark.claim("J6", "J3")
def test_create_time_never_changes_and_update_time_not_once_final(hipq: App, clock: MovableClock) -> None:
    job = hipq.enqueue("mail", "send")
    worker = WorkerByHand(hipq.store)
    clock.advance(1)
    call = worker.claim_one()
    clock.advance(1)
    worker.succeed(call)
    ended = clock.now()
    clock.advance(1)
    worker.succeed(call)
    hipq.store.restore(0, 100, 0)
    assert (job.refresh().create_time, job.refresh().update_time) == (job.create_time, ended)


@pytest.mark.claim("R5")
def test_on_error_the_retry_handler_always_runs_if_there_is_one(hipq: App) -> None:
    asked: list[tuple[int, str]] = []

    @hipq.queue("mail").job(retries=0)
    def send() -> None:
        raise ValueError("broken")

    @send.retry_handler
    def again(job: Job, error: JobError) -> Retry | holdfast.jobs.outcome.GiveUp:
        asked.append((job.attempt, str(error)))
        return Retry(delay=0) if job.attempt < 4 else holdfast.GIVE_UP

    job = send.enqueue()
    hipq.run_until_idle()
    assert asked == [(number, "broken") for number in (1, 2, 3, 4)]
    assert (job.refresh().state, job.refresh().outcome) == ("final", "error")


@pytest.mark.claim("R1")
def test_a_job_is_in_running_before_its_code_begins(hipq: App) -> None:
    """Persistent and actual state differ by what a crash makes of them, never by a job that runs unseen."""
    seen = []

    @hipq.queue("mail").job
    def send() -> None:
        seen.append(hipq.get(holdfast.current_job().id).state)

    send.enqueue()
    hipq.run_until_idle()
    assert seen == [State.RUNNING]


class TestTheAppHasCrashed:
    """Persistent state may be running, but the app has crashed."""

    @pytest.mark.claim("C3")
    def test_with_no_retry_logic_the_job_ends_by_its_timeout(self, hipq: App, clock: MovableClock) -> None:
        @hipq.queue("mail").job(on_crash="timeout", retries=0, timeout=300)
        def send() -> None: ...

        job = send.enqueue()
        worker = WorkerByHand(hipq.store)
        worker.claim_one()
        worker.die()
        hipq.run_until_idle()
        assert job.refresh().state == "running"  # as far as anybody knows

        clock.advance(300)
        hipq.run_until_idle()

        found = job.refresh()
        assert (found.state, found.outcome, found.attempt) == ("final", "error", 1)
        assert found.error is not None
        assert found.error.kind == "timeout"

    @pytest.mark.claim("C3", "R5")
    def test_with_retry_logic_the_timeout_leads_to_another_try(self, hipq: App, clock: MovableClock) -> None:
        @hipq.queue("mail").job(on_crash="timeout", retries=0, timeout=300)
        def send() -> str:
            return "sent"

        @send.retry_handler
        def again(job: Job, error: JobError) -> Retry:
            assert error.kind == "timeout"
            return Retry(delay=0)

        job = send.enqueue()
        worker = WorkerByHand(hipq.store)
        worker.claim_one()
        worker.die()
        clock.advance(300)
        assert hipq.run_until_idle() == 1

        assert (job.refresh().result, job.refresh().attempt) == ("sent", 2)

    @pytest.mark.claim("R1", "C3")
    def test_no_job_ends_in_a_black_hole(self, hipq: App) -> None:
        """We make an absolute guarantee that your job will be run. But it may be run more than once."""
        ran = []

        @hipq.queue("mail").job
        def send(n: int) -> None:
            ran.append(n)

        jobs = send.enqueue_many([{"n": n} for n in range(5)])
        for _ in range(2):
            worker = WorkerByHand(hipq.store)
            worker.claim(3)
            worker.die()
        hipq.run_until_idle()
        assert sorted(ran) == [0, 1, 2, 3, 4]
        assert {job.refresh().state for job in jobs} == {"final"}
        assert [job.refresh().attempt for job in jobs] == [3, 3, 3, 1, 1]
