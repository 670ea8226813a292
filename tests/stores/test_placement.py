"""Placement in the stores: what is left to others is claimed late and in order, and rules about duties are kept."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from holdfast import App, NotFound
from holdfast.clock import MovableClock
from holdfast.jobs.placement import DUTIES, DutyRule
from holdfast.stores.contract import Store
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.sweeper import Sweeper
from tests.by_hand import WorkerByHand, add, declare
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("F20")
LATE = (("send", 5.0),)


def ids(worker: WorkerByHand, room: int = 10) -> list[int]:
    return [call.id for call in worker.claim(room)]


def coming(store: Store, how: str) -> Callable[[], WorkerByHand]:
    """How a worker comes that takes jobs; the same one if it is asked again."""
    waiting = [] if how == "joins" else [WorkerByHand(store)]
    for worker in waiting:
        store.set_duties(worker.id, ("sweep",))

    @cache
    def come() -> WorkerByHand:
        worker = waiting[0] if waiting else WorkerByHand(store)
        if waiting:
            store.set_duties(worker.id, DUTIES)
        return worker

    return come


def sweeping(store: Store, clock: MovableClock) -> Sweeper:
    return Sweeper(store.another(), WorkerSettings(), clock, lambda: 0, lambda: 0, lambda _: None, lambda: None)


@pytest.fixture(params=["open", "throttled"])
def both(request: pytest.FixtureRequest, store: Store) -> Store:
    """A queue without a limit, and one whose jobs are claimed under its lock."""
    if request.param == "throttled":
        store.limit("mail", 1000, "test")
    return store


class TestPreferences:
    def test_a_worker_without_the_label_takes_a_job_only_when_it_was_left(
        self, both: Store, clock: MovableClock
    ) -> None:
        other = WorkerByHand(both, ("print",), late=LATE)
        job = add(both)
        assert ids(other) == []
        clock.advance(4.9)
        assert ids(other) == []
        clock.advance(0.1)
        assert ids(other, 1) == [job.id]

    def test_a_worker_with_the_label_takes_it_at_once(self, both: Store) -> None:
        other, first = WorkerByHand(both, ("print",), late=LATE), WorkerByHand(both, labels=("gpu",))
        job = add(both)
        assert ids(other) == []
        assert ids(first, 1) == [job.id]

    def test_what_was_left_and_what_is_asked_for_at_once_are_claimed_in_order(
        self, both: Store, clock: MovableClock
    ) -> None:
        left = [add(both, priority=priority).id for priority in (3, 1)]
        clock.advance(5)
        young = add(both, priority=0).id
        asked = [add(both, "print", priority=priority).id for priority in (4, 2)]
        both.limit("mail", None, "test")
        worker = WorkerByHand(both, ("print",), late=LATE)
        assert ids(worker) == [left[1], asked[1], left[0], asked[0]]
        assert young not in ids(worker)

    def test_each_type_has_its_own_time(self, both: Store, clock: MovableClock) -> None:
        declare(both, "draw")
        worker = WorkerByHand(both, (), late=(("draw", 1.0), ("send", 60.0)))
        drawn, sent = add(both, "draw"), add(both)
        clock.advance(1)
        assert ids(worker, 1) == [drawn.id]
        clock.advance(59)
        assert ids(worker, 1) == [sent.id]

    def test_a_preference_is_stored_with_the_type(self, app: Callable[..., App]) -> None:
        holdfast = app()
        holdfast.queue("work").job(name="paint", prefers=["gpu"], prefer_for=9)(lambda: None)
        row = holdfast.store.types()["paint"]
        assert (row.prefers, row.prefer_for) == (("gpu",), 9.0)
        report = holdfast.workflow("report")
        report.step(name="draw", labels=["big"], prefers=["gpu"], prefer_for=2)(lambda task: None)
        row = holdfast.store.types()["report.draw"]
        assert (row.labels, row.prefers, row.prefer_for) == (("big",), ("gpu",), 2.0)


class TestDuties:
    def test_rules_are_kept_in_the_order_they_were_made_and_the_same_one_is_replaced(self, store: Store) -> None:
        first = store.switch_duty(DutyRule("sweep", False, label="gpu"), "ann")
        second = store.switch_duty(DutyRule("run", False, host="db"), "ann")
        again = store.switch_duty(DutyRule("sweep", True, label="gpu"), "ben")
        assert [(rule.id, rule.duty, rule.on, rule.actor) for rule in store.duty_rules()] == [
            (second.id, "run", False, "ann"),
            (again.id, "sweep", True, "ben"),
        ]
        assert first.id < second.id < again.id
        assert (again.label, again.host, again.version) == ("gpu", None, None)

    def test_a_rule_can_be_dropped(self, store: Store) -> None:
        rule = store.switch_duty(DutyRule("sweep", False), "ann")
        store.drop_duty_rule(rule.id, "ann")
        assert store.duty_rules() == []
        with pytest.raises(NotFound, match=f"no rule {rule.id}"):
            store.drop_duty_rule(rule.id, "ann")

    def test_what_is_done_is_audited(self, store: Store, sql: RawSql) -> None:
        rule = store.switch_duty(DutyRule("sweep", False, version="1.*"), "ann")
        store.drop_duty_rule(rule.id, "ben")
        done = [(row["actor"], row["action"], row["detail"]) for row in sql("select * from {audit} order by id")]
        assert done == [
            ("ann", "switch_duty", "sweep off: workers with version 1.*"),
            ("ben", "drop_duty_rule", str(rule.id)),
        ]

    def test_a_worker_shows_the_duties_it_has(self, store: Store) -> None:
        worker = WorkerByHand(store)
        assert [row.duties for row in store.workers()] == [DUTIES]
        store.set_duties(worker.id, ("run", "serve"))
        assert [row.duties for row in store.workers()] == [("run", "serve")]

    def test_jobs_that_had_nobody_to_run_them_stand_in_line_again(self, store: Store) -> None:
        worker = WorkerByHand(store)
        store.set_duties(worker.id, ("sweep",))
        job = add(store)
        store.park([])
        assert ids(worker) == []
        store.set_duties(worker.id, DUTIES)
        assert ids(worker) == [job.id]

    @pytest.mark.parametrize("how", ["joins", "is switched on"])
    def test_who_comes_while_a_sweeper_puts_jobs_aside_gets_them(
        self, store: Store, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        job, come = add(store), coming(store, how)
        aside = sweeping(store, clock)
        seen = aside.store.park

        def park(handled: Sequence[str]) -> int:
            monkeypatch.undo()  # nobody was there when the sweeper looked
            come()
            return seen(handled)

        monkeypatch.setattr(aside.store, "park", park)
        aside.park()
        aside.close()
        assert [call.id for call in come().claim()] == [job.id]

    @pytest.mark.parametrize("how", ["joins", "is switched on"])
    def test_who_comes_is_seen_by_sweepers_before_it_looks_for_what_was_put_aside(
        self, url: str, store: Any, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        if url.startswith("sqlite"):
            pytest.skip("one writes at a time there")
        job, come = add(store), coming(store, how)
        aside = sweeping(store, clock)
        types = store.tripped_types

        def tripped() -> set[str]:
            monkeypatch.undo()  # it has looked, and has not committed
            aside.park()
            found: set[str] = types()
            return found

        monkeypatch.setattr(store, "tripped_types", tripped)
        worker = come()
        aside.close()
        assert [call.id for call in worker.claim()] == [job.id]

    def test_nothing_is_reserved_for_a_worker_that_takes_no_jobs(self, store: Store) -> None:
        store.limit("mail", 2, "test")
        idle = WorkerByHand(store, ("send",))
        worker = WorkerByHand(store, ("print",))
        add(store, priority=1, throttle_factor=2)
        job = add(store, "print", priority=2)
        assert ids(worker, 1) == []  # it is kept for the one before
        store.set_duties(idle.id, ("sweep",))
        assert ids(worker, 1) == [job.id]
