"""F4 to F21 on both stores: runs that are submitted, advanced, retried, aborted and forgotten."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import WAIT, App, Conflict, Failed, Invalid, NotFound
from holdfast.clock import MovableClock
from holdfast.compose import Run, Workflow
from holdfast.stores.contract import NewJob, Store, Submission
from holdfast.workflows.definition import Definition, StepDefinition
from tests.invariants import Invariants
from tests.raw_sql import RawSql

Make = Callable[..., App]


def states(run: Run) -> dict[str, str]:
    return {name: step.state.value for name, step in run.refresh().steps.items()}


def agree(run: Run, sql: RawSql) -> None:
    """I8: the numbers of a run, its steps and its jobs tell the same."""
    Invariants(sql).check([], {})


@pytest.fixture
def report(app: Make) -> Workflow:
    """The example of the contract."""
    workflow = app().workflow("report", params={"day": "monday", "who": "definition"})

    @workflow.step()
    def prep(task: Any) -> str:
        task.publish(rows=925)
        task.repartition("calc", packs=(0, 925, 100))
        return task.name  # type: ignore[no-any-return]

    @workflow.step(after=["prep"], shards=4)
    def calc(task: Any) -> list[int]:
        return [task.pack.start, task.pack.end, task.params["rows"]]

    @workflow.step(after=["calc"], can_fail=True, can_ignore=True)
    def notify(task: Any) -> None:
        raise Failed("nobody is listening")

    @workflow.step(phase=1)
    async def cleanup(task: Any) -> dict[str, str]:
        return dict(task.dependencies)

    return workflow


@pytest.mark.claim("F6", "F7", "F11", "F12", "F13", "F21")
def test_a_run_goes_through_its_steps_to_the_end(report: Workflow, sql: RawSql) -> None:
    run = report.submit("2026-11-15")
    assert (run.state, run.progress, states(run)["prep"]) == ("UNDONE", 0.0, "READY")
    report.app.run_until_idle()  # type: ignore[attr-defined]
    run = run.refresh()
    assert (run.state, run.progress) == ("SUCCESS", 1.0)
    assert states(run) == {"prep": "SUCCESS", "calc": "SUCCESS", "notify": "ACCEPTABLE_FAILED", "cleanup": "SUCCESS"}
    tasks = run.steps["calc"].tasks()
    assert [task.name for task in tasks] == [f"calc.pack-{index}" for index in range(10)]
    assert [tasks[0].job.result, tasks[9].job.result] == [[0, 99, 925], [900, 925, 925]]
    assert {(task.job.job_type, task.job.queue) for task in tasks} == {("report.calc", "workflows")}
    assert tasks[3].job.job_key == "2026-11-15:calc.pack-3"
    seen = run.steps["cleanup"].tasks()[0].job.result
    assert seen == {"prep": "SUCCESS", "calc": "SUCCESS", "notify": "ACCEPTABLE_FAILED"}
    agree(run, sql)


@pytest.mark.claim("F11")
def test_a_worker_tells_the_tasks_it_made_itself_where_earlier_phases_are(app: Make) -> None:
    workflow = app().workflow("w")
    workflow.step(name="first")(lambda task: None)
    workflow.step(name="last", phase=1)(lambda task: dict(task.dependencies))
    with workflow.app.worker():  # type: ignore[attr-defined]
        run = workflow.submit("t")
        run.wait(60)
    assert run.refresh().steps["last"].tasks()[0].job.result == {"first": "SUCCESS"}


@pytest.mark.claim("F13")
def test_a_step_that_has_begun_keeps_its_partition(app: Make) -> None:
    own = app()
    workflow = own.workflow("w")
    workflow.step(name="count")(lambda task: task.repartition("calc", shards=5))
    workflow.step(name="calc", shards=3, max_undone=1)(lambda task: task.shard.total)
    run = workflow.submit("t")
    own.run_until_idle()
    assert [task.job.result for task in run.refresh().steps["calc"].tasks()] == [3, 3, 3]
    assert run.refresh().state == "SUCCESS"


@pytest.mark.claim("F8")
def test_a_step_that_may_be_ignored_is_if_the_request_asks_for_it(report: Workflow) -> None:
    run = report.submit("t", ignore=["notify"])
    report.app.run_until_idle()  # type: ignore[attr-defined]
    assert states(run)["notify"] == "IGNORED"
    with pytest.raises(Invalid, match="`calc`, which may not be ignored"):
        report.submit("u", ignore=["calc"])
    with pytest.raises(Invalid, match="Did you mean `notify`"):
        report.submit("u", ignore=["notifi"])


@pytest.mark.claim("F13")
def test_later_sources_of_params_win(app: Make) -> None:
    own = app()
    seen: dict[str, Any] = {}
    workflow = own.workflow("w", params={"a": 1, "b": 1, "c": 1, "d": 1, "e": 1})

    @workflow.step()
    def first(task: Any) -> None:
        task.publish(e=5)

    @workflow.step(after=["first"], params={"c": 3, "d": 3, "e": 3})
    def second(task: Any) -> None:
        seen.update(task.params)

    workflow.submit("t", {"b": 2, "c": 2, "d": 2, "e": 2}, steps={"second": {"d": 4, "e": 4}})
    own.run_until_idle()
    assert seen == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}


@pytest.mark.claim("Q7")
def test_params_that_are_nested_too_deeply_are_refused_and_stored_ones_break_no_list(
    report: Workflow, sql: RawSql
) -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(Invalid, match="params is nested too deeply"):
        report.submit("t", {"day": deep})
    run = report.submit("t")
    sql(
        "update {run} set params = :params where id = :id", id=run.id, params='{"day": ' + "[" * 9000 + "]" * 9000 + "}"
    )
    assert [found.id for found in report.app.workflow_runs()] == [run.id]


@pytest.mark.claim("F14")
def test_a_trigger_makes_one_run_for_ever(report: Workflow) -> None:
    first = report.submit("t")
    assert report.submit("t").id == first.id
    found: list[int] = []
    begin = threading.Barrier(8)

    def submit() -> None:
        begin.wait()
        found.append(report.submit("together").id)

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    report.app.run_until_idle()  # type: ignore[attr-defined]
    first.refresh().delete()
    with pytest.raises(NotFound):
        first.refresh()
    with pytest.raises(Conflict, match="that run is gone"):
        report.submit("t")


@pytest.mark.claim("F14")
def test_a_workflow_that_is_unique_alive_has_one_living_run(app: Make) -> None:
    own, other = app(), app()

    def declare(app: App) -> Workflow:
        workflow = app.workflow("w", unique_alive=True)
        workflow.step(name="only")(lambda task: None)
        return workflow

    workflow, same = declare(own), declare(other)
    workflow.submit("a")
    refused = []
    begin = threading.Barrier(4)

    def submit(number: int) -> None:
        begin.wait()
        try:
            same.submit(f"b{number}")
        except Conflict as error:
            refused.append(str(error))

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 4
    assert all("living run" in text for text in refused)
    own.run_until_idle()
    assert same.submit("b0").state == "UNDONE"  # a trigger that was refused is not used up


@pytest.mark.claim("F14")
def test_of_many_that_come_at_once_one_lives(app: Make) -> None:
    """None of them finds a living one at first."""
    apps = [app() for _ in range(4)]
    workflows = [each.workflow("w", unique_alive=True) for each in apps]
    for own, workflow in zip(apps, workflows, strict=True):
        workflow.step(name="only")(lambda task: None)
        own.store.queues()
    begin, found = threading.Barrier(4), list[Any]()

    def submit(number: int) -> None:
        begin.wait()
        try:
            found.append(workflows[number].submit(f"t{number}"))
        except Conflict as refused:
            found.append(str(refused))

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [each for each in found if isinstance(each, str)]
    assert (len(found), len(refused)) == (4, 3)
    assert all("has a living run" in text for text in refused), refused


@pytest.mark.claim("F14", "F16")
def test_a_run_is_not_retried_beside_a_living_one(app: Make) -> None:
    own, broken = app(), [True]
    workflow = own.workflow("w", unique_alive=True)

    @workflow.step(retries=0)
    def only(task: Any) -> None:
        if broken[0]:
            raise ValueError("broken")

    first = workflow.submit("first")
    own.run_until_idle()
    broken[0] = False
    second = workflow.submit("second")
    with pytest.raises(Conflict, match=r"has a living run \(trigger `second`\) and allows only one"):
        first.retry()
    assert first.refresh().state == "ERROR"
    own.run_until_idle()
    assert second.refresh().state == "SUCCESS"
    first.retry()
    own.run_until_idle()
    assert first.refresh().state == "SUCCESS"


@pytest.mark.claim("F14")
def test_code_that_allows_only_one_living_run_counts_those_of_code_that_did_not(app: Make) -> None:
    own, newer = app(), app()
    own.workflow("w").step(name="only")(lambda task: None)
    newer.workflow("w", unique_alive=True).step(name="only")(lambda task: None)
    own.workflows["w"].submit("first")
    with pytest.raises(Conflict, match="has a living run"):
        newer.workflows["w"].submit("second")


@pytest.mark.claim("F14", "W6")
def test_a_firing_beside_a_living_run_fails_at_once_and_says_why(app: Make, clock: MovableClock) -> None:
    own = app()
    workflow = own.workflow("w", unique_alive=True)
    workflow.step(name="only")(lambda task: WAIT)
    own.schedule("hourly", workflow=workflow, every=3600)
    own.run_until_idle()
    for _ in range(2):
        clock.advance(3600)
        own.run_until_idle()
    jobs = own.find(job_type="submit.w")
    assert [(job.outcome, job.attempt) for job in jobs] == [("failed", 1), ("success", 1)]
    assert "has a living run" in str(jobs[0].error)


@pytest.mark.claim("F12")
def test_never_more_tasks_are_undone_than_allowed(app: Make, sql: RawSql) -> None:
    own = app()
    workflow = own.workflow("w")
    most = 0

    @workflow.step(shards=130, max_undone=7)
    def work(task: Any) -> None:
        nonlocal most
        found = sql("select undone, created from {step} where name = 'work'")[0]
        most = max(most, found["undone"])

    run = workflow.submit("t")
    assert run.steps["work"].created == 7
    own.run_until_idle()
    assert (run.refresh().state, most) == ("SUCCESS", 7)
    agree(run, sql)


@pytest.mark.claim("F12")
@pytest.mark.parametrize("empty", [{"shards": 0}, {"packs": (0, -1, 10)}, {"items": lambda task: []}])
def test_an_empty_partition_is_success_at_once(app: Make, empty: dict[str, Any]) -> None:
    own = app()
    workflow = own.workflow("w")
    workflow.step(name="none", **empty)(lambda task: None)
    workflow.step(name="then", after=["none"])(lambda task: None)
    run = workflow.submit("t")
    own.run_until_idle()
    assert states(run) == {"none": "SUCCESS", "then": "SUCCESS"}


@pytest.mark.claim("F12")
def test_items_become_tasks_a_bounded_number_at_a_time(app: Make, sql: RawSql) -> None:
    own = app()
    workflow = own.workflow("w")
    asked: list[int] = []
    seen: list[int] = []

    def numbers(task: Any) -> Any:
        for number in range(57):
            asked.append(number)
            yield number

    @workflow.step(items=numbers, max_undone=10)
    async def each(task: Any) -> None:
        seen.append(task.item)
        found = sql("select undone from {step} where name = 'each'")[0]
        assert found["undone"] <= 10
        assert len(asked) <= len(seen) + 11

    run = workflow.submit("t")
    own.run_until_idle()
    assert (run.refresh().state, sorted(seen), asked) == ("SUCCESS", list(range(57)), list(range(57)))
    assert run.steps["each"].tasks()[56].name == "each.item-56"
    agree(run, sql)


@pytest.mark.claim("F12", "R8")
def test_items_go_on_from_their_cursor_after_a_crash(app: Make) -> None:
    """Each App stands for a program of its own: nothing is remembered but what was stored."""
    begun: list[Any] = []
    done: list[int] = []

    def numbers(task: Any, cursor: int | None) -> Any:
        begun.append(cursor)
        return ((number, number) for number in range(0 if cursor is None else cursor + 1, 25))

    def program() -> tuple[App, Workflow]:
        own = app()
        workflow = own.workflow("w")
        workflow.step(name="each", items=numbers, max_undone=10)(lambda task: done.append(task.item))
        return own, workflow

    own, workflow = program()
    run = workflow.submit("t")
    for _ in range(30):
        own, workflow = program()
        with pytest.raises(Invalid):
            own.run_until_idle(max_jobs=3)
        if run.refresh().progress > 0.8 or len(done) >= 20:
            break
    own.run_until_idle()
    assert (run.refresh().state, sorted(done)) == ("SUCCESS", list(range(25)))
    assert begun[0] is None
    assert [cursor for cursor in begun[1:] if cursor is None] == []


@pytest.mark.claim("F12")
def test_items_without_a_cursor_are_made_again_after_a_crash_and_what_was_created_is_skipped(app: Make) -> None:
    begun: list[int] = []
    done: list[str] = []

    def letters(task: Any) -> Any:
        begun.append(len(done))
        return (chr(ord("a") + number) for number in range(25))

    def program() -> tuple[App, Workflow]:
        own = app()
        workflow = own.workflow("w")
        workflow.step(name="each", items=letters, max_undone=10)(lambda task: done.append(task.item))
        return own, workflow

    own, workflow = program()
    run = workflow.submit("t")
    while len(done) < 20:
        own, workflow = program()
        with pytest.raises(Invalid):
            own.run_until_idle(max_jobs=3)
    program()[0].run_until_idle()
    assert (run.refresh().state, done) == ("SUCCESS", [chr(ord("a") + number) for number in range(25)])
    assert len(begun) > 2


@pytest.mark.claim("F12")
def test_a_failure_to_make_items_is_the_steps(app: Make) -> None:
    own = app()
    workflow = own.workflow("w")

    def broken(task: Any) -> Any:
        yield 1
        raise ValueError("no more")

    workflow.step(name="each", items=broken, retries=0)(lambda task: None)
    run = workflow.submit("t")
    own.run_until_idle()
    assert (run.refresh().state, states(run)["each"]) == ("ERROR", "ERROR")


def breaking(own: App, broken: list[bool]) -> Workflow:
    """Step b breaks in some of its tasks until it is mended; c fails as expected."""
    workflow = own.workflow("w")

    @workflow.step()
    def a(task: Any) -> None: ...

    @workflow.step(after=["a"], shards=4, retries=0)
    def b(task: Any) -> int:
        if broken[0] and task.index % 2:
            raise ValueError("broken")
        return 1

    @workflow.step(after=["b"])
    def after_b(task: Any) -> None: ...

    @workflow.step(after=["a"])
    def c(task: Any) -> None:
        raise Failed("as expected")

    @workflow.step(after=["c"])
    def after_c(task: Any) -> None: ...

    @workflow.step(phase=1)
    def last(task: Any) -> None: ...

    return workflow


@pytest.mark.claim("F5", "F7", "F9", "F16", "J11")
def test_retry_runs_again_what_erred_and_nothing_else(app: Make, sql: RawSql) -> None:
    own, broken = app(), [True]
    run = breaking(own, broken).submit("t")
    own.run_until_idle()
    ended = {
        "a": "SUCCESS",
        "b": "ERROR",
        "after_b": "SKIP_BY_ERROR",
        "c": "FAILED",
        "after_c": "SKIP_BY_FAILED",
        "last": "SUCCESS",
    }
    assert (run.refresh().state, states(run)) == ("ERROR", ended)
    agree(run, sql)
    jobs = {name: [task.job.id for task in step.tasks()] for name, step in run.refresh().steps.items()}
    broken[0] = False
    again = run.retry()
    assert (again.state, again.steps["b"].state, again.steps["b"].undone, again.steps["after_b"].state) == (
        "UNDONE",
        "READY",
        2,
        "DORMANT",
    )
    with pytest.raises(Conflict, match="only one that ended in `ERROR`"):
        run.retry()
    own.run_until_idle()
    assert (run.refresh().state, states(run)) == ("FAILED", {**ended, "b": "SUCCESS", "after_b": "SUCCESS"})
    now = {name: [task.job.id for task in step.tasks()] for name, step in run.refresh().steps.items()}
    assert [now[name] == jobs[name] for name in ("a", "c", "last")] == [True] * 3
    kept, redone = set(now["b"]) & set(jobs["b"]), [own.get(job) for job in now["b"] if job not in jobs["b"]]
    assert (len(kept), [job.retry_of in jobs["b"] for job in redone]) == (2, [True, True])
    agree(run, sql)


@pytest.mark.claim("F16")
@pytest.mark.parametrize("archived", [False, True])
def test_a_page_of_tasks_has_each_once_with_its_last_job(app: Make, archived: bool) -> None:
    own, broken = app(), [True]
    workflow = own.workflow("w")

    @workflow.step(items=lambda task: range(7), max_undone=3, retries=0)
    def each(task: Any) -> None:
        if broken[0] and task.item == 1:
            raise ValueError("broken")

    run = workflow.submit("t")
    own.run_until_idle()
    broken[0] = False
    run.retry()
    own.run_until_idle()
    if archived:
        run.refresh().archive()
    pages, after = list[list[str]](), 0
    while found := own.store.tasks(run.id, "each", after, limit=3):
        pages.append([str(job.job_key).partition(".")[2] for job in found])
        assert {job.outcome for job in found} == {"success"}
        after = found[-1].id
    assert [len(page) for page in pages] == [3, 3, 1]
    assert sorted(name for page in pages for name in page) == [f"item-{number}" for number in range(7)]
    assert {task.state for task in run.refresh().steps["each"].tasks(3)} == {"SUCCESS"}


@pytest.mark.claim("J11")
def test_a_task_is_retried_through_its_run(app: Make) -> None:
    own = app()
    run = breaking(own, [True]).submit("t")
    own.run_until_idle()
    task = next(task for task in run.refresh().steps["b"].tasks() if task.state == "ERROR")
    with pytest.raises(Conflict, match="workflow"):
        own.retry(task.job.id)


@pytest.mark.claim("F16")
def test_abort_ends_every_step_and_every_task(app: Make) -> None:
    own = app()
    run = breaking(own, [False]).submit("t")
    aborted = run.abort()
    assert (aborted.state, aborted.aborted, set(states(run).values())) == ("ERROR", True, {"ERROR", "SKIP_BY_ERROR"})
    assert [job.outcome for job in own.find()] == ["aborted"]
    assert own.run_until_idle() == 0
    with pytest.raises(Conflict, match="cannot be aborted"):
        run.abort()
    again = run.retry()
    own.run_until_idle()
    assert (again.refresh().state, again.refresh().aborted) == ("FAILED", False)


@pytest.mark.claim("F9")
def test_fail_fast_makes_no_more_tasks_in_a_phase_that_erred(app: Make, sql: RawSql) -> None:
    own = app()
    workflow = own.workflow("w", fail_fast=True)

    @workflow.step(retries=0)
    def breaks(task: Any) -> None:
        raise ValueError("broken")

    @workflow.step(shards=30, max_undone=3)
    def many(task: Any) -> None: ...

    @workflow.step(after=["many"])
    def then(task: Any) -> None: ...

    @workflow.step(phase=1)
    def last(task: Any) -> None: ...

    run = workflow.submit("t")
    own.run_until_idle()
    assert (run.refresh().state, states(run)) == (
        "ERROR",
        {"breaks": "ERROR", "many": "ERROR", "then": "SKIP_BY_ERROR", "last": "SUCCESS"},
    )
    assert run.refresh().steps["many"].created < 30
    agree(run, sql)


@pytest.mark.claim("F4")
def test_a_step_whose_task_failed_makes_no_more(app: Make) -> None:
    own = app()
    workflow = own.workflow("w")

    @workflow.step(shards=30, max_undone=3)
    def many(task: Any) -> None:
        if task.index == 1:
            raise Failed("one is bad")

    run = workflow.submit("t")
    own.run_until_idle()
    step = run.refresh().steps["many"]
    assert (step.state, step.failed, run.refresh().state) == ("FAILED", 1, "FAILED")
    assert step.created < 8


@pytest.mark.claim("F1")
def test_a_wrong_definition_is_refused_when_it_is_submitted_everything_at_once(app: Make) -> None:
    own = app()
    workflow = own.workflow("w")
    workflow.step(name="a", after=["b"])(lambda task: None)
    workflow.step(name="b", after=["a"])(lambda task: None)
    workflow.step(name="c", after=["nowhere"], effort=-1)(lambda task: None)
    workflow.step(name="d", after=["e"])(lambda task: None)
    workflow.step(name="e", phase=1)(lambda task: None)
    with pytest.raises(Invalid) as refused:
        workflow.submit("t")
    for part in ("a → b → a", "nowhere", "effort", "steps.d.after"):
        assert part in str(refused.value), part
    assert own.workflow_runs() == []


@pytest.mark.claim("F12", "C1")
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_tasks_publish_from_every_kind_of_runner(app: Make, isolation: str) -> None:
    own = app()
    workflow = own.workflow("w")

    def publishes(task: Any) -> str:
        task.publish(found=[task.step, 7])
        return "done"

    async def reads(task: Any) -> Any:
        await asyncio.sleep(0)
        return task.params["found"]

    workflow.step(name="first", isolation=isolation)(publishes)
    workflow.step(name="second", after=["first"])(reads)
    run = workflow.submit("t")
    own.run_until_idle()
    results = [step.tasks()[0].job.result for step in run.refresh().steps.values()]
    assert results == ["done", ["first", 7]]


@pytest.mark.claim("F15")
def test_progress_grows_with_what_is_done(app: Make) -> None:
    own = app()
    workflow = own.workflow("w")
    seen: list[float] = []

    @workflow.step(effort=1)
    def a(task: Any) -> None: ...

    @workflow.step(after=["a"], shards=4, effort=3)
    def b(task: Any) -> None:
        seen.append(own.workflow_run("w", "t").progress)

    workflow.submit("t")
    own.run_until_idle()
    assert seen == pytest.approx([0.25, 0.4375, 0.625, 0.8125], abs=1e-3)
    assert own.workflow_run("w", "t").progress == 1.0


def test_runs_are_listed_newest_first(report: Workflow) -> None:
    runs = [report.submit(f"t{number}") for number in range(3)]
    found = report.app.workflow_runs("report", limit=2)  # type: ignore[attr-defined]
    assert [run.id for run in found] == [runs[2].id, runs[1].id]
    assert report.app.workflow_runs(state="SUCCESS") == []  # type: ignore[attr-defined]


@pytest.mark.claim("Q6")
def test_a_run_is_no_part_of_a_transaction_and_says_so(report: Workflow) -> None:
    own: Any = report.app
    own.store.queues()
    with own.transaction():
        for submit in (report.submit, lambda trigger: own.submit("report", trigger)):
            with pytest.raises(Invalid, match=r"inside app\.transaction\(\), of which only enqueues are part"):
                submit("t")
    assert own.workflow_runs() == []
    assert report.submit("t").state == "UNDONE"


@pytest.mark.claim("F14")
@pytest.mark.parametrize("trigger", ["", "a/b", 7, "x" * 201])
def test_a_bad_trigger_is_refused(report: Workflow, trigger: Any) -> None:
    with pytest.raises(Invalid, match="trigger"):
        report.submit(trigger)


@pytest.mark.claim("W6")
def test_a_schedule_submits_a_run_at_each_of_its_times(app: Make, clock: MovableClock) -> None:
    own = app()
    seen: list[Any] = []
    workflow = own.workflow("nightly")
    workflow.step(name="only")(lambda task: seen.append((task.trigger, task.params)))
    request = {"trigger": "{time:%Y-%m-%d}", "params": {"number": "{count}"}}
    own.schedule("each_night", workflow=workflow, request=request, every=86_400)
    own.run_until_idle()
    for _ in range(2):
        clock.advance(86_400)
        own.run_until_idle()
    runs = own.workflow_runs("nightly")
    assert [run.state for run in runs] == ["SUCCESS"] * 2
    assert [params for _, params in seen] == [{"number": 1}, {"number": 2}]
    assert [trigger for trigger, _ in seen] == [run.trigger for run in reversed(runs)]
    with pytest.raises(Invalid, match="workflow and request"):
        own.schedule("both", workflow=workflow, payload={}, every=60)
    with pytest.raises(Invalid, match="no workflow of this app"):
        own.schedule("none", workflow="daily", every=60)
    with pytest.raises(Invalid, match="request= goes with workflow="):
        own.schedule("lost", job=workflow.submitter(), request={}, every=60)


@pytest.mark.claim("F1", "F14")
def test_a_submission_that_fails_leaves_nothing_behind_for_the_next(store: Store) -> None:
    """On SQLite the next run gets the same id."""

    def wanted(step: str, queue: str) -> Submission:
        return Submission(
            definition=Definition(name="w", steps=(StepDefinition(name=step),), queue=queue), trigger=step
        )

    with pytest.raises(NotFound, match="nowhere"):
        store.submit(wanted("first", "nowhere"))
    run = store.submit(wanted("second", "mail"))
    assert [step.counts.name for step in run.steps] == ["second"]
    assert [job.job_type for job in store.tasks(run.id, "second")] == ["w.second"]


@pytest.mark.claim("R1", "Q4")
def test_a_task_whose_run_cannot_be_read_ends_in_an_error_and_others_run_on(app: Make, sql: RawSql) -> None:
    own = app()
    workflow = own.workflow("w")
    workflow.step(name="only", retries=0)(lambda task: None)
    other = own.queue("workflows").job(lambda: 7, name="other")
    task = workflow.submit("t").steps["only"].tasks()[0].job
    beside = other.enqueue()
    sql("delete from {step}")
    sql("delete from {run}")
    own.run_until_idle()
    assert (task.refresh().outcome, "no run" in str(task.refresh().error)) == ("error", True)
    assert beside.refresh().result == 7


@pytest.mark.claim("Q5", "F21")
@pytest.mark.broken_on_purpose  # what the run waits for is a job that is not its own
def test_a_task_whose_key_is_taken_does_not_keep_the_end_of_the_one_before_it_from_being_stored(app: Make) -> None:
    made = app()
    workflow = made.workflow("w")
    workflow.step(name="first")(lambda task: 1)
    workflow.step(name="second", after=["first"])(lambda task: 2)
    run = workflow.submit("t")
    taken = NewJob(queue="workflows", job_type="w.second", payload="{}", job_key="t:second", delay=3600.0)
    [stranger] = made.store.add([taken])
    made.run_until_idle()  # type: ignore[attr-defined]
    assert states(run) == {"first": "SUCCESS", "second": "READY"}
    assert [job.id for job in made.find(job_type="w.second")] == [stranger.id]
