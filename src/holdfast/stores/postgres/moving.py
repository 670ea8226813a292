"""An instance in a PostgreSQL database as a side of a move.

- Rows come and go in PostgreSQL's own form, where a time is a whole number of microseconds as well, counted from 2000.
- A seal is triggers that refuse, made in the transaction that seals: before it they cost nothing, and after it nobody
  gets past them, neither a process that has been partitioned away nor plain SQL.
"""

import secrets
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.numeric import Int8BinaryLoader

from holdfast.clock import microseconds, moment, monotonic, sleep
from holdfast.errors import Invalid
from holdfast.stores import queryfile
from holdfast.stores.copying import JOB, LOT, Row, Side, Table, clash
from holdfast.stores.migrate import SEALED
from holdfast.stores.postgres.instance import STATEMENTS
from holdfast.stores.postgres.jobs import PostgresStore
from holdfast.stores.statements import decode_any

CENTURY = microseconds(datetime(2000, 1, 1, tzinfo=UTC))
SECOND = 1_000_000
DAY = 86_400 * SECOND
TIME, FLAG, IDS = "timestamp with time zone", "boolean", "bigint[]"
FORMS = {TIME: "int8", FLAG: "bool", IDS: "int8[]", "bigint": "int8", "integer": "int4", "double precision": "float8"}
LEFT_WITHIN = 5.0  # seconds in which the server notices that a program has gone
MOVERS, PROBES = 4802, 4803  # kinds of advisory locks
RANKED = ("ready", "aside")  # where a time stands as a number of seconds

Change = Callable[[Any], Any]


class PostgresSide(Side):
    """Turns rows into the form in which they travel, and back."""

    store: PostgresStore
    events = ("insert or update or delete or truncate",)

    def version(self) -> int:
        with self.store.work():
            self.store._refuse_server()
            return self.store._version()

    def is_same(self, other: Side) -> bool:
        """A lock is seen from every connection to the same database, whatever address it was given."""
        if not isinstance(other, PostgresSide):
            return False
        number, schemas = secrets.randbelow(2**31), [side._one("same_schema") for side in (self, other)]
        taken = [side._one("lock_move", {"space": PROBES, "number": number}) for side in (self, other)]
        return schemas[0] == schemas[1] and taken == [True, False]

    def take(self) -> None:
        """The lock is the session's: who lost that must not write another row, because another program may move by now."""
        self._refuse_pooler()
        number, ends = zlib.crc32(self.instance.encode()) >> 1, monotonic() + LEFT_WITHIN
        while not self._one("lock_move", {"space": MOVERS, "number": number}):
            if monotonic() >= ends:
                raise clash(self.instance)
            sleep(0.05)
        self.store.connection.only_once = (
            f"The server has ended the session of this move in {self.told}, and with it the lock that keeps every other move of instance "
            f"`{self.instance}` away. What was copied stays. Call `holdfast move` again: it goes on."
        )

    def _refuse_pooler(self) -> None:
        if self.store.connection.database is not None and self.store.connection.pooled:
            raise Invalid(
                f"{self.told} is a pooler, which gives sessions to others: no lock would keep a second move of instance `{self.instance}` "
                "away. Give the address of the server itself."
            )

    def _one(self, name: str, params: Mapping[str, Any] | None = None) -> Any:
        with self.store.lone():
            return next(iter(self.store.rows(name, params)[0].values()))

    # Reading

    def read(self, table: Table, after: int, upto: int) -> list[Row]:
        changes = changes_of(table, OUT)
        with self.store.work():
            cursor = self._cursor()
            cursor.execute(self._text("read_range", table), {"after": after, "upto": upto}, binary=True)
            return [changed(row, changes) for row in cursor]

    def read_all(self, table: Table) -> Generator[Row, None, None]:
        changes = changes_of(table, OUT)
        with self.store.work():
            rank = self._rank(table)
            with self._cursor("holdfast_move") as cursor:
                cursor.itersize = LOT
                cursor.execute(self._text("read_all", table), {}, binary=True)
                for row in cursor:
                    found = changed(row, changes)
                    yield ranked(found, rank, in_microseconds) if rank else found

    def _cursor(self, name: str = "") -> Any:
        """With times as the numbers that they are."""
        cursor = self.store.connection.database.cursor(name) if name else self.store.connection.database.cursor()
        cursor.adapters.register_loader("timestamptz", Int8BinaryLoader)
        return cursor

    def _rank(self, table: Table) -> Mapping[str, tuple[int, int]] | None:
        """Of a table in claim order: for each queue, where its name stands in a row and where the time does."""
        if table.name not in {f"{self.instance}__{name}" for name in RANKED}:
            return None
        queue, major, minor = table.places(["queue", "major", "minor"])
        orders = {row.name: row.claim_order for row in self.store._read_queues()}
        return {name: (queue, major if order == "schedule" else minor) for name, order in orders.items()}

    # Writing

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        changes = changes_of(table, INTO)
        with self.store.work():
            rank = self._rank(table)
            if table.name == f"{self.instance}__archive":
                self._make_months(table, rows)
            with (
                self.store.connection.database.cursor() as cursor,
                cursor.copy(self._text("write_rows", table)) as copy,
            ):
                copy.set_types([FORMS.get(kind, "text") for kind in table.types])
                for row in rows:
                    found = ranked(row, rank, in_seconds) if rank else row
                    copy.write_row(changed(found, changes))

    def _make_months(self, table: Table, rows: Sequence[Row]) -> None:
        (place,) = table.places(["end_time"])
        for day in {row[place] // DAY for row in rows}:
            self.store.make_room_in_archive(moment(day * DAY))

    def continue_after(self, last: Mapping[str, int]) -> None:
        with self.store.work():
            for name, number in last.items():
                if name == JOB:
                    self.store.rows("set_job_sequence", {"last": number})
                else:
                    self.store.rows("set_id_sequence", {"table_name": name, "last": number})

    # The seal and the law

    def lock_everything(self) -> None:
        self.store.run("impatient_lock")
        self._define("lock_everything", {"tables": ", ".join(self._every_table())})

    def put_seal(self, message: str) -> None:
        text = "'" + f"{SEALED}{message}".replace("'", "''") + "'"
        self._define("create_seal_text", {"message": text})
        for table in self._every_table():
            self._define("create_seal", {"table": table, "event": self.events[0], "seal": "sealed"})

    def take_seal_off(self) -> None:
        self.lock_everything()
        for table in self._every_table():
            self._define("drop_seal", {"table": table, "seal": "sealed"})
        self._define("drop_seal_text", {})

    def _every_table(self, but: Sequence[str] = ("move",)) -> list[str]:
        """Also the parts of tables: who writes to a part is not seen by a trigger on the whole."""
        left_out = {f"{self.instance}__{name}" for name in but}
        names = dict.fromkeys(row["table_name"] for row in self.catalog())
        return [queryfile.quoted(name) for name in names if name not in left_out]

    def lay_down_law(self, table: str) -> None:
        self._define("lay_down_law", {"table": queryfile.quoted(table)})

    def take_up_law(self, queue: str, table: str) -> None:
        self._define("take_up_law", {"table": queryfile.quoted(table)})

    def remove(self) -> None:
        with self.store.work():
            self._define("drop_table", {"table": ", ".join(self._every_table(but=()))})
            for name in ("drop_rest", "drop_functions"):
                self._define(name, {})
            for name in ("disown_tables", "forget_instance"):
                self.store.run(name, {"instance": self.instance})

    # Statements

    def ask(self, name: str, table: Table, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        with self.store.connection.database.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(self._text(name, table), params or {}).fetchall()

    def tell(self, name: str, table: Table, params: Mapping[str, Any] | None = None) -> None:
        self.store.connection.database.execute(self._text(name, table), params or {})

    def _text(self, name: str, table: Table) -> bytes:
        first, second = self._walk(table)
        literals = {
            "table": queryfile.quoted(table.name),
            "columns": ", ".join(map(queryfile.quoted, table.columns)),
            "key": ", ".join(map(queryfile.quoted, table.key)),
            "first": queryfile.quoted(first),
            "second": queryfile.quoted(second),
        }
        return queryfile.fill(STATEMENTS[name], self.instance, literals=literals).encode()

    def _define(self, name: str, literals: Mapping[str, str]) -> None:
        self.store._defined(name, literals)


def changes_of(table: Table, ways: Mapping[str, Change]) -> list[tuple[int, Change]]:
    """Which values of a row change their form, and how."""
    return [(place, ways[kind]) for place, kind in enumerate(table.types) if kind in ways]


def changed(row: Sequence[Any], changes: Sequence[tuple[int, Change]]) -> Row:
    values = list(row)
    for place, change in changes:
        if values[place] is not None:
            values[place] = change(values[place])
    return tuple(values)


def ranked(row: Row, rank: Mapping[str, tuple[int, int]], change: Change) -> Row:
    """A row of a table in claim order, with its time in the other unit."""
    queue, time = next(iter(rank.values()))
    if row[queue] in rank:
        time = rank[row[queue]][1]
    return (*row[:time], change(row[time]), *row[time + 1 :])


def in_microseconds(seconds: float) -> float:
    return float(round(seconds * SECOND))


def in_seconds(number: float) -> float:
    return number / SECOND


OUT: Mapping[str, Change] = {
    TIME: lambda value: value + CENTURY,
    FLAG: int,
    IDS: lambda value: "[" + ",".join(map(str, value)) + "]",
}
INTO: Mapping[str, Change] = {TIME: lambda value: value - CENTURY, FLAG: bool, IDS: decode_any}
