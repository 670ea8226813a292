"""W2: the order in which due jobs start is always the pure rule's."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from holdfast.clock import MovableClock
from holdfast.errors import Invalid
from holdfast.stores.contract import NewJob, QueueDeclared, Store, TypeRow
from tests.by_hand import WorkerByHand, add

pytestmark = pytest.mark.claim("W2")

WHOLE = HealthCheck.function_scoped_fixture
PRIORITIES = [1, 1.5, 2, 100, 100.25, -3, 0, 1e6]
FIELDS = some.tuples(
    some.sampled_from(PRIORITIES), some.integers(-3, 3), some.sampled_from(["new", "error", "loose", "snoozed"])
)


def pure_order(jobs: list[Any], order: str) -> list[int]:
    """The rule itself: priority, then time, then id; or time before priority."""

    def rank(job: Any) -> tuple[Any, ...]:
        first, second = job.priority, job.scheduled_run_time
        return (first, second, job.id) if order == "priority" else (second, first, job.id)

    return [job.id for job in sorted(jobs, key=rank)]


@pytest.mark.parametrize("order", ["priority", "schedule"])
@given(
    fields=some.lists(FIELDS, min_size=1, max_size=12),
    room=some.integers(1, 13),
    together=some.booleans(),
    limit=some.sampled_from([0.0, 1000.0]),
)
@settings(max_examples=25, suppress_health_check=[WHOLE])
def test_due_jobs_start_in_the_order_of_the_pure_rule(
    store: Store,
    instance: str,
    clock: MovableClock,
    order: str,
    fields: list[tuple[float, int, str]],
    room: int,
    together: bool,
    limit: float,
) -> None:
    """Whatever became of them before: new, after an error, handed back or snoozed; added in one call or one by one."""
    store.register([QueueDeclared("mail", f"{instance}_mail", order, limit)], [])
    worker = WorkerByHand(store)
    now = clock.now()
    new = [
        NewJob(
            "mail", "send", "{}", priority=priority, scheduled_run_time=now + timedelta(seconds=offset), retries=None
        )
        for priority, offset, _ in fields
    ]
    added = store.add(new) if together else [store.add([job])[0] for job in new]
    past = {job.id: how for job, (_, _, how) in zip(added, fields, strict=True)}
    for call in worker.claim(100):
        if past[call.id] == "error":
            worker.fail(call, retry_delay=1.0)
        elif past[call.id] == "snoozed":
            worker.snooze(call, 2.0)
        else:
            worker.hand_back(call)
    clock.advance(10)

    expected = pure_order([store.get(job.id) for job in added], order)
    claimed: list[int] = []
    while found := worker.claim(room):
        claimed += [call.id for call in found]
        worker.succeed(*found)

    assert claimed == expected


def test_the_default_priority_is_a_hundred_and_lower_is_more_urgent(store: Store) -> None:
    plain, urgent, idle = add(store), add(store, priority=99), add(store, priority=101)

    assert plain.priority == 100
    assert [call.id for call in WorkerByHand(store).claim(10)] == [urgent.id, plain.id, idle.id]


def test_a_newcomer_that_is_more_urgent_goes_first(store: Store) -> None:
    first, second = add(store), add(store)
    worker = WorkerByHand(store)
    assert worker.claim_one().id == first.id
    urgent = add(store, priority=1)

    assert [call.id for call in worker.claim(10)] == [urgent.id, second.id]


def test_jobs_scheduled_for_later_take_their_place_when_their_time_comes(store: Store, clock: MovableClock) -> None:
    late = [add(store, delay=delay, priority=priority) for delay, priority in [(10, 100), (5, 100), (10, 50), (20, 1)]]
    now = add(store)
    worker = WorkerByHand(store)
    clock.advance(10)

    assert [call.id for call in worker.claim(10)] == [late[2].id, now.id, late[1].id, late[0].id]


def test_a_queue_that_changes_its_order_reorders_who_stands_in_line(
    store: Store, instance: str, clock: MovableClock
) -> None:
    older, urgent = add(store), add(store, priority=1, scheduled_run_time=clock.now() + timedelta(seconds=1))
    waiting = add(store, priority=2, delay=2)
    clock.advance(1)
    worker = WorkerByHand(store)
    worker.turn(promote=True)

    store.register([QueueDeclared("mail", f"{instance}_mail", "schedule")], [])
    clock.advance(2)
    last = add(store, priority=0)

    assert [call.id for call in worker.claim(10)] == [older.id, urgent.id, waiting.id, last.id]


def test_each_queue_has_its_own_line(store: Store, instance: str) -> None:
    store.register([QueueDeclared("post", f"{instance}_post")], [TypeRow("scan", "post")])
    mail, post = add(store), add(store, "scan", "post", priority=1)
    worker = WorkerByHand(store, ["send", "scan"])

    assert [call.id for call in worker.claim(10, "mail")] == [mail.id]
    assert [call.id for call in worker.claim(10, "post")] == [post.id]


def test_with_room_for_everything_everything_starts(store: Store) -> None:
    ids = {job.id for job in store.add([NewJob("mail", "send", "{}", priority=number % 7) for number in range(60)])}

    assert {call.id for call in WorkerByHand(store).claim(100)} == ids


@pytest.mark.parametrize("count", [1, 3, 101])
def test_an_enqueue_heeds_an_order_that_others_have_changed(
    store: Store, instance: str, clock: MovableClock, count: int
) -> None:
    """Whoever enqueues one job after the other has looked at the queue long ago."""
    first = add(store, priority=5)
    other = store.another(5)
    other.register([QueueDeclared("mail", f"{instance}_mail", "schedule", 0.0)], [])
    clock.advance(1)
    second = store.add([NewJob("mail", "send", "{}", priority=1)] * count)
    clock.advance(1)
    third = store.add([NewJob("mail", "send", "{}", priority=0)] * count)

    worker = WorkerByHand(other)
    wanted = [first.id, *(job.id for job in (*second, *third))]
    assert [call.id for _ in wanted for call in worker.claim(1)] == wanted  # those of one claim come sorted anyway
    other.close()


@pytest.mark.claim("W3", "Q6")
@pytest.mark.parametrize("count", [1, 3])
def test_an_enqueue_heeds_a_limit_that_others_have_set(store: Store, count: int) -> None:
    add(store, throttle_factor=2)
    other = store.another(5)
    other.limit("mail", 1, "tests")

    with pytest.raises(Invalid, match="above the queue's throttle_limit"):
        store.add([NewJob("mail", "send", "{}", throttle_factor=2)] * count)

    assert len(store.add([NewJob("mail", "send", "{}")] * count)) == count
    assert sum(store.counts()["mail"].values()) == 1 + count
    other.close()


@pytest.mark.claim("Q6")
@pytest.mark.parametrize("count", [2, 20, 100, 101, 250])
def test_jobs_that_differ_by_their_payloads_come_back_in_the_order_they_were_given(store: Store, count: int) -> None:
    payloads = [f'{{"n":{number},"text":"\\\\ \\" \\n {{}} , é"}}' for number in range(count)]
    jobs = store.add([NewJob("mail", "send", payload) for payload in payloads])

    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert [job.payload["n"] for job in jobs] == list(range(count))
    assert [store.get(job.id).payload for job in jobs] == [job.payload for job in jobs]
