"""The store on SQLite: `add` and `exchange` written for its speed, the rest from `SqlStore`.

- Times are whole microseconds, id lists are JSON arrays.
- A write transaction has the whole database, so nothing is locked row by row.
"""

import math
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec import Struct, structs

from holdfast.clock import Clock, microseconds, moment
from holdfast.errors import Conflict, HoldfastError, Invalid, Unavailable, shown_path
from holdfast.jobs import damage
from holdfast.jobs.damage import Damaged
from holdfast.jobs.job import Job
from holdfast.stores import queryfile
from holdfast.stores.adding import is_plain
from holdfast.stores.breaking import sooner
from holdfast.stores.contract import Claimed, Done, NewJob, News, QueueDeclared, Taker, Turn, TurnAnswer, Want, Watch
from holdfast.stores.lending import Room
from holdfast.stores.migrate import Migrations, check_moves, moved, refuse_arriving
from holdfast.stores.sql import SqlStore
from holdfast.stores.sqlite.connection import Connection, explained
from holdfast.stores.sqlite.lent import Lent
from holdfast.stores.sqlite.watch import FileWatch, MemoryWatch
from holdfast.stores.statements import ALIKE, FIRST_OPTION, MOST_TEXT, RowDict, decode_any, encode_json, lots

T = TypeVar("T")
STATEMENTS = queryfile.load("holdfast.stores.sqlite")
LAW = (
    "create_queue_index",
    "create_queue_index_of_runs",
    "create_law_update",
    "create_law_insert",
    "create_law_payload",
    "create_law_delete",
    "create_key_take",
    "create_key_free",
)
ids_of = msgspec.json.Decoder(list[int]).decode
FEW = 10  # jobs that are taken out of the line by name
TOGETHER = 20  # jobs that are alike: from then on one statement stores them sooner than one each
RUN_OF_STARTABLE = 9  # its place in a row of `startable`


class SqliteStore(SqlStore):
    """One connection to one instance in an SQLite file."""

    connection: Connection

    def __init__(
        self, path: str, instance: str, clock: Clock, patience: float | None = 5, connection: Connection | None = None
    ) -> None:
        super().__init__(instance, clock)
        self.path = path
        self.connection = connection or Connection(path, patience)
        self.lock = self.connection.lock
        self._owned = connection is None
        self._filled: dict[tuple[str, str, str], str] = {}
        self._listeners_due = False
        self._news: list[News] = []  # to be told after the commit
        self._listens = True  # after each write
        self._data_version = 0
        self._queues_version = 0
        self._ones: dict[str, str] = {}  # by queue: the statement that adds one job
        self._begun_ones: dict[str, str] = {}  # the same for one that begins at once
        self._columns: dict[tuple[str, str], tuple[str, ...]] = {}  # by statement and queue: the names of what it gives
        self._cursor = self.connection.database.cursor()

    def another(self, patience: float | None = None) -> "SqliteStore":
        """A store of its own on the same file. In memory there is only one connection, which all share."""
        shared = self.connection if self.connection.in_memory else None
        store = SqliteStore(self.path, self.instance, self.clock, patience, shared)
        store.listeners, store.takers, store.source = self.listeners, self.takers, self.source
        store.throttlers, store._filled, store._columns = self.throttlers, self._filled, self._columns
        return store

    def close(self) -> None:
        if self._owned:
            self.connection.close()

    def abandon(self) -> None:
        """In a process that was forked: what is open on the connection is the parent's, and ends there."""
        if self._owned:
            self.connection.abandon()

    # The instance

    def migrations(self) -> Migrations:
        return Migrations("holdfast.stores.sqlite", self.instance)

    def set_up(self) -> None:
        """Make the instance if it is not there; refuse another version than this code's."""
        with self.work(write=False):
            version = self._version()
            if version == self.migrations().last:
                refuse_arriving(self.instance, self.rows("moves"))
                return
        self.migrations().refuse_unless_new(version)
        self.migrate()

    def migrate(self) -> Sequence[str]:
        """Bring the instance to this version; the titles of what was done."""
        with self.work():
            self.run("create_registry")
            self.run("create_table_registry")
            version = self._version()
            self.migrations().refuse_newer(version)
            done = []
            for number, title, text in self.migrations().after(version):
                for statement in apsw_statements(queryfile.fill(text, self.instance)):
                    self._cursor.execute(statement)
                self.run("set_version", {"instance": self.instance, "version": number, "now": self.time(self.now())})
                done.append(f"{number:04} {title}")
            if done:
                self._renew_law()
                self._make_job_view()
            return done

    def _renew_law(self) -> None:
        """On the queues that were there before; what has none takes it up when it is opened (`moving`)."""
        for queue in self._read_queues():
            guards = [row["name"] for row in self.rows("catalog_guards", {"table_name": queue.table_name})]
            if guards:
                for name in ("drop_law_insert", "create_law_insert", "drop_law_payload", "create_law_payload"):
                    self._cursor.execute(queryfile.fill(STATEMENTS[name], self.instance, queue.table_name))

    def _version(self) -> int:
        if not self.rows("has_registry")[0]["found"]:
            return 0
        found = self.rows("version", {"instance": self.instance})
        return found[0]["version"] if found else 0

    def instances(self) -> Sequence[str]:
        with self.work(write=False):
            return [row["name"] for row in self.rows("instances")] if self.rows("has_registry")[0]["found"] else []

    def check(self) -> Sequence[tuple[str, bool, str]]:
        """What `holdfast doctor` looks at here."""
        with self.work(write=False):
            sound = next(iter(self.rows("quick_check")[0].values()))
            version = self._version()
            moves = check_moves(self.rows("moves")) if version == self.migrations().last else []
        return [
            ("SQLite library", True, apsw.sqlite_lib_version()),
            ("file is sound", sound == "ok", f"{self.path}: {sound}"),
            (
                "schema version",
                version == self.migrations().last,
                f"{version}, this code wants {self.migrations().last}",
            ),
            *moves,
        ]

    def create_queue(self, queue: QueueDeclared, now: datetime) -> None:
        self.own_table(queue)
        literals = {"queue_name": "'" + queue.name + "'"}
        for name in ("create_queue_table", *LAW):
            self._cursor.execute(queryfile.fill(STATEMENTS[name], self.instance, queue.table_name, literals))
        self.add_queue(queue, now)
        self._make_job_view()

    def _make_job_view(self) -> None:
        """All job tables as one. Differs from PostgreSQL, where it is the partitioned parent."""
        self.run("drop_job_view")
        tables = [row.table_name for row in self._read_queues()]
        arms = [STATEMENTS["job_view_arm"].replace("{queue_table}", queryfile.quoted(table)) for table in tables]
        arms = arms or [STATEMENTS["job_view_empty"]]
        text = queryfile.fill(STATEMENTS["create_job_view"], self.instance, literals={"arms": " union all ".join(arms)})
        self._cursor.execute(queryfile.fill(text, self.instance))

    # The form of things

    def now(self) -> datetime:
        return self.clock.now()

    def time(self, moment: datetime | None) -> int | None:
        return None if moment is None else microseconds(moment)

    def moment(self, value: int | None) -> datetime | None:
        return None if value is None else moment(value)

    def instant(self, at: datetime) -> float:
        return microseconds(at)

    def pack(self, ids: Sequence[int]) -> str:
        return "[" + ",".join(map(str, ids)) + "]"

    def unpack(self, value: str) -> list[int]:
        """A list that is damaged names no job: the sweeper finds what it stood for by the rows."""
        found = damage.read(ids_of, value)
        return [] if isinstance(found, Damaged) else found

    def words(self, values: Sequence[str]) -> str:
        return encode_json(values).decode()

    def columns(self, values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Here as one list of rows, whose values stand in the order of the columns."""
        return {"rows": encode_json(list(zip(*values.values(), strict=True))).decode()}

    # Statements and transactions

    def text(self, name: str, queue: str = "", asked: str = "asked_types") -> str:
        """The statement with its names filled in. `asked` names what a claim is for."""
        key = name, queue, asked
        if key not in self._filled:
            table = self.table_named(queue) if queue else ""
            text = STATEMENTS[name].replace("{asked}", " and ".join(STATEMENTS[part] for part in asked.split()))
            self._filled[key] = queryfile.filled(text, self.instance, table)
        return self._filled[key]

    def rows(self, name: str, params: Mapping[str, Any] | None = None, queue: str = "") -> list[dict[str, Any]]:
        try:
            return self._fetched(name, params, queue)
        except UnicodeDecodeError:
            return self._fetched_as_bytes(name, params, queue)

    def _fetched(self, name: str, params: Mapping[str, Any] | None, queue: str) -> list[dict[str, Any]]:
        cursor = self._cursor.execute(self.text(name, queue), params)
        names = self._columns.get((name, queue))
        if names is not None:
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        for first in cursor:  # names are told only while there are rows
            names = tuple([column[0] for column in cursor.get_description()])
            if "*" not in STATEMENTS[name]:  # else a migration may add to it
                self._columns[name, queue] = names
            return [dict(zip(names, row, strict=True)) for row in (first, *cursor.fetchall())]
        return []

    def _fetched_as_bytes(self, name: str, params: Mapping[str, Any] | None, queue: str) -> list[dict[str, Any]]:
        """The same where a text in a row is damaged, and is not UTF-8: its bytes that are no text are written out."""
        text = self.text(name, queue)
        if not text.startswith(("select", "with")):
            raise Unavailable(
                f"SQLite file {self.path}: a row has a text that is not UTF-8. `holdfast doctor` names such rows."
            )
        names = [column[0] for column in self._cursor.execute(text, params).get_description()]
        columns = ", ".join(
            f'case when typeof("{each}") = \'text\' then cast("{each}" as blob) else "{each}" end' for each in names
        )
        rows = self._cursor.execute(f"select {columns} from ({text})", params).fetchall()
        return [dict(zip(names, map(as_text, row), strict=True)) for row in rows]

    def run(self, name: str, params: Mapping[str, Any] | None = None, queue: str = "") -> int:
        self._cursor.execute(self.text(name, queue), params)
        changed: int = self.connection.database.changes()  # without what triggers changed
        return changed

    @contextmanager
    def work(self, write: bool = True, listens: bool = True) -> Iterator[None]:
        """`listens` is False where `connection.listen` is called after it."""
        with self.connection.lock:
            try:
                if self.connection.depth:  # a part of the transaction that it is in
                    yield
                    return
                with self.connection.transaction(write, listens and self._listens):
                    yield
            except apsw.Error as error:
                raise self.sorry(error) from error
        if self._listeners_due:
            self.tell_listeners()

    def tell_listeners(self) -> None:
        """What was announced in the transaction that has just been committed."""
        self._listeners_due = False
        for listener in tuple(self.listeners):
            listener()
        news, self._news = self._news, []
        self.connection.shared.tell(news, self.listeners)

    def sorry(self, error: apsw.Error) -> HoldfastError:
        """apsw's error in our words."""
        if isinstance(error, apsw.ConstraintError):
            return self._refused(error)
        return Unavailable(f"SQLite file {shown_path(self.path)}: {explained(error, self.path)}")

    def _refused(self, error: apsw.ConstraintError) -> HoldfastError:
        return moved(str(error)) or Conflict(f"SQLite file {shown_path(self.path)} refused a write: {error}.")

    def tell(self, news: News) -> None:
        """Workers on this connection hear it after the commit; others see that the file changes."""
        self._news.append(news)
        self.announce(())

    def announce(self, queues: Sequence[str]) -> None:
        self._listeners_due = True

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """Of a caller, one at a time: a task that waited for another of its event loop would stop both."""
        loop, loops = running_loop(), self.connection.shared.loops
        if loop is not None and loop in loops:
            raise Unavailable(
                f"SQLite file {shown_path(self.path)} takes one transaction at a time, and another task of this event loop is inside one. "
                "Let one begin when the other has ended, for instance with an asyncio.Lock."
            )
        with self.work():
            loops.add(loop)
            try:
                with self._ids_are_used_up():
                    yield self.connection.database
            finally:
                loops.discard(loop)

    def is_inside(self, connection: apsw.Connection) -> bool:
        return connection.in_transaction

    @contextmanager
    def _ids_are_used_up(self) -> Iterator[None]:
        """Whoever rolls back may have told the ids of new jobs: they are not given to others (J1)."""
        before = self.rows("job_sequence")[0]["last"]
        self.run("open_savepoint")
        try:
            yield
        except BaseException:
            with suppress(apsw.Error):  # the whole transaction may be gone
                given = self.rows("job_sequence")[0]["last"]
                if given > before:
                    self.run("undo_savepoint")
                    self.run("set_job_sequence", {"last": given})
                    self.connection.database.execute("commit")
            raise

    def watch(self, wake: Callable[[News | str], None]) -> Watch:
        if self.connection.in_memory:
            return MemoryWatch(self.connection.shared, wake, self.listeners)
        return FileWatch(self.connection.log_path, wake, self.connection.shared, self.listeners)

    def files(self) -> tuple[str, ...]:
        path = os.path.realpath(self.path)
        return () if self.connection.in_memory else (path, f"{path}-wal", f"{path}-shm")

    def address(self) -> tuple[str, str, str] | None:
        return None if self.connection.in_memory else ("sqlite", os.path.realpath(self.path), self.instance)

    def lock_path(self) -> str | None:
        return None if self.connection.in_memory else f"{os.path.abspath(self.path)}-worker-{secrets.token_hex(6)}"

    hears_itself = True

    def give_way(self, still: float, lock: float | None = None) -> None:
        """Nobody here can tell whether a writer stands still or has much to do; who waits has patience."""

    def hush(self) -> None:
        self._listens = False

    def listen(self) -> None:
        self._listens = True
        with self.connection.lock:
            if self.connection.depth == 0:  # else at the end of that
                self.connection.listen()

    def changed(self, waited: bool = False) -> bool:
        """Somebody else committed since the last look."""
        if self.connection.in_memory:
            return True
        with self.connection.lock:
            seen = self._data_version
            self._data_version = self.connection.data_version()
            if self._data_version == seen and not waited:
                # The news of a write comes before its commit is to be seen: wait for the writer, then ask again.
                self.connection.wait_for_writer()
                self._data_version = self.connection.data_version()
        return self._data_version != seen

    def make_room_in_archive(self, end_time: datetime) -> None:
        """Here the archive is one table."""

    def let_go(self, before: datetime, limit: int) -> int:
        ids = [row["id"] for row in self.rows("old_archived", {"before": self.time(before), "limit": limit})]
        if ids:
            self.drop_beside(ids)
            self.run("drop_old_archived", {"ids": self.pack(ids)})
        return len(ids)

    # Adding

    def add_batch(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        """An idle worker of this process claims in the same transaction: one wait for the disk instead of two."""
        if len(jobs) > 1 or self.connection.depth:
            return super().add_batch(jobs)
        if is_plain(jobs[0]):
            self._know_one(jobs[0].queue)
        for taker in self.takers:
            added = self._add_and_claim(jobs, taker)
            if added is not None:
                return added
        if is_plain(jobs[0]) and jobs[0].queue in self._ones and not self.connection.shared.ears:
            one = self._add_one(jobs[0], self.connection.write_once)
            if one is not None:
                if self._listeners_due:
                    self.tell_listeners()
                return [one]
        return super().add_batch(jobs)

    def _know_one(self, queue: str) -> None:
        """A view of this connection that takes new jobs of the queue, so that an enqueue is one statement.

        Not inside a transaction, with which it would be rolled back. In memory a commit costs nothing, and more statements do not matter.
        """
        if queue in self._ones or self.connection.in_memory:
            return
        self._begun_ones[queue] = self._made_one(queue, "begun_one")
        self._ones[queue] = self._made_one(queue, "one")

    def _made_one(self, queue: str, name: str) -> str:
        """The statement that inserts into such a view, which is made."""
        table = self.table_named(queue)
        names = {"one": queryfile.quoted(f"{self.instance}__{name}_{queue}"), "queue_name": f"'{queue}'"}
        try:
            for part in (f"create_{name}", f"create_{name}_trigger"):
                self.connection.patiently(queryfile.fill(STATEMENTS[part], self.instance, table, names))
        except apsw.Error as error:
            raise self.sorry(error) from error
        return queryfile.fill(STATEMENTS[f"add_{name}"], self.instance, table, names)

    def _add_one(self, new: NewJob, execute: Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]) -> Job | None:
        """One job that is due now and has no key; None if its queue or its factor needs a second look.

        What Python does between two commits counts double, so it does little here.
        """
        now = self.now()
        try:
            found = execute(self._ones[new.queue], one_of(new, microseconds(now)))
        except apsw.Error as error:
            raise self.sorry(error) from error
        if not found:
            return None
        self.announce_new(())
        return self.job_added(new, found[0][0], now, now)

    def _add_begun_one(self, new: NewJob, turn: Turn) -> tuple[Sequence[Job], list[Claimed]] | None:
        """The same for one that begins at once; None if it may not, for which there are many reasons."""
        if new.queue not in self._begun_ones or not is_plain(new) or new.job_type in self.adaptive:
            return None
        names = turn.types + tuple(name for name, _ in turn.late)
        if new.job_type not in turn.types:
            return None
        now = self.now()
        values = (*one_of(new, microseconds(now)), turn.worker, turn.pump, types_text(names))
        for job_id, lease in self._execute(self._begun_ones[new.queue], values):
            call = Claimed(new.queue, lease, job_id, 1, new.job_type, None, new.payload, new.timeout, 0)
            return [self.job_added(new, job_id, now, now)], [call]
        return None

    def _execute(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._cursor.execute(statement, values).fetchall()
        return found

    def _add_and_claim(self, jobs: Sequence[NewJob], taker: Taker) -> Sequence[Job] | None:
        """None if the taker has no wish."""
        if not taker.may_offer(jobs[0].queue):
            return None
        try:
            with taker.offering:
                turn = taker.offer(jobs[0].queue)
                if turn is None:
                    return None
                with self.work(listens=False):  # first comes the job
                    added, found = self._add_begun_one(jobs[0], turn) or self._insert_and_claim(jobs, turn)
                taker.give(found)
        finally:
            taker.let_go()
            self.connection.listen()
        return added

    def _insert_and_claim(self, jobs: Sequence[NewJob], turn: Turn) -> tuple[Sequence[Job], list[Claimed]]:
        added = self.insert(jobs)
        if added[0].scheduled_run_time > self.now():
            return added, []
        turn, _ = self.heed_breakers(turn, self.now())
        found = self._claim(turn, turn.wants[0], types_text(turn.types), microseconds(self.now()))
        if [call.id for call in found] == [job.id for job in added]:
            self._listeners_due = False  # nobody has to look for it
        return added, found

    def add_alike(self, jobs: Sequence[NewJob]) -> list[int]:
        self._know_queues()
        queue = jobs[0].queue
        if self.queue_row(queue).throttled or len({new.job_key for new in jobs}) < len(jobs):
            return []
        # In one statement, or a part could be stored before the key of another is found taken.
        whole = sum(len(new.payload) for new in jobs) <= MOST_TEXT
        room = self.room_for(jobs) if whole else None
        count = 0 if room is None else self._share(jobs, room)
        first = self._next_ids(len(jobs), count)
        ids = range(first, first + len(jobs))
        try:
            self._add_plain(jobs, first, self.now(), count, None if room is None else room.worker)
        except apsw.ConstraintError:  # a key is taken; or something that `insert` is told too
            self.run("none_begin")
            self.announce_new(())  # what other statements have stored stays
            return []
        if room is not None and count:
            self.run("none_begin")
            lease = self._lease(room.worker, room.number, queue, self.pack(ids[:count]))
            assert self.lending is not None
            self.lending.begin(room.number, jobs, ids[:count], lease)
        if count < len(jobs):
            self.announce_new(())
        return list(ids)

    def _next_ids(self, count: int, begun: int = 0) -> int:
        """The first of so many new ones, of which the first `begun` may be stored as `running`."""
        found = self._cursor.execute(self.text("next_ids"), {"count": count, "begun": begun}).fetchall()
        return int(found[0][0]) - count + 1

    def _share(self, jobs: Sequence[NewJob], room: Room) -> int:
        """How many of them may begin there at once: not what is for others, and none if somebody stands before them."""
        asked = (jobs[0].queue, room.worker, types_text(room.types))
        workers = [row[0] for row in self._cursor.execute(self.text("may_begin"), asked).fetchall()]
        return min(room.count, math.ceil(len(jobs) / workers[0])) if workers else 0

    def _add_plain(
        self, jobs: Sequence[NewJob], first: int, now: datetime, begun: int = 0, worker: int | None = None
    ) -> None:
        """Jobs that are due and differ by key and payload only, with ids from `first` on; all have keys, no two the same, or none.

        The first `begun` of them are not put in line, but in their first attempt by that worker.
        """
        major, minor = self.rank(jobs[0].queue, jobs[0].priority, now)
        params = {name: getattr(jobs[0], name) for name in ALIKE}
        keyed = jobs[0].job_key is not None
        params |= {"major": major, "minor": minor, "now": microseconds(now), "keyed": keyed, "worker": worker}
        for lot in lots(jobs, lambda new: len(new.payload)):
            entries = {new.job_key: new.payload for new in lot} if keyed else [new.payload for new in lot]
            params |= {"first": first, "jobs": encode_json(entries).decode(), "begun": begun}
            self.run("add_alike", params, jobs[0].queue)
            if begun < len(lot):
                self.run("add_alike_ready", params)
            first, begun = first + len(lot), max(0, begun - len(lot))

    def _know_queues(self) -> None:
        version = self.connection.data_version()
        if version != self._queues_version:  # somebody else wrote: a queue may have another order or limit
            self._queues_version = version
            self._read_queues()

    def insert(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        if len(jobs) == 1 and jobs[0].queue in self._ones and is_plain(jobs[0]):
            one = self._add_one(jobs[0], self._execute)
            if one is not None:
                return [one]
        self._know_queues()
        self.check_pools(jobs)
        now = self.now()
        keyed = [(new.job_type, new.job_key) for new in jobs if new.job_key is not None]
        if not keyed:
            return self._insert_new(jobs, now)
        pairs = encode_json(keyed).decode()
        holders = {(row["job_type"], row["job_key"]): row["id"] for row in self.rows("key_holders", {"pairs": pairs})}
        added: dict[int, Job] = self.settle_duplicates(jobs, holders)
        fresh = [(index, new) for index, new in enumerate(jobs) if index not in added]
        seen: set[tuple[str, str]] = set()
        later = []
        for index, new in fresh:
            pair = (new.job_type, new.job_key or "")
            if new.job_key is not None and pair in seen:
                later.append((index, new))
                continue
            seen.add(pair)
        first = [entry for entry in fresh if entry not in later]
        for (index, _), job in zip(first, self._insert_new([new for _, new in first], now), strict=True):
            added[index] = job
        for index, new in later:
            added[index] = self.insert([new])[0]
        return [added[index] for index in range(len(jobs))]

    def _insert_new(self, jobs: Sequence[NewJob], now: datetime) -> list[Job]:
        if not jobs:
            return []
        database = self.connection.database
        rows: dict[str, list[tuple[Any, ...]]] = {}
        ready: list[tuple[Any, ...]] = []
        waiting: list[tuple[Any, ...]] = []
        added: list[Job] = []
        first = self._next_ids(len(jobs))
        for _, group in groupby(jobs, key=options_of):
            alike = list(group)
            frame, numbered = self._frame(alike[0], now), list(enumerate(alike, first))
            if len(alike) >= TOGETHER and is_plain(alike[0]) and alike[0].retry_of is None:
                self._add_plain(alike, first, now)
            else:
                rows.setdefault(alike[0].queue, []).extend(
                    (job_id, new.job_type, new.job_key, *frame.middle, new.payload, frame.at)
                    for job_id, new in numbered
                )
                if frame.due:
                    ready += [(*frame.before_id, job_id, *frame.after_id) for job_id, _ in numbered]
                else:
                    waiting += [(frame.at, job_id, *frame.after_id) for job_id, _ in numbered]
            added += [
                structs.replace(frame.job, id=job_id, job_key=new.job_key, payload=decode_any(new.payload))
                for job_id, new in numbered
            ]
            first += len(alike)
        for queue, values in rows.items():
            database.executemany(self.text("add_job", queue), values)
        if ready:
            database.executemany(self.text("add_ready"), ready)
        if waiting:
            database.executemany(self.text("add_waiting"), waiting)
        self.write_traces(jobs, added)
        self.announce_new(())
        return added

    def _frame(self, new: NewJob, now: datetime) -> "Frame":
        at, closes = self.placed(new, now)
        stamp, shuts = microseconds(now), self.time(closes)
        zones = encode_json(new.time_windows).decode() if new.time_windows else None
        options = (new.retry_of, new.run, new.priority, new.throttle_factor, new.timeout, new.retries)
        named = (new.timeout_named, new.retries_named)
        due = at <= now
        return Frame(
            job=self.job_added(new, 0, now, at),
            due=due,
            at=microseconds(at),
            middle=(stamp, *options, *named, zones, self.time(new.expires_time)),
            before_id=(new.queue, *self.rank(new.queue, new.priority, at)),
            after_id=(new.job_type, new.throttle_factor, shuts, stamp) if due else (new.queue, shuts),
        )

    def add_within(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Job]:
        """In the caller's transaction: on this store's own connection, or on an apsw connection to the same file."""
        kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
        if self.connection.in_memory and connection is not self.connection.database:
            raise Invalid(
                f"connection= is a {kind}, but this instance lives in memory, where no other connection reaches it. In a test, "
                "rehearse the app on the database of that connection: rehearse(app, url)."
            )
        if not isinstance(connection, apsw.Connection):
            raise Invalid(
                f"connection= is a {kind}, but this instance lives in an "
                "SQLite file. Use `with app.transaction() as connection:` or an apsw connection to the same file. The standard "
                "library's sqlite3, also behind SQLAlchemy or Django, is refused: two SQLite libraries in one process drop each "
                "other's locks on a file and can delete each other's write-ahead log."
            )
        if connection is self.connection.database:
            return self.insert_apart(jobs)
        try:
            return self._borrowed(connection).insert_apart(jobs)
        except apsw.ConnectionClosedError as error:
            raise Invalid(
                "connection= is closed. Give the connection whose open transaction the jobs are to be part of."
            ) from error
        except apsw.ConstraintError as error:
            raise self._refused(error) from error
        except apsw.Error as error:
            raise Unavailable(f"SQLite file {shown_path(self.path)}: {explained(error, self.path)}") from error

    def _borrowed(self, connection: apsw.Connection) -> "SqliteStore":
        where = connection.filename or ":memory:"
        if where != self.connection.database.filename:
            raise Invalid(
                f"connection= is open on {where}, but this instance lives in {self.path}. Connect to that file."
            )
        if not connection.in_transaction:
            raise Invalid(
                "connection= is not in a transaction. Begin one (`begin immediate`) before you enqueue in it."
            )
        store = SqliteStore.__new__(SqliteStore)
        store.__dict__.update(self.__dict__)
        store.connection = Connection.__new__(Connection)
        store.connection.__dict__.update(self.connection.__dict__, database=Lent(connection))
        store._cursor = store.connection.database.cursor()
        store._ones = store._begun_ones = {}
        return store

    # The worker's turn

    def exchange(self, turn: Turn) -> TurnAnswer:
        tasks = [item for item in turn.done if item.call.run is not None]
        if tasks:
            return self.exchange_with_tasks(turn, tasks)
        with self.work():
            self.write_notes(turn.notes)
            changes = self.apply(turn.reports, self.wins(turn))
            stamp = microseconds(self.now())  # not earlier than what apply has just placed
            stale = self._settle(turn.done, stamp)
            if turn.done and self.adaptive:
                self.count_successes(turn.done, stale)
            if turn.ended_leases:
                self._cursor.execute(self.text("end_leases"), (self.pack(turn.ended_leases),))
            unwanted = {item.call.queue for item in turn.done} - {want.queue for want in turn.wants}
            if any(self.queue_row(queue).throttled for queue in unwanted):
                self.announce(())  # room is made that we do not fill
            promoted, wake_in = self._promote(stamp) if turn.promote else (0, None)
            turn, probe_in = self.heed_breakers(turn, moment(stamp))
            claimed: list[Claimed] = []
            full: dict[str, float | None] = {}
            types = types_text(turn.types)
            for want in turn.wants:
                claimed += self._claim(turn, want, types, stamp, full)
        stale += sum(change is None for change in changes)
        return TurnAnswer(claimed, stale, changes, sooner(wake_in, probe_in), full, promoted=promoted)

    def _settle(self, done: Sequence[Done], stamp: int) -> int:
        stale, by_queue = 0, dict[str, list[Done]]()
        for item in done:
            by_queue.setdefault(item.call.queue, []).append(item)
        for queue, items in (
            (queue, lot) for queue, all_ in by_queue.items() for lot in lots(all_, lambda item: len(item.result or ""))
        ):
            ids = [item.call.id for item in items]
            attempt, result = items[0].call.attempt, items[0].result
            if len(items) == 1:
                self._cursor.execute(self.text("settle_one", queue), (stamp, ids[0], attempt, items[0].seconds, result))
            elif all(item.call.attempt == attempt and item.result == result for item in items):
                seconds = encode_json({item.call.id: item.seconds for item in items}).decode()
                self._cursor.execute(self.text("settle_alike", queue), (stamp, seconds, attempt, result))
            else:
                ends = [(item.call.id, item.call.attempt, item.seconds, item.result) for item in items]
                self._cursor.execute(self.text("settle", queue), (stamp, encode_json(ends).decode()))
            stale += len(items) - self.connection.database.changes()  # without what triggers changed
            self._cursor.execute(self.text("add_ended"), (stamp, queue, self.pack(ids)))
        return stale

    def settle_and_look(
        self, by_queue: Mapping[str, Sequence[Done]], looks: Sequence[tuple[str, Mapping[str, Any]]], rest: Turn
    ) -> tuple[set[int], list[list[dict[str, Any]]]]:
        stamp, settled = microseconds(self.now()), set[int]()
        for queue, done in by_queue.items():
            ids = [item.call.id for item in done]
            if self._settle(done, stamp):
                ends = encode_json([(item.call.id, item.call.attempt) for item in done]).decode()
                found = self.rows("settled_here", {"ends": ends, "now": stamp}, queue)
                ids = [row["id"] for row in found]
            settled.update(ids)
        return settled, self.rows_of(looks)

    def promote_due(self) -> None:
        """Here a turn has done so before it looks at breakers."""

    def _promote(self, stamp: int) -> tuple[int, float | None]:
        """How many jobs' time has come, and seconds until that of the next."""
        params = {"now": stamp, "limit": 1000}
        promoted = self.run("promote", params)
        self.run("drop_promoted", params)
        wake = self.rows("next_wake")[0]["wake_time"]
        return promoted, None if wake is None else max(0.0, (wake - stamp) / 1e6)

    def _claim(
        self, turn: Turn, want: Want, types: str, stamp: int, full: dict[str, float | None] | None = None
    ) -> list[Claimed]:
        if self.queue_row(want.queue).throttled:
            found = self.claim_throttled(turn, self.look(turn, want))
            if found.full and full is not None:
                full[want.queue] = found.look_in
            return list(found.claimed)
        claimed: list[Claimed] = []
        head, take_head, *late = self._heads_for(turn, want.queue, stamp)
        while True:
            asked = (want.queue, types, stamp, want.room - len(claimed), turn.worker, *late)
            ids = self._cursor.execute(head, asked).fetchall()[0][0]
            if ids == "[]":
                return claimed
            if (count := ids.count(",") + 1) <= FEW:
                self._cursor.execute(self.text("take_few"), (want.queue, ids, count))
            else:
                self._cursor.execute(take_head, asked)
            started, held = self._start(turn, want.queue, ids, stamp)
            if started or not held:
                lease = self._lease(turn.worker, turn.pump, want.queue, ids)
                claimed += [Claimed(want.queue, lease, *started[job_id]) for job_id in ids_of(ids) if job_id in started]
            if not held:
                return claimed
            self.clear_line(want.queue)  # somebody holds them: look behind them

    def _heads_for(self, turn: Turn, queue: str, stamp: int) -> tuple[str, ...]:
        """The statements of a claim; since when jobs have to be due that are left to others before; whose answers are."""
        if not (turn.late or turn.deaf):
            return self.text("head"), self.text("take_head")
        since = encode_json([(name, stamp - round(seconds * 1e6)) for name, seconds in turn.late]).decode()
        asked = "asked_or_late_types" if turn.late else "asked_types"
        if not turn.deaf:
            return self.text("head", asked=asked), self.text("take_head", asked=asked), since
        texts = (self.text(name, queue, f"{asked} heard") for name in ("head", "take_head"))
        return (*texts, since, types_text(turn.deaf))

    def payload_path(self, names: Sequence[str]) -> str:
        return "$" + "".join(f'."{name}"' for name in names)

    def lane_heads(self, queue: str, lanes: Sequence[str], types: Iterable[str], limit: int) -> list[RowDict]:
        """Here each lane is asked for by itself."""
        params = {"queue": queue, "types": self.words(sorted(types)), "limit": limit, "now": self.time(self.now())}
        return [row for lane in lanes for row in self.rows("lane_heads", {**params, "lanes": lane})]

    def put_aside(self, queue: str, rows: Sequence[RowDict], lanes: Sequence[str]) -> None:
        places = [(queue, row["major"], row["minor"], row["id"]) for row in rows]
        moves = [(*place, lane) for place, lane in zip(places, lanes, strict=True)]
        self._cursor.executemany(self.text("put_aside"), moves)
        self._cursor.executemany(self.text("take"), places)

    def claim_these(
        self, turn: Turn, queue: str, chosen: Sequence[RowDict], pools: Mapping[int, str | None], now: Any
    ) -> list[Claimed]:
        places = [(queue, row["major"], row["minor"], row["id"]) for row in chosen if "lane" not in row]
        self._cursor.executemany(self.text("take"), places)
        aside = [(queue, row["lane"], row["major"], row["minor"], row["id"]) for row in chosen if "lane" in row]
        if aside:
            self._cursor.executemany(self.text("fetch"), aside)
        found, _ = self._start(turn, queue, self.pack([row["id"] for row in chosen]), now)
        leased = [(row["id"], row["throttle_factor"], pools[row["id"]]) for row in chosen if row["id"] in found]
        if not leased:
            return []
        self._cursor.execute(self.text("add_leases"), (queue, turn.worker, turn.pump, encode_json(leased).decode()))
        first = self.connection.database.last_insert_rowid() - len(leased) + 1
        return [Claimed(queue, lease, *found[entry[0]]) for lease, entry in enumerate(leased, first)]

    def _start(self, turn: Turn, queue: str, ids: str, stamp: int) -> tuple[dict[int, Any], bool]:
        """What entered running, by id, and whether tasks were kept from it.

        Asked for as one text: apsw gives the interpreter away for every single row.
        """
        asked = (turn.worker, stamp, ids)
        rows, holds = self._startable(queue, asked)
        tasks = [row[0] for row in rows if row[RUN_OF_STARTABLE] is not None] if holds else []
        held = self.held_among(queue, tasks) if tasks else []
        if held:
            self.put_held(queue, held)
            kept = {row["id"] for row in held}
            rows = [row for row in rows if row[0] not in kept]
            asked = (turn.worker, stamp, self.pack([row[0] for row in rows]))
        self._cursor.execute(self.text("start", queue), asked)
        return {row[0]: row for row in rows}, bool(held)

    def _startable(self, queue: str, asked: tuple[Any, ...]) -> tuple[list[Any], bool]:
        """In halves, where they are too large for one text or one has a text that is not UTF-8; and whether a hold may be about them."""
        try:
            found, holds = self._cursor.execute(self.text("startable", queue), asked).fetchall()[0]
            return decode_any(found), bool(holds)
        except (apsw.TooBigError, ValueError, msgspec.DecodeError) as error:
            ids = ids_of(asked[-1])
            if len(ids) == 1 and isinstance(error, apsw.TooBigError):
                raise
            if len(ids) == 1:
                params = {"now": asked[1], "ids": asked[2]}
                return [tuple(row.values()) for row in self.rows("startable_rows", params, queue)], True
            half = len(ids) // 2
            parts = [self._startable(queue, (*asked[:-1], self.pack(part))) for part in (ids[:half], ids[half:])]
            return [row for rows, _ in parts for row in rows], parts[0][1]

    def _lease(self, worker: int, pump: int, queue: str, ids: str) -> int:
        values = (queue, worker, pump, None, None, ids)
        lease: int = self.connection.database.execute(self.text("add_lease"), values).fetchall()[0][0]
        return lease


class Frame(Struct, frozen=True):
    """What the rows of jobs with the same options have in common."""

    job: Job
    due: bool
    at: int
    middle: tuple[Any, ...]
    before_id: tuple[Any, ...]
    after_id: tuple[Any, ...]


def options_of(new: NewJob) -> tuple[Any, ...]:
    """What a job has in common with those that differ by key and payload only."""
    return new.queue, new.job_type, new.job_key is None, structs.astuple(new)[FIRST_OPTION:]


def one_of(new: NewJob, now: int) -> tuple[Any, ...]:
    """A plain job as the statements for one take it."""
    options = new.priority, new.throttle_factor, new.timeout, new.retries, new.timeout_named, new.retries_named
    return new.job_type, now, new.retry_of, *options, new.payload


def as_text(value: Any) -> Any:
    """Bytes as text, whatever they are."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def running_loop() -> Any:
    """The event loop that this thread is in; whoever has not loaded asyncio has none."""
    asyncio = sys.modules.get("asyncio")
    return asyncio._get_running_loop() if asyncio is not None else None


@lru_cache(maxsize=16)
def types_text(types: tuple[str, ...]) -> str:
    """A worker names the same types in every turn, and there may be a thousand."""
    return encode_json(types).decode()


def apsw_statements(text: str) -> Iterator[str]:
    """The statements of a migration; a trigger's inner semicolons do not end it."""
    statement = ""
    for line in text.splitlines():
        if line.startswith("--"):
            continue
        statement += line + "\n"
        if line.rstrip().endswith(";") and apsw.complete(statement):
            yield statement
            statement = ""
