"""A glance at the instance: counted from what stands beside the jobs, and bounded."""

from datetime import timedelta

import pytest

from holdfast import Progress
from holdfast.clock import MovableClock
from holdfast.stores import glancing
from holdfast.stores.contract import NewJob, Note, Store
from tests.by_hand import WorkerByHand, add


def test_a_glance_shows_how_full_a_queue_is_who_works_and_what_runs_longest(store: Store, clock: MovableClock) -> None:
    worker = WorkerByHand(store)
    first, second = add(store), add(store, job_key="k")
    call = worker.claim_one()
    clock.advance(3)
    worker.claim_one()
    store.note([Note(call.id, call.attempt, call.queue, Progress(0.4, "two of five"))])
    add(store), add(store), add(store, delay=60)
    seen = store.glance()
    (load,) = seen.queues
    assert (load.name, load.ready, load.waiting, load.parked, load.running) == ("mail", 2, 1, 0, 2)
    assert (load.paused, load.throttle_limit, load.about, seen.time) == (False, 0, (), clock.now())
    assert [(job.id, job.job_key, job.progress, job.worker) for job in seen.slowest] == [
        (first.id, None, Progress(0.4, "two of five"), str(worker.id)),
        (second.id, "k", None, str(worker.id)),
    ]
    assert (seen.time - seen.slowest[0].start_time).total_seconds() == 3
    assert seen.in_hand == {worker.id: 2}


def test_a_glance_shows_how_many_jobs_ended_in_a_second(store: Store, clock: MovableClock) -> None:
    worker = WorkerByHand(store)
    for _ in range(30):
        add(store)
    worker.succeed(*worker.claim(10))
    clock.advance(60)
    worker.succeed(*worker.claim(20))
    clock.advance(1)
    (load,) = store.glance().queues
    assert (load.ready, load.running, load.ended_per_second) == (0, 0, 2.0)


def test_jobs_of_a_lease_that_have_ended_are_not_running(store: Store) -> None:
    worker = WorkerByHand(store)
    for _ in range(3):
        add(store)
    calls = worker.claim(3)
    worker.succeed(*calls[:2])
    assert [job.id for job in store.glance().slowest] == [calls[2].id]
    assert store.glance().queues[0].running == 1


def test_what_is_not_counted_to_its_end_is_said_to_be_about(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glancing, "MOST", 5)
    store.add([NewJob("mail", "send", "{}", delay=delay) for delay in [None] * 9 + [60.0] * 9])
    WorkerByHand(store).claim(1)
    (load,) = store.glance().queues
    assert (load.ready, load.waiting, load.about) == (5, 5, ("ready", "waiting"))
    WorkerByHand(store).claim(8)
    (load,) = store.glance().queues
    assert (load.ready, load.running, load.about) == (0, 5, ("running", "waiting"))


def test_a_glance_says_since_when_the_oldest_job_of_a_queue_is_due(store: Store, clock: MovableClock) -> None:
    add(store, priority=1)
    clock.advance(5)
    before = clock.now()
    worker = WorkerByHand(store)
    assert store.glance().queues[0].due_since == before - timedelta(seconds=5)
    worker.claim_one()
    assert store.glance().queues[0].due_since is None
    add(store, priority=200)
    clock.advance(5)
    add(store, priority=100), add(store, delay=60, priority=1)
    assert store.glance().queues[0].due_since == before


def test_a_job_that_nobody_handles_is_the_oldest_that_is_due_and_its_type_is_named(
    store: Store, clock: MovableClock
) -> None:
    WorkerByHand(store, types=["print"])
    add(store), add(store)
    clock.advance(5)
    add(store, "print")
    store.park(["print"])
    seen = store.glance()
    assert (seen.unhandled, seen.queues[0].parked, seen.queues[0].ready) == ({"send": 2}, 2, 1)
    assert seen.queues[0].due_since == clock.now() - timedelta(seconds=5)


def test_a_glance_shows_how_much_of_a_limit_is_used_and_what_died_in_the_last_hour(
    store: Store, clock: MovableClock
) -> None:
    store.limit("mail", 10, "test")
    worker = WorkerByHand(store)
    add(store, throttle_factor=2.5), add(store, retries=0), add(store, retries=0)
    heavy, old, new = (worker.claim_one() for _ in range(3))
    worker.fail(old, kind="failed")
    clock.advance(3601)
    worker.fail(new, kind="failed")
    seen = store.glance()
    assert (seen.queues[0].used, seen.queues[0].dead, seen.deaths) == (2.5, 1, (clock.now(),))
    assert heavy.id == seen.slowest[0].id
