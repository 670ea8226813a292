"""F13, F16: what tasks are told, and aborts that outlive whoever began them."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App, Conflict
from holdfast.compose import Workflow
from holdfast.stores.contract import Done, Store
from tests.by_hand import WorkerByHand
from tests.raw_sql import RawSql

Make = Callable[..., App]


@pytest.mark.claim("F13")
def test_a_task_sees_what_was_published_when_it_was_made_and_nothing_later(app: Make) -> None:
    own, seen = app(), dict[str, Any]()
    workflow = own.workflow("w", params={"n": 0, "m": 0})

    @workflow.step(priority=1)
    def one(task: Any) -> None:
        task.publish(n=1)

    @workflow.step(priority=9)
    def early(task: Any) -> None:
        seen["early"] = task.params

    @workflow.step(after=["one"], priority=2)
    def two(task: Any) -> None:
        task.publish(n=2, m=2)

    @workflow.step(after=["one"], priority=8, shards=2)
    def middle(task: Any) -> None:
        seen[task.name] = task.params

    @workflow.step(after=["two"], priority=3)
    def late(task: Any) -> None:
        seen["late"] = task.params
        task.publish(m=3)

    run = workflow.submit("t")
    own.run_until_idle()
    assert seen == {
        "early": {"n": 0, "m": 0},
        "middle.shard-0": {"n": 1, "m": 0},
        "middle.shard-1": {"n": 1, "m": 0},
        "late": {"n": 2, "m": 2},
    }
    assert run.refresh().row.published == {"n": 2, "m": 3}


@pytest.mark.claim("F11", "F16")
def test_a_task_that_is_retried_is_told_anew_where_the_steps_before_it_are(app: Make) -> None:
    own, broken, seen = app(), [True], list[dict[str, str]]()
    workflow = own.workflow("w")

    @workflow.step(retries=0, priority=1)
    def first(task: Any) -> None:
        if broken[0]:
            raise ValueError("broken")

    @workflow.step(phase=1, retries=0)
    def last(task: Any) -> None:
        seen.append(task.dependencies)
        if broken[0]:
            raise ValueError("broken")

    run = workflow.submit("t")
    with own.worker(concurrency=1):
        run.wait(60)
        broken[0] = False
        run.retry()
        assert run.wait(60).state == "SUCCESS"
    assert seen == [{"first": "ERROR"}, {"first": "SUCCESS"}]


@pytest.mark.claim("F11", "F16")
@pytest.mark.parametrize("again", [False, True], ids=["then all succeeds", "then the first phase errs again"])
def test_what_erred_in_a_later_phase_runs_again_when_the_phases_before_are_done(app: Make, again: bool) -> None:
    own, broken, seen = app(), {"first", "some", "made"}, list[str]()
    workflow = own.workflow("w")

    def work(task: Any) -> None:
        seen.append(task.name)
        if task.step in broken and task.index in (None, 0, 3):
            raise ValueError("broken")

    def items(task: Any) -> range:
        return range(5)

    workflow.step(name="first", retries=0)(work)
    workflow.step(name="some", phase=1, retries=0, shards=9, max_undone=4)(work)
    workflow.step(name="made", phase=1, retries=0, items=items, max_undone=2)(work)
    workflow.step(name="end", phase=2)(work)
    run = workflow.submit("t")
    own.run_until_idle()
    assert states_of(run) == {"first": "ERROR", "some": "ERROR", "made": "ERROR", "end": "SUCCESS"}

    broken.clear()
    broken |= {"first"} if again else set()
    seen.clear()
    run.retry()
    assert states_of(run) == {"first": "READY", "some": "START", "made": "START", "end": "SUCCESS"}
    assert run.refresh().steps["some"].explain().reason == "phase"
    assert {job.job_type for job in own.find(state="initial")} == {"w.first"}
    own.run_until_idle()

    assert seen[0] == "first"
    assert len(seen) == len(set(seen))
    assert {state for name, state in states_of(run).items() if name != "first"} == {"SUCCESS"}
    assert run.refresh().state == ("ERROR" if again else "SUCCESS")
    assert "end" not in seen


@pytest.mark.claim("F11", "F16")
def test_a_run_is_aborted_and_retried_again_while_a_later_phase_waits(app: Make) -> None:
    own, broken = app(), [True]
    workflow = own.workflow("w")

    def work(task: Any) -> None:
        if broken[0]:
            raise ValueError("broken")

    workflow.step(name="first", retries=0)(work)
    workflow.step(name="last", phase=1, retries=0, shards=3)(work)
    run = workflow.submit("t")
    own.run_until_idle()
    run.retry()
    run.abort()
    last = run.refresh().steps["last"]
    assert (last.state, last.undone, last.errors) == ("ERROR", 0, 3)
    own.run_until_idle()
    broken[0] = False
    run.retry()
    own.run_until_idle()
    assert states_of(run) == {"first": "SUCCESS", "last": "SUCCESS"}
    assert len(own.find(job_type="w.last")) == 6


def states_of(run: Any) -> dict[str, str]:
    return {name: str(step.state) for name, step in run.refresh().steps.items()}


def three_tasks(own: App) -> Workflow:
    workflow = own.workflow("w")
    workflow.step(name="work", shards=3)(lambda task: None)
    return workflow


@pytest.mark.fault(11, "the process that aborts dies half-way")
@pytest.mark.claim("F16")
def test_a_sweeper_goes_on_with_an_abort_whose_process_died(
    app: Make, sql: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = app()
    run = three_tasks(own).submit("t")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(own.store), "abort_tasks", die)
        with pytest.raises(KeyboardInterrupt):
            run.abort(actor="ann")
    assert (run.refresh().state, {job.state for job in own.find()}) == ("ERROR", {"initial"})
    assert own.store.pulse().aborting

    assert own.run_until_idle() == 0

    assert [job.outcome for job in own.find()] == ["aborted"] * 3
    assert {row["actor"] for row in sql("select actor from {audit} where action = 'abort'")} == {"ann"}
    assert not own.store.pulse().aborting
    assert run.refresh().steps["work"].errors == 3


@pytest.mark.claim("F16")
def test_an_aborted_run_is_retried_or_deleted_only_when_its_jobs_have_ended(app: Make) -> None:
    own = app()
    run = three_tasks(own).submit("t")
    store: Store = own.store
    worker = WorkerByHand(store, ("w.work",), ("workflows",))
    call = worker.claim_one("workflows")
    assert run.abort().state == "ERROR"
    for act in (run.retry, run.delete):
        with pytest.raises(Conflict, match="jobs of it still run"):
            act()
    assert store.go_on_aborting() == 0  # its worker was asked once, which is enough
    worker.obey_abort(call)
    assert run.retry().steps["work"].undone == 3
    own.run_until_idle()
    assert run.refresh().state == "SUCCESS"


@pytest.mark.claim("F7")
def test_an_error_goes_down_a_long_chain_with_few_reads(app: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step by step it would take a thousand times as long for a chain of a thousand."""
    own, reads = app(), list[int]()
    workflow = own.workflow("w")

    def broken(task: Any) -> None:
        raise ValueError("broken")

    for number in range(60):
        after = [f"s{number - 1}"] if number else []
        workflow.step(name=f"s{number}", after=after, retries=0)(broken)
    run = workflow.submit("t")
    was = type(own.store)._steps_named  # type: ignore[attr-defined]

    def counted(self: Any, run: int, names: Any) -> Any:
        reads.append(len(list(names)))
        return was(self, run, names)

    monkeypatch.setattr(type(own.store), "_steps_named", counted)
    own.run_until_idle()

    assert [step.state for step in run.refresh().steps.values()] == ["ERROR"] + ["SKIP_BY_ERROR"] * 59
    assert len(reads) < 8


def counting(own: App, **options: Any) -> tuple[Workflow, list[tuple[str, int]]]:
    """`count` says how many parts there are, `aside` goes on beside it; and what the parts were told."""
    workflow, seen = own.workflow("w", params={"n": 0}, **options), list[tuple[str, int]]()
    workflow.step(name="count", priority=1)(lambda task: None)
    workflow.step(name="aside", priority=2)(lambda task: None)
    workflow.step(name="part", after=["count"], shards=3)(lambda task: seen.append((task.name, task.params["n"])))
    return workflow, seen


EFFECTS = '{"publish":{"n":2},"repartition":{"part":{"kind":"shards","total":2}}}'


@pytest.mark.claim("F13", "F16")
def test_what_a_task_brought_about_after_an_abort_is_there_after_a_retry(app: Make) -> None:
    own = app()
    workflow, seen = counting(own)
    run = workflow.submit("t")
    worker = WorkerByHand(own.store, ("w.count",), ("workflows",))
    call = worker.claim_one("workflows")
    run.abort()
    assert worker.turn(done=[Done(call, 1.0, None, EFFECTS)], ended_leases=[call.lease]).stale == 0
    run.retry()
    own.run_until_idle()
    assert (run.refresh().state, sorted(seen)) == ("SUCCESS", [("part.shard-0", 2), ("part.shard-1", 2)])


@pytest.mark.claim("F9", "F13", "F16")
def test_a_step_that_an_error_skipped_is_cut_by_a_task_that_ends_later(app: Make) -> None:
    own = app()
    workflow, seen = counting(own, fail_fast=True)
    run = workflow.submit("t")
    worker = WorkerByHand(own.store, ("w.count",), ("workflows",))
    call = worker.claim_one("workflows")
    own.store.abort(next(job.id for job in own.find(job_type="w.aside")), "ann")
    assert run.refresh().steps["part"].state == "SKIP_BY_ERROR"
    worker.turn(done=[Done(call, 1.0, None, EFFECTS)], ended_leases=[call.lease])
    run.retry()
    own.run_until_idle()
    assert (run.refresh().state, sorted(seen)) == ("SUCCESS", [("part.shard-0", 2), ("part.shard-1", 2)])
