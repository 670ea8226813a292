"""Several statements in one round trip, with less ado than psycopg's own pipeline.

psycopg makes a cursor for each statement, reads its text again and talks to the server before the next one is there: for
the dozen small statements of a worker's turn that was more work than the server has with them. Here they go out together
and their answers are read when all have come.
"""

import re
import select
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import psycopg
from psycopg.abc import Buffer
from psycopg.abc import Transformer as Loader
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult

from holdfast.stores.postgres.moments import clipped

NAMED = re.compile(r"%\(([a-z_]+)\)s")
FINE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
READ, WRITE = (
    select.POLLIN | select.POLLERR | select.POLLHUP | select.POLLNVAL,
    select.POLLOUT,
)  # POLLNVAL: it was closed under us


class Numbered(NamedTuple):
    """A statement as the server reads it, and whose values its numbers stand for."""

    text: bytes
    names: tuple[str, ...]


class Reply:
    """What came of one statement; to be read when the pipeline has ended."""

    result: PGresult

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    @property
    def count(self) -> int:
        """How many rows it changed."""
        return self.result.command_tuples or 0

    def fetchall(self) -> list[tuple[Any, ...]]:
        self._loader.set_pgresult(self.result)
        try:
            return self._loader.load_rows(0, self.result.ntuples, tuple)
        except psycopg.DataError:  # a moment that no datetime can hold
            assert self._loader.connection is not None
            return clipped(self.result, self._loader.connection)

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(iter(self.fetchall()), None)

    def dicts(self) -> list[dict[str, Any]]:
        result = self.result
        names = [(result.fname(index) or b"").decode() for index in range(result.nfields)]
        return [dict(zip(names, row, strict=True)) for row in self.fetchall()]


Answer = psycopg.Cursor[Any] | Reply
ENDED: Any = object()
OUTDATED = (
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.InvalidSqlStatementName,
)  # was prepared for other columns, or is not


class Preparing(NamedTuple):
    """A statement that is on its way to be prepared."""

    name: bytes
    prepares: tuple[bytes, tuple[int, ...]]


class Collected(NamedTuple):
    """A statement with its values, ready to be sent."""

    text: bytes
    values: Sequence[Buffer | None]
    types: tuple[int, ...]
    formats: Sequence[Format]
    reply: Reply


class Wire:
    """One connection's way to send them. Whoever uses it has the connection to themselves."""

    def __init__(self, database: psycopg.Connection[Any]) -> None:
        self._database = database
        self._pgconn = database.pgconn
        self._dumper = Transformer(database)
        self._loader = Transformer(database)
        self._prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._count = 0
        self._collected: list[Collected] = []
        self._unread: deque[Reply | Preparing] = deque()  # ENDED: behind a pipeline
        self._error: psycopg.Error | None = None  # the first one of the pipeline that is being read
        self._ends_later = False  # what is sent last is answered when we come back for it
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, READ)

    def forget(self) -> None:
        """psycopg has dropped all prepared statements of the connection."""
        self._prepared.clear()

    @contextmanager
    def pipeline(self) -> Iterator["Wire"]:
        """What is collected inside goes out at its end, and the first error of the server is raised there.

        Until then the connection may be used for other things, unless something was sent off.
        """
        try:
            yield self
        except BaseException:
            self.abandon()
            raise
        with self._closed_by_trouble():
            self._send_collected()
            error = self._begin_to_end() if self._ends_later else self._end()
        if error is not None:
            raise error

    def end_later(self) -> None:
        """The answer to the last statement of this pipeline is not waited for at its end, but in `finish`."""
        self._ends_later = True

    @contextmanager
    def behind(self) -> Iterator["Wire"]:
        """What is collected inside goes out as one transaction, though others may not be answered yet; `finish` reads the first."""
        try:
            yield self
        except BaseException:
            self._collected = []
            raise
        with self._closed_by_trouble():
            self._send_collected()
            self._sync()

    def finish(self) -> None:
        """What was left to be answered, if anything was; of several pipelines the first."""
        if ENDED not in self._unread:
            return
        with self._closed_by_trouble():
            error = self._end()
        if error is not None:
            raise error

    def ask(self, text: str, params: Mapping[str, Any]) -> Reply:
        """One statement that is a transaction by itself, and its answer; without a pipeline, which would cost as much again."""
        each = self._dumped(text, params)
        try:
            name = self._prepared.get((each.text, each.types))
            if name is None:
                self._collected = [each]
                self._send_collected()
                error = self._end()
            else:
                self._pgconn.send_query_prepared(name, each.values, each.formats, Format.BINARY)
                self._unread, self._error = deque([each.reply]), None
                self._read_one()
                self._read_commit()
                error = self._error
        except BaseException:
            self._collected = []
            self._database.close()  # nobody knows what would come next on it
            raise
        if error is not None:
            self._forget_outdated(error)
            raise error
        return each.reply

    def send_off(self) -> None:
        """What was collected goes out now, and the server begins with it. The rest of the pipeline may come later."""
        with self._closed_by_trouble():
            self._send_collected()
            self._pgconn.send_flush_request()
            self._pgconn.flush()

    def read(self, count: int) -> bool:
        """The answers to the first statements that were sent off; False if there was an error among them."""
        with self._closed_by_trouble():
            while self._unread and count:
                count -= self._read_one()
        return self._error is None

    def abandon(self) -> None:
        """Forget what was collected, and the answers to what was sent off."""
        self._collected = []
        while self._pgconn.pipeline_status:
            with self._closed_by_trouble():
                self._end()

    @contextmanager
    def _closed_by_trouble(self) -> Iterator[None]:
        """Nobody knows what would come next on the connection."""
        try:
            yield
        except BaseException:
            self._database.close()
            raise

    def send(self, text: str, params: Mapping[str, Any] | None = None) -> Reply:
        each = self._dumped(text, params)
        self._collected.append(each)
        return each.reply

    def _dumped(self, text: str, params: Mapping[str, Any] | None) -> Collected:
        statement = numbered(text)
        values = [params[name] for name in statement.names] if params else ()
        dumped = self._dumper.dump_sequence(values, [PyFormat.AUTO] * len(values))
        types, formats = self._dumper.types or (), self._dumper.formats or ()
        return Collected(statement.text, dumped, types, formats, Reply(self._loader))

    def _send_collected(self) -> None:
        if not self._pgconn.pipeline_status:
            self._pgconn.enter_pipeline_mode()
            self._unread, self._error = deque(), None
        for each in self._collected:
            if self._database.prepare_threshold is None:
                self._pgconn.send_query_params(each.text, each.values, each.types, each.formats, Format.BINARY)
            else:
                name = self._prepared.get((each.text, each.types)) or self._prepare(each)
                self._pgconn.send_query_prepared(name, each.values, each.formats, Format.BINARY)
            self._unread.append(each.reply)
        self._collected = []

    def _begin_to_end(self) -> psycopg.Error | None:
        """All is sent, and all answers but the last are read."""
        self._sync()
        while len(self._unread) > 2 and self._error is None:
            self._read_one()
        return None if self._error is None else self._end()

    def _end(self) -> psycopg.Error | None:
        """Give every reply of the first pipeline its result; the first error."""
        if ENDED not in self._unread:
            self._sync()
        while self._unread[0] is not ENDED:
            self._read_one()
        while not self._check(self._next_result(), ExecStatus.PIPELINE_SYNC):
            pass  # what was refused when it was to be committed
        self._unread.popleft()
        if not self._unread:
            self._pgconn.exit_pipeline_mode()
        error, self._error = self._error, None
        if error is not None:
            self._forget_outdated(error)
        return error

    def _forget_outdated(self, error: psycopg.Error) -> None:
        """What is prepared stays so after other errors."""
        if isinstance(error, OUTDATED):
            self.forget()

    def _sync(self) -> None:
        self._pgconn.pipeline_sync()
        self._unread.append(ENDED)
        self._ends_later = False

    def _read_one(self) -> int:
        """How many replies it was for: the preparing of a statement has none."""
        reply, result = self._unread.popleft(), self._next_result()
        fine = self._check(result, *FINE)
        if isinstance(reply, Preparing):
            if not fine and self._prepared.get(reply.prepares) == reply.name:
                del self._prepared[reply.prepares]
            return 0
        if fine:
            reply.result = result
        return 1

    def _read_commit(self) -> None:
        """A statement that is a transaction by itself is answered before it is committed, and only then comes what can go wrong."""
        self._wait()
        while (result := self._pgconn.get_result()) is not None:
            self._check(result, *FINE)
            self._wait()

    def _check(self, result: PGresult, *fine: int) -> bool:
        """Whether it is as it should be; the first that is not is kept."""
        if result.status in fine:
            return True
        self._error = self._error or psycopg.errors.error_from_result(result, self._database.info.encoding)
        return False

    def _prepare(self, statement: "Collected") -> bytes:
        self._count += 1
        name = self._prepared[statement.text, statement.types] = f"holdfast_{self._count}".encode()
        self._pgconn.send_prepare(name, statement.text, statement.types)
        self._unread.append(Preparing(name, (statement.text, statement.types)))
        return name

    def _next_result(self) -> PGresult:
        while True:
            self._wait()
            result = self._pgconn.get_result()
            if result is not None:
                return result
            if self._pgconn.status == ConnStatus.BAD:
                raise psycopg.OperationalError("the connection was lost")

    def _wait(self) -> None:
        """Until there is a result to be had; sends what is still to be sent. Waiting leaves the interpreter to others."""
        pgconn = self._pgconn
        while pgconn.is_busy():
            unsent = pgconn.flush()
            if unsent:
                self._poll.modify(pgconn.socket, READ | WRITE)
            for _, event in self._poll.poll():
                if event & READ:
                    pgconn.consume_input()
            if unsent:
                self._poll.modify(pgconn.socket, READ)


@lru_cache(maxsize=1000)
def numbered(text: str) -> Numbered:
    """From the form that psycopg reads."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}"

    return Numbered(NAMED.sub(number, text).replace("%%", "%").encode(), tuple(names))
