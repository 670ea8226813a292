"""F18, E4 on both stores: runs go to the archive with their jobs, are read there, and leave it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import WAIT, App, Conflict, Failed, NotFound
from holdfast.clock import MovableClock
from holdfast.compose import Workflow
from tests.by_hand import WorkerByHand
from tests.invariants import check_invariants
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("F18")
Make = Callable[..., App]
AFTER, DAY = 100.0, 86400.0


def declare(own: App, name: str = "w", fails: type[Exception] | None = None) -> Workflow:
    workflow = own.workflow(name)
    workflow.step(name="first", shards=3)(lambda task: task.index)

    @workflow.step(after=["first"], retries=0)
    def then(task: Any) -> str:
        if fails is not None:
            raise fails("as the test wants it")
        return "done"

    return workflow


@pytest.mark.claim("E4")
def test_a_success_goes_by_itself_and_its_jobs_with_it(
    app: Make, clock: MovableClock, sql: RawSql, url: str, instance: str
) -> None:
    own = app(archive_after=AFTER)
    run = declare(own).submit("t")
    own.run_until_idle()
    clock.advance(AFTER - 1)
    own.run_until_idle()
    assert not run.refresh().archived
    clock.advance(2)
    own.run_until_idle()
    assert run.refresh().archived
    assert (own.find(), len(own.find(archive=True))) == ([], 4)
    assert [sql.value(f"select count(*) from {{{table}}}") for table in ("run", "step", "leaving", "dead")] == [0] * 4
    check_invariants(url, instance)


@pytest.mark.claim("E4")
def test_jobs_of_a_run_never_go_before_it(app: Make, clock: MovableClock) -> None:
    own = app(archive_after=AFTER)
    workflow = declare(own)
    run = workflow.submit("t")
    store = own.store
    worker = WorkerByHand(store, ("w.first", "w.then"), ("workflows",))
    worker.succeed(*worker.claim(3, "workflows"))
    clock.advance(10 * AFTER)
    while store.archive_runs(AFTER) + store.archive(AFTER):
        pass
    assert [job.archived for job in own.find()] == [False] * 4
    worker.succeed(worker.claim_one("workflows"))
    assert run.refresh().state == "SUCCESS"
    clock.advance(2 * AFTER)
    while store.archive_runs(AFTER) + store.archive(AFTER):
        pass
    assert [job.archived for job in own.find(archive=True)] == [True] * 4  # also those that were passed over


@pytest.mark.claim("E4", "F12")
def test_a_run_waits_for_the_job_that_made_its_items(app: Make, clock: MovableClock, url: str, instance: str) -> None:
    own = app(archive_after=AFTER)
    workflow = own.workflow("w")
    workflow.step(name="each", items=lambda task: range(1))(lambda task: None)
    run, store = workflow.submit("t"), own.store
    worker = WorkerByHand(store, ("w.each",), ("workflows",))
    maker = worker.claim(1, "workflows")
    store.add_items(run.id, "each", 0, [1], None, True)
    worker.succeed(*worker.claim(1, "workflows"))
    assert run.refresh().state == "SUCCESS"
    clock.advance(2 * AFTER)
    assert store.archive_runs(AFTER) == 0
    with pytest.raises(Conflict, match="jobs of it still run"):
        run.archive()
    worker.succeed(*maker)
    assert store.archive_runs(AFTER) == 1
    while store.archive(AFTER):
        pass
    assert (own.find(), len(own.find(archive=True))) == ([], 2)
    check_invariants(url, instance)


@pytest.mark.parametrize(("fails", "state"), [(Failed, "FAILED"), (ValueError, "ERROR")])
def test_others_stay_until_a_person_archives_them(
    app: Make, clock: MovableClock, sql: RawSql, fails: type[Exception], state: str
) -> None:
    own = app(archive_after=AFTER)
    run = declare(own, fails=fails).submit("t")
    own.run_until_idle()
    clock.advance(1000 * AFTER)
    own.run_until_idle()
    assert (run.refresh().state, run.refresh().archived, len(own.find(status="dead"))) == (state, False, 1)
    assert sql.value("select count(*) from {dead}") == 1
    archived = run.archive(actor="ann")
    assert (archived.archived, archived.state, own.find()) == (True, state, [])
    assert sql.value("select count(*) from {dead}") == 0
    assert sql("select actor, detail from {audit} where action = 'archive'") == [
        {"actor": "ann", "detail": "Run `t` of workflow `w`"}
    ]


def test_an_archived_run_is_read_like_a_live_one(app: Make) -> None:
    own, other = app(), app()
    workflow = declare(own)
    run = workflow.submit("t", {"day": "monday"})
    own.run_until_idle()
    before = run.refresh()
    run.archive()
    again = other.workflow_run("w", "t")
    assert (again.id, again.state, again.progress, again.params) == (run.id, "SUCCESS", 1.0, {"day": "monday"})
    assert {name: step.state.value for name, step in again.steps.items()} == {"first": "SUCCESS", "then": "SUCCESS"}
    tasks = again.steps["first"].tasks()
    assert [(task.name, task.state.value, task.job.result) for task in tasks] == [
        (task.name, task.state.value, task.job.result) for task in before.steps["first"].tasks()
    ]
    assert (again.wait(1).end_time, again.steps["then"].start_time) == (
        before.end_time,
        before.steps["then"].start_time,
    )
    assert [each.id for each in other.workflow_runs("w", state="SUCCESS", archive=True)] == [run.id]
    assert other.workflow_runs("w") == []


def test_live_and_archived_runs_are_listed_newest_first(app: Make) -> None:
    own = app()
    workflow = declare(own)
    runs = [workflow.submit(f"t{number}") for number in range(4)]
    own.run_until_idle()
    for run in runs[::2]:
        run.archive()
    assert [run.trigger for run in own.workflow_runs()] == ["t3", "t1"]
    assert [run.trigger for run in own.workflow_runs(archive=True, limit=3)] == ["t3", "t2", "t1"]


@pytest.mark.claim("F14")
def test_a_trigger_gives_the_run_while_it_can_be_read_and_is_used_up_for_ever(app: Make, clock: MovableClock) -> None:
    own = app(archive_after=AFTER, archive_keep=5 * DAY)
    workflow = declare(own)
    run = workflow.submit("t")
    own.run_until_idle()
    clock.advance(2 * AFTER)
    own.run_until_idle()
    assert workflow.submit("t").id == run.id
    assert workflow.submit("t").archived
    clock.advance(70 * DAY)  # on PostgreSQL whole months go
    own.run_until_idle()
    with pytest.raises(NotFound):
        own.workflow_run("w", "t")
    assert own.find(archive=True) == []
    with pytest.raises(Conflict, match="that run is gone"):
        workflow.submit("t")


@pytest.mark.claim("E4", "F18")
def test_a_run_that_is_kept_keeps_no_other_job_of_its_months(app: Make, clock: MovableClock, sql: RawSql) -> None:
    """Its tasks of the month in which it began stay with it; others of that month go."""
    own = app(archive_after=AFTER, archive_keep=40 * DAY)

    def sweep() -> None:
        for _ in range(3):
            own.run_until_idle()

    workflow = own.workflow("w", queue="w")
    workflow.step(name="first")(lambda task: None)
    workflow.step(name="second", after=["first"])(lambda task: WAIT(timeout=None))
    plain = own.queue("mail").job(name="plain")(lambda: None)
    clock.set(datetime(2026, 1, 10, tzinfo=UTC))
    run = workflow.submit("t")
    others = [plain.enqueue() for _ in range(3)]
    own.run_until_idle()
    clock.set(datetime(2026, 3, 25, tzinfo=UTC))
    own.complete("w.second", "t:second")
    clock.advance(2 * AFTER)
    sweep()
    assert run.refresh().archived
    for other in others:
        with pytest.raises(NotFound):
            other.refresh()
    assert [task.job.archived for step in run.refresh().steps.values() for task in step.tasks()] == [True, True]
    clock.set(datetime(2026, 6, 1, tzinfo=UTC))
    sweep()
    assert (own.find(archive=True), own.workflow_runs(archive=True)) == ([], [])
    assert sql.value("select count(*) from {archive}") == 0


def test_only_what_is_done_is_archived_and_nothing_changes_after_that(app: Make) -> None:
    own = app()
    workflow = declare(own, fails=ValueError)
    run = workflow.submit("t")
    with pytest.raises(Conflict, match="`UNDONE`; only one that is done can be archived"):
        run.archive()
    worker = WorkerByHand(own.store, ("w.first",), ("workflows",))
    call = worker.claim_one("workflows")
    run.abort()
    with pytest.raises(Conflict, match="jobs of it still run"):
        run.archive()
    worker.obey_abort(call)
    run.archive()
    for act in (run.archive, run.retry, run.abort):
        with pytest.raises(Conflict, match=r"is in the archive \(ERROR\)"):
            act()


@pytest.mark.claim("E4")
@pytest.mark.parametrize("archived", [True, False])
def test_a_deleted_run_takes_its_jobs_with_it_and_all_that_is_kept_about_them(
    app: Make, sql: RawSql, url: str, instance: str, archived: bool
) -> None:
    own = app()
    workflow = declare(own, fails=ValueError)
    other, run = workflow.submit("other"), workflow.submit("t")
    own.run_until_idle()
    jobs = [task.job for step in run.refresh().steps.values() for task in step.tasks()]
    (run.archive() if archived else run).delete(actor="ann")
    with pytest.raises(NotFound):
        run.refresh()
    with pytest.raises(Conflict, match="that run is gone"):
        workflow.submit("t")
    for job in jobs:
        for ask in (own.get, own.history, own.attempts):
            with pytest.raises(NotFound):
                ask(job.id)
    assert {job.run for job in own.find(archive=True)} == {other.id}
    assert {row["job"] for row in sql("select job from {attempt}")} == {other.steps["then"].tasks()[0].job.id}
    assert [sql.value(f"select count(*) from {{{table}}}") for table in ("leaving", "dead")] == [0, 1]
    assert sql("select actor, detail from {audit} where action = 'delete'") == [
        {"actor": "ann", "detail": "Run `t` of workflow `w`"}
    ]
    check_invariants(url, instance)


@pytest.mark.claim("E4")
@pytest.mark.parametrize("archived", [True, False])
def test_a_sweeper_goes_on_where_whoever_deletes_a_run_has_stopped(
    app: Make, monkeypatch: pytest.MonkeyPatch, url: str, instance: str, archived: bool
) -> None:
    own = app()
    run = declare(own).submit("t")
    own.run_until_idle()
    if archived:
        run.archive()
    store, real = own.store, type(own.store).follow_runs

    def die(store: Any, limit: int = 3) -> int:
        real(store, 3)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "follow_runs", die)
        with pytest.raises(KeyboardInterrupt):
            run.delete()
    assert len(own.find(archive=True)) == (1 if archived else 4)
    with pytest.raises(NotFound):
        run.refresh()
    check_invariants(url, instance)
    own.run_until_idle()
    assert own.find(archive=True) == []
    assert real(store) == 0


def test_a_run_that_is_deleted_while_its_jobs_follow_it_into_the_archive_takes_them_out_of_it(app: Make) -> None:
    own = app()
    run, store = declare(own).submit("t"), own.store
    own.run_until_idle()
    with store.work():  # type: ignore[attr-defined]
        store._move_run(store.run_by_id(run.id))  # type: ignore[attr-defined]
    store.follow_runs(2)  # type: ignore[attr-defined]
    assert [job.archived for job in own.find(archive=True)].count(True) == 2
    run.delete()
    assert own.find(archive=True) == []


@pytest.mark.claim("E4")
def test_jobs_of_an_archived_run_are_kept_as_long_as_the_run(app: Make, clock: MovableClock) -> None:
    own = app(archive_after=AFTER, archive_keep=100 * DAY)
    lone = own.queue("mail").job(name="lone")(lambda: None).enqueue()
    run = declare(own).submit("t")
    worker = WorkerByHand(own.store, ("w.first", "w.then", "lone"), ("workflows", "mail"))
    worker.succeed(*worker.claim(3, "workflows"), *worker.claim(1, "mail"))
    clock.advance(70 * DAY)  # a run that takes its time
    worker.succeed(worker.claim_one("workflows"))
    clock.advance(80 * DAY)
    own.run_until_idle()
    assert run.refresh().archived
    assert [len(step.tasks()) for step in run.refresh().steps.values()] == [3, 1]
    clock.advance(70 * DAY)
    for _ in range(3):  # lot by lot
        own.run_until_idle()
    for ask in (run.refresh, lone.refresh):
        with pytest.raises(NotFound):
            ask()
    assert own.find(archive=True) == []


def test_jobs_follow_in_lots_and_a_sweeper_goes_on_with_them(
    app: Make, monkeypatch: pytest.MonkeyPatch, url: str, instance: str
) -> None:
    own = app()
    run = declare(own).submit("t")
    own.run_until_idle()
    store, real = own.store, type(own.store).follow_runs

    def die(store: Any, limit: int = 3) -> int:
        real(store, 3)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "follow_runs", die)
        with pytest.raises(KeyboardInterrupt):
            run.archive()
    assert run.refresh().archived
    assert (len(own.find()), len(own.find(archive=True))) == (1, 4)
    assert [len(step.tasks()) for step in run.refresh().steps.values()] == [3, 1]
    check_invariants(url, instance)
    own.run_until_idle()
    assert own.find() == []
    assert real(store) == 0


def test_runs_with_triggers_alike_keep_their_jobs_apart(app: Make) -> None:
    own = app()
    workflow = declare(own)
    runs = [workflow.submit(trigger) for trigger in ("t", "t:u", "t;", "tt")]
    own.run_until_idle()
    runs[0].archive()
    assert [job.run for job in own.find(limit=100) if job.archived] == []
    assert {job.run for job in own.find(limit=100)} == {run.id for run in runs[1:]}
    assert [len(run.refresh().steps["first"].tasks()) for run in runs] == [3] * 4
