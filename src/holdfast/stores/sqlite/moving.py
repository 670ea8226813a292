"""An instance in an SQLite file as a side of a move.

A seal is triggers that refuse, made in the transaction that seals: before it they cost nothing, and after it nobody gets
past them, neither a process that has been partitioned away nor plain SQL.
"""

import fcntl
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from holdfast.file_modes import open_file
from holdfast.stores import queryfile
from holdfast.stores.copying import JOB, Row, Side, Table, clash, in_order
from holdfast.stores.migrate import SEALED
from holdfast.stores.sqlite.jobs import LAW, STATEMENTS, SqliteStore

GUARDS = tuple(name for name in LAW if STATEMENTS[name].startswith("create trigger"))  # indexes stay


class SqliteSide(Side):
    """Reads rows as they are: its form is the one in which they travel."""

    store: SqliteStore
    events = ("insert", "update", "delete")
    _lock_file: int | None = None

    def version(self) -> int:
        with self.store.work(write=False):
            return self.store._version()

    def is_same(self, other: Side) -> bool:
        return isinstance(other, SqliteSide) and os.path.samefile(self.store.path, other.store.path)

    @property
    def _lock_path(self) -> str:
        """Beside the file itself, not beside a link to it."""
        return f"{os.path.realpath(self.store.path)}-{self.instance}-move"

    def take(self) -> None:
        if self._lock_file is not None:
            return
        path = self._lock_path
        found = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(found)
            raise clash(self.instance) from None
        if not os.path.exists(path) or os.stat(path).st_ino != os.fstat(found).st_ino:
            os.close(found)  # whoever had it has just removed it
            self.take()
        else:
            self._lock_file = found

    def close(self) -> None:
        if self._lock_file is not None:
            os.unlink(self._lock_path)
            os.close(self._lock_file)
        super().close()

    def read(self, table: Table, after: int, upto: int) -> list[Row]:
        with self.store.work(write=False):
            cursor = self.store.connection.database.cursor()
            return list(cursor.execute(self._text("read_range", table), {"after": after, "upto": upto}))

    def read_all(self, table: Table) -> Generator[Row, None, None]:
        with self.store.work(write=False):
            yield from self.store.connection.database.cursor().execute(self._text("read_all", table))

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        with self.store.work():
            self.store.connection.database.executemany(self._text("write_rows", table), rows)

    def continue_after(self, last: Mapping[str, int]) -> None:
        with self.store.work():
            for name, number in last.items():
                if name == JOB:
                    self.store.run("set_job_sequence", {"last": number})
                elif number:
                    self.store.run("set_id_sequence", {"table_name": name, "last": number})
                    self.store.run("raise_id_sequence", {"table_name": name, "last": number})

    def lock_everything(self) -> None:
        """A write transaction has the whole file."""

    def put_seal(self, message: str) -> None:
        text = "'" + f"{SEALED}{message}".replace("'", "''") + "'"
        for table, event, seal in self._seals():
            self._define("create_seal", {"table": table, "event": event, "seal": seal, "message": text})

    def take_seal_off(self) -> None:
        for _, _, seal in self._seals():
            self._define("drop_seal", {"seal": seal})

    def _seals(self) -> Iterator[tuple[str, str, str]]:
        for table in self.tables():
            for event in self.events:
                yield queryfile.quoted(table.name), event, queryfile.quoted(f"{table.name}__sealed_{event}")

    def lay_down_law(self, table: str) -> None:
        for row in self.store.rows("catalog_guards", {"table_name": table}):
            self._define("lay_down_law", {"guard": queryfile.quoted(row["name"])})

    def take_up_law(self, queue: str, table: str) -> None:
        if not self.store.rows("catalog_guards", {"table_name": table}):
            for name in GUARDS:
                text = queryfile.fill(STATEMENTS[name], self.instance, table, {"queue_name": f"'{queue}'"})
                self.store.connection.database.execute(text)

    def remove(self) -> None:
        with self.store.work():
            tables = {table.name: table for table in self.tables()}
            self.store.run("drop_rest")
            own = [f"{self.instance}__{name}" for name in ("move", "sequence")]
            for name in [*reversed(in_order(tables)), *own]:
                self._define("drop_table", {"table": queryfile.quoted(name)})
            self.store.run("disown_tables", {"instance": self.instance})
            self.store.run("forget_instance", {"instance": self.instance})

    def ask(self, name: str, table: Table, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        cursor = self.store.connection.database.cursor()
        rows = cursor.execute(self._text(name, table), params)
        return [dict(zip((column[0] for column in cursor.get_description()), row, strict=True)) for row in rows]

    def tell(self, name: str, table: Table, params: Mapping[str, Any] | None = None) -> None:
        self.store.connection.database.execute(self._text(name, table), params)

    def _text(self, name: str, table: Table) -> str:
        first, second = self._walk(table)
        literals = {
            "table": queryfile.quoted(table.name),
            "columns": ", ".join(map(queryfile.quoted, table.columns)),
            "key": ", ".join(map(queryfile.quoted, table.key)),
            "marks": ", ".join("?" * len(table.columns)),
            "first": queryfile.quoted(first),
            "second": queryfile.quoted(second),
        }
        return queryfile.fill(STATEMENTS[name], self.instance, literals=literals)

    def _define(self, name: str, literals: Mapping[str, str]) -> None:
        self.store.connection.database.execute(queryfile.fill(STATEMENTS[name], self.instance, literals=literals))
