"""`holdfast migrate` and `holdfast doctor`."""

from pathlib import Path

import pytest

from holdfast import App
from tests.cli.conftest import Call, instances, make_shop
from tests.postgres_server import Server
from tests.raw_sql import RawSql


def test_migrate_sets_up_holdfast_in_an_empty_database(cli: Call, url: str) -> None:
    done = cli("migrate", "--url", url, "--json").json
    assert (done["instance"], instances(url)) == ("holdfast", ["holdfast"])
    assert done["done"][0].startswith("0001 ")
    assert cli("migrate", "--url", url).out == "Instance `holdfast` is up to date.\n"
    assert cli("jobs", "list", "--url", url, "--json").json == []


def test_migrate_tells_people_what_was_done(cli: Call, url: str) -> None:
    assert cli("migrate", "--url", url, "--instance", "shop").out.startswith("Instance `shop`: 0001 ")
    assert instances(url) == ["shop"]


def test_migrate_takes_the_only_instance_and_asks_when_there_are_several(cli: Call, shop: App, url: str) -> None:
    assert cli("migrate", "--url", url, "--json").json == {"instance": "shop", "done": []}
    assert cli("migrate", "--url", url, "--instance", "other").code == 0
    answer = cli("migrate", "--url", url)
    assert answer.code == 2
    assert "`other`, `shop`" in answer.err


def test_migrate_refuses_a_name_that_no_instance_can_have(cli: Call, url: str) -> None:
    assert cli("migrate", "--url", url, "--instance", "No Name").code == 2
    assert cli("migrate", "--url", url, "--instance", "sqlite_x").code == 2


def test_doctor_finds_nothing_wrong_with_a_fresh_instance(cli: Call, shop: App, url: str) -> None:
    found = cli("doctor", "--url", url, "--json").json
    assert all(check["ok"] for check in found)
    assert all(list(check) == ["name", "ok", "detail"] for check in found)
    assert {"Python", "database", "instance", "schema version", "workers", "waiting jobs"} <= {
        check["name"] for check in found
    }
    answer = cli("doctor", "--url", url)
    assert (answer.code, answer.err) == (0, "")
    assert "✓ instance: shop\n" in answer.out
    assert "✗" not in answer.out


def test_doctor_complains_of_jobs_that_nobody_handles(cli: Call, shop: App, url: str) -> None:
    shop.enqueue("mail", "send", {"to": "ann"})
    answer = cli("doctor", "--url", url)
    assert (answer.code, answer.err) == (1, "")
    assert "✗ waiting jobs: no live worker handles send." in answer.out
    shop.pause("mail")
    with shop.worker(concurrency=1):
        answer = cli("doctor", "--url", url)
    assert answer.code == 0
    assert "✓ workers: 1 alive\n" in answer.out
    assert "✓ queues: paused: mail\n" in answer.out


def test_doctor_complains_of_workers_that_went_silent(
    cli: Call, shop: App, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HEARTBEAT", "0.000001")
    monkeypatch.setenv("HOLDFAST_LOST_AFTER", "0.000002")
    with shop.worker(name="sleeper", concurrency=1):
        answer = cli("doctor", "--url", url)
    assert answer.code == 1
    assert "✗ workers: 0 alive; not heard of: " in answer.out
    assert "(sleeper)" in answer.out


def test_a_newer_schema_is_refused_with_the_cure_and_doctor_tells(cli: Call, url: str) -> None:
    make_shop(url).close()
    raw = RawSql(url, "shop")
    raw("update __holdfast_instance set version = 9999")
    raw.close()
    answer = cli("jobs", "list", "--url", url)
    assert (answer.code, answer.out) == (5, "")
    assert "Upgrade the holdfast package" in answer.err
    answer = cli("doctor", "--url", url)
    assert answer.code == 1
    assert "✗ schema version: 9999" in answer.out


def test_doctor_tells_of_a_database_that_cannot_be_used(cli: Call, tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("this is not a database, but it is long enough to be taken for one" * 20)
    answer = cli("doctor", "--url", f"sqlite:///{tmp_path}/jobs.db", "--json")
    assert (answer.code, answer.err) == (1, "")
    assert '"name": "database",\n    "ok": false' in answer.out


def test_doctor_tells_of_a_postgres_database_that_does_not_exist(cli: Call, postgres: Server) -> None:
    url = postgres.url("missing")
    answer = cli("doctor", "--url", url)
    assert answer.code == 1
    assert "✗ database: " in answer.out
    assert cli("jobs", "list", "--url", url).code == 5
