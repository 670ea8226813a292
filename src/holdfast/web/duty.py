"""Whether this server has the duty `serve`: operators switch it by rule, as they do workers' duties (F20)."""

import socket
import threading

from holdfast.app import App
from holdfast.clock import monotonic
from holdfast.errors import Unavailable
from holdfast.jobs.placement import DUTIES, duties_of
from holdfast.version import VERSION


class ServeDuty:
    """Asks for the rules once in a heartbeat, and keeps what it knew while the database cannot be asked."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._until = 0.0
        self._on = True

    @property
    def known(self) -> bool | None:
        """What was found a moment ago; None: ask `look`."""
        return self._on if monotonic() < self._until else None

    def look(self) -> bool:
        """Reads the database; not for the event loop."""
        with self._lock:
            if self.known is None:
                try:
                    rules = self._app.duty_rules()
                    self._on = "serve" in duties_of(DUTIES, rules, VERSION, socket.gethostname(), ())
                except Unavailable:
                    pass
                self._until = monotonic() + self._app.heartbeat
            return self._on
