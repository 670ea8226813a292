"""An instance in a PostgreSQL database: how it is made and kept, how its tables are called, how it is asked.

- The database's clock decides; a statement is told the time only by a movable clock.
- A pipeline on an autocommit connection is one transaction.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from holdfast.clock import Clock, sleep
from holdfast.errors import Conflict, Unavailable
from holdfast.stores import queryfile
from holdfast.stores.contract import News, QueueDeclared, Watch
from holdfast.stores.migrate import Migrations, check_moves, moved, refuse_arriving
from holdfast.stores.postgres.connection import GIVEN_UP, LOST, Connection, check_conninfo, one_line, passing, sentence
from holdfast.stores.postgres.floors import Floors, Pin
from holdfast.stores.postgres.literals import column_literal, literal
from holdfast.stores.postgres.moments import clipped
from holdfast.stores.postgres.watch import ChannelWatch
from holdfast.stores.sql import SqlStore

PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
STATEMENTS = {
    name: PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
    for name, text in queryfile.load("holdfast.stores.postgres").items()
}
OLDEST_SERVER = 140000
MOST_DEADLOCKS = 20  # with workers, after which a migration is given up
MONTH = re.compile(r"[0-9]{4}_(0[1-9]|1[0-2])")  # as a part of the archive is named
MOST_KEPT = 100_000  # jobs that are put elsewhere so that the rest of their month may go
LOOK_AGAIN = 3600.0  # seconds until a month of which everything was kept is looked through again
NAMED = ("job_id", "lease_id_seq", "ready")  # whose names are also told as text
NEWS = {"": News.ANYTHING} | {
    "!" + news.value: news for news in News
}  # told in place of a queue's name, which cannot look so


class Translating:
    """The driver's errors in our words. Every enqueue goes through it, so it is an object and not a generator."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, psycopg.Error) and (told := self._in_our_words(error)) is not None:
            raise told from error

    def _in_our_words(self, error: psycopg.Error) -> Exception | None:
        """None where it is as good as any."""
        match error:
            case psycopg.errors.RaiseException():
                return moved(error.diag.message_primary or "")
            case psycopg.IntegrityError():
                return Conflict(f"PostgreSQL refused a write: {sentence(error)}")
            case psycopg.errors.InFailedSqlTransaction():
                return Conflict(GIVEN_UP)
            case psycopg.errors.LockNotAvailable():
                told = passing(
                    f"PostgreSQL: a lock that somebody else has could not be had in time ({one_line(error)}). Nothing was changed; try again."
                )
                told.locked = True
                return told
            case psycopg.errors.ReadOnlySqlTransaction():
                return self._connection.read_only()
            case psycopg.errors.FeatureNotSupported() if is_outdated(error):
                return passing("PostgreSQL: a migration has just changed the tables. Nothing was changed; try again.")
        if isinstance(error, LOST) and not self._connection.depth:
            return self._connection.lost(error)
        return None


def is_outdated(error: psycopg.Error) -> bool:
    """A statement was prepared for tables that have other columns now. psycopg forgets it, so the next time it is prepared anew."""
    return error.diag.source_function == "RevalidateCachedQuery"


class PostgresInstance(SqlStore):
    """One connection to one instance, without what makes jobs and runs them."""

    connection: Connection

    def __init__(self, conninfo: str, instance: str, clock: Clock, patience: float | None = 5) -> None:
        super().__init__(instance, clock)
        self.conninfo = check_conninfo(conninfo)
        self.channel = f"{instance}__ready"
        self.connection = Connection(conninfo, patience)
        self.lock = self.connection.lock
        self._filled: dict[tuple[str, str, str], str] = {}
        self._to_tell: set[str] = set()  # at the end of this transaction
        self._all_wanted: dict[
            str, tuple[int, float]
        ] = {}  # old months that are kept, their size, and until when that counts
        self._months: set[datetime] = set()  # that this transaction knows the archive to have partitions for
        self._now: datetime | None = None
        self._reads = False  # this transaction only reads, each time what is there
        self.floors = Floors()
        self._translated = Translating(self.connection)

    def close(self) -> None:
        self.connection.close()

    def address(self) -> tuple[str, str, str] | None:
        return "postgresql", self.conninfo, self.instance

    def abandon(self) -> None:
        """In a process that was forked: what is open on the connection is the parent's, and ends there."""
        self.connection.abandon()

    # The instance

    def migrations(self) -> Migrations:
        return Migrations("holdfast.stores.postgres", self.instance)

    def set_up(self) -> None:
        """Make the instance if it is not there; refuse another version than this code's."""
        with self.work():
            self._refuse_server()
            version = self._version()
            if version == self.migrations().last:
                refuse_arriving(self.instance, self.rows("moves"))
                return
        self.migrations().refuse_unless_new(version)
        self.migrate()

    def _refuse_server(self) -> None:
        server = self.rows("server")[0]
        if server["number"] < OLDEST_SERVER:
            raise Unavailable(f"PostgreSQL {server['version']} is too old: Holdfast needs 14 or newer.")
        if server["standby"]:
            raise passing("This PostgreSQL server is a read-only standby. Point the URL at the primary.")

    def migrate(self) -> Sequence[str]:
        """Bring the instance to this version; the titles of what was done."""
        for _ in range(MOST_DEADLOCKS):
            try:
                return self._migrate()
            except Unavailable as error:
                if not isinstance(error.__cause__, psycopg.errors.DeadlockDetected):
                    raise
                sleep(random.random())  # workers take the tables in other orders
        return self._migrate()

    def _migrate(self) -> Sequence[str]:
        with self.work():
            self.run("wait_for_locks")
            self.run("lock_set_up")
            self.run("create_registry")
            self.run("create_table_registry")
            version = self._version()
            self.migrations().refuse_newer(version)
            done = []
            for number, title, text in self.migrations().after(version):
                self.connection.database.execute(queryfile.fill(text, self.instance).encode(), prepare=False)
                self.run("set_version", {"instance": self.instance, "version": number, "now": self.now()})
                done.append(f"{number:04} {title}")
            return done

    def _version(self) -> int:
        if not self.rows("has_registry")[0]["found"]:
            return 0
        found = self.rows("version", {"instance": self.instance})
        return found[0]["version"] if found else 0

    def instances(self) -> Sequence[str]:
        with self.work():
            return [row["name"] for row in self.rows("instances")] if self.rows("has_registry")[0]["found"] else []

    def ready(self) -> None:
        super().ready()
        with self.work():
            _, accepts_writes, _ = _accepts_writes(self.rows("server")[0])
        if not accepts_writes:
            raise self.connection.read_only()

    def check(self) -> Sequence[tuple[str, bool, str]]:
        """What `holdfast doctor` looks at here."""
        with self.work():
            server, version = self.rows("server")[0], self._version()
            moves = check_moves(self.rows("moves")) if version == self.migrations().last else []
        return [
            ("PostgreSQL server", server["number"] >= OLDEST_SERVER, str(server["version"])),
            _accepts_writes(server),
            (
                "schema version",
                version == self.migrations().last,
                f"{version}, this code wants {self.migrations().last}",
            ),
            *moves,
        ]

    def create_queue(self, queue: QueueDeclared, now: datetime) -> None:
        self.run("lock_set_up")
        if any(row.name == queue.name for row in self._read_queues()):
            return
        self.own_table(queue)
        self.run("patient_lock")
        literals = {"queue_name": "'" + queue.name + "'"}
        for name in ("create_queue_table", "create_queue_key", "attach_queue", "refuse_truncate"):
            self._defined(name, literals, queue.table_name)
        self.add_queue(queue, now)

    # The form of things

    def now(self) -> datetime:
        """The database's time, the same throughout a transaction."""
        if self.clock.movable:
            return self.clock.now()
        if self._now is None:
            if not self.connection.depth:
                with self.work():
                    return self.now()
            self._now = self.rows("now")[0]["now"].astimezone(UTC)
        return self._now

    def given_now(self) -> datetime | None:
        """For statements that ask the database's clock themselves."""
        return self.clock.now() if self.clock.movable else None

    def time(self, moment: datetime | None) -> datetime | None:
        return moment

    def moment(self, value: datetime | None) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def instant(self, at: datetime) -> float:
        return at.timestamp()

    def pack(self, ids: Sequence[int]) -> str:
        return literal(ids)

    def unpack(self, value: list[int]) -> list[int]:
        return value

    def words(self, values: Sequence[str]) -> list[str]:
        return list(values)

    def columns(self, values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Here as a list for each column; none where there are no values."""
        return {name: column_literal(column) for name, column in values.items()}

    # Statements and transactions

    def text(self, name: str, queue: str = "", asked: str = "asked_types") -> str:
        """The statement with its names filled in. `asked` names what a claim is for, and where it looks."""
        key = name, queue, asked
        if key not in self._filled:
            table = self.table_named(queue) if queue else ""
            literals = {f"{name}_text": "'" + queryfile.quoted(f"{self.instance}__{name}") + "'" for name in NAMED}
            parts = asked.split()
            text = STATEMENTS[name].replace("{head}", STATEMENTS["head_of_new" if "before" in parts else "head"])
            text = text.replace("{claimable}", STATEMENTS["claimable"])
            if "{lockable}" in text:  # what is not taken is not to be locked
                text = text.replace("{lockable}", STATEMENTS["unlocked"] if "unlocked" in parts else "true")
                parts = [part for part in parts if part != "unlocked"]
            text = text.replace("{asked}", " and ".join(STATEMENTS[part] for part in parts))
            self._filled[key] = queryfile.fill(text, self.instance, table, literals)
        return self._filled[key]

    def rows(self, name: str, params: Mapping[str, Any] | None = None, queue: str = "") -> list[dict[str, Any]]:
        self._refuse_ahead()
        try:
            return self._fetched(self.text(name, queue), params or {})
        except psycopg.errors.FeatureNotSupported as error:
            if not is_outdated(error) or not self._begun_anew():
                raise
            return self._fetched(self.text(name, queue), params or {})

    def _fetched(self, text: str, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        with self.connection.database.cursor(row_factory=dict_row) as cursor:
            cursor.execute(text.encode(), params)
            try:
                return cursor.fetchall()
            except psycopg.DataError:  # a moment that no datetime can hold
                assert cursor.description is not None
                assert cursor.pgresult is not None
                names = [column.name for column in cursor.description]
                return [dict(zip(names, row, strict=True)) for row in clipped(cursor.pgresult, cursor.connection)]

    def _begun_anew(self) -> bool:
        """A transaction that only reads goes on as another one, since each of its statements sees a moment of its own anyway."""
        database = self.connection.database
        if not self.is_inside(database):
            database.execute("deallocate all")  # psycopg would send the same prepared statement again
            return True
        if self.connection.lent or not self._reads:
            return False
        database.execute("rollback")
        database.execute("begin")
        return True

    def run(self, name: str, params: Mapping[str, Any] | None = None, queue: str = "") -> int:
        self._refuse_ahead()
        if name == "one_snapshot":
            self._reads = False  # what follows is of one moment, and none of it may be asked anew at another
        return self.connection.database.execute(self.text(name, queue).encode(), params or {}).rowcount

    def _refuse_ahead(self) -> None:
        """While answers are outstanding nothing else can be asked."""

    def run_many(self, name: str, params: Sequence[Mapping[str, Any]], queue: str = "") -> None:
        with self.connection.database.cursor() as cursor:
            cursor.executemany(self.text(name, queue).encode(), params)  # one round trip for all

    @contextmanager
    def work(self, write: bool = True, begin: bool = True) -> Iterator[None]:
        """`begin` is False where the first statements of the transaction begin it themselves."""
        with self._translated, self.connection.transaction(begin):
            outermost = self.connection.depth == 1
            if outermost:
                self._now, self._reads = None, not write
                self._months.clear()
                self._to_tell.clear()
            yield
            if outermost:
                self._tell_queues()

    def announce(self, queues: Sequence[str]) -> None:
        """Told at the end of the transaction, once for each queue."""
        self._to_tell.update(queues or ("",))

    def _tell_queues(self) -> None:
        for queue in sorted(self._to_tell):
            self.run("tell", {"channel": self.channel, "queue": queue})
        self._to_tell.clear()

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        with self.work():
            self.run("wait_for_locks")  # as the caller's own statements may
            yield self.connection.database

    def is_inside(self, connection: psycopg.Connection[Any]) -> bool:
        return connection.info.transaction_status is not TransactionStatus.IDLE

    def give_way(self, still: float, lock: float | None = None) -> None:
        self.connection.still_within, self.connection.lock_within = still, lock

    def tell(self, news: News) -> None:
        self.run("tell", {"channel": self.channel, "queue": "!" + news.value})

    def watch(self, wake: Callable[[News | str], None]) -> Watch:
        return ChannelWatch(self.conninfo, self.channel, lambda told: wake(NEWS.get(told, told)))

    def hush(self) -> None:
        """Here a watch has a session of its own, which always listens."""

    def listen(self) -> None:
        """As it does anyway."""

    @property
    def generation(self) -> int:  # type: ignore[override]
        return self.connection.generation

    @contextmanager
    def lone(self) -> Iterator[None]:
        with self._translated, self.connection.lone():
            yield

    lone_write = lone

    def make_room_in_archive(self, end_time: datetime) -> None:
        """The partition of the month; made by one archiver at a time."""
        first = datetime(end_time.year, end_time.month, 1, tzinfo=UTC)
        if first in self._months:
            return
        after = _end_of_month(f"{first:%Y_%m}")
        month = queryfile.quoted(f"{self.instance}__archive_{first:%Y_%m}")
        literals = {"month": month, "month_text": f"'{month}'", "first": f"'{first}'", "next": f"'{after}'"}
        self.run("lock_set_up")
        found = self._defined("has_month", literals).fetchall()
        if not found[0][0]:
            self._defined("create_month", literals)
            self._defined("attach_month", literals)
        self._months.add(first)

    def let_go(self, before: datetime, limit: int) -> int:
        """From months that are over as a whole: taken out of the archive, emptied of what stands beside, dropped."""
        self.run("lock_set_up")
        self.run("patient_lock")
        while (month := self._forgotten_month(before)) is not None:
            forgotten = {"forgotten": queryfile.quoted(month)}
            after = self._forgetting.get(month, 0)
            found = self._defined("month_ids", forgotten, params={"after": after, "limit": limit}).fetchall()
            self.drop_beside([job_id for (job_id,) in found])
            if len(found) < limit:
                self._defined("drop_month", forgotten)
                self._forgetting.pop(month, None)
            else:
                self._forgetting[month] = found[-1][0]
            if found:
                return len(found)
        return 0

    def oldest_kept(self, before: datetime) -> datetime:
        return datetime(before.year, before.month, 1, tzinfo=UTC)

    def _forgotten_month(self, before: datetime) -> str | None:
        """The table of a month that is not part of the archive any more; None if no month is old enough."""
        literals = {"archive_text": f"'{queryfile.quoted(f'{self.instance}__archive')}'"}
        for kind in ("forgotten", "archive"):
            prefix = f"{self.instance}__{kind}_"
            for name, attached in self._defined("archive_parts", literals, params={"prefix": prefix}).fetchall():
                written = name.removeprefix(prefix)
                is_month = attached == (kind == "archive") and MONTH.fullmatch(written)
                old = is_month and _end_of_month(written) <= before
                if old and (kind == "forgotten" or self._take_out(written)):
                    return f"{self.instance}__forgotten_{written}"
        return None

    def _take_out(self, written: str) -> bool:
        """A month leaves the archive. What runs and builds that are kept have in it comes back in its place. Whether there was more."""
        month, kept, forgotten = (
            queryfile.quoted(f"{self.instance}__{kind}_{written}") for kind in ("archive", "kept", "forgotten")
        )
        if not self._may_go(month):
            return False
        self._defined("lock_month", {"month": month})
        wanted, _ = self._wanted(month)  # again: somebody may have archived into it
        if wanted:
            self._defined("create_month", {"month": kept})
            self._defined("move_wanted", {"month": month, "kept": kept})
        self._defined("detach_month", {"month": month})
        self._defined("rename_month", {"month": month, "forgotten": forgotten})
        if wanted:
            first, after = datetime.strptime(written, "%Y_%m").replace(tzinfo=UTC), _end_of_month(written)
            self._defined("rename_month", {"month": kept, "forgotten": month})
            self._defined("attach_month", {"month": month, "first": f"'{first}'", "next": f"'{after}'"})
        return True

    def _may_go(self, month: str) -> bool:
        wanted, many = self._wanted(month)
        if not wanted or many:
            return not many
        size, until = self._all_wanted.get(month, (0, 0.0))
        ((count,),) = self._defined("month_size", {"month": month}).fetchall()
        if count == size and self.clock.monotonic() < until:
            return False
        ((found,),) = self._defined("month_unwanted", {"month": month}).fetchall()
        if not found:  # each of its jobs was looked at for that
            self._all_wanted[month] = (count, self.clock.monotonic() + LOOK_AGAIN)
        return bool(found)

    def _wanted(self, month: str) -> tuple[bool, bool]:
        """Whether runs or builds that are kept have jobs in it, and whether too many to be put elsewhere."""
        ((found, many),) = self._defined("month_wanted", {"month": month}, params={"most": MOST_KEPT}).fetchall()
        return found, many

    def _defined(
        self, name: str, literals: Mapping[str, str], table: str = "", params: Mapping[str, Any] | None = None
    ) -> psycopg.Cursor[Any]:
        """A statement with names that are not the instance's or a queue's; run once, so not prepared."""
        text = queryfile.fill(STATEMENTS[name], self.instance, table, literals)
        return self.connection.database.execute(text.encode(), params, prepare=False)

    def tidy(self, thorough: bool = True) -> str | None:
        """Vacuum the tables that claims leave dead entries in: autovacuum looks only once a minute.

        While an old snapshot keeps it from removing them, claims begin behind them.
        """
        with self._translated, self.connection.lock:
            pin = self._pin()
            suspected = self.floors.suspects(pin)
            if suspected or (thorough and not self.floors.pinned):
                for name in ("vacuum_ready", "vacuum_lease"):
                    self.connection.database.execute(self.text(name).encode(), prepare=False)
            if not (suspected and self.floors.found(self._pin().dead)):
                return None
        by = "a replica or a prepared transaction" if pin.pid is None else f"the process {pin.pid} of the server"
        return (
            f"An old snapshot, held by {by}, keeps dead rows at the head of the line. Until it ends claims begin behind them, "
            "and a job that is enqueued before its turn is noticed up to a second late. End that transaction."
        )

    def _pin(self) -> Pin:
        found = self.rows("oldest_snapshot")[0]
        return Pin(found["oldest"], found["pid"], found["dead"])


def _end_of_month(written: str) -> datetime:
    """The first moment after a month that is written as `2026_01`."""
    year, month = map(int, written.split("_"))
    return datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)


def _accepts_writes(server: Mapping[str, Any]) -> tuple[str, bool, str]:
    """As a check of `holdfast doctor`."""
    name = "server accepts writes"
    if server["standby"]:
        return name, False, "a standby"
    if server["read_only"]:
        return name, False, "a primary that is read-only: its default_transaction_read_only is on"
    return name, True, "a primary"
