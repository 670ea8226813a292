"""schema.sql is what the migrations make."""

import os

from docs import schema
from tests.postgres_server import Server


def test_the_schema_of_sqlite_is_what_its_migrations_make() -> None:
    assert schema.stale({schema.SQLITE: schema.sqlite()}) == []


def test_the_schema_of_postgresql_is_what_its_migrations_make(postgres: Server) -> None:
    name = f"schema_{os.getpid()}"
    url = postgres.create(name)
    try:
        assert schema.stale({schema.POSTGRES: schema.postgres(url)}) == []
    finally:
        postgres.drop(name)


def test_a_schema_that_differs_is_stale_and_the_cure_is_named() -> None:
    (told,) = schema.stale({schema.SQLITE: schema.sqlite() + "\n"})

    assert told == "src/holdfast/stores/sqlite/schema.sql is stale. Run `make docs` and commit the files."


def test_the_dumps_hold_the_job_table_of_the_queue_and_the_law_on_it() -> None:
    for file in (schema.SQLITE, schema.POSTGRES):
        text = file.read_text().replace('"', "").lower()
        assert "create table holdfast_work (" in text
        assert "constraint law check" in text
