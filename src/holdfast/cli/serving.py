"""What `holdfast serve` does: set the instance up, listen, tell the address, serve until a signal."""

import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from holdfast.app import App
from holdfast.cli.command import Call
from holdfast.cli.output import say, say_json
from holdfast.cli.projects import app_for
from holdfast.config import Settings
from holdfast.errors import Invalid, Unavailable
from holdfast.web import auth
from holdfast.web.app import create
from holdfast.web.server import server_at

HOST, PORT = "127.0.0.1", 8765
BACKLOG = 4096  # connections that wait to be accepted, if the limit of the system allows them
FORM = "%(asctime)s %(levelname)-7s %(message)s"


def serve(call: Call, settings: Settings, target: str) -> None:
    """Serve until a signal."""
    log_to_standard_error()
    app, projects = app_for(call, settings, target)
    app.wait_for_store()
    if projects is not None:
        projects.hold_folder()
    refuse_open_door(app, settings)
    asgi = create(app, hosts=hosts(settings), projects=projects)
    with listening(settings) as listener:
        server = server_at(listener, asgi, settings.serve_from or ())
        with heeding(server):
            tell(call, app, listener)
            server.run()
    app.close()


def log_to_standard_error() -> None:
    """Unless the user's module has set up a log of its own."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=FORM)


def refuse_open_door(app: App, settings: Settings) -> None:
    """Other machines are let in only where somebody has made a token."""
    host = settings.serve_host or HOST
    if is_loopback(host):
        return
    now = app.store.now()
    if not any(row.expires_time is None or row.expires_time > now for row in app.store.tokens()):
        raise Invalid(
            f"--host {host}: other machines could reach this server, and there is no token yet. Make one first with "
            "`holdfast tokens create`, or leave --host out to serve this machine only."
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def hosts(settings: Settings) -> tuple[str, ...]:
    """The names it may be called by: those that were given and, where other machines reach it, this one's own."""
    given = settings.serve_allow_host or ()
    host = settings.serve_host or HOST
    return given if is_loopback(host) else (*given, host, socket.gethostname())


def listening(settings: Settings) -> socket.socket:
    """A socket that takes connections already: whoever reads the address may use it at once."""
    host, port = settings.serve_host or HOST, PORT if settings.serve_port is None else settings.serve_port
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # Named TCP: only then asyncio sends small answers at once.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise Unavailable(f"Cannot listen at {host}:{port}: {error.strerror}. Choose another with --port.") from error
    return listener


def tell(call: Call, app: App, listener: socket.socket) -> None:
    """The address to log in with, on standard output."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    login = f"{address}/login?token={auth.make_login(app)}"
    if call.json:
        say_json({"event": "serve", "instance": app.name, "address": address, "login": login}, lines=True)
    else:
        say(f"Serving instance `{app.name}` at {address}. Log in once, within a day, at:\n  {login}")


@contextmanager
def heeding(server: uvicorn.Server) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the server gracefully, also before it has begun and when it raises them again at its end."""

    def end(*_: Any) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
