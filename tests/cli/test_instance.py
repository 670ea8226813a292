"""Which instance a command works on, and that looking makes nothing."""

from pathlib import Path

import pytest

from holdfast import App, Invalid, NotFound
from holdfast.cli.instance import actor, pick
from tests.cli.conftest import Call, make_shop

READING = [
    ("jobs", "list"),
    ("jobs", "show", "1"),
    ("jobs", "history", "1"),
    ("jobs", "attempts", "1"),
    ("jobs", "abort", "1"),
    ("jobs", "retry", "1"),
    ("jobs", "enqueue", "mail", "send"),
    ("queues", "list"),
    ("queues", "pause", "mail"),
    ("queues", "resume", "mail"),
    ("workers", "list"),
    ("doctor",),
]


@pytest.mark.parametrize("command", READING)
def test_a_file_that_does_not_exist_is_not_made(
    cli: Call, command: tuple[str, ...], sqlite_url: str, tmp_path: Path
) -> None:
    answer = cli(*command, "--url", sqlite_url, "--json")
    assert (answer.code, answer.out) == (3, "")
    assert f"no SQLite file {tmp_path}/jobs.db" in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", [("jobs", "list"), ("jobs", "enqueue", "mail", "send"), ("queues", "list"), ("doctor",)]
)
def test_a_database_without_an_instance_is_exit_code_three(
    cli: Call, command: tuple[str, ...], url: str, tmp_path: Path
) -> None:
    if url.startswith("sqlite"):
        (tmp_path / "jobs.db").touch()
    answer = cli(*command, "--url", url)
    assert answer.code == 3
    assert "There is no instance in" in answer.err
    assert command == ("doctor",) or answer.out == "", "only the doctor tells what it has seen before"


def test_the_default_database_is_a_file_in_the_folder(cli: Call, tmp_path: Path) -> None:
    assert f"{tmp_path}/holdfast.db" in cli("jobs", "list").err
    make_shop(f"sqlite:///{tmp_path}/holdfast.db").close()
    assert cli("jobs", "list", "--json").json == []


def test_the_only_instance_needs_no_name(cli: Call, shop: App, url: str) -> None:
    job = shop.enqueue("mail", "send", {"to": "ann"})
    assert cli("jobs", "show", job.id, "--url", url, "--json").json["id"] == job.id


def test_several_instances_are_listed_and_one_must_be_named(cli: Call, shop: App, url: str) -> None:
    with make_shop(url, "other") as other:
        other.enqueue("mail", "send", {"to": "ann"})
    answer = cli("jobs", "list", "--url", url)
    assert (answer.code, answer.out) == (2, "")
    assert "`other`, `shop`" in answer.err
    assert cli("jobs", "list", "--url", url, "--instance", "shop", "--json").json == []
    assert len(cli("jobs", "list", "--url", url, "--instance", "other", "--json").json) == 1


def test_the_environment_names_the_instance(cli: Call, shop: App, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_shop(url, "other").close()
    monkeypatch.setenv("HOLDFAST_INSTANCE", "shop")
    assert cli("jobs", "list", "--url", url, "--json").json == []


def test_an_instance_that_is_not_there_is_not_made(cli: Call, shop: App, url: str) -> None:
    answer = cli("jobs", "list", "--url", url, "--instance", "ship")
    assert (answer.code, answer.out) == (3, "")
    assert "no instance `ship`" in answer.err
    assert "`shop`" in answer.err
    assert shop.store.instances() == ["shop"]


def test_the_rule() -> None:
    assert pick(["a"], None, "url", sets_up=False) == "a"
    assert pick(["a", "b"], "b", "url", sets_up=False) == "b"
    assert pick([], None, "url", sets_up=True) == "holdfast"
    assert pick(["a"], None, "url", sets_up=True) == "a"
    assert pick(["a"], "new", "url", sets_up=True) == "new"
    for found, wanted, error in (
        ([], None, NotFound),
        (["a"], "b", NotFound),
        ([], "b", NotFound),
        (["a", "b"], None, Invalid),
    ):
        with pytest.raises(error):
            pick(found, wanted, "url", sets_up=False)
    with pytest.raises(Invalid):
        pick(["a", "b"], None, "url", sets_up=True)


def test_who_acts_is_told_even_where_the_user_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    assert actor() == "cli:ann"
    monkeypatch.setattr("getpass.getuser", lambda: "j\udcf6rg")  # from an environment that is not UTF-8
    assert actor() == "cli:j\\udcf6rg"

    def nameless() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert actor().removeprefix("cli:").isdigit()
