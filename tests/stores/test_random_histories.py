"""Random histories, played against the reference model and both stores side by side: they agree after every step."""

import itertools
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast import IllegalMove
from holdfast.clock import MovableClock
from holdfast.jobs.job import Job
from holdfast.jobs.retry import encode
from holdfast.jobs.states import Decided, HandedBack, Happening, Lost, Raised, Snoozed, Succeeded
from holdfast.stores.contract import Claimed, Filter, NewJob, QueueDeclared, Report, Store, TypeRow
from holdfast.stores.open import open_store
from tests.by_hand import WorkerByHand, error
from tests.invariants import Invariants
from tests.raw_sql import RawSql
from tests.stores.conftest import empty
from tests.stores.reference import ABORT_PATIENCE, RULES, Reference

TYPES = tuple(RULES)
HINTS = ("ready", "waiting", "parked", "undecided")
some_types = some.lists(some.sampled_from(TYPES), min_size=1, unique=True).map(tuple)
HAPPENINGS = some.one_of(
    some.builds(Succeeded, result=some.sampled_from([None, "[1]"]), seconds=some.just(1.0)),
    some.builds(Raised, error=some.sampled_from(["exception", "timeout", "failed", "result"]).map(error)),
    some.builds(Raised, error=some.just(error("retry")), retry_delay=some.sampled_from([0.0, 5.0, 60.0])),
    some.builds(Snoozed, delay=some.sampled_from([0.0, 5.0, 60.0])),
    some.builds(HandedBack),
    some.builds(Lost, alone=some.booleans()),
)


class Side:
    """One store, with its own ids for the model's numbers."""

    def __init__(self, store: Store, instance: str, url: str) -> None:
        self.store = store
        self.instance, self.url = instance, url
        self.ids: list[int] = []
        self.workers: list[WorkerByHand] = []
        self.calls: dict[tuple[int, int], Claimed] = {}
        rows = [
            TypeRow(
                name,
                "mail",
                retry=encode(rules.policy),
                on_crash=rules.on_crash,
                max_crashes=rules.max_crashes,
                has_retry_handler=rules.has_retry_handler,
            )
            for name, rules in RULES.items()
        ]
        store.set_up()
        store.register([QueueDeclared("mail", f"{instance}_mail")], rows)

    def number(self, job_id: int) -> int:
        return self.ids.index(job_id)

    def sql(self, text: str) -> None:
        self.store.connection.database.execute(text.encode() if self.url else text)  # type: ignore[attr-defined]

    def promote(self) -> None:
        self.workers[0].turn(promote=True)

    def seen(self) -> list[dict[str, Any]]:
        found: dict[int, Job] = {job.id: job for job in self.store.find(Filter(limit=10_000, archive=True))}
        kept: dict[int, int] = {}
        for row in self.store.connection.database.execute(
            f'select job, count(*) from "{self.instance}__attempt" group by 1'
        ):  # type: ignore[attr-defined]
            kept[row[0]] = row[1]
        names = (
            "state",
            "situation",
            "attempt",
            "failures",
            "losses",
            "crashes",
            "scheduled_run_time",
            "priority",
            "job_key",
            "job_type",
        )
        names += ("outcome", "error")
        assert sorted(found) == self.ids
        return [
            {**{name: getattr(found[id_], name) for name in names}, "records": kept.get(id_, 0)} for id_ in self.ids
        ]


class Histories(RuleBasedStateMachine):
    """Each rule does one thing to the model and to both stores."""

    tried = Bundle("calls")

    def __init__(self, url: str, instance: str) -> None:
        super().__init__()
        self.clock = MovableClock()
        self.model = Reference(self.clock.now())
        memory = Side(open_store("sqlite://:memory:", "holdfast", self.clock), "holdfast", "")
        server = Side(open_store(url, instance, self.clock), instance, url)
        self.sides = [memory, server]
        self.worker_types: list[tuple[str, ...]] = []

    def teardown(self) -> None:
        for side in self.sides:
            if side.url:
                sql = RawSql(side.url, side.instance)
                Invariants(sql).check(side.ids, {})
                sql.close()
            side.store.close()
        assert empty(self.sides[1].url, self.sides[1].instance)

    @initialize()
    def first_worker(self) -> None:
        self.join(TYPES)

    @rule(types=some_types)
    def join(self, types: tuple[str, ...]) -> None:
        self.model.living_workers.add(len(self.worker_types))
        self.model.unpark(types)
        self.worker_types.append(types)
        for side in self.sides:
            side.workers.append(WorkerByHand(side.store, types))

    @rule(
        job_type=some.sampled_from(TYPES),
        job_key=some.sampled_from([None, "a", "b"]),
        priority=some.sampled_from([1.0, 100.0]),
        delay=some.sampled_from([None, 5.0, 60.0]),
        expires=some.sampled_from([None, 61.0, 200.0]),
        retries=some.sampled_from([0, 1, None]),
        on_duplicate=some.sampled_from(["return", "replace"]),
        copies=some.integers(1, 3),
    )
    def enqueue(self, job_type: str, expires: float | None, copies: int, **options: Any) -> None:
        """`copies` of it in one call."""
        options["expires_time"] = None if expires is None else self.clock.now() + timedelta(seconds=expires)
        expected = [self.model.add(job_type, options) for _ in range(copies)]
        for side in self.sides:
            jobs = side.store.add([NewJob("mail", job_type, "{}", **options) for _ in range(copies)])
            for job, (number, duplicate) in zip(jobs, expected, strict=True):
                if not duplicate:
                    side.ids.append(job.id)
                assert (side.number(job.id), job.duplicate) == (number, duplicate)

    @rule(target=tried, worker=some.integers(0, 50), room=some.integers(1, 4))
    def claim(self, worker: int, room: int) -> tuple[int, int, int]:
        """The jobs and their order are the model's. Gives one attempt for others to talk about."""
        worker = sorted(self.model.living_workers)[worker % len(self.model.living_workers)]
        expected = self.model.claim(worker, self.worker_types[worker], room)
        for side in self.sides:
            calls = side.workers[worker].claim(room)
            assert [side.number(call.id) for call in calls] == expected
            for number, call in zip(expected, calls, strict=True):
                assert call.attempt == self.model.jobs[number].row.attempt
                side.calls[number, call.attempt] = call
        number = expected[0] if expected else -1
        return number, self.model.jobs[number].row.attempt if expected else 0, worker

    @rule(told=tried, happening=HAPPENINGS)
    def tell(self, told: tuple[int, int, int], happening: Happening) -> None:
        """The end of an attempt, in time or late."""
        number, attempt, worker = told
        if number < 0:
            return
        heard = self.model.tell(number, attempt, happening)
        for side in self.sides:
            call, by = side.calls[number, attempt], side.workers[worker]
            if isinstance(happening, Succeeded):
                assert (by.succeed(call, result=happening.result) == 0) == heard
            else:
                assert (by.tell(call, happening) is not None) == heard

    @precondition(lambda self: any(job.undecided for job in self.model.jobs))
    @rule(which=some.integers(0, 50), answer=some.sampled_from(["retry", "give up", "policy"]))
    def judge(self, which: int, answer: str) -> None:
        """A retry handler's word about an error that waits for it."""
        open_ = [number for number, job in enumerate(self.model.jobs) if job.undecided]
        number = open_[which % len(open_)]
        job = self.model.jobs[number]
        assert job.error is not None
        options: dict[str, Any] = {
            "retry": {"retry_delay": 5.0},
            "give up": {"give_up": True},
            "policy": {"by_policy": True},
        }[answer]
        decided, attempt = Decided(job.error, **options), job.row.attempt
        assert self.model.tell(number, attempt, decided)
        for side in self.sides:
            assert sorted(side.number(id_) for id_ in side.store.undecided(TYPES)) == open_
            (change,) = side.store.report([Report(side.ids[number], decided, attempt, job.row.job_type)])
            assert change is not None

    @precondition(lambda self: self.model.jobs)
    @rule(which=some.integers(0, 50))
    def abort(self, which: int) -> None:
        number = which % len(self.model.jobs)
        may = self.model.abort(number)
        for side in self.sides:
            if may:
                side.store.abort(side.ids[number], "ann")
            else:
                with pytest.raises(IllegalMove):
                    side.store.abort(side.ids[number], "ann")

    @precondition(lambda self: len(self.model.living_workers) > 1)
    @rule(which=some.integers(0, 50), how=some.sampled_from(["lost", "left"]))
    def lose(self, which: int, how: str) -> None:
        """The first worker stays: it promotes."""
        living = sorted(self.model.living_workers - {0})
        worker = living[which % len(living)]
        self.model.lose(worker)
        for side in self.sides:
            if how == "lost":
                side.store.lose(side.workers[worker].id)
            else:
                side.store.leave(side.workers[worker].id)
                side.store.recover_strays()

    @rule(seconds=some.sampled_from([1.0, 5.0, 30.0, 61.0, 300.0]))
    def time_passes(self, seconds: float) -> None:
        self.model.now = self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        """Everything a sweeper does, twice: the second time there is nothing left to do."""
        self.model.shut()
        self.model.end_overdue()
        self.model.end_old_aborts()
        for side, _ in itertools.product(self.sides, range(2)):
            side.promote()
            side.store.shut()
            side.store.end_overdue()
            side.store.end_old_aborts(ABORT_PATIENCE)
            side.store.recover_strays()
            assert side.store.restore(0, 1_000_000, -1) == (0, 0)

    @rule(handled=some_types)
    def park(self, handled: tuple[str, ...]) -> None:
        self.model.park(handled)
        for side in self.sides:
            side.promote()
            side.store.park(handled)

    @rule()
    def pause_or_resume(self) -> None:
        self.model.paused = not self.model.paused
        for side in self.sides:
            side.store.pause("mail", self.model.paused, "ann")

    @precondition(lambda self: self.model.jobs)
    @rule(which=some.integers(0, 50))
    def forget_and_restore(self, which: int) -> None:
        """A job loses whatever points at it, and is found again in its place."""
        number = which % len(self.model.jobs)
        job = self.model.jobs[number]
        job.parked = False
        for side in self.sides:
            for table in HINTS:
                side.sql(f'delete from "{side.instance}__{table}" where id = {side.ids[number]}')
            assert side.store.restore(0, 1_000_000, -1) == (0, int(job.free))

    @rule()
    def archive(self) -> None:
        for side in self.sides:
            side.store.archive(60)

    @invariant()
    def everything_agrees(self) -> None:
        expected = [job.seen() for job in self.model.jobs]
        for side in self.sides:
            assert side.seen() == expected


@pytest.mark.claim("J2", "J5", "J10", "J12", "Q5", "W1", "W2", "R5", "C3", "C4")
def test_the_stores_agree_with_the_pure_functions_over_random_histories(postgres_url: str) -> None:
    bounds = settings(max_examples=20, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(lambda: Histories(postgres_url, "histories"), settings=bounds)
