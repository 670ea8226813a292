"""M1 to M4: a living instance goes to another database, whole, and goes on there as if nothing had been."""

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from holdfast import App, Conflict, Invalid, NotFound, Unavailable
from holdfast.clock import Clock, MovableClock, microseconds
from holdfast.stores.copying import NOT_COPIED, Mark, Row, Table
from holdfast.stores.moving import PLAN, Move, Step, next_step, open_side
from holdfast.stores.open import open_store
from holdfast.stores.postgres import moving as postgres_moving
from tests.by_hand import WorkerByHand
from tests.invariants import check_invariants, final_rows
from tests.moving.conftest import Way
from tests.moving.shop import HOUR, Filled
from tests.pgbouncer import Bouncer
from tests.postgres_server import Server
from tests.raw_sql import SLOT, RawSql

Moving = Callable[..., Move]
EVERY_WAY = ["to postgres", "to sqlite", "to another file", "to another server"]
TABLES = {
    False: "select name from sqlite_master where type = 'table' and substr(name, 1, length(:like)) = :like",
    True: "select relname as name from pg_class where relkind in ('r', 'p') and starts_with(relname, :like)",
}
NOTHING_THERE = ("leaving", "abort", "undecided", "aside", "parked", "held", "_quota")  # of what the shop has


def nothing() -> None: ...


def contents(sql: RawSql) -> dict[str, list[dict[str, Any]]]:
    """Every table of an instance, by plain SQL, with values in a form of their own."""
    found = {row["name"] for row in sql(TABLES[sql.postgres], like=f"{sql.instance}_")} - {f"{sql.instance}__move"}
    names = sorted(name for name in found if not any(letter.isdigit() for letter in name))
    held = {}
    for name in names:
        rows = [{key: plain(value) for key, value in row.items()} for row in sql(f'select * from "{name}"')]
        held[name.removeprefix(sql.instance)] = sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
    held["__job"] = sorted((row for row in held.pop("__job", [])), key=lambda row: row["id"])
    held.pop("__sequence", None)
    return held


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return microseconds(value)
    if isinstance(value, list):
        return json.dumps(value, separators=(",", ":"))
    return int(value) if isinstance(value, bool) else value


def in_microseconds(held: dict[str, list[dict[str, Any]]], postgres: bool) -> list[tuple[Any, ...]]:
    """The line: on PostgreSQL its times are seconds."""
    orders = {row["name"]: row["claim_order"] for row in held["__queue"]}
    found = []
    for row in held.pop("__ready"):
        name = "major" if orders[row["queue"]] == "schedule" else "minor"
        row[name] = round(row[name] * 1_000_000) if postgres else row[name]
        found.append(tuple(sorted(row.items())))
    return sorted(found)


@pytest.mark.claim("M1")
@pytest.mark.parametrize("way", EVERY_WAY, indirect=True)
def test_everything_is_there_and_goes_on(
    way: Way, shop: App, filled: Filled, branch: App, here: RawSql, there: RawSql, clock: MovableClock, moving: Moving
) -> None:
    finals = {
        job_id: {key: plain(value) for key, value in row.items()}
        for job_id, row in final_rows(way.source, way.instance).items()
    }
    before = contents(here)
    empty = [
        name for name, rows in before.items() if not rows and name.removeprefix("__") not in (*NOTHING_THERE, "job")
    ]
    assert not empty, "the shop should have something of everything"
    histories = {job_id: (shop.get(job_id).history(), shop.get(job_id).attempts()) for job_id in finals}
    last = max(job.id for job in shop.find(limit=1000))

    moved = moving().run()

    after = contents(there)
    for sql, held in ((here, before), (there, after)):
        held.pop("__job")  # all queues' tables together
        held["ready"] = in_microseconds(held, sql.postgres)
        for row in held["__worker"]:  # all are gone
            row.pop("gone_time"), row.pop("gone")
    assert after == before
    assert moved.jobs == len(shop.find(limit=1000, archive=True))
    assert moved.copied >= sum(moved.tables.values())
    check_invariants(way.target, way.instance, accepted=finals)
    assert {job_id: (branch.get(job_id).history(), branch.get(job_id).attempts()) for job_id in finals} == histories
    assert branch.job_types["call"].enqueue(number=1).id > last
    ends_well(branch, filled, clock)
    check_invariants(way.target, way.instance, accepted=finals)


def ends_well(app: App, filled: Filled, clock: MovableClock) -> None:
    """What was on its way in the source arrives in the target."""
    app.resume("mail")
    fired = app.store.schedules()[0].count
    app.complete("ask", "q1", result="because")
    app.run_until_idle()
    clock.advance(HOUR)
    app.run_until_idle()
    assert app.get(filled.asked.id).result == "they say because"
    assert app.get(filled.early.id).result == "they say soon"
    assert {app.get(job.id).outcome for job in (*filled.queued, filled.later)} == {"success"}
    assert app.workflow_run("report", "new").state == "SUCCESS"
    assert app.store.schedules()[0].count == fired + 1
    assert [queue.set_limit for queue in app.store.queues() if queue.name == "calls"] == [2]
    assert app.workflows["report"].submit(trigger="old").id == app.workflow_run("report", "old").id


@pytest.mark.claim("M1")
def test_both_databases_describe_the_same_tables_and_none_is_left_out(
    way: Way, shop: App, here: RawSql, moving: Moving
) -> None:
    move = moving()
    move.source.begin("m", "x")
    move.target.arrive("m", "x")
    move.copy_walked("")
    found, other = (
        [(table.name, table.columns) for table in sorted(side.tables(), key=lambda each: each.name)]
        for side in (move.source, move.target)
    )
    assert found == other
    known = {row["name"] for row in here(TABLES[here.postgres], like=f"{here.instance}_")}
    parts = {name for name in known if any(letter.isdigit() for letter in name)}
    left_out = {f"{way.instance}__{name}" for name in NOT_COPIED} & known
    assert {name for name, _ in found} == known - left_out - parts


# The seal


@pytest.mark.claim("M2")
@pytest.mark.parametrize("way", EVERY_WAY, indirect=True)
def test_from_the_seal_on_every_write_is_refused_and_says_where_it_went(
    way: Way, shop: App, filled: Filled, here: RawSql, clock: MovableClock, moving: Moving
) -> None:
    move = moving()
    move.run()
    for write in (
        lambda: shop.job_types["send"].enqueue(to="bob"),
        lambda: shop.job_types["send"].enqueue_many([{"to": "bob"}] * 3),
        lambda: shop.complete("ask", "q1", result=1),
        lambda: shop.abort(filled.later.id),
        lambda: shop.pause("mail"),
        lambda: shop.limit("mail", 1),
        lambda: shop.workflows["report"].submit(trigger="late"),
        lambda: shop.hold("pick"),
        lambda: shop.run_until_idle(),
        lambda: App(way.source, name=way.instance).queue("q").job(name="x")(nothing).app.store,
    ):
        with pytest.raises(Unavailable, match="was moved to") as refused:
            write()
        assert move.target.told in str(refused.value)
    assert shop.get(filled.later.id).state == "initial"


@pytest.mark.claim("M2")
def test_a_lent_connection_and_plain_sql_are_refused_as_well(
    way: Way, shop: App, filled: Filled, here: RawSql, clock: MovableClock, moving: Moving
) -> None:
    moving().run()
    refusal = (psycopg.errors.RaiseException, apsw.ConstraintError)
    with here.transaction() as connection, pytest.raises(Unavailable, match="was moved to"):
        shop.job_types["send"].using(connection=connection).enqueue(to="bob")
    for table in ("{queue:mail}", "{ready}", "{key}", "{schedule}", "{archive}", "{audit}", "{type}"):
        with pytest.raises(refusal, match="was moved to"):
            here(f"delete from {table}")
    before = contents(here)
    with pytest.raises(Unavailable, match="was moved to"):
        shop.job_types["send"].enqueue(to="bob")
    assert contents(here) == before


@pytest.mark.claim("M2")
def test_what_is_held_at_the_seal_is_lost_there_and_runs_again_here(
    way: Way, shop: App, branch: App, moving: Moving
) -> None:
    job = shop.job_types["send"].enqueue(to="ann")
    worker = WorkerByHand(shop.store)
    call = worker.claim_one()
    moving().run()
    with pytest.raises(Unavailable, match="was moved to"):
        worker.succeed(call)
    check_invariants(way.target, way.instance, accepted=[job.id])
    assert branch.get(job.id).attempts()[0].outcome == "lost"
    branch.run_until_idle()
    ended = branch.get(job.id)
    assert (ended.outcome, ended.attempt, ended.failures) == ("success", 2, 0)
    check_invariants(way.target, way.instance, accepted=[job.id])


@pytest.mark.claim("M2")
def test_workers_are_given_no_duties_while_it_is_drained(way: Way, shop: App, moving: Moving) -> None:
    move = moving()
    move.begin(), move.arrive(), move.copy()
    assert {(rule.duty, rule.on) for rule in shop.store.duty_rules()} == {
        (name, False) for name in ("run", "sweep", "schedule")
    }
    assert shop.job_types["send"].enqueue(to="ann").state == "initial"
    assert not move.source.is_busy()
    worker = WorkerByHand(shop.store)
    assert move.source.is_busy()
    shop.store.set_duties(worker.id, ())
    assert not move.source.is_busy()


@pytest.mark.claim("M2")
def test_what_doctor_looks_at_tells_how_far_the_move_is(way: Way, shop: App, moving: Moving) -> None:
    def said(side: str) -> list[tuple[bool, str]]:
        opened = open_store(side, way.instance, Clock())
        try:
            return [(fine, text) for name, fine, text in opened.check() if name == "move"]
        finally:
            opened.close()

    move = moving()
    assert said(way.source) == []
    move.begin(), move.arrive()
    ((fine, text),) = said(way.source)
    assert (fine, "works as ever" in text) == (True, True)
    ((fine, text),) = said(way.target)
    assert (fine, "is not open yet" in text) == (False, True)
    for step, words in (
        (move.copy, "nothing is started here"),
        (move.drain, "nothing can be written here"),
        (move.run, "Point the URL there"),
    ):
        step()
        ((fine, text),) = said(way.source)
        assert (fine, words in text) == (False, True), text
    assert said(way.target) == []


# The target


@pytest.mark.claim("M3")
def test_who_comes_to_the_target_too_early_is_refused(way: Way, shop: App, branch: App, moving: Moving) -> None:
    move = moving()
    move.begin(), move.arrive()
    for _ in range(2):
        with pytest.raises(Unavailable, match="is being moved here from"):
            branch.store.queues()
    moving().run()
    assert branch.store.queues()


@pytest.mark.claim("M3")
def test_the_law_is_in_force_in_the_target(
    way: Way, shop: App, filled: Filled, branch: App, here: RawSql, there: RawSql, clock: MovableClock, moving: Moving
) -> None:
    moving().run()
    with there.refused():
        there(
            "update {queue:calls} set state = 'final', outcome = 'success', end_time = update_time, attempt = 1 where id = :id",
            id=filled.later.id,
        )
    with there.refused():
        there("delete from {queue:calls} where id = :id", id=filled.later.id)
    with there.refused():
        there("insert into {queue:calls} select * from {queue:calls} where id = :id", id=filled.later.id)
    job = branch.job_types["ask"].using(job_key="q1").enqueue(question="again?")
    assert (job.duplicate, job.id) == (True, filled.asked.id)


@pytest.mark.claim("M3")
def test_a_target_that_differs_is_not_opened(
    way: Way, shop: App, filled: Filled, branch: App, here: RawSql, there: RawSql, clock: MovableClock, moving: Moving
) -> None:
    for change in (
        "update {ready} set throttle_factor = 0.5",
        "update {schedule} set count = count + 1",
        "delete from {audit} where id = (select max(id) from {audit})",
        "update {queue:calls} set attempt = 9, situation = null, state = 'error', error = '{}'",
    ):
        move = moving()
        compare = move.compare

        def spoilt(move: Move = move, change: str = change, compare: Callable[[], None] = compare) -> None:
            move.target.store.connection.database.execute(SLOT.sub(there._table, change))
            compare()

        move.compare = spoilt  # type: ignore[method-assign]
        with pytest.raises(Conflict, match="is not the same"):
            move.run()
        with pytest.raises(Unavailable):
            branch.store.queues()
        moving().abandon()
    moving().run()
    assert branch.store.queues()


# Copying in use


@pytest.mark.claim("M1")
def test_what_changes_between_two_passes_is_as_it_was_last(
    way: Way, shop: App, filled: Filled, branch: App, here: RawSql, there: RawSql, clock: MovableClock, moving: Moving
) -> None:
    move = moving()
    move.begin(), move.arrive()
    assert move.copy_walked("") > 0
    assert move.copy_walked("") == 0
    shop.resume("mail")
    shop.abort(filled.queued[0].id)
    shop.store.forget(1.0)  # what was archived
    shop.store.forget_runs(1.0)
    clock.advance(7 * 86400 + 1)
    shop.run_until_idle()
    clock.advance(7 * 86400 + 1)
    shop.store.archive_runs(86400.0)
    while shop.store.archive(86400.0):
        pass
    shop.queue("more").job(name="added")(nothing)
    shop.enqueue("more", "added", {})
    before = contents(here)
    move.run()
    after = contents(there)
    for name in (
        "_mail",
        "_calls",
        "_more",
        "__archive",
        "__run_archive",
        "__step_archive",
        "__attempt",
        "__log",
        "__audit",
    ):
        assert after[name] == before[name], name
    check_invariants(way.target, way.instance)


@pytest.mark.claim("M1")
def test_a_run_that_is_archived_while_steps_are_walked_comes_with_them(
    way: Way, shop: App, here: RawSql, there: RawSql, clock: MovableClock, moving: Moving
) -> None:
    shop.workflows["report"].submit(trigger="a")
    shop.run_until_idle()
    clock.advance(10.0)
    move = moving()
    move.begin(), move.arrive(), move.copy_walked("")
    steps = next(table for table in move.source.tables() if table.name.endswith("__step_archive"))
    assert shop.store.archive_runs(1.0)
    move._walk(steps, next(table for table in move.target.tables() if table.name == steps.name), "")
    assert len(there("select * from {step_archive}")) == len(here("select * from {step_archive}")) == 3
    assert len(there("select * from {run_archive}")) == 1
    move.run()


@pytest.mark.claim("M1")
def test_a_pass_ends_however_fast_jobs_come(
    way: Way, shop: App, here: RawSql, there: RawSql, moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is copied, another job has come."""
    shop.enqueue("mail", "send", {"to": "0"})
    move, copy, come = moving(), Move._copy_stretch, list[int]()

    def copy_slowly(move: Move, *stretch: Any) -> None:
        copy(move, *stretch)
        come.append(shop.enqueue("mail", "send", {"to": "another"}).id)
        assert len(come) < 50

    move.begin(), move.arrive()
    with monkeypatch.context() as patch:
        patch.setattr(Move, "_copy_stretch", copy_slowly)
        move.copy()
    assert come
    move.run()
    sent = "select id from {job} where job_type = 'send' order by id"
    assert there(sent) == here(sent)
    assert [row["id"] for row in there(sent)][1:] == come


# Going on, and giving up


def test_the_plan_knows_every_pair_that_a_move_can_leave_behind() -> None:
    def mark(side: str, stage: str | None, name: str = "m") -> Mark | None:
        return None if stage is None else Mark(side, stage, name, "", Clock().now())

    sources, targets = (None, "copying", "draining", "sealed", "moved"), (None, "arriving", "open")
    for pair in itertools.product(sources, targets):
        source, target = mark("source", pair[0]), mark("target", pair[1])
        assert next_step(source, target) is PLAN.get(pair)
        if source and target:
            assert next_step(source, mark("target", pair[1], "other")) is None
    assert {PLAN[pair] for pair in PLAN} == set(Step)


@pytest.mark.claim("M4")
@pytest.mark.parametrize("stage", ["begin", "arrive", "copy", "drain", "finish"])
def test_a_move_is_abandoned_at_any_stage_before_the_target_opens(
    way: Way, shop: App, filled: Filled, here: RawSql, there: RawSql, clock: MovableClock, moving: Moving, stage: str
) -> None:
    move = moving()
    for step in ("begin", "arrive", "copy", "drain", "finish"):
        if step == stage == "finish":
            move.target.open = stopped  # type: ignore[method-assign]
            with pytest.raises(InterruptedError):
                move.finish()
        else:
            getattr(move, step)()
        if step == stage:
            break
    moving().abandon()
    assert there(TABLES[there.postgres], like=f"{way.instance}_") == []
    assert (
        not there("select * from __holdfast_instance where name = :name", name=way.instance)
        if stage != "begin"
        else True
    )
    check_invariants(way.source, way.instance)
    ends_well(shop, filled, clock)
    check_invariants(way.source, way.instance)
    with pytest.raises(NotFound, match="nothing to abandon"):
        moving().abandon()


def stopped(now: datetime) -> None:
    raise InterruptedError


@pytest.mark.claim("M4")
def test_a_move_whose_target_is_open_cannot_be_abandoned(
    way: Way, shop: App, branch: App, clock: MovableClock, moving: Moving
) -> None:
    move = moving()
    for step in (move.begin, move.arrive, move.copy, move.drain, move.finish):
        step()
    for _ in range(2):
        with pytest.raises(Conflict, match="It is moved"):
            moving().abandon()
        clock.advance(HOUR)
        done = moving().run()  # the second time there is nothing left to do
        assert (done.instance, done.refused_for) == (way.instance, 0.0)  # it was open when the clock had not moved
    with pytest.raises(Unavailable):
        shop.job_types["send"].enqueue(to="ann")
    assert branch.job_types["send"].enqueue(to="ann").state == "initial"


@pytest.mark.claim("M4")
def test_only_one_program_moves_an_instance_at_a_time(way: Way, shop: App, moving: Moving, clock: MovableClock) -> None:
    first = moving()
    first.check()
    sides = [open_side(url, way.instance, clock) for url in (way.source, way.target)]
    with pytest.raises(Conflict, match="Another `holdfast move`"):
        Move(sides[0], sides[1]).run()
    for side in sides:
        side.close()
    first.run()


@pytest.mark.claim("M4")
@pytest.mark.parametrize("way", ["to sqlite", "to another server"], indirect=True)
@pytest.mark.parametrize("step", [Step.BEGIN, Step.ARRIVE, Step.COPY, Step.DRAIN, Step.FINISH, Step.CLOSE])
def test_a_move_whose_session_was_ended_stops_because_its_lock_is_gone(
    way: Way, shop: App, filled: Filled, moving: Moving, here: RawSql, clock: MovableClock, step: Step
) -> None:
    move, ended = moving(), []
    go = move._steps[step]

    def end_first() -> None:
        ended.append(end_session(here, move))
        go()

    move._steps[step] = end_first
    with pytest.raises(Conflict, match=r"ended the session .* Call `holdfast move` again"):
        move.run()
    assert ended == [True]
    other = [open_side(url, way.instance, clock) for url in (way.source, way.target)]
    Move(other[0], other[1], 0.0).run()
    for side in other:
        side.close()


@pytest.mark.claim("M4")
@pytest.mark.parametrize("way", ["to sqlite", "to another server"], indirect=True)
def test_a_move_whose_session_is_ended_between_two_lots_writes_no_other(
    way: Way, shop: App, filled: Filled, moving: Moving, here: RawSql, clock: MovableClock
) -> None:
    move, written = moving(), []
    write = move.target.write

    def write_one(table: Table, rows: Sequence[Row]) -> None:
        written.append(table.name)
        write(table, rows)
        end_session(here, move)

    move.target.write = write_one  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="Call `holdfast move` again"):
        move.run()
    assert len(written) == 1
    moving().run()


@pytest.mark.claim("M4")
@pytest.mark.parametrize("way", ["to sqlite"], indirect=True)
def test_a_source_behind_a_pooler_is_refused(
    way: Way, shop: App, moving: Moving, postgres: Server, tmp_path: Path
) -> None:
    bouncer = Bouncer(postgres, tmp_path / "bouncer")
    try:
        database = psycopg.conninfo.conninfo_to_dict(way.source)["dbname"]
        with pytest.raises(Invalid, match="is a pooler"):
            moving(source=bouncer.url(str(database))).run()
    finally:
        bouncer.stop()


def end_session(sql: RawSql, move: Move) -> bool:
    """As an administrator does, or a server that is restarted; it has happened when this is over."""
    session = move.source.store.connection.database.info.backend_pid
    return sql("select pg_terminate_backend(:session::int, 5000) as ended", session=session)[0]["ended"] is True


def test_a_program_that_has_just_gone_is_waited_for(
    way: Way, shop: App, moving: Moving, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL hears of a closed connection when it gets to it."""
    monkeypatch.setattr(postgres_moving, "LEFT_WITHIN", 60.0)
    first = open_side(way.source if way.source.startswith("postgres") else way.target, way.instance, clock)
    first.take()
    gone = threading.Timer(0.2, first.close)
    gone.start()
    moving().run()
    gone.join()


@pytest.mark.claim("M4")
def test_what_others_have_opened_meanwhile_is_not_taken_away(
    way: Way, shop: App, branch: App, moving: Moving, clock: MovableClock
) -> None:
    """Somebody who was not kept out abandons the move just when it is done."""
    move = moving()
    for step in (move.begin, move.arrive, move.copy, move.drain):
        step()
    mark = move.source.marks()["source"].mark
    move.finish()
    with pytest.raises(Conflict, match="was opened"):
        move.target.give_up(mark)
    assert branch.job_types["send"].enqueue(to="ann").state == "initial"


@pytest.mark.claim("M4")
def test_a_move_that_was_abandoned_meanwhile_opens_nothing(way: Way, shop: App, moving: Moving) -> None:
    move = moving()
    for step in (move.begin, move.arrive, move.copy, move.drain):
        step()
    move.source.unseal(5)
    with pytest.raises(Conflict, match="was abandoned"):
        move.close()


def test_a_file_is_locked_by_whatever_name_it_is_given(tmp_path: Path, instance: str, clock: MovableClock) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    sides = [open_side(f"sqlite:///{tmp_path}/{name}.db", instance, clock) for name in ("jobs", "link")]
    sides[0].take()
    with pytest.raises(Conflict, match="Another `holdfast move`"):
        sides[1].take()
    sides.append(open_side(f"sqlite:///{tmp_path}/jobs.db", "neighbour", clock))
    sides[2].take()  # whatever is done to another instance of the file
    for side in sides:
        side.close()
    assert not list(tmp_path.glob("*-move"))


@pytest.mark.claim("M1", "M4")
@pytest.mark.parametrize("way", EVERY_WAY, indirect=True)
def test_tables_of_others_that_are_called_alike_stay_where_they_are(
    way: Way, shop: App, branch: App, here: RawSql, there: RawSql, moving: Moving
) -> None:
    for side, number in ((here, 1), (there, 2)):
        side(f"create table {way.instance}__orders (id int)")
        side(f"insert into {way.instance}__orders values ({number})")
    orders = f"select id from {way.instance}__orders"
    first = moving()
    first.begin()
    first.arrive()
    moving().abandon()
    assert there(orders) == [{"id": 2}]
    job = shop.job_types["send"].enqueue(to="ann")
    moving().run()
    assert branch.get(job.id).state == "initial"
    assert (here(orders), there(orders)) == ([{"id": 1}], [{"id": 2}])


@pytest.mark.claim("M1", "M4")
@pytest.mark.parametrize("way", ["to sqlite", "to another server"], indirect=True)
def test_a_schema_that_came_before_it_in_the_path_hides_nothing(
    way: Way, shop: App, branch: App, here: RawSql, moving: Moving
) -> None:
    job = shop.job_types["send"].enqueue(to="ann")
    here("create schema if not exists postgres")  # the user's name, by which PostgreSQL looks first
    try:
        first = moving()
        for step in (first.begin, first.arrive, first.copy, first.drain):
            step()
        moving().abandon()
        assert shop.job_types["send"].enqueue(to="bob").state == "initial"
        assert moving().run().jobs == 3  # with the turn of a routine
        assert branch.get(job.id).state == "initial"
    finally:
        here("drop schema postgres cascade")


# What is refused


@pytest.mark.claim("M4")
def test_a_move_to_itself_or_over_another_instance_changes_nothing(
    way: Way, shop: App, branch: App, moving: Moving
) -> None:
    other = (
        way.source + "?application_name=x"
        if "?" not in way.source and not way.source.startswith("sqlite")
        else way.source
    )
    with pytest.raises(Invalid, match="the same database"):
        moving(target=other).run()
    branch.store.queues()
    with pytest.raises(Conflict, match="already holds an instance"):
        moving().run()
    assert moving().source.marks() == {}
    assert shop.job_types["send"].enqueue(to="ann").state == "initial"


@pytest.mark.claim("M4")
def test_a_move_that_is_under_way_elsewhere_is_not_begun_again(
    way: Way, shop: App, moving: Moving, tmp_path: Any
) -> None:
    move = moving()
    for step in (move.begin, move.arrive, move.copy, move.drain):
        step()
    for attempt in (
        lambda: moving(target=f"sqlite:///{tmp_path}/third.db").run(),
        lambda: moving(target=f"sqlite:///{tmp_path}/third.db").abandon(),
    ):
        with pytest.raises(Conflict, match="--to"):
            attempt()
    moving().run()
    with pytest.raises(Conflict, match="was moved from"):
        moving(target=f"sqlite:///{tmp_path}/third.db").run()


@pytest.mark.claim("M3", "M4")
@pytest.mark.parametrize("sealed", [False, True], ids=["copied", "sealed"])
def test_what_is_on_its_way_here_is_not_moved_on(
    way: Way, shop: App, moving: Moving, tmp_path: Any, sealed: bool
) -> None:
    """It is not whole, and the move that brings it could not go on."""
    job = shop.job_types["send"].enqueue(to="ann")
    move = moving()
    move.begin(), move.arrive(), move.copy()
    if sealed:
        move.drain()
    on = moving(source=way.target, target=f"sqlite:///{tmp_path}/third.db")
    with pytest.raises(Conflict, match="is itself being moved there from"):
        on.run()
    with pytest.raises(Conflict, match="is itself being moved there from"):
        on.check()
    moving().run()
    check_invariants(way.target, way.instance, accepted=[job.id])


@pytest.mark.claim("M4")
def test_a_target_of_another_version_is_asked_nothing_and_the_source_stays_sealed(
    way: Way, shop: App, there: RawSql, moving: Moving
) -> None:
    move = moving()
    for step in (move.begin, move.arrive, move.copy, move.drain, move.finish):
        step()
    there("update __holdfast_instance set version = version - 1 where name = :name", name=way.instance)
    for act in (Move.abandon, Move.run):
        with pytest.raises(Unavailable, match="holdfast migrate"):
            act(moving())
    with pytest.raises(Unavailable, match="was moved to"):
        shop.job_types["send"].enqueue(to="ann")
    there("update __holdfast_instance set version = version + 1 where name = :name", name=way.instance)


@pytest.mark.claim("M4")
def test_an_instance_of_another_version_is_not_moved(way: Way, shop: App, here: RawSql, moving: Moving) -> None:
    here("update __holdfast_instance set version = 9999 where name = :name", name=way.instance)
    with pytest.raises(Unavailable, match="Upgrade the holdfast package"):
        moving().run()
    here("update __holdfast_instance set version = 1 where name = :name", name=way.instance)


def test_a_transaction_that_does_not_end_keeps_the_seal_off(
    way: Way, shop: App, here: RawSql, moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.moving.SEAL_PATIENCE", 0.1)
    move = moving()
    move.begin(), move.arrive(), move.copy()
    move.source.store.patience = 0.1
    with here.transaction():
        here("update {queue} set paused = paused")
        with pytest.raises(Unavailable, match="could not be sealed"):
            move.drain()
    assert move.source.marks()["source"].stage == "draining"
    assert shop.job_types["send"].enqueue(to="ann").state == "initial"
    move.run()


@pytest.mark.claim("M4")
def test_a_move_that_is_abandoned_waits_for_those_who_are_in_the_way(
    way: Way, shop: App, here: RawSql, moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL whoever reads is; they have gone when it is tried again."""
    move = moving()
    for step in (move.begin, move.arrive, move.copy, move.drain):
        step()
    with ExitStack() as reading:
        reading.enter_context(here.transaction())
        here("select * from {queue}")
        monkeypatch.setattr("holdfast.stores.copying.sleep", lambda seconds: reading.close())
        move.abandon()
    assert shop.job_types["send"].enqueue(to="ann").state == "initial"


def test_a_store_that_was_opened_before_is_told_too(way: Way, shop: App, moving: Moving) -> None:
    store = open_store(way.source, way.instance, Clock())
    store.set_up()
    moving().run()
    with pytest.raises(Unavailable, match="was moved to"):
        store.pause("mail", True, "ann")
    store.close()
