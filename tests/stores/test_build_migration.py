"""Builds that were there before a commit could have a build for each context: their rows, ids and statuses stay."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.stores import queryfile
from holdfast.stores.contract import QueueDeclared, Store, TypeRow
from holdfast.stores.open import open_store
from tests.raw_sql import RawSql
from tests.stores.test_builds import ONE, ask

NAME = "older"
COLUMNS = "project, commit_id, ref, branch, forge, trusted, title, author, tells, use_time, create_time, update_time"


@pytest.fixture
def older(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store of an instance that has the tables of the migrations before this one."""
    opened, numbered = open_store(url, NAME, MovableClock()), queryfile.numbered
    with monkeypatch.context() as patched:
        patched.setattr(
            queryfile, "numbered", lambda package: [each for each in numbered(package) if each[1] != "safeguards"]
        )
        opened.migrate()
    yield opened
    opened.close()


@pytest.fixture
def raw(older: Store, url: str) -> Iterator[RawSql]:
    opened = RawSql(url, NAME)
    if not opened.postgres:
        opened("pragma foreign_keys = on")
    yield opened
    opened.close()


def add(raw: RawSql, commit: str, **more: Any) -> int:
    values = {"project": "demo", "commit": commit, "yes": True, "now": older_time(raw), **more}
    found: int = raw.value(
        f"insert into {{build}} ({COLUMNS}) values (:project, :commit, 'refs/heads/main', 'main', 'github', :yes, 't', 'a', :yes, "
        ":now, :now, :now) returning id",
        **values,
    )
    return found


def older_time(raw: RawSql) -> Any:
    now = MovableClock().now()
    return now if raw.postgres else int(now.timestamp() * 1_000_000)


def status(raw: RawSql, build: int, state: str) -> None:
    raw(
        "insert into {status} (build, state, description, create_time) values (:build, :state, 'd', :now)",
        build=build,
        state=state,
        now=older_time(raw),
    )


def test_builds_keep_their_rows_and_ids_and_statuses(older: Store, raw: RawSql) -> None:
    builds = [add(raw, str(number) * 40) for number in range(1, 5)]
    for build, state in ((builds[0], "pending"), (builds[1], "pending"), (builds[0], "success")):
        status(raw, build, state)
    raw("delete from {build} where id = :id", id=builds[3])
    before = [raw("select * from {build} order by id"), raw("select * from {status} order by id")]

    assert [title[5:] for title in older.migrate()] == ["safeguards"]

    added: list[dict[str, Any]] = [{"context": None, "condition_names": None}, {"branch": None, "tag": None}]
    after = [raw("select * from {build} order by id"), raw("select * from {status} order by id")]
    assert after == [[row | more for row in rows] for rows, more in zip(before, added, strict=True)]
    assert add(raw, "5" * 40) == builds[3] + 1, "an id that was given out once comes never again"
    raw("delete from {build} where id = :id", id=builds[0])
    assert [row["build"] for row in raw("select build from {status}")] == [builds[1]], "statuses go with their build"
    if not raw.postgres:
        assert raw("pragma foreign_key_check") == []
        assert [row["name"] for row in raw("select name from sqlite_schema where name like '%kept%'")] == []


def test_the_same_commit_gets_a_build_of_its_own_beside_an_older_row(older: Store, raw: RawSql) -> None:
    before = add(raw, ONE)
    older.migrate()
    older.register(
        [QueueDeclared(name, f"{NAME}_{name}") for name in ("builds", "build_statuses")],
        [TypeRow("build", "builds", has_handler=True), TypeRow("build_status", "build_statuses", has_handler=True)],
    )
    assert [ask(older).build.id for _ in range(2)] == [before + 1] * 2
    assert [build.id for build in older.builds_of_branch("demo", "main", 10, 10)] == [before + 1, before]
