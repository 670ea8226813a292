"""One connection to PostgreSQL that comes back after it was lost.

- Autocommit: a pipeline between two syncs is one implicit transaction, and a lone statement needs no BEGIN.
- Plans are pinned: whatever the statistics say, statements go by index, so a wrong plan costs little.
- A connection lost before a transaction began is replaced silently; one lost inside it is the caller's to hear of. Whoever
  has a lock that lives as long as the session says that it must not be replaced.
- A caller with patience does not wait longer for a lock. A worker that stands still inside a transaction loses its session:
  what it has locked would stop all others.
- Behind a pooler that gives a session to others between transactions nothing is prepared and nothing is set but for the
  transaction at hand. It is known by its answer: the session is another one than we were told when we connected.
"""

import random
import re
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

from holdfast.clock import monotonic, sleep
from holdfast.database_url import FORMS
from holdfast.errors import Conflict, Invalid, Unavailable
from holdfast.jobs.secrets import Redaction
from holdfast.stores.postgres.wire import Wire

PINNED_OFF = ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "material", "sort")
SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    **{f"enable_{way}": "off" for way in PINNED_OFF},
    "jit": "off",
    "timezone": "UTC",
    "synchronous_commit": "on",
}
SESSION = "select pg_backend_pid()"
LONG_WORD = re.compile(r"(\S{79})\S\S+")  # of an input that libpq or the server repeats
# A server that vanishes without a word is missed within half a minute, not after hours.
KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 15_000}
CONNECT_WITHIN = 5  # seconds for each address in the URL
LONGEST_PAUSE = 0.5  # seconds between two attempts
GIVEN_UP = (
    "The transaction had failed before its end, so PostgreSQL rolled it back: nothing of it is stored. "
    "An error inside a transaction must end it; use a savepoint to go on after one."
)
LOST = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
)


class Session(psycopg.Connection[TupleRow]):
    """A connection that says when psycopg drops all prepared statements: after a rollback, an ALTER or a DROP."""

    forgotten: Callable[[], None] | None = None

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None and self.forgotten:
            self.forgotten()
        yield from super()._deallocate(name)


class Connection:
    """Connects when it is first used and whenever it must."""

    def __init__(self, conninfo: str, patience: float | None, *, name: str = "holdfast") -> None:
        self.conninfo = conninfo
        self.patience = patience
        self.lock_within = patience  # seconds to wait for a lock; None: as long as it takes
        self.gives_up_at: float | None = None  # when whoever asks now waits no longer, whatever patience there is
        self.still_within: float | None = None  # seconds that a transaction may stand still
        self.name = name
        self.lock = threading.RLock()
        self.depth = 0
        self.ended = False  # the transaction was committed by what was sent last
        self.generation = 0  # how often it has connected
        self.lent = False  # by a caller, who may have it in any state
        self.pooled = False  # the session is ours for a transaction only
        self.only_once: str | None = None  # what is told where it would have to connect again, and must not
        self._database: psycopg.Connection[TupleRow] | None = None
        self._wire: Wire | None = None
        self._closed = False

    def another(self) -> "Connection":
        """To the same server, with the same patience."""
        other = Connection(self.conninfo, self.patience, name=self.name)
        other.still_within, other.lock_within = self.still_within, self.lock_within
        return other

    def has(self, wire: Wire) -> bool:
        """Else another one is in its place."""
        return wire is self._wire

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
    def ours(self) -> bool:
        """It is known that the session is ours for good."""
        return self._database is not None and not self.pooled

    @property
    def wire(self) -> Wire:
        """For many statements at once."""
        database = self.database
        if self._wire is None:
            self._wire = Wire(database)
            if isinstance(database, Session):
                database.forgotten = self._wire.forget
        return self._wire

    def _dead(self, database: psycopg.Connection[TupleRow]) -> bool:
        """Closed by us, or by the server while nobody looked."""
        if database.closed:
            return True
        if self.depth:
            return False
        try:
            news = select.poll()  # not select(), which knows the first 1024 descriptors only
            news.register(database.fileno(), select.POLLIN)
            while news.poll(0):  # the end comes behind what the server says of it
                database.pgconn.consume_input()
        except (psycopg.Error, OSError, ValueError):
            return True
        return bool(database.pgconn.status != psycopg.pq.ConnStatus.OK)

    def _connect(self) -> psycopg.Connection[TupleRow]:
        if self.only_once is not None:
            raise Conflict(self.only_once)
        ends = None if self.patience is None else monotonic() + self.patience
        if self.gives_up_at is not None:
            ends = self.gives_up_at if ends is None else min(ends, self.gives_up_at)
        pause = 0.05
        while True:
            if self._closed:
                raise Unavailable("This store is closed.")
            try:
                return self._connect_once(ends)
            except psycopg.OperationalError as error:
                said = sentence(without_password(str(error), self.conninfo))
                refuse_hopeless(said)
                if ends is not None and monotonic() + pause > ends:
                    # Without the cause, whose text is here, and may have more of the URL.
                    raise Unavailable(
                        f"PostgreSQL cannot be reached: {said} Check the URL and that the server runs."
                    ) from None
                sleep(pause * (0.5 + random.random()))
                pause = min(pause * 2, LONGEST_PAUSE)

    def _connect_once(self, ends: float | None) -> psycopg.Connection[TupleRow]:
        database = connect(self.conninfo, self.name, None if ends is None else ends - monotonic())
        try:
            self.pooled = is_pooled(database)
            if self.pooled:
                database.prepare_threshold = None
            else:
                database.execute(
                    "; ".join(f"set {name} = '{value}'" for name, value in self._settings()), prepare=False
                )
        except psycopg.Error:
            database.close()
            raise
        self.generation += 1
        return database

    def _settings(self) -> list[tuple[str, str]]:
        """Those of a session, or behind a pooler of a transaction."""
        limits = {"lock_timeout": self.lock_within, "idle_in_transaction_session_timeout": self.still_within}
        given = (
            (name, f"{max(1, round(seconds * 1000))}ms") for name, seconds in limits.items() if seconds is not None
        )
        return [*SETTINGS.items(), *given]

    def pin(self, wire: Wire | None = None) -> None:
        """Behind a pooler, for the transaction at hand; its first statement."""
        if not self.pooled:
            return
        pins = "select " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in self._settings())
        if wire is None:
            self.database.execute(pins)
        else:
            wire.send(pins)

    @contextmanager
    def lone(self) -> Iterator[None]:
        """For a statement that is a transaction of its own."""
        with self.lock:
            if self.depth or self.ours:
                yield
                return
            database = self.database
            if not self.pooled:
                yield
                return
            with database.pipeline():  # one transaction, one round trip
                self.pin()
                yield

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
                database = self.database  # tells whether it is pooled
                pins = [f"set local {name} = '{value}'" for name, value in self._settings()] if self.pooled else ()
                database.execute("; ".join(("begin", *pins)))
                return
            except LOST as error:
                self._discard()
                if last:
                    raise self.lost(error) from error

    def begin_again(self) -> None:
        """For what is still to be done after its end."""
        if self.ended:
            self.wire.finish()
            self.database.execute("begin")
            self.pin()
            self.ended = False

    def _commit(self) -> None:
        if self._database is None:
            raise passing("PostgreSQL was lost inside the transaction. Nothing was changed; try again when it is back.")
        try:
            if self._database.execute("commit").statusmessage != "COMMIT":
                raise Conflict(GIVEN_UP)
        except LOST as error:
            self._discard()
            raise passing(
                f"PostgreSQL was lost during a commit ({one_line(error)}): it may or may not have happened. "
                "A job enqueued with a job_key can safely be enqueued again."
            ) from error

    def _roll_back(self) -> None:
        try:
            if self._database is not None:
                self._database.execute("rollback")
        except psycopg.Error:
            self._discard()

    def lost(self, error: psycopg.Error) -> Unavailable:
        """The connection broke: forget it and say so. Some such errors leave it whole, like a deadlock."""
        if self._database is not None and not self._dead(self._database) and error.sqlstate is not None:
            return passing(f"PostgreSQL could not do it now: {sentence(error)} Nothing was changed; try again.")
        self._discard()
        return passing(f"PostgreSQL was lost: {sentence(error)} Nothing was changed; try again when it is back.")

    def read_only(self) -> Unavailable:
        """Perhaps another server takes the writes now, so the next use connects anew."""
        if not self.depth:
            self._discard()
        return passing("PostgreSQL is read-only at the moment. Nothing was changed; try again when it accepts writes.")

    def _discard(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = self._wire = None

    def abandon(self) -> None:
        """In a forked process: not closed, which would tell the server. psycopg lets go of a parent's without a word."""
        self._database = self._wire = None

    def close(self) -> None:
        """For good; does not wait for a thread that is connecting."""
        self._closed = True
        with self.lock:
            self._discard()


def connect(conninfo: str, name: str, within: float | None = None) -> psycopg.Connection[Any]:
    """One attempt at each address, in `within` seconds; what the URL says about connecting is heeded."""
    given = psycopg.conninfo.conninfo_to_dict(conninfo)
    limit = float(given.get("connect_timeout") or 0) or CONNECT_WITHIN
    settings: dict[str, Any] = {key: value for key, value in KEEPALIVES.items() if key not in given}
    return Session.connect(
        conninfo,
        autocommit=True,
        prepare_threshold=0,
        connect_timeout=round(limit if within is None else max(1.0, min(limit, within))),
        fallback_application_name=name,
        **settings,
    )


def is_pooled(database: psycopg.Connection[Any]) -> bool:
    """Whether somebody stands between us and the server who may give its sessions to others."""
    found = database.execute(SESSION, prepare=False).fetchone()
    return found is None or found[0] != database.info.backend_pid


def passing(message: str) -> Unavailable:
    """Trouble that waiting may cure."""
    error = Unavailable(message)
    error.passing = True
    return error


def refuse_hopeless(said: str) -> None:
    """Mistakes that waiting does not cure."""
    hopeless = (
        "does not exist",
        "authentication failed",
        "no password supplied",
        "invalid connection option",
        "could not translate host name",
    )
    if any(words in said for words in hopeless):
        raise Unavailable(
            f"PostgreSQL refuses the connection: {said} Correct the URL, or create what it names."
        ) from None


def without_password(text: str, conninfo: str) -> str:
    """Return libpq's text without the passwords of the connection string, in any form."""
    given = psycopg.conninfo.conninfo_to_dict(conninfo)
    return Redaction(tuple(str(value) for name, value in given.items() if "password" in name and value)).apply(text)


def check_conninfo(conninfo: str) -> str:
    """The connection string, or `Invalid` with the kind of the mistake: libpq's own text quotes parts of a URL."""
    try:
        found = psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError as error:
        unknown = "invalid URI query parameter" in str(error) or "invalid connection option" in str(error)
        mistake = "libpq does not know one of its parameters" if unknown else "libpq cannot read it"
        raise Invalid(f"The PostgreSQL URL is not valid: {mistake}. {FORMS}") from None
    for host in str(found.get("host") or "").split(","):
        try:
            host.encode("utf-8" if host.startswith("/") else "idna")  # the folder of a socket, or a name
        except UnicodeError:
            raise Invalid(f"The PostgreSQL URL is not valid: its host can be no name of one. {FORMS}") from None
    return conninfo


def sentence(error: BaseException | str) -> str:
    """With its stop. Some of libpq's errors end with a question."""
    text = one_line(error)
    return text if text.endswith("?") else f"{text}."


def one_line(error: BaseException | str) -> str:
    return LONG_WORD.sub(r"\1…", " ".join(str(error).split())).rstrip(".")
