"""W3: the factors of what is held in a queue never exceed its limit, whoever claims."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import App, Invalid
from holdfast.clock import MovableClock
from holdfast.jobs.throttle import Candidate, admit
from holdfast.stores.contract import Claimed, Done, QueueDeclared, Store, Turn, Want
from tests.by_hand import WorkerByHand, add

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


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
