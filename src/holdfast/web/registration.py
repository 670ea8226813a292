"""A server in the database, while it runs: where people reach it, and a heartbeat.

`holdfast login-link` finds the address there. A login link that a server prints names the server's row, so no other
server accepts it, nor the same one after a restart.
"""

import threading
from contextlib import suppress

from holdfast.app import App
from holdfast.errors import HoldfastError
from holdfast.stores.contract import Store

CLOSE_WITHIN = 2.0  # seconds


class Registration:
    """The row of a server, from its start to its end."""

    def __init__(self, app: App, address: str) -> None:
        self._app = app
        self.address = address
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="holdfast-registration", daemon=True)
        self.server = 0

    def __enter__(self) -> "Registration":
        self.server = self._app.store.add_server(self.address)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(CLOSE_WITHIN)
        with suppress(HoldfastError):  # without a heartbeat it ends as well
            self._app.store.drop_server(self.server)

    def _beat(self) -> None:
        store: Store | None = None
        while not self._ending.wait(self._app.heartbeat):
            with suppress(HoldfastError):  # the next one may come through
                store = store or self._app.store.another(self._app.patience)
                if not store.beat_server(self.server):  # it stood still for long, and was forgotten
                    self.server = store.add_server(self.address)
        if store is not None:
            store.close()
