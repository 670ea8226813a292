"""Hearing of due jobs through LISTEN; where that does not work (a pooler in transaction mode), polling is the fallback."""

import contextlib
import threading
from collections.abc import Callable

import psycopg

from holdfast.stores.postgres.connection import listen


class ChannelWatch:
    """Calls `wake` for every notification, and once after each new connection, since some may have been missed."""

    def __init__(self, conninfo: str, channel: str, wake: Callable[[str], None]) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._wake = wake
        self._stop = threading.Event()
        self._database: psycopg.Connection[object] | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause = 0.1
        while not self._stop.is_set():
            with contextlib.suppress(psycopg.Error):
                self._hear()
                pause = 0.1
            self._stop.wait(pause)
            pause = min(pause * 2, 2.0)

    def _hear(self) -> None:
        with listen(self._conninfo, self._channel) as database:
            self._wake("")
            while not self._stop.is_set():
                for told in database.notifies(timeout=0.5, stop_after=1):
                    self._wake(told.payload)
