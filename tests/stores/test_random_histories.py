"""Random histories, played against the reference model and both stores side by side: they agree after every step."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast import Conflict, IllegalMove
from holdfast.clock import MovableClock
from holdfast.jobs.job import Answer, Job, Situation
from holdfast.jobs.retry import encode
from holdfast.jobs.states import Decided, HandedBack, Happening, Lost, Raised, Snoozed, Succeeded, Waited
from holdfast.stores.contract import Claimed, Filter, NewJob, QueueDeclared, Report, Store, TypeRow
from holdfast.stores.open import open_store
from tests.by_hand import WorkerByHand, error
from tests.conftest import INSTANCE
from tests.invariants import Invariants
from tests.prepared import Prepared
from tests.raw_sql import RawSql
from tests.stores.conftest import MAIL
from tests.stores.reference import ABORT_PATIENCE, RULES, SEEN, Reference

TYPES = tuple(RULES)
ANSWERS = [Answer("[2]"), Answer(error=error("failed")), Answer(error=error("failed"), retry=True)]
HINTS = ("ready", "waiting", "parked", "undecided")
some_types = some.lists(some.sampled_from(TYPES), min_size=1, unique=True).map(tuple)
HAPPENINGS = some.one_of(
    some.builds(Succeeded, result=some.sampled_from([None, "[1]"]), seconds=some.just(1.0)),
    some.builds(Raised, error=some.sampled_from(["exception", "timeout", "failed", "result"]).map(error)),
    some.builds(Raised, error=some.just(error("retry")), retry_delay=some.sampled_from([0.0, 5.0, 60.0])),
    some.builds(Snoozed, delay=some.sampled_from([0.0, 5.0, 60.0])),
    some.builds(HandedBack),
    some.builds(Waited, seconds=some.just(1.0), timeout=some.sampled_from([None, 30.0]), named=some.booleans()),
    some.builds(Lost, alone=some.booleans()),
)


OPTIONS = some.fixed_dictionaries(
    {
        "job_key": some.sampled_from([None, None, "a", "b"]),
        "priority": some.sampled_from([1.0, 100.0]),
        "delay": some.sampled_from([None, None, None, 5.0, 60.0]),
        "expires_time": some.sampled_from([None, None, None, 61.0, 200.0]),
        "retries": some.sampled_from([0, 1, None]),
        "on_duplicate": some.sampled_from(["return", "replace"]),
    }
)
Draw = Callable[[some.SearchStrategy[Any]], Any]
Act = Callable[[Draw], None]


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
                has_response_handler=rules.has_response_handler,
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
        assert sorted(found) == self.ids
        return [
            {**{name: getattr(found[id_], name) for name in (*SEEN, "outcome", "error")}, "records": kept.get(id_, 0)}
            for id_ in self.ids
        ]


class Histories(RuleBasedStateMachine):
    """Each step does one thing to the model and to both stores.

    There is one rule and not one for each thing: what a step is chosen from depends on what there is to do, so that
    most histories are busy ones.
    """

    def __init__(self, prepared: Prepared) -> None:
        super().__init__()
        self.prepared, url = prepared, prepared.copy_of(MAIL)
        self.clock = MovableClock()
        self.model = Reference(self.clock.now())
        memory = Side(open_store("sqlite://:memory:", "holdfast", self.clock), "holdfast", "")
        server = Side(open_store(url, INSTANCE, self.clock), INSTANCE, url)
        self.sides = [memory, server]
        self.worker_types: list[tuple[str, ...]] = []
        self.tried: list[tuple[int, int, int]] = []  # every attempt so far: job, attempt, worker
        self._join(TYPES)

    def teardown(self) -> None:
        for side in self.sides:
            if side.url:
                sql = RawSql(side.url, side.instance)
                Invariants(sql).check(side.ids, {})
                sql.close()
            side.store.close()
        self.prepared.drop(self.sides[1].url)

    @rule(data=some.data())
    def step(self, data: some.DataObject) -> None:
        act = data.draw(some.sampled_from(self._possible()))
        act(data.draw)
        self.model.now = self.clock.advance(1e-6)  # no two things happen at the same instant

    def _possible(self) -> list[Act]:
        """What may happen now, the likelier the more often."""
        jobs, workers = self.model.jobs, self.model.living_workers
        held = any(self._goes_on(*told) for told in self.tried)
        undecided = any(job.undecided for job in jobs)
        return [
            *[self.enqueue, self.claim] * 3,
            *[self.tell] * (6 if held else 0),
            *[self.tell_late] * (1 if self.tried else 0),
            *[self.judge] * (3 if undecided else 0),
            *[self.abort, self.forget_and_restore] * (1 if jobs else 0),
            *[self.answer] * (2 if jobs else 0),
            *[self.lose] * (1 if len(workers) > 1 else 0),
            *[self.join] * (1 if len(workers) < 4 else 0),
            *[self.time_passes] * 3,
            *[self.sweep] * 2,
            *[self.park, self.pause, self.archive],
        ]

    def join(self, draw: Draw) -> None:
        self._join(draw(some_types))

    def _join(self, types: tuple[str, ...]) -> None:
        self.model.living_workers.add(len(self.worker_types))
        self.model.unpark(types)
        self.worker_types.append(types)
        for side in self.sides:
            side.workers.append(WorkerByHand(side.store, types))

    def enqueue(self, draw: Draw) -> None:
        """One or some of the same in one call."""
        job_type, copies, options = draw(some.sampled_from(TYPES)), draw(some.integers(1, 3)), draw(OPTIONS)
        if options["expires_time"] is not None:
            options["expires_time"] = self.clock.now() + timedelta(seconds=options["expires_time"])
        expected = [self.model.add(job_type, options) for _ in range(copies)]
        for side in self.sides:
            jobs = side.store.add([NewJob("mail", job_type, "{}", **options) for _ in range(copies)])
            for job, (number, duplicate) in zip(jobs, expected, strict=True):
                if not duplicate:
                    side.ids.append(job.id)
                assert (side.number(job.id), job.duplicate) == (number, duplicate)

    def claim(self, draw: Draw) -> None:
        """The jobs and their order are the model's."""
        worker, room = draw(some.sampled_from(sorted(self.model.living_workers))), draw(some.integers(1, 4))
        expected = self.model.claim(worker, self.worker_types[worker], room)
        for side in self.sides:
            calls = side.workers[worker].claim(room)
            assert [side.number(call.id) for call in calls] == expected
            for number, call in zip(expected, calls, strict=True):
                assert call.attempt == self.model.jobs[number].row.attempt
                side.calls[number, call.attempt] = call
        self.tried += [(number, self.model.jobs[number].row.attempt, worker) for number in expected]

    def tell(self, draw: Draw) -> None:
        """The end of an attempt that goes on."""
        self._tell(draw(some.sampled_from([told for told in self.tried if self._goes_on(*told)])), draw(HAPPENINGS))

    def tell_late(self, draw: Draw) -> None:
        """The end of any attempt that ever was."""
        self._tell(draw(some.sampled_from(self.tried)), draw(HAPPENINGS))

    def _goes_on(self, number: int, attempt: int, worker: int) -> bool:
        row = self.model.jobs[number].row
        return (row.situation, row.attempt, row.worker) == (Situation.HELD, attempt, worker)

    def _tell(self, told: tuple[int, int, int], happening: Happening) -> None:
        number, attempt, worker = told
        heard = self.model.tell(number, attempt, happening)
        for side in self.sides:
            call, by = side.calls[number, attempt], side.workers[worker]
            if isinstance(happening, Succeeded):
                assert (by.succeed(call, result=happening.result) == 0) == heard
            else:
                assert (by.tell(call, happening) is not None) == heard

    def judge(self, draw: Draw) -> None:
        """A retry handler's word about an error that waits for it."""
        open_ = [number for number, job in enumerate(self.model.jobs) if job.undecided]
        number = draw(some.sampled_from(open_))
        job = self.model.jobs[number]
        assert job.error is not None
        answers: list[dict[str, Any]] = [{"retry_delay": 5.0}, {"give_up": True}, {"by_policy": True}]
        decided, attempt = Decided(job.error, **draw(some.sampled_from(answers))), job.row.attempt
        assert self.model.tell(number, attempt, decided)
        for side in self.sides:
            assert sorted(side.number(id_) for id_ in side.store.undecided(TYPES)) == open_
            (change,) = side.store.report([Report(side.ids[number], decided, attempt, job.row.job_type)])
            assert change is not None

    def abort(self, draw: Draw) -> None:
        number = draw(some.integers(0, len(self.model.jobs) - 1))
        may = self.model.abort(number)
        for side in self.sides:
            if may:
                side.store.abort(side.ids[number], "ann")
            else:
                with pytest.raises(IllegalMove):
                    side.store.abort(side.ids[number], "ann")

    def answer(self, draw: Draw) -> None:
        """To a job that waits, or will, or is past it."""
        number, answer = draw(some.integers(0, len(self.model.jobs) - 1)), draw(some.sampled_from(ANSWERS))
        may = self.model.answer(number, answer)
        for side in self.sides:
            if may:
                side.store.answer(side.ids[number], answer, "ann")
            else:
                with pytest.raises(Conflict):
                    side.store.answer(side.ids[number], answer, "ann")

    def lose(self, draw: Draw) -> None:
        """Any worker but the first, which promotes."""
        worker = draw(some.sampled_from(sorted(self.model.living_workers - {0})))
        silently = draw(some.booleans())
        self.model.lose(worker)
        for side in self.sides:
            if silently:
                side.store.leave(side.workers[worker].id)
                side.store.recover_strays()
            else:
                side.store.lose(side.workers[worker].id)

    def time_passes(self, draw: Draw) -> None:
        self.model.now = self.clock.advance(draw(some.sampled_from([1.0, 5.0, 30.0, 61.0, 300.0])))

    def sweep(self, draw: Draw) -> None:
        """Everything a sweeper does, twice: what one verb did may be work for another, the third time would do nothing."""
        for _ in range(2):
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

    def park(self, draw: Draw) -> None:
        handled = draw(some_types)
        self.model.park(handled)
        for side in self.sides:
            side.promote()
            side.store.park(handled)

    def pause(self, draw: Draw) -> None:
        """While a queue is paused nobody gets anything."""
        for side in self.sides:
            side.store.pause("mail", True, "ann")
            assert side.workers[0].claim(10) == []
            side.store.pause("mail", False, "ann")

    def forget_and_restore(self, draw: Draw) -> None:
        """A job loses whatever points at it, and is found again in its place."""
        number = draw(some.integers(0, len(self.model.jobs) - 1))
        job = self.model.jobs[number]
        job.parked = False
        for side in self.sides:
            for table in HINTS:
                side.sql(f'delete from "{side.instance}__{table}" where id = {side.ids[number]}')
            side.sql(f'delete from "{side.instance}__lease" where job = {side.ids[number]}')
            waits = job.row.situation is Situation.WAITING
            assert side.store.restore(0, 1_000_000, -1) == (0, int(job.free or waits))

    def archive(self, draw: Draw) -> None:
        for side in self.sides:
            side.store.archive(60)

    @invariant()
    def everything_agrees(self) -> None:
        expected = [job.seen() for job in self.model.jobs]
        for side in self.sides:
            assert side.seen() == expected


@pytest.mark.long
@pytest.mark.claim("J2", "J5", "J10", "J12", "Q5", "W1", "W2", "R3", "R5", "C3", "C4")
def test_the_stores_agree_with_the_pure_functions_over_random_histories(prepared: Prepared) -> None:
    bounds = settings(max_examples=20, stateful_step_count=50, derandomize=True, database=None)
    run_state_machine_as_test(lambda: Histories(prepared), settings=bounds)
