"""A stranger's old snapshot keeps dead rows at the head of the line: claims begin behind them, and look back once a second."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import App
from holdfast.stores.contract import Done, Turn, TurnAnswer, Want
from holdfast.stores.postgres import floors
from holdfast.stores.postgres.floors import Floors, Start
from holdfast.stores.postgres.jobs import PostgresStore
from tests.faults.fleet import make_app, until


@contextmanager
def old_snapshot(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url) as neighbour:
        neighbour.execute("set transaction isolation level repeatable read")
        neighbour.execute("select count(*) from pg_class")
        yield neighbour
        neighbour.rollback()


class Claimer:
    """A worker's place, held by hand."""

    def __init__(self, app: App) -> None:
        self.app = app
        worker = app.worker()
        worker.store = app.store
        worker.join()
        self.id = worker.id

    def claim(self, room: int) -> TurnAnswer:
        return self.app.store.exchange(Turn(self.id, wants=[Want("work", room)], types=("quick",)))

    def ids(self, room: int) -> list[int]:
        return [call.id for call in self.claim(room).claimed]


@pytest.mark.claim("W2")
def test_claims_begin_behind_pinned_rows_and_look_from_the_beginning_once_a_second(
    postgres_url: str, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = [1000.0]
    monkeypatch.setattr(floors, "monotonic", lambda: time[0])
    monkeypatch.setattr(floors, "MANY", 500)
    with make_app(postgres_url, instance) as app:
        quick, store = app.job_types["quick"], app.store
        jobs = [job.id for job in quick.enqueue_many([{"i": i} for i in range(1000)])]
        claimer = Claimer(app)
        with old_snapshot(postgres_url) as neighbour:
            claimer.claim(900)

            def noticed() -> str | None:
                time[0] += floors.HELD_FOR
                told: str | None = store.tidy(False)
                return told

            told = until(noticed, what="the old snapshot is noticed")
            assert f"process {neighbour.info.backend_pid} " in str(told)
            assert claimer.ids(10) == jobs[900:910]  # from the beginning, which makes the floor
            urgent = quick.using(priority=1).enqueue(i=1).id
            answer = claimer.claim(10)
            assert [call.id for call in answer.claimed] == jobs[910:920]
            assert answer.look_in == floors.LOOK_EVERY
            time[0] += floors.LOOK_EVERY
            assert claimer.ids(2) == [urgent, jobs[920]]
            assert claimer.ids(2) == jobs[921:923]
        until(lambda: store.tidy(False) is None and not store.floors.pinned, what="it is over")
        urgent = quick.using(priority=1).enqueue(i=2).id
        assert claimer.ids(1) == [urgent]


@pytest.mark.claim("W2")
def test_many_urgent_jobs_are_all_claimed_before_the_others_go_on(
    postgres_url: str, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = [1000.0]
    monkeypatch.setattr(floors, "monotonic", lambda: time[0])
    with make_app(postgres_url, instance) as app:
        quick, store = app.job_types["quick"], app.store
        jobs = [job.id for job in quick.enqueue_many([{"i": i} for i in range(20)])]
        claimer = Claimer(app)
        store.floors.pinned = True
        assert claimer.ids(5) == jobs[:5]
        urgent = [job.id for job in quick.using(priority=1).enqueue_many([{"i": i} for i in range(12)])]
        time[0] += floors.LOOK_EVERY
        assert [claimer.ids(5) for _ in range(4)] == [urgent[:5], urgent[5:10], [*urgent[10:], *jobs[5:8]], jobs[8:13]]


@pytest.mark.claim("W2")
def test_a_worker_that_rests_looks_back_within_a_second(
    postgres_url: str, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "MANY", 500)
    with make_app(postgres_url, instance) as app, app.worker(poll=3600.0) as worker, old_snapshot(postgres_url):
        quick = app.job_types["quick"]

        def pinned() -> bool:
            for job in quick.enqueue_many([{"i": i} for i in range(200)])[-1:]:
                job.wait(60)
            return bool(worker.store.floors.pinned)  # type: ignore[attr-defined]

        until(pinned, what="the sweeper has noticed it")
        quick.enqueue(i=1).wait(60)
        assert quick.using(priority=1).enqueue(i=7).unwrap(60) == 7


class Pinned:
    """A line of twenty whose first five are taken, so that it has a floor. Looks at all of it take so long that only the first one is due."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = [1000.0]
        monkeypatch.setattr(floors, "monotonic", lambda: self.time[0])
        monkeypatch.setattr(floors, "PART", 10**9)
        self.app, self.quick, self.store = app, app.job_types["quick"], app.store
        assert isinstance(self.store, PostgresStore)
        self.floors = self.store.floors
        self.jobs = [job.id for job in self.quick.enqueue_many([{"i": i} for i in range(20)])]
        self.claimer = Claimer(app)
        self.floors.pinned = True
        assert self.claimer.ids(5) == self.jobs[:5]

    def urgent(self, count: int = 1) -> list[int]:
        return [job.id for job in self.quick.using(priority=1).enqueue_many([{"i": i} for i in range(count)])]

    def looked_at(self, size: int) -> None:
        """When the table had so many pages."""
        for floor in self.floors._floors.values():
            floor.sizes = (size,)

    def look_back(self, room: int) -> list[int]:
        self.time[0] += floors.LOOK_EVERY
        return self.claimer.ids(room)


@pytest.fixture
def pinned(postgres_url: str, instance: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pinned]:
    with make_app(postgres_url, instance) as app:
        yield Pinned(app, monkeypatch)


@pytest.mark.claim("W2")
def test_what_is_new_is_looked_at_while_a_look_at_all_takes_too_long(pinned: Pinned) -> None:
    urgent = pinned.urgent(12)
    assert pinned.claimer.ids(1) == [pinned.jobs[5]], "a second is not over"
    assert (
        [pinned.look_back(5)] + [pinned.claimer.ids(5) for _ in range(3)]
        == [
            urgent[:5],
            urgent[5:10],  # there may be more where there were so many
            urgent[10:],
            pinned.jobs[6:11],
        ]
    )


@pytest.mark.claim("W2")
def test_a_look_at_what_is_new_says_nothing_of_what_stands_behind(pinned: Pinned) -> None:
    """So whoever looked is to look again at once, and not to rest."""
    pinned.time[0] += floors.LOOK_EVERY
    answer = pinned.claimer.claim(5)
    assert (answer.claimed, answer.look_in) == ([], 0.0)
    assert pinned.claimer.ids(5) == pinned.jobs[5:10]


@pytest.mark.claim("W2")
def test_what_was_stored_before_the_new_pages_waits_for_a_look_at_all(
    pinned: Pinned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "FRINGE", 0)
    pinned.looked_at(1)
    urgent = pinned.urgent()
    assert pinned.look_back(5) == []
    for floor in pinned.floors._floors.values():
        floor.all_at = 0.0
    assert pinned.look_back(1) == urgent


@pytest.mark.claim("W2")
def test_what_is_committed_late_is_found_in_pages_that_were_looked_at_before(
    pinned: Pinned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "FRINGE", 0)
    pinned.looked_at(0)
    with pinned.app.transaction():
        late = pinned.quick.using(priority=1).enqueue(i=1)
        pinned.quick.using(priority=200).enqueue_many([{"i": i} for i in range(2000)])
        assert pinned.look_back(5) == []
        pages = [floor.sizes[-1] for floor in pinned.floors._floors.values()]
    assert pages > [1]
    assert pinned.look_back(5) == [late.id]


def test_a_look_at_what_is_new_does_not_walk_through_the_line(pinned: Pinned) -> None:
    store: Any = pinned.store
    start = Start((100.0, 0.0, 1), 1)
    text = store.text("claim", "work", f"asked_types {start.asked}")
    params = {"worker": 1, "pump": 0, "types": "{quick}", "queue": "work", "room": 5, "now": None, **start.params}
    rows = store.connection.database.execute("explain " + text, params).fetchall()
    plan = " ".join(line for (line,) in rows)
    head = plan[: plan.index("CTE taken")]
    assert "Tid Range Scan" in head
    assert "Index" not in head.replace("Index Cond: (name", "").split("CTE fresh")[1].split("InitPlan")[0]


@pytest.mark.claim("W2")
def test_a_look_at_all_gets_a_part_of_the_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    time, line, found = [1000.0], ("work", "{quick}"), Floors()
    monkeypatch.setattr(floors, "monotonic", lambda: time[0])
    found.pinned = True
    alls = 0
    for _ in range(4000):
        start = found.begin(line)
        takes = 3.0 if start.place is None else 0.1
        alls += start.place is None
        time[0] += takes
        found.learn(line, start, (100.0, 0.0, 1), False, 1, takes)
    assert alls * 3.0 == pytest.approx((time[0] - 1000.0) / floors.PART, rel=0.2)


@pytest.mark.claim("W2")
def test_processes_that_look_at_what_is_new_at_once_take_what_the_other_does_not(
    pinned: Pinned, postgres_url: str, instance: str
) -> None:
    with make_app(postgres_url, instance) as app:
        assert isinstance(app.store, PostgresStore)
        other = Claimer(app)
        app.store.floors.pinned = True
        assert other.ids(1) == [pinned.jobs[5]]
        urgent = pinned.urgent(12)
        pinned.time[0] += floors.LOOK_EVERY
        with pinned.store.work():
            assert pinned.claimer.ids(5) == urgent[:5]
            assert other.ids(5) == urgent[5:10]


def test_a_look_at_what_is_new_locks_what_it_takes_only(pinned: Pinned, postgres_url: str) -> None:
    """While foreign locks are avoided."""
    store: Any = pinned.store
    urgent = pinned.urgent(100)
    store._careful_until = float("inf")
    pinned.time[0] += floors.LOOK_EVERY
    with psycopg.connect(postgres_url) as neighbour, store.work():
        assert pinned.claimer.ids(5) == urgent[:5]
        free = "select id from tests_work where id = any(%s) for update skip locked"
        assert len(neighbour.execute(free, (urgent,)).fetchall()) == 95


def test_what_a_turn_waits_for_is_not_held_against_its_look(
    postgres_url: str, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_app(postgres_url, instance) as app, psycopg.connect(postgres_url) as neighbour:
        assert isinstance(app.store, PostgresStore)
        quick, store, time = app.job_types["quick"], app.store, [1000.0]
        monkeypatch.setattr(floors, "monotonic", lambda: time[0])
        quick.enqueue_many([{"i": i} for i in range(20)])
        claimer = Claimer(app)
        store.floors.pinned = True
        (call, _) = claimer.claim(2).claimed
        time[0] += floors.LOOK_EVERY
        neighbour.execute("select from tests_work where id = %s for update", (call.id,))
        threading.Timer(1.0, neighbour.rollback).start()
        store.exchange(Turn(claimer.id, wants=[Want("work", 2)], types=("quick",), done=[Done(call, 1.0, None)]))
        (floor,) = store.floors._floors.values()
        assert floor.all_at < time[0] + 5.0
