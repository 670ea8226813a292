"""A stranger's connection to the database: plain SQL past Holdfast, in the words of either dialect.

Statements write parameters as `:name`, and `{job}` or `{queue:mail}` for the instance's and a queue's tables.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import psycopg
import pytest
from psycopg.rows import dict_row

PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
SLOT = re.compile(r"\{(queue:)?(\w+)\}")


class RawSql:
    """One connection outside of any store. Autocommit, except inside `transaction()`."""

    prepares = False  # what is asked again and again, of tables that stay as they are

    def __init__(self, url: str, instance: str, session: Any = None) -> None:
        """`session`: another one than its own, on PostgreSQL. It stays open."""
        self.instance, self._own = instance, session is None
        self._filled: dict[str, str] = {}
        self.postgres = url.startswith("postgresql")
        self.connection: Any
        if self.postgres:
            self.connection = session or psycopg.connect(url, autocommit=True)
        else:
            self.connection = apsw.Connection(url.removeprefix("sqlite:///"))
            self.connection.set_busy_timeout(5000)

    def __call__(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        """Run a statement; its rows, if it has any."""
        text = self.filled(statement)
        if self.postgres:
            with self.connection.cursor(row_factory=dict_row) as cursor:
                cursor.execute(text, parameters, prepare=self.prepares and text.startswith("select"))
                return cursor.fetchall() if cursor.pgresult.nfields else []
        cursor = self.connection.cursor().execute(text, parameters)
        try:
            names = [column[0] for column in cursor.get_description()]
        except apsw.ExecutionCompleteError:  # they are told only while there are rows
            return []
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def value(self, statement: str, **parameters: Any) -> Any:
        """The only value of the only row."""
        ((found,),) = [tuple(row.values()) for row in self(statement, **parameters)]
        return found

    def filled(self, statement: str) -> str:
        """With the names of its tables."""
        if statement not in self._filled:
            text = SLOT.sub(self._table, statement)
            self._filled[statement] = PARAMETER.sub(r"%(\1)s", text.replace("%", "%%")) if self.postgres else text
        return self._filled[statement]

    def _table(self, match: re.Match[str]) -> str:
        return f'"{self.instance}_{match[2]}"' if match[1] else f'"{self.instance}__{match[2]}"'

    def row(self, job_id: int) -> dict[str, Any]:
        """Every column of a job's row."""
        (found,) = self("select * from {job} where id = :id", id=job_id)
        return found

    @contextmanager
    def refused(self, match: str | None = None) -> Iterator[None]:
        """What is done inside must be refused by the law of the database, not for a mistake in the statement."""
        expected = psycopg.IntegrityError if self.postgres else apsw.ConstraintError
        with pytest.raises(expected, match=match):
            yield

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """The connection inside a transaction of its own; an exception rolls it back."""
        self.connection.execute("begin" if self.postgres else "begin immediate")
        try:
            yield self.connection
        except BaseException:
            self.connection.execute("rollback")
            raise
        self.connection.execute("commit")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything read inside is of one moment, whoever writes meanwhile."""
        self.connection.execute("begin isolation level repeatable read" if self.postgres else "begin")
        try:
            yield
        finally:
            self.connection.execute("commit")  # after a rollback nothing is prepared any more

    def close(self) -> None:
        if self._own:
            self.connection.close()
