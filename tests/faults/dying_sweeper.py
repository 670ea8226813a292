"""A sweeper that dies at its n-th statement, for every n, and the next one that finishes: `python -m tests.faults.dying_sweeper URL NAME EVERY`."""

import sys
import time
from datetime import UTC, datetime, timedelta

from holdfast import App
from holdfast.clock import Clock, MovableClock
from holdfast.jobs.job import Outcome
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.sweeper import Sweeper
from tests.by_hand import WorkerByHand
from tests.faults.dying import DIED, DONE, die_at, forked
from tests.invariants import check_invariants

JOBS = 6
LOST_AFTER = 2.0


def make_app(url: str, name: str) -> App:
    app = App(url, name=name)
    queue, narrow = app.queue("work"), app.queue("narrow", throttle_limit=3)
    queue.job(name="plain")(done)
    queue.job(name="once", on_crash="timeout", timeout=0.001, retries=0)(done)
    narrow.job(name="heavy")(done)
    return app


def done() -> None: ...


def prepare(url: str, name: str) -> int:
    """A worker that is gone with jobs of every kind in hand, and a job that expires."""
    with make_app(url, name) as app:
        for job_type in ("plain", "once", "heavy"):
            app.job_types[job_type].enqueue_many([{}] * JOBS)
        worker = WorkerByHand(app.store, ("plain", "once", "heavy"), ("work", "narrow"))
        worker.claim(2 * JOBS, "work")
        worker.claim(1, "narrow")
        soon = datetime.now(UTC) + timedelta(seconds=0.2)
        app.job_types["plain"].using(expires=soon).enqueue()
        while datetime.now(UTC) < soon:
            time.sleep(0.01)
    return DONE


def lone_sweeper(app: App, clock: Clock) -> Sweeper:
    """Without the worker that it is a thread of."""
    settings = WorkerSettings(heartbeat=0.5, lost_after=LOST_AFTER, forgotten_after=0)
    return Sweeper(app.store, settings, clock, lambda: 0, lambda: 0, lambda store: None, lambda: None)


def watch(app: App) -> Sweeper:
    """A sweeper that has seen everybody's counter, and with its next sweep has seen it stand still for long enough."""
    clock = MovableClock()
    sweeper = lone_sweeper(app, clock)
    for _ in range(2):
        sweeper.find_lost()
        clock.advance(LOST_AFTER / 2)
    return sweeper


def sweep_until(url: str, name: str, last: int) -> int:
    with make_app(url, name) as app:
        sweeper = watch(app)
        die_at(last, app.store)
        sweeper.sweep(everything=True)
    return DONE


def finish(url: str, name: str) -> int:
    check_invariants(url, name)
    with make_app(url, name) as app:
        watch(app).sweep(everything=True)
        check_invariants(url, name)
        assert app.store.workers() == []
        app.run_until_idle()
        ends = {(job.job_type, job.outcome) for job in app.find(limit=10_000)}
        assert ends == {
            ("plain", Outcome.SUCCESS),
            ("plain", Outcome.ERROR),  # the one that expired
            ("once", Outcome.ERROR),
            ("heavy", Outcome.SUCCESS),
        }, ends
    return DONE


def main(url: str, name: str, every: int) -> int:
    """How often it died."""
    last = 1
    while True:
        assert forked(lambda: prepare(url, name)) == DONE
        code = forked(lambda last=last: sweep_until(url, name, last))
        assert code in (DIED, DONE), code
        assert forked(lambda: finish(url, name)) == DONE
        if code == DONE:
            return (last - 1) // every
        last += every


if __name__ == "__main__":
    url, name, every = sys.argv[1:]
    print(main(url, name, int(every)))
