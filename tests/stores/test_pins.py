"""A stranger's old snapshot keeps dead rows at the head of the line: claims begin behind them, and look back once a second."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import App
from holdfast.stores.contract import Turn, TurnAnswer, Want
from holdfast.stores.postgres import floors
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
