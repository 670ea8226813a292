"""Moments that no datetime can hold, which only hands write: `infinity`, or a year before 1 or after 9999.

The driver refuses a whole answer because of one of them. Then it is read again, with the first or the last moment in its place.
"""

from typing import Any

import psycopg
from psycopg import BaseConnection
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq.abc import PGresult
from psycopg.types.datetime import TimestamptzBinaryLoader, TimestamptzLoader

from holdfast.clock import FIRST, LAST


class Text(TimestamptzLoader):
    def load(self, data: Buffer) -> Any:
        try:
            return super().load(data)
        except psycopg.DataError:
            return FIRST if bytes(data).startswith(b"-") or bytes(data).endswith(b"BC") else LAST


class Binary(TimestamptzBinaryLoader):
    def load(self, data: Buffer) -> Any:
        try:
            return super().load(data)
        except psycopg.DataError:
            return FIRST if bytes(data)[0] & 0x80 else LAST


class Clipped:
    """The adapters of a connection, but for moments."""

    def __init__(self, connection: BaseConnection[Any]) -> None:
        self.connection = connection
        self.adapters = AdaptersMap(connection.adapters)
        for loader in (Text, Binary):
            self.adapters.register_loader("timestamptz", loader)


def clipped(result: PGresult, connection: BaseConnection[Any]) -> list[tuple[Any, ...]]:
    """The rows of an answer that the driver has refused."""
    loader = Transformer(Clipped(connection))
    loader.set_pgresult(result)
    return loader.load_rows(0, result.ntuples, tuple)
