"""Tasks that begin as they are made, in the room that a worker of the process lends: where they may, and where they stand in line."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App
from holdfast.errors import Conflict, Unavailable
from holdfast.jobs.holds import Level
from holdfast.stores import queryfile
from holdfast.stores.contract import Done, NewJob
from tests.by_hand import WorkerByHand
from tests.raw_sql import RawSql
from tests.workflows.made_by_hand import Scene

pytestmark = pytest.mark.claim("F12", "W2")
Make = Callable[..., App]


@pytest.fixture
def scene(app: Make) -> Scene:
    return Scene(app())


def test_items_begin_as_they_are_made(scene: Scene, sql: RawSql) -> None:
    assert scene.make() == [0, 1, 2, 3]
    for call, row in zip(
        scene.lender.taken,
        sql("select * from {job} where job_type = 'w.each' and job_key like '%-%' order by id"),
        strict=True,
    ):
        assert (row["id"], row["state"], row["situation"], row["attempt"]) == (call.id, "running", "held", 1)
        assert (row["worker"], row["payload"], row["job_key"]) == (scene.worker.id, call.payload, call.job_key)
    job = scene.own.get(scene.lender.taken[0].id)
    assert [(move.from_state, move.to_state) for move in job.history()] == [(None, "initial"), ("initial", "running")]
    assert scene.in_line() == 0
    assert scene.worker.succeed(*scene.lender.taken) == 0
    assert scene.run.refresh().steps["each"].undone == 0


def test_what_follows_from_the_end_of_a_task_begins_in_its_transaction(scene: Scene) -> None:
    answer = scene.worker.turn(done=[Done(scene.first, 1.0, None)])
    assert [call.job_key for call in scene.lender.taken] == ["t:last.shard-0", "t:last.shard-1"]
    assert (answer.claimed, answer.left) == ([], [])
    assert scene.worker.succeed(*scene.lender.taken) == 0
    assert scene.run.refresh().steps["last"].state == "SUCCESS"


def test_where_nobody_lends_they_stand_in_line_and_its_queue_is_told(scene: Scene) -> None:
    scene.store.takers.remove(scene.lender)
    answer = scene.worker.turn(done=[Done(scene.first, 1.0, None)])
    assert (answer.left, scene.in_line()) == (["workflows"], 2)


def test_only_as_many_begin_as_there_is_room_for(scene: Scene) -> None:
    scene.lender.room = 3
    assert scene.make() == [0, 1, 2]
    assert scene.in_line() == 1


def test_other_workers_get_their_share(scene: Scene) -> None:
    WorkerByHand(scene.store, ("w.each",), ("workflows",))
    assert scene.make(5) == [0, 1, 2]
    assert scene.in_line() == 2


def test_a_single_task_begins_whoever_else_is_there(scene: Scene) -> None:
    WorkerByHand(scene.store, ("w.each",), ("workflows",))
    assert scene.make(1) == [0]


def test_nothing_begins_before_what_stands_in_line(scene: Scene) -> None:
    scene.store.add([NewJob(queue="workflows", job_type="w.first", payload="{}", priority=500)])
    assert scene.make() == []
    assert scene.in_line() == 5


def test_what_only_others_can_run_is_passed(scene: Scene) -> None:
    scene.store.add([NewJob(queue="workflows", job_type="w.first", payload="{}")])
    scene.worker.types = ("w.each",)
    assert scene.make() == [0, 1, 2, 3]


@pytest.mark.claim("Q2")
def test_in_a_queue_that_is_paused_nothing_begins(scene: Scene) -> None:
    scene.store.pause("workflows", True, "ann")
    assert scene.make() == []


@pytest.mark.claim("W3")
@pytest.mark.parametrize("other", [False, True], ids=["we", "others"])
def test_under_a_limit_nothing_begins_before_its_turn(app: Make, other: bool) -> None:
    scene = Scene(app())
    (app() if other else scene.own).limit("workflows", 3)
    assert scene.store.queue_row("workflows").throttled is not other, "nobody has told us"
    assert scene.make() == []


@pytest.mark.claim("F17")
def test_where_tasks_are_held_nothing_begins(scene: Scene) -> None:
    scene.store.hold(Level.PICK, "w", None, "ann")
    assert scene.make() == []


@pytest.mark.claim("C2")
def test_nothing_begins_with_a_worker_that_was_called_lost(scene: Scene) -> None:
    other = WorkerByHand(scene.store, (), ("workflows",))
    scene.store.leave(scene.worker.id)
    assert (scene.make(), other.id > 0) == ([], True)


def test_what_is_given_up_begins_nothing(scene: Scene) -> None:
    """Somebody else has made these items meanwhile."""
    scene.make(2)
    scene.lender.taken.clear()
    assert scene.store.add_items(scene.run.id, "each", 0, [1, 2], None, False) is None
    assert (scene.lender.taken, scene.lender.unknown) == ([], [])


@pytest.mark.claim("R1")
def test_where_the_answer_is_lost_its_worker_is_told_so_and_finds_what_began(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = scene.store._store_items

    def lost(*told: Any) -> None:
        stored(*told)
        raise Unavailable("the connection was lost")

    monkeypatch.setattr(scene.store, "_store_items", lost)
    with pytest.raises(Unavailable):
        scene.make()
    assert (scene.lender.taken, scene.lender.unknown) == ([], [-1])
    assert scene.store.disown(scene.worker.id, -1, ()) == 4
    assert scene.in_line() == 4


@pytest.mark.claim("J2")
def test_by_plain_sql_no_job_begins_as_it_is_stored(scene: Scene, sql: RawSql) -> None:
    scene.make(1)
    columns = "state, situation, attempt, job_type, create_time, priority, throttle_factor, payload, scheduled_run_time, update_time"
    columns += ", queue" if sql.postgres else ""
    copied = f"select 9999, {columns} from {{queue:workflows}} where id = :id"
    with pytest.raises(Exception, match="must be `initial`"):
        sql(f"insert into {{queue:workflows}} (id, {columns}) {copied}", id=scene.lender.taken[0].id)


@pytest.mark.claim("J2")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "wrong", ["attempt = 2", "attempt = 0", "state = 'final'", "situation = 'loose'", "id = begun + 1"]
)
def test_who_says_that_a_job_begins_as_it_is_stored_cannot_store_another_one(
    scene: Scene, sql: RawSql, wrong: str
) -> None:
    """Nor after that statement: whoever says so takes it back."""
    name, _, value = wrong.partition(" = ")
    values = {"id": "begun", "state": "'running'", "situation": "'held'", "attempt": "1"}
    insert = "insert into {queue:workflows} (id, state, situation, attempt, job_type, create_time, priority, throttle_factor, payload, "
    insert += (
        "scheduled_run_time, update_time) select {0}, {1}, {2}, {3}, 'w.each', 0, 1, 1, '[]', 0, 0 from {sequence}"
    )
    begin = "update {sequence} set last = last + 2, begun = last + 1"
    sql("begin immediate")
    sql(begin)
    with pytest.raises(Exception, match="holdfast law"):
        sql(filled_in(insert, values | {name: value}))
    sql(filled_in(insert, values))
    sql("rollback")
    for make in (lambda: scene.make(1), lambda: scene.store.add([NewJob("workflows", "w.each", "{}")] * 2)):
        make()
        assert sql("select begun from {sequence}") == [{"begun": 0}]


def filled_in(text: str, values: dict[str, str]) -> str:
    for number, value in enumerate(values.values()):
        text = text.replace("{" + str(number) + "}", value)
    return text


@pytest.fixture
def migrations_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Give a function that hides the migrations after a number: the tables are those of today."""
    numbered = queryfile.numbered

    def hide_later(last: int) -> None:
        monkeypatch.setattr(
            queryfile, "numbered", lambda package: [each for each in numbered(package) if each[0] <= last]
        )

    return hide_later


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_queues_that_were_there_before_the_migration_let_tasks_begin_after_it_on_sqlite(
    scene: Scene, sql: RawSql, migrations_to: Callable[[int], None]
) -> None:
    """Their law refuses every new job that is not `initial`, and nobody says which may begin."""
    table = sql.filled("{queue:workflows}").strip('"')
    laws = sql("select name from sqlite_master where type = 'trigger' and name like '%_insert' and sql like '%begun%'")
    assert f"{table}__insert" in [law["name"] for law in laws]
    for law in laws:
        sql(f'drop trigger "{law["name"]}"')
    old = f'create trigger "{table}__insert" before insert on "{table}" when new.state <> \'initial\''
    sql(f"{old} begin select raise(abort, 'holdfast law: a new job must be `initial`'); end")
    assert (scene.make(), scene.in_line()) == ([], 4), "they stand in line as before"
    sql("alter table {sequence} drop column begun")
    sql("update __holdfast_instance set version = 2 where name = :name", name=scene.store.instance)
    migrations_to(3)
    assert scene.store.migrate() == ["0003 jobs begin as they are stored"]
    assert scene.make() == [4, 5, 6, 7]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_of_two_tasks_with_one_key_none_is_lost(scene: Scene) -> None:
    """They go to the database as an object, which has each key once."""
    new = NewJob(queue="workflows", job_type="w.each", payload='{"n":1}', job_key="k")
    with scene.store.work():
        assert scene.store.add_alike([new, new]) == []


@pytest.mark.claim("Q5")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_keys_are_stored_to_the_letter(scene: Scene, sql: RawSql) -> None:
    keys = ['a"b', "back\\slash", "two\nlines", "ü€😀", "tab\t'q'", "\x01", "\u2028", "{}", "1", "null"]
    with scene.store.work():
        ids = scene.store.add_alike(
            [NewJob("workflows", "w.each", f'{{"n":{n}}}', job_key=key) for n, key in enumerate(keys)]
        )
    rows = sql(
        "select id, job_key, payload from {job} where job_type = 'w.each' and id >= :first order by id", first=ids[0]
    )
    assert [(row["id"], row["job_key"], row["payload"]) for row in rows] == [
        (job_id, key, f'{{"n":{n}}}') for n, (job_id, key) in enumerate(zip(ids, keys, strict=True))
    ]


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_queues_that_were_there_before_the_migration_let_tasks_begin_after_it(
    scene: Scene, sql: RawSql, migrations_to: Callable[[int], None]
) -> None:
    sql(
        "create or replace trigger law_insert after insert on {job} for each row "
        + OLD_LAW
        + " execute function {job_take}()"
    )
    with pytest.raises(Conflict, match="must be `initial`"):
        scene.make()
    sql("update __holdfast_instance set version = 2 where name = :name", name=scene.store.instance)
    migrations_to(3)
    assert scene.store.migrate() == ["0003 begun"]
    assert scene.make() == [0, 1, 2, 3]


OLD_LAW = """when (new.state <> 'initial' or new.job_key is not null and current_setting('holdfast.keys', true) is distinct from 'kept')"""


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_is_too_long_for_one_statement_stands_in_line(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of it could be stored before the key of another is found taken."""
    monkeypatch.setattr("holdfast.stores.sqlite.jobs.MOST_TEXT", 100)
    assert scene.make() == []
    assert scene.in_line() == 4
