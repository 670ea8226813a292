"""`holdfast serve` with few file descriptors, under sockets that never finish a request."""

import http.client
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from time import monotonic

import psutil
import pytest

from holdfast import App
from tests.cli.terminal import Program, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
DESCRIPTORS = 256
UNDER = ("sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$0" "$@"')
TOGETHER, IN_ALL = 400, 2000  # sockets
BEGINNINGS = (
    b"",
    b"G",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /",
    b"POST /hooks/github/demo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
)


class Attackers(threading.Thread):
    """Always so many sockets, from eight addresses; those that are closed are replaced."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port, self.made, self.stopping = port, 0, False

    def run(self) -> None:
        hosts, beginnings = cycle(f"127.0.0.{number}" for number in range(2, 10)), cycle(BEGINNINGS)
        sockets = list[socket.socket]()
        while self.made < IN_ALL and not self.stopping:
            with suppress(OSError):
                sockets.append(socket.create_connection(("127.0.0.1", self.port), 60, (next(hosts), 0)))
                sockets[-1].sendall(next(beginnings))
                self.made += 1
            if len(sockets) > TOGETHER:
                sockets.pop(0).close()
        for each in sockets:
            each.close()


class Visitor:
    """A browser, with a new connection for each page."""

    def __init__(self, address: str, login: str) -> None:
        self.port = int(address.rpartition(":")[2])
        self.cookie = ""
        self.cookie = self.ask(login.removeprefix(address)).getheader("set-cookie", "").partition(";")[0]

    def ask(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Cookie": self.cookie})
        return connection.getresponse()


@pytest.fixture
def program(sqlite_url: str, tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path, "serve", "--port", "0", "--json", "--url", sqlite_url, under=UNDER, terminal=True)
    yield made
    made.close()


def test_people_are_served_while_thousands_of_sockets_never_finish_a_request(program: Program, sqlite_url: str) -> None:
    eventually(lambda: program.out.endswith("}\n") or program.process.poll() is not None)
    said, begin = json.loads(program.out), monotonic()
    visitor = Visitor(said["address"], said["login"])
    stream = visitor.ask("/api/v1/events")
    attackers = Attackers(visitor.port)
    attackers.start()
    asked = 0
    try:
        while attackers.is_alive():
            assert [visitor.ask(path).status for path in ("/healthz", "/jobs")] == [200, 200]
            asked += 1
    finally:
        attackers.stopping = True
        attackers.join(60)
    assert asked
    assert psutil.Process(program.process.pid).num_fds() < DESCRIPTORS
    with App(sqlite_url, name="holdfast") as app:
        app.queue("mail")
        app.abort(app.enqueue("mail", "send").id)
    while stream.readline() != b"event: audit\n":
        pass
    lines = program.log.splitlines()
    assert len(lines) <= monotonic() - begin + 2, lines[:5]
    assert all("no room" in line for line in lines), lines[:5]
    program.stop()
    assert program.ended().code == 0
