"""What a test on PostgreSQL gets is as new, also where another test has had it."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.postgres_server import Server
from tests.prepared import Prepared

CONTENT = "select (select array_agg(word order by word) from words), nextval('numbers')"


def with_words(url: str) -> None:
    with psycopg.connect(url) as database:
        database.execute("create table words (word text); create sequence numbers; create table others (word text)")
        database.execute("insert into words values ('a'), ('b'); select nextval('numbers')")


@pytest.fixture
def own(postgres: Server) -> Iterator[Prepared]:
    made = Prepared(postgres)
    yield made
    made.close()


def content(url: str) -> Any:
    with psycopg.connect(url) as database:
        return database.execute(CONTENT).fetchone()


def test_rows_and_numbers_are_put_back_and_the_database_is_lent_again(own: Prepared) -> None:
    url = own.copy_of(with_words)
    assert content(url) == (["a", "b"], 2)
    with psycopg.connect(url) as database:
        database.execute("delete from words where word = 'a'; insert into words values ('c')")
        database.execute("insert into others values ('x'); select setval('numbers', 1000)")
    own.drop(url)
    assert own.copy_of(with_words) == url
    assert content(url) == (["a", "b"], 2)
    with psycopg.connect(url) as database:
        assert database.execute("select count(*) from others").fetchone() == (0,)
    assert own.copy_of(with_words) != url  # while somebody has it
    own.drop(url)


@pytest.mark.parametrize(
    "deed",
    [
        "create table more (n integer)",
        "alter table words add column n integer",
        "drop table others",
        "create function f() returns integer language sql return 1",
        "set session_replication_role = replica; create index on words (word)",
        "analyze words",
        "do $$ begin execute format('alter database %I set work_mem = 1024', current_database()); end $$",
    ],
)
def test_what_more_than_rows_was_changed_in_is_not_lent_again(own: Prepared, deed: str) -> None:
    url = own.copy_of(with_words)
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(deed.encode())
    own.drop(url)
    assert own.copy_of(with_words) != url


def test_whoever_a_test_has_left_behind_is_gone(own: Prepared) -> None:
    url = own.copy_of(with_words)
    with psycopg.connect(url) as left:
        left.execute("insert into words values ('late'); lock table others")
        own.drop(url)
        assert own.copy_of(with_words) == url
        with pytest.raises(psycopg.OperationalError):
            left.execute("select 1")
    assert content(url) == (["a", "b"], 2)
    own.drop(url)
