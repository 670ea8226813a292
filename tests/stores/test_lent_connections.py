"""Q6: the caller's own transaction, on whatever connection the caller has: psycopg, SQLAlchemy, Django, apsw."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from django.db import DatabaseError, connections, transaction
from django.db import connection as django_connection
from psycopg.adapt import Dumper, Loader
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import App, Conflict, DuplicateJob, Invalid
from holdfast.clock import MovableClock
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("Q6")
Make = Callable[..., App]
ON_POSTGRES = (
    *("psycopg", "psycopg autocommit", "sqlalchemy connection", "sqlalchemy begun", "sqlalchemy session"),
    *("sqlalchemy scoped session", "sqlalchemy raw connection", "django connection", "django wrapper"),
)


class Undone(Exception):
    pass


@contextmanager
def rolled_back() -> Iterator[None]:
    """What is inside ends by raising `Undone`."""
    with pytest.raises(Undone):
        yield


class OwnSession(Session):
    """Many programs have one."""


class Lender:
    """A caller with a transaction of its own on a connection of its own."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self._closing: list[Callable[[], Any]] = []
        make = getattr(self, "_" + kind.partition(" ")[0])
        self.lent, self._execute, self._begin, self._end = make(url)

    def execute(self, text: str) -> None:
        self._execute(text)

    def close(self) -> None:
        for close in reversed(self._closing):
            close()

    def __enter__(self) -> "Lender":
        self._begin()
        return self

    def __exit__(self, kind: Any, *_: Any) -> bool:
        self._end(kind is None)
        return kind is Undone

    def _psycopg(self, url: str) -> tuple[Any, ...]:
        own = psycopg.connect(url, autocommit="autocommit" in self.kind)
        self._closing.append(own.close)
        if own.autocommit:
            return (
                own,
                own.execute,
                lambda: own.execute("begin"),
                lambda well: own.execute(["rollback", "commit"][well]),
            )
        return own, own.execute, lambda: None, lambda well: (own.rollback, own.commit)[well]()

    def _sqlalchemy(self, url: str) -> tuple[Any, ...]:
        engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        self._closing.append(engine.dispose)
        if "session" in self.kind:
            make = sessionmaker(engine, class_=OwnSession)
            session: Any = scoped_session(make) if "scoped" in self.kind else make()
            self._closing.append(session.close)
            execute, end = (lambda text: session.execute(sqlalchemy.text(text))), session
        elif "raw" in self.kind:
            session = engine.raw_connection()
            self._closing.append(session.close)
            execute, end = (lambda text: session.cursor().execute(text)), session
        else:
            session = engine.connect()
            self._closing.append(session.close)
            execute, end = session.exec_driver_sql, session
        begin = session.begin if "begun" in self.kind else lambda: None
        return session, execute, begin, lambda well: (end.rollback, end.commit)[well]()

    def _django(self, url: str) -> tuple[Any, ...]:
        told = psycopg.conninfo.conninfo_to_dict(url)
        database = {"ENGINE": "django.db.backends.postgresql", "NAME": told["dbname"], "HOST": told["host"]}
        database |= {"USER": told.get("user", ""), "PORT": told.get("port", ""), "PASSWORD": told.get("password", "")}
        if not settings.configured:
            file = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
            settings.configure(DATABASES={"default": database, "file": file}, USE_TZ=False, TIME_ZONE="Asia/Tokyo")
            django.setup()
        connections["default"].close()
        connections["default"].settings_dict |= database  # Django is told its databases once, and each test has another
        block: list[Any] = []

        def begin() -> None:
            block.append(transaction.atomic())
            block[-1].__enter__()

        def end(well: bool) -> None:
            block.pop().__exit__(*((None, None, None) if well else (Undone, Undone(), None)))

        self._closing.append(connections.close_all)
        lent = connections["default"] if "wrapper" in self.kind else django_connection
        return lent, lambda text: lent.cursor().execute(text), begin, end

    def _apsw(self, url: str) -> tuple[Any, ...]:
        own = apsw.Connection(url.removeprefix("sqlite:///"))
        own.set_busy_timeout(20_000)  # a worker writes too
        self._closing.append(own.close)
        begin, end = (lambda: own.execute("begin immediate")), (lambda well: own.execute(["rollback", "commit"][well]))
        return own, own.execute, begin, end


@pytest.fixture(params=[*ON_POSTGRES, "apsw"])
def lender(request: pytest.FixtureRequest, holdfast: App) -> Iterator[Lender]:
    made = Lender(request.param, str(holdfast.db_config))
    yield made
    made.close()


@pytest.fixture
def holdfast(request: pytest.FixtureRequest, instance: str, clock: MovableClock, tmp_path: Any) -> Iterator[App]:
    """An app with the job type `send` on the database that this lender is for."""
    kind = request.node.callspec.params.get("lender", "") if hasattr(request.node, "callspec") else ""
    url = f"sqlite:///{tmp_path}/jobs.db" if kind == "apsw" else request.getfixturevalue("postgres_url")
    with App(url, name=instance, clock=clock) as app:
        app.queue("mail").job(name="send")(lambda to="": to)
        app.enqueue("mail", "send", {"to": "before"})
        yield app


def addresses(app: App) -> list[str]:
    return [job.payload["to"] for job in reversed(app.find())]


def enqueue_all_ways(app: App, lent: Any) -> list[Any]:
    send = app.job_types["send"]
    jobs = [send.using(connection=lent, job_key="k").enqueue(to="a")]
    jobs += app.enqueue_many([send.new(to="b"), send.using(delay=60).new(to="c")], connection=lent)
    jobs += [app.enqueue("mail", "send", {"to": "d"}, connection=lent)]
    again = send.using(connection=lent, job_key="k").enqueue(to="e")
    assert (again.id, again.duplicate) == (jobs[0].id, True)
    return jobs


def test_a_commit_stores_the_callers_rows_and_the_jobs(holdfast: App, lender: Lender, instance: str) -> None:
    with lender:
        lender.execute(f"create table {instance}_orders (number int)")
        jobs = enqueue_all_ways(holdfast, lender.lent)
        lender.execute(f"insert into {instance}_orders values (1)")
        assert addresses(holdfast) == ["before"]  # nobody else sees them yet

    assert addresses(holdfast) == ["before", "a", "b", "c", "d"]
    assert [job.refresh() for job in jobs] == jobs
    assert holdfast.run_until_idle() == 4
    with lender:
        lender.execute(f"drop table {instance}_orders")


def test_a_rollback_leaves_nothing(holdfast: App, lender: Lender, instance: str) -> None:
    with lender:
        lender.execute(f"create table {instance}_orders (number int)")
        enqueue_all_ways(holdfast, lender.lent)
        raise Undone

    assert addresses(holdfast) == ["before"]
    assert not holdfast.enqueue("mail", "send", {"to": "k"}, job_key="k").duplicate
    with lender:
        lender.execute(f"create table {instance}_orders (number int)")  # it is not there
        raise Undone


def test_an_enqueue_that_begins_the_transaction_ends_with_it(holdfast: App, lender: Lender) -> None:
    """SQLAlchemy and psycopg begin with the first statement, and that is ours."""
    with lender:
        holdfast.enqueue("mail", "send", {"to": "rolled back"}, connection=lender.lent)
        raise Undone
    with lender:
        holdfast.enqueue("mail", "send", {"to": "committed"}, connection=lender.lent)

    assert addresses(holdfast) == ["before", "committed"]


def test_an_enqueue_that_fails_leaves_the_transaction_usable_and_nothing_of_itself(
    holdfast: App, lender: Lender, clock: MovableClock
) -> None:
    send = holdfast.job_types["send"]
    living = send.using(job_key="taken").enqueue(to="living")

    with lender:
        first = send.using(connection=lender.lent).enqueue(to="first")
        with pytest.raises(DuplicateJob) as refused:
            holdfast.enqueue_many(
                [send.using(job_key="free").new(to="x"), send.using(job_key="taken", on_duplicate="raise").new(to="y")],
                connection=lender.lent,
            )
        with pytest.raises(Invalid):
            send.using(job_key="free", expires=clock.now(), delay=5, connection=lender.lent).enqueue(to="z")
        last = send.using(connection=lender.lent).enqueue(to="last")

    assert refused.value.job.id == living.id
    assert addresses(holdfast) == ["before", "living", "first", "last"]
    assert not send.using(job_key="free").enqueue(to="free").duplicate
    assert first.id < last.id


def test_a_write_that_the_database_refuses_leaves_the_transaction_usable(holdfast: App, lender: Lender) -> None:
    sql = RawSql(str(holdfast.db_config), holdfast.name)
    if sql.postgres:
        sql("alter table {queue:mail} add constraint odd check (payload not like '%odd%')")
    else:
        sql(
            "create trigger odd before insert on {queue:mail} when new.payload like '%odd%' begin select raise(abort, 'odd'); end"
        )

    with lender:
        holdfast.enqueue("mail", "send", {"to": "first"}, connection=lender.lent)
        with pytest.raises(Conflict, match="refused a write"):
            holdfast.enqueue("mail", "send", {"to": "odd"}, job_key="odd", connection=lender.lent)
        holdfast.enqueue("mail", "send", {"to": "last"}, connection=lender.lent)

    sql("alter table {queue:mail} drop constraint odd" if sql.postgres else "drop trigger odd")
    sql.close()
    assert addresses(holdfast) == ["before", "first", "last"]
    assert not holdfast.enqueue("mail", "send", {"to": "k"}, job_key="odd").duplicate


def test_workers_are_told_at_the_commit_and_not_before(holdfast: App, lender: Lender, instance: str) -> None:
    holdfast.clock = type(holdfast.clock).__base__()  # a live worker lives by the machine's
    holdfast.close()
    with holdfast.worker(poll=3600):
        holdfast.find()[0].wait(20)
        heard = listen(holdfast)
        with lender:
            job = holdfast.enqueue("mail", "send", {"to": "a"}, connection=lender.lent)
            assert heard() == []
        assert job.wait(20).result == "a"
        with lender:
            jobs = holdfast.enqueue_many([holdfast.job_types["send"].new(to="b")], connection=lender.lent)
        assert jobs[0].wait(20).result == "b"


def listen(app: App) -> Callable[[], list[str]]:
    """What was told on the instance's channel since; on SQLite the file itself is watched."""
    if not str(app.db_config).startswith("postgresql"):
        return list
    ears = psycopg.connect(str(app.db_config), autocommit=True)
    ears.execute(f'listen "{app.name}__ready"')

    def heard() -> list[str]:
        ears.execute(f"notify \"{app.name}__ready\", 'so far'")
        told = []
        for notice in ears.notifies(timeout=20):
            if notice.payload == "so far":
                break
            told.append(notice.payload)
        ears.close()
        return told

    return heard


@pytest.mark.parametrize("lender", ["psycopg autocommit", "django connection", "django wrapper", "apsw"], indirect=True)
def test_a_connection_without_a_transaction_is_refused(holdfast: App, lender: Lender) -> None:
    with pytest.raises(Invalid, match="not in a transaction"):
        holdfast.enqueue("mail", "send", connection=lender.lent)

    assert addresses(holdfast) == ["before"]


@pytest.fixture
def on_postgres(postgres_url: str, instance: str, clock: MovableClock) -> Iterator[App]:
    with App(postgres_url, name=instance, clock=clock) as app:
        app.queue("mail").job(name="send")(lambda to="": to)
        app.enqueue("mail", "send", {"to": "before"})
        yield app


def test_sqlalchemy_in_autocommit_is_refused_and_left_alone(on_postgres: App) -> None:
    engine = sqlalchemy.create_engine(
        str(on_postgres.db_config).replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as own:
        with pytest.raises(Invalid, match="AUTOCOMMIT"):
            on_postgres.enqueue("mail", "send", connection=own)
        assert not own.in_transaction()
    with pytest.raises(Invalid, match="connection= is closed"):
        on_postgres.enqueue("mail", "send", connection=own)
    with pytest.raises(Invalid, match=r"connection= is a sqlalchemy\.engine\.base\.Engine"):
        on_postgres.enqueue("mail", "send", connection=engine)
    engine.dispose()

    assert addresses(on_postgres) == ["before"]


def test_a_savepoint_of_the_callers_takes_the_jobs_with_it(on_postgres: App) -> None:
    lender = Lender("django connection", str(on_postgres.db_config))
    with lender:
        on_postgres.enqueue("mail", "send", {"to": "kept"}, connection=lender.lent)
        with rolled_back(), transaction.atomic():
            on_postgres.enqueue("mail", "send", {"to": "gone"}, connection=lender.lent)
            raise Undone
    lender.close()
    session = Lender("sqlalchemy session", str(on_postgres.db_config))
    with session:
        with rolled_back(), session.lent.begin_nested():
            on_postgres.enqueue("mail", "send", {"to": "gone"}, connection=session.lent)
            raise Undone
        on_postgres.enqueue("mail", "send", {"to": "kept too"}, connection=session.lent)
    session.close()

    assert addresses(on_postgres) == ["before", "kept", "kept too"]


def test_a_transaction_that_has_failed_is_refused(on_postgres: App) -> None:
    url = str(on_postgres.db_config)
    with psycopg.connect(url) as own:
        with pytest.raises(psycopg.Error):
            own.execute("select nonsense")
        with pytest.raises(Conflict, match="has failed"):
            on_postgres.enqueue("mail", "send", connection=own)
        own.rollback()
        with own.pipeline(), pytest.raises(Invalid, match="pipeline"):
            on_postgres.enqueue("mail", "send", connection=own)
    lender = Lender("django wrapper", url)
    with lender:
        with pytest.raises(DatabaseError), transaction.atomic(savepoint=False):
            lender.execute("select nonsense")
        with pytest.raises(Conflict, match="atomic block that has failed"):
            on_postgres.enqueue("mail", "send", connection=lender.lent)
        raise Undone
    lender.close()

    assert addresses(on_postgres) == ["before"]


def test_asynchronous_connections_are_refused_with_the_cure(on_postgres: App) -> None:
    url = str(on_postgres.db_config)
    engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))

    async def lend() -> None:
        async with await psycopg.AsyncConnection.connect(url) as plain, AsyncConnection(engine) as own:
            session = AsyncSession(engine)
            for lent in (plain, own, session):
                with pytest.raises(Invalid, match="asynchronous"):
                    on_postgres.enqueue("mail", "send", connection=lent)
            with pytest.raises(Invalid, match="asynchronous"):
                await session.run_sync(lambda inner: on_postgres.enqueue("mail", "send", connection=inner))
            with pytest.raises(Invalid, match=r"app\.transaction\(\)"):
                await on_postgres.job_types["send"].using(connection=plain).aenqueue(to="a")
            await session.close()
        await engine.dispose()

    asyncio.run(lend())
    assert addresses(on_postgres) == ["before"]


class OldDriver:
    """A psycopg2 connection, as far as it is looked at."""


OldDriver.__module__, OldDriver.__qualname__ = "psycopg2.extensions", "connection"


def test_other_drivers_are_refused_with_the_cure(on_postgres: App, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match=r"is a psycopg2\.extensions\.connection; .* Connect with psycopg 3"):
        on_postgres.enqueue("mail", "send", connection=OldDriver())

    session = Lender("sqlalchemy session", str(on_postgres.db_config))
    fairy = session.lent.connection().connection
    monkeypatch.setattr(type(fairy), "driver_connection", OldDriver())
    with pytest.raises(Invalid, match=r"on psycopg2\.extensions\.connection; .*postgresql\+psycopg://"):
        on_postgres.enqueue("mail", "send", connection=session.lent)
    monkeypatch.undo()
    session.close()

    lender = Lender("django wrapper", str(on_postgres.db_config))
    with lender:
        with monkeypatch.context() as patch:
            patch.setattr(lender.lent, "connection", OldDriver())
            with pytest.raises(Invalid, match="Install psycopg 3, which Django prefers"):
                on_postgres.enqueue("mail", "send", connection=lender.lent)
        with pytest.raises(Invalid, match="on sqlite, as Django calls it"):
            on_postgres.enqueue("mail", "send", connection=connections["file"])
    lender.close()

    with (
        Session(sqlalchemy.create_engine("sqlite://")) as file,
        pytest.raises(Invalid, match=r"on sqlite3\.Connection"),
    ):
        on_postgres.enqueue("mail", "send", connection=file)
    assert addresses(on_postgres) == ["before"]


class Refusing(Dumper):
    def dump(self, obj: Any) -> Any:
        raise AssertionError("the caller's adapter was used")


class RefusingLoader(Loader):
    def load(self, data: Any) -> Any:
        raise AssertionError("the caller's adapter was used")


def broken_rows(cursor: Any) -> Any:
    raise AssertionError("the caller's row factory was used")


@pytest.mark.parametrize("cursors", [psycopg.ClientCursor, psycopg.RawCursor, psycopg.RawServerCursor])
@pytest.mark.parametrize("threshold", [0, None])
def test_the_habits_of_the_callers_connection_neither_matter_nor_change(
    on_postgres: App, cursors: Any, threshold: int | None
) -> None:
    send = on_postgres.job_types["send"]
    with psycopg.connect(str(on_postgres.db_config), prepare_threshold=threshold) as own:
        own.execute(
            "set datestyle to 'German'; set timezone to 'Asia/Kolkata'; set application_name to 'shop'", prepare=False
        )
        own.row_factory, own.cursor_factory = broken_rows, cursors
        for kind in (str, int, float, list, dict, type(on_postgres.clock.now())):
            own.adapters.register_dumper(kind, Refusing)
        for name in ("text", "int8", "timestamptz", "bool", "float8"):
            own.adapters.register_loader(name, RefusingLoader)
        before = (own.row_factory, own.cursor_factory, own.prepare_threshold, own.autocommit, own.isolation_level)

        jobs = [send.using(connection=own, job_key="k", delay=5).enqueue(to="Ünïcode\t\\")]
        again = send.using(connection=own, job_key="k", on_duplicate="replace").enqueue(to="b")
        jobs += on_postgres.enqueue_many([send.new(to="c")] * 3, connection=own)

        after = (own.row_factory, own.cursor_factory, own.prepare_threshold, own.autocommit, own.isolation_level)
        plain = psycopg.Cursor(own, row_factory=psycopg.rows.tuple_row)
        plain._adapters = psycopg.adapters
        shown = "current_setting('datestyle'), current_setting('timezone'), current_setting('application_name')"
        settings_now = plain.execute(f"select {shown}", prepare=False).fetchall()
        count = "select count(*) from pg_prepared_statements where statement like '%__key%'"
        prepared = plain.execute(count, prepare=False).fetchone()

    assert after == before
    assert settings_now == [("German, DMY", "Asia/Kolkata", "shop")]
    assert prepared == (0,)
    assert (again.id, again.payload, again.duplicate) == (jobs[0].id, {"to": "b"}, True)
    assert addresses(on_postgres) == ["before", "b", "c", "c", "c"]
    assert jobs[1].refresh() == jobs[1]


def test_the_habits_of_an_apsw_connection_neither_matter_nor_change(app: Make, tmp_path: Any) -> None:
    holdfast = app(db_config=f"sqlite:///{tmp_path}/habits.db")
    send = holdfast.queue("mail").job(name="send")(lambda to="": to)
    send.enqueue(to="before")
    own = apsw.Connection(f"{tmp_path}/habits.db")
    own.row_trace = lambda cursor, row: {"row": row}

    class Cursor(apsw.Cursor):
        def execute(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("the caller's cursors were used")

    apsw.Cursor(own).execute("begin immediate")
    own.cursor_factory = Cursor
    habits = own.row_trace, own.cursor_factory
    send.using(connection=own, job_key="k").enqueue(to="a")
    send.using(connection=own, job_key="k", on_duplicate="replace").enqueue(to="b")
    assert (own.row_trace, own.cursor_factory) == habits
    apsw.Cursor(own).execute("commit")
    own.close()

    assert addresses(holdfast) == ["before", "b"]


def test_the_standard_librarys_sqlite_is_refused_with_the_reason_also_behind_others(
    app: Make, postgres_url: str, tmp_path: Any
) -> None:
    path = f"{tmp_path}/own.db"
    holdfast = app(db_config=f"sqlite:///{path}")
    holdfast.queue("mail").job(name="send")(lambda to="": to)
    holdfast.enqueue("mail", "send", {"to": "before"})
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    opened: list[Any] = []
    sqlalchemy.event.listen(engine, "connect", lambda *_: opened.append(True))
    lender = Lender("django connection", postgres_url)

    for lent in (
        sqlite3.connect(":memory:"),
        Session(engine),
        scoped_session(sessionmaker(engine)),
        connections["file"],
    ):
        with pytest.raises(Invalid) as refused:
            holdfast.enqueue("mail", "send", connection=lent)
        assert f"connection= is a {type(lent).__module__}.{type(lent).__qualname__}" in str(refused.value)
        assert "two SQLite libraries in one process drop each other's locks" in str(refused.value)
        assert "write-ahead log" in str(refused.value)

    lender.close()
    assert not opened
    assert not connections["file"].connection
    assert addresses(holdfast) == ["before"]


def test_a_failed_enqueue_inside_the_apps_own_transaction_leaves_no_key_behind(app: Make) -> None:
    holdfast = app()
    send = holdfast.queue("mail").job(name="send")(lambda to="": to)
    send.using(job_key="taken").enqueue(to="living")

    with holdfast.transaction():
        with pytest.raises(DuplicateJob):
            holdfast.enqueue_many(
                [send.using(job_key="free").new(to="x"), send.using(job_key="taken", on_duplicate="raise").new(to="y")]
            )
        send.enqueue(to="after")

    assert addresses(holdfast) == ["living", "after"]
    assert not send.using(job_key="free").enqueue(to="free").duplicate
