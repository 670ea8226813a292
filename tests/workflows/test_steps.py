"""F1, F12, F20, F21 on both stores: what a step was declared with is what its tasks are made and run with."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import WAIT, App, Fixed
from holdfast.clock import Clock, MovableClock
from holdfast.compose import Run

Make = Callable[..., App]


def states(run: Run) -> dict[str, str]:
    return {name: step.state.value for name, step in run.refresh().steps.items()}


@pytest.mark.claim("F1")
def test_a_run_keeps_the_definition_it_began_with(app: Make) -> None:
    """Also in a program whose code is newer, and lacks one of its steps."""
    own, newer, seen = app(), app(), list[Any]()
    before = own.workflow("w", params={"version": 1})
    before.step(name="first", params={"own": 1}, shards=2)(lambda task: None)
    before.step(name="then", after=["first"])(lambda task: None)
    run = before.submit("t")

    after = newer.workflow("w", params={"version": 2}, fail_fast=True)
    after.step(name="first", params={"own": 2}, shards=5)(lambda task: seen.append((task.params, task.shard.total)))
    after.step(name="other", after=["first"])(lambda task: None)
    newer.run_until_idle()
    assert seen == [({"version": 1, "own": 1}, 2)] * 2
    assert states(run) == {"first": "SUCCESS", "then": "READY"}, "what nobody here can run waits"
    assert newer.workflows["w"].submit("u").steps.keys() == {"first", "other"}

    own.run_until_idle()
    assert run.refresh().state == "SUCCESS"
    assert run.refresh().row.definition == before.definition


@pytest.mark.claim("F1", "F21")
def test_a_tasks_job_is_made_as_its_step_says(app: Make, clock: MovableClock) -> None:
    own = app()
    own.queue("narrow")
    workflow = own.workflow("w", priority=50)

    def breaks(task: Any) -> None:
        raise ValueError("broken")

    workflow.step(name="plain")(lambda task: None)
    workflow.step(name="own", timeout=7, retries=1, retry=Fixed(40), priority=5, queue="narrow")(breaks)
    workflow.step(name="each", items=lambda task: [1], timeout=7)(lambda task: None)
    run = workflow.submit("t:1")
    found = {job.job_key: (job.job_type, job.queue, job.priority, job.timeout) for job in own.find()}
    assert found == {
        "t:1:plain": ("w.plain", "workflows", 50, 30),
        "t:1:own": ("w.own", "narrow", 5, 7),
        "t:1:each.items": ("w.each", "workflows", 50, None),  # whoever makes items may take long
    }
    own.run_until_idle()
    (task,) = run.refresh().steps["own"].tasks()
    assert (task.job.failures, task.job.scheduled_run_time) == (1, clock.now() + timedelta(seconds=40))
    assert own.find(job_key="t:1:each.item-0")[0].timeout == 7
    clock.advance(41)
    own.run_until_idle()
    assert (states(run)["own"], own.get(task.job.id).attempt) == ("ERROR", 2)


@pytest.mark.claim("R4", "F21")
def test_a_task_waits_a_day_for_its_answer_and_once_unless_its_step_says_otherwise(
    app: Make, clock: MovableClock
) -> None:
    own = app()
    workflow = own.workflow("w")
    workflow.step(name="plain")(lambda task: WAIT)
    workflow.step(name="quick", timeout=40)(lambda task: WAIT)
    workflow.step(name="again", retries=1, retry=Fixed(0))(lambda task: WAIT)
    run = workflow.submit("t")
    own.run_until_idle()
    clock.advance(41)
    own.run_until_idle()
    assert states(run) == {"plain": "READY", "quick": "ERROR", "again": "READY"}
    clock.advance(86400)
    own.run_until_idle()
    assert states(run) == {"plain": "ERROR", "quick": "ERROR", "again": "READY"}
    attempts = {job.job_type: (job.attempt, job.timeout, job.retries) for job in own.find()}
    assert attempts == {"w.plain": (1, 30, 3), "w.quick": (1, 40, 3), "w.again": (2, 30, 1)}


@pytest.mark.claim("F1", "W2")
def test_more_urgent_runs_come_first(app: Make) -> None:
    own, seen = app(), list[str]()
    workflow = own.workflow("w", priority=50)
    workflow.step(name="a")(lambda task: seen.append(task.trigger))
    for trigger, priority in (("as declared", None), ("urgent", 10), ("later", 60)):
        workflow.submit(trigger, priority=priority)
    own.run_until_idle()
    assert seen == ["urgent", "as declared", "later"]


@pytest.mark.claim("F20")
def test_a_step_that_requires_a_label_waits_for_a_worker_that_has_it(app: Make) -> None:
    own = app(clock=Clock())
    workflow = own.workflow("w")
    workflow.step(name="s", labels=["gpu"])(lambda task: None)
    run = workflow.submit("t")
    assert own.run_until_idle() == 0
    assert states(run) == {"s": "READY"}
    with own.worker(labels=["gpu"]):
        assert run.wait(60).state == "SUCCESS"
