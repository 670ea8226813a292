"""The engine, broken on purpose: the simulation notices each of these. One that it does not notice is a hole in it."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.jobs import throttlers
from holdfast.jobs.job import Situation
from holdfast.stores.changing import Changing
from holdfast.stores.holding import Holding
from holdfast.stores.postgres import instance
from holdfast.stores.postgres.jobs import PostgresStore
from holdfast.stores.running import Running
from holdfast.stores.sqlite import jobs
from holdfast.worker import sweeper
from tests.simulation.playing import first_fault
from tests.simulation.stages import PostgresStage
from tests.simulation.story import KINDS, PAUSES, RUNS

TRIES = 300  # seeds until one must have noticed
Mutate = Callable[[pytest.MonkeyPatch], None]


def statement(name: str, old: str, new: str, of: dict[str, str] = jobs.STATEMENTS) -> Mutate:
    """Another text for a statement of the store."""

    def mutate(monkeypatch: pytest.MonkeyPatch) -> None:
        assert old in of[name], f"{name} does not say {old!r} any more"
        monkeypatch.setitem(of, name, of[name].replace(old, new))

    return mutate


def on_postgres_statement(name: str, old: str, new: str) -> Mutate:
    return statement(name, old, new, instance.STATEMENTS)


def both(*mutations: Mutate) -> Mutate:
    def mutate(monkeypatch: pytest.MonkeyPatch) -> None:
        for each in mutations:
            each(monkeypatch)

    return mutate


def replaced(owner: Any, name: str, by: Any) -> Mutate:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, by)


NOT_PAUSED = "not paused and "
ALIVE = "and exists (select 1 from {worker} where id = ?5 and gone is null)"
OPEN = "and (closes_time is null or closes_time > ?3)"
MUTATIONS = {
    "a success is settled whatever attempt it belongs to": statement("settle", " and j.attempt = e.value ->> 1", ""),
    "another end is stored whatever attempt it belongs to": replaced(
        Changing, "_owns", lambda self, report, row: report.attempt is None or row.situation is Situation.HELD
    ),
    "a paused queue is claimed from": both(statement("head", NOT_PAUSED, ""), statement("take_head", NOT_PAUSED, "")),
    "a worker that was called lost goes on claiming": both(
        statement("head", ALIVE, ""), statement("take_head", ALIVE, "")
    ),
    "a window that has closed is not looked at": both(statement("head", OPEN, ""), statement("take_head", OPEN, "")),
    "a claim leaves no lease": statement("add_lease", "(?1, ?2, ?3, ?4, ?5, ?6)", "(?1, ?2, ?3, ?4, ?5, '[]')"),
    "what waits for an answer does not count against the limit": statement(
        "usage", "from {lease}", "from {lease} where worker is not null"
    ),
    "a key has no limit of its own": replaced(throttlers, "pool_of_value", lambda throttler, value: None),
    "whoever has been there for a while is called lost": replaced(
        sweeper.Vigil,
        "look",
        lambda self, workers, *_: [row.id for row in workers] if self._clock.monotonic() > 60 else [],
    ),
    "a task's end does not advance its run": replaced(Running, "_advance", lambda *_: None),
    "what nobody would find is not looked for": replaced(sweeper.Sweeper, "restore", lambda self: None),
    "the jobs of lost workers stay theirs": replaced(jobs.SqliteStore, "lose", lambda self, worker: 0),
    "deadlines of what nobody holds pass unnoticed": replaced(jobs.SqliteStore, "end_overdue", lambda self: None),
    "a task that is held is started": statement("held_tasks", "h.level = 'pick'", "h.level = 'none'"),
    "what is released is not brought forward": replaced(
        Holding, "_bring_lot", lambda self, hold: self.run("drop_hold", hold)
    ),
    "what becomes due is not promoted": statement("promote", "wake_time <= :now", "wake_time <= 0"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_simulation_notices_that(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[mutation](monkeypatch)
    assert first_fault(range(TRIES)) is not None, f"Nobody noticed that {mutation}."


MUTATIONS_ON_POSTGRES = {
    "a success is settled whatever attempt it belongs to": on_postgres_statement(
        "settle", "(%(attempts)s::int[])[width_bucket(j.id, %(ids)s::bigint[])]", "j.attempt"
    ),
    "a paused queue is claimed from": on_postgres_statement("claim", "select not paused and ", "select "),
    "a worker that was called lost goes on claiming": on_postgres_statement(
        "claim", "and exists (select from {worker} where id = %(worker)s and gone is null)", ""
    ),
    "nobody asks for the answer to a turn that was lost": replaced(PostgresStore, "disown", lambda *_: 0),
    "a task ends as was expected, whatever happened meanwhile": replaced(
        PostgresStore, "_compare", lambda self, wire: setattr(self, "_ahead", None)
    ),
    "a task's end does not advance its run": replaced(Running, "_advance", lambda *_: None),
}

SEEN_IN = {  # the stories in which it is seen soonest
    "a task ends as was expected, whatever happened meanwhile": RUNS,
    "a worker that was called lost goes on claiming": PAUSES,
}


@pytest.mark.parametrize("mutation", MUTATIONS_ON_POSTGRES)
def test_the_simulation_on_postgres_notices_that(
    mutation: str, monkeypatch: pytest.MonkeyPatch, on_postgres: PostgresStage
) -> None:
    MUTATIONS_ON_POSTGRES[mutation](monkeypatch)
    seeds = range(SEEN_IN[mutation], KINDS * TRIES, KINDS) if mutation in SEEN_IN else range(TRIES)
    assert first_fault(seeds, on_postgres) is not None, f"Nobody noticed that {mutation}."
