"""Connections that never finish a request, and how many there may be: a real server, and real sockets."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import anyio
import pytest

from holdfast.clock import MovableClock
from holdfast.web import connections, server
from holdfast.web.connections import Connections, Limits, counted_as
from holdfast.web.proxies import Proxies
from holdfast.web.server import Server
from tests.cli.terminal import eventually

PATIENCE = 60.0
ASK, STREAM, FLOOD, BIG = (
    f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for path in ("/", "/stream", "/flood", "/big")
)
POST = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


class Site:
    """Answers at once, `/big` much, `/body` after its body; `/stream` sends a line now and then, `/flood` all the time."""

    ending = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        while scope["path"] == "/body" and (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while scope["path"] in ("/stream", "/flood") and not self.ending:
            text = b"line\n" if scope["path"] == "/stream" else b"line\n" * 20_000
            await send({"type": "http.response.body", "body": text, "more_body": True})
            await anyio.sleep(0.01)
        text = b"line\n" * 4_000_000 if scope["path"] == "/big" else b""
        await send({"type": "http.response.body", "body": text + b"hello"})


class Running:
    """A server in a thread, and its clients."""

    def __init__(self, limits: Limits, proxies: Proxies) -> None:
        self.clock, self.site, self.clients = MovableClock(), Site(), list[socket.socket]()
        listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.address = listener.getsockname()
        self.server = Server(listener, Connections(self.site, limits, proxies, self.clock.monotonic))
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()

    def client(self, sends: bytes = b"", host: str = "127.0.0.1") -> socket.socket:
        """The server accepts clients in the order in which they are made."""
        self.clients.append(socket.create_connection(self.address, PATIENCE, (host, 0)))
        self.clients[-1].sendall(sends)
        return self.clients[-1]

    def crowd(self, *hosts: str, sends: bytes = b"GET /") -> list[socket.socket]:
        return [self.client(sends, host) for host in hosts]

    def close(self) -> None:
        self.site.ending = self.server.should_exit = True
        for client in self.clients:
            client.close()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


Run = Callable[..., Running]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(server, "TICK", 0.02)
    monkeypatch.setattr(server, "IDLE", 1000)
    made = list[Running]()

    def begin(total: int = 100, each: int = 100, proxies: tuple[str, ...] = ()) -> Running:
        made.append(Running(Limits(total, each), Proxies(proxies)))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def answered(client: socket.socket) -> bool:
    """Waits for the end of an answer."""
    end = b""
    while b"hello" not in end:
        part = client.recv(65536)
        if not part:
            return False
        end = end[-5:] + part
    return True


def streams(client: socket.socket) -> bool:
    """Waits for new lines."""
    found = 0
    while found < 5:
        part = client.recv(100)
        if not part:
            return False
        found += part.count(b"l")
    return True


def closed(client: socket.socket) -> bool:
    """Waits for the end of the connection."""
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize(
    "begins",
    [[b""], [b"G"], [ASK[:-1]], [ASK, b"GET /"], [ASK + b"GET /"]],
    ids=["nothing", "a byte", "some headers", "a second request", "a second request with the first"],
)
def test_headers_come_within_ten_seconds(run: Run, begins: list[bytes]) -> None:
    here = run()

    def begin() -> socket.socket:
        client = here.client()
        for part in begins:
            client.sendall(part)
            assert not part.startswith(ASK) or answered(client)
        return client

    late = begin()
    assert answered(here.client(ASK))  # after it
    here.clock.advance(2)
    quick = begin()
    assert answered(here.client(ASK))
    here.clock.advance(9)
    assert closed(late)
    quick.sendall(ASK.removeprefix(begins[-1].removeprefix(ASK)))
    assert answered(quick)


def test_a_header_that_comes_byte_by_byte_is_late_too(run: Run) -> None:
    here = run()
    slow = here.client(b"GET / HTTP/1.1\r\nX: ")
    assert answered(here.client(ASK))
    for _ in range(4):
        here.clock.advance(3)
        try:
            slow.sendall(b"x")
        except ConnectionError:
            break
    assert closed(slow)


def test_an_answer_takes_as_long_as_it_likes(run: Run) -> None:
    here = run()
    stream, late = here.client(STREAM), here.client()
    assert streams(stream)
    here.clock.advance(86400)
    assert closed(late)
    assert streams(stream)


def test_a_body_and_an_answer_that_is_read_late_have_more_than_ten_seconds(run: Run) -> None:
    here = run()
    body, big, late = here.client(POST), here.client(BIG), here.client()
    assert big.recv(1)
    assert answered(here.client(ASK))
    here.clock.advance(11)
    assert closed(late)
    body.sendall(b"x" * 10)
    assert answered(body)
    assert answered(big)


def test_after_an_answer_the_next_request_has_ten_seconds_again(run: Run) -> None:
    here = run()
    client = here.client()
    for _ in range(4):
        here.clock.advance(6)
        client.sendall(ASK)
        assert answered(client)


def test_without_room_the_connection_that_waits_longest_is_closed(run: Run) -> None:
    here = run(total=4)
    first, *others = here.crowd(*["127.0.0.2"] * 4)
    assert answered(here.client(ASK, "127.0.0.3"))
    assert closed(first)
    for other in others:
        other.sendall(ASK.removeprefix(b"GET /"))
        assert answered(other)


def test_without_room_the_address_with_the_most_waiting_connections_loses_one(run: Run) -> None:
    here = run(total=6)
    modest, *_ = here.crowd("127.0.0.1", *["127.0.0.2"] * 3, *["127.0.0.3"] * 2)
    others = here.crowd(*["127.0.0.3", "127.0.0.2"] * 20)
    modest.sendall(ASK.removeprefix(b"GET /"))
    assert answered(modest)
    assert all(closed(other) for other in others[:30])


def test_an_address_has_a_limit_of_its_own(run: Run) -> None:
    here = run(total=100, each=3)
    (other,) = here.crowd("127.0.0.3")
    first, *rest = here.crowd(*["127.0.0.2"] * 3)
    assert answered(here.client(ASK, "127.0.0.2"))
    assert closed(first)
    for client in (other, *rest[1:]):
        client.sendall(ASK.removeprefix(b"GET /"))
        assert answered(client)


def test_a_proxy_has_no_limit_of_its_own(run: Run) -> None:
    here = run(total=100, each=3, proxies=("127.0.0.8/30",))
    for client in here.crowd(*["127.0.0.9"] * 20):
        client.sendall(ASK.removeprefix(b"GET /"))
        assert answered(client)


def test_no_answer_is_cut_off(run: Run) -> None:
    """If all connections are answered, a new one is closed."""
    here = run(total=2)
    held = here.crowd("127.0.0.1", "127.0.0.2", sends=STREAM)
    assert all(streams(each) for each in held)
    assert closed(here.client(ASK, "127.0.0.3"))
    assert all(streams(each) for each in held)


def test_a_body_that_is_not_complete_may_be_closed(run: Run) -> None:
    here = run(total=2)
    stream, part = here.client(STREAM), here.client(POST + b"x")
    assert streams(stream)
    assert answered(here.client(ASK, "127.0.0.3"))
    assert closed(part)
    assert streams(stream)


def test_an_answer_that_is_not_read_may_be_closed(run: Run) -> None:
    here = run(total=2)
    stream, unread = here.client(STREAM), here.client(FLOOD)
    assert streams(stream)
    eventually(lambda: served(here.client(ASK, "127.0.0.3")))  # when what the kernel takes is full
    assert streams(stream)
    assert closed(unread)


def served(client: socket.socket) -> bool:
    with client:
        try:
            return answered(client)
        except ConnectionError:
            return False


def test_an_address_that_asks_too_often_gets_no_place_until_it_asks_less(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the server has time for others."""
    monkeypatch.setattr(connections, "NEW_A_SECOND", 20)
    monkeypatch.setattr(server, "TICK", 1000)
    here = run(total=4)
    *_, last = here.crowd(*["127.0.0.2"] * 24)
    assert not any(served(each) for each in here.crowd(*["127.0.0.2"] * 50, sends=ASK))
    assert answered(here.client(ASK, "127.0.0.3"))
    last.sendall(ASK.removeprefix(b"GET /"))
    assert answered(last)
    here.server.acceptor.connections.renew_places(10.0)
    assert answered(here.client(ASK, "127.0.0.2"))


def test_the_log_has_a_line_a_second_however_many_are_closed(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    here, begin = run(total=4), monotonic()
    with caplog.at_level(logging.WARNING):
        here.crowd(*["127.0.0.2"] * 200)
        eventually(lambda: caplog.records)
    assert len(caplog.records) <= monotonic() - begin + 1
    assert "At most 4 are open" in caplog.messages[0]


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("10.1.2.3", "10.1.2.3 4711"),
        ("::ffff:10.1.2.3", "::ffff:10.1.2.3 4711"),
        ("2001:db8:f::1", "2001:db8:f::1 4711"),
        ("", ""),
    ],
)
def test_what_counts_as_one_address(host: str, counted: str) -> None:
    proxies = Proxies(("10.0.0.0/8", "2001:db8:f::/48"))
    assert counted_as(host, 4711, proxies) == counted
