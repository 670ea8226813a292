"""One connection to PostgreSQL that comes back after it was lost.

- Autocommit: a pipeline between two syncs is one implicit transaction, and a lone statement needs no BEGIN.
- Plans are pinned: whatever the statistics say, statements go by index, so a wrong plan costs little.
- A connection lost before a transaction began is replaced silently; one lost inside it is the caller's to hear of.
"""

import random
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from holdfast.clock import monotonic, sleep
from holdfast.errors import Conflict, Invalid, Unavailable
from holdfast.stores.postgres.wire import Wire

PINNED_OFF = ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "material", "sort")
PINS = "; ".join(
    (
        "set plan_cache_mode = force_generic_plan",
        *(f"set enable_{way} = off" for way in PINNED_OFF),
        "set jit = off",
        "set timezone = 'UTC'",
        "set synchronous_commit = on",
    )
)
GIVEN_UP = (
    "The transaction had failed before its end, so PostgreSQL rolled it back: nothing of it is stored. "
    "An error inside a transaction must end it; use a savepoint to go on after one."
)
LOST = (psycopg.OperationalError, psycopg.InterfaceError)


class Connection:
    """Connects when it is first used and whenever it must."""

    def __init__(self, conninfo: str, patience: float | None, *, name: str = "holdfast") -> None:
        self.conninfo = conninfo
        self.patience = patience
        self.name = name
        self.lock = threading.RLock()
        self.depth = 0
        self.ended = False  # the transaction was committed by what was sent last
        self.generation = 0  # how often it has connected
        self._database: psycopg.Connection[TupleRow] | None = None
        self._wire: Wire | None = None
        self._closed = False

    @property
    def database(self) -> psycopg.Connection[TupleRow]:
        """The live connection; connects if need be, as long as patience lasts."""
        if self._database is None or self._dead(self._database):
            if self.depth:  # never in the middle of a transaction: its first half would be lost in silence
                raise psycopg.OperationalError("the connection was lost in the middle of a transaction")
            self._discard()
            self._database = self._connect()
        return self._database

    @property
    def wire(self) -> Wire:
        """For many statements at once."""
        database = self.database
        if self._wire is None:
            self._wire = Wire(database)
        return self._wire

    def _dead(self, database: psycopg.Connection[TupleRow]) -> bool:
        """Closed by us, or by the server while nobody looked."""
        if database.closed:
            return True
        if self.depth:
            return False
        try:
            if select.select([database.fileno()], [], [], 0)[0]:
                database.pgconn.consume_input()
        except (psycopg.Error, OSError, ValueError):
            return True
        return bool(database.pgconn.status != psycopg.pq.ConnStatus.OK)

    def _connect(self) -> psycopg.Connection[TupleRow]:
        ends = None if self.patience is None else monotonic() + self.patience
        pause = 0.05
        while True:
            if self._closed:
                raise Unavailable("This store is closed.")
            try:
                return self._connect_once(ends)
            except psycopg.OperationalError as error:
                refuse_hopeless(error, self.conninfo)
                if ends is not None and monotonic() + pause > ends:
                    raise Unavailable(
                        f"PostgreSQL cannot be reached: {one_line(error)}. Check the URL and that the server runs."
                    ) from error
                sleep(pause * (0.5 + random.random()))
                pause = min(pause * 2, 1.0)

    def _connect_once(self, ends: float | None) -> psycopg.Connection[TupleRow]:
        limit = 5 if ends is None else max(1, min(5, round(ends - monotonic())))
        database = psycopg.connect(
            self.conninfo,
            autocommit=True,
            prepare_threshold=0,
            connect_timeout=limit,
            fallback_application_name=self.name,
        )
        try:
            database.execute(PINS, prepare=False)
        except psycopg.Error:
            database.close()
            raise
        self.generation += 1
        return database

    @contextmanager
    def transaction(self, begin: bool = True) -> Iterator[None]:
        """One transaction; inside another one, a part of it. Without `begin` its first statements begin it."""
        with self.lock:
            if self.depth:
                self.depth += 1
                try:
                    yield
                finally:
                    self.depth -= 1
                return
            if begin:
                self._begin()
            database = self.database  # connects, if it must, before we are inside
            assert database is not None
            self.depth = 1
            try:
                yield
            except BaseException:
                self._roll_back()
                raise
            else:
                if not self.ended:
                    self._commit()
            finally:
                self.depth, self.ended = 0, False

    def _begin(self) -> None:
        for last in (False, True):
            try:
                self.database.execute("begin")
                return
            except LOST as error:
                self._discard()
                if last:
                    raise self.lost(error) from error

    def begin_again(self) -> None:
        """For what is still to be done after its end."""
        if self.ended:
            self.database.execute("begin")
            self.ended = False

    def _commit(self) -> None:
        if self._database is None:
            raise Unavailable(
                "PostgreSQL was lost inside the transaction. Nothing was changed; try again when it is back."
            )
        try:
            if self._database.execute("commit").statusmessage != "COMMIT":
                raise Conflict(GIVEN_UP)
        except LOST as error:
            self._discard()
            raise Unavailable(
                f"PostgreSQL was lost during a commit ({one_line(error)}): it may or may not have happened. "
                "A job enqueued with a job_key can safely be enqueued again."
            ) from error

    def _roll_back(self) -> None:
        try:
            if self._database is not None:
                self._database.execute("rollback")
                self.wire.forget()
        except psycopg.Error:
            self._discard()

    def lost(self, error: psycopg.Error) -> Unavailable:
        """The connection broke: forget it and say so. Some such errors leave it whole, like a deadlock."""
        if self._database is not None and not self._dead(self._database) and error.sqlstate is not None:
            return Unavailable(f"PostgreSQL could not do it now: {one_line(error)}. Nothing was changed; try again.")
        self._discard()
        return Unavailable(f"PostgreSQL was lost: {one_line(error)}. Nothing was changed; try again when it is back.")

    def _discard(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = self._wire = None

    def close(self) -> None:
        """For good; does not wait for a thread that is connecting."""
        self._closed = True
        with self.lock:
            self._discard()


def refuse_hopeless(error: psycopg.OperationalError, conninfo: str) -> None:
    """Mistakes that waiting does not cure."""
    text = one_line(error)
    hopeless = (
        "does not exist",
        "authentication failed",
        "no password supplied",
        "invalid connection option",
        "could not translate host name",
    )
    if any(words in text for words in hopeless):
        raise Unavailable(
            f"PostgreSQL refuses the connection: {text}. Correct the URL, or create what it names."
        ) from error


def check_conninfo(conninfo: str) -> str:
    """The connection string, or `Invalid` with what is wrong in it."""
    try:
        psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError as error:
        raise Invalid(
            f"The PostgreSQL URL is not valid: {one_line(error)}. Write postgresql://user:password@host:5432/database."
        ) from error
    return conninfo


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


def listen(conninfo: str, channel: str) -> psycopg.Connection[Any]:
    """A connection of its own that hears what is told on the channel."""
    database = psycopg.connect(
        conninfo, autocommit=True, connect_timeout=5, fallback_application_name="holdfast-listen"
    )
    database.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(channel)))
    return database
