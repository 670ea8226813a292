"""The pulse: moves the worker's heartbeat, and hears of jobs that somebody wants to end or holds."""

import logging
import threading
from collections.abc import Callable, Sequence

from holdfast.clock import monotonic, sleep
from holdfast.errors import Unavailable
from holdfast.stores.contract import Store
from holdfast.worker.fitness import Outages
from holdfast.worker.settings import FAREWELL

logger = logging.getLogger("holdfast.worker")
LEAST_REST = 0.02  # seconds between two looks for aborts: wake-ups come in storms
LONGEST_REST = 0.5


class Pulse(threading.Thread):
    """One heartbeat for all jobs of a worker, in a thread and on a connection of its own."""

    def __init__(
        self,
        store: Store,
        heartbeat: float,
        beat: Callable[[Store], None],
        asked: Callable[[Store], Sequence[tuple[int, int, str]]],
        cancel: Callable[[int, int, str], None],
        hand_back: Callable[[Store], None],
        outages: Outages,
    ) -> None:
        super().__init__(name="holdfast-pulse", daemon=True)
        self.store = store
        self.wake = threading.Event()
        self._heartbeat = heartbeat
        self._beat = beat
        self._asked = asked
        self._cancel = cancel
        self._hand_back = hand_back
        self._outages = outages
        self._closing = False
        self._beat_at = 0.0

    def beat_now(self) -> None:
        """Do not wait for the next beat: there is something to hear or to tell."""
        self._beat_at = 0.0
        self.wake.set()

    def close(self) -> None:
        self._closing = True
        self.store.patience = FAREWELL
        self.wake.set()
        self.join(5.0)
        self.store.close()

    def run(self) -> None:
        while not self._closing:
            now, woken = monotonic(), self.wake.is_set()
            self.wake.clear()
            try:
                if now >= self._beat_at:
                    self._beat_at, woken = now + self._heartbeat, True
                    self._outages.began(self.name)
                    self._beat(self.store)
                    self._outages.worked(self.name)
                if woken:
                    for job_id, attempt_number, actor in self._asked(self.store):
                        self._cancel(job_id, attempt_number, actor)
                self._hand_back(self.store)
            except Unavailable as error:
                logger.warning("The heartbeat does not get through: %s", error)
                self._outages.failed(self.name, error)
            except Exception:
                logger.exception("The pulse stumbled and goes on.")
            sleep(LEAST_REST)
            self.wake.wait(max(0.0, min(self._beat_at - monotonic(), LONGEST_REST)))
