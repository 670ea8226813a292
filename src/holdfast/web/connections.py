"""The open connections of a server: how many there may be, and which one is closed when there is no room.

- A connection waits for its client while a request is not complete, while there is none, and while the client does not
  read the answer. Other connections are never closed here: an answer may take as long as it likes.
- If the headers of a request do not come in time, its connection is closed.
- A new connection takes the place of a waiting one: of its own address if that has too many, else of the address with
  the most waiting connections. Of these it is the one that has waited longest. So an address with few connections is
  served while others take all they can get.
- Without room, an address gets its part of a limited number of new connections a second; the others are closed at once.
  An address that asks for more all the time gets none, until it asks for less.
- Each connection of a proxy counts as an address of its own.
"""

import asyncio
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from ipaddress import IPv6Address, ip_network
from typing import Any

from litestar.types import ASGIApp, Receive, Send
from msgspec import Struct

from holdfast.web.bodies import has_body
from holdfast.web.proxies import Proxies, read_address

logger = logging.getLogger("holdfast.web")
HEADERS_WITHIN = 10.0  # seconds for all headers of a request
NEW_A_SECOND = 400  # connections, when there is no room: to open one takes 0.1 ms, to close it as it comes 0.02 ms
NEW_OF_EACH = 10  # of these one address has an equal part, and at least so many
MOST = 4096  # connections; one that waits takes about 25 kB
SHARE = 4  # one address has at most this part of all connections
KEY = "holdfast.connection"  # in the state of a request
MakeHttp = Callable[[dict[str, Any]], asyncio.Protocol]


class Limits(Struct, frozen=True):
    """How many connections are open at the same time."""

    total: int
    each: int  # of one address


def limits_of_process() -> Limits:
    """Half of the file descriptors are for connections, the other half is for files and the database."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    total = MOST if descriptors == resource.RLIM_INFINITY else min(MOST, descriptors // 2)
    return Limits(total, total // SHARE)


class Connection(asyncio.Protocol):
    """One connection: passes everything to the protocol that speaks HTTP, and reports what the client does."""

    def __init__(self, connections: "Connections", address: str, accepted: socket.socket) -> None:
        self.address = address  # as it counts
        self.requests = 0  # that are being answered
        self._connections = connections
        self._accepted = accepted
        self._http = asyncio.Protocol()  # does nothing
        self._opening: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def open(self, make_http: MakeHttp) -> None:
        """Begin to read."""
        self._http = make_http({KEY: self})
        self._opening = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self, self._accepted)
        except OSError:  # the client has gone
            self._connections.remove(self)
            self._accepted.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._http.connection_made(transport)
        if self not in self._connections:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connections.stalls(self)
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._connections.flows(self)
        self._http.resume_writing()

    @property
    def idle(self) -> bool:
        """Whether nothing is left to answer or to send."""
        return not self.requests and (self._transport is None or not self._transport.get_write_buffer_size())

    def close(self) -> None:
        """Close it now; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()
        elif self._opening is None:
            self._accepted.close()


class Waiting:
    """Connections that wait for their clients, by address; of each address the oldest first."""

    def __init__(self) -> None:
        self._addresses = dict[str, dict[Connection, float]]()

    def add(self, connection: Connection, since: float) -> None:
        self.discard(connection)
        self._addresses.setdefault(connection.address, {})[connection] = since

    def discard(self, connection: Connection) -> None:
        group = self._addresses.get(connection.address, {})
        if group.pop(connection, None) is not None and not group:
            del self._addresses[connection.address]

    def oldest(self, address: str | None = None) -> Connection | None:
        """The one that waits longest: of an address, else of the address with the most that wait."""
        if address is not None:
            return next(iter(self._addresses.get(address, ())), None)
        return next(iter(max(self._addresses.values(), key=len, default=())), None)

    def idle_since(self, moment: float) -> list[Connection]:
        """Those that have waited for a request since a moment or longer."""
        groups = self._addresses.values()
        return [each for group in groups for each, since in group.items() if since <= moment and each.idle]


class Connections:
    """All open connections. An ASGI application around another, which sees where a request begins and ends."""

    def __init__(self, app: ASGIApp, limits: Limits, proxies: Proxies, now: Callable[[], float]) -> None:
        self.app = app
        self.limits = limits
        self.proxies = proxies
        self.now = now
        self._open = set[Connection]()
        self._counts = Counter[str]()  # address → its open connections
        self._waiting = Waiting()
        self._used = dict[str, float]()  # address → places that it has asked for; each second gives back its part
        self._closed = Counter[str]()  # `new` or `waiting` → connections that were closed since the last report

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._open

    def admit(self, accepted: socket.socket, peer: tuple[Any, ...]) -> Connection | None:
        """The connection of a new client, in place of another if there is no room; None if none can be closed."""
        address = counted_as(str(peer[0]), peer[1], self.proxies)
        if not self._has_room(address):
            return None
        connection = Connection(self, address, accepted)
        self._open.add(connection)
        self._counts[address] += 1
        self._waiting.add(connection, self.now())
        return connection

    def _has_room(self, address: str) -> bool:
        crowded = self._counts[address] >= self.limits.each
        if not crowded and len(self._open) < self.limits.total:
            return True
        used, places = self._used.setdefault(address, 0), self._places()
        self._used[address] = min(used + 1, 2 * places)
        if used >= places:
            self._closed["new"] += 1
            return False
        return self.make_room(address if crowded else None)

    def _places(self) -> float:
        """How many new connections one address gets in a second when there is no room."""
        return max(NEW_OF_EACH, NEW_A_SECOND / max(1, len(self._used)))

    def renew_places(self, seconds: float) -> None:
        """Let time pass for the addresses that wait for places."""
        renewed = self._places() * seconds
        self._used = {address: used - renewed for address, used in self._used.items() if used > renewed}

    def make_room(self, address: str | None = None) -> bool:
        """Close a waiting connection, of one address or of any; False if all are being answered."""
        found = self._waiting.oldest(address)
        self._closed["new" if found is None else "waiting"] += 1
        if found is not None:
            self.remove(found)
            found.close()
        return found is not None

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        if connection in self._open:
            self._open.remove(connection)
            self._waiting.discard(connection)
            self._counts[connection.address] -= 1
            if not self._counts[connection.address]:
                del self._counts[connection.address]

    def stalls(self, connection: Connection) -> None:
        """Its client does not read the answer."""
        if connection in self._open:
            self._waiting.add(connection, self.now())

    def flows(self, connection: Connection) -> None:
        """Its client reads again."""
        if connection.requests:
            self._waiting.discard(connection)

    def close_late(self) -> None:
        """Close connections whose headers are late."""
        for each in self._waiting.idle_since(self.now() - HEADERS_WITHIN):
            self.remove(each)
            each.close()

    def report(self) -> None:
        """One line in the log if there was no room for all connections since the last one."""
        if self._closed:
            logger.warning(
                "There was no room for new connections. Closed %d that waited for their clients, and %d new ones. At most "
                "%d are open, and %d of one address: raise `ulimit -n`, or name the proxy with `--from`.",
                *(self._closed["waiting"], self._closed["new"], self.limits.total, self.limits.each),
            )
            self._closed.clear()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        connection: Connection | None = scope.get("state", {}).pop(KEY, None)
        if connection is None:  # the lifespan of the server
            await self.app(scope, receive, send)
            return
        connection.requests += 1
        if not has_body(scope):
            self._waiting.discard(connection)
        try:
            await self.app(scope, partial(self._receive, connection, receive), send)
        finally:
            self._answered(connection)

    async def _receive(self, connection: Connection, receive: Receive) -> Any:
        message = await receive()
        if not message.get("more_body", False):
            self._waiting.discard(connection)
        return message

    def _answered(self, connection: Connection) -> None:
        """The connection waits for the next request; if the client did not wait for the answer, that has begun already."""
        connection.requests -= 1
        if not connection.requests and connection in self._open:
            self._waiting.add(connection, self.now())


def counted_as(host: str, port: int, proxies: Proxies) -> str:
    """What counts as one address: with IPv6 a /64, which is what one customer of a provider has."""
    if host in proxies:
        return f"{host} {port}"
    found = read_address(host) if ":" in host else None
    return str(ip_network((int(found), 64), strict=False)) if isinstance(found, IPv6Address) else str(found or host)
