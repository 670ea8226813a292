"""`holdfast move`: what it answers and what it refuses."""

from pathlib import Path

import pytest

from holdfast import App
from holdfast.stores.moving import Move
from tests.cli.conftest import Call, make_shop
from tests.postgres_server import Server


@pytest.fixture
def target(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A database of the other kind."""
    if not url.startswith("sqlite"):
        return f"sqlite:///{tmp_path}/other.db"
    server: Server = request.getfixturevalue("postgres")
    return server.create(f"move_{tmp_path.name}_{tmp_path.parent.parent.name}".replace("-", "_"))


@pytest.mark.claim("M1", "M4")
def test_move_tells_what_it_would_do_does_it_and_does_it_once(cli: Call, shop: App, url: str, target: str) -> None:
    shop.enqueue("mail", "send", {"to": "ann"})
    ways = ("move", "--from", url, "--to", target)
    plan = cli(*ways, "--dry-run", "--json").json
    assert (plan["instance"], plan["jobs"], plan["dry_run"]) == ("shop", 1, True)
    assert cli(*ways, "--dry-run").out.startswith("Instance `shop` would be moved from ")
    assert cli("jobs", "list", "--url", target).code == 3  # nothing was made
    done = cli(*ways, "--json").json
    names = {"instance", "from", "to", "jobs", "rows", "copied", "refused_for", "idle_for", "tables", "already"}
    assert set(done) == names
    assert (done["jobs"], done["tables"]["shop__ready"]) == (1, 1)
    assert [job["job_type"] for job in cli("jobs", "list", "--url", target, "--json").json] == ["send"]
    again = cli(*ways)
    assert again.code == 0
    assert " before; nothing was left to do. Nothing could be written for " in again.out
    assert "compared" not in again.out
    assert cli(*ways, "--dry-run").out.rstrip().endswith("before. Nothing would be done.")
    assert cli(*ways, "--dry-run", "--json").json["already"] is True
    assert cli("doctor", "--url", url).code == 1
    assert "it was moved to" in cli("doctor", "--url", url).out
    assert "it was moved to" not in cli("doctor", "--url", target).out
    refused = cli("queues", "pause", "mail", "--url", url)
    assert refused.code == 5
    assert "Instance `shop` was moved to " in refused.err
    assert [job["job_type"] for job in cli("jobs", "list", "--url", url, "--json").json] == ["send"]
    assert cli(*ways, "--abandon").code == 4


@pytest.mark.claim("M4")
def test_who_interrupts_a_move_is_told_how_to_go_on(
    cli: Call, shop: App, url: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(move: Move) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Move, "finish", interrupted)
        answer = cli("move", "--from", url, "--to", target)
    assert answer.code == 1
    assert "Call `holdfast move` again: it goes on" in " ".join(answer.err.split())
    early = cli("jobs", "list", "--url", target)
    assert early.code == 5
    assert "if it was interrupted, call it again" in early.err
    rules = cli("workers", "duty", "list", "--url", url).out
    assert ("move" in rules, "9223372036854775807" in rules) == (True, False)
    assert cli("move", "--from", url, "--to", target).code == 0


@pytest.mark.claim("M4")
def test_a_move_back_goes_to_another_place(cli: Call, shop: App, url: str, target: str, tmp_path: Path) -> None:
    assert cli("move", "--url", url, "--to", target).code == 0
    over = cli("move", "--from", target, "--to", url)
    assert over.code == 4
    assert "already holds an instance `shop`" in over.err
    assert cli("move", "--from", target, "--to", f"sqlite:///{tmp_path}/third.db").code == 0


@pytest.mark.claim("M4")
def test_what_cannot_be_moved_is_refused(cli: Call, sqlite_url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    missing = cli("move", "--from", sqlite_url, "--to", other)
    assert missing.code == 3
    assert "There is no SQLite file" in missing.err
    make_shop(sqlite_url).close()
    for arguments, code, said in (
        (("--from", sqlite_url), 2, "--to"),
        (("--from", sqlite_url, "--to", sqlite_url), 2, "the same database"),
        (("--from", sqlite_url, "--url", sqlite_url, "--to", other), 2, "Give one of them"),
        (("--from", sqlite_url, "--to", "sqlite://:memory:"), 2, "in memory"),
        (("--from", sqlite_url, "--to", "mysql://x"), 2, "mysql"),
        (("--from", sqlite_url, "--to", other, "--grace", "-1"), 2, "--grace"),
        (("--from", sqlite_url, "--to", other, "--dry-run", "--abandon"), 2, "one of them"),
        (("--from", sqlite_url, "--to", other, "--abandon"), 3, "nothing to abandon"),
        (("--from", sqlite_url, "--to", other, "--instance", "bakery"), 3, "bakery"),
        (("--from", sqlite_url, "--to", f"sqlite:///{tmp_path}/no/where.db"), 5, "does not exist"),
    ):
        answer = cli("move", *arguments)
        assert (answer.code, answer.out) == (code, ""), answer
        assert said in answer.err
        assert not (tmp_path / "other.db").exists()
    assert cli("move", "--from", sqlite_url, "--to", other).code == 0


@pytest.mark.claim("M2")
def test_the_password_of_the_target_is_told_nobody(
    cli: Call, sqlite_url: str, postgres: Server, tmp_path: Path
) -> None:
    make_shop(sqlite_url).close()
    name = f"secret_{tmp_path.parent.parent.name}".replace("-", "_")
    target = postgres.create(name).replace("postgres@", "postgres:hunter2@", 1)
    said = cli("move", "--from", sqlite_url, "--to", target, "--json")
    refused = cli("queues", "pause", "mail", "--url", sqlite_url)
    assert refused.code == 5
    for answer in (said.out, refused.err):
        assert "hunter2" not in answer
        assert name in answer
    postgres.drop(name)
