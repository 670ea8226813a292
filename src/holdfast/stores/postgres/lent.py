"""A connection that a caller lends us: the psycopg connection inside whatever they hand over, in a transaction of theirs.

- SQLAlchemy and Django are known by the names of their classes; neither is imported.
- The caller's habits (rows, cursors, adapters, prepared statements, date style) do not matter here and are not changed.
"""

from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from holdfast.errors import Conflict, Invalid

SESSIONS = {"sqlalchemy.orm.session.Session", "sqlalchemy.orm.scoping.scoped_session"}
CONNECTIONS = {"sqlalchemy.engine.base.Connection"}
POOLED = {"sqlalchemy.pool.base.PoolProxiedConnection"}
DJANGO = {"django.db.backends.base.base.BaseDatabaseWrapper", "django.utils.connection.ConnectionProxy"}
ASYNC = {
    "psycopg.AsyncConnection",
    "sqlalchemy.ext.asyncio.engine.AsyncConnection",
    "sqlalchemy.ext.asyncio.session.AsyncSession",
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session",
}
OWN = "`with app.transaction() as connection:`"
CLOSED = "connection= is closed. Give the connection whose open transaction the jobs are to be part of."


def driver_of(connection: Any) -> psycopg.Connection[Any]:
    """The psycopg connection to write with; `Invalid` or `Conflict` if there is none or its transaction is none."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__}
    if names & ASYNC:
        raise asynchronous(connection)
    if names & SESSIONS:
        return _of_sqlalchemy(connection.connection(), connection)
    if names & CONNECTIONS:
        return _of_sqlalchemy(connection, connection)
    if names & POOLED:
        return _ready(connection.driver_connection, connection, "`with connection.begin():`")
    if names & DJANGO and hasattr(connection, "vendor"):
        return _of_django(connection)
    return _ready(connection, connection, "`with connection.transaction():`")


def _of_sqlalchemy(connection: Any, handed: Any) -> psycopg.Connection[Any]:
    if connection.closed:
        raise Invalid(CLOSED)
    driver = _ready(connection.connection.driver_connection, handed, "leave out isolation_level='AUTOCOMMIT'")
    if not connection.in_transaction():
        connection.begin()  # or its commit() would do nothing
    return driver


def _of_django(connection: Any) -> psycopg.Connection[Any]:
    cure = "`with transaction.atomic():`"
    if connection.vendor != "postgresql":
        raise refused(connection, f"{connection.vendor}, as Django calls it", "Give the alias of the App's database")
    connection.validate_thread_sharing()
    if connection.needs_rollback:
        raise Conflict("connection= is in an atomic block that has failed. Leave the block before you enqueue.")
    if not connection.in_atomic_block and connection.get_autocommit():
        raise not_in_transaction(cure)
    connection.ensure_connection()
    return _ready(connection.connection, connection, cure)


def _ready(driver: Any, handed: Any, cure: str) -> psycopg.Connection[Any]:
    """The driver's connection, if it is one of ours and in a state to be written with."""
    if isinstance(driver, psycopg.AsyncConnection):
        raise asynchronous(handed)
    if not isinstance(driver, psycopg.Connection):
        raise wrong_driver(driver, handed)
    if driver.closed:
        raise Invalid(CLOSED)
    if driver.pgconn.pipeline_status != PipelineStatus.OFF:
        raise Invalid("connection= is in pipeline mode, in which jobs cannot be stored. Enqueue before or after it.")
    status = driver.info.transaction_status
    if status is TransactionStatus.INERROR:
        raise Conflict("connection= is in a transaction that has failed. Roll it back before you enqueue.")
    if status is TransactionStatus.ACTIVE:
        raise Invalid("connection= is busy with a statement. Read its rows, or end its COPY, before you enqueue.")
    if status is TransactionStatus.IDLE and driver.autocommit:
        raise not_in_transaction(cure)
    return driver


def not_in_transaction(cure: str) -> Invalid:
    return Invalid(f"connection= is not in a transaction. Begin one ({cure}) before you enqueue in it.")


def asynchronous(handed: Any) -> Invalid:
    return Invalid(
        f"connection= is a {name_of(handed)}, which is asynchronous; jobs are stored through plain connections. "
        f"Enqueue inside {OWN} with your own writes on that connection, or lend a plain one."
    )


def wrong_driver(driver: Any, handed: Any) -> Invalid:
    library = type(driver).__module__.partition(".")[0]
    cure = "Give a psycopg 3 connection to the App's database, plain or behind SQLAlchemy or Django"
    if library == "psycopg2":
        wrapped = type(handed).__module__.partition(".")[0]
        cure = {
            "sqlalchemy": "Use create_engine('postgresql+psycopg://…')",
            "django": "Install psycopg 3, which Django prefers",
        }.get(wrapped, "Connect with psycopg 3 (`import psycopg`)")
    return refused(handed, "" if driver is handed else name_of(driver), cure)


def refused(handed: Any, inside: str, cure: str) -> Invalid:
    told = f"connection= is a {name_of(handed)}" + (f" on {inside}" if inside else "")
    return Invalid(f"{told}; this instance lives in PostgreSQL and takes psycopg 3 connections. {cure}, or use {OWN}.")


def name_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


class Lent:
    """A caller's connection as the store uses it."""

    closed = False  # it was looked at when it was lent

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def cursor(self, row_factory: Any = tuple_row) -> "PlainCursor":
        return PlainCursor(self._connection, row_factory=row_factory)

    def execute(self, text: bytes, params: Any = None) -> "PlainCursor":
        return self.cursor().execute(text, params)


class PlainCursor(psycopg.Cursor[Any]):
    """As psycopg makes cursors when nobody has told it otherwise."""

    @property
    def adapters(self) -> AdaptersMap:
        return psycopg.adapters

    def execute(self, query: Any, params: Any = None, **_: Any) -> "PlainCursor":
        # Binary: text depends on the connection's date style. Not prepared: the caller's pooler may not like it.
        return super().execute(query, params, prepare=False, binary=True)
