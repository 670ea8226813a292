"""What every route works with: the app that is served, and connections to read with.

Writing goes through the app, whose enqueues share a commit. Reading borrows one of a few connections of its own, so that
a long list holds nobody up.
"""

import logging
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from litestar.di import NamedDependency

from holdfast.app import App
from holdfast.builds.project import BuildSettings
from holdfast.projects import Projects
from holdfast.stores.contract import SessionLimits, Store
from holdfast.web.callers import SITE, Caller
from holdfast.web.duty import ServeDuty
from holdfast.web.hook_bodies import HookBodies
from holdfast.web.live import Live
from holdfast.web.registration import Registration
from holdfast.web.tails import Tails
from holdfast.web.trend import Trend
from holdfast.web.uses import Uses

logger = logging.getLogger("holdfast.web")
READERS = 4
TEND_EVERY = 1.0  # seconds
CLOSE_WITHIN = 2.0  # seconds


class Site:
    """One app as it is served."""

    def __init__(
        self,
        app: App,
        projects: Projects | None = None,
        *,
        public_url: str | None = None,
        session_limits: SessionLimits | None = None,
        registration: Registration | None = None,
    ) -> None:
        self.app = app
        self.public_url = public_url
        self.session_limits = session_limits or SessionLimits()
        self.registration = registration
        self.uses = Uses(app.clock, self.session_limits)
        self.live = Live(app)
        self.trend = Trend()
        self.duty = ServeDuty(app)
        # Without any nothing is built here, and what is in the database can be looked at.
        self.projects = projects or Projects(app, BuildSettings(), Path.cwd(), {}, declares=False)
        self.tails = Tails()
        self.hook_bodies = HookBodies()
        self._closing = threading.Event()
        self._tending: threading.Thread | None = None
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

    def start(self) -> None:
        """Look after the folders of builds, also where no worker does."""
        if self.projects.declares:
            self._tending = threading.Thread(target=self._tend, daemon=True)
            self._tending.start()

    def _tend(self) -> None:
        store = self.app.store.another(self.app.patience)
        while not self._closing.is_set():
            try:
                self.projects.sweep(store)
            except Exception:
                logger.exception("The folders of builds could not be swept.")
            self._closing.wait(TEND_EVERY)
        store.close()

    def close(self) -> None:
        """Give the connections back."""
        self._closing.set()
        if self._tending is not None:
            self._tending.join(CLOSE_WITHIN)
        while True:
            try:
                self._free.get_nowait().close()
            except queue.Empty:
                return


def site_of(scope: Mapping[str, Any]) -> Site:
    """The site that a request is about, as the gate has put it there."""
    found: Site = scope[SITE]
    return found


TheSite = NamedDependency[Site]  # as a route is given it
TheCaller = NamedDependency[Caller]  # who asks, likewise
