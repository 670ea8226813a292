"""R6: adaptive retry, shared by all workers: the retry-after, the budget and the breaker."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Adaptive, App, NotFound, Retry
from holdfast.clock import MovableClock
from holdfast.jobs.breaker import SPARE, Breaker, BreakerState
from holdfast.jobs.job import Answer, Outcome, State
from holdfast.jobs.retry import encode
from holdfast.jobs.states import Moved, Raised, Waited
from holdfast.stores.contract import Done, Filter, Report, Store, Turn, Want
from tests.by_hand import WorkerByHand, add, declare, error
from tests.faults.fleet import until
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("R6")
Make = Callable[..., App]
PLAIN = {"first": 1, "factor": 2, "most": 100, "jitter": 0}


def adaptive(store: Store, job_type: str = "send", **policy: Any) -> Adaptive:
    made = Adaptive(**{**PLAIN, "breaker": 3, "probe": 30, **policy})
    declare(store, job_type, retry=encode(made))
    return made


def breaker_of(store: Store, job_type: str = "send") -> Breaker:
    found = store.breaker(job_type)
    assert found is not None
    return found


def open_breaker(store: Store, worker: WorkerByHand, failures: int = 3, **options: Any) -> None:
    """As many jobs fail as it takes; they are retried at some time."""
    for _ in range(failures):
        add(store, retries=None, **options)
    for call in worker.claim(failures):
        worker.fail(call)
    assert breaker_of(store).state is BreakerState.OPEN


def test_a_run_of_failures_opens_the_breaker_and_no_worker_starts_a_job_of_the_type(store: Store) -> None:
    adaptive(store)
    one, two = WorkerByHand(store), WorkerByHand(store)
    for number, worker in enumerate((one, two, one), 1):
        add(store, retries=None)
        worker.fail(worker.claim_one())
        assert breaker_of(store).failures == number
    add(store)

    assert one.claim(10) == two.claim(10) == WorkerByHand(store).claim(10) == []
    found = breaker_of(store)
    assert (found.state, found.failures, found.opened_time) == (BreakerState.OPEN, 3, store.now())
    assert found.probe_time == store.now() + timedelta(seconds=30)


def test_a_success_ends_the_run(store: Store) -> None:
    adaptive(store)
    worker = WorkerByHand(store)
    for end in (worker.fail, worker.fail, worker.succeed, worker.fail, worker.fail):
        add(store, retries=0)
        end(worker.claim_one())

    assert (breaker_of(store).state, breaker_of(store).failures) == (BreakerState.CLOSED, 2)


@pytest.mark.parametrize(("won", "opens"), [(0, True), (1, True), (3, False), (40, False)])
def test_failures_told_of_together_with_successes_are_no_run(store: Store, won: int, opens: bool) -> None:
    """A turn tells of hundreds of ends at once, and not in their order: eight failures among them."""
    adaptive(store, breaker=4)
    worker = WorkerByHand(store)
    for _ in range(8 + won):
        add(store, retries=0)
    calls = worker.claim(100)
    reports = [Report(call.id, Raised(error()), call.attempt, "send", call.lease) for call in calls[:8]]
    worker.turn(reports=reports, done=[Done(call, 1.0, None) for call in calls[8:]], ended_leases=[calls[0].lease])

    assert (breaker_of(store).state is BreakerState.OPEN) is opens
    assert breaker_of(store).successes == won


def test_so_are_failures_told_of_together_with_tasks_that_succeeded(app: Make, clock: MovableClock) -> None:
    holdfast = app()
    report = holdfast.workflow("report")

    @report.step(shards=16, retries=0, retry=Adaptive(breaker=4))
    def calc(task: Any) -> None: ...

    report.submit(trigger="x")
    worker = WorkerByHand(holdfast.store, ["report.calc"], ["workflows"])
    calls = worker.claim(100, "workflows")
    reports = [Report(call.id, Raised(error()), call.attempt, call.job_type, call.lease) for call in calls[:8]]
    worker.turn(reports=reports, done=[Done(call, 1.0, None) for call in calls[8:]], ended_leases=[calls[0].lease])

    assert breaker_of(holdfast.store, "report.calc").state is BreakerState.CLOSED


def test_other_types_are_not_touched_by_it(store: Store) -> None:
    adaptive(store)
    worker = WorkerByHand(store)
    open_breaker(store, worker)
    add(store)
    other = add(store, "print")

    assert [call.id for call in worker.claim(10)] == [other.id]


@pytest.mark.parametrize(
    "end",
    [
        lambda worker, call: worker.fail(call, "failed"),
        lambda worker, call: worker.fail(call, "payload"),
        lambda worker, call: worker.fail(call, "result"),
        lambda worker, call: worker.snooze(call, 5),
        lambda worker, call: worker.hand_back(call),
        lambda worker, call: worker.crash(call),
    ],
    ids=["failed", "payload", "result", "snoozed", "handed_back", "lost"],
)
def test_what_could_not_be_retried_tells_the_breaker_nothing(
    store: Store, end: Callable[[WorkerByHand, Any], Any]
) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    add(store)
    end(worker, worker.claim_one())

    assert (breaker_of(store).state, breaker_of(store).failures) == (BreakerState.CLOSED, 0)


def test_timeouts_count_and_so_does_the_last_failure_of_a_job(store: Store) -> None:
    adaptive(store, breaker=2)
    worker = WorkerByHand(store)
    for kind in ("timeout", "exception"):
        add(store, retries=0)
        worker.fail(worker.claim_one(), kind)

    assert breaker_of(store).state is BreakerState.OPEN


@pytest.mark.parametrize("workers", [1, 3])
def test_when_its_time_has_come_one_job_probes_the_type_over_all_workers(
    store: Store, clock: MovableClock, workers: int
) -> None:
    adaptive(store)
    crew = [WorkerByHand(store) for _ in range(workers)]
    open_breaker(store, crew[0])
    for _ in range(5):
        add(store)
    clock.advance(29.9)
    assert [worker.claim(10) for worker in crew] == [[]] * workers
    clock.advance(0.1)
    probes = [call for worker in crew for call in worker.claim(10)]

    assert len(probes) == 1
    assert (breaker_of(store).state, breaker_of(store).probe) == (BreakerState.PROBING, probes[0].id)
    clock.advance(3600)
    assert [worker.claim(10) for worker in crew] == [[]] * workers


def test_the_probes_success_closes_the_breaker_and_all_jobs_start_again(store: Store, clock: MovableClock) -> None:
    adaptive(store)
    worker = WorkerByHand(store)
    open_breaker(store, worker)
    for _ in range(3):
        add(store)
    store.park_tripped()
    clock.advance(30)
    probe = worker.claim_one()
    worker.succeed(probe)

    found = breaker_of(store)
    assert (found.state, found.failures, found.opened_time, found.probe) == (BreakerState.CLOSED, 0, None, None)
    assert {probe.id, *(call.id for call in worker.claim(10))} == {1, 2, 3, 4, 5, 6}


def test_whoever_tells_of_a_probe_that_failed_is_told_when_the_next_one_is_due(
    store: Store, clock: MovableClock
) -> None:
    """Also if it wants nothing: nobody else may know of it, and nothing may happen before a worker's next look by itself."""
    adaptive(store)
    worker = WorkerByHand(store)
    open_breaker(store, worker)
    add(store, retries=0)
    clock.advance(30)
    (probe,) = worker.claim(10)
    happening = Raised(error(), "traceback", 1.0)
    answer = worker.turn(reports=[Report(probe.id, happening, probe.attempt, probe.job_type, probe.lease)])
    assert (answer.claimed, answer.wake_in) == ([], 30)


def test_a_probe_that_fails_opens_it_for_another_round_and_the_next_probe_is_another_job(
    store: Store, clock: MovableClock
) -> None:
    adaptive(store)
    worker = WorkerByHand(store)
    open_breaker(store, worker)
    opened, probes = breaker_of(store).opened_time, []
    store.park_tripped()
    for _ in range(6):
        clock.advance(30)
        call = worker.claim_one()
        probes.append(call.id)
        worker.fail(call)
        assert breaker_of(store).probe_time == clock.now() + timedelta(seconds=30)
        store.park_tripped()
        assert worker.claim(10) == []

    assert len(set(probes[:3])) == len(set(probes[3:])) == 3
    assert breaker_of(store).opened_time == opened


def test_a_job_enqueued_while_it_is_open_becomes_the_probe_when_there_is_no_other(
    store: Store, clock: MovableClock
) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    add(store, retries=0)
    worker.fail(worker.claim_one())
    clock.advance(60)
    assert worker.claim() == []
    job = add(store)

    assert worker.claim_one().id == job.id


def test_a_retry_that_became_due_meanwhile_becomes_the_probe_in_the_same_turn(
    store: Store, clock: MovableClock
) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    job = add(store)
    worker.fail(worker.claim_one())
    clock.advance(30)

    assert worker.claim_one().id == job.id


@pytest.mark.parametrize("end", ["die", "hand_back", "snooze", "failed", "wait", "abort"])
def test_a_probe_that_ends_without_telling_anything_makes_room_for_another_at_once(
    store: Store, clock: MovableClock, end: str
) -> None:
    adaptive(store)
    worker, other = WorkerByHand(store), WorkerByHand(store)
    open_breaker(store, worker)
    store.park_tripped()
    clock.advance(30)
    call = worker.claim_one()
    assert other.claim(10) == []
    if end == "die":
        worker.die()
    elif end == "failed":
        worker.fail(call, "failed")
    elif end == "wait":
        worker.tell(call, Waited(1.0))
    elif end == "abort":
        store.abort(call.id, "ann")
        worker.obey_abort(call)
    else:
        getattr(worker, end)(call)

    assert len(other.claim(10)) == 1
    assert breaker_of(store).state is BreakerState.PROBING


@pytest.mark.parametrize("change", ["replace", "abort", "pause"])
def test_a_probe_that_nobody_has_begun_blocks_nothing_for_ever(store: Store, clock: MovableClock, change: str) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    add(store, retries=0)
    worker.fail(worker.claim_one())
    store.limit("mail", 1, "ann")
    other = add(store, "print")
    busy = worker.claim_one()
    job = add(store, job_key="k")
    clock.advance(30)
    assert worker.claim() == []  # chosen, and there is no room for it
    assert breaker_of(store).probe == job.id
    if change == "replace":
        add(store, job_key="k", on_duplicate="replace", payload='{"n":2}')
    elif change == "abort":
        store.abort(job.id, "ann")
        job = add(store)
    else:
        store.pause("mail", True, "ann")
    assert worker.succeed(busy) == 0
    if change == "pause":
        assert worker.claim() == []
        store.pause("mail", False, "ann")

    assert worker.claim_one().id == job.id
    assert store.get(other.id).outcome is Outcome.SUCCESS


def test_a_success_that_began_before_it_opened_does_not_close_it(store: Store, clock: MovableClock) -> None:
    adaptive(store)
    worker, slow = WorkerByHand(store), WorkerByHand(store)
    add(store)
    straggler = slow.claim_one()
    open_breaker(store, worker)
    slow.succeed(straggler)

    assert breaker_of(store).state is BreakerState.OPEN
    assert breaker_of(store).successes == 1


def test_an_answer_to_a_probe_that_waits_closes_it(store: Store, clock: MovableClock) -> None:
    adaptive(store)
    worker = WorkerByHand(store)
    open_breaker(store, worker)
    store.park_tripped()
    clock.advance(30)
    call = worker.claim_one()
    worker.tell(call, Waited(1.0))
    store.answer(call.id, Answer("1"), "ann")

    assert breaker_of(store).state is BreakerState.CLOSED


def test_a_stale_success_tells_nothing(store: Store, clock: MovableClock) -> None:
    adaptive(store)
    worker, other = WorkerByHand(store), WorkerByHand(store)
    open_breaker(store, worker)
    store.park_tripped()
    clock.advance(30)
    call = worker.claim_one()
    worker.die()
    assert other.turn(done=[Done(call, 1.0, None)]).stale == 1

    assert breaker_of(store).state is not BreakerState.CLOSED
    assert breaker_of(store).successes == 0


def test_a_retry_after_is_kept_exactly_by_the_job_and_by_the_breaker(store: Store, clock: MovableClock) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    job, more = add(store), add(store)
    at = clock.now() + timedelta(seconds=77.5)
    worker.fail(worker.claim_one(), "retry", retry_at=at)

    assert store.get(job.id).scheduled_run_time == breaker_of(store).probe_time == at
    clock.advance(77.4)
    assert worker.claim(10) == []
    clock.advance(0.1)
    assert worker.claim_one().id in (job.id, more.id)


def test_a_retry_after_sooner_than_the_next_probe_does_not_hasten_it(store: Store, clock: MovableClock) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    job = add(store)
    worker.fail(worker.claim_one(), "retry", retry_delay=2.0)

    assert store.get(job.id).scheduled_run_time == clock.now() + timedelta(seconds=2)
    assert breaker_of(store).probe_time == clock.now() + timedelta(seconds=30)


def test_a_retry_after_that_comes_while_it_is_open_puts_the_probe_off(store: Store, clock: MovableClock) -> None:
    adaptive(store, breaker=1)
    worker, slow = WorkerByHand(store), WorkerByHand(store)
    add(store)
    straggler = slow.claim_one()
    add(store)
    worker.fail(worker.claim_one())
    slow.fail(straggler, "retry", retry_delay=500.0)

    assert breaker_of(store).probe_time == clock.now() + timedelta(seconds=500)


def delays_of(store: Store, worker: WorkerByHand, count: int, **named: Any) -> list[float]:
    """The first retries of so many jobs."""
    jobs = [add(store, retries=None) for _ in range(count)]
    for call in worker.claim(count):
        worker.fail(call, **named)
    return [(store.get(job.id).scheduled_run_time - store.now()).total_seconds() for job in jobs]


def test_retries_are_a_share_of_successes_and_those_beyond_it_are_put_off_and_not_lost(
    store: Store, clock: MovableClock
) -> None:
    adaptive(store, budget=0.5, breaker=1000)
    worker = WorkerByHand(store)
    for _ in range(8):
        add(store)
    worker.succeed(*worker.claim(8))
    granted = int(SPARE) + 4
    delays = delays_of(store, worker, granted + 3)

    assert delays == [1] * granted + [100] * 3
    assert breaker_of(store).retries == granted
    assert {job.state for job in store.find(Filter(status="failed", limit=1000))} == {State.ERROR}


def test_the_budget_forgets(store: Store, clock: MovableClock) -> None:
    adaptive(store, budget=1, breaker=1000)
    worker = WorkerByHand(store)
    for _ in range(8):
        add(store)
    worker.succeed(*worker.claim(8))
    clock.advance(120)  # two half-lives: the successes count as two

    assert delays_of(store, worker, 13) == [1] * 12 + [100]
    clock.advance(60)
    worker.claim(100)  # those that came back
    assert delays_of(store, worker, 6) == [1] * 5 + [100]  # half of 12 retries, one success left, ten to spare


def test_a_retry_after_is_not_put_off_by_the_budget(store: Store) -> None:
    adaptive(store, breaker=1000)
    worker = WorkerByHand(store)
    delays_of(store, worker, int(SPARE))

    assert delays_of(store, worker, 1) == [100]
    assert delays_of(store, worker, 2, kind="retry", retry_delay=7.0) == [7, 7]


def test_a_put_off_retry_still_counts_against_retries(store: Store, clock: MovableClock) -> None:
    adaptive(store, breaker=1000)
    worker = WorkerByHand(store)
    delays_of(store, worker, int(SPARE))
    clock.advance(1)
    worker.claim(100)
    job = add(store, retries=1)
    worker.fail(worker.claim_one())
    assert store.get(job.id).scheduled_run_time == clock.now() + timedelta(seconds=100)
    clock.advance(100)
    worker.fail(worker.claim_one())

    assert store.get(job.id).outcome is Outcome.ERROR


def test_jobs_behind_an_open_breaker_leave_the_line_and_come_back(
    store: Store, clock: MovableClock, sql: RawSql
) -> None:
    adaptive(store)
    worker = WorkerByHand(store)
    open_breaker(store, worker)
    for _ in range(5):
        add(store)
    assert store.pulse().tripped
    assert not store.park_tripped()
    assert sql.value("select count(*) from {ready}") == 0
    assert store.park(["send", "print"]) == 0  # a worker handles the type, and still they are not brought back
    WorkerByHand(store)  # nor by one that comes
    assert sql.value("select count(*) from {ready}") == 0
    clock.advance(30)
    worker.succeed(worker.claim_one())

    assert not store.pulse().tripped
    assert sql.value("select count(*) from {parked}") == 0
    assert len(worker.claim(20)) == 7


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
@pytest.mark.parametrize("sweep", ["park_tripped", "park"])
def test_jobs_that_are_put_aside_while_the_breaker_is_being_closed_come_back(
    store: Store, sql: RawSql, sweep: str
) -> None:
    """Whoever closes it does not see what a sweeper has put aside and not committed."""
    adaptive(store)
    worker = WorkerByHand(store)
    open_breaker(store, worker)
    add(store)
    with ThreadPoolExecutor(1) as pool:
        with sql.transaction():
            sql("update {breaker} set state = 'closed', failures = 0")  # and what is parked, which is nothing yet
            swept = pool.submit(store.park_tripped if sweep == "park_tripped" else lambda: store.park(["send"]))
            until(lambda: sql.value("select count(*) from {parked}") == 1, what="it is put aside")
        swept.result(30)
    assert (sql.value("select count(*) from {parked}"), sql.value("select count(*) from {ready}")) == (0, 1)


def test_jobs_behind_an_open_breaker_reserve_nothing_under_a_limit(store: Store) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    add(store, retries=0)
    worker.fail(worker.claim_one())
    store.limit("mail", 4, "ann")
    add(store, throttle_factor=4, priority=1)
    light = [add(store, "print").id for _ in range(4)]

    assert [call.id for call in worker.turn(wants=[Want("mail", 10, 10)]).claimed] == light


def test_a_probe_obeys_the_limit_like_any_job(store: Store, clock: MovableClock) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    add(store, retries=0)
    worker.fail(worker.claim_one())
    store.limit("mail", 1, "ann")
    add(store, "print")
    busy = worker.claim_one()
    job = add(store, priority=1)
    clock.advance(30)
    assert worker.claim() == []
    worker.succeed(busy)

    assert worker.claim_one().id == job.id


def test_a_worker_without_the_type_neither_claims_nor_chooses_its_probe(store: Store, clock: MovableClock) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    add(store)
    worker.fail(worker.claim_one())
    clock.advance(60)

    assert WorkerByHand(store, types=["print"]).claim(10) == []
    assert breaker_of(store).state is BreakerState.OPEN


def test_workers_are_told_when_to_look_for_the_probe(store: Store, clock: MovableClock) -> None:
    adaptive(store, breaker=1, probe=12)
    worker = WorkerByHand(store)
    add(store, retries=0)
    worker.fail(worker.claim_one())
    clock.advance(2)
    looking = {"wants": [Want("mail", 1)], "promote": True}

    assert worker.turn(**looking).wake_in == 10
    clock.advance(10)
    assert worker.turn(**looking).wake_in is None  # there is no job: the next one wakes them


def test_the_turn_that_opens_the_breaker_claims_no_more_of_the_type(store: Store) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    add(store)
    call = worker.claim_one()
    add(store)
    report = Report(call.id, Raised(error()), call.attempt, "send", call.lease)

    assert worker.turn(reports=[report], ended_leases=[call.lease], wants=[Want("mail", 5)]).claimed == []


def test_breakers_are_visible_and_can_be_reset(app: Make, clock: MovableClock, sql: RawSql) -> None:
    holdfast = app()
    broken = [True]

    @holdfast.queue("mail").job(retries=None, retry=Adaptive(breaker=2, probe=60))
    def send() -> str:
        if broken[0]:
            raise ConnectionError("down")
        return "sent"

    @holdfast.queue("mail").job
    def plain() -> None: ...

    jobs = [send.enqueue() for _ in range(4)]
    holdfast.run_until_idle()
    (found,) = holdfast.breakers()
    assert (found.job_type, found.state, found.failures) == ("send", "open", 2)
    assert found.probe_time == clock.now() + timedelta(seconds=60)
    broken[0] = False
    assert holdfast.run_until_idle() == 0

    assert holdfast.reset_breaker("send", actor="ann").state == "closed"
    assert holdfast.breakers()[0] == Breaker("send")
    clock.advance(5)
    holdfast.run_until_idle()

    assert [job.refresh().result for job in jobs] == ["sent"] * 4
    actions = [(row["actor"], row["action"]) for row in sql("select * from {audit} order by id")]
    assert actions == [("holdfast", "open_breaker"), ("ann", "reset_breaker")]
    for unknown in ("plain", "nobody"):
        with pytest.raises(NotFound, match="no breaker"):
            holdfast.reset_breaker(unknown)


def test_opening_and_closing_is_logged_and_leaves_audit_rows(
    store: Store, clock: MovableClock, sql: RawSql, caplog: pytest.LogCaptureFixture
) -> None:
    adaptive(store)
    worker = WorkerByHand(store)
    open_breaker(store, worker)
    clock.advance(30)
    worker.succeed(worker.claim_one())

    rows = sql("select * from {audit} order by id")
    assert [(row["action"], row["queue"]) for row in rows] == [("open_breaker", "mail"), ("close_breaker", "mail")]
    assert rows[0]["detail"].startswith("send: 3 failures in a row")
    assert ["is open" in text or "is closed" in text for text in caplog.messages] == [True, True]


def test_a_reset_while_a_probe_stands_in_line_lets_it_run_like_any_job(store: Store, clock: MovableClock) -> None:
    adaptive(store, breaker=1)
    worker = WorkerByHand(store)
    add(store, retries=0)
    worker.fail(worker.claim_one())
    store.pause("mail", False, "ann")
    store.limit("mail", 1, "ann")
    add(store, "print")
    busy = worker.claim_one()
    job = add(store)
    clock.advance(30)
    assert worker.claim() == []
    store.reset_breaker("send", "ann")
    worker.succeed(busy)

    assert worker.claim_one().id == job.id


def test_a_type_that_is_not_adaptive_any_more_is_held_back_by_nothing(
    store: Store, clock: MovableClock, sql: RawSql
) -> None:
    adaptive(store)
    worker = WorkerByHand(store)
    open_breaker(store, worker)
    job = add(store)
    store.park_tripped()
    adaptive(store, "print")
    declare(store)
    store.park(["send"])

    assert [each.job_type for each in store.breakers()] == ["print"]
    assert job.id in [call.id for call in worker.claim(10)]


def test_a_store_learns_of_a_type_that_became_adaptive_when_it_reads_the_queues(
    store: Store, clock: MovableClock
) -> None:
    other = store.another()
    worker = WorkerByHand(other)
    other.queues()
    adaptive(store, breaker=1)
    add(store)
    worker.fail(worker.claim_one())  # a failure reads the types itself
    add(store)

    assert breaker_of(store).state is BreakerState.OPEN
    assert worker.claim(5) == []
    other.close()


def test_the_adaptive_policy_runs_a_real_outage_to_its_end(app: Make, clock: MovableClock) -> None:
    holdfast = app()
    calls: list[datetime] = []
    up_from = clock.now() + timedelta(seconds=100)

    @holdfast.queue("mail").job(retries=None, retry=Adaptive(first=1, jitter=0, breaker=3, probe=30))
    def send(number: int) -> int:
        calls.append(clock.now())
        if clock.now() < up_from:
            raise Retry("503") if number % 2 else ConnectionError("down")
        return number

    jobs = [send.enqueue(number) for number in range(20)]
    start = clock.now()
    for _ in range(75):
        holdfast.run_until_idle()
        clock.advance(2)

    assert [job.refresh().result for job in jobs] == list(range(20))
    before = [(moment - start).total_seconds() for moment in calls if moment < up_from]
    assert before == [0, 0, 0, 30, 60, 90]  # a run of three, and then one probe at a time


def test_tasks_of_a_workflow_are_counted_too(app: Make) -> None:
    holdfast = app()
    report = holdfast.workflow("report")

    @report.step(shards=3, retry=Adaptive())
    def calc(task: Any) -> None: ...

    report.submit(trigger="x")
    holdfast.run_until_idle()

    assert [(each.job_type, each.successes) for each in holdfast.breakers()] == [("report.calc", 3)]


def test_a_job_in_error_that_is_only_moved_takes_nothing_from_the_budget(store: Store, clock: MovableClock) -> None:
    adaptive(store, breaker=1000)
    worker = WorkerByHand(store)
    moved = add(store, time_windows=("00:00-00:10",))
    worker.fail(worker.claim_one())
    clock.advance(3600)
    store.exchange(Turn(worker.id, promote=True))
    add(store, priority=1)
    call = worker.claim_one()
    failed = Report(call.id, Raised(error()), call.attempt, "send", call.lease)
    before = breaker_of(store).retries
    changes = store.report([Report(moved.id, Moved()), failed])

    assert [change is not None for change in changes] == [True, True]
    assert store.get(moved.id).state is State.ERROR
    assert breaker_of(store).retries == pytest.approx(1, abs=1e-9)  # that of the other; the first is an hour old
    assert before == 1


def test_many_workers_at_once_choose_one_probe(store: Store, clock: MovableClock) -> None:
    adaptive(store)
    worker = WorkerByHand(store)
    open_breaker(store, worker)
    for _ in range(20):
        add(store)
    clock.advance(30)
    stores = [store.another(10) for _ in range(4)]
    crew = [WorkerByHand(each) for each in stores]
    ready, claimed = threading.Barrier(4), []

    def race(each: WorkerByHand) -> None:
        ready.wait()
        for _ in range(5):
            claimed.extend(each.turn(wants=[Want("mail", 5)], promote=True).claimed)

    threads = [threading.Thread(target=race, args=(each,)) for each in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in stores:
        each.close()

    assert len(claimed) == 1


def test_failures_and_successes_of_many_workers_at_once_are_all_counted(store: Store) -> None:
    adaptive(store, breaker=1000, budget=1)
    adaptive(store, "print", breaker=1000, budget=1)
    stores = [store.another(30) for _ in range(4)]
    crew = [WorkerByHand(each) for each in stores]
    for number in range(80):
        add(store, ("send", "print")[number % 2], retries=0)

    def work(each: WorkerByHand) -> None:
        while calls := each.claim(2):
            failed, *won = calls
            report = Report(failed.id, Raised(error()), failed.attempt, failed.job_type, failed.lease)
            done = [Done(call, 1.0, None) for call in won]
            each.turn(reports=[report], done=done, ended_leases=[failed.lease])

    threads = [threading.Thread(target=work, args=(each,)) for each in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in stores:
        each.close()

    found = [breaker_of(store, name) for name in ("send", "print")]
    assert sum(each.successes for each in found) == 40
