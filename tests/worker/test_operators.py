"""Q2: what an operator does to a queue is stored, is written down with who did it, and reaches every worker at once.

The workers here would look by themselves only after an hour: what they hear of, they were told.
"""

import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast import App, Invalid
from holdfast.clock import Clock
from tests.conftest import Preparation, with_queues
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("Q2")
PATIENCE = 60


@pytest.fixture(scope="session")
def preparation() -> Preparation:
    return with_queues("mail")


class Gate:
    """Handlers that stand in it until they are let go, and how many stand there."""

    def __init__(self) -> None:
        self._inside = threading.Semaphore(0)
        self._open = threading.Semaphore(0)
        self._closed = False

    def stand(self) -> None:
        self._inside.release()
        assert self._open.acquire(timeout=PATIENCE)

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self._inside.acquire(timeout=PATIENCE), "nobody came"

    def let_go(self, count: int) -> None:
        for _ in range(count):
            self._open.release()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.let_go(100)


@pytest.fixture
def programs(app: Callable[..., App], gate: Gate) -> list[App]:
    """Two programs with the same code."""
    made = [app(clock=Clock()) for _ in range(2)]
    for each in made:
        declare(each, gate)
    return made


def declare(app: App, gate: Gate) -> None:
    queue = app.queue("mail")

    @queue.job(name="stand")
    def stand() -> None:
        gate.stand()

    @queue.job(name="send")
    def send(n: int = 0) -> int:
        return n


def test_a_pause_and_its_end_reach_every_worker_at_once(programs: list[App]) -> None:
    here, there = programs
    with here.worker(poll=3600, concurrency=2), there.worker(poll=3600, concurrency=2):
        assert here.enqueue("mail", "send", {"n": 1}).unwrap(PATIENCE) == 1
        there.pause("mail")
        waiting = [here.enqueue("mail", "send", {"n": n}) for n in range(5)]
        with pytest.raises(TimeoutError):
            waiting[0].wait(0.3)
        assert {job.refresh().state for job in waiting} == {"initial"}
        here.resume("mail")
        assert [job.unwrap(PATIENCE) for job in waiting] == [0, 1, 2, 3, 4]


def test_a_limit_and_its_end_reach_every_worker_at_once(programs: list[App], gate: Gate) -> None:
    here, there = programs
    with here.worker(poll=3600, concurrency=5), there.worker(poll=3600, concurrency=5):
        here.limit("mail", 2)
        jobs = [there.enqueue("mail", "stand") for _ in range(8)]
        gate.wait_for(2)
        assert sum(job.refresh().state == "running" for job in jobs) == 2
        there.limit("mail", 3)
        gate.wait_for(1)
        assert sum(job.refresh().state == "running" for job in jobs) == 3
        here.limit("mail", None)  # as the code declares: none
        gate.wait_for(5)
        gate.let_go(8)
        for job in jobs:
            job.unwrap(PATIENCE)


def test_a_worker_in_memory_hears_of_it_too(gate: Gate) -> None:
    with App("sqlite://:memory:", name="shop") as app:
        declare(app, gate)
        with app.worker(poll=3600, concurrency=5):
            app.pause("mail")
            jobs = [app.enqueue("mail", "stand") for _ in range(3)]
            app.limit("mail", 1)
            app.resume("mail")
            gate.wait_for(1)
            assert sum(job.refresh().state == "running" for job in jobs) == 1
            app.limit("mail", None)
            gate.wait_for(2)
            gate.let_go(3)
            for job in jobs:
                job.unwrap(PATIENCE)


def test_what_was_set_outlives_every_program_and_wins_over_other_code(app: Callable[..., App]) -> None:
    first = app()
    first.queue("mail", throttle_limit=10)
    first.limit("mail", 3)
    first.pause("mail")
    first.close()

    later = app()
    later.queue("mail", throttle_limit=50)
    (row,) = later.store.queues()
    assert (row.throttle_limit, row.declared_limit, row.set_limit, row.paused) == (3, 50, 3, True)

    later.limit("mail", None)
    later.resume("mail")
    (row,) = app().store.queues()
    assert (row.throttle_limit, row.set_limit, row.paused) == (50, None, False)


def test_an_operator_can_take_a_limit_away_altogether(app: Callable[..., App]) -> None:
    holdfast = app()
    queue = holdfast.queue("mail", throttle_limit=1)

    @queue.job
    def send() -> None: ...

    holdfast.limit("mail", 0)
    assert [row.throttle_limit for row in holdfast.store.queues()] == [0]
    assert send.using(throttle_factor=7).enqueue().state == "initial"
    assert holdfast.run_until_idle() == 1


def test_each_act_is_written_down_with_who_did_it(app: Callable[..., App], sql: RawSql) -> None:
    holdfast = app()
    holdfast.queue("mail")
    holdfast.pause("mail", actor="ann")
    holdfast.resume("mail")
    holdfast.limit("mail", 2.5, actor="bob")
    holdfast.limit("mail", None, actor="ann")

    rows = sql("select actor, action, queue, detail from {audit} order by id")

    assert [tuple(row.values()) for row in rows] == [
        ("ann", "pause", "mail", None),
        ("app", "resume", "mail", None),
        ("bob", "limit", "mail", "2.5"),
        ("ann", "limit", "mail", "declared"),
    ]


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), "5", True])
def test_a_limit_that_is_no_number_is_refused_and_nothing_is_written(
    app: Callable[..., App], sql: RawSql, limit: float
) -> None:
    holdfast = app()
    holdfast.queue("mail")
    with pytest.raises(Invalid, match="throttle_limit"):
        holdfast.limit("mail", limit)
    assert holdfast.store.queues()[0].set_limit is None
    assert sql("select * from {audit}") == []
