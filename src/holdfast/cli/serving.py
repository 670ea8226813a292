"""What `holdfast serve` does: set the instance up, listen, tell the address, serve until a signal."""

import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import uvicorn
from litestar.types import ASGIApp

from holdfast.app import App
from holdfast.cli import instance
from holdfast.cli.command import Call
from holdfast.cli.output import say, say_json
from holdfast.cli.projects import app_for
from holdfast.config import Settings
from holdfast.errors import Invalid, Unavailable
from holdfast.projects import Projects
from holdfast.stores.contract import SessionLimits
from holdfast.web import links
from holdfast.web.app import create
from holdfast.web.registration import Registration
from holdfast.web.server import server_at

HOST, PORT = "127.0.0.1", 8765
BACKLOG = 4096  # connections that wait to be accepted, if the limit of the system allows them
LOGIN_LINK = "holdfast login-link"
FORM = "%(asctime)s %(levelname)-7s %(message)s"


def serve(call: Call, settings: Settings, target: str) -> None:
    """Serve until a signal."""
    log_to_standard_error()
    app, projects = app_for(call, settings, target)
    app.wait_for_store()
    if projects is not None:
        projects.hold_folder()
    refuse_open_door(app, settings)
    with listening(settings) as listener, Registration(app, address_of(listener, settings)) as registration:
        asgi = application(app, settings, projects, registration)
        server = server_at(listener, asgi, settings.serve_from or ())
        with heeding(server):
            tell(call, app, listener, registration)
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
    now, tokens = app.store.now(), [row for row in app.store.tokens(app.lost_after) if row.kind == "token"]
    if not any(row.expires_time is None or row.expires_time > now for row in tokens):
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


def address_of(listener: socket.socket, settings: Settings) -> str:
    """The address that people use: the one that was given, else the one that the server listens at."""
    return settings.web_public_url or listens_at(listener)


def listens_at(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def application(app: App, settings: Settings, projects: Projects | None, registration: Registration) -> ASGIApp:
    """What a server of the command line serves."""
    return create(
        app,
        hosts=hosts(settings),
        projects=projects,
        public_url=settings.web_public_url,
        session_limits=session_limits(settings),
        registration=registration,
    )


def session_limits(settings: Settings) -> SessionLimits:
    lifetime, idle = settings.web_session_lifetime, settings.web_session_idle_timeout
    usual = SessionLimits()
    return SessionLimits(
        usual.lifetime if lifetime is None else timedelta(seconds=lifetime),
        usual.idle_timeout if idle is None else timedelta(seconds=idle),
    )


def tell(call: Call, app: App, listener: socket.socket, registration: Registration, command: str = LOGIN_LINK) -> None:
    """Where it serves, on standard output, and how a browser logs in.

    The link goes to a terminal only: every reader of a service's log could use it.
    """
    link = own_link(app, registration) if sys.stdout.isatty() else None
    listens, address = listens_at(listener), registration.address
    if call.json:
        told = {"event": "serve", "instance": app.name, "address": listens}
        public_url = None if address == listens else address
        say_json({**told, "public_url": public_url, "login": link, "login_command": command}, lines=True)
        return
    say(f"Serving instance `{app.name}` at {address}" + ("." if address == listens else f", listening at {listens}."))
    if link is None:
        say(f"`{command}` prints a link to log in with.")
    else:
        say(f"Log in with this link. It works once, within ten minutes:\n  {link}")


def own_link(app: App, registration: Registration) -> str:
    """A login link that dies with this server."""
    name, actor, server = instance.person(), instance.actor(), registration.server
    return links.link(registration.address, links.new_link(app, name=name, actor=actor, server=server))


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
