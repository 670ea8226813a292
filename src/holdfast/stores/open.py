"""From a database URL to a store. The drivers are loaded here and only when they are needed."""

import json
from collections.abc import Mapping
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import Invalid, backticked, quoted
from holdfast.stores.contract import Store

FORMS = "Write sqlite:///file.db, sqlite:////absolute/file.db, sqlite://:memory: or postgresql://user:password@host:5432/database."


def open_store(config: str | Mapping[str, Any], instance: str, clock: Clock, patience: float | None = 5) -> Store:
    """The store behind a URL, or behind JSON that names a database (Q1). Does no I/O on PostgreSQL until it is used."""
    kind, where = resolve(config)
    if kind == "sqlite":
        from holdfast.stores.sqlite.jobs import SqliteStore

        return SqliteStore(where, instance, clock, patience)
    try:
        from holdfast.stores.postgres.jobs import PostgresStore
    except ImportError as error:
        raise Invalid(
            f"PostgreSQL needs the psycopg driver, which is not installed ({error}). The extra `postgres` brings it: "
            "pip install '.[postgres]' in a clone of Holdfast."
        ) from error
    return PostgresStore(where, instance, clock, patience)


def resolve(config: str | Mapping[str, Any]) -> tuple[str, str]:
    """`sqlite` and a path, or `postgresql` and a connection string."""
    if isinstance(config, str) and config.lstrip().startswith("{"):
        try:
            config = json.loads(config)
        except ValueError as error:
            raise Invalid(f"The database JSON cannot be read: {error}.") from error
    if isinstance(config, Mapping):
        return _from_mapping(dict(config))
    if not isinstance(config, str):
        raise Invalid(f"A database is a URL or a mapping, not {type(config).__qualname__}. {FORMS}")
    scheme, found, rest = config.partition("://")
    if not found:
        raise Invalid(f"{quoted(config)} is not a database URL. {FORMS}")
    if scheme == "sqlite":
        return "sqlite", _sqlite_path(config, rest)
    if scheme in ("postgresql", "postgres"):
        return "postgresql", "postgresql://" + rest
    raise Invalid(f"The database URL begins with {backticked(scheme)}, which Holdfast does not speak. {FORMS}")


def _sqlite_path(url: str, rest: str) -> str:
    if rest == ":memory:" or rest == "/:memory:":
        return ":memory:"
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path or "\0" in path:
        raise Invalid(f"{quoted(url)} names no SQLite file. {FORMS}")
    return path


def _from_mapping(config: dict[str, Any]) -> tuple[str, str]:
    """`{"database": "shop", "host": "…"}`; with `"engine": "sqlite"` the database is a file."""
    engine = config.pop("engine", "postgresql")
    if "url" in config:
        return resolve(config["url"])
    if not config.get("database"):
        raise Invalid('A database mapping must name a "database".')
    if engine == "sqlite":
        return "sqlite", str(config["database"])
    config["dbname"] = config.pop("database")
    pairs = (f"{key}='" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'" for key, value in config.items())
    return "postgresql", " ".join(pairs)
