"""Placement on live workers: preferred ones get jobs first, and duties are switched without a restart."""

import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import App, Unavailable
from holdfast.clock import Clock
from holdfast.jobs.placement import DUTIES
from holdfast.stores.contract import Store, Turn, TurnAnswer
from tests.faults.fleet import until

pytestmark = pytest.mark.claim("F20")
Make = Callable[..., App]
LONG = 3600.0


def studio(app: Make, prefer_for: float = LONG) -> App:
    holdfast = app(clock=Clock(), heartbeat=0.1, lost_after=30.0)
    work = holdfast.queue("work")

    @work.job(prefers=["gpu"], prefer_for=prefer_for)
    async def paint(number: int) -> int:
        return number

    @work.job
    async def note() -> None:
        return None

    return holdfast


def worker_of(holdfast: App, job: Any) -> str | None:
    found = holdfast.get(job.id)
    names = {str(row.id): row.name for row in holdfast.workers()}
    return names.get(found.worker or "")


def asks_late(worker: Any) -> bool:
    return bool(worker.asks.late)


def duties(holdfast: App, name: str = "one") -> tuple[str, ...]:
    return next(row.duties for row in holdfast.workers() if row.name == name)


class TestPreferences:
    def test_a_live_worker_with_the_label_gets_every_job(self, app: Make) -> None:
        holdfast = studio(app)
        with holdfast.worker(labels=["gpu"], name="gpu"), holdfast.worker(name="cpu") as cpu:
            until(lambda: asks_late(cpu), what="the other leaves them")
            jobs = [holdfast.enqueue("work", "paint", {"number": number}) for number in range(20)]
            for job in jobs:
                job.wait(60)
            assert {worker_of(holdfast, job) for job in jobs} == {"gpu"}

    def test_without_one_anybody_takes_it_at_once(self, app: Make) -> None:
        holdfast = studio(app)
        with holdfast.worker(name="cpu"):
            assert holdfast.enqueue("work", "paint", {"number": 1}).wait(60).outcome == "success"

    def test_when_the_one_with_the_label_leaves_others_take_over(self, app: Make) -> None:
        holdfast = studio(app)
        with holdfast.worker(name="cpu", poll=LONG) as cpu:
            with holdfast.worker(labels=["gpu"], name="gpu"):
                until(lambda: asks_late(cpu), what="the other leaves them")
            assert holdfast.enqueue("work", "paint", {"number": 1}).wait(60).outcome == "success"

    def test_a_job_that_was_left_for_long_enough_is_taken(self, app: Make) -> None:
        holdfast = studio(app, prefer_for=0.3)
        holdfast.switch_duty("run", True)
        with (
            holdfast.worker(labels=["gpu"], name="gpu", queues=["other"]),
            holdfast.worker(name="cpu", poll=LONG) as cpu,
        ):
            until(lambda: asks_late(cpu), what="the other leaves them")
            job = holdfast.enqueue("work", "paint", {"number": 1}).wait(60)
            assert worker_of(holdfast, job) == "cpu"
            assert job.start_time is not None
            assert job.start_time >= job.create_time + timedelta(seconds=0.3)

    def test_run_until_idle_leaves_nothing_to_others(self, app: Make) -> None:
        holdfast = studio(app)
        with holdfast.worker(labels=["gpu"], name="gpu", queues=["other"]):
            holdfast.enqueue("work", "paint", {"number": 1})
            assert holdfast.run_until_idle() == 1


class TestDuties:
    def test_run_is_switched_off_and_on_without_a_restart(self, app: Make) -> None:
        holdfast = studio(app)
        with holdfast.worker(name="one", labels=["gpu"], poll=LONG):
            rule = holdfast.switch_duty("run", False, label="gpu")
            until(lambda: duties(holdfast) == ("sweep", "schedule", "serve"), what="it obeys")
            job = holdfast.enqueue("work", "note")
            assert holdfast.explain(job.id).details["problem"] == "duty"
            holdfast.drop_duty_rule(rule.id)
            assert job.wait(60).outcome == "success"
        assert job.wait(60).attempt == 1

    def test_it_leaves_off_before_anybody_is_told(self, app: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        holdfast, seen = studio(app), list[bool]()
        with holdfast.worker(name="one") as one:
            tell = type(holdfast.store).set_duties

            def told(store: Store, *words: Any) -> None:
                seen.append(one.takes_jobs)
                if len(seen) == 1:
                    raise Unavailable("not now")
                tell(store, *words)

            monkeypatch.setattr(type(holdfast.store), "set_duties", told)
            holdfast.switch_duty("run", False)
            until(lambda: "run" not in duties(holdfast), what="it obeys, although it could not say so at first")
        assert seen == [False, False]

    def test_it_takes_nothing_although_it_does_not_know_that_it_has_said_so(
        self, app: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        holdfast, lost, go = studio(app), threading.Event(), threading.Event()
        with holdfast.worker(name="one", poll=0.05) as one:
            tell, beat = type(holdfast.store).set_duties, one._beat

            def told(store: Store, *words: Any) -> None:
                tell(store, *words)
                if not lost.is_set():
                    lost.set()
                    raise Unavailable("the answer was lost")

            def late(store: Store) -> None:
                assert not lost.is_set() or go.wait(60)
                beat(store)

            monkeypatch.setattr(type(holdfast.store), "set_duties", told)
            monkeypatch.setattr(one.pulse, "_beat", late)
            holdfast.switch_duty("run", False)
            assert lost.wait(60)
            assert "run" not in duties(holdfast)
            job = holdfast.enqueue("work", "note")
            assert not one.takes_jobs
            assert holdfast.explain(job.id).details["problem"] == "duty"
            go.set()
            holdfast.switch_duty("run", True)
            assert job.wait(60).outcome == "success"

    def test_a_claim_under_way_is_waited_for(self, app: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        holdfast, asked, go = studio(app), threading.Event(), threading.Event()
        exchange = type(holdfast.store).exchange

        def slow(store: Store, turn: Turn) -> TurnAnswer:
            if turn.wants:
                asked.set()
                assert go.wait(60)
            return exchange(store, turn)

        monkeypatch.setattr(type(holdfast.store), "exchange", slow)
        with holdfast.worker(name="one", poll=LONG) as one:
            assert asked.wait(60)
            holdfast.switch_duty("run", False)
            until(lambda: not one.takes_jobs, what="it leaves off")
            job = holdfast.enqueue("work", "note")
            assert "run" in duties(holdfast)  # what is under way may still claim it
            go.set()
            until(lambda: "run" not in duties(holdfast), what="it says so")
            assert job.wait(60).outcome == "success"

    def test_a_worker_that_joins_obeys_from_the_start(self, app: Make) -> None:
        holdfast = studio(app)
        holdfast.switch_duty("run", False, host=socket.gethostname())
        with holdfast.worker(name="one"):
            assert "run" not in duties(holdfast)
            job = holdfast.enqueue("work", "note")
            holdfast.switch_duty("run", True, host=socket.gethostname())
            assert job.wait(60).outcome == "success"

    def test_settings_name_the_duties_and_a_rule_wins(self, app: Make) -> None:
        holdfast = studio(app)
        with holdfast.worker(name="one", duties=["sweep", "schedule"]):
            assert duties(holdfast) == ("sweep", "schedule")
            job = holdfast.enqueue("work", "note")
            holdfast.switch_duty("run", True, version="*")
            assert job.wait(60).outcome == "success"

    def test_who_does_not_schedule_fires_nothing(self, app: Make) -> None:
        holdfast = studio(app)
        with holdfast.worker(name="one", duties=["run", "sweep"], poll=0.05):
            due = holdfast.add_schedule("often", "work", "note", every=0.1).next_time
            assert due is not None
            until(lambda: datetime.now(UTC) > due + timedelta(seconds=0.5), what="its time is over")
            assert holdfast.firings("often") == []
            holdfast.switch_duty("schedule", True)
            until(lambda: holdfast.firings("often"), what="somebody fires it")

    def test_who_does_not_sweep_recovers_nobody(self, app: Make) -> None:
        holdfast = studio(app)
        with holdfast.worker(name="one", duties=["run"]) as one:
            job = holdfast.enqueue("work", "note")
            job.wait(60)
            swept: list[int] = []
            one.sweeper.find_lost = lambda: swept.append(1)  # type: ignore[attr-defined]
            before = next(row.beat for row in holdfast.workers())
            until(lambda: next(row.beat for row in holdfast.workers()) > before + 3, what="heartbeats")
            assert swept == []
            holdfast.switch_duty("sweep", True)
            until(lambda: swept, what="a sweep")

    def test_everybody_has_all_duties_unless_told_otherwise(self, app: Make) -> None:
        holdfast = studio(app)
        with holdfast.worker(name="one"):
            assert duties(holdfast) == DUTIES
