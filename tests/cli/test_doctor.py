"""`holdfast doctor` where the database answers and something is wrong with it all the same."""

import os
from collections.abc import Iterator

import psycopg
import pytest

from tests.cli.conftest import Call, make_shop
from tests.postgres_server import Server


@pytest.fixture
def database(postgres: Server) -> Iterator[str]:
    name = f"doctor_{os.getpid()}"
    postgres.create(name)
    yield name
    postgres.drop(name)


@pytest.mark.claim("C7")
def test_a_primary_that_takes_no_writes_is_told_from_one_that_does(cli: Call, postgres: Server, database: str) -> None:
    url = postgres.url(database)
    make_shop(url).close()
    assert "✓ server accepts writes: a primary\n" in cli("doctor", "--url", url).out
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"alter database {database} set default_transaction_read_only = on".encode())
    assert cli("jobs", "enqueue", "mail", "send", '{"to": "a"}', "--url", url).code == 5
    answer = cli("doctor", "--url", url)
    assert answer.code == 1
    assert "✗ server accepts writes: a primary that is read-only" in answer.out
