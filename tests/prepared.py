"""Databases on PostgreSQL that are copies of a prepared one: to copy an instance costs a tenth of what it costs to make it.

- What a test gets is its own, as new, and gone after the test.
- What is prepared is prepared once for each test process, when a test first wants it.
"""

import itertools
import os
from collections.abc import Callable
from typing import Any

import psycopg

from tests.postgres_server import Server

numbers = itertools.count()


class Prepared:
    """Those of a test process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._models: dict[Callable[[str], None], str] = {}
        self._connection: Any = None

    def copy_of(self, prepare: Callable[[str], None]) -> str:
        """The URL of a database that is as `prepare` leaves it."""
        if prepare not in self._models:
            model = self.new()
            prepare(model)
            self._models[prepare] = _name(model)
        return self.new(self._models[prepare])

    def new(self, model: str = "template1") -> str:
        name = f"tests_{os.getpid()}_{next(numbers)}"
        self._run(f'create database "{name}" template "{model}" strategy file_copy')  # through the log it takes longer
        return self._server.url(name)

    def drop(self, url: str) -> None:
        self._run(f'drop database if exists "{_name(url)}" with (force)')

    def _run(self, statement: str) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._server.url(), autocommit=True)
        self._connection.execute(statement.encode())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _name(url: str) -> str:
    return url.rpartition("?")[0].rpartition("/")[2]
