"""What `holdfast demo` does: a database of its own, a worker, customers, and the dashboard over it all.

It never touches a database that only the surroundings name: `--url` has to be given to use another than its own.
"""

import logging
import shlex
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from typing import Any

from litestar.types import ASGIApp

from holdfast.app import App
from holdfast.cli import serving
from holdfast.cli.command import Call
from holdfast.cli.output import say
from holdfast.config import Settings
from holdfast.demo.customers import Customers
from holdfast.demo.shop import make_shop
from holdfast.demo.website import Website, has_git
from holdfast.errors import Invalid, Unavailable
from holdfast.web.registration import Registration
from holdfast.web.server import server_at

CONCURRENCY = 8
AROUND = """
Jobs, a workflow and builds run until you press Ctrl-C. Some jobs fail or wait on purpose. A warning names one of a type
that no worker handles.

The same from another terminal:

    export HOLDFAST_URL={url}
    {holdfast} jobs list
    {holdfast} top

A job of your own: save these lines as mine.py, and run `{python} mine.py` while this goes on.
"""
YOURS = """\
from holdfast import App

app = App({url!r}, name={name!r})
mine = app.queue("mine")

@mine.job
def double(n: int) -> int:
    return 2 * n

with app.worker():
    print(double.enqueue(n=21).unwrap(timeout=10))"""


def run(call: Call, settings: Settings, folder: Path | None, port: int | None, lasts: float | None) -> None:
    """Until Ctrl-C, a signal, or the end of `lasts` seconds."""
    if lasts is not None and not lasts > 0:
        raise Invalid(f"--for {lasts:g}: give a number of seconds above 0.")
    said = logging.StreamHandler(sys.stderr)
    said.setLevel(logging.WARNING)  # what the jobs say belongs to their logs
    logging.basicConfig(format=serving.FORM, handlers=[said])
    place, over = place_of(folder), threading.Event()
    url = call.url or f"sqlite:///{place}/demo.db"
    app = make_shop(url, over.wait, call.instance)
    website = Website(app, place) if has_git() else None
    command = f"{program('holdfast')} login-link" + ("" if call.url else f" --url {shlex.quote(url)}")
    with serving_at(port) as listener, app:
        app.wait_for_store()
        with (
            Registration(app, serving.address_of(listener, settings)) as registration,
            busy(app, website, over),
            ends_well(),
        ):
            serving.tell(call, app, listener, registration, command)
            if not call.json:
                say(AROUND.format(url=shlex.quote(url), holdfast=program("holdfast"), python=program("python")))
                say(f"{yours(app, url)}\n")
            projects = None if website is None else website.projects
            serve(serving.application(app, settings, projects, registration), listener, lasts)
    if not call.json:
        say("The demonstration is over.")


def place_of(folder: Path | None) -> Path:
    """Where its database, its repository and its builds are."""
    found = Path(tempfile.mkdtemp(prefix="holdfast-demo-")) if folder is None else folder.resolve()
    try:
        found.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"--folder {found}: {error.strerror}. Choose another.") from error
    return found


def yours(app: App, url: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in YOURS.format(url=url, name=app.name).splitlines())


def program(name: str) -> str:
    """Return what starts a program of this environment: its name if the PATH has it, else its path."""
    own = Path(sys.executable).parent / name
    return name if which(name) == str(own) else str(own)


def serving_at(port: int | None) -> socket.socket:
    """The port that was asked for; else the usual one, or any that is free."""
    try:
        return serving.listening(Settings(serve_port=port))
    except Unavailable:
        if port is not None:
            raise
        return serving.listening(Settings(serve_port=0))


@contextmanager
def busy(app: App, website: Website | None, over: threading.Event) -> Iterator[None]:
    """A worker, and customers that give it something to do. At the end nobody waits for anything any more."""
    customers = Customers(app, website)
    with app.worker(concurrency=CONCURRENCY, name="demo"):
        customers.start()
        try:
            yield
        finally:
            customers.stop()
            over.set()


@contextmanager
def ends_well() -> Iterator[None]:
    """A signal that the server has obeyed comes again when it is done: that is no error, and the worker stops next."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def serve(asgi: ASGIApp, listener: socket.socket, lasts: float | None) -> None:
    server = server_at(listener, asgi)
    timer = None if lasts is None else threading.Timer(lasts, _end, [server])
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        server.run()
    finally:
        if timer is not None:
            timer.cancel()


def _end(server: Any) -> None:
    server.should_exit = True
