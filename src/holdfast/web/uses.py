"""When tokens and sessions were used last: stored at most once a minute for each, so that requests stay reads."""

import threading
from contextlib import suppress

from holdfast.clock import Clock, monotonic
from holdfast.errors import HoldfastError
from holdfast.stores.contract import SessionLimits, Store, TokenRow

EVERY = 60.0  # seconds between two writes for a token
SHARE = 10  # of the idle timeout of a session: it is written at least so often in that time
PATIENCE = 0.5  # seconds; a request does not wait longer to have its use stored
MOST = 10_000  # tokens that are remembered


class Uses:
    """The last uses that this process has stored."""

    def __init__(self, clock: Clock, limits: SessionLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        self._stored: dict[int, float] = {}

    def record(self, store: Store, row: TokenRow) -> None:
        """Store that it is used now, unless that was done a moment ago. A database that takes no writes is no error."""
        idle = self._limits.idle_timeout if row.kind == "session" else None
        if self._is_due(row.id, EVERY if idle is None else min(EVERY, idle.total_seconds() / SHARE)):
            with suppress(HoldfastError), store.until(monotonic() + PATIENCE):
                store.use_token(row.id, idle)

    def _is_due(self, token: int, every: float) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            if now - self._stored.get(token, now - every) < every:
                return False
            if len(self._stored) >= MOST:
                self._stored.clear()
            self._stored[token] = now
            return True
