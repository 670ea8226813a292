"""The engine, broken on purpose: the simulation notices each of these. One that it does not notice is a hole in it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from holdfast.jobs import breaker, explain, obstacles, schedules, throttlers
from holdfast.jobs.breaker import BreakerState
from holdfast.jobs.facts import Facts
from holdfast.jobs.job import Situation
from holdfast.jobs.schedules import Schedule
from holdfast.stores import archiving, breaking, running
from holdfast.stores.changing import Changing
from holdfast.stores.holding import Holding
from holdfast.stores.postgres import instance
from holdfast.stores.postgres.jobs import PostgresStore
from holdfast.stores.run_archive import RunArchive
from holdfast.stores.running import Running
from holdfast.stores.runs import Runs, decode_object
from holdfast.stores.sqlite import jobs
from holdfast.stores.statements import RowDict
from holdfast.worker import sweeper
from holdfast.workflows.states import StepState
from tests.simulation.playing import first_fault
from tests.simulation.stages import PostgresStage
from tests.simulation.story import ARCHIVES, BREAKERS, KINDS, LOSSES, PAUSES, PLAIN, RUNS, TALLIES, TIMES

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


def seeds_for(mutation: str, seen_in: dict[str, int]) -> range:
    """Stories of the kind in which it is seen, from one in which it was."""
    first = seen_in.get(mutation)
    return range(TRIES) if first is None else range(first, first + KINDS * TRIES, KINDS)


SEEN_IN = {  # where it would be searched for long, or in vain
    "a success is settled whatever attempt it belongs to": LOSSES + KINDS * 3,
    "leases do not end": LOSSES,
    "a run is archived before all its jobs have ended": TALLIES + KINDS * 2,
    "a job that was to be ended is tried again": TIMES + KINDS * 4,
    "a key has no limit of its own": LOSSES,
    "what becomes due is not promoted": LOSSES,
    "a task ends as was expected, whatever happened meanwhile": RUNS + KINDS * 7,
    "a task that is held is started": BREAKERS + KINDS * 11,
    "a worker that was called lost goes on claiming": PAUSES,
    "a task begins although it is held": TIMES + KINDS * 52,
    "a task begins where its queue is paused": BREAKERS + KINDS * 20,
    "a task begins with a worker that was called lost": RUNS + KINDS * 40,
    "what waits for an answer does not count against the limit": PLAIN + KINDS * 33,
    "what is released is not brought forward": TALLIES + KINDS * 2,
    "who saw that a schedule was due fires it, whoever has": TIMES + KINDS * 10,
    "a schedule that is changed forgets what it has fired": TIMES + KINDS * 164,
    "of times that were missed only the last is fired": TIMES,
    "a type whose breaker is open is claimed from": BREAKERS,
    "a probe that is gone is not missed": BREAKERS + KINDS * 2,
    "a type is probed before its time": BREAKERS + KINDS * 5,
    "what a task publishes is not kept": TALLIES,
    "a task is told what was published after it was made": TALLIES,
    "a step that has begun is cut once more": TALLIES + KINDS * 12,
    "a run leaves a step behind": ARCHIVES,
    "the jobs of a run that has left do not follow it": ARCHIVES,
    "a trigger goes with its run": ARCHIVES + KINDS * 18,
    "the time of an older attempt is over for the next one": LOSSES,
    "what somebody kept when its worker was lost is not looked for again": LOSSES,
}


SEEN_ON_POSTGRES = SEEN_IN | {
    "a paused queue is claimed from": RUNS,
    "nobody asks for the answer to a turn that was lost": PAUSES + KINDS,
    "who saw that a schedule was due fires it, whoever has": TIMES + KINDS * 25,
}


def check_noticed(mutation: str, fault: tuple[int, Exception] | None) -> None:
    """By what holds no more, and not because the mutation itself does not work."""
    assert fault is not None, f"Nobody noticed that {mutation}."
    assert not isinstance(fault[1], TypeError | AttributeError | NameError), repr(fault[1])


def once(schedule: Schedule) -> Schedule:
    return structs.replace(schedule, misfire="once")


def both_names(types: Iterable[str], tripped: set[str]) -> list[str]:
    return [*types, *(breaking.MARK + name for name in tripped)]


def not_follow(store: RunArchive, run: RowDict, limit: int) -> int:
    store.run("drop_leaving", {"run": run["run"]})
    return 0


NOT_PAUSED = "not paused and "
ALIVE = "and exists (select 1 from {worker} where id = ?5 and gone is null)"
IN_ORDER, LAST_FIRST = "order by major, minor, id limit", "order by id desc limit"
OPEN = "and (closes_time is null or closes_time > ?3)"
MUTATIONS = {
    "a success is settled whatever attempt it belongs to": both(
        statement("settle", " and j.attempt = e.value ->> 1", ""),
        statement("settle_alike", " and j.attempt = ?3", ""),
        statement("settle_one", " and attempt = ?3", ""),
    ),
    "another end is stored whatever attempt it belongs to": replaced(
        Changing, "_owns", lambda self, report, row: report.attempt is None or row.situation is Situation.HELD
    ),
    "a paused queue is claimed from": both(statement("head", NOT_PAUSED, ""), statement("take_head", NOT_PAUSED, "")),
    "a worker that was called lost goes on claiming": both(
        statement("head", ALIVE, ""), statement("take_head", ALIVE, "")
    ),
    "a task begins before others that stand in line": statement(
        "may_begin", "and job_type in (select value from json_each(?3))", "and false"
    ),
    "a task begins where its queue is paused": statement("may_begin", NOT_PAUSED, ""),
    "a task begins although it is held": statement("may_begin", "level = 'pick'", "level = 'none'"),
    "a task begins with a worker that was called lost": statement("may_begin", "id = ?2 and gone is null", "id = ?2"),
    "a window that has closed is not looked at": both(statement("head", OPEN, ""), statement("take_head", OPEN, "")),
    "what came last is claimed first": both(
        statement("head", IN_ORDER, LAST_FIRST), statement("take_head", IN_ORDER, LAST_FIRST)
    ),
    "explain does not know of pauses": replaced(
        explain, "OBSTACLES", [look for look in explain.OBSTACLES if look is not obstacles.paused]
    ),
    "explain takes what is due for what is not": replaced(Facts, "due", property(lambda self: False)),
    "an attempt that erred leaves no record": replaced(Changing, "_record", lambda *_: ()),
    "what has expired is not looked for": replaced(jobs.SqliteStore, "shut", lambda self: 0),
    "leases do not end": statement("end_leases", "where ", "where false and "),
    "a run is archived before all its jobs have ended": replaced(RunArchive, "has_living", lambda self, row: False),
    "a wish to end a job that its worker does not obey is forgotten": replaced(
        jobs.SqliteStore, "end_old_aborts", lambda self, seconds: 0
    ),
    "a job that was to be ended is tried again": replaced(
        Changing, "_heed_aborts", lambda self, reports, rows: reports
    ),
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
    "the jobs of lost workers stay theirs": replaced(jobs.SqliteStore, "lose", lambda self, worker, beat: 0),
    "deadlines of what nobody holds pass unnoticed": replaced(jobs.SqliteStore, "end_overdue", lambda self: None),
    "the time of an older attempt is over for the next one": replaced(
        jobs.SqliteStore, "_is_overdue", lambda self, row, ends, now: True
    ),
    "a task that is held is started": statement("held_tasks", "h.level = 'pick'", "h.level = 'none'"),
    "what is released is not brought forward": replaced(
        Holding, "_bring_lot", lambda self, hold: self.run("drop_hold", hold)
    ),
    "what becomes due is not promoted": statement("promote", "wake_time <= :now", "wake_time <= 0"),
    "who saw that a schedule was due fires it, whoever has": statement(
        "take_due_schedules", " and wake_time <= :now", ""
    ),
    "a schedule that is changed forgets what it has fired": replaced(
        schedules, "changed_time", lambda new, due, last, now: schedules.first_time(new, now)
    ),
    "of times that were missed only the last is fired": replaced(
        schedules, "_fire_all", lambda schedule, due, now, most: schedules.firings(once(schedule), due, now)
    ),
    "a type whose breaker is open is claimed from": replaced(breaking, "_marked", both_names),
    "a probe that is gone is not missed": statement("tripped", "b.state = 'probing' and", "b.state = 'closed' and"),
    "a type is probed before its time": both(
        statement("tripped", "(b.probe_time - :now) / 1e6", "-1"),
        replaced(breaker, "may_probe", lambda each, now: each.state is BreakerState.OPEN),
    ),
    "what a task publishes is not kept": replaced(Running, "_publish", lambda self, head, effects: head),
    "a task is told what was published after it was made": replaced(
        Runs, "_published_by", lambda self, row, publication: decode_object(row["published"])
    ),
    "a step that has begun is cut once more": replaced(running, "NOT_BEGUN", tuple(StepState)),
    "a run leaves a step behind": statement("to_step_archive", "where run = :id", "where run = :id and position > 0"),
    "the jobs of a run that has left do not follow it": replaced(RunArchive, "_follow", not_follow),
    "what is to be kept is forgotten": statement("old_archived", "end_time < :before", "end_time >= 0"),
    "what is forgotten leaves its attempts behind": replaced(archiving, "BESIDE", ()),
    "a trigger goes with its run": statement("drop_run", ":id", ":id; delete from {trigger} where run = :id"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_simulation_notices_that(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[mutation](monkeypatch)
    check_noticed(mutation, first_fault(seeds_for(mutation, SEEN_IN)))


MUTATIONS_ON_POSTGRES = {
    "a success is settled whatever attempt it belongs to": on_postgres_statement(
        "settle", "(%(attempts)s::int[])[width_bucket(j.id, %(ids)s::bigint[])]", "j.attempt"
    ),
    "a paused queue is claimed from": on_postgres_statement("claimable", "select not paused and ", "select "),
    "a worker that was called lost goes on claiming": on_postgres_statement(
        "claimable", "and exists (select from {worker} where id = %(worker)s and gone is null)", ""
    ),
    "a task begins before others that stand in line": on_postgres_statement(
        "add_begun", "job_type = any(%(types)s::text[])", "false"
    ),
    "a task begins although it is held": on_postgres_statement("add_begun", "level = 'pick'", "level = 'none'"),
    "the end of an item calls for no maker": on_postgres_statement("count_ended", " and items_job is not null", ""),
    "nobody asks for the answer to a turn that was lost": replaced(PostgresStore, "disown", lambda *_: 0),
    "a task ends as was expected, whatever happened meanwhile": replaced(
        PostgresStore, "_compare", lambda self, wire: setattr(self, "_ahead", None)
    ),
    "a task's end does not advance its run": replaced(Running, "_advance", lambda *_: None),
    "who saw that a schedule was due fires it, whoever has": on_postgres_statement(
        "take_due_schedules", " and wake_time <= %(now)s", ""
    ),
    "a type whose breaker is open is claimed from": replaced(breaking, "_marked", both_names),
    "a probe that is gone is not missed": on_postgres_statement(
        "tripped", "b.state = 'probing' and", "b.state = 'closed' and"
    ),
    "what a task publishes is not kept": replaced(Running, "_publish", lambda self, head, effects: head),
    "the jobs of a run that has left do not follow it": replaced(RunArchive, "_follow", not_follow),
    "what is forgotten leaves its attempts behind": replaced(archiving, "BESIDE", ()),
    "what somebody kept when its worker was lost is not looked for again": replaced(
        PostgresStore, "recover_strays", lambda self: 0
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS_ON_POSTGRES)
def test_the_simulation_on_postgres_notices_that(
    mutation: str, monkeypatch: pytest.MonkeyPatch, on_postgres: PostgresStage
) -> None:
    MUTATIONS_ON_POSTGRES[mutation](monkeypatch)
    check_noticed(mutation, first_fault(seeds_for(mutation, SEEN_ON_POSTGRES), on_postgres))


def test_the_page_says_how_many_there_are() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "simulation.md"
    assert f"{len(MUTATIONS)} places on SQLite and {len(MUTATIONS_ON_POSTGRES)} on PostgreSQL" in page.read_text()
