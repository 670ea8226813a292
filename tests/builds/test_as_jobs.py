"""Builds as jobs of a worker: abort, timeout and stop reach the processes, and the folder agrees with the job."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import App, Job
from holdfast.builds.order import BuildOrder
from holdfast.worker import builder
from holdfast.worker.builder import read_completed
from tests.builds.making import Repository, alive, log_of, one_step, unique, wait_until

pytestmark = pytest.mark.claim("B3", "B6")


@pytest.fixture
def app(url: str, instance: str) -> Iterator[App]:
    with App(url, name=instance) as app:
        yield app


@pytest.fixture
def enqueue(app: App, tmp_path: Path) -> Callable[..., Job]:
    """Makes a job that performs an order in the folder of its id."""
    orders: list[BuildOrder] = []
    queue = app.queue("builds")

    @queue.job(retries=0, timeout=300)
    async def build() -> dict[str, object]:
        folder = tmp_path / "builds" / str(builder.CALL.get().id)
        return builder.conclude(await builder.perform(orders[-1], folder, lambda change: None))

    def enqueue(order: BuildOrder, **options: float) -> Job:
        orders.append(order)
        return build.using(**options).enqueue() if options else build.enqueue()

    return enqueue


def folder_of(job: Job, tmp_path: Path) -> Path:
    return tmp_path / "builds" / str(job.id)


def test_the_outcome_of_the_build_is_that_of_its_job(
    app: App, enqueue: Callable[..., Job], repository: Repository, tmp_path: Path
) -> None:
    with app.worker():
        done = enqueue(repository.order(one_step("true"))).wait(60)
        assert (done.outcome, done.result) == ("success", {"steps": {"only": "SUCCESS"}, "outputs": []})
        failed = enqueue(repository.order(one_step("exit 2"))).wait(60)
        assert (failed.outcome, str(failed.error)) == ("failed", "step only: exited with 2: exit 2")
        broken = enqueue(repository.order(one_step("sleep 100"), silence_timeout=1)).wait(60)
        assert broken.outcome == "error"
        assert "silence timeout" in str(broken.error)
    for job in (done, failed, broken):
        completed = read_completed(folder_of(job, tmp_path))
        assert completed is not None
        assert completed.outcome == job.outcome


def test_an_aborted_job_ends_its_build_and_completed_is_there_before_the_job_ends(
    app: App, enqueue: Callable[..., Job], repository: Repository, tmp_path: Path
) -> None:
    seconds = unique()
    with app.worker():
        job = enqueue(repository.order(one_step(f"(setsid sleep {seconds} &); sleep {seconds}")))
        wait_until(lambda: len(alive(seconds)) == 2, "both sleepers")
        app.abort(job.id)
        assert job.wait(60).outcome == "aborted"
        completed = read_completed(folder_of(job, tmp_path))
    assert completed is not None
    assert (completed.outcome, completed.steps) == ("aborted", {"only": "ERROR"})
    assert not alive(seconds)


def test_a_job_whose_time_is_over_is_an_error_in_its_folder_too(
    app: App, enqueue: Callable[..., Job], repository: Repository, tmp_path: Path
) -> None:
    seconds = unique()
    with app.worker():
        job = enqueue(repository.order(one_step(f"sleep {seconds}"), timeout=300), timeout=3).wait(60)
    assert job.outcome == "error"
    assert job.error is not None
    assert (job.error.kind, str(job.error)) == ("timeout", "total timeout: not finished after 3 s, in step only")
    completed = read_completed(folder_of(job, tmp_path))
    assert completed is not None
    assert (completed.outcome, completed.error) == ("error", str(job.error))
    assert not alive(seconds)


def test_a_worker_that_stops_completes_nothing_and_the_next_one_builds_from_scratch(
    app: App, enqueue: Callable[..., Job], repository: Repository, tmp_path: Path
) -> None:
    seconds, flag = unique(), tmp_path / "go on"
    order = repository.order(one_step(f"echo begun; test -e '{flag}' || sleep {seconds}"))
    with app.worker(grace=0):
        job = enqueue(order)
        folder = folder_of(job, tmp_path)
        wait_until(lambda: alive(seconds), "the sleeper")
    wait_until(lambda: not alive(seconds), "the sleeper's end")
    assert job.refresh().state == "running"
    assert read_completed(folder) is None
    assert (folder / "generated").is_dir()
    flag.touch()
    with app.worker():
        assert job.wait(60).outcome == "success"
    assert log_of(folder).count("\nbegun") == 1
    assert sorted(os.listdir(folder)) == ["completed", "generated", "log"]
