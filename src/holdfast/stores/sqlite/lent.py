"""A connection that a caller lends us: an apsw connection to the same file, in a transaction of theirs."""

from typing import Any

import apsw


class Lent:
    """A caller's connection as the store uses it; how the caller wants rows and cursors neither matters nor is changed."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.changes, self.total_changes = connection.changes, connection.total_changes

    def cursor(self) -> apsw.Cursor:
        cursor = apsw.Cursor(self._connection)
        cursor.row_trace = _unchanged
        return cursor

    def execute(self, text: str, params: Any = None) -> apsw.Cursor:
        return self.cursor().execute(text, params)

    def executemany(self, text: str, rows: Any) -> apsw.Cursor:
        return self.cursor().executemany(text, rows)


def _unchanged(cursor: apsw.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row
