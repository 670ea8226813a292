"""E1, E2: every reason why a job is not running, reached by what really happens, and what history forecasts."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from hypothesis.stateful import invariant, run_state_machine_as_test

from holdfast import App, Explanation, NotFound
from holdfast.clock import MovableClock
from holdfast.jobs import throttlers
from holdfast.jobs.explain import explain
from holdfast.jobs.holds import Level
from holdfast.jobs.job import Answer, Job, Progress
from holdfast.jobs.reasons import Reason
from holdfast.jobs.retry import Adaptive, encode
from holdfast.jobs.states import Decided, Waited
from holdfast.jobs.throttlers import Function, Throttler, per_key, rate, share
from holdfast.stores.contract import (
    Done,
    NewJob,
    Note,
    QueueDeclared,
    Report,
    Store,
    Submission,
    Turn,
    Want,
    WorkerJoin,
)
from holdfast.workflows.definition import Definition, StepDefinition
from tests.by_hand import WorkerByHand, add, declare, error
from tests.prepared import Prepared
from tests.raw_sql import RawSql
from tests.stores.test_random_histories import Draw, Histories

pytestmark = pytest.mark.claim("E1")

STARTS = {Reason.IN_LINE, Reason.LOOSE, Reason.ALONE}
SUNDAY_NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def why(store: Store, job: Job | int) -> Explanation:
    return explain(store.facts(job if isinstance(job, int) else job.id))


def at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


def join(store: Store, types: tuple[str, ...] = ("send",), queues: tuple[str, ...] = ("mail",), **more: Any) -> int:
    """A worker that says of itself what real ones say."""
    named = {"labels": (), "concurrency": 1, **more}
    return store.join(WorkerJoin("ann-1", "ann", 7, "0", queues, types, **named))


@pytest.fixture
def limited(store: Store, instance: str) -> Store:
    store.register([QueueDeclared("mail", f"{instance}_mail", "priority", 10)], [])
    return store


class TestTime:
    def test_a_job_of_tomorrow_is_not_due(self, store: Store, clock: MovableClock) -> None:
        WorkerByHand(store)
        tomorrow = clock.now() + timedelta(days=1)
        job = add(store, scheduled_run_time=tomorrow)

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.NOT_DUE, tomorrow)
        assert told.text == f"Job {job.id} (send) is not due until {at(tomorrow)} (in 24 h)."
        assert told.details["forecast_start_time"] == tomorrow
        assert told.details["also"] == []

    def test_a_job_whose_window_is_closed_waits_for_its_opening(self, store: Store, clock: MovableClock) -> None:
        clock.set(SUNDAY_NOON)
        WorkerByHand(store)
        job = add(store, time_windows=("mon-fri 08:00-17:00",))
        opening = datetime(2026, 11, 16, 8, tzinfo=UTC)

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.WINDOW, opening)
        assert "mon-fri 08:00-17:00" in told.text
        assert f"opens at {at(opening)}" in told.text
        assert told.details["time_windows"] == ["mon-fri 08:00-17:00"]

    def test_a_job_whose_window_closed_before_its_turn_waits_for_the_next_one(
        self, store: Store, clock: MovableClock
    ) -> None:
        clock.set(SUNDAY_NOON)
        WorkerByHand(store)
        job = add(store, time_windows=("11:00-13:00",))
        clock.set(SUNDAY_NOON + timedelta(hours=2))

        before_the_sweep = why(store, job)
        store.shut()

        assert (before_the_sweep.reason, before_the_sweep.until) == (Reason.WINDOW, SUNDAY_NOON + timedelta(hours=23))
        assert why(store, job).until == before_the_sweep.until

    def test_a_job_wanted_within_a_later_window_is_only_not_due(self, store: Store, clock: MovableClock) -> None:
        clock.set(SUNDAY_NOON)
        WorkerByHand(store)
        wanted = SUNDAY_NOON + timedelta(days=2, hours=1)

        told = why(store, add(store, time_windows=("12:30-14:00",), scheduled_run_time=wanted))

        assert (told.reason, told.until) == (Reason.NOT_DUE, wanted)

    def test_a_job_that_expires_before_its_window_opens_again_can_never_start(
        self, store: Store, clock: MovableClock
    ) -> None:
        clock.set(SUNDAY_NOON)
        WorkerByHand(store)
        expires = SUNDAY_NOON + timedelta(hours=4)
        job = add(store, time_windows=("11:00-13:00",), expires_time=expires)
        clock.set(SUNDAY_NOON + timedelta(hours=2))
        store.shut()

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.EXPIRES_FIRST, expires)
        assert "can never start" in told.text
        assert told.details["forecast_start_time"] is None

    def test_an_expired_job_is_ended_by_the_next_sweep(self, store: Store, clock: MovableClock) -> None:
        WorkerByHand(store)
        expires = clock.now() + timedelta(seconds=60)
        job = add(store, expires_time=expires)
        clock.advance(61)

        told = why(store, job)

        assert told.reason == Reason.EXPIRED
        assert at(expires) in told.text
        store.shut()
        assert why(store, job).reason == Reason.FINAL

    def test_a_job_that_failed_is_tried_again_at_its_time(self, store: Store, clock: MovableClock) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.fail(worker.claim_one(), retry_delay=90.0)

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.RETRY_DELAY, clock.now() + timedelta(seconds=90))
        assert "failed in attempt 1 (ValueError: it broke)" in told.text
        assert told.details["error"]["message"] == "it broke"
        assert told.details["failures"] == 1

    @pytest.mark.claim("R5")
    def test_an_error_waits_for_a_process_that_has_the_retry_handler(self, store: Store) -> None:
        declare(store, has_retry_handler=True)
        worker, job = WorkerByHand(store), add(store)
        worker.fail(worker.claim_one())

        asked = why(store, job)
        worker.die()
        alone = why(store, job)

        assert asked.reason == alone.reason == Reason.RETRY_HANDLER
        assert f"worker {worker.id} ({'hand'}" in asked.text
        assert "will be asked if its code has it" in asked.text
        assert "no live worker has it" in alone.text
        store.report([Report(job.id, Decided(error(), retry_delay=5.0), 1, "send")])
        assert why(store, job).reason == Reason.RETRY_DELAY

    def test_a_snoozed_job_sleeps_until_its_time(self, store: Store, clock: MovableClock) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.snooze(worker.claim_one(), 30.0)

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.SNOOZED, clock.now() + timedelta(seconds=30))
        assert told.details["situation"] == "loose"


class TestNobodyTakesIt:
    def test_a_paused_queue_names_who_paused_it_and_when(self, store: Store, clock: MovableClock) -> None:
        WorkerByHand(store)
        job = add(store)
        store.pause("mail", True, "ann")
        paused, _ = clock.now(), clock.advance(120)

        told = why(store, job)

        assert told.reason == Reason.PAUSED
        assert told.text == (
            f"Job {job.id} (send) stands in queue `mail`, which is paused since {at(paused)} (2 min ago), by ann."
        )
        assert (told.details["pause_time"], told.details["paused_by"]) == (paused, "ann")

    def test_a_held_task_names_who_holds_it_and_how_to_let_it_go(self, store: Store, clock: MovableClock) -> None:
        steps = (StepDefinition(name="calc"),)
        run = store.submit(Submission(definition=Definition(name="report", steps=steps, queue="mail"), trigger="t"))
        (job,) = store.tasks(run.id, "calc")
        worker = WorkerByHand(store, ("report.calc",))
        store.hold(Level.PICK, "report", "t", "ann")
        held, _ = clock.now(), clock.advance(120)

        for _ in range(2):  # while it stands in line, and after a claim has met it
            told = why(store, job)
            assert told.reason == Reason.ON_HOLD
            assert told.text == (
                f"Job {job.id} (report.calc) may not start: it is held by ann, who holds `pick` of run `t` of workflow `report` "
                f"since {at(held)} (2 min ago)."
            )
            assert told.details["release"] == "holdfast workflows release pick report t"
            assert worker.claim() == []
        store.release(Level.PICK, "report", "t", "ann")
        assert why(store, job).reason == Reason.IN_LINE

    def test_without_any_worker_the_sentence_says_so(self, store: Store) -> None:
        told = why(store, add(store))

        assert (told.reason, told.details["problem"]) == (Reason.NO_WORKER, "none")
        assert "none is running" in told.text

    @pytest.mark.claim("Q4")
    def test_a_type_that_no_live_worker_handles_is_named(self, store: Store) -> None:
        worker = WorkerByHand(store, types=("print",))
        store.add_type("fly", "mail")
        known, unknown = why(store, add(store)), why(store, add(store, "fly"))
        store.park(("print",))  # a sweeper has put both out of the way of others
        parked = why(store, add(store))

        assert known.reason == unknown.reason == parked.reason == Reason.NO_WORKER
        assert known.details["problem"] == "type"
        assert f"the only live worker, {worker.id} (hand-" in known.text
        assert "does not handle `send`" in known.text
        assert "no code has declared a handler" not in known.text
        assert "no code has declared a handler" in unknown.text

    def test_missing_labels_are_named(self, store: Store) -> None:
        declare(store, labels=("gpu", "big"))
        for labels in ((), ("gpu",)):
            join(store, types=(), labels=labels)

        told = why(store, add(store))

        assert (told.reason, told.details["problem"]) == (Reason.NO_WORKER, "labels")
        assert "requires labels `gpu` and `big`" in told.text
        assert "none of the 2 live workers has label `big`" in told.text
        assert told.details["required_labels"] == ["gpu", "big"]
        assert told.details["missing_labels"] == ["big"]
        assert [each["missing_labels"] for each in told.details["workers"]] == [["gpu", "big"], ["big"]]

    def test_a_worker_of_other_queues_does_not_count(self, store: Store) -> None:
        worker = join(store, queues=("fax", "post"))

        told = why(store, add(store))

        assert (told.reason, told.details["problem"]) == (Reason.NO_WORKER, "queue")
        assert (
            f"worker {worker} (ann-1) handles `send`, but serves only queues `fax` and `post`, not `mail`" in told.text
        )

    def test_a_worker_of_all_queues_serves_those_made_after_it_came(self, store: Store) -> None:
        join(store, queues=("fax",), every_queue=True)

        assert why(store, add(store)).reason == Reason.IN_LINE

    def test_a_real_worker_says_whether_it_serves_every_queue(self, app: Callable[..., App]) -> None:
        one = app()
        one.queue("mail").job(name="send")(lambda: None)
        with one.worker():
            two = app()
            two.queue("fax")
            two.enqueue("fax", "draw")
            assert [worker.every_queue for worker in two.workers()] == [True]
        with one.worker(queues=["mail"]):
            assert [worker.every_queue for worker in two.workers()] == [False]

    def test_a_worker_that_stops_takes_nothing(self, store: Store) -> None:
        worker = join(store)
        store.beat(worker, stopping=True)

        told = why(store, add(store))

        assert (told.reason, told.details["problem"]) == (Reason.NO_WORKER, "stopping")

    def test_several_reasons_are_told_the_first_one_first(self, store: Store, clock: MovableClock) -> None:
        job = add(store, delay=60.0)
        store.pause("mail", True, "ann")

        told = why(store, job)

        assert told.reason == Reason.NOT_DUE
        assert [other["reason"] for other in told.details["also"]] == ["paused", "no_worker"]
        assert told.details["forecast_start_time"] is None
        clock.advance(61)
        assert why(store, job).reason == Reason.PAUSED


@pytest.mark.claim("R6")
class TestBreaker:
    @pytest.fixture
    def tripped(self, store: Store) -> WorkerByHand:
        """A type that failed twice and rests now."""
        declare(store, retry=encode(Adaptive(breaker=2, probe=60.0)))
        worker = WorkerByHand(store)
        for _ in range(2):
            add(store, retries=0)
            worker.fail(worker.claim_one())
        return worker

    def test_an_open_breaker_tells_until_when(self, tripped: WorkerByHand, store: Store, clock: MovableClock) -> None:
        opened, job = clock.now(), add(store)
        until = opened + timedelta(seconds=60)
        clock.advance(10)

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.BREAKER_OPEN, until)
        assert f"after 2 failures in a row none starts until {at(until)}" in told.text
        assert (told.details["breaker"], told.details["opened_time"]) == ("open", opened)
        assert told.details["failures_in_a_row"] == 2
        assert told.details["forecast_start_time"] is None

    def test_while_one_job_probes_the_type_the_others_wait_for_it(
        self, tripped: WorkerByHand, store: Store, clock: MovableClock
    ) -> None:
        probe, other = add(store), add(store)
        clock.advance(61)
        due = why(store, other)
        call = tripped.claim_one()

        told = why(store, other)

        assert call.id == probe.id
        assert "the next claim lets one job probe the type" in due.text
        assert (told.reason, told.details["probe"]) == (Reason.BREAKER_OPEN, probe.id)
        assert f"job {probe.id} probes the type" in told.text
        assert why(store, probe).reason == Reason.HELD
        tripped.succeed(call)
        assert why(store, other).reason == Reason.IN_LINE

    def test_jobs_that_rest_do_not_count_as_before_another(self, tripped: WorkerByHand, store: Store) -> None:
        add(store)

        assert why(store, add(store, "print")).details["before"] == 0


class TestLimits:
    def test_a_used_up_limit_names_the_jobs_that_use_it(self, limited: Store) -> None:
        worker = WorkerByHand(limited)
        holders = [add(limited, throttle_factor=2).id for _ in range(5)]
        for _ in holders:
            worker.claim(1)
        first, second = add(limited), add(limited)

        told, behind = why(limited, first), why(limited, second)

        assert told.reason == behind.reason == Reason.THROTTLED
        names = ", ".join(map(str, holders[:4]))
        assert f"10 of its limit 10 used by jobs {names} and {holders[4]}; it needs 1" in told.text
        assert told.details["used_by"] == holders
        assert (told.details["used"], told.details["throttle_limit"]) == (10, 10)
        assert (told.details["before"], behind.details["before"]) == (0, 1)

    def test_of_many_jobs_that_use_it_the_first_few_are_named(self, limited: Store) -> None:
        worker = WorkerByHand(limited)
        for _ in range(10):
            add(limited)
            worker.claim(1)

        told = why(limited, add(limited))

        assert told.reason == Reason.THROTTLED
        assert "and 5 others" in told.text
        assert told.details["used_by_count"] == 10

    def test_a_job_that_waits_for_an_answer_uses_the_limit_too(self, limited: Store) -> None:
        worker, waiting = WorkerByHand(limited), add(limited, throttle_factor=10)
        worker.tell(worker.claim_one(), Waited())

        assert why(limited, add(limited)).details["used_by"] == [waiting.id]

    def test_what_is_free_is_reserved_for_a_heavier_job_before(self, limited: Store) -> None:
        worker = WorkerByHand(limited)
        add(limited, throttle_factor=8)
        worker.claim(1)
        heavy, light, free = add(limited, throttle_factor=5), add(limited), add(limited, throttle_factor=0)

        told = why(limited, light)

        assert why(limited, heavy).reason == Reason.THROTTLED
        assert told.reason == Reason.RESERVED
        assert f"reserved for job {heavy.id}" in told.text
        assert told.details["reserved_for"] == heavy.id
        assert why(limited, free).reason == Reason.IN_LINE
        assert [call.id for call in worker.turn(wants=[Want("mail", 10, 10)]).claimed] == [free.id]

    def test_a_heavy_job_that_nobody_can_run_reserves_nothing(self, limited: Store) -> None:
        worker = WorkerByHand(limited, types=("send",))
        add(limited, throttle_factor=8)
        worker.claim(1)
        add(limited, "print", throttle_factor=5)

        assert why(limited, add(limited)).reason == Reason.IN_LINE

    @pytest.mark.claim("W3")
    def test_a_factor_above_a_lowered_limit_cannot_start(self, limited: Store) -> None:
        WorkerByHand(limited)
        job = add(limited, throttle_factor=5)
        limited.limit("mail", 4, "ann")

        told = why(limited, job)

        assert told.reason == Reason.FACTOR_ABOVE_LIMIT
        assert "throttle_factor 5, more than the whole limit 4 of queue `mail`" in told.text


@pytest.mark.claim("W4")
class TestThrottlers:
    @pytest.fixture
    def by_region(self, store: Store, instance: str) -> Store:
        throttled(store, instance, share("region", {"eu": 3, "us": 2}))
        return store

    def test_a_used_up_share_names_its_value_and_the_jobs_that_use_it(self, by_region: Store) -> None:
        worker = WorkerByHand(by_region)
        holders = [add(by_region, payload='{"region":"eu"}').id for _ in range(3)]
        for _ in holders:
            worker.claim(1)
        add(by_region, payload='{"region":"us"}')
        worker.claim(1)
        eu, us = (add(by_region, payload=f'{{"region":"{region}"}}') for region in ("eu", "us"))

        told = why(by_region, eu)

        assert (told.reason, told.details["pool"]) == (Reason.SHARE, "eu")
        names = f"{holders[0]}, {holders[1]} and {holders[2]}"
        assert f"a slot of region 'eu' in queue `mail`: 3 of 3 used by jobs {names}; it needs 1" in told.text
        assert told.details["used_by"] == holders
        assert why(by_region, us).reason == Reason.IN_LINE

    def test_a_slot_of_a_share_is_reserved_for_a_heavier_job_before(self, by_region: Store) -> None:
        worker = WorkerByHand(by_region)
        add(by_region, payload='{"region":"eu"}')
        worker.claim(1)
        heavy = add(by_region, payload='{"region":"eu"}', throttle_factor=3)
        light, other = (add(by_region, payload=f'{{"region":"{region}"}}') for region in ("eu", "us"))

        told = why(by_region, light)

        assert (told.reason, told.details["reserved_for"]) == (Reason.RESERVED, heavy.id)
        assert "room among the slots of region 'eu' in queue `mail` (1 of 3 used)" in told.text
        assert why(by_region, other).reason == Reason.IN_LINE

    def test_a_job_that_stands_aside_is_explained_like_one_in_line(self, by_region: Store, sql: RawSql) -> None:
        worker = WorkerByHand(by_region)
        jobs = [add(by_region, payload='{"region":"eu"}').id for _ in range(40)]
        add(by_region, payload='{"region":"us"}')
        worker.turn(wants=[Want("mail", 20, 20)])
        (last,) = sql("select max(id) as id from {aside}")

        told = why(by_region, last["id"])

        assert (told.reason, told.details["before"]) == (Reason.SHARE, jobs.index(last["id"]) - 3)

    def test_a_heavier_job_that_stands_aside_collects_the_slots_of_its_share(self, by_region: Store) -> None:
        worker = WorkerByHand(by_region)
        for _ in range(3):
            add(by_region, payload='{"region":"eu"}', priority=1)
        heavy = add(by_region, payload='{"region":"eu"}', throttle_factor=3)
        light = [add(by_region, payload='{"region":"eu"}') for _ in range(40)]
        add(by_region, payload='{"region":"us"}')
        held = worker.turn(wants=[Want("mail", 20, 20)]).claimed
        worker.turn(done=[Done(held[0], 1.0, None)], ended_leases=[held[0].lease])

        told = why(by_region, light[-1])

        assert why(by_region, heavy).reason == Reason.SHARE
        assert (told.reason, told.details["reserved_for"]) == (Reason.RESERVED, heavy.id)
        assert why(by_region, add(by_region, payload='{"region":"us"}')).details["before"] == 0

    def test_a_factor_above_a_share_that_became_smaller_cannot_start(self, by_region: Store, instance: str) -> None:
        WorkerByHand(by_region)
        job = add(by_region, payload='{"region":"eu"}', throttle_factor=3)
        throttled(by_region, instance, share("region", {"eu": 2, "us": 2}))

        told = why(by_region, job)

        assert told.reason == Reason.FACTOR_ABOVE_LIMIT
        assert "throttle_factor 3, more than all 2 slots of region 'eu' in queue `mail`" in told.text

    def test_a_rate_tells_when_the_turn_of_a_job_comes(self, store: Store, instance: str, clock: MovableClock) -> None:
        throttled(store, instance, rate(6, per=60, burst=1))
        worker = WorkerByHand(store)
        add(store)
        worker.claim_one()
        jobs = [add(store) for _ in range(3)]
        turn = clock.now() + timedelta(seconds=30)

        told = why(store, jobs[2])

        assert (told.reason, told.until) == (Reason.RATE, turn)
        assert f"start at a rate of 6 in 60 s; its turn comes at {at(turn)}" in told.text
        assert told.details["before"] == 2
        clock.advance(10)
        assert why(store, jobs[0]).reason == Reason.IN_LINE
        assert why(store, jobs[2]).until == turn

    def test_a_function_has_not_admitted_it_yet(self, store: Store, instance: str) -> None:
        throttled(store, instance, Function("fair"))
        join(store, concurrency=2)

        told = why(store, add(store))

        assert (told.reason, told.details["throttler"]) == (Reason.REFUSED, "fair")
        assert "not admitted yet by `fair`, the throttler of queue `mail`" in told.text

    @settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        throttler=some.sampled_from(
            [None, share("region", {"eu": 3, "us": 4}), per_key("region", 3), rate(1, per=1, burst=3)]
        ),
        limit=some.sampled_from([0, 3, 5]),
        wanted=some.lists(
            some.tuples(some.sampled_from([0, 0.5, 1, 2, 3]), some.sampled_from(["eu", "us"]), some.integers(1, 3)),
            min_size=1,
            max_size=12,
        ),
    )
    def test_what_is_said_is_what_a_claim_does(
        self,
        store: Store,
        instance: str,
        clock: MovableClock,
        throttler: Throttler | None,
        limit: float,
        wanted: list[tuple[float, str, int]],
    ) -> None:
        """Nothing starts that was held back, and what is left after a claim with room for all is held back."""
        throttled(store, instance, throttler, limit)
        jobs = [
            add(store, payload=f'{{"region":"{region}"}}', throttle_factor=factor, priority=priority).id
            for factor, region, priority in wanted
        ]
        worker, left = join(store, concurrency=100), set(jobs)
        try:
            for _ in range(3):
                before = {job: why(store, job).reason for job in left}
                answer = store.exchange(Turn(worker, types=("send",), wants=[Want("mail", 100, 100)], promote=True))
                started = {call.id for call in answer.claimed}
                left -= started
                assert {before[job] for job in started} <= STARTS
                assert STARTS.isdisjoint(why(store, job).reason for job in left)
                clock.advance(1)
        finally:
            for job in jobs:
                store.abort(job, "ann")
            store.end_old_aborts(-1)
            store.lose(worker)


def throttled(store: Store, instance: str, throttler: Throttler | None, limit: float = 0) -> None:
    store.register([QueueDeclared("mail", f"{instance}_mail", "priority", limit, throttlers.encode(throttler))], [])


class TestInLine:
    def test_a_job_behind_others_counts_them_and_the_busy_slots(self, store: Store) -> None:
        worker = WorkerByHand(store)
        add(store)
        worker.claim_one()
        jobs = [add(store) for _ in range(4)]
        urgent = add(store, priority=1)

        told, first = why(store, jobs[3]), why(store, urgent)

        assert told.reason == first.reason == Reason.IN_LINE
        assert "4 jobs before it, and the only slot of worker" in told.text
        assert "is busy" in told.text
        assert (told.details["before"], told.details["slots"], told.details["slots_busy"]) == (4, 1, 1)
        assert "it is the next" in first.text

    def test_jobs_that_nobody_can_run_are_not_counted(self, store: Store) -> None:
        WorkerByHand(store, types=("send",))
        add(store, "print")

        assert why(store, add(store)).details["before"] == 0

    def test_free_slots_are_told(self, store: Store) -> None:
        join(store, concurrency=8)

        told = why(store, add(store))

        assert told.reason == Reason.IN_LINE
        assert "8 of 8 slots of worker" in told.text

    def test_a_job_that_just_became_due_is_in_line_before_any_turn(self, store: Store, clock: MovableClock) -> None:
        WorkerByHand(store)
        job = add(store, delay=5.0)
        clock.advance(6)

        assert why(store, job).reason == Reason.IN_LINE

    def test_an_error_that_is_due_again_is_in_line_and_tells_of_it(self, store: Store, clock: MovableClock) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.fail(worker.claim_one(), retry_delay=5.0)
        clock.advance(6)

        told = why(store, job)

        assert told.reason == Reason.IN_LINE
        assert "attempt 1 failed: ValueError: it broke" in told.text

    def test_more_than_a_thousand_before_it_are_not_counted(self, store: Store) -> None:
        WorkerByHand(store)
        store.add([NewJob("mail", "send", "{}") for _ in range(1200)])

        told = why(store, add(store))

        assert "more than 1000 jobs before it" in told.text
        assert (told.details["before"], told.details["more_before"]) == (1000, True)

    @pytest.mark.claim("C4")
    def test_a_job_that_lost_its_place_is_put_back_by_a_sweeper(self, store: Store, sql: RawSql) -> None:
        WorkerByHand(store)
        job = add(store)
        sql("delete from {ready} where id = :id", id=job.id)

        told = why(store, job)

        assert told.reason == Reason.OUT_OF_LINE
        assert store.restore(0, 1000, -1) == (0, 1)
        assert why(store, job).reason == Reason.IN_LINE


@pytest.mark.claim("J12")
class TestLoose:
    def test_a_lost_job_is_loose(self, store: Store) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.claim_one()
        worker.die()
        WorkerByHand(store)

        told = why(store, job)

        assert (told.reason, told.details["cause"]) == (Reason.LOOSE, "lost")
        assert "its attempt 1 was lost with its worker" in told.text

    def test_a_job_that_was_handed_back_is_loose(self, store: Store) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.hand_back(worker.claim_one())

        told = why(store, job)

        assert (told.reason, told.details["cause"]) == (Reason.LOOSE, "handed_back")

    def test_a_job_whose_snooze_is_over_is_loose(self, store: Store, clock: MovableClock) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.snooze(worker.claim_one(), 5.0)
        clock.advance(6)

        told = why(store, job)

        assert (told.reason, told.details["cause"]) == (Reason.LOOSE, "snoozed")

    def test_an_answered_job_waits_for_its_response_handler(self, store: Store) -> None:
        declare(store, has_response_handler=True)
        worker, job = WorkerByHand(store), add(store)
        worker.tell(worker.claim_one(), Waited())
        store.answer(job.id, Answer("1"), "ann")

        told = why(store, job)

        assert (told.reason, told.details["cause"]) == (Reason.LOOSE, "answered")
        assert "response handler is to be called with, by a worker whose code has it" in told.text
        assert told.details["answer_kept"] is False

    def test_what_stands_in_the_way_of_a_loose_job_comes_first(self, store: Store) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.hand_back(worker.claim_one())
        store.pause("mail", True, "ann")

        assert why(store, job).reason == Reason.PAUSED

    @pytest.mark.claim("C3")
    def test_a_job_that_was_lost_again_and_again_is_to_run_alone(self, store: Store) -> None:
        job = add(store)
        for _ in range(3):
            worker = WorkerByHand(store)
            worker.claim_one()
            worker.die()
        WorkerByHand(store)

        told = why(store, job)

        assert told.reason == Reason.ALONE
        assert "was lost 3 times in a row" in told.text
        assert told.details["losses"] == 3


class TestSomebodyHasIt:
    def test_a_wait_tells_its_key_and_until_when(self, store: Store, clock: MovableClock) -> None:
        worker, job = WorkerByHand(store), add(store, job_key="order-7")
        worker.tell(worker.claim_one(), Waited(timeout=600.0, named=True))
        until = clock.now() + timedelta(seconds=600)

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.WAITS_FOR_ANSWER, until)
        assert f"waits for an answer to key `order-7` until {at(until)}" in told.text
        assert told.details["job_key"] == "order-7"

    def test_a_wait_without_key_or_end_tells_its_id(self, store: Store) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.tell(worker.claim_one(), Waited(timeout=None, named=True))

        told = why(store, job)

        assert told.until is None
        assert f"an answer to its id {job.id} as long as it takes" in told.text

    def test_an_answer_that_came_early_is_told_of(self, store: Store) -> None:
        WorkerByHand(store)
        job = add(store)
        store.answer(job.id, Answer("1"), "ann")

        told = why(store, job)

        assert told.reason == Reason.IN_LINE
        assert told.details["answer_kept"] is True
        assert "An answer to it came early and is kept" in told.text

    def test_a_held_job_tells_where_and_since_when(self, store: Store, clock: MovableClock) -> None:
        worker, job = WorkerByHand(store), add(store)
        began = clock.now()
        worker.claim_one()
        clock.advance(4)

        told = why(store, job)

        assert told.reason == Reason.HELD
        assert f"attempt 1 on worker {worker.id} (hand-" in told.text
        assert f"on here, since {at(began)} (4.0 s ago)" in told.text
        assert (told.details["worker"], told.details["host"], told.details["start_time"]) == (worker.id, "here", began)
        assert told.details["usual_seconds"] is None

    def test_a_held_job_tells_how_far_it_is(self, store: Store) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.claim_one()
        store.note([Note(job.id, 1, "mail", Progress(0.4, "row 40"))])

        told = why(store, job)

        assert "It is 40% done: row 40." in told.text
        assert told.details["progress"] == {"fraction": 0.4, "text": "row 40"}

    def test_a_holder_that_is_silent_is_told_of(self, store: Store, clock: MovableClock) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.claim_one()
        clock.advance(20)

        assert "no sign of life for 20 s" in why(store, job).text
        store.beat(worker.id)
        assert "no sign of life" not in why(store, job).text

    def test_a_held_job_that_somebody_wants_to_end_says_so(self, store: Store, clock: MovableClock) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.claim_one()
        store.abort(job.id, "bob")

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.ABORT_ASKED, clock.now() + timedelta(seconds=10))
        assert "as bob asked" in told.text

    @pytest.mark.claim("C3")
    def test_a_crashed_job_counts_as_running_until_its_timeout_where_the_type_says_so(
        self, store: Store, clock: MovableClock
    ) -> None:
        declare(store, on_crash="timeout")
        worker, job = WorkerByHand(store), add(store, timeout=300.0)
        began = clock.now()
        worker.claim_one()
        clock.advance(40)
        worker.die()

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.CRASHED, began + timedelta(seconds=300))
        assert f"lost with worker {worker.id}" in told.text

    def test_a_job_of_a_worker_that_is_gone_waits_for_a_sweep(self, store: Store) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.claim_one()
        store.leave(worker.id)

        told = why(store, job)

        assert told.reason == Reason.WORKER_LOST
        store.recover_strays()
        assert why(store, job).reason == Reason.NO_WORKER


class TestEnded:
    def test_a_final_job_tells_its_outcome_and_error(self, store: Store) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.fail(worker.claim_one(), "failed")

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.FINAL, None)
        assert "ended `failed` at" in told.text
        assert "in attempt 1: Failed: it broke" in told.text
        assert told.details["retried_as"] is None

    def test_a_job_that_was_retried_by_hand_names_the_new_one(self, app: Callable[..., App]) -> None:
        shop = app()
        shop.queue("mail").job(name="send")(lambda: None)
        job = shop.enqueue("mail", "send")
        shop.run_until_idle()
        new = shop.retry(job.id)

        told = job.explain()

        assert told.details["retried_as"] == new.id
        assert f"retried as job {new.id}" in told.text

    @pytest.mark.claim("E4")
    def test_an_archived_job_says_so(self, store: Store, clock: MovableClock) -> None:
        worker, job = WorkerByHand(store), add(store)
        worker.succeed(worker.claim_one())
        clock.advance(10)
        store.archive(5)

        told = why(store, job)

        assert told.reason == Reason.ARCHIVED
        assert "ended `success`" in told.text

    def test_a_job_that_never_was_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound, match="no job 17"):
            store.facts(17)


@pytest.mark.claim("E2")
class TestForecast:
    def run(self, worker: WorkerByHand, clock: MovableClock, *seconds: float, job_type: str = "send") -> None:
        for each in seconds:
            add(worker.store, job_type)
            call = worker.claim_one()
            clock.advance(each)
            worker.succeed(call, seconds=each)

    def test_a_held_job_tells_how_long_its_type_usually_takes(self, store: Store, clock: MovableClock) -> None:
        worker = WorkerByHand(store)
        self.run(worker, clock, 1.0, 1.1, 1.2, 1.3, 4.0)
        self.run(worker, clock, *[60.0] * 5, job_type="print")
        job, began = add(store), clock.now()
        worker.claim_one()

        told = why(store, job)

        assert "`send` usually takes 1.2 s, nine of ten at most 4.0 s" in told.text
        assert (told.details["usual_seconds"], told.details["usual_of"]) == (1.2, 5)
        assert told.details["forecast_end_time"] == began + timedelta(seconds=1.2)
        clock.advance(2)
        assert why(store, job).details["forecast_end_time"] == began + timedelta(seconds=4)
        clock.advance(3)
        assert why(store, job).details["forecast_end_time"] is None
        assert "this one takes long" in why(store, job).text

    def test_too_little_history_forecasts_nothing(self, store: Store, clock: MovableClock) -> None:
        worker = WorkerByHand(store)
        self.run(worker, clock, 1.0, 1.0, 1.0, 1.0)
        add(store)
        worker.claim_one()

        told = why(store, add(store))

        assert (told.details["usual_seconds"], told.details["usual_of"]) == (None, 4)
        assert (told.details["forecast_start_time"], told.details["forecast_end_time"]) == (None, None)
        assert "usually" not in told.text

    def test_a_job_in_line_is_forecast_from_the_speed_of_its_queue(self, store: Store, clock: MovableClock) -> None:
        worker = WorkerByHand(store)
        self.run(worker, clock, *[2.0] * 10)
        clock.advance(2)
        add(store)
        worker.claim_one()
        jobs = [add(store) for _ in range(3)]

        told = why(store, jobs[2])

        # Ten ends in twenty seconds, and three more are needed before it starts.
        assert told.details["forecast_start_time"] == clock.now() + timedelta(seconds=6)
        assert told.details["forecast_end_time"] == clock.now() + timedelta(seconds=8)
        assert f"should start at about {at(clock.now() + timedelta(seconds=6))}" in told.text

    def test_a_job_of_tomorrow_is_forecast_to_end_after_its_usual_time(self, store: Store, clock: MovableClock) -> None:
        worker = WorkerByHand(store)
        self.run(worker, clock, *[3.0] * 5)

        told = why(store, add(store, delay=60.0))

        assert told.details["forecast_end_time"] == clock.now() + timedelta(seconds=63)
        assert "`send` usually takes 3.0 s" in told.text

    def test_history_reaches_into_the_archive(self, store: Store, clock: MovableClock) -> None:
        worker = WorkerByHand(store)
        self.run(worker, clock, *[3.0] * 5)
        clock.advance(100)
        store.archive(50)

        assert why(store, add(store)).details["usual_seconds"] == 3.0


@pytest.mark.claim("F20")
class TestPlacement:
    def test_a_job_is_left_to_workers_with_the_labels_it_prefers(self, store: Store, clock: MovableClock) -> None:
        declare(store, prefers=("gpu",), prefer_for=5.0)
        first = WorkerByHand(store, labels=("gpu",))
        other = WorkerByHand(store, ("print",), late=(("send", 5.0),))
        add(store)
        first.claim_one()
        clock.advance(1)
        job = add(store)

        told = why(store, job)

        assert (told.reason, told.until) == (Reason.PREFERS, clock.now() + timedelta(seconds=5))
        assert "is left to workers with label `gpu`, which are busy, until" in told.text
        assert (told.details["prefers"], told.details["workers"]) == (["gpu"], [first.id])
        assert told.details["others"] == [other.id]
        clock.advance(5)
        assert why(store, job).reason == Reason.IN_LINE

    def test_nobody_runs_jobs_although_somebody_handles_them(self, store: Store) -> None:
        worker = WorkerByHand(store)
        store.set_duties(worker.id, ("sweep",))

        told = why(store, add(store))

        assert (told.reason, told.details["problem"]) == (Reason.NO_WORKER, "duty")
        assert f"the duty `run` of worker {worker.id}" in told.text
        assert told.details["workers"][0]["duties"] == ["sweep"]


def test_every_reason_has_a_test_here_that_reaches_it() -> None:
    here = Path(__file__).read_text()

    assert [reason for reason in Reason if f"Reason.{reason.name}" not in here] == []


class ExplainedHistories(Histories):
    """Whatever happens, every job has an explanation, and what it says is what a claim then does."""

    turn = 0

    @invariant()
    def a_job_is_never_without_an_explanation(self) -> None:
        if not self.model.jobs:
            return
        self.turn += 1
        number = self.turn % len(self.model.jobs)
        job = self.model.jobs[number]
        told = [why(side.store, side.ids[number]) for side in self.sides]
        assert told[0].reason == told[1].reason
        assert told[0].text
        assert (told[0].reason in (Reason.FINAL, Reason.ARCHIVED)) == (job.outcome is not None)
        assert told[0].reason is not Reason.OUT_OF_LINE

    def claim(self, draw: Draw) -> None:
        side = self.sides[0]
        before = {number: why(side.store, job_id) for number, job_id in enumerate(side.ids)}
        tried = len(self.tried)
        super().claim(draw)
        started = {number for number, _, _ in self.tried[tried:]}
        assert {before[number].reason for number in started} <= STARTS
        for number, told in before.items():
            if number not in started and told.reason in STARTS and told.details["before"] == 0:
                assert not any(self._same_line(number, other) for other in started)

    def _same_line(self, number: int, other: int) -> bool:
        """The other one would have had to let it pass: both are of the same type, so whoever took one could take it."""
        jobs = self.model.jobs
        return jobs[number].row.job_type == jobs[other].row.job_type


def test_no_job_is_ever_without_an_explanation_over_random_histories(prepared: Prepared) -> None:
    bounds = settings(max_examples=8, stateful_step_count=40, derandomize=True, database=None)
    run_state_machine_as_test(lambda: ExplainedHistories(prepared), settings=bounds)
