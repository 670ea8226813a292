"""What callers of this process tell a worker: that something changed or was written, or that they have claimed a job for it.

- Only the main thread is interrupted, by Ctrl-C or by the handler of a signal that raises. An interrupt inside an event or a
  condition leaves its lock locked for ever, and with it whoever waits there. So the main thread tells in one step that cannot
  be interrupted, and a thread of the worker does the rest. Every other thread does it itself.
- Who was interrupted before it could tell is looked after once a second.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue

from holdfast.stores.contract import News

logger = logging.getLogger("holdfast.worker")
LOOK_EVERY = 1.0  # seconds


class Messages(threading.Thread):
    """Carries out what the main thread has told."""

    def __init__(
        self, end_offers: Callable[[], None], change: Callable[[], None], hear: Callable[[News | str], None]
    ) -> None:
        super().__init__(name="holdfast-messages", daemon=True)
        self._end_offers = end_offers
        self._change = change
        self._hear = hear
        self._told: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def offer_ended(self) -> None:
        self._tell(self._end_offers)

    def changed(self) -> None:
        self._tell(self._change)

    def news(self, news: News | str) -> None:
        self._tell(partial(self._hear, news))

    def close(self) -> None:
        self._told.put(None)
        self.join(5.0)

    def may_be_interrupted(self) -> bool:
        return threading.get_ident() == threading.main_thread().ident

    def _tell(self, action: Callable[[], None]) -> None:
        if self.may_be_interrupted():
            self._told.put(action)
        else:
            action()

    def run(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception:
                logger.exception("What a caller told this worker could not be done.")

    def _next(self) -> Callable[[], None] | None:
        try:
            return self._told.get(timeout=LOOK_EVERY)
        except Empty:
            return self._end_offers
