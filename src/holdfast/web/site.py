"""What every route works with: the app that is served, and connections to read with.

Writing goes through the app, whose enqueues share a commit. Reading borrows one of a few connections of its own, so that
a long list holds nobody up.
"""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from litestar.di import NamedDependency

from holdfast.app import App
from holdfast.stores.contract import Store
from holdfast.web.duty import ServeDuty
from holdfast.web.live import Live
from holdfast.web.trend import Trend

READERS = 4


class Site:
    """One app as it is served."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.live = Live(app)
        self.trend = Trend()
        self.duty = ServeDuty(app)
        self._free: queue.LifoQueue[Store] = queue.LifoQueue()
        self._room = threading.Semaphore(READERS)

    @contextmanager
    def reader(self) -> Iterator[Store]:
        """A store that nobody else uses meanwhile."""
        with self._room:
            try:
                store = self._free.get_nowait()
            except queue.Empty:
                store = self.app.store.another(self.app.patience)
            try:
                yield store
            finally:
                self._free.put(store)

    def close(self) -> None:
        """Give the readers' connections back."""
        while True:
            try:
                self._free.get_nowait().close()
            except queue.Empty:
                return


TheSite = NamedDependency[Site]  # as a route is given it
