"""W3: the factors of what is held in a queue never exceed its limit, whoever claims."""

import itertools
import threading
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import App, Invalid, rate
from holdfast.clock import Clock, MovableClock
from holdfast.jobs.throttle import Candidate, admit
from holdfast.stores.contract import Claimed, Done, QueueDeclared, Store, Turn, Want
from holdfast.stores.open import open_store
from tests.by_hand import WorkerByHand, add
from tests.faults.fleet import until

pytestmark = pytest.mark.claim("W3")


@pytest.fixture
def limited(store: Store, instance: str) -> Store:
    store.register([QueueDeclared("mail", f"{instance}_mail", "priority", 10)], [])
    return store


def claim(worker: WorkerByHand, room: int = 100, free: int = 100) -> list[int]:
    answer = worker.store.exchange(Turn(worker.id, wants=[Want("mail", room, free)], types=worker.types, promote=True))
    for call in answer.claimed:
        worker._in_hand.setdefault(call.lease, set()).add(call.id)
    return [call.id for call in answer.claimed]


def test_a_limit_of_ten_lets_five_jobs_of_factor_two_run(limited: Store) -> None:
    one, two = WorkerByHand(limited), WorkerByHand(limited)
    jobs = [add(limited, throttle_factor=2).id for _ in range(8)]

    assert claim(one) == jobs[:5]
    assert claim(two) == []

    limited.abort(jobs[0], "ann")  # its worker is asked; nothing is free yet
    assert claim(two) == []
    limited.end_old_aborts(0)
    limited.lose(one.id)
    assert claim(two) == jobs[1:6]


def test_what_ends_makes_room_in_the_same_turn(limited: Store) -> None:
    worker = WorkerByHand(limited)
    jobs = [add(limited).id for _ in range(15)]
    first = worker.turn(wants=[Want("mail", 100, 100)]).claimed
    answer = worker.turn(
        done=[_done(call) for call in first[:4]],
        ended_leases=[call.lease for call in first[:4]],
        wants=[Want("mail", 100, 100)],
    )
    assert [call.id for call in first] == jobs[:10]
    assert [call.id for call in answer.claimed] == jobs[10:14]


def test_a_heavy_job_in_front_keeps_what_is_free_for_itself(limited: Store) -> None:
    worker = WorkerByHand(limited)
    light = [add(limited).id for _ in range(6)]
    heavy = add(limited, throttle_factor=6).id
    behind = add(limited).id
    urgent = add(limited, throttle_factor=0).id

    assert claim(worker) == [*light, urgent]
    assert claim(worker) == []
    limited.lose(worker.id)
    other = WorkerByHand(limited)
    limited.exchange(Turn(other.id, wants=[Want("mail", 2, 2)], types=other.types))
    assert {limited.get(job).situation for job in (heavy, behind)} == {None}


def test_nothing_is_claimed_ahead_of_a_free_slot(limited: Store) -> None:
    worker = WorkerByHand(limited)
    jobs = [add(limited).id for _ in range(9)]
    assert claim(worker, room=100, free=3) == jobs[:3]
    assert claim(worker, room=100, free=0) == []


@pytest.mark.fault(10, "a factor above the limit")
def test_a_job_above_the_limit_is_refused_when_it_is_enqueued(limited: Store) -> None:
    with pytest.raises(Invalid, match="10"):
        add(limited, throttle_factor=11)


def test_jobs_claimed_before_there_was_a_limit_count(store: Store) -> None:
    worker = WorkerByHand(store)
    for _ in range(6):
        add(store)
    held = worker.claim(4)
    store.limit("mail", 5, "ann")
    assert len(claim(worker)) == 1
    worker.succeed(*held[:2])
    assert len(claim(worker)) == 1
    store.limit("mail", None, "ann")
    assert claim(worker) == []


def test_a_limit_holds_also_for_a_process_that_has_not_heard_of_it(
    store: Store, url: str, instance: str, clock: MovableClock
) -> None:
    worker = WorkerByHand(store)
    for _ in range(3):
        add(store)
    first = worker.claim_one()
    other = open_store(url, instance, clock)
    other.limit("mail", 1, "ann")
    other.close()

    assert not store.queue_row("mail").throttled
    assert claim(worker) == []
    assert worker.succeed(first) == 0
    store.queues()
    assert len(claim(worker)) == 1


@pytest.mark.fault(10, "the limit is lowered below use")
def test_a_lowered_limit_stops_nothing_and_starts_nothing_above_it(limited: Store) -> None:
    worker = WorkerByHand(limited)
    jobs = [add(limited).id for _ in range(12)]
    calls = worker.turn(wants=[Want("mail", 100, 100)]).claimed
    limited.limit("mail", 3, "ann")
    assert {limited.get(job).situation for job in jobs[:10]} == {"held"}
    worker.turn(done=[_done(call) for call in calls[:7]], ended_leases=[call.lease for call in calls[:7]])
    assert claim(worker) == []
    worker.turn(done=[_done(calls[7])], ended_leases=[calls[7].lease])
    assert claim(worker) == [jobs[10]]


def test_jobs_that_only_a_busy_worker_could_run_do_not_keep_the_others_waiting(limited: Store) -> None:
    printer, sender = WorkerByHand(limited, types=("print",)), WorkerByHand(limited, types=("send",))
    prints = [add(limited, job_type="print").id for _ in range(60)]
    sends = [add(limited).id for _ in range(5)]
    assert claim(printer, room=1, free=1) == prints[:1]  # it has one slot, and that is taken now
    assert claim(sender, room=5, free=5) == sends


def test_a_slot_is_left_for_a_job_before_ours_that_another_worker_has_a_hand_free_for(limited: Store) -> None:
    printer, sender = WorkerByHand(limited, types=("print",)), WorkerByHand(limited, types=("send",))
    prints = [add(limited, job_type="print").id for _ in range(60)]
    sends = [add(limited).id for _ in range(20)]
    assert claim(sender, room=5, free=5) == sends[:5]  # looks past what the one free hand cannot take
    assert claim(sender) == sends[5:9]
    assert claim(printer) == prints[:1]


def test_a_heavy_job_of_another_workers_type_is_not_starved(limited: Store) -> None:
    printer, sender = WorkerByHand(limited, types=("print",)), WorkerByHand(limited, types=("send",))
    light = [add(limited).id for _ in range(3)]
    assert claim(sender) == light
    heavy = add(limited, job_type="print", throttle_factor=10).id
    add(limited)
    assert claim(sender) == claim(printer) == []
    limited.lose(sender.id)
    for job in light:
        limited.abort(job, "ann")
    assert claim(printer) == [heavy]


@pytest.mark.parametrize("away", ["stopping", "elsewhere", "gone"])
def test_a_job_that_no_worker_would_take_reserves_nothing(limited: Store, away: str) -> None:
    queues = ("other",) if away == "elsewhere" else ("mail",)
    printer, sender = WorkerByHand(limited, types=("print",), queues=queues), WorkerByHand(limited, types=("send",))
    assert claim(sender) == []
    add(limited, job_type="print", throttle_factor=10)
    light = [add(limited).id for _ in range(3)]
    if away == "stopping":
        limited.beat(printer.id, stopping=True)
    if away == "gone":
        limited.leave(printer.id)
    limited.exchange(Turn(sender.id, wants=[Want("mail", 1, 1)], types=sender.types))
    assert claim(sender) == light[1:]


def test_uncounted_jobs_start_on_a_full_queue_however_far_behind_they_stand(limited: Store) -> None:
    worker = WorkerByHand(limited)
    for _ in range(60):
        add(limited)
    assert len(claim(worker)) == 10
    urgent = add(limited, throttle_factor=0).id
    assert claim(worker, room=5, free=5) == [urgent]


def test_the_slot_of_a_job_that_was_aborted_under_a_deaf_worker_is_free(limited: Store) -> None:
    worker, other = WorkerByHand(limited), WorkerByHand(limited)
    jobs = [add(limited, throttle_factor=10).id for _ in range(2)]
    assert claim(worker) == jobs[:1]
    limited.abort(jobs[0], "ann")
    limited.end_old_aborts(0)
    assert claim(other) == jobs[1:]


@pytest.mark.fault(10, "the holder of the last slot dies")
def test_the_holder_of_the_last_slot_dies_and_the_slot_comes_back(limited: Store) -> None:
    worker, other = WorkerByHand(limited), WorkerByHand(limited)
    jobs = [add(limited, throttle_factor=10).id for _ in range(2)]
    assert claim(worker) == jobs[:1]
    assert claim(other) == []
    worker.die()
    assert claim(other) == jobs[:1]
    assert limited.get(jobs[0]).attempt == 2


def test_retries_and_loose_jobs_wait_for_room_like_any_job(limited: Store, clock: MovableClock) -> None:
    worker = WorkerByHand(limited)
    first, second = (add(limited, throttle_factor=6, retries=1).id for _ in range(2))
    worker.fail(worker.claim_one())
    assert claim(worker) == [second]
    clock.advance(60)
    assert claim(worker) == []
    limited.lose(worker.id)
    other = WorkerByHand(limited)
    assert limited.get(second).situation == "loose"
    assert claim(other) == [second]  # wanted before the retry of the first
    assert limited.get(first).state == "error"


def test_time_comes_before_priority_on_a_limited_queue_with_that_order(
    store: Store, instance: str, clock: MovableClock
) -> None:
    store.register([QueueDeclared("mail", f"{instance}_mail", "schedule", 2)], [])
    jobs = []
    for priority in (9, 5, 1):
        jobs.append(add(store, priority=priority).id)
        clock.advance(1)
    assert claim(WorkerByHand(store)) == jobs[:2]


def test_workers_are_told_when_a_limit_is_raised_and_when_room_is_made_that_its_maker_does_not_fill(
    app: Callable[..., App],
) -> None:
    shop = app(clock=Clock())
    queue = shop.queue("mail", throttle_limit=1)
    gates = {name: threading.Event() for name in ("first", "second")}

    @queue.job
    def wait(name: str) -> None:
        gates[name].wait(30)

    first, second = wait.enqueue(name="first"), wait.enqueue(name="second")
    with shop.worker(poll=3600, concurrency=2):
        until(lambda: first.refresh().state == "running")
        shop.limit("mail", 2)
        until(lambda: second.refresh().state == "running")
        for gate in gates.values():
            gate.set()
        first.wait(20)
        second.wait(20)


def test_a_worker_that_idles_wakes_for_the_next_token(app: Callable[..., App]) -> None:
    shop = app(clock=Clock())
    queue = shop.queue("mail", throttler=rate(1, per=0.2))

    @queue.job
    async def tick() -> None: ...

    jobs = [tick.enqueue() for _ in range(4)]
    with shop.worker(poll=3600):
        ended = [job.wait(20) for job in jobs]
    starts = [job.start_time for job in ended if job.start_time is not None]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(starts)]
    assert all(gap >= 0.1999 for gap in gaps)


@pytest.mark.claim("Q2")
def test_an_operators_limit_wins_over_the_code_until_it_is_taken_back(app: Callable[..., App]) -> None:
    shop = app()
    shop.queue("mail", throttle_limit=10)
    shop.limit("mail", 5)
    again = app()
    again.queue("mail", throttle_limit=20)
    assert [row.throttle_limit for row in again.store.queues()] == [5]
    again.limit("mail", None)
    assert [row.throttle_limit for row in shop.store.queues()] == [20]


factors = st.sampled_from([0, 0.5, 1, 1.5, 2, 3, 7])


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(waiting=st.lists(factors, max_size=12), limit=st.sampled_from([1, 2, 3.5, 7]), ends=st.integers(0, 6))
def test_what_is_admitted_is_what_the_pure_rule_admits(
    store: Store, clock: MovableClock, waiting: list[float], limit: float, ends: int
) -> None:
    store.limit("mail", None, "test")
    worker = WorkerByHand(store)
    held = [add(store, throttle_factor=1) for _ in range(3)]
    calls = worker.claim(3)
    store.limit("mail", limit, "test")
    jobs = [add(store, throttle_factor=factor) for factor in waiting if factor <= limit]
    worker.succeed(*calls[: min(ends, len(held))])
    used = 3 - min(ends, 3)

    expected = admit(limit, used, [Candidate(job.id, job.throttle_factor) for job in jobs]).admitted
    assert claim(worker) == list(expected)

    store.lose(worker.id)
    store.limit("mail", None, "test")
    for job in [*held, *jobs]:
        if not store.get(job.id).final:
            store.abort(job.id, "test")


def _done(call: Claimed) -> Done:
    return Done(call, 0.1, None)


@pytest.mark.claim("R1", "W3")
def test_what_is_enqueued_while_a_claim_looks_is_not_lost_from_the_line(
    limited: Store, url: str, instance: str
) -> None:
    """A job that became due after the time by which a claim starts its jobs stays in line for the next claim."""
    stores = [open_store(url, instance, Clock()) for _ in range(2)]
    limited.limit("mail", 1000, "ann")
    worker = WorkerByHand(stores[0])
    wanted, claimed = 400, list[int]()
    thread = threading.Thread(target=lambda: [add(stores[1]) for _ in range(wanted)])
    thread.start()
    while thread.is_alive():
        claimed += claim(worker, 1000, 1000)
    thread.join()
    claimed += claim(worker, 1000, 1000)
    assert len(claimed) == wanted
    for each in stores:
        each.close()
