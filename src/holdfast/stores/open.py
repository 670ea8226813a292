"""From a database URL to a store. The drivers are loaded here and only when they are needed."""

from holdfast.clock import Clock
from holdfast.database_url import Config, resolve
from holdfast.errors import Invalid
from holdfast.stores.contract import Store


def open_store(config: Config, instance: str, clock: Clock, patience: float | None = 5) -> Store:
    """The store behind a URL, or behind JSON that names a database (Q1). Does no I/O on PostgreSQL until it is used."""
    return open_at(*resolve(config), instance, clock, patience)


def open_at(kind: str, where: str, instance: str, clock: Clock, patience: float | None) -> Store:
    """The same for what `Store.address` says."""
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
