"""`holdfast doctor` where the database answers and something is wrong with it all the same."""

import json
import os
from collections.abc import Iterator

import psycopg
import pytest

from holdfast import App
from tests.cli.conftest import Call, make_shop
from tests.damage import damage
from tests.postgres_server import Server
from tests.raw_sql import RawSql


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


@pytest.mark.claim("J13")
def test_damaged_rows_are_counted_and_at_most_ten_are_named(cli: Call, url: str, shop: App) -> None:
    assert "✓ rows: none is damaged" in cli("doctor", "--url", url).out
    jobs = shop.job_types["send"].enqueue_many([{"to": "ann"}] * 12)
    shop.job_types["send"].enqueue(to="bob")
    sql = RawSql(url, "shop")
    damage(sql, "*", "payload", '{"to":', f"id <= {jobs[-1].id}")
    damage(sql, "*", "time_windows", "x", f"id = {jobs[0].id}")
    damage(sql, "type", "labels", "x", "job_type = 'send'")
    answer = cli("doctor", "--url", url)
    assert answer.code == 1
    (line,) = [line for line in answer.out.splitlines() if line.startswith("✗ rows")]
    assert "13 cannot be read: shop_mail 12 (payload), shop_mail 11 (payload)" in line
    assert line.count("(payload)") == 10
    assert "and 3 more. Write the column as it was" in line
    assert "`holdfast jobs abort ID`" in line
    assert "start a worker whose code declares the type" in line
    told = {each["name"]: each for each in json.loads(cli("doctor", "--json", "--url", url).out)}
    assert (told["rows"]["ok"], "13 cannot be read" in told["rows"]["detail"]) == (False, True)
