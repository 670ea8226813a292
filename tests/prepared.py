"""Databases on PostgreSQL that are copies of a prepared one: to copy an instance costs a tenth of what it costs to make it.

- What a test gets is its own, and as new. If it has only written rows, the next test gets the same, with the rows put back.
- What is prepared is prepared once for each test process, when a test first wants it.
"""

import itertools
import os
from collections.abc import Callable
from typing import Any

import psycopg
from msgspec import Struct

from tests.as_it_was import is_restored, remember
from tests.postgres_server import Server

Prepare = Callable[[str], None]
numbers = itertools.count()
TIDY_EVERY = 10  # tests that had the same database


sessions: dict[str, "psycopg.Connection[Any]"] = {}  # our own, in databases that tests have one after the other


class Copy(Struct):
    """A database that can be lent again."""

    model: str
    url: str
    lent: int = 0


class Prepared:
    """Those of a test process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._models: dict[Prepare, str] = {}
        self._lent: dict[str, Copy] = {}
        self._idle: list[Copy] = []
        self._used_up: list[str] = []
        self._connection: Any = None

    def copy_of(self, prepare: Prepare) -> str:
        """The URL of a database that is as `prepare` leaves it."""
        if prepare not in self._models:
            self._models[prepare] = self._model(prepare)
        model = self._models[prepare]
        copy = next((copy for copy in self._idle if copy.model == model), None)
        if copy:
            self._idle.remove(copy)
        else:
            copy = Copy(model, self.new(model))
        self._lent[copy.url] = copy
        return copy.url

    def _model(self, prepare: Prepare) -> str:
        url = self.new()
        prepare(url)
        with psycopg.connect(url, autocommit=True) as session:
            remember(session)
        return _name(url)

    def new(self, model: str = "template1") -> str:
        name = f"tests_{os.getpid()}_{next(numbers)}"
        self._run(f'create database "{name}" template "{model}" strategy file_copy')  # through the log it takes longer
        return self._server.url(name)

    def drop(self, url: str) -> None:
        """A test has had it."""
        copy = self._lent.pop(url, None)
        if copy and self._is_as_new(copy):
            self._idle.append(copy)
            return
        self._remove(*self._used_up)
        self._used_up.clear()
        if session := sessions.pop(url, None):
            session.close()
            self._used_up.append(url)  # with the next: as long as a session is ending, the server sleeps for 0.1 s
        else:
            self._remove(url)

    def _remove(self, *urls: str) -> None:
        for url in urls:
            self._run(f'drop database if exists "{_name(url)}" with (force)')

    def _is_as_new(self, copy: Copy) -> bool:
        try:
            if copy.url not in sessions:
                sessions[copy.url] = psycopg.connect(copy.url, autocommit=True)
            if not is_restored(sessions[copy.url]):
                return False
        except psycopg.Error:  # the test has taken away what it needs
            return False
        copy.lent += 1
        if copy.lent % TIDY_EVERY == 0:
            sessions[copy.url].execute("vacuum")
        return True

    def _run(self, statement: str) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._server.url(), autocommit=True)
        self._connection.execute(statement.encode())

    def close(self) -> None:
        for session in (
            self._connection,
            *(sessions.pop(copy.url, None) for copy in (*self._idle, *self._lent.values())),
        ):
            if session is not None:
                session.close()


def session_in(url: str) -> "psycopg.Connection[Any] | None":
    """Our own session there, if there is one: it is warm, which to look at every table of an instance is cheaper with."""
    try:
        sessions[url].execute("select")
    except (KeyError, psycopg.OperationalError):  # a test may have ended it
        return None
    return sessions[url]


def _name(url: str) -> str:
    return url.rpartition("?")[0].rpartition("/")[2]
