"""What the sweeper of a worker logs about jobs that no live worker handles."""

import logging
from collections.abc import Callable, Iterator

import pytest

from holdfast import Adaptive
from holdfast.clock import MovableClock
from holdfast.jobs.retry import encode
from holdfast.stores.contract import Store
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.sweeper import Sweeper
from tests.by_hand import WorkerByHand, add, declare

PARKED = (
    "Job {0} of type `send` is parked: no live worker handles this type. Its jobs run as soon as one does; "
    "`holdfast jobs explain {0}` says more."
)


@pytest.fixture
def sweeper(store: Store, clock: MovableClock) -> Iterator[Sweeper]:
    made = Sweeper(store.another(), WorkerSettings(), clock, lambda: 0, lambda: 0, lambda _: None, lambda: None)
    yield made
    made.close()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was logged since the last look."""
    caplog.set_level(logging.WARNING, "holdfast")

    def look() -> list[str]:
        found = [each.getMessage() for each in caplog.records if each.name == "holdfast.sweeper"]
        caplog.clear()
        return found

    return look


@pytest.mark.claim("Q4")
def test_a_type_that_no_worker_handles_is_logged_once_with_a_job_and_a_command(
    store: Store, sweeper: Sweeper, said: Callable[[], list[str]]
) -> None:
    first = add(store)
    add(store)
    sweeper.park()
    assert said() == [PARKED.format(first.id)]

    add(store)
    sweeper.park()
    assert said() == []

    worker = WorkerByHand(store)
    worker.succeed(*worker.claim(10))
    sweeper.park()
    assert said() == []

    store.set_duties(worker.id, ("sweep",))
    last = add(store)
    sweeper.park()
    assert said() == [PARKED.format(last.id)]


@pytest.mark.claim("R6")
def test_jobs_behind_an_open_breaker_are_not_said_to_lack_a_worker(
    store: Store, sweeper: Sweeper, said: Callable[[], list[str]]
) -> None:
    declare(store, retry=encode(Adaptive(breaker=1)), retries_named=True)
    worker = WorkerByHand(store)
    add(store)
    worker.fail(worker.claim_one())
    add(store, retries=0)
    add(store, job_type="print")
    sweeper.park()
    assert said() == []
    assert store.parked_types() != {}
