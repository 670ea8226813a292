"""`holdfast migrate --restored`, and the backup of a database before it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import App
from holdfast.stores.contract import NewBuild, SessionLimits
from holdfast.stores.restoration import GAP
from holdfast.web import secret
from holdfast.web.links import new_link
from tests.by_hand import WorkerByHand
from tests.cli.conftest import Call, make_shop
from tests.postgres_server import BINARIES
from tests.prepared import Prepared

QUICK = {"HOLDFAST_HEARTBEAT": "0.2"}


@pytest.fixture(autouse=True)
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch, cli: Call) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)


@pytest.mark.claim("J1")
def test_ids_of_new_jobs_come_after_those_that_were_given_out(cli: Call, shop: App, url: str) -> None:
    shop.enqueue("mail", "send", {"to": "ann"})
    done = cli("migrate", "--restored", "--ids-after", 500, "--url", url, "--json").json["restored"]
    assert done["ids_after"] == 500
    assert shop.enqueue("mail", "send", {"to": "ann"}).id > 500


@pytest.mark.claim("J1")
def test_without_a_number_a_million_ids_are_skipped_and_ids_never_go_back(cli: Call, shop: App, url: str) -> None:
    before = shop.enqueue("mail", "send", {"to": "ann"}).id
    first = cli("migrate", "--restored", "--url", url, "--json").json["restored"]["ids_after"]
    assert first >= before + GAP
    again = cli("migrate", "--restored", "--ids-after", 7, "--url", url, "--json").json["restored"]["ids_after"]
    assert again >= first
    assert shop.enqueue("mail", "send", {"to": "ann"}).id > first


def test_ids_come_after_those_in_the_folder_of_builds(cli: Call, shop: App, url: str, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[builds]\nfolder = "made"\n')
    for name in ("4711", "12", "_tmp", "x99999"):
        (tmp_path / "made" / name).mkdir(parents=True)
    done = cli("migrate", "--restored", "--ids-after", 3, "--url", url, "--json").json["restored"]
    assert done["ids_after"] == 4711


@pytest.mark.parametrize("options", [(), ("--ids-after", 900)])
def test_new_builds_and_runs_leave_out_as_many_ids_as_jobs(
    cli: Call, shop: App, url: str, options: tuple[object, ...]
) -> None:
    flow = shop.workflow("flow")
    flow.step(name="one")(lambda task: None)
    shop.queue("builds").job(name="build")(lambda: None)
    before, last = flow.submit("monday").id, shop.enqueue("mail", "send", {"to": "ann"}).id
    done = cli("migrate", "--restored", *options, "--url", url, "--json").json["restored"]
    assert flow.submit("tuesday").id == before + done["ids_after"] - last + 1
    build = shop.store.receive_build(NewBuild(project="demo", commit="a" * 40, ref="refs/heads/main")).build.id
    assert build == done["ids_after"] - last + 1
    if options:
        cli("migrate", "--restored", *options, "--url", url)
        assert flow.submit("wednesday").id == before + done["ids_after"] - last + 2


@pytest.mark.claim("B2")
def test_a_backup_from_before_the_first_build_keeps_its_folder(cli: Call, shop: App, url: str, tmp_path: Path) -> None:
    folder = tmp_path / "builds"
    folder.mkdir()
    (folder / ".instance").write_text("shop 0123456789abcdef\n")
    cli("migrate", "--restored", "--url", url)
    assert shop.store.identity() == "shop 0123456789abcdef"
    (folder / ".instance").write_text("shop fedcba9876543210\n")
    cli("migrate", "--restored", "--url", url)
    assert shop.store.identity() == "shop 0123456789abcdef"


@pytest.mark.claim("C3")
def test_jobs_of_workers_of_the_backup_start_again(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "send", {"to": "ann"})
    WorkerByHand(shop.store).claim_one()
    assert job.refresh().situation == "held"
    done = cli("migrate", "--restored", "--url", url, "--json").json["restored"]
    assert (done["workers"], done["jobs"]) == (1, 1)
    assert job.refresh().situation == "loose"
    shop.run_until_idle()
    assert job.refresh().outcome == "success"


def test_sessions_and_login_links_end_and_tokens_are_listed(cli: Call, shop: App, url: str) -> None:
    token = cli("tokens", "create", "ci", "--scope", "read", "--url", url, "--json").json["token"]
    assert token
    assert shop.store.log_in(secret.hashed(new_link(shop, name="ann", actor="test")), "session", SessionLimits(), None)
    new_link(shop, name="ann", actor="test")
    done = cli("migrate", "--restored", "--url", url, "--json").json["restored"]
    assert (done["sessions"], done["tokens"]) == (2, ["ci"])
    assert shop.store.token("session", "session") is None
    assert "Revoke those again" in cli("migrate", "--restored", "--url", url).out


@pytest.mark.claim("C2")
def test_nothing_changes_while_a_worker_is_alive(cli: Call, url: str) -> None:
    with App(url, name="shop", heartbeat=0.1) as app:
        app.queue("mail").job(name="send")(lambda to: to)
        with app.worker(concurrency=1):
            answer = cli("migrate", "--restored", "--ids-after", 500, "--url", url)
            assert (answer.code, answer.out) == (4, "")
            assert "are alive" in answer.err
            assert "Nothing was changed" in answer.err
        assert app.enqueue("mail", "send", {"to": "ann"}).id < 500


def test_wrong_numbers_are_refused(cli: Call, shop: App, url: str) -> None:
    assert cli("migrate", "--ids-after", 5, "--url", url).code == 2
    assert cli("migrate", "--restored", "--ids-after", -5, "--url", url).code == 2
    assert cli("migrate", "--restored", "--ids-after", 2**63, "--url", url).code == 2
    assert shop.enqueue("mail", "send", {"to": "ann"}).id < 500


def test_the_restore_is_in_the_audit(cli: Call, shop: App, url: str) -> None:
    cli("migrate", "--restored", "--ids-after", 500, "--url", url)
    audits, _ = shop.store.records(0, 0, 100)
    assert [(row.action, row.detail) for row in audits][-1] == ("restore", "ids of new jobs begin after 500")


def run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, timeout=120)


def test_a_restored_sqlite_file_begins_anew(cli: Call, tmp_path: Path) -> None:
    file, backup = tmp_path / "jobs.db", tmp_path / "backup.db"
    url = f"sqlite:///{file}"
    with make_shop(url) as shop:
        waiting = shop.enqueue("mail", "send", {"to": "ann"}).id
        run(sys.executable, "-m", "apsw", file, f".backup main {backup}")
        lost = [shop.enqueue("mail", "send", {"to": "ben"}).id for _ in range(3)]
        shop.run_until_idle()
    for name in tmp_path.glob("jobs.db*"):
        name.unlink()
    shutil.copy(backup, file)
    cli("migrate", "--restored", "--ids-after", lost[-1], "--url", url)
    with make_shop(url) as shop:
        new = shop.enqueue("mail", "send", {"to": "cem"})
        assert new.id > lost[-1]
        assert [job.id for job in shop.find()] == [new.id, waiting]
        shop.run_until_idle()
        assert {job.outcome for job in shop.find()} == {"success"}


def test_a_restored_postgresql_database_begins_anew(cli: Call, prepared: Prepared, tmp_path: Path) -> None:
    dump, url, restored = tmp_path / "shop.dump", prepared.new(), prepared.new()
    try:
        with make_shop(url) as shop:
            waiting = shop.enqueue("mail", "send", {"to": "ann"}).id
            run(BINARIES / "pg_dump", "--format=custom", f"--file={dump}", url)
            lost = [shop.enqueue("mail", "send", {"to": "ben"}).id for _ in range(3)]
        run(BINARIES / "pg_restore", f"--dbname={restored}", dump)
        cli("migrate", "--restored", "--ids-after", lost[-1], "--url", restored)
        with make_shop(restored) as shop:
            new = shop.enqueue("mail", "send", {"to": "cem"})
            assert new.id > lost[-1]
            assert [job.id for job in shop.find()] == [new.id, waiting]
            shop.run_until_idle()
            assert {job.outcome for job in shop.find()} == {"success"}
    finally:
        prepared.drop(url)
        prepared.drop(restored)


@pytest.mark.parametrize(
    "command", [".backup main", "pg_dump --format=custom", "pg_restore --dbname", "holdfast migrate --restored"]
)
def test_the_guide_names_the_commands_that_are_tested_here(command: str) -> None:
    assert command in (Path(__file__).parents[2] / "docs/guides/back-up-and-restore.md").read_text("utf-8")
