"""The server of `holdfast serve`, `dev` and `demo`: uvicorn, with limits for connections.

uvicorn speaks HTTP and runs the application. `Acceptor` accepts the connections instead of asyncio:

- It empties the queue of the kernel quickly, so that a client does not wait behind thousands of others.
- It opens only a few connections at a time, so that open ones are served between them.
- Without a free file descriptor it closes a waiting connection and tries again.
- It writes at most one line a second to the log, however many connections are closed.
"""

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from litestar.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.clock import monotonic
from holdfast.web.connections import Connection, Connections, MakeHttp, limits_of_process
from holdfast.web.proxies import Proxies

ACCEPTED_TOGETHER = 500  # connections in a turn of the event loop; each takes 0.01 ms
ADMITTED_TOGETHER = 40  # of these; those whose places they take are closed in the next turn
OPENED_TOGETHER = 20  # connections in a turn of the event loop; each takes 0.1 ms
TICK = 0.1  # seconds between looks at late connections
REPORT_EVERY = 1.0  # seconds between lines in the log
RETRY_AFTER = 0.1  # seconds until the next accept when no file descriptor is free
IDLE = 5  # seconds that a connection stays open after an answer, until the next request begins
STREAMS_GET = 2  # seconds to end when the server stops
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def server_at(listener: socket.socket, asgi: ASGIApp, proxies: Sequence[str] = ()) -> "Server":
    """A server of an application; `proxies` are addresses and networks."""
    return Server(listener, Connections(asgi, limits_of_process(), Proxies(proxies), monotonic))


class Server(uvicorn.Server):
    """A uvicorn server for one listening socket."""

    def __init__(self, listener: socket.socket, connections: Connections) -> None:
        super().__init__(configuration(connections))
        self.acceptor = Acceptor(listener, connections, self._make_http)

    def _make_http(self, state: dict[str, Any]) -> asyncio.Protocol:
        return H11Protocol(self.config, self.server_state, {**self.lifespan.state, **state})

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self.acceptor.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.acceptor.stop()
        await super().shutdown(sockets=[])


def configuration(asgi: Any) -> uvicorn.Config:
    return uvicorn.Config(
        asgi,
        http=H11Protocol,  # it limits the size of headers
        ws="none",
        log_level="error",  # a warning for each request that is not HTTP would fill the disk
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=STREAMS_GET,
    )


class Acceptor:
    """Accepts connections at a listening socket, and opens them."""

    def __init__(self, listener: socket.socket, connections: Connections, make_http: MakeHttp) -> None:
        self.listener = listener
        self.connections = connections
        self.make_http = make_http
        self._accepted = deque[Connection]()  # not open yet
        self._timers = dict[Callable[[], None], asyncio.TimerHandle]()

    def start(self) -> None:
        self.listener.setblocking(False)
        self._listen()
        self._tick()
        self._report()

    def stop(self) -> None:
        """Accept nothing more; open connections go on."""
        for timer in self._timers.values():
            timer.cancel()
        asyncio.get_running_loop().remove_reader(self.listener)
        self.listener.close()

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self.listener, self._accept)

    def _accept(self) -> None:
        if not self._accepted:
            asyncio.get_running_loop().call_soon(self._open)
        admitted = 0
        for _ in range(ACCEPTED_TOGETHER):
            try:
                accepted, peer = self.listener.accept()
            except OSError as error:  # there is no client any more, or no file descriptor
                if error.errno in NO_DESCRIPTOR:
                    self._wait_for_descriptor()
                return
            connection = self.connections.admit(accepted, peer)
            if connection is None:
                accepted.close()
                continue
            self._accepted.append(connection)
            admitted += 1
            if admitted == ADMITTED_TOGETHER:
                return

    def _open(self) -> None:
        for _ in range(min(OPENED_TOGETHER, len(self._accepted))):
            connection = self._accepted.popleft()
            if connection in self.connections:
                connection.open(self.make_http)
        if self._accepted:
            asyncio.get_running_loop().call_soon(self._open)

    def _wait_for_descriptor(self) -> None:
        self.connections.make_room()
        asyncio.get_running_loop().remove_reader(self.listener)
        self._later(RETRY_AFTER, self._listen)

    def _tick(self) -> None:
        self.connections.close_late()
        self.connections.renew_places(TICK)
        self._later(TICK, self._tick)

    def _report(self) -> None:
        self.connections.report()
        self._later(REPORT_EVERY, self._report)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._timers[act] = asyncio.get_running_loop().call_later(seconds, act)
