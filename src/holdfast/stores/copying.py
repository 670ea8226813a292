"""One side of a move: an instance as its tables, read and written row by row without a thought of what the rows mean.

- Rows travel in one form, SQLite's: times are whole microseconds, flags are 0 and 1, lists of ids are JSON arrays.
- Which tables there are, their columns and keys, is asked of the database: a new column moves without being named here.
- Rows that stay as they are, or tell when they changed, are compared stretch by stretch and copied where they differ, at
  any time and again and again. All other tables are copied as a whole, when nobody writes any more.
"""

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from msgspec import Struct

from holdfast.clock import monotonic, sleep
from holdfast.errors import Conflict, Unavailable
from holdfast.stores.contract import QueueDeclared
from holdfast.stores.sql import SqlStore

SOURCE, TARGET = "source", "target"
JOB = "*"  # in the place of every queue's table
# Tables that are compared by stretches: the number they are walked by, and what else tells a row from its neighbours.
WALKED = {
    "archive": ("id", "id"),
    "attempt": ("id", "id"),
    "audit": ("id", "id"),
    "log": ("job", "id"),
    "run_archive": ("id", "id"),
    "step_archive": ("run", "position"),
    JOB: ("id", "attempt"),
}
NOT_COPIED = ("move", "sequence", "job")  # the last is all queues' tables together
PART = re.compile(r"_[0-9]{4}_[0-9]{2}$")  # of the archive, which is copied as one
MADE = re.compile(r"create table \{(\w+)\}")  # in a migration
LOT = 5000  # rows in one transaction
LAST = 2**63 - 1
PAUSE = 0.05  # seconds between two tries to put the seal on, or take it off

Row = tuple[Any, ...]


class Table(Struct, frozen=True):
    """A table of the instance as the database describes it."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...]
    walk: tuple[str, str] | None = None
    holds_jobs: bool = False
    parents: tuple[str, ...] = ()

    def places(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.columns.index(name) for name in names)


class Mark(Struct, frozen=True):
    """How far a move has come, as one of its sides remembers it."""

    side: str
    stage: str
    mark: str
    other: str
    start_time: datetime
    drain_time: datetime | None = None
    seal_time: datetime | None = None
    end_time: datetime | None = None


class Digest(Struct, frozen=True):
    """How many rows, and a sum over what tells them apart."""

    count: int
    total: int


class Side(ABC):
    """An instance in a database, as the source or the target of a move."""

    events: ClassVar[tuple[str, ...]]

    store: Any  # of the database's own kind

    def __init__(self, store: SqlStore, told: str) -> None:
        self.store = store
        self.instance = store.instance
        self.told = told  # the database as people may see it
        self._tables: dict[str, Table] = {}

    def close(self) -> None:
        self.store.close()

    # What is there

    @abstractmethod
    def version(self) -> int:
        """Of the instance; 0 if it is not here."""

    @abstractmethod
    def is_same(self, other: "Side") -> bool:
        """Both are one database."""

    @abstractmethod
    def take(self) -> None:
        """Be the only one who moves this instance, or `Conflict`."""

    def marks(self) -> Mapping[str, Mark]:
        """By side."""
        with self.store.work(write=False):
            rows = self.store.rows("moves")
        times = ("start_time", "drain_time", "seal_time", "end_time")
        found = [Mark(**{**row, **{name: self.store.moment(row[name]) for name in times}}) for row in rows]
        return {mark.side: mark for mark in found}

    def tables(self) -> list[Table]:
        """Those to copy, none before its parents."""
        prefix = f"{self.instance}__"
        with self.store.work(write=False):
            queues = {row.table_name for row in self.store._read_queues()}
            columns = self.catalog()
            children = self.store.rows("catalog_parents", {"prefix": prefix})
        parents: dict[str, set[str]] = {}
        for row in children:
            parents.setdefault(row["table_name"], set()).add(row["parent"])
        by_name: dict[str, list[Mapping[str, Any]]] = {}
        for row in columns:
            by_name.setdefault(row["table_name"], []).append(row)
            if row["column_name"] == "queue":  # what a row says may hang on its queue
                parents.setdefault(row["table_name"], set()).add(f"{prefix}queue")
        wanted = {name: rows for name, rows in by_name.items() if self._is_copied(name, queues)}
        found = {name: _described(name, rows, name in queues, parents) for name, rows in wanted.items()}
        self._tables = {name: found[name] for name in in_order(found)}
        return list(self._tables.values())

    def catalog(self) -> list[Mapping[str, Any]]:
        """Every table of the instance with its columns; not those of others that are only called alike."""
        prefix, migrations = f"{self.instance}__", self.store.migrations().after(0)
        made = {prefix + name for _, _, text in migrations for name in MADE.findall(text)}
        made |= {row["table_name"] for row in self.store.rows("owned_tables", {"instance": self.instance})}
        rows = self.store.rows("catalog", {"prefix": prefix, "instance": self.instance})
        return [
            row for row in rows if row["table_name"] in made or PART.sub("", row["table_name"]) == f"{prefix}archive"
        ]

    def _is_copied(self, name: str, queues: set[str]) -> bool:
        own = name.removeprefix(f"{self.instance}__")
        return name in queues or (own not in NOT_COPIED and not PART.search(own))

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self.tables()
        return self._tables[name]

    # Reading

    def count(self, table: Table) -> int:
        with self.store.work(write=False):
            found: int = self.ask("count_rows", table)[0]["count"]
            return found

    def digest(self, table: Table, after: int = 0, upto: int = LAST) -> Digest:
        name = "digest_jobs" if table.holds_jobs else "digest_rows"
        with self.store.work(write=False):
            row = self.ask(name, table, {"after": after, "upto": upto})[0]
        return Digest(row["count"], row["total"])

    def stretch(self, table: Table, after: int, upto: int, rows: int) -> int | None:
        """Where the next so many rows end; None if there are none."""
        with self.store.work(write=False):
            found: int | None = self.ask("range_end", table, {"after": after, "upto": upto, "limit": rows})[0]["place"]
            return found

    @abstractmethod
    def read(self, table: Table, after: int, upto: int) -> list[Row]:
        """The rows of a stretch, in the order of their keys."""

    @abstractmethod
    def read_all(self, table: Table) -> Generator[Row, None, None]:
        """Every row in the order of the keys. Nobody may write meanwhile."""

    # Writing

    @abstractmethod
    def write(self, table: Table, rows: Sequence[Row]) -> None: ...

    def drop(self, table: Table, rows: Sequence[Row]) -> None:
        """Take rows away again that the source has no more, or has otherwise."""
        first, second = table.places(self._walk(table))
        with self.store.work():
            for row in rows:
                self.tell("drop_row", table, {"first": row[first], "second": row[second]})

    def clear(self, table: Table) -> None:
        with self.store.work():
            self.tell("clear_table", table)

    def sequences(self) -> dict[str, int]:
        """The last number that each table gave out, and that of the jobs."""
        prefix = f"{self.instance}__"
        with self.store.work(write=False):
            rows = self.store.rows("id_sequences", {"prefix": prefix})
            jobs = self.store.rows("job_sequence")[0]["last"]
        return {row["table_name"]: row["last"] for row in rows} | {JOB: jobs}

    @abstractmethod
    def continue_after(self, last: Mapping[str, int]) -> None:
        """Give out only higher numbers than these."""

    # Life of a source

    def begin(self, mark: str, other: str) -> None:
        self._begin(SOURCE, "copying", mark, other)

    def _begin(self, side: str, stage: str, mark: str, other: str) -> None:
        params = {"side": side, "stage": stage, "mark": mark, "other": other}
        with self.store.work():
            self.store.run("begin_move", {**params, "now": self.store.time(self.store.now())})

    def go_on(self, side: str, stage: str, now: datetime | None = None) -> None:
        params = {"side": side, "stage": stage, "now": self.store.time(now or self.store.now())}
        with self.store.work():
            if not self.store.run("move_on", params):
                raise Conflict(
                    f"The move of instance `{self.instance}` was abandoned meanwhile. Call it again to begin anew."
                )

    def is_busy(self) -> bool:
        """Some worker takes jobs, or has one."""
        with self.store.work(write=False):
            return bool(self.store.rows("still_working")[0]["found"])

    def seal(self, message: str, patience: float) -> None:
        """From now on every write is refused with this message; what workers held is loose, in the same transaction."""

        def put_on() -> None:
            self.lock_everything()
            self._loosen()
            self.put_seal(message)
            self.go_on(SOURCE, "sealed")

        self._until_it_is_done(put_on, patience, "sealed", "workers claim nothing")

    def _loosen(self) -> None:
        """Nobody who holds a job can tell of its end any more."""
        for worker in self.store.workers():
            self.store.lose(worker.id)
        while self.store.recover_strays():
            pass

    def unseal(self, patience: float) -> None:
        """As if there had been no move."""

        def take_off() -> None:
            self.take_seal_off()
            self.store.run("end_move")

        self._until_it_is_done(take_off, patience, "opened again", "nobody can write to it")

    def _until_it_is_done(self, act: Callable[[], None], patience: float, done: str, meanwhile: str) -> None:
        """In one transaction; those who are in the way may come and go."""
        ends = monotonic() + patience
        while True:
            try:
                with self.store.work():
                    act()
                return
            except Unavailable as error:
                if monotonic() >= ends:
                    raise Unavailable(
                        f"Instance `{self.instance}` could not be {done} within {patience:g} s: somebody's transaction is in the way "
                        f"and does not end ({error}) End it and call this again; until then {meanwhile}."
                    ) from error
                sleep(PAUSE)

    @abstractmethod
    def lock_everything(self) -> None:
        """Nobody writes until the end of this transaction; `Unavailable` if others do not let go."""

    @abstractmethod
    def put_seal(self, message: str) -> None: ...

    @abstractmethod
    def take_seal_off(self) -> None: ...

    # Life of a target

    def arrive(self, mark: str, other: str) -> None:
        """Make the instance, closed to everybody who looks for it."""
        with self.store.work():
            self.store.migrate()
            self._begin(TARGET, "arriving", mark, other)

    def make_queues(self, queues: Sequence[QueueDeclared]) -> None:
        """Their tables, without the law: rows come as they were."""
        there = {row.name for row in self.store.queues()}
        for queue in queues:
            if queue.name not in there:
                with self.store.work():
                    self.store.create_queue(queue, self.store.now())
                    self.lay_down_law(queue.table_name)
                self._tables.clear()

    def open(self, now: datetime) -> None:
        """The law is in force, and everybody may come in. The time is the source's, by which an outage is told."""
        with self.store.work():
            for row in self.store.queues():
                self.take_up_law(row.name, row.table_name)
            self.go_on(TARGET, "open", now)

    @abstractmethod
    def lay_down_law(self, table: str) -> None: ...

    @abstractmethod
    def take_up_law(self, queue: str, table: str) -> None: ...

    def give_up(self, mark: str) -> None:
        """Take away what this move has brought, and only if nobody has opened it meanwhile."""
        with self.store.work():
            for row in self.store.rows("lock_moves"):
                if (row["mark"], row["stage"]) == (mark, "arriving"):
                    self.remove()
                    return
            raise Conflict(f"Instance `{self.instance}` was opened in {self.told} just now. It is moved: use it there.")

    @abstractmethod
    def remove(self) -> None:
        """Everything that belongs to the instance."""

    # Statements about any table

    @abstractmethod
    def ask(self, name: str, table: Table, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]: ...

    @abstractmethod
    def tell(self, name: str, table: Table, params: Mapping[str, Any] | None = None) -> None: ...

    def _walk(self, table: Table) -> tuple[str, str]:
        return table.walk or (table.key[0], table.key[-1])


def _described(name: str, rows: Sequence[Mapping[str, Any]], is_queue: bool, parents: Mapping[str, set[str]]) -> Table:
    own = JOB if is_queue else name.partition("__")[2]
    walk = WALKED.get(own)
    key = [row["column_name"] for row in sorted(rows, key=lambda row: row["key_place"]) if row["key_place"]]
    return Table(
        name=name,
        columns=tuple(row["column_name"] for row in sorted(rows, key=lambda row: row["column_name"])),
        types=tuple(row["type"] for row in sorted(rows, key=lambda row: row["column_name"])),
        key=tuple(dict.fromkeys(walk)) if walk and not is_queue else tuple(key),
        walk=walk,
        holds_jobs=is_queue,
        parents=tuple(sorted(parents.get(name, ()))),
    )


def in_order(tables: Mapping[str, Table]) -> list[str]:
    """Each after its parents."""
    done: dict[str, None] = {}

    def add(name: str) -> None:
        for parent in tables[name].parents:
            if parent in tables:
                add(parent)
        done[name] = None

    for name in sorted(tables):
        add(name)
    return list(done)


def new_mark() -> str:
    return secrets.token_hex(8)


def clash(instance: str) -> Conflict:
    return Conflict(
        f"Another `holdfast move` of instance `{instance}` is running. Wait for it, or stop it, and call this one again."
    )
