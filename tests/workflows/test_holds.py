"""F17 on both stores: tasks are kept from starting or from being made, runs from being submitted, until they are released."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App, Conflict, Invalid, NotFound
from holdfast.clock import Clock, MovableClock
from holdfast.compose import Run, Workflow
from holdfast.jobs.holds import Level
from holdfast.worker import worker as worker_module
from holdfast.worker.hand import Hand
from tests.by_hand import WorkerByHand
from tests.faults.fleet import until
from tests.invariants import check_invariants
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("F17")
Make = Callable[..., App]
SCOPES: list[dict[str, str]] = [{}, {"workflow": "w"}, {"workflow": "w", "trigger": "t"}]


def two_steps(own: App, name: str = "w", **options: Any) -> Workflow:
    workflow = own.workflow(name, **options)
    workflow.step(name="first", shards=3)(lambda task: None)
    workflow.step(name="then", after=["first"])(lambda task: None)
    return workflow


def three_runs(own: App) -> list[Run]:
    """Two of one workflow and one of another."""
    workflow, other = two_steps(own), two_steps(own, "v")
    return [workflow.submit("t"), workflow.submit("u"), other.submit("t")]


def states(runs: list[Run]) -> list[str]:
    return [run.refresh().state.value for run in runs]


def in_hand(sql: RawSql) -> int:
    """How many tasks and jobs a worker has claimed."""
    found: int = sql.value("select count(*) from {job} where situation = 'held'")
    return found


HELD = {0: ["UNDONE"] * 3, 1: ["UNDONE", "UNDONE", "SUCCESS"], 2: ["UNDONE", "SUCCESS", "SUCCESS"]}


class TestPick:
    @pytest.mark.parametrize("scope", SCOPES, ids=["all", "workflow", "run"])
    def test_tasks_do_not_start_until_they_are_released(
        self, app: Make, url: str, instance: str, scope: dict[str, str]
    ) -> None:
        own = app()
        runs = three_runs(own)
        own.hold("pick", **scope)
        own.run_until_idle()
        assert states(runs) == HELD[len(scope)]
        check_invariants(url, instance)
        own.release("pick", **scope)
        own.run_until_idle()
        assert states(runs) == ["SUCCESS"] * 3
        check_invariants(url, instance)

    def test_what_runs_goes_on_and_what_it_makes_waits(self, app: Make) -> None:
        own = app()
        run = two_steps(own).submit("t")
        worker = WorkerByHand(own.store, ("w.first", "w.then"), ("workflows",))
        calls = worker.claim(3, "workflows")
        own.hold("pick", workflow="w")
        worker.succeed(*calls)
        assert run.refresh().steps["first"].state == "SUCCESS"
        assert run.refresh().steps["then"].created == 1
        assert worker.claim(3, "workflows") == []
        own.release("pick", workflow="w")
        assert [call.job_type for call in worker.claim(3, "workflows")] == ["w.then"]

    @pytest.mark.parametrize("scope", SCOPES, ids=["all", "workflow", "run"])
    @pytest.mark.parametrize("kind", ["thread", "loop"])
    def test_a_worker_hands_back_what_it_has_claimed_ahead_and_not_begun(
        self, app: Make, sql: RawSql, monkeypatch: pytest.MonkeyPatch, scope: dict[str, str], kind: str
    ) -> None:
        monkeypatch.setattr(Hand, "_target", lambda hand: 10)
        monkeypatch.setattr(worker_module, "LONG_IN_BACKLOG", 1e9)  # so that nothing comes back for another reason
        own, begun, go_on = app(clock=Clock()), list[str](), threading.Event()
        workflow = own.workflow("w")

        def blocks(task: Any) -> None:
            begun.append(task.name)
            go_on.wait(60)

        async def blocks_the_loop(task: Any) -> None:
            blocks(task)

        workflow.step(name="many", shards=6)(blocks if kind == "thread" else blocks_the_loop)
        run = workflow.submit("t")
        with own.worker(concurrency=1):
            until(lambda: in_hand(sql) == 6 and begun, what="it has claimed ahead and begun the first")
            own.hold("pick", **scope)
            until(lambda: in_hand(sql) == 1, what="it has handed back what it has not begun")
            go_on.set()
            until(lambda: run.refresh().steps["many"].succeeded == 1, what="what runs goes on")
            until(lambda: sql.value("select count(*) from {held}") == 5, what="the others are held")
            assert begun == ["many.shard-0"]
            own.release("pick", **scope)
            assert run.wait(60).state == "SUCCESS"
        assert sorted(begun) == [f"many.shard-{index}" for index in range(6)]
        assert {task.job.failures for task in run.refresh().steps["many"].tasks()} == {0}

    def test_jobs_and_other_runs_are_not_handed_back(
        self, app: Make, sql: RawSql, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Hand, "_target", lambda hand: 10)
        monkeypatch.setattr(worker_module, "LONG_IN_BACKLOG", 1e9)  # so that nothing comes back for another reason
        own, begun, go_on = app(clock=Clock()), list[str](), threading.Event()
        own.queue("workflows").job(name="w.plain")(lambda: begun.append("plain"))

        def blocks(task: Any) -> None:
            begun.append(f"{task.workflow}/{task.trigger}")
            go_on.wait(60)

        runs = []
        for name, trigger in (("first", "t"), ("w", "t"), ("w", "u"), ("v", "t")):
            workflow = own.workflows.get(name) or own.workflow(name)
            if not workflow.definition.steps:
                workflow.step(name="only")(blocks)
            runs.append(workflow.submit(trigger))
        own.enqueue("workflows", "w.plain", {}, job_key="t:only")
        with own.worker(concurrency=1):
            until(lambda: in_hand(sql) == 5, what="it has claimed ahead")
            own.hold("pick", workflow="w", trigger="t")
            until(lambda: in_hand(sql) == 4, what="it has handed back what is held")
            go_on.set()
            for run in (runs[0], *runs[2:]):
                run.wait(60)
            until(lambda: "plain" in begun, what="the job ran")
        assert (sorted(begun), runs[1].refresh().state) == (["first/t", "plain", "v/t", "w/u"], "UNDONE")

    def test_jobs_behind_held_tasks_are_claimed_at_once(self, app: Make, url: str, instance: str) -> None:
        own = app()
        workflow = own.workflow("w")
        workflow.step(name="many", shards=60, max_undone=60)(lambda task: None)
        workflow.submit("t")
        own.queue("workflows").job(name="plain")(lambda: None)
        job = own.enqueue("workflows", "plain", {})
        own.hold("pick")
        worker = WorkerByHand(own.store, ("w.many", "plain"), ("workflows",))
        assert [call.id for call in worker.claim(1, "workflows")] == [job.id]
        check_invariants(url, instance)
        assert own.store.glance().queues[0].held == 60

    def test_tasks_that_were_handed_back_or_are_tried_again_wait(self, app: Make, clock: MovableClock) -> None:
        own = app()
        two_steps(own).submit("t")
        worker = WorkerByHand(own.store, ("w.first", "w.then"), ("workflows",))
        back, failed, snoozed = worker.claim(3, "workflows")
        own.hold("pick", workflow="w", trigger="t")
        worker.hand_back(back)
        worker.fail(failed, retry_delay=10.0)
        worker.snooze(snoozed, 20.0)
        clock.advance(30)
        assert worker.claim(3, "workflows") == []
        own.release("pick", workflow="w", trigger="t")
        assert {call.id for call in worker.claim(3, "workflows")} == {back.id, failed.id, snoozed.id}

    def test_what_another_hold_covers_stays_held(self, app: Make, sql: RawSql) -> None:
        own = app()
        runs = three_runs(own)
        own.hold("pick")
        own.hold("pick", workflow="w", trigger="t")
        own.run_until_idle()
        own.release("pick")
        assert {row["run"] for row in sql("select run from {held}")} == {runs[0].id}
        own.run_until_idle()
        assert states(runs) == ["UNDONE", "SUCCESS", "SUCCESS"]
        own.release("pick", workflow="w", trigger="t")
        own.run_until_idle()
        assert states(runs) == ["SUCCESS"] * 3

    @pytest.mark.parametrize("limit", [1, 3])
    def test_a_throttled_queue_keeps_no_room_for_held_tasks(
        self, app: Make, url: str, instance: str, limit: int
    ) -> None:
        own = app()
        narrow = own.queue("narrow", throttle_limit=limit)
        narrow.job(name="plain", throttle_factor=limit)(lambda: None)
        run = two_steps(own, queue="narrow").submit("t")
        job = own.enqueue("narrow", "plain", {})
        worker = WorkerByHand(own.store, ("w.first", "w.then", "plain"), ("narrow",))
        own.hold("pick", workflow="w")
        call = worker.claim_one("narrow")
        assert call.id == job.id
        worker.succeed(call)
        check_invariants(url, instance)
        own.release("pick", workflow="w")
        own.run_until_idle()
        assert run.refresh().state == "SUCCESS"

    def test_an_aborted_run_leaves_nothing_held(self, app: Make, sql: RawSql, url: str, instance: str) -> None:
        own = app()
        run = two_steps(own).submit("t")
        own.hold("pick", workflow="w", trigger="t")
        own.run_until_idle()
        assert len(sql("select * from {held}")) == 3
        run.abort()
        assert (sql("select * from {held}"), {job.outcome for job in own.find()}) == ([], {"aborted"})
        check_invariants(url, instance)
        run.delete()
        assert own.holds() == []

    def test_sweepers_and_new_workers_leave_held_tasks_where_they_are(self, app: Make, clock: MovableClock) -> None:
        own = app()
        run = two_steps(own).submit("t")
        own.hold("pick", workflow="w")
        own.run_until_idle()
        clock.advance(1000)
        assert own.store.restore(0, 1000, 60.0)[1] == 0
        assert own.run_until_idle() == 0
        assert run.refresh().steps["first"].undone == 3


class TestCreate:
    @pytest.mark.parametrize("scope", SCOPES, ids=["all", "workflow", "run"])
    def test_no_tasks_are_made_until_that_is_released(self, app: Make, scope: dict[str, str]) -> None:
        own = app()
        runs = three_runs(own)
        own.hold("create", **scope)
        own.run_until_idle()
        assert states(runs) == HELD[len(scope)]
        step = runs[0].refresh().steps["then"]
        assert (step.state, step.created) == ("START", 0)
        own.release("create", **scope)
        assert runs[0].refresh().steps["then"].created == 1
        own.run_until_idle()
        assert states(runs) == ["SUCCESS"] * 3

    def test_a_step_of_many_tasks_makes_no_more_of_them(self, app: Make) -> None:
        own = app()
        workflow = own.workflow("w")
        workflow.step(name="many", shards=20, max_undone=5)(lambda task: None)
        run = workflow.submit("t")
        own.hold("create", workflow="w")
        assert own.run_until_idle() == 5
        step = run.refresh().steps["many"]
        assert (step.created, step.undone, step.state) == (5, 0, "START")
        own.release("create", workflow="w")
        assert own.run_until_idle() == 15
        assert run.refresh().state == "SUCCESS"

    def test_a_run_submitted_meanwhile_begins_when_it_is_released(self, app: Make) -> None:
        own = app()
        workflow = own.workflow("w")
        workflow.step(name="none", shards=0)(lambda task: None)
        workflow.step(name="one")(lambda task: None)
        own.hold("create")
        run = workflow.submit("t")
        assert own.run_until_idle() == 0
        assert {step.state.value for step in run.refresh().steps.values()} == {"START"}
        own.release("create")
        assert run.refresh().steps["none"].state == "SUCCESS"
        assert own.run_until_idle() == 1

    def test_items_are_made_when_it_is_released(self, app: Make) -> None:
        own, made = app(), list[int]()
        workflow = own.workflow("w")

        def numbers(task: Any) -> Any:
            for number in range(30):
                if number == 7 and not made:
                    own.hold("create", workflow="w")  # while its tasks are being made
                yield number

        workflow.step(name="each", items=numbers, max_undone=10)(lambda task: made.append(task.item))
        run = workflow.submit("t")
        own.run_until_idle()
        assert (run.refresh().steps["each"].created, made) == (0, [])
        made.append(-1)
        own.release("create", workflow="w")
        own.run_until_idle()
        assert (run.refresh().state, sorted(made)) == ("SUCCESS", [-1, *range(30)])

    def test_a_retry_runs_what_erred_and_makes_nothing_new(self, app: Make) -> None:
        own, broken = app(), [True]
        workflow = own.workflow("w")

        @workflow.step(retries=0)
        def breaks(task: Any) -> None:
            if broken[0]:
                raise ValueError("broken")

        workflow.step(name="then", after=["breaks"])(lambda task: None)
        run = workflow.submit("t")
        own.run_until_idle()
        own.hold("create", workflow="w")
        broken[0] = False
        run.retry()
        assert own.run_until_idle() == 1
        assert run.refresh().steps["then"].state == "START"
        own.release("create", workflow="w")
        assert own.run_until_idle() == 1
        assert run.refresh().state == "SUCCESS"


class TestSubmit:
    @pytest.mark.parametrize("scope", SCOPES[:2], ids=["all", "workflow"])
    def test_a_submission_is_refused_and_told_by_whom(self, app: Make, scope: dict[str, str]) -> None:
        own = app()
        workflow = two_steps(own)
        run = workflow.submit("before")
        own.hold("submit", **scope, actor="ann")
        command = " ".join(["holdfast workflows release submit", *scope.values()])
        with pytest.raises(Conflict, match=rf"held by ann since .*`{command}` lets it go on"):
            workflow.submit("t")
        assert workflow.submit("before").id == run.id
        own.release("submit", **scope)
        assert workflow.submit("t").state == "UNDONE"  # the trigger was not used up

    @pytest.mark.claim("W6")
    @pytest.mark.parametrize("scope", SCOPES[:2], ids=["all", "workflow"])
    @pytest.mark.parametrize(("misfire", "made"), [("once", 1), ("all", 3), ("skip", 0)])
    def test_a_schedule_makes_up_for_what_it_missed_by_its_own_policy(
        self, app: Make, clock: MovableClock, scope: dict[str, str], misfire: str, made: int
    ) -> None:
        own = app()
        workflow = two_steps(own)
        own.schedule("hourly", workflow=workflow, every=3600, misfire=misfire)
        plain = own.queue("mail").job(name="submit.other")(lambda: None)  # looks like a submission, and is none
        own.schedule("beside", job=plain, every=3600, misfire="all")
        own.run_until_idle()
        own.hold("submit", **scope, actor="ann")
        for _ in range(3):
            clock.advance(3600)
            own.run_until_idle()
        assert (own.workflow_runs(), own.find(job_type="submit.w")) == ([], [])
        assert len(own.find(job_type="submit.other")) == 3
        (row,) = (row for row in own.schedules() if row.schedule.name == "hourly")
        assert "is held by ann" in str(row.problem)
        with pytest.raises(Conflict, match="is held by ann"):
            own.fire_schedule("hourly")
        clock.advance(1800)
        own.run_until_idle()  # it is looked at once more, and would not be for a minute
        own.release("submit", **scope)
        own.run_until_idle()
        assert len(own.workflow_runs()) == made
        clock.advance(1800)
        own.run_until_idle()
        assert len(own.workflow_runs()) == made + 1
        assert {job.outcome for job in own.find(job_type="submit.w")} == {"success"}

    @pytest.mark.claim("W6")
    def test_a_firing_that_meets_a_hold_waits_for_its_release(self, app: Make, clock: MovableClock) -> None:
        own = app()
        own.schedule("hourly", workflow=two_steps(own), every=3600)
        own.run_until_idle()
        clock.advance(3600)
        own.store.fire_due()
        own.hold("submit", workflow="w")
        for _ in range(5):
            own.run_until_idle()
            clock.advance(100)
        (job,) = own.find(job_type="submit.w")
        assert (job.outcome, job.failures, own.workflow_runs()) == (None, 0, [])
        own.release("submit", workflow="w")
        clock.advance(100)
        own.run_until_idle()
        assert [run.state for run in own.workflow_runs()] == ["SUCCESS"]

    @pytest.mark.claim("W6")
    def test_a_firing_that_is_refused_for_another_reason_does_not_wait_for_other_holds(
        self, app: Make, clock: MovableClock
    ) -> None:
        own = app()
        workflow = two_steps(own, unique_alive=True)
        two_steps(own, "v")
        own.schedule("hourly", workflow=workflow, every=3600)
        own.hold("pick")
        workflow.submit("by hand")
        own.hold("submit", workflow="v")
        clock.advance(3600)
        own.run_until_idle()
        assert [job.outcome for job in own.find(job_type="submit.w")] == ["failed"]

    @pytest.mark.claim("W6")
    def test_a_worker_that_is_not_looking_hears_of_the_release(self, app: Make, clock: MovableClock) -> None:
        own, operator = app(), app()
        own.schedule("hourly", workflow=two_steps(own), every=3600)
        own.run_until_idle()
        operator.hold("submit")
        with own.worker(poll=3600):
            clock.advance(3600)
            until(lambda: own.schedules()[0].problem, what="it says why")
            operator.release("submit")
            until(lambda: [run.state for run in own.workflow_runs()] == ["SUCCESS"], 30, what="the run")

    @pytest.mark.claim("W6")
    @pytest.mark.parametrize("scope", SCOPES[:2], ids=["all", "workflow"])
    @pytest.mark.parametrize("level", ["pick", "create"])
    def test_schedules_go_on_submitting_what_cannot_start(
        self, app: Make, clock: MovableClock, level: str, scope: dict[str, str]
    ) -> None:
        own = app()
        own.schedule("hourly", workflow=two_steps(own), every=3600)
        own.run_until_idle()
        own.hold(level, **scope)
        for _ in range(3):
            clock.advance(3600)
            own.run_until_idle()
        assert [run.state for run in own.workflow_runs()] == ["UNDONE"] * 3
        assert [job.attempt for job in own.find(job_type="w.first")] == [0] * (9 if level == "pick" else 0)
        own.release(level, **scope)
        own.run_until_idle()
        assert [run.state for run in own.workflow_runs()] == ["SUCCESS"] * 3

    def test_other_workflows_are_submitted(self, app: Make) -> None:
        own = app()
        two_steps(own)
        own.hold("submit", workflow="w")
        assert two_steps(own, "v").submit("t").state == "UNDONE"

    def test_one_run_cannot_be_kept_from_being_submitted(self, app: Make) -> None:
        own = app()
        two_steps(own).submit("t")
        for act in (own.hold, own.release):
            with pytest.raises(Invalid, match="is submitted already"):
                act("submit", workflow="w", trigger="t")


class TestHolding:
    def test_a_hold_is_stored_with_who_did_it(self, app: Make, clock: MovableClock, sql: RawSql) -> None:
        own, other = app(), app()
        two_steps(own).submit("t")
        held = own.hold("pick", workflow="w", trigger="t", actor="ann")
        assert (held.level, held.workflow, held.trigger, held.actor) == (Level.PICK, "w", "t", "ann")
        assert held.hold_time == clock.now()
        clock.advance(5)
        assert other.hold("pick", workflow="w", trigger="t", actor="bob") == held  # the first one counts
        assert other.holds() == [held]
        assert other.workflow_run("w", "t").row.holds == (held,)
        other.release("pick", workflow="w", trigger="t", actor="bob")
        assert own.holds() == []
        told = [(row["actor"], row["action"], row["detail"]) for row in sql("select * from {audit} order by id")]
        scope = "pick: run `t` of workflow `w`"
        assert told[-2:] == [("ann", "hold", scope), ("bob", "release", scope)]

    def test_what_nobody_knows_cannot_be_held(self, app: Make) -> None:
        own = app()
        two_steps(own)
        with pytest.raises(NotFound, match="no workflow `x`"):
            own.hold("pick", workflow="x")
        with pytest.raises(NotFound, match="no run `t` of workflow `w`"):
            own.hold("pick", workflow="w", trigger="t")
        with pytest.raises(Invalid, match="`pick`, `create`, `submit`"):
            own.hold("pikc", workflow="w")
        with pytest.raises(Invalid, match="say which one"):
            own.hold("pick", trigger="t")

    def test_what_is_not_held_cannot_be_released(self, app: Make) -> None:
        own = app()
        two_steps(own)
        with pytest.raises(NotFound, match="Nothing is held"):
            own.release("pick")
        own.hold("pick", workflow="w")
        with pytest.raises(NotFound, match="Held are: `pick` of workflow `w`"):
            own.release("pick")

    @pytest.mark.parametrize("level", ["pick", "create"])
    def test_a_sweeper_goes_on_with_a_release_whose_process_died(
        self, app: Make, monkeypatch: pytest.MonkeyPatch, level: str
    ) -> None:
        own = app()
        run = two_steps(own).submit("t")
        own.hold(level)
        own.run_until_idle()

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(type(own.store), "bring_forward", die)
            with pytest.raises(KeyboardInterrupt):
                own.release(level)
        assert own.holds() == []
        assert own.store.pulse().releasing
        own.run_until_idle()
        assert run.refresh().state == "SUCCESS"
        assert not own.store.pulse().releasing

    @pytest.mark.parametrize("moment", ["submit", "end of a step"])
    def test_a_release_sees_what_was_left_unmade_beside_it(
        self, app: Make, monkeypatch: pytest.MonkeyPatch, moment: str
    ) -> None:
        """It comes while tasks are being left unmade because of the hold, and before that is committed."""
        own, other = app(), app()
        workflow = two_steps(own)
        run = workflow.submit("t")
        threads = []

        def release_beside(store: Any, *args: Any) -> None:
            threads.append(threading.Thread(target=other.release, args=("create",)))
            threads[0].start()
            threads[0].join(0.3)  # unless it has to wait for us
            patch.undo()
            carry_out(store, *args)

        if moment == "submit":
            own.hold("create")
        else:
            worker = WorkerByHand(own.store, ("w.first", "w.then"), ("workflows",))
            tasks = worker.claim(3, "workflows")
            own.hold("create")
        carry_out = type(own.store)._carry_out
        with monkeypatch.context() as patch:
            patch.setattr(type(own.store), "_carry_out", release_beside)
            if moment == "submit":
                run = workflow.submit("u")
            else:
                worker.succeed(*tasks)
        threads[0].join()
        own.run_until_idle()
        assert run.refresh().state == "SUCCESS"

    def test_what_is_held_and_released_again_and_again_is_all_done(self, app: Make, url: str, instance: str) -> None:
        """Claims, ends of tasks, holds and releases at the same time: nothing may be left behind."""
        own = app(clock=Clock())
        workflow = own.workflow("w")
        workflow.step(name="many", shards=300, max_undone=20)(lambda task: None)
        workflow.step(name="then", after=["many"], shards=20)(lambda task: None)
        with own.worker(concurrency=4):
            runs = [workflow.submit(f"t{number}") for number in range(3)]
            for number in range(15):
                scope = SCOPES[number % 2]
                for level in ("pick", "create"):
                    own.hold(level, **scope)
                for level in ("create", "pick"):
                    own.release(level, **scope)
            assert [run.wait(120).state.value for run in runs] == ["SUCCESS"] * 3
        check_invariants(url, instance)
