"""The store on PostgreSQL: `add` and `exchange` written for its speed, the rest from `SqlStore`.

- The database's clock decides; a statement is told the time only by a movable clock.
- A turn is one pipeline, and a pipeline on an autocommit connection is one transaction.
- Long lists go as one text literal: psycopg would write them element by element.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import psycopg
from msgspec import Struct, structs
from psycopg.rows import dict_row

from holdfast.clock import Clock, monotonic
from holdfast.errors import Conflict, Invalid, NotFound, Unavailable
from holdfast.jobs import throttle
from holdfast.jobs.job import Job
from holdfast.stores import queryfile
from holdfast.stores.breaking import sooner
from holdfast.stores.claiming import Look
from holdfast.stores.contract import Claimed, Done, NewJob, News, QueueDeclared, Turn, TurnAnswer, Want, Watch
from holdfast.stores.migrate import Migrations, moved, refuse_arriving
from holdfast.stores.postgres.connection import GIVEN_UP, LOST, Connection, check_conninfo, one_line, passing
from holdfast.stores.postgres.floors import Floors, Line, Pin, Place
from holdfast.stores.postgres.lent import Lent, driver_of
from holdfast.stores.postgres.watch import ChannelWatch
from holdfast.stores.postgres.wire import Reply, Wire
from holdfast.stores.running import Expected
from holdfast.stores.sql import SqlStore
from holdfast.stores.statements import ALIKE, FIRST_OPTION, decode_any, encode_json

Answer = psycopg.Cursor[Any] | Reply
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
STATEMENTS = {
    name: PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
    for name, text in queryfile.load("holdfast.stores.postgres").items()
}
TELL_EVERY = 0.005  # seconds between notifications of a queue by one process: NOTIFY makes commits wait for each other
OLDEST_SERVER = 140000
MONTH = re.compile(r"[0-9]{4}_(0[1-9]|1[0-2])")  # as a part of the archive is named
PROMOTED = 1000  # most jobs whose time has come that one turn puts in line
NAMED = ("job_id", "lease_id_seq", "ready")  # whose names are also told as text
MOST_EXPECTED = 100  # ends of lone tasks
MANY = 20  # tasks that end in one turn
KEY_TRIES = 100  # how often a key that comes and goes is asked for
NEWS = {"": News.ANYTHING} | {
    "!" + news.value: news for news in News
}  # told in place of a queue's name, which cannot look so


class PostgresStore(SqlStore):
    """One connection to one instance in a PostgreSQL database."""

    connection: Connection
    pumps = 2
    looks_ahead = True

    def __init__(self, conninfo: str, instance: str, clock: Clock, patience: float | None = 5) -> None:
        super().__init__(instance, clock)
        self.conninfo = check_conninfo(conninfo)
        self.channel = f"{instance}__ready"
        self.connection = Connection(conninfo, patience)
        self.lock = self.connection.lock
        self._filled: dict[tuple[str, str, str], str] = {}
        self._told: dict[str, float] = {}  # when a lone enqueue last told of a queue
        self._to_tell: set[str] = set()  # at the end of this transaction
        self._months: set[datetime] = set()  # that this transaction knows the archive to have partitions for
        self._now: datetime | None = None
        self.floors = Floors()
        self._at_once = False  # this turn is made in two round trips
        self._to_begin = False  # the next statements begin the transaction
        self._along: Turn | None = None  # goes along with the next run that is written
        self._sent: tuple[Turn, Sent] | None = None  # went along, and is to be read
        self._expected: dict[int, Expected] = {}  # by job: what its end is going to find
        self._ahead: Ahead | None = None  # was sent off, and is to be compared with what was expected

    def another(self, patience: float | None = None) -> "PostgresStore":
        """A store with a connection of its own to the same instance."""
        store = PostgresStore(self.conninfo, self.instance, self.clock, patience)
        store.listeners, store.takers, store.source = self.listeners, self.takers, self.source
        store.throttlers = self.throttlers
        store._told, store.floors, store._expected = self._told, self.floors, self._expected
        return store

    def close(self) -> None:
        self.connection.close()

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
        with self.work():
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

    def check(self) -> Sequence[tuple[str, bool, str]]:
        """What `holdfast doctor` looks at here."""
        with self.work():
            server, version = self.rows("server")[0], self._version()
        return [
            ("PostgreSQL server", server["number"] >= OLDEST_SERVER, str(server["version"])),
            ("server accepts writes", not server["standby"], "a standby" if server["standby"] else "a primary"),
            (
                "schema version",
                version == self.migrations().last,
                f"{version}, this code wants {self.migrations().last}",
            ),
        ]

    def create_queue(self, queue: QueueDeclared, now: datetime) -> None:
        self.run("lock_set_up")
        if any(row.name == queue.name for row in self._read_queues()):
            return
        self._own_table(queue)
        self.run("patient_lock")
        literals = {"queue_name": "'" + queue.name + "'"}
        for name in ("create_queue_table", "create_queue_key", "create_queue_check", "attach_queue", "refuse_truncate"):
            self._defined(name, literals, queue.table_name)
        params: dict[str, Any] = {"name": queue.name, "table_name": queue.table_name, "throttler": queue.throttler}
        params["claim_order"] = queue.claim_order
        self.run("add_queue", {**params, "declared_limit": queue.throttle_limit, "now": now})

    def _own_table(self, queue: QueueDeclared) -> None:
        for row in self.rows("table_owner", {"table_name": queue.table_name}):
            raise Conflict(
                f"Table `{queue.table_name}` for queue `{queue.name}` of instance `{self.instance}` belongs to queue `{row['queue']}` of "
                f"instance `{row['instance']}`. Use another queue name, instance name or table_naming_strategy."
            )
        if self.rows("foreign_table", {"table_name": queue.table_name})[0]["found"]:
            raise Conflict(
                f"Table `{queue.table_name}` for queue `{queue.name}` of instance `{self.instance}` exists already and is not Holdfast's. "
                "Use another queue name, instance name or table_naming_strategy."
            )
        self.run("own_table", {"table_name": queue.table_name, "instance": self.instance, "queue": queue.name})

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

    # Statements and transactions

    def text(self, name: str, queue: str = "", asked: str = "asked_types") -> str:
        """The statement with its names filled in. `asked` names what a claim is for."""
        key = name, queue, asked
        if key not in self._filled:
            table = self.table_named(queue) if queue else ""
            literals = {f"{name}_text": "'" + queryfile.quoted(f"{self.instance}__{name}") + "'" for name in NAMED}
            literals["asked"] = " and ".join(STATEMENTS[part] for part in asked.split())
            self._filled[key] = queryfile.fill(STATEMENTS[name], self.instance, table, literals)
        return self._filled[key]

    def rows(self, name: str, params: Mapping[str, Any] | None = None, queue: str = "") -> list[dict[str, Any]]:
        self._refuse_ahead()
        with self.connection.database.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(self.text(name, queue).encode(), params or {}).fetchall()

    def run(self, name: str, params: Mapping[str, Any] | None = None, queue: str = "") -> int:
        self._refuse_ahead()
        return self.connection.database.execute(self.text(name, queue).encode(), params or {}).rowcount

    def run_many(self, name: str, params: Sequence[Mapping[str, Any]], queue: str = "") -> None:
        with self.connection.database.cursor() as cursor:
            cursor.executemany(self.text(name, queue).encode(), params)  # one round trip for all

    def rows_of(self, asked: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[dict[str, Any]]]:
        """In one round trip."""
        return self._asked([(name, params, "") for name, params in asked])

    def _asked(
        self, asked: Sequence[tuple[str, Mapping[str, Any], str]], along: Turn | None = None
    ) -> list[list[dict[str, Any]]]:
        """Statements with their parameters and queues in one round trip; the rows of each. A turn may go along with them."""
        with self._round_trip() as wire:
            replies = [wire.send(self.text(name, queue), params) for name, params, queue in asked]
            if along is not None:
                self._sent = self._sent or (along, self._send_turn(wire, along, along.wants))
                if self._ahead is not None:
                    wire.send_off()
                    self._compare(wire)
                if not self.writes_more:
                    wire.send("commit")
        if along is not None and not self.writes_more:
            self.connection.ended = True
        return [reply.dicts() for reply in replies]

    @contextmanager
    def _round_trip(self) -> Iterator[Wire]:
        """It begins the transaction, where that was left to it."""
        with self.connection.wire.pipeline() as wire:
            if self._to_begin:
                self._to_begin = False
                wire.send("begin")
                self.connection.pin(wire)
            yield wire

    @contextmanager
    def work(self, write: bool = True, begin: bool = True) -> Iterator[None]:
        """`begin` is False where the first statements of the transaction begin it themselves."""
        with self._translated(), self.connection.transaction(begin):
            outermost = self.connection.depth == 1
            if outermost:
                self._now = None
                self._months.clear()
                self._to_tell.clear()
            yield
            if outermost:
                self._tell_queues()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.RaiseException as error:
            raise moved(error.diag.message_primary or "") or error from error
        except psycopg.IntegrityError as error:
            raise Conflict(f"PostgreSQL refused a write: {one_line(error)}.") from error
        except psycopg.errors.InFailedSqlTransaction as error:
            raise Conflict(GIVEN_UP) from error
        except psycopg.errors.LockNotAvailable as error:
            raise passing(f"PostgreSQL: a lock could not be had in time ({one_line(error)}). Try again.") from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            raise self.connection.read_only() from error
        except LOST as error:
            if self.connection.depth:
                raise
            raise self.connection.lost(error) from error

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
            yield self.connection.database

    def tell(self, news: News) -> None:
        self.run("tell", {"channel": self.channel, "queue": "!" + news.value})

    def watch(self, wake: Callable[[News], None]) -> Watch:
        return ChannelWatch(self.conninfo, self.channel, lambda told: wake(NEWS.get(told, News.JOBS)))

    @property
    def generation(self) -> int:  # type: ignore[override]
        return self.connection.generation

    @contextmanager
    def lone(self) -> Iterator[None]:
        with self._translated(), self.connection.lone():
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
                if attached == (kind == "archive") and MONTH.fullmatch(written) and _end_of_month(written) <= before:
                    forgotten = f"{self.instance}__forgotten_{written}"
                    return forgotten if kind == "forgotten" else self._take_out(name, forgotten)
        return None

    def _take_out(self, month: str, forgotten: str) -> str:
        names = {"month": queryfile.quoted(month), "forgotten": queryfile.quoted(forgotten)}
        self._defined("detach_month", names)
        self._defined("rename_month", names)
        return forgotten

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
        with self._translated(), self.connection.lock:
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

    # Adding

    def add_batch(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        unkeyed = len(jobs) == 1 and self.queue_row(jobs[0].queue).throttler is None
        if unkeyed and self.connection.depth == 0 and is_plain(jobs[0]):
            return [self._add_one(jobs[0])]
        return super().add_batch(jobs)

    def _alone(self, name: str, params: Mapping[str, Any], queue: str) -> Answer:
        """One statement that is often asked, with little ado."""
        if self.connection.pooled:
            return self.connection.database.execute(self.text(name, queue).encode(), params)
        with self.connection.wire.pipeline() as wire:
            return wire.send(self.text(name, queue), params)

    def _add_one(self, new: NewJob) -> Job:
        names = (
            "queue",
            "job_type",
            "retry_of",
            "priority",
            "throttle_factor",
            "timeout",
            "retries",
            "timeout_named",
            "retries_named",
            "expires_time",
            "payload",
        )
        params = {name: getattr(new, name) for name in names}
        with self.lone():
            told_at = monotonic()
            tell = told_at - self._told.get(new.queue, 0.0) >= TELL_EVERY  # leading edge; workers look again after it
            params |= {
                "tell": tell,
                "channel": self.channel,
                "now": self.given_now(),
            }
            try:
                stored = self._alone("add_one", params, new.queue).fetchone()
            except LOST as error:
                self.connection.lost(error)
                raise Unavailable(
                    f"PostgreSQL was lost while a job was being stored ({one_line(error)}): it may or may not be there. "
                    "A job enqueued with a job_key can safely be enqueued again."
                ) from error
            if stored is None:
                self._read_queues()
                throttle.check_factor(new.throttle_factor, self.queue_row(new.queue).throttle_limit)
                raise NotFound(f"There is no queue `{new.queue}` in instance `{self.instance}` any more.")
            if tell:
                self._told[new.queue] = told_at
        now = stored[1].astimezone(UTC)
        return self.job_added(new, stored[0], now, now)

    def add_alike(self, jobs: Sequence[NewJob]) -> list[int]:
        name, params, queue = self._adding_alike(jobs, False)
        return self._added_alike(jobs, self.rows(name, params, queue))

    def _adding_alike(self, jobs: Sequence[NewJob], all_of_them: bool) -> tuple[str, dict[str, Any], str]:
        params = {name: getattr(jobs[0], name) for name in ALIKE}
        params |= {"keys": words_literal([new.job_key for new in jobs]), "now": self.given_now(), "all": all_of_them}
        return "add_alike", params | {"payloads": words_literal([new.payload for new in jobs])}, jobs[0].queue

    def _added_alike(self, jobs: Sequence[NewJob], rows: Sequence[Mapping[str, Any]]) -> list[int]:
        added = {row["job_key"]: row["id"] for row in rows}
        if not added:
            return []
        self.announce_new([jobs[0].queue])
        left = [new for new in jobs if new.job_key not in added]
        if left:
            added |= {job.job_key: job.id for job in self.insert(left)}
        return [added[new.job_key] for new in jobs]

    def insert(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        self._read_queues()  # their order and limits as they are now
        self.check_pools(jobs)
        given = self.rows("next_ids", {"count": len(jobs)})[0]
        ids = given["ids"]
        if self._now is None and not self.clock.movable:
            self._now = given["now"].astimezone(UTC)
        now = self.now()
        duplicates = self._take_keys(jobs, ids)
        frames: dict[tuple[Any, ...], Frame] = {}
        added: list[Job] = []
        rows: dict[str, list[str]] = {}
        ready: list[str] = []
        waiting: list[str] = []
        for index, (new, job_id) in enumerate(zip(jobs, ids, strict=True)):
            if index in duplicates:
                added.append(duplicates[index])
                continue
            options = (new.queue, new.job_type, structs.astuple(new)[FIRST_OPTION:])
            frame = frames.get(options)
            if frame is None:
                frame = frames[options] = self._frame(new, now)
            rows.setdefault(new.queue, []).append(frame.job_line(job_id, new))
            (ready if frame.due else waiting).append(f"{frame.before_id}{job_id}{frame.after_id}")
            added.append(structs.replace(frame.job, id=job_id, job_key=new.job_key, payload=decode_any(new.payload)))
        for queue, lines in rows.items():
            self._copy("copy_jobs", lines, queue)
        self._copy("copy_ready", ready)
        self._copy("copy_waiting", waiting)
        for index, job in duplicates.items():
            if jobs[index].on_duplicate == "replace" and job.id in ids:  # the first of them is stored only now
                added[index] = self.insert([jobs[index]])[0]
        self.write_traces(jobs, added)
        self.announce_new(sorted(rows))
        return added

    def _frame(self, new: NewJob, now: datetime) -> "Frame":
        at, closes = self.placed(new, now)
        zones = encode_json(new.time_windows).decode() if new.time_windows else None
        options = (new.retry_of, new.run, new.priority, new.throttle_factor, new.timeout, new.retries)
        middle = line(now, *options, new.timeout_named, new.retries_named, zones, new.expires_time)
        major, minor = self.rank(new.queue, new.priority, at)
        due = at <= now
        return Frame(
            job=self.job_added(new, 0, now, at),
            due=due,
            head=line(new.queue, new.job_type)[:-1],
            middle=middle[:-1],
            tail=line(at, now),
            before_id=line(new.queue, major, minor, "")[:-1] if due else line(at, "")[:-1],
            after_id="\t" + (line(new.job_type, new.throttle_factor, closes, now) if due else line(new.queue, closes)),
        )

    def _copy(self, name: str, lines: Sequence[str], queue: str = "") -> None:
        if lines:
            with self.connection.database.cursor() as cursor, cursor.copy(self.text(name, queue).encode()) as copy:
                copy.write("".join(lines))

    def _take_keys(self, jobs: Sequence[NewJob], ids: Sequence[int]) -> dict[int, Job]:
        """Keys first, so that a duplicate does not break the transaction. The duplicates by position."""
        keyed = sorted(
            (new.job_type, new.job_key, job_id)
            for new, job_id in zip(jobs, ids, strict=True)
            if new.job_key is not None
        )
        taken: set[int] = set()
        holders: dict[tuple[str, str], int] = {}
        open_ = keyed
        for _ in range(KEY_TRIES):
            if not open_:
                break
            types, keys, wanted = (list(column) for column in zip(*open_, strict=True))
            params = {"types": types, "keys": keys, "ids": wanted}
            taken |= {row["id"] for row in self.rows("take_keys", params)}
            if len(taken) == len(keyed):
                return {}
            # A holder that ended between the two statements is neither: its key is free, and asked for again.
            holders |= {(row["job_type"], row["job_key"]): row["id"] for row in self.rows("key_holders", params)}
            open_ = [entry for entry in open_ if entry[2] not in taken and entry[:2] not in holders]
        if not keyed:
            return {}
        own = {job_id: new for new, job_id in zip(jobs, ids, strict=True) if job_id in taken}
        losers = [new if job_id not in taken else None for new, job_id in zip(jobs, ids, strict=True)]
        return self._losers(losers, holders, own)

    def _losers(
        self, losers: Sequence[NewJob | None], holders: Mapping[tuple[str, str], int], own: Mapping[int, NewJob]
    ) -> dict[int, Job]:
        """What each job that did not get its key gets instead."""
        found: dict[int, Job] = {}
        keyed = [(index, new) for index, new in enumerate(losers) if new is not None and new.job_key is not None]
        # In the order of what they hold, as everybody locks rows.
        for index, new in sorted(keyed, key=lambda pair: holders.get((pair[1].job_type, pair[1].job_key or ""), 0)):
            holder = holders.get((new.job_type, new.job_key or ""))
            if holder is None:
                raise Conflict(
                    f"The key `{new.job_key}` of type `{new.job_type}` changes hands too fast. Enqueue again."
                )
            if holder in own:  # the same key twice in one call: the first one has it
                at, _ = self.placed(own[holder], self.now())
                first = self.job_added(own[holder], holder, self.now(), at)
                found[index] = self.as_duplicate(new, first)
            else:
                found[index] = self.settle_duplicates([new], holders)[0]
        return found

    def add_within(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Job]:
        """In the caller's transaction: psycopg's, SQLAlchemy's or Django's, on the same database."""
        if connection is self.connection._database:
            with self._translated():
                return self.insert_apart(jobs)
        driver = driver_of(connection)
        try:
            store = self._borrowed(driver)
            added = store.insert_apart(jobs)
            store._tell_queues()
            return added
        except psycopg.errors.UndefinedTable as error:
            raise Invalid(
                f"connection= is open on database `{driver.info.dbname}`, where its search_path shows no instance "
                f"`{self.instance}`. Connect to the App's database and schema."
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise Invalid(
                f"connection= may not store jobs: {one_line(error)}. Grant its role what the App's has."
            ) from error
        except UnicodeEncodeError as error:
            raise Invalid(
                f"connection= has the client_encoding {driver.info.encoding}, which lacks a character of this job. Set it to UTF8."
            ) from error
        except psycopg.IntegrityError as error:
            raise Conflict(f"PostgreSQL refused a write: {one_line(error)}.") from error
        except psycopg.Error as error:
            raise moved(error.diag.message_primary or "") or Unavailable(
                f"PostgreSQL cannot go on with connection=: {one_line(error)}. Roll it back and begin again."
            ) from error

    def _borrowed(self, connection: psycopg.Connection[Any]) -> "PostgresStore":
        store = PostgresStore(self.conninfo, self.instance, self.clock, self.patience)
        store._queues, store._filled, store.source = self._queues, self._filled, self.source
        lent: Any = Lent(connection)
        store.connection._database = lent
        store.connection.depth = 1
        return store

    # The worker's turn

    def exchange_with_tasks(self, turn: Turn, tasks: Sequence[Done]) -> TurnAnswer:
        """In two round trips, if nothing else is to be done: the first begins the transaction, the second ends it."""
        if not (turn.notes or self.adaptive or self.connection.depth):
            # The key of a new task is taken, or the run was touched by somebody else: that wants a second look.
            with suppress(psycopg.errors.DivisionByZero, Mistaken):
                return self._exchange_at_once(turn, tasks)
        return super().exchange_with_tasks(turn, tasks)

    def _exchange_at_once(self, turn: Turn, tasks: Sequence[Done]) -> TurnAnswer:
        with self._translated(), self.work(begin=False):
            self._at_once = self._to_begin = True
            try:
                return self.exchange_inside(turn, tasks)
            finally:
                if self._ahead is not None:
                    self._ahead = None
                    self.connection.wire.abandon()
                self._at_once, self._to_begin, self._along, self._sent = False, False, None, None

    def _refuse_ahead(self) -> None:
        """More has to be known than was thought."""
        if self._ahead is not None:
            raise Mistaken

    def expect(self, job_id: int, expected: Expected) -> None:
        self._expected[job_id] = expected
        while len(self._expected) > MOST_EXPECTED:
            with suppress(KeyError, StopIteration, RuntimeError):  # another pump does the same
                del self._expected[next(iter(self._expected))]

    def expected(self, done: Sequence[Done], rest: Turn) -> Expected | None:
        found = self._expected.pop(done[0].call.id, None)
        if len(done) > 1 or done[0].effects or not self._at_once or self.connection.pooled:
            return None
        self.go_along(rest)
        return found if self._along is not None else None

    def settle_ahead(self, by_queue: Mapping[str, Sequence[Done]], expected: Expected) -> None:
        wire, now = self.connection.wire, self.given_now()
        self._to_begin = False
        try:
            wire.send("begin")
            for queue, done in by_queue.items():
                settled = wire.send(self.text("settle", queue), self._settle_params(queue, done, now))
            looks = self.look_at(expected.head.id, expected.steps)
            head, steps = (wire.send(self.text(name), params) for name, params in looks)
            wire.send_off()
        except BaseException:
            wire.abandon()  # or it would go out with the next turn
            raise
        self._ahead = Ahead(expected, settled, head, steps)

    def _compare(self, wire: Wire) -> None:
        """`Mistaken` unless everything is as it was expected to be."""
        assert self._ahead is not None
        expected, settled, head, steps = structs.astuple(self._ahead)
        self._ahead = None
        if not wire.read(4):
            return  # the end of the pipeline tells
        rows = head.dicts()
        if not (
            (settled.fetchone() or (0,))[0] == 1
            and rows
            and expected.is_so(self._head(rows[0], expected.head.shape), self._by_name(steps.dicts()))
        ):
            raise Mistaken

    def go_along(self, turn: Turn) -> None:
        self._along = turn if self._can_go_along(turn) else None

    def _can_go_along(self, turn: Turn) -> bool:
        throttled = any(self.queue_row(want.queue).throttled for want in turn.wants)
        return self._at_once and not (turn.reports or throttled)

    def exchange(self, turn: Turn) -> TurnAnswer:
        tasks = [item for item in turn.done if item.call.run is not None]
        if tasks:
            return self.exchange_with_tasks(turn, tasks)
        throttled = [want for want in turn.wants if self.queue_row(want.queue).throttled]
        with self._translated(), self.connection.lock:
            wins = self.wins(turn)
            if not (turn.reports or throttled or turn.notes or wins):
                turn, probe_in = self.heed_breakers(turn, self.given_now())
                return _woken_by(self._pipeline(turn, turn.wants, ()), probe_in)
            alone = self.connection.depth == 0
            first = alone and not (
                turn.reports or turn.notes or self.adaptive
            )  # nothing to do before: the pipeline begins the transaction
            with self.work(begin=not first):
                self.write_notes(turn.notes)
                changes = self.apply(turn.reports, wins)
                turn, probe_in = self.heed_breakers(turn, self.given_now())
                wants = [want for want in turn.wants if want not in throttled]
                looked: list[Look] = []
                answer = self._pipeline(turn, wants, changes, () if wins else throttled, looked, first)
                answer = _woken_by(answer, probe_in)
                self._now = None  # what was promoted just now is due now
                if wins:  # breakers are locked before queues
                    self.count_successes(turn.done, answer.stale - sum(change is None for change in changes))
                    looked += [self.look(turn, want) for want in _by_name(throttled)]
                return self._with_throttled(turn, answer, looked)

    def _with_throttled(self, turn: Turn, answer: TurnAnswer, looked: Sequence[Look]) -> TurnAnswer:
        """What the look at each throttled queue came to."""
        claimed, full = list(answer.claimed), dict[str, float | None]()
        for look in looked:
            if not self.clock.movable:
                self._now = look.bucket["now"].astimezone(UTC)  # not earlier than what it found due
            found = self.claim_throttled(turn, look)
            claimed += found.claimed
            if found.full:
                full[look.want.queue] = found.look_in
        return structs.replace(answer, claimed=claimed, full=full)

    def settle_and_look(
        self, by_queue: Mapping[str, Sequence[Done]], looks: Sequence[tuple[str, Mapping[str, Any]]], rest: Turn
    ) -> tuple[set[int], list[list[dict[str, Any]]]]:
        """In one round trip. Where many tasks ended others are claimed before the run is locked, which others wait for."""
        now = self.given_now()
        with self._round_trip() as wire:
            ends = [
                wire.send(self.text("settle", queue), self._settle_params(queue, done, now))
                for queue, done in by_queue.items()
            ]
            if sum(map(len, by_queue.values())) >= MANY and self._can_go_along(rest):
                self._sent = rest, self._send_turn(wire, rest, rest.wants)
            answers = [wire.send(self.text(name), params) for name, params in looks]
        settled: set[int] = set()
        for (queue, done), (end,) in zip(by_queue.items(), (reply.dicts() for reply in ends), strict=True):
            ids = [item.call.id for item in done]
            if end["count"] != len(ids):
                params = {"ids": literal(ids), "now": end["now"]}
                ids = [row["id"] for row in self.rows("settled_here", params, queue)]
            settled.update(ids)
            if self._now is None and not self.clock.movable:
                self._now = end["now"].astimezone(UTC)
        return settled, [reply.dicts() for reply in answers]

    def insert_and_look(
        self, jobs: Sequence[NewJob], looks: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[list[dict[str, Any]]]:
        """In one round trip."""
        if not jobs:
            return self.rows_of(looks)
        added, *found = self._asked([self._adding_alike(jobs, False), *((name, params, "") for name, params in looks)])
        if not self._added_alike(jobs, added):
            self.insert(jobs)
        return found

    def put_run(self, run: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], jobs: Sequence[NewJob]) -> list[int]:
        """In one round trip."""
        groups = [list(group) for _, group in groupby(jobs, key=lambda new: new.job_type)]
        asked: list[tuple[str, Mapping[str, Any], str]]
        asked = [("put_step", {**step, "run": run["id"]}, "") for step in steps]
        along, self._along = self._along, None
        whole = along is not None and not self.writes_more
        asked += [("put_run", run, ""), *(self._adding_alike(alike, whole) for alike in groups)]
        found = self._asked(asked, along)[len(asked) - len(groups) :]
        return [
            job_id
            for alike, rows in zip(groups, found, strict=True)
            for job_id in self._added_alike(alike, rows) or [job.id for job in self.insert(alike)]
        ]

    def promote_due(self) -> None:
        """Here a turn promotes in the same pipeline in which it claims, and a probe is chosen before."""
        self.run("promote", {"now": self.given_now(), "limit": PROMOTED})

    def payload_path(self, names: Sequence[str]) -> list[str]:
        return list(names)

    def put_aside(self, queue: str, rows: Sequence[Mapping[str, Any]], lanes: Sequence[str]) -> None:
        moved = sorted(zip(rows, lanes, strict=True), key=lambda pair: pair[0]["id"])
        params = {
            "queue": queue,
            "spots": words_literal([row["spot"] for row, _ in moved]),
            "ids": literal([row["id"] for row, _ in moved]),
            "lanes": words_literal([lane for _, lane in moved]),
        }
        self.run("put_aside", params)

    def claim_these(
        self, turn: Turn, queue: str, chosen: Sequence[Mapping[str, Any]], pools: Mapping[int, str | None], now: Any
    ) -> list[Claimed]:
        ids = sorted(row["id"] for row in chosen)
        params = {
            "queue": queue,
            "worker": turn.worker,
            "pump": turn.pump,
            "spots": words_literal([row["spot"] for row in chosen if "lane" not in row]),
            "aside": words_literal([row["spot"] for row in chosen if "lane" in row]),
            "ids": literal(ids),
            "pools": words_literal([pools[job_id] for job_id in ids])
            if any(pool is not None for pool in pools.values())
            else None,
            "now": now,
        }
        text = self.text("claim_these", queue).encode()
        return self._claimed(queue, self.connection.database.execute(text, params, binary=True))[0]

    def _pipeline(
        self,
        turn: Turn,
        wants: Sequence[Want],
        changes: Sequence[Any],
        throttled: Sequence[Want] = (),
        looked: list[Look] | None = None,
        begin: bool = False,
    ) -> TurnAnswer:
        """Settle, promote and claim; of throttled queues a look is taken, for a claim in the same transaction."""
        if self._sent is not None and self._sent[0] is turn:
            sent, self._sent = self._sent[1], None
        else:
            with self.connection.wire.pipeline() as wire:
                if begin:
                    wire.send("begin")
                if begin or not self.connection.depth:
                    self.connection.pin(wire)
                sent = self._send_turn(wire, turn, wants, throttled)
        for known, replies in sent.looks:
            assert looked is not None
            looked.append(self.looked([reply.dicts() for reply in replies], known))
        claimed = [call for want, reply in sent.claims for call in self._behind_held(want, reply, sent.common)]
        look_in = self._learn_floors(sent) if self.floors.pinned else None
        count = sum((reply.fetchone() or (0,))[0] for reply in sent.settled)
        stale = len(turn.done) - count + sum(change is None for change in changes)
        count, wake_in = (sent.promoted.fetchone() or (0, None)) if sent.promoted else (0, None)
        return TurnAnswer(claimed, stale, changes, 0.0 if count == PROMOTED else wake_in, look_in=look_in)

    def _send_turn(self, wire: Wire, turn: Turn, wants: Sequence[Want], throttled: Sequence[Want] = ()) -> "Sent":
        """The statements of a turn, in the pipeline that is open."""
        now = self.given_now()
        by_queue: dict[str, list[Done]] = {}
        for item in turn.done:
            by_queue.setdefault(item.call.queue, []).append(item)
        common = {"worker": turn.worker, "pump": turn.pump, "types": types_literal(turn.types), "now": now}
        asked = "asked_types"
        if turn.late:
            asked = "asked_or_late_types"
            names, seconds = zip(*turn.late, strict=True)
            common |= {"late": words_literal(names), "seconds": literal(seconds)}
        settled = [
            wire.send(self.text("settle", queue), self._settle_params(queue, items, now))
            for queue, items in by_queue.items()
        ]
        if turn.ended_leases:
            wire.send(self.text("end_leases"), {"ids": literal(turn.ended_leases)})
        for queue in sorted(by_queue.keys() - {want.queue for want in turn.wants}):
            if self.queue_row(queue).throttled:  # room is made that we do not fill
                wire.send(self.text("tell"), {"channel": self.channel, "queue": queue})
        promoted = wire.send(self.text("promote"), {"now": now, "limit": PROMOTED}) if turn.promote else None
        begun = self._begun(wants, common)
        claims = [
            (
                want,
                wire.send(
                    self.text("claim", want.queue, f"{asked} behind" if want.queue in begun else asked),
                    {**common, "queue": want.queue, "room": want.room, **begun.get(want.queue, {})},
                ),
            )
            for want in wants
        ]
        looks = [self._send_look(wire, turn, want) for want in _by_name(throttled)]
        return Sent(common, settled, promoted, claims, looks, begun)

    def _begun(self, wants: Sequence[Want], common: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """By queue: the place behind which the claim begins, where it does not look from the beginning."""
        if not self.floors.pinned:
            return {}
        places = {want.queue: self.floors.begin((want.queue, common["types"])) for want in wants}
        return {queue: dict(zip(PLACE, place, strict=True)) for queue, place in places.items() if place is not None}

    def _learn_floors(self, sent: "Sent") -> float | None:
        """Seconds until the next look from the beginning, if this was none."""
        look_in = None
        for want, reply in sent.claims:
            line: Line = want.queue, sent.common["types"]
            began: Place | None = tuple(sent.begun[want.queue].values()) if want.queue in sent.begun else None
            order = BY_TIME if self.queue_row(want.queue).claim_order == "schedule" else BY_PRIORITY
            places = [order(row) for row in reply.fetchall() if row[0] is not None]
            self.floors.learn(line, began, max(places, default=None), len(places) == want.room)
            if began is not None:
                look_in = sooner(look_in, self.floors.look_in(line))
        return look_in

    def _send_look(self, wire: Wire, turn: Turn, want: Want) -> tuple[dict[str, Any], list[Reply]]:
        """The questions of a look, in the pipeline that is open; each sees what was committed before the lock was had."""
        asked, known = self.looks(turn, want)
        return known, [wire.send(self.text(name, want.queue), params) for name, params in asked]

    def _behind_held(self, want: Want, cursor: Answer, common: Mapping[str, Any]) -> list[Claimed]:
        """What was claimed; if tasks that somebody holds were in the way, also what stands behind them."""
        found, held = self._claimed(want.queue, cursor)
        while held and len(found) < want.room:
            self.connection.begin_again()
            self.clear_line(want.queue)
            params = {**common, "queue": want.queue, "room": want.room - len(found)}
            text = self.text("claim", want.queue).encode()
            more, held = self._claimed(want.queue, self.connection.database.execute(text, params, binary=True))
            found += more
        return found

    def _claimed(self, queue: str, cursor: Answer) -> tuple[list[Claimed], bool]:
        return claimed_of(cursor, queue, self.queue_row(queue).claim_order == "schedule")

    def _settle_params(self, queue: str, items: Sequence[Done], now: datetime | None) -> dict[str, Any]:
        items = sorted(items, key=job_id_of)
        results = None
        if any(item.result is not None for item in items):
            results = words_literal([item.result for item in items])
        return {
            "queue": queue,
            "keyed": any(item.call.job_key is not None for item in items),
            "ids": literal([item.call.id for item in items]),
            "attempts": literal([item.call.attempt for item in items]),
            "seconds": literal([item.seconds for item in items]),
            "results": results,
            "now": now,
        }


class Sent(Struct, frozen=True):
    """A turn on its way: what its statements were told in common, and their answers as they come."""

    common: dict[str, Any]
    settled: list[Reply]
    promoted: Reply | None
    claims: list[tuple[Want, Reply]]
    looks: list[tuple[dict[str, Any], list[Reply]]]
    begun: dict[str, dict[str, Any]]  # by queue: behind which place its claim began


class Ahead(Struct, frozen=True):
    """An end of a task that was sent off before it was known what it finds, and the answers that will tell."""

    expected: Expected
    settled: Reply
    head: Reply
    steps: Reply


class Mistaken(Exception):
    """Something was not as expected; nothing was done."""


class Frame(Struct, frozen=True):
    """What the COPY lines of jobs with the same options have in common."""

    job: Job
    due: bool
    head: str
    middle: str
    tail: str
    before_id: str
    after_id: str

    def job_line(self, job_id: int, new: NewJob) -> str:
        key = "\\N" if new.job_key is None else _field(new.job_key)
        payload = new.payload.replace("\\", "\\\\")
        return f"{job_id}\t{self.head}\t{key}\t{self.middle}\t{payload}\t{self.tail}"


def _woken_by(answer: TurnAnswer, probe_in: float | None) -> TurnAnswer:
    """The worker looks again when a breaker wants to be probed, if that is sooner."""
    return answer if probe_in is None else structs.replace(answer, wake_in=sooner(answer.wake_in, probe_in))


def _end_of_month(written: str) -> datetime:
    """The first moment after a month that is written as `2026_01`."""
    year, month = map(int, written.split("_"))
    return datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)


def _by_name(wants: Sequence[Want]) -> list[Want]:
    """Everybody locks queues in the same order."""
    return sorted(wants, key=lambda want: want.queue)


def job_id_of(item: Done) -> int:
    return item.call.id


def claimed_of(cursor: Answer, queue: str, by_time: bool) -> tuple[list[Claimed], bool]:
    """The claimed jobs in claim order, UPDATE … RETURNING gives none; and whether tasks were met that somebody holds."""
    rows = cursor.fetchall()
    held = bool(rows) and rows[-1][0] is None
    if held:
        rows.pop()
    rows.sort(key=BY_TIME if by_time else BY_PRIORITY)
    return [Claimed(queue, row[12], *row[:10]) for row in rows], held


BY_PRIORITY, BY_TIME = itemgetter(10, 11, 0), itemgetter(11, 10, 0)
PLACE = ("major", "minor", "last")  # as a claim is told it


def is_plain(new: NewJob) -> bool:
    """Due now, with nothing that needs a second look."""
    return (
        new.job_key is None
        and new.scheduled_run_time is None
        and new.delay is None
        and not new.time_windows
        and new.expires_time is None
        and new.run is None
        and new.trace is None
    )


def literal(values: Iterable[float]) -> str:
    """A PostgreSQL array of numbers as text."""
    return "{" + ",".join(map(str, values)) + "}"


def words_literal(values: Iterable[str | None]) -> str:
    """A PostgreSQL array of text as text."""
    quoted = (
        "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values
    )
    return "{" + ",".join(quoted) + "}"


@lru_cache(maxsize=16)
def types_literal(types: tuple[str, ...]) -> str:
    """A worker names the same types in every turn, and there may be a thousand."""
    return words_literal(types)


def line(*values: Any) -> str:
    """A row in COPY's text form."""
    return "\t".join([_field(value) for value in values]) + "\n"


def _field(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return str(value)
