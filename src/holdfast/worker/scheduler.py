"""The scheduler: fires schedules when they are due.

Every worker has one, and any of them fires any schedule: the store lets only one have each time. It rests until the
next time, or until it hears that a schedule was changed; and it looks without being told every `poll` seconds, because
the database's clock may have been set.
"""

import logging
import threading
from collections.abc import Callable

from holdfast.clock import Clock, monotonic
from holdfast.errors import Unavailable
from holdfast.stores.contract import Fired, Store
from holdfast.worker.settings import FAREWELL

logger = logging.getLogger("holdfast.scheduler")
LEAST_REST = 0.5  # seconds between two looks because of news: an SQLite file tells of every write
AFTER_TROUBLE = 1.0
SHORTEST = 0.001


class Scheduler(threading.Thread):
    """Looks at the schedules in a thread of its own, with a connection of its own."""

    def __init__(self, store: Store, clock: Clock, poll: float, on_duty: Callable[[], bool] = lambda: True) -> None:
        super().__init__(name="holdfast-scheduler", daemon=True)
        self.store = store
        self._clock = clock
        self._poll = poll
        self._on_duty = on_duty
        self._wake = threading.Event()
        self._heard = False
        self._heard_at = 0.0
        self._closing = threading.Event()

    def hear(self) -> None:
        """Something was written, perhaps a schedule, or the clock was moved. Cheap: it is called for every enqueue."""
        if not self._heard:
            self._heard = True
            self._wake.set()

    def close(self) -> None:
        self._closing.set()
        self.store.patience = FAREWELL
        self._wake.set()
        if self.is_alive():
            self.join(5.0)
        self.store.close()

    def run(self) -> None:
        while not self._closing.is_set():
            try:
                rest = self._look()
            except Unavailable as error:
                logger.warning("Cannot look at the schedules: %s", error)
                rest = AFTER_TROUBLE
            except Exception:
                logger.exception("A look at the schedules failed.")
                rest = AFTER_TROUBLE
            self._rest(rest)

    def _look(self) -> float:
        """Fire what is due; the seconds until the next look."""
        self._wake.clear()
        if self._heard:
            self._heard, self._heard_at = False, monotonic()
        if not self._on_duty():
            return self._poll
        fired = self.store.fire_due()
        tell(fired)
        if fired.wake_in is None:
            return self._poll
        if not fired.count and fired.wake_in <= 0:
            return AFTER_TROUBLE  # due, and not for us
        return max(SHORTEST, min(fired.wake_in, self._poll))

    def _rest(self, seconds: float) -> None:
        """Until then, or until we hear of something: at once, but not again and again."""
        ends = monotonic() + seconds
        if not self._clock.movable:
            self._closing.wait(max(0.0, min(ends, self._heard_at + LEAST_REST) - monotonic()))
        self._wake.wait(max(0.0, ends - monotonic()))


def tell(fired: Fired) -> None:
    for sentence in fired.told:
        logger.warning("%s", sentence)
