"""A live worker fires schedules: when their time comes, when it hears of one, and each time once among many."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Unavailable
from holdfast.clock import Clock, MovableClock
from holdfast.stores.contract import Fired
from holdfast.worker.scheduler import Scheduler
from tests.faults.fleet import make_app, until, worker

Make = Callable[..., App]
pytestmark = pytest.mark.claim("W6")
NEVER = 3600.0  # nobody looks without being told


def shop(app: Make, **settings: Any) -> App:
    holdfast = app(**settings)

    @holdfast.queue("work").job(name="note")
    async def note(run: int = 0) -> int:
        return run

    return holdfast


def done(app: App) -> list[Any]:
    return sorted(job.result for job in app.find(state="final", limit=1000))


def test_a_worker_fires_when_the_clock_is_moved(app: Make, clock: MovableClock) -> None:
    holdfast = shop(app)
    holdfast.schedule("ten", every=600, job="note", payload={"run": "{count}"})
    with holdfast.worker(poll=NEVER):
        for count in range(1, 4):
            clock.advance(600)
            until(lambda count=count: done(holdfast) == list(range(1, count + 1)), what=f"firing {count}")
    assert [firing.actor for firing in holdfast.firings("ten")] == ["schedule"] * 3


def test_a_worker_wakes_for_the_next_time_by_itself(app: Make) -> None:
    holdfast = shop(app, clock=Clock())
    points = [datetime.now(UTC) + timedelta(seconds=seconds) for seconds in (1.0, 1.4, 2.0)]
    holdfast.schedule("soon", at=points, job="note", payload={"run": "{count}"})
    with holdfast.worker(poll=NEVER):
        until(lambda: done(holdfast) == [1, 2, 3], what="three points in time")
    assert [firing.time for firing in reversed(holdfast.firings("soon"))] == points


def test_a_worker_hears_of_a_schedule_that_another_program_adds(app: Make) -> None:
    holdfast, operator = shop(app, clock=Clock()), shop(app, clock=Clock())
    with holdfast.worker(poll=NEVER):
        operator.add_schedule("often", "work", "note", {"run": "{count}"}, every=0.2)
        until(lambda: len(done(holdfast)) >= 3, what="three firings")
        operator.remove_schedule("often")
    assert len(set(done(holdfast))) == len(done(holdfast))


def test_a_schedule_that_cannot_be_used_does_not_stop_the_worker(app: Make, clock: MovableClock) -> None:
    holdfast = shop(app)
    holdfast.schedule("heavy", every=600, job="note", throttle_factor=9)
    holdfast.schedule("light", every=600, job="note", payload={"run": 7})
    holdfast.limit("work", 1)
    with holdfast.worker(poll=NEVER):
        clock.advance(600)
        until(lambda: done(holdfast) == [7], what="the other schedule")
        until(lambda: next(row for row in holdfast.schedules() if row.name == "heavy").problem, what="it says why")


@pytest.mark.fault(4, "kill -9 of a worker that fires schedules")
def test_worker_processes_fire_each_time_once_although_one_is_killed(url: str, instance: str, tmp_path: Path) -> None:
    with make_app(url, instance) as app:
        app.add_schedule("beat", "work", "quick", {"i": "{count}"}, every=0.2, misfire="all")

        def count() -> int:
            return app.schedules()[0].count

        with worker(url, tmp_path, name=instance) as first, worker(url, tmp_path, name=instance):
            until(lambda: count() >= 5, what="five firings")
            first.kill()
            killed_at = count()
            until(lambda: count() >= killed_at + 5, what="five more")
            with worker(url, tmp_path, name=instance):  # and a restart
                restarted_at = count()
                until(lambda: count() >= restarted_at + 5, what="five more with a new one")
                app.remove_schedule("beat")
                until(lambda: not app.find(state="initial") and not app.find(state="running"), what="all are final")
        jobs = sorted(app.find(job_type="quick", limit=1000), key=lambda job: job.id)
        times = [job.scheduled_run_time for job in jobs]
        assert [job.payload["i"] for job in jobs] == list(range(1, len(jobs) + 1))
        assert times == [times[0] + timedelta(seconds=0.2) * index for index in range(len(times))]
        assert {job.outcome for job in jobs} == {"success"}


class Looks:
    """A store that only counts looks."""

    patience: float | None = None

    def __init__(self, *answers: Fired | Exception) -> None:
        self.count = 0
        self.looked = threading.Semaphore(0)
        self._answers = list(answers)

    def fire_due(self) -> Fired:
        self.count += 1
        self.looked.release()
        answer = self._answers.pop(0) if self._answers else Fired(None)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None: ...


def test_a_storm_of_news_is_looked_at_a_few_times(request: pytest.FixtureRequest) -> None:
    looks = Looks()
    scheduler = Scheduler(looks, Clock(), NEVER)  # type: ignore[arg-type]
    request.addfinalizer(scheduler.close)
    scheduler.start()
    assert looks.looked.acquire(timeout=30)
    for _ in range(2):
        for _ in range(20_000):
            scheduler.hear()
        assert looks.looked.acquire(timeout=30)  # however much of it came before, what came last is looked at
    assert looks.count < 10


@pytest.mark.parametrize("trouble", [Unavailable("gone"), ValueError("odd"), Fired(0.0)])
def test_trouble_is_waited_out(request: pytest.FixtureRequest, trouble: Any) -> None:
    looks = Looks(trouble)
    scheduler = Scheduler(looks, Clock(), NEVER)  # type: ignore[arg-type]
    request.addfinalizer(scheduler.close)
    scheduler.start()
    for _ in range(2):
        assert looks.looked.acquire(timeout=30)
