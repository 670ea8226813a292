"""Which instance a command works on, found without changing anything.

With no name given it is the only instance of the database. A command that only looks never makes a file or an
instance; those that set one up call it `holdfast`.
"""

import getpass
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.app import App
from holdfast.clock import Clock
from holdfast.config import Settings
from holdfast.database_url import resolve, shown
from holdfast.errors import Invalid, NotFound, backticked, shown_path
from holdfast.jobs.payload import storable
from holdfast.stores.contract import Store
from holdfast.stores.open import open_store

DEFAULT = "holdfast"


@contextmanager
def existing(settings: Settings) -> Iterator[App]:
    """The app of an instance that is there; `NotFound` if none is, `Invalid` if there are several and none is named."""
    with named(settings, choose(settings)) as app:
        yield app


def named(settings: Settings, name: str) -> App:
    names = ("heartbeat", "lost_after", "archive_after", "archive_keep")
    return App(settings.url, name, **{each: getattr(settings, each) for each in names})


def choose(settings: Settings, *, sets_up: bool = False) -> str:
    """The name of the instance; `sets_up` if it need not be there yet."""
    url = database(settings)
    missing = _missing_file(url)
    if missing is not None and not sets_up:
        raise NotFound(
            f"There is no SQLite file {shown_path(missing)}: nothing has been started on it yet. "
            "Start `holdfast dev` or a worker, or run `holdfast migrate`; each makes the file. If it is elsewhere, name it with --url."
        )
    found = _instances(url) if missing is None else []
    return pick(found, settings.instance, shown(url), sets_up)


def pick(found: Sequence[str], wanted: str | None, url: str, sets_up: bool) -> str:
    """The rule: the wanted one, else the only one."""
    if wanted is not None and (sets_up or wanted in found):
        return wanted
    if wanted is not None:
        there = f"It has {_listed(found)}." if found else "It has none."
        raise NotFound(
            f"There is no instance {backticked(wanted)} in {url}. {there} A worker, or `holdfast migrate`, sets one up."
        )
    if len(found) > 1:
        raise Invalid(f"{url} has several instances: {_listed(found)}. Name one with --instance or HOLDFAST_INSTANCE.")
    if not found and not sets_up:
        raise NotFound(f"There is no instance in {url}. Check the URL; a worker, or `holdfast migrate`, sets one up.")
    return found[0] if found else DEFAULT


def database(settings: Settings) -> str:
    """The URL in force."""
    return str(named(settings, DEFAULT).db_config)


def open_as_is(settings: Settings, name: str) -> Store:
    """The store of an instance, neither set up nor checked."""
    return open_store(database(settings), name, Clock())


def actor() -> str:
    """Who acts, for the history of a job."""
    try:
        return storable(f"cli:{getpass.getuser()}")
    except (KeyError, OSError):  # a container's user may have no name
        return f"cli:{os.getuid()}"


def person() -> str:
    """The name of a login link that was given none: that of the user."""
    name = re.sub(r"[^A-Za-z0-9_.@-]", "_", actor().removeprefix("cli:"))[:100]
    return f"user-{name}" if name.isdigit() else name


def _missing_file(url: str) -> str | None:
    kind, path = resolve(url)
    if kind != "sqlite" or path == ":memory:" or os.path.exists(path):
        return None
    return os.path.abspath(path)


def _instances(url: str) -> Sequence[str]:
    store = open_store(url, DEFAULT, Clock())
    try:
        return store.instances()
    finally:
        store.close()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
