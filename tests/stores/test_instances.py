"""Q1: instances share a database without touching one another, and every table has one owner."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast import App, Conflict, Invalid, Unavailable
from holdfast.clock import MovableClock
from holdfast.stores import migrate, queryfile
from holdfast.stores.open import open_store
from tests.by_hand import WorkerByHand
from tests.conftest import names
from tests.invariants import check_invariants
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("Q1")
Make = Callable[..., App]


@pytest.fixture
def instance() -> str:
    """A name that was never set up."""
    return next(names)


@pytest.fixture
def other() -> str:
    return next(names)


@pytest.fixture
def raw(url: str, instance: str) -> Iterator[RawSql]:
    sql = RawSql(url, instance)
    yield sql
    sql.close()


def declared(app: App, queue: str = "mail") -> Any:
    @app.queue(queue).job(name="send")
    def send(to: str = "") -> str:
        return to

    return send


def test_declaring_does_no_io_and_the_first_operation_sets_the_instance_up(
    app: Make, url: str, raw: RawSql, instance: str
) -> None:
    holdfast = app()
    send = declared(holdfast)
    assert not is_set_up(raw)

    job = send.enqueue("a")

    assert is_set_up(raw)
    assert job.refresh().payload == {"to": "a"}
    assert instance in holdfast.store.instances()


def is_set_up(sql: RawSql) -> bool:
    if sql.postgres:
        return bool(sql("select 1 as found from pg_class where relname = :name", name=f"{sql.instance}__queue"))
    return bool(sql("select 1 as found from sqlite_master where name = :name", name=f"{sql.instance}__queue"))


def test_setting_up_leaves_everything_else_in_the_database_alone(app: Make, raw: RawSql, instance: str) -> None:
    raw(f"create table {instance}_own (x text)")
    raw(f"insert into {instance}_own values ('mine')")
    holdfast = app()
    declared(holdfast).enqueue("a")
    holdfast.run_until_idle()

    assert raw(f"select x from {instance}_own") == [{"x": "mine"}]


def test_a_queue_does_not_take_a_table_that_is_somebody_elses(app: Make, raw: RawSql, instance: str) -> None:
    raw(f"create table {instance}_mail (x text)")
    send = declared(app())

    with pytest.raises(
        Conflict,
        match=rf"Table `{instance}_mail` for queue `mail` of instance `{instance}` exists already and is not Holdfast's",
    ):
        send.enqueue("a")

    assert raw(f"select count(*) as n from {instance}_mail") == [{"n": 0}]


def test_instances_in_one_database_do_not_touch_each_other(app: Make, url: str, instance: str, other: str) -> None:
    one, two = app(), app(other)
    send, same = declared(one), declared(two)
    first = send.using(job_key="k").enqueue("one")
    second = same.using(job_key="k").enqueue("two")
    assert not second.duplicate

    one.pause("mail")
    assert two.run_until_idle() == 1
    assert one.run_until_idle() == 0
    assert [job.payload["to"] for job in one.find()] == ["one"]
    assert [job.payload["to"] for job in two.find()] == ["two"]
    assert first.refresh().state == "initial"
    assert set(one.store.instances()) >= {instance, other}
    check_invariants(url, instance)
    check_invariants(url, other)


def test_a_worker_of_one_instance_is_nobody_to_another(app: Make, other: str) -> None:
    one, two = app(), app(other)
    declared(one).enqueue("a")
    declared(two).enqueue("b")
    worker, stranger = WorkerByHand(one.store, ["send"]), WorkerByHand(two.store, ["send"])
    worker.claim_one()
    stranger.claim_one()

    two.store.lose(stranger.id)

    assert [row.id for row in one.store.workers()] == [worker.id]
    assert one.find()[0].situation == "held"
    assert two.find()[0].situation == "loose"


def test_each_queue_has_a_table_named_by_the_strategy(app: Make, url: str, raw: RawSql, instance: str) -> None:
    plain = app()
    declared(plain).enqueue("a")
    strange = app(next(names), table_naming_strategy=lambda instance, queue: f"Jobs of {queue} «{instance}»")
    declared(strange).enqueue("b")

    assert raw(f"select payload from {instance}_mail") == [{"payload": '{"to":"a"}'}]
    assert raw(f'select payload from "Jobs of mail «{strange.name}»"') == [{"payload": '{"to":"b"}'}]
    assert strange.run_until_idle() == 1
    rows = {row.name: row.table_name for row in strange.store.queues()}
    assert rows == {"mail": f"Jobs of mail «{strange.name}»"}


def test_a_strategy_that_gives_two_queues_one_table_is_refused(app: Make, instance: str) -> None:
    holdfast = app(table_naming_strategy=lambda instance, queue: f"{instance}_jobs")
    holdfast.queue("mail")

    with pytest.raises(
        Conflict, match=rf"Queues `mail` and `post` of instance `{instance}` would share table `{instance}_jobs`"
    ):
        holdfast.queue("post")


def test_two_instances_that_meet_on_one_table_are_told_both_owners(app: Make, instance: str) -> None:
    """`a` with queue `b_c`, and `a_b` with queue `c`."""
    first, second = app(instance), app(f"{instance}_b")
    declared(first, "b_c").enqueue("a")
    send = declared(second, "c")

    with pytest.raises(Conflict) as refused:
        send.enqueue("a")

    for word in (f"`{instance}_b_c`", "queue `c`", f"instance `{instance}_b`", "queue `b_c`", f"instance `{instance}`"):
        assert word in str(refused.value)
    assert len(first.find()) == 1


def test_names_that_only_differ_in_case_have_one_owner_where_the_database_thinks_so(
    app: Make, url: str, other: str
) -> None:
    first = app(table_naming_strategy=lambda instance, queue: f"{other}_jobs")
    second = app(other, table_naming_strategy=lambda instance, queue: f"{other.upper()}_JOBS")
    declared(first).enqueue("a")
    send = declared(second)

    if url.startswith("sqlite"):
        with pytest.raises(Conflict, match=f"belongs to queue `mail` of instance `{first.name}`"):
            send.enqueue("a")
    else:
        assert send.enqueue("a").id


def test_a_strategy_that_changed_its_mind_is_refused(app: Make, instance: str) -> None:
    declared(app()).enqueue("a")
    changed = declared(app(table_naming_strategy=lambda instance, queue: f"{instance}_new_{queue}"))

    with pytest.raises(Conflict) as refused:
        changed.enqueue("a")

    for word in ("Queue `mail`", f"`{instance}`", f"`{instance}_mail`", f"`{instance}_new_mail`"):
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "1 to 63 bytes"),
        ("x" * 64, "1 to 63 bytes"),
        ("ü" * 32, "1 to 63 bytes"),
        (None, "1 to 63 bytes"),
        ("a\0b", "1 to 63 bytes"),
    ],
)
def test_a_table_name_is_at_most_sixty_three_bytes(app: Make, answer: Any, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        app(table_naming_strategy=lambda instance, queue: answer).queue("mail")
    assert app(table_naming_strategy=lambda instance, queue: "x" * 63).queue("mail").name == "mail"


def test_the_engines_own_names_cannot_be_taken(app: Make, instance: str) -> None:
    for answer in (f"{instance}__job", f"{instance}__new", "another__job", "__holdfast_table", "sqlite_master"):
        with pytest.raises(Invalid, match="reserved"):
            app(table_naming_strategy=lambda instance, queue, answer=answer: answer).queue("mail")


def test_queues_whose_names_extend_each_other_do_not_meet(app: Make) -> None:
    """The law's triggers and indexes stand beside each table, under names of their own."""
    holdfast = app()
    for queue in ("mail", "mail_type", "mail_update", "mail_insert", "mail_key_take", "job", "ready"):
        holdfast.queue(queue)

    assert len(holdfast.store.queues()) == 7


GOOD = ["a", "mail", "daily_reports", "a_b_c", "x" * 40]
BAD = ["", "A", "mail1", "_a", "a_", "a__b", "a-b", "a b", "ü", "x" * 41, "a\n", None, 5, "a.b", 'a"b', "a;b"]


@pytest.mark.parametrize("name", BAD)
def test_names_of_instances_and_queues_are_narrow(app: Make, name: Any) -> None:
    if name:
        with pytest.raises(Invalid, match="Instance name"):
            app(name)
    with pytest.raises(Invalid, match="Queue name"):
        app().queue(name)


def test_good_names_are_good(app: Make) -> None:
    for name in GOOD:
        assert app(name).name == name
        assert app().queue(name).name == name


@pytest.mark.parametrize("job_type", ["", "a b", "a/b", "ü", "x" * 201, "a\n", 5])
def test_a_job_type_has_letters_digits_and_a_few_signs(app: Make, job_type: Any) -> None:
    with pytest.raises(Invalid, match="Job type"):
        app().enqueue("mail", job_type)


def test_a_database_may_be_named_by_a_mapping_or_json(app: Make, url: str, instance: str) -> None:
    if url.startswith("sqlite"):
        config: dict[str, Any] = {"engine": "sqlite", "database": url.removeprefix("sqlite:///")}
    else:
        config = conninfo_to_dict(url)
        config["database"] = config.pop("dbname")
    declared(app()).enqueue("a")

    for db_config in (config, json.dumps(config), {"url": url}):
        assert [job.payload for job in app(db_config=db_config).find()] == [{"to": "a"}]


@pytest.mark.fault(12, "many processes set up at once")
def test_many_processes_that_set_up_at_once_make_one_instance(
    app: Make, url: str, instance: str, clock: MovableClock
) -> None:
    start = threading.Barrier(5)
    apps = [app() for _ in range(5)]
    types = [declared(each) for each in apps]

    def enqueue(number: int) -> int:
        start.wait()
        return int(types[number].using(job_key="k").enqueue(str(number)).id)

    with ThreadPoolExecutor(5) as pool:
        ids = set(pool.map(enqueue, range(5)))

    assert len(ids) == 1
    assert len(apps[0].store.queues()) == 1


def set_version(sql: RawSql, version: int) -> None:
    sql("update __holdfast_instance set version = :version where name = :name", version=version, name=sql.instance)


@pytest.mark.fault(12, "an older program meets a newer instance")
def test_a_newer_instance_is_refused(app: Make, raw: RawSql, instance: str) -> None:
    declared(app()).enqueue("a")
    set_version(raw, 99)

    with pytest.raises(
        Unavailable, match=rf"Instance `{instance}` has schema version 99, newer .* Upgrade the holdfast package"
    ):
        app().find()
    with pytest.raises(Unavailable, match="newer"):
        open_store(app().db_config, instance, MovableClock()).migrate()


@pytest.mark.fault(12, "a newer program meets an older instance")
def test_an_older_instance_is_refused_until_it_is_migrated(
    app: Make, url: str, raw: RawSql, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = declared(app()).enqueue("a")
    numbered, is_at, wanted = queryfile.numbered, version_of(raw, instance), version_of(raw, instance) + 1
    monkeypatch.setattr(
        migrate.queryfile,
        "numbered",
        lambda package: [*numbered(package), (wanted, "a column", "alter table {audit} add column note text;")],
    )

    with pytest.raises(
        Unavailable,
        match=rf"Instance `{instance}` has schema version {is_at}, this Holdfast needs {wanted}\. Run `holdfast migrate`",
    ):
        app().find()
    store = open_store(url, instance, MovableClock())
    assert store.migrate() == [f"{wanted:04} a column"]
    assert store.migrate() == []
    store.close()

    assert app().get(job.id).payload == job.payload
    assert raw("select note from {audit}") == []


@pytest.mark.fault(12, "a migration fails half-way")
def test_a_migration_that_fails_changes_nothing(
    app: Make, url: str, raw: RawSql, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared(app()).enqueue("a")
    numbered, is_at = queryfile.numbered, version_of(raw, instance)
    broken = "alter table {audit} add column note text;\nalter table {nowhere} add column note text;"
    monkeypatch.setattr(
        migrate.queryfile, "numbered", lambda package: [*numbered(package), (is_at + 1, "broken", broken)]
    )
    store = open_store(url, instance, MovableClock())

    with pytest.raises(Exception, match="nowhere"):
        store.migrate()

    store.close()
    with pytest.raises(Exception, match="note"):
        raw("select note from {audit}")
    assert version_of(raw, instance) == is_at


@pytest.mark.fault(12, "a migration adds a column under whoever reads")
def test_whoever_reads_goes_on_when_a_migration_has_added_a_column(app: Make, raw: RawSql) -> None:
    """PostgreSQL refuses a statement that was prepared for the columns there were: once, and we hear it."""
    program = app()
    job = declared(program).enqueue("a")
    for column in ("", "note", "more"):
        if column:
            raw(f"alter table {'{job}' if raw.postgres else '{queue:mail}'} add column {column} text")
        told = (
            pytest.raises(Unavailable, match="Nothing was changed; try again")
            if column and raw.postgres
            else nullcontext()
        )
        with told, program.store.work():  # what was written in it before is lost
            program.get(job.id)
        assert [found.id for found in program.find()] == [job.id]
        assert job.explain().reason == "no_worker"
        assert program.get(job.id).payload == job.payload
    assert program.run_until_idle() == 1


def test_a_single_read_goes_on_too(app: Make, raw: RawSql) -> None:
    """Outside of a transaction there is no rollback with which the driver would forget the statement."""
    program = app()
    declared(program)
    for column in ("", "note", "more"):
        if column:
            raw(f"alter table {{token}} add column {column} text")
        for _ in range(10):  # it is prepared after some
            assert program.store.token("0" * 64, "token") is None


def version_of(raw: RawSql, instance: str) -> int:
    (found,) = raw("select version from __holdfast_instance where name = :name", name=instance)
    version: int = found["version"]
    return version


def test_the_state_of_an_instance_can_be_checked(app: Make) -> None:
    checks = app().store.check()

    assert all(good for _, good, _ in checks)
    assert "schema version" in [name for name, _, _ in checks]


@pytest.mark.claim("J2")
def test_a_database_in_memory_is_a_real_one(clock: MovableClock, tmp_path: Path) -> None:
    with App("sqlite://:memory:", clock=clock) as holdfast, App("sqlite://:memory:", clock=clock) as stranger:
        send = declared(holdfast)
        job = send.using(job_key="k").enqueue("a")
        assert send.using(job_key="k").enqueue("b").duplicate
        assert holdfast.run_until_idle() == 1
        assert job.refresh().result == "a"
        assert stranger.find() == []
