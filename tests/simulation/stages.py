"""Where stories are played: an instance with its queues and types declared, story after story as it was before the first.

- `SqliteStage`: in memory. All transactions of a story are parts of one that is taken back at its end. So nothing has to be
  set up again, and statements that were prepared for one story serve the next: that was half of a story's time.
- `PostgresStage`: a real server, and a connection for each virtual process. Transactions are real, so after a story the
  tables are emptied and what was in them at first is put back. Only one of the processes does something at a time, so
  one seed is one story here too.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, Protocol

import apsw
import psycopg
from psycopg.pq import TransactionStatus

from holdfast.clock import Clock, MovableClock
from holdfast.stores.contract import QueueDeclared, TypeRow
from holdfast.stores.postgres.connection import Connection
from holdfast.stores.postgres.jobs import PostgresStore
from holdfast.stores.sqlite.jobs import SqliteStore
from tests.as_it_was import remember, restore
from tests.raw_sql import RawSql

INSTANCE = "sim"
STATEMENTS = 512  # kept prepared: a story has more than the product keeps
TIDY_EVERY = 10  # stories, on PostgreSQL
LOCK_WITHIN = 0.05  # seconds: only one does something at a time, so what is locked stays so


class Stage(Protocol):
    full: type[Exception]  # what the database says when its disk is full

    def begin(self, clock: Clock) -> tuple[Any, RawSql]:
        """The store of the clients, and plain SQL beside it."""
        ...

    def process(self) -> Any:
        """The store of one more process."""
        ...

    def gone(self, store: Any) -> None:
        """That process is no more."""
        ...

    def struck(self, store: Any, after: int, error: type[BaseException]) -> Any:
        """The n-th thing that a store does raises instead of being done, and what it was part of is rolled back."""
        ...

    def answer_lost(self, store: Any) -> Any:
        """A transaction is committed, and who wanted it is not told."""
        ...

    def kept(self, job_id: int) -> Any:
        """Somebody has locked a job and stands still."""
        ...

    def clear(self) -> None:
        """The story is over."""
        ...


Setting = tuple[list[QueueDeclared], tuple[TypeRow, ...]]


class SqliteStage:
    """One connection for all."""

    full: type[Exception] = apsw.FullError

    def __init__(self, setting: Setting) -> None:
        store = SqliteStore(":memory:", INSTANCE, MovableClock())
        store.set_up()
        store.register(*setting)
        self.connection = store.connection
        self._real = apsw.Connection(":memory:", statementcachesize=STATEMENTS)
        self._real.deserialize("main", self.connection.database.serialize("main"))
        self._real.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # as the product has it: planned once, not each time
        self._real.execute("pragma foreign_keys=on")
        self.connection.database = Parts(self._real)
        self.sql = Inside(self.connection.database)

    def begin(self, clock: Clock) -> tuple[Any, RawSql]:
        self._real.execute("begin immediate")
        self._store = SqliteStore(":memory:", INSTANCE, clock, connection=self.connection)
        return self._store, self.sql

    def process(self) -> Any:
        return self._store.another()

    def gone(self, store: Any) -> None:
        """Its transaction was taken back, and there is only one connection."""

    @contextmanager
    def struck(self, store: Any, after: int, error: type[BaseException]) -> Iterator[None]:
        database: Parts = store.connection.database
        left = itertools.count(after, -1)

        def count(cursor: Any, statement: str, bindings: Any) -> bool:
            if next(left) == 0 and statement not in PARTS["rollback"]:
                raise error("struck")
            return True

        database.set_exec_trace(count)
        try:
            yield
        finally:
            database.set_exec_trace(None)
            if database.in_transaction:  # it was killed in the commit; a process that dies takes its connection with it
                database.execute("rollback")

    def answer_lost(self, store: Any) -> Any:
        """Here nobody is between us and the file."""
        return nullcontext()

    def kept(self, job_id: int) -> Any:
        """Here nobody can write meanwhile, and so nothing happens."""
        return nullcontext()

    def clear(self) -> None:
        self._real.execute("rollback")
        self.connection.depth = 0
        self.connection.database.in_transaction = False
        self.connection.shared.watchers.clear()


UNDONE = "release part -- undone"
PARTS: dict[str, tuple[str, ...]] = {
    "begin": (),  # of what only reads nothing is undone
    "begin immediate": ("savepoint part",),
    "commit": ("release part",),
    "rollback": ("rollback to part", UNDONE),
}


class Parts:
    """A connection on which a transaction is a part of another one."""

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database
        self._trace: Any = None
        self.in_transaction = self._reads = False
        self.cursor, self.changes, self.executemany = database.cursor, database.changes, database.executemany
        self.last_insert_rowid = database.last_insert_rowid

    def execute(self, text: str, params: Any = None) -> Any:
        if text not in PARTS:
            return self._database.execute(text, params)
        begins = text.startswith("begin")
        if begins:
            self._reads = text == "begin"
        if not self._reads:
            for part in PARTS[text]:
                self._database.execute(part, can_cache=False)  # it would push out others
        self.in_transaction = begins
        return None

    def set_exec_trace(self, trace: Any) -> Any:
        """The one before."""
        before, self._trace = self._trace, trace
        if trace is not before:
            self._database.exec_trace = trace
        return before


class Inside(RawSql):
    """Plain SQL on the connection of a store in memory, which has no other. The tables of a stage stay as they are."""

    def __init__(self, database: Parts) -> None:
        self.instance, self.postgres, self.connection = INSTANCE, False, database
        self._filled = {}
        self._names: dict[str, tuple[str, ...]] = {}  # by statement: of what it gives
        self._cursor = database.cursor()

    def __call__(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        """Nobody strikes it."""
        trace = self.connection.set_exec_trace(None)
        try:
            cursor = self._cursor.execute(self.filled(statement), parameters)
            for first in cursor:  # names are told only while there are rows
                names = self._names.get(statement) or self._learn(statement)
                return [dict(zip(names, row, strict=True)) for row in (first, *cursor.fetchall())]
            return []
        finally:
            self.connection.set_exec_trace(trace)

    def _learn(self, statement: str) -> tuple[str, ...]:
        self._names[statement] = tuple(column[0] for column in self._cursor.get_description())
        return self._names[statement]


class PostgresStage:
    """A connection for each process; those of the dead serve the next ones."""

    full: type[Exception] = psycopg.errors.DiskFull

    def __init__(self, setting: Setting, url: str) -> None:
        self.url = url
        self.clock: Clock = MovableClock()
        self._idle: list[Connection] = []
        self._used: list[Connection] = []
        self._stories = itertools.count(1)
        store = self.process()
        store.set_up()
        store.register(*setting)
        self.sql = RawSql(url, INSTANCE)
        self.sql.prepares, self.sql.connection.prepared_max = True, STATEMENTS
        remember(self.sql.connection)
        self.clear()

    def begin(self, clock: Clock) -> tuple[Any, RawSql]:
        self.clock = clock
        return self.process(), self.sql

    def process(self) -> PostgresStore:
        store = PostgresStore(self.url, INSTANCE, self.clock)
        store.connection = self._idle.pop() if self._idle else Connection(self.url, 5)
        store.connection.lock_within = LOCK_WITHIN
        store.lock = store.connection.lock
        self._used.append(store.connection)
        return store

    def gone(self, store: PostgresStore) -> None:
        roll_back(store.connection)
        self._used.remove(store.connection)
        self._idle.append(store.connection)

    @contextmanager
    def struck(self, store: PostgresStore, after: int, error: type[BaseException]) -> Iterator[None]:
        """Before a statement is sent, or behind it."""
        left = itertools.count(after, -1)

        def strike() -> None:
            if next(left) == 0:
                raise error("struck")

        with self._watched(store, strike, strike):
            yield

    @contextmanager
    def answer_lost(self, store: PostgresStore) -> Iterator[None]:
        database = store.connection.database

        def strike() -> None:
            if database.info.transaction_status == TransactionStatus.IDLE:
                raise psycopg.OperationalError("the answer is lost")

        with self._watched(store, lambda: None, strike):
            yield

    @contextmanager
    def kept(self, job_id: int) -> Iterator[None]:
        with self.sql.transaction():
            self.sql("select 1 from {job} where id = :id for update", id=job_id)
            yield

    @contextmanager
    def _watched(self, store: PostgresStore, before: Callable[[], None], behind: Callable[[], None]) -> Iterator[None]:
        """`before` is called before everything that a store sends, and `behind` when it was answered."""
        wire, database = store.connection.wire, store.connection.database

        def watched(act: Callable[..., Any], before: Callable[[], None], behind: Callable[[], None]) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                before()
                found = act(*args, **options)
                behind()
                return found

            return call

        def nothing() -> None: ...

        there: tuple[tuple[Any, str, Any], ...] = (
            (wire, "send", watched(wire.send, before, nothing)),
            (wire, "_end", watched(wire._end, nothing, behind)),
            (wire, "ask", watched(wire.ask, before, behind)),
            (database, "cursor", watched(database.cursor, before, nothing)),
            (database, "execute", watched(database.execute, nothing, behind)),
        )
        for owner, name, act in there:
            setattr(owner, name, act)
        try:
            yield
        finally:
            for owner, name, _ in there:
                delattr(owner, name)

    def clear(self) -> None:
        for connection in self._used:
            roll_back(connection)
        self._idle += self._used
        self._used = []
        restore(self.sql.connection)
        if next(self._stories) % TIDY_EVERY == 0:
            self.sql("vacuum")

    def close(self) -> None:
        for connection in self._idle + self._used:
            connection.close()
        self.sql.close()


def roll_back(connection: Connection) -> None:
    """What the server does when a process is gone, but before anybody looks."""
    if connection._database is not None and not connection._database.closed:
        connection._database.rollback()
    connection.depth, connection.ended = 0, False


@cache
def in_memory(setting: Callable[[], Setting]) -> SqliteStage:
    """One for each process."""
    return SqliteStage(setting())
