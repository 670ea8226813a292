"""What was acknowledged outlives a power cut only if the disk was waited for: no connection of ours may leave that out."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast import App
from holdfast.stores.postgres.jobs import PostgresStore


@pytest.mark.claim("R1")
@pytest.mark.fault(6, "settings that would not wait for the disk")
def test_every_connection_waits_for_the_disk(app: Callable[..., App], url: str) -> None:
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as owner:  # what is the default there does not count
            owner.execute(f'alter database "{owner.info.dbname}" set synchronous_commit = off')
    own = app()
    own.store.queues()
    stores: list[Any] = [own.store, own.store.another()]
    stores[1].queues()
    for store in stores:
        if isinstance(store, PostgresStore):
            found = store.connection.database.execute("show synchronous_commit").fetchone()
            assert found == ("on",)
        else:
            database = store.connection.database
            assert database.execute("pragma synchronous").fetchall() == [(2,)]
            assert database.execute("pragma journal_mode").fetchall() == [("wal",)]
    stores[1].close()
