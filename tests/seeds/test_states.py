"""What TasCreed's description says of the states of tasks, steps and jobs: its three tables row by row, and every sentence about them.

A job there is a run of a workflow here.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from holdfast import App, Failed, Invalid
from holdfast.clock import MovableClock
from holdfast.compose import Run
from holdfast.workflows import states
from holdfast.workflows.states import MOVES, Result, StepState
from tests.by_hand import WorkerByHand
from tests.raw_sql import RawSql

Make = Callable[..., App]
DAY = 86_400.0


def succeeds(task: Any) -> None: ...


def fails(task: Any) -> None:
    raise Failed("as expected")


def errs(task: Any) -> None:
    raise ValueError("not expected")


def declare(own: App, steps: Mapping[str, tuple[Callable[[Any], None], dict[str, Any]]], **options: Any) -> None:
    workflow = own.workflow("w", **options)
    for name, (function, traits) in steps.items():
        workflow.step(name=name, retries=0, **traits)(function)


def played(
    own: App, ignore: tuple[str, ...] = (), /, **steps: tuple[Callable[[Any], None], dict[str, Any]]
) -> tuple[Run, dict[str, str]]:
    """A run that has come to its end, and the states of its steps."""
    declare(own, steps)
    run = own.workflows["w"].submit("t", ignore=ignore)
    own.run_until_idle()
    run = run.refresh()
    return run, {name: step.state.value for name, step in run.steps.items()}


AFTER = {"after": ["before"]}
CAN_FAIL = {"can_fail": True}


class TestTasks:
    @pytest.mark.claim("F2")
    def test_undone_is_the_default_state_of_a_new_created_task(self, app: Make) -> None:
        own = app()
        declare(own, {"s": (succeeds, {})})
        (task,) = own.workflows["w"].submit("t").steps["s"].tasks()
        pair = states.TASK_STATES[task.state]
        assert (task.state, pair.done, pair.result) == ("UNDONE", False, Result.UNKNOWN)

    @pytest.mark.claim("F2", "F6")
    @pytest.mark.parametrize(
        ("function", "state"),
        [(succeeds, "SUCCESS"), (fails, "FAILED"), (errs, "ERROR")],
        ids=["successfully finished", "finished with a failed result", "finished by a non-expected exception"],
    )
    def test_it_is_the_users_function_that_decides_how_a_task_is_done(
        self, app: Make, function: Callable[[Any], None], state: str
    ) -> None:
        run, _ = played(app(), s=(function, {}))
        (task,) = run.steps["s"].tasks()
        pair = states.TASK_STATES[task.state]
        assert (task.state, pair.done, pair.result) == (state, True, state.lower())


class TestSteps:
    @pytest.mark.claim("F2", "F3", "F4", "F12")
    def test_dormant_then_start_then_ready_then_success(self, app: Make) -> None:
        """The default state; tasks are being created; they are all created; all of them are success."""
        own = app()
        declare(own, {"before": (succeeds, {}), "s": (succeeds, {**AFTER, "shards": 3, "max_undone": 2})})
        run = own.workflows["w"].submit("t")
        worker = WorkerByHand(own.store, ("w.before", "w.s"), ("workflows",))
        seen = [run.steps["s"].state]
        for _ in range(4):
            worker.succeed(worker.claim_one("workflows"))
            seen.append(run.refresh().steps["s"].state)
        assert seen == ["DORMANT", "START", "READY", "READY", "SUCCESS"]
        assert [states.STEP_STATES[state].done for state in seen] == [False] * 4 + [True]

    @pytest.mark.claim("F2", "F6", "F7", "F8")
    @pytest.mark.parametrize(
        ("before", "traits", "function", "ignored", "state", "result"),
        [
            pytest.param(succeeds, {}, succeeds, False, "SUCCESS", "success", id="all the tasks are success"),
            pytest.param(succeeds, {}, fails, False, "FAILED", "failed", id="some task is failed, and it can not fail"),
            pytest.param(
                succeeds, CAN_FAIL, fails, False, "ACCEPTABLE_FAILED", "success", id="it can fail, some task is failed"
            ),
            pytest.param(
                fails, CAN_FAIL, succeeds, False, "ACCEPTABLE_FAILED", "success", id="it can fail, one before it failed"
            ),
            pytest.param(succeeds, {}, errs, False, "ERROR", "error", id="some task is error"),
            pytest.param(
                succeeds, {"can_ignore": True}, errs, True, "IGNORED", "success", id="it can be ignored, as asked for"
            ),
            pytest.param(
                fails, {}, succeeds, False, "SKIP_BY_FAILED", "failed", id="one before it failed, it can not fail"
            ),
            pytest.param(
                errs, {}, succeeds, False, "SKIP_BY_ERROR", "error", id="one before it erred, and it can not fail"
            ),
        ],
    )
    def test_how_a_step_is_done(
        self,
        app: Make,
        before: Callable[[Any], None],
        traits: dict[str, Any],
        function: Callable[[Any], None],
        ignored: bool,
        state: str,
        result: str,
    ) -> None:
        steps = {"before": (before, {}), "s": (function, {**AFTER, **traits})}
        run, found = played(app(), ("s",) if ignored else (), **steps)
        pair = states.STEP_STATES[run.steps["s"].state]
        assert (found["s"], pair.done, pair.result) == (state, True, result)
        ran = before is succeeds and not ignored
        assert run.steps["s"].created == ran, "only a step that is not skipped has tasks"

    @pytest.mark.claim("F3", "F4")
    @pytest.mark.parametrize(
        ("function", "traits", "state"),
        [(fails, {}, "FAILED"), (fails, CAN_FAIL, "ACCEPTABLE_FAILED"), (errs, {}, "ERROR"), (errs, CAN_FAIL, "ERROR")],
    )
    def test_a_start_step_can_change_to_failed_acceptable_failed_and_error_like_a_ready_one(
        self, app: Make, function: Callable[[Any], None], traits: dict[str, Any], state: str
    ) -> None:
        run, found = played(app(), s=(function, {"shards": 9, "max_undone": 2, **traits}))
        assert (found["s"], run.steps["s"].created) == (state, 2)

    @pytest.mark.claim("F3")
    def test_only_a_ready_step_can_be_changed_to_success(self) -> None:
        assert [was for was, to in MOVES.items() if StepState.SUCCESS in to] == [StepState.READY]


class TestTheFailedResult:
    @pytest.mark.claim("F6")
    @pytest.mark.parametrize(
        ("can_fail", "state", "then"), [(True, "ACCEPTABLE_FAILED", "SUCCESS"), (False, "FAILED", "SKIP_BY_FAILED")]
    )
    def test_of_a_task_it_is_determined_by_whether_the_step_can_fail(
        self, app: Make, can_fail: bool, state: str, then: str
    ) -> None:
        _, found = played(app(), before=(fails, {"can_fail": can_fail}), s=(succeeds, AFTER))
        assert found == {"before": state, "s": then}

    @pytest.mark.claim("F7")
    def test_of_a_step_it_impacts_all_its_follow_up_steps(self, app: Make) -> None:
        _, found = played(
            app(),
            before=(fails, {}),
            s=(succeeds, AFTER),
            t=(succeeds, {"after": ["s"]}),
            accepts=(succeeds, {"after": ["t"], "can_fail": True}),
            goes_on=(succeeds, {"after": ["accepts"]}),
        )
        skipped = {"s": "SKIP_BY_FAILED", "t": "SKIP_BY_FAILED"}
        assert found == {"before": "FAILED", **skipped, "accepts": "ACCEPTABLE_FAILED", "goes_on": "SUCCESS"}

    @pytest.mark.claim("F5", "F7")
    @pytest.mark.parametrize("can_fail", [False, True])
    @pytest.mark.parametrize("first", ["failed", "erred"])
    def test_error_is_prior_than_failed(self, app: Make, first: str, can_fail: bool) -> None:
        """Whichever of the two comes first. A step that can fail may not pass over an error either."""
        priorities = {"failed": {"priority": 2}, "erred": {"priority": 2}} | {first: {"priority": 1}}
        run, found = played(
            app(),
            failed=(fails, priorities["failed"]),
            erred=(errs, priorities["erred"]),
            s=(succeeds, {"after": ["failed", "erred"], "can_fail": can_fail}),
        )
        assert (found["s"], run.state) == ("SKIP_BY_ERROR", "ERROR")


class TestFailedAndError:
    @pytest.mark.claim("F7", "F9")
    def test_failed_fails_only_the_current_and_following_steps(self, app: Make) -> None:
        _, found = played(
            app(),
            before=(fails, {"priority": 1}),
            s=(succeeds, AFTER),
            other=(succeeds, {}),
            goes_on=(succeeds, {"after": ["other"]}),
        )
        assert (found["s"], found["other"], found["goes_on"]) == ("SKIP_BY_FAILED", "SUCCESS", "SUCCESS")

    @pytest.mark.claim("F9")
    def test_the_error_state_is_updated_after_all_steps_done_instead_of_fast_fail(self, app: Make) -> None:
        own, seen = app(), list[str]()
        steps = {
            "before": (errs, {"priority": 1}),
            "other": (lambda task: seen.append(own.workflow_run("w", "t").state.value), {}),
            "goes_on": (succeeds, {"after": ["other"]}),
        }
        run, found = played(own, **steps)
        assert (seen, run.state) == (["UNDONE"], "ERROR")
        assert (found["other"], found["goes_on"]) == ("SUCCESS", "SUCCESS")

    @pytest.mark.claim("F9")
    def test_where_it_is_to_fail_fast_the_remaining_steps_are_not_executed_except_the_tasks_already_created(
        self, app: Make
    ) -> None:
        own = app()
        steps = {
            "before": (errs, {"priority": 1}),
            "made": (succeeds, {}),
            "many": (succeeds, {"shards": 9, "max_undone": 2}),
            "remains": (succeeds, {"after": ["made"]}),
        }
        declare(own, steps, fail_fast=True)
        run = own.workflows["w"].submit("t")
        own.run_until_idle()
        run = run.refresh()
        found = {name: (step.state.value, step.succeeded) for name, step in run.steps.items()}
        assert found == {
            "before": ("ERROR", 0),
            "made": ("SUCCESS", 1),
            "many": ("ERROR", 2),
            "remains": ("SKIP_BY_ERROR", 0),
        }


class TestJobs:
    @pytest.mark.claim("F2", "F9")
    @pytest.mark.parametrize(
        ("functions", "state"),
        [
            pytest.param((succeeds, succeeds), "SUCCESS", id="all the steps have a success result"),
            pytest.param((succeeds, fails), "FAILED", id="any step has a failed result"),
            pytest.param((succeeds, errs), "ERROR", id="any step has an error result"),
            pytest.param((fails, errs), "ERROR", id="one has each"),
        ],
    )
    def test_its_state_is_that_of_its_steps(
        self, app: Make, functions: tuple[Callable[[Any], None], ...], state: str
    ) -> None:
        own = app()
        declare(own, {"a": (functions[0], {}), "b": (functions[1], {})})
        run = own.workflows["w"].submit("t")
        worker = own.workflow_run("w", "t")
        assert (run.state, worker.done) == ("UNDONE", False)  # the default state of a job
        own.run_until_idle()
        run = run.refresh()
        assert (run.state, run.done) == (state, True)  # done: that it stands as undone there is a misprint

    @pytest.mark.claim("F9")
    def test_the_failed_state_is_determined_when_all_the_steps_are_done(self, app: Make) -> None:
        own, seen = app(), list[str]()
        steps = {
            "fails": (fails, {"priority": 1}),
            "other": (lambda task: seen.append(own.workflow_run("w", "t").state.value), {}),
        }
        run, _ = played(own, **steps)
        assert (seen, run.state) == (["UNDONE"], "FAILED")

    @pytest.mark.claim("F10")
    def test_a_circular_dependency_is_found_when_reading_the_job_define(self, app: Make) -> None:
        own = app()
        declare(own, {"a": (succeeds, {"after": ["b"]}), "b": (succeeds, {"after": ["a"]})})
        with pytest.raises(Invalid, match="a → b → a is a circle"):
            own.workflows["w"].submit("t")

    @pytest.mark.claim("F10")
    def test_a_job_of_which_some_step_can_never_be_started_is_stuck(self, app: Make, sql: RawSql) -> None:
        """It cannot happen; the state is there to cover all the possibilities, and is shown."""
        own = app()
        declare(own, {"a": (succeeds, {}), "b": (succeeds, {"after": ["a"]}), "c": (succeeds, {"after": ["b"]})})
        run = own.workflows["w"].submit("t")
        text = sql.value("select definition from {run}")
        circular = text.replace('"name":"b","after":["a"]', '"name":"b","after":["c"]')
        assert circular != text
        sql("update {run} set definition = :text", text=circular)
        other = app()  # a program that has not read it yet
        declare(other, {"a": (succeeds, {})})
        other.run_until_idle()
        run = run.refresh()
        assert (run.state, run.done, states.WORKFLOW_STATES[run.state].result) == ("STUCK", False, Result.ERROR)
        assert [step.state for step in run.steps.values()] == ["SUCCESS", "DORMANT", "DORMANT"]
        assert run.abort().state == "ERROR"

    @pytest.mark.claim("F18")
    @pytest.mark.parametrize(("function", "archived"), [(succeeds, True), (fails, False), (errs, False)])
    def test_only_the_success_jobs_are_archived(
        self, app: Make, clock: MovableClock, function: Callable[[Any], None], archived: bool
    ) -> None:
        own = app()
        run, _ = played(own, s=(function, {}))
        clock.advance(400 * DAY)
        own.run_until_idle()
        assert run.refresh().archived is archived
