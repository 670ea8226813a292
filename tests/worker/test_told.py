"""Workers are told of every job that is due: one that never looks by itself runs them all, among many queues, without being asked twice."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import App, Fixed, Job, Retry, Snooze, current_job, rate
from holdfast.compose import Run
from holdfast.declare import JobType

NEVER = 3600.0  # seconds until a worker looks without being told
NAMES = [f"q{letter}" for letter in "abcdefghijkl"]
PLAIN, FAILS, SNOOZES, AGAIN, ENQUEUES = range(5)


def declare(app: App) -> list[JobType]:
    """A type in each of many queues, some with limits and one with a rate; and a workflow."""
    found: list[JobType] = []
    for number, name in enumerate(NAMES):
        limit = 3 if number % 5 == 1 else 0
        queue = app.queue(name, throttle_limit=limit, throttler=rate(200, per=1) if number == 7 else None)

        async def handle(mode: int) -> None:
            if mode == ENQUEUES:
                await found[current_job().id % len(found)].aenqueue(mode=PLAIN)
            if current_job().attempt > 1 or mode in (PLAIN, ENQUEUES):
                return
            raise {FAILS: ValueError("once"), SNOOZES: Snooze(0.02), AGAIN: Retry("now", delay=0)}[mode]

        found.append(queue.job(name=f"in_{name}", retries=3, retry=Fixed(0.03))(handle))
    workflow = app.workflow("w", queue=NAMES[2])
    workflow.step(name="first", shards=3)(nothing)
    workflow.step(name="each", after=["first"], items=lambda task: range(20), max_undone=6)(nothing)
    return found


async def nothing(task: Any) -> None: ...


@pytest.fixture
def asks(url: str, instance: str) -> Iterator[App]:
    """It has no worker, as another process."""
    with App(url, name=instance) as app:
        declare(app)
        yield app


def some_jobs(app: App, luck: random.Random) -> Iterator[Job]:
    """A few or many, in one queue or in all of them, some for a little later."""
    queues = luck.sample(NAMES, luck.choice([1, 2, len(NAMES)]))
    for _ in range(luck.choice([1, 1, 2, 20])):
        chosen = app.job_types[f"in_{luck.choice(queues)}"]
        delay = luck.random() * 0.05 if luck.random() < 0.2 else None
        yield chosen.using(delay=delay, priority=luck.choice([1, 100])).enqueue(mode=luck.choice(range(5)))


@pytest.mark.claim("W1", "R5", "C4")
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(3, 13))])
def test_nobody_waits_for_a_worker_that_looks_by_itself(url: str, instance: str, asks: App, seed: int) -> None:
    luck, runs = random.Random(seed), list[Run]()
    with App(url, name=instance) as app:
        declare(app)
        worker = app.worker_for_ever(concurrency=luck.choice([2, 5, 20]), poll=NEVER)
        worker.start()
        try:
            for number in range(25):
                jobs = [*some_jobs(asks, luck)]
                if luck.random() < 0.2:
                    queue = luck.choice(NAMES)
                    asks.pause(queue)
                    asks.resume(queue)
                if luck.random() < 0.2:
                    runs.append(asks.workflows["w"].submit(str(number)))
                for job in jobs:
                    assert job.wait(30).outcome == "success"
            for run in runs:
                assert run.wait(30).state == "SUCCESS"
            wait_for_all(asks)
        finally:
            worker.stop()


def wait_for_all(app: App) -> None:
    """Also those that jobs have enqueued."""
    for state in ("initial", "running", "error"):
        for job in app.find(state=state, limit=1000):
            job.wait(30)
