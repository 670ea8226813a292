"""E1 for tasks and steps: every reason why a step is not done, reached by what really happens."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Failed
from holdfast.clock import MovableClock
from holdfast.compose import Run
from holdfast.jobs.reasons import Reason
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.explain import StepFacts, explain
from holdfast.workflows.partition import Simple
from holdfast.workflows.plan import StepRow
from holdfast.workflows.reasons import StepReason
from tests.by_hand import WorkerByHand

pytestmark = pytest.mark.claim("E1")
Make = Callable[..., App]


def at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}Z (now)"


def also(told: Any) -> list[str]:
    return [other["reason"] for other in told.details["also"]]


def submitted(own: App, **options: Any) -> Run:
    """Steps one after the other, and one in a later phase."""
    workflow = own.workflow("w", **options)
    workflow.step(name="first", shards=4, max_undone=2, retries=0)(lambda task: None)
    workflow.step(name="beside", retries=0)(lambda task: None)
    workflow.step(name="then", after=["first", "beside"], can_ignore=True)(lambda task: None)
    workflow.step(name="last", phase=1, after=["then"])(lambda task: None)
    return workflow.submit("t", ignore=["then"])


TYPES = ("w.first", "w.beside", "w.then", "w.last")


def test_every_reason_has_a_test_here_that_reaches_it() -> None:
    here = Path(__file__).read_text()
    assert [reason for reason in StepReason if f"StepReason.{reason.name}" not in here] == []


def test_a_step_that_nothing_keeps_from_starting_is_stuck(clock: MovableClock) -> None:
    """Which the store does not let happen."""
    definition = Definition(name="w", steps=(StepDefinition(name="alone"),))
    told = explain(
        StepFacts(definition=definition, rows={"alone": StepRow("alone", Simple())}, step="alone", now=clock.now())
    )
    assert (told.reason, told.text) == (StepReason.STUCK, "Step `alone` could start, and nobody has started it.")


class TestTasks:
    def test_a_held_task_says_who_holds_it(self, app: Make, clock: MovableClock) -> None:
        own = app()
        run = submitted(own)
        WorkerByHand(own.store, TYPES, ("workflows",))
        since = f"{clock.now():%Y-%m-%d %H:%M:%S}Z (60 s ago)"
        own.hold("pick", workflow="w", actor="ann")
        clock.advance(60)
        own.hold("pick", actor="bob")
        job = run.steps["beside"].tasks()[0].job
        for _ in range(2):  # as it stands in line, and when a claim has met it
            told = own.explain(job.id)
            assert told.reason == Reason.ON_HOLD
            assert told.text.startswith(
                f"Job {job.id} (w.beside) may not start: it is held by ann, who holds `pick` of workflow `w` since {since}."
            )
            assert told.details["release"] == "holdfast workflows release pick w"
            assert [(hold["actor"], hold["workflow"]) for hold in told.details["other_holds"]] == [("bob", None)]
            assert told.details["also"] == []
            own.run_until_idle()
        own.release("pick")
        own.release("pick", workflow="w")
        assert own.explain(job.id).reason == Reason.IN_LINE

    def test_what_is_held_otherwise_does_not_keep_a_task(self, app: Make) -> None:
        own = app()
        run = submitted(own)
        own.hold("create")
        own.hold("submit")
        assert own.explain(run.steps["beside"].tasks()[0].job.id).reason == Reason.NO_WORKER


class TestSteps:
    def test_a_step_waits_for_those_before_it(self, app: Make) -> None:
        run = submitted(app())
        told = run.steps["then"].explain()
        assert (told.step, told.reason) == ("then", StepReason.AFTER)
        assert told.text == "Step `then` waits for step `first`, which is `START` and step `beside`, which is `READY`."
        assert told.details["states"] == {"first": "START", "beside": "READY"}

    def test_a_step_waits_for_earlier_phases(self, app: Make) -> None:
        run = submitted(app())
        told = run.steps["last"].explain()
        assert told.reason == StepReason.PHASE
        assert told.text == "Step `last` waits for phase 0, of which steps `first`, `beside` and `then` are not done."
        assert (told.details["phase_before"], also(told)) == (0, ["after"])

    def test_as_many_tasks_as_may_be_at_a_time(self, app: Make) -> None:
        run = submitted(app())
        told = run.steps["first"].explain()
        assert told.reason == StepReason.MAX_UNDONE
        assert "has 0 of 4 tasks done, and as many others as may be at a time: 2 of 2." in told.text
        first = run.steps["first"].tasks()[0].job
        assert f"The first task that is not done: Job {first.id} (w.first) waits for a worker" in told.text

    def test_making_tasks_is_held(self, app: Make, clock: MovableClock) -> None:
        own = app()
        own.workflow("w").step(name="first", shards=3)(lambda task: None)
        own.hold("create", actor="ann")
        run = own.workflows["w"].submit("t")
        told = run.steps["first"].explain()
        assert told.reason == StepReason.CREATION_HELD
        assert told.text == f"Step `first` makes no tasks: ann holds that for every workflow since {at(clock.now())}."
        assert (told.details["release"], also(told)) == ("holdfast workflows release create", [])

    def test_its_tasks_are_held(self, app: Make, clock: MovableClock) -> None:
        own = app()
        run = submitted(own)
        own.hold("pick", workflow="w", trigger="t", actor="ann")
        told = run.steps["first"].explain()
        assert told.reason == StepReason.PICK_HELD
        scope = "run `t` of workflow `w`"
        assert (
            told.text
            == f"Step `first` has 2 tasks that may not start: ann holds that for {scope} since {at(clock.now())}."
        )
        assert also(told) == ["max_undone"]

    def test_a_step_that_has_begun_waits_for_its_tasks(self, app: Make) -> None:
        own = app()
        run = submitted(own)
        told = run.steps["beside"].explain()
        assert told.reason == StepReason.TASKS
        assert told.text.startswith(
            "Step `beside` waits for its tasks: 0 of 1 done. The first task that is not done: Job "
        )
        assert (told.details["done"], told.details["total"]) == (0, 1)

    @pytest.mark.parametrize("fail_fast", [False, True])
    def test_after_a_failure_no_more_tasks_are_made(self, app: Make, fail_fast: bool) -> None:
        own = app()
        run = submitted(own, fail_fast=fail_fast)
        worker = WorkerByHand(own.store, TYPES, ("workflows",))
        calls = {call.job_type: call for call in worker.claim(3, "workflows")}
        worker.fail(calls["w.beside" if fail_fast else "w.first"])
        told = run.steps["first"].explain()
        assert told.reason == StepReason.WINDS_DOWN
        because = "step `beside` erred" if fail_fast else "0 tasks failed and 1 erred"
        waits = "2 tasks" if fail_fast else "1 task"
        assert f"makes no more tasks, because {because}, and waits for {waits}." in told.text

    def test_a_step_waits_for_its_items(self, app: Make) -> None:
        own = app()
        own.workflow("w").step(name="each", items=lambda task: [1, 2])(lambda task: None)
        run = own.workflows["w"].submit("t")
        told = run.steps["each"].explain()
        job = own.find()[0].id
        assert (told.reason, told.details["items_job"]) == (StepReason.ITEMS, job)
        assert told.text.startswith(f"Step `each` has 0 tasks done and waits for job {job}, which makes more of them")
        assert f"Job {job} (w.each) waits for a worker" in told.text

    def test_steps_that_are_done_say_how(self, app: Make) -> None:
        own = app()
        run = submitted(own)
        own.run_until_idle()
        assert run.steps["first"].explain().text == "Step `first` is done: `SUCCESS`, 4 tasks."
        assert run.steps["first"].explain().reason == StepReason.SUCCEEDED
        assert run.steps["then"].explain().reason == StepReason.IGNORED

    def test_what_failed_and_what_was_skipped_for_it(self, app: Make) -> None:
        own = app()
        workflow = own.workflow("w")

        @workflow.step(shards=2)
        def fails(task: Any) -> None:
            raise Failed("as expected")

        workflow.step(name="then", after=["fails"])(lambda task: None)
        workflow.step(name="may", after=["fails"], can_fail=True)(lambda task: None)
        run = workflow.submit("t")
        own.run_until_idle()
        failed, then, may = (run.steps[name].explain() for name in ("fails", "then", "may"))
        assert (failed.reason, failed.details["failed"]) == (StepReason.FAILED, 2)
        assert failed.text == "Step `fails` is done: `FAILED`, 2 of 2 tasks failed and 0 erred."
        assert then.reason == may.reason == StepReason.SKIPPED
        assert then.text == "Step `then` was skipped (`SKIP_BY_FAILED`), because of step `fails`, which is `FAILED`."
        assert "(`ACCEPTABLE_FAILED`)" in may.text

    def test_what_was_cut_by_an_error_beside_it(self, app: Make) -> None:
        own = app()
        workflow = own.workflow("w", fail_fast=True)

        @workflow.step(retries=0)
        def breaks(task: Any) -> None:
            raise ValueError("broken")

        workflow.step(name="long", shards=2, priority=200)(lambda task: None)
        workflow.step(name="then", after=["long"])(lambda task: None)
        run = workflow.submit("t")
        own.run_until_idle()
        told = run.steps["then"].explain()
        assert told.text == "Step `then` was skipped (`SKIP_BY_ERROR`), because of step `breaks`, which is `ERROR`."

    def test_what_was_ended_by_an_abort(self, app: Make) -> None:
        own = app()
        run = submitted(own)
        run.abort()
        assert {step.explain().reason for step in run.steps.values()} == {StepReason.ABORTED}
        assert run.steps["last"].explain().text == "Step `last` was ended (`SKIP_BY_ERROR`) when its run was aborted."

    def test_an_archived_run_is_explained_too(self, app: Make) -> None:
        own = app()
        run = submitted(own)
        own.run_until_idle()
        run.archive()
        assert run.steps["first"].explain().reason == StepReason.SUCCEEDED
