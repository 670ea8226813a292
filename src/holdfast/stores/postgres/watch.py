"""Hearing of due jobs through LISTEN, and looking every second where that does not work.

- Ears are tested: a watch tells itself something from time to time, and one that does not hear it connects anew.
- Behind a pooler that lends its sessions for a transaction nothing can be heard, and LISTEN would stay with strangers.
"""

import logging
import secrets
import select
import socket
import threading
from collections.abc import Callable, Iterator

import psycopg

from holdfast.clock import monotonic
from holdfast.stores.postgres.connection import connect, is_pooled

logger = logging.getLogger("holdfast.worker")
TEST_EVERY = 10.0  # seconds
HEARD_WITHIN = 3.0
LOOK_EVERY = 1.0  # while deaf
DEAF_FOR = 30.0  # seconds until it is tried again
LONGEST_PAUSE = 1.0
TURN = 0.5  # seconds until it is seen whether something is to be tested
ALL_IN = 5  # looks, after which everything is looked at
LOOKS = ("!jobs", "!abort")  # what is looked at: as if it had been told


class ChannelWatch:
    """Calls `wake` for every notification, and once after each new connection, since some may have been missed."""

    def __init__(self, conninfo: str, channel: str, wake: Callable[[str], None]) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._echo = f"{channel}_{secrets.token_hex(4)}"  # what nobody but we listens to
        self._wake = wake
        self._stop = threading.Event()
        self._bell, self._rung = socket.socketpair()  # wakes who listens to the server
        self._thread = threading.Thread(target=self._run, name="holdfast-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._stop.is_set():
            return
        self._stop.set()
        self._bell.send(b"!")
        self._thread.join()
        self._bell.close()
        self._rung.close()

    def _run(self) -> None:
        pause = 0.05
        while not self._stop.is_set():
            try:
                self._hear()
                pause = 0.05
                if not self._stop.is_set():
                    self._look_about()
            except psycopg.Error:
                self._stop.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except Exception:
                logger.exception("Listening failed and is begun again.")
                self._stop.wait(LONGEST_PAUSE)

    def _hear(self) -> None:
        """Until it is closed, or nothing can be heard."""
        with connect(self._conninfo, "holdfast-listen") as database:
            if is_pooled(database):
                return
            for channel in (self._channel, self._echo):
                database.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(channel)), prepare=False)
            self._wake("")
            self._listen(database)

    def _listen(self, database: psycopg.Connection[object]) -> None:
        test_at, asked_at, either = monotonic(), None, select.poll()
        for readable in (database, self._rung):
            either.register(readable.fileno(), select.POLLIN)
        while not self._stop.is_set():
            if asked_at is None and monotonic() >= test_at:
                self._ask(database)
                asked_at = monotonic()
            either.poll(TURN * 1000)
            for channel, told in notifications(database):
                if channel != self._echo:
                    self._wake(told)
                elif asked_at is not None:
                    answer(database)
                    test_at, asked_at = monotonic() + TEST_EVERY, None
            if asked_at is not None and monotonic() - asked_at > HEARD_WITHIN:
                logger.warning("PostgreSQL tells nothing on this connection; jobs are looked for every second.")
                return

    def _ask(self, database: psycopg.Connection[object]) -> None:
        """Without waiting for the answer: perhaps there is none."""
        database.pgconn.send_query(b'notify "' + self._echo.encode() + b'"')
        database.pgconn.flush()

    def _look_about(self) -> None:
        """As if everything had been told that might have been."""
        for turn in range(int(DEAF_FOR / LOOK_EVERY)):
            for news in ("",) if turn % ALL_IN == 0 else LOOKS:
                self._wake(news)
            if self._stop.wait(LOOK_EVERY):
                return


def notifications(database: psycopg.Connection[object]) -> Iterator[tuple[str, str]]:
    """Those that have come, each with its channel, also while the one before was heeded."""
    database.pgconn.consume_input()
    while (told := database.pgconn.notifies()) is not None:
        yield told.relname.decode(), told.extra.decode()


def answer(database: psycopg.Connection[object]) -> None:
    """Read it away: it has come with what was heard."""
    while database.pgconn.get_result() is not None:
        pass
