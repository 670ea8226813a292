"""Settings: flags over environment over file, and mistakes that say where they stand."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.config import Settings, load, locate, resolve
from holdfast.errors import Invalid


def settings(file: str | None = None, environment: dict[str, str] | None = None, **flags: Any) -> Settings:
    return resolve(flags, environment or {}, file, "holdfast.toml")


def test_without_any_source_nothing_is_set() -> None:
    assert settings() == Settings()


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_file() -> None:
    file = 'url = "sqlite:///file.db"\ninstance = "file"\nheartbeat = 1\n'
    environment = {"HOLDFAST_URL": "sqlite:///environment.db", "HOLDFAST_INSTANCE": "environment"}
    found = settings(file, environment, url="sqlite:///flag.db", instance=None)
    assert (found.url, found.instance, found.heartbeat) == ("sqlite:///flag.db", "environment", 1.0)


def test_every_setting_has_the_same_name_in_file_and_environment() -> None:
    file = """
        url = "sqlite:///a.db"
        instance = "shop"
        heartbeat = 1.5
        lost_after = 6
        archive_after = 60
        archive_keep = 600
        [worker]
        queues = ["mail", "slow"]
        labels = ["gpu"]
        duties = ["run", "sweep"]
        concurrency = 8
        processes = 2
        grace = 0
    """
    environment = {
        "HOLDFAST_URL": "sqlite:///a.db",
        "HOLDFAST_INSTANCE": "shop",
        "HOLDFAST_HEARTBEAT": "1.5",
        "HOLDFAST_LOST_AFTER": "6",
        "HOLDFAST_ARCHIVE_AFTER": "60",
        "HOLDFAST_ARCHIVE_KEEP": "600",
        "HOLDFAST_WORKER_QUEUES": "mail, slow",
        "HOLDFAST_WORKER_LABELS": "gpu",
        "HOLDFAST_WORKER_DUTIES": "run,sweep",
        "HOLDFAST_WORKER_CONCURRENCY": "8",
        "HOLDFAST_WORKER_PROCESSES": "2",
        "HOLDFAST_WORKER_GRACE": "0",
    }
    duties = ("run", "sweep")
    expected = Settings("sqlite:///a.db", "shop", 1.5, 6.0, 60.0, 600.0, ("mail", "slow"), ("gpu",), duties, 8, 2, 0.0)
    assert settings(file) == settings(environment=environment) == expected


def test_an_empty_environment_variable_says_nothing() -> None:
    assert settings('url = "sqlite:///file.db"', {"HOLDFAST_URL": ""}).url == "sqlite:///file.db"


def test_names_may_be_repeated_or_stand_between_commas() -> None:
    assert settings(worker_queues=["mail,slow", "other"]).worker_queues == ("mail", "slow", "other")


@pytest.mark.parametrize(
    ("file", "unknown", "nearest"),
    [
        ('ulr = "x"', "ulr", "url"),
        ('instnace = "x"', "instnace", "instance"),
        ("lostafter = 3", "lostafter", "lost_after"),
        ("concurency = 3", "concurency", "worker.concurrency"),
        ("worker_grace = 3", "worker_grace", "worker.grace"),
        ("[worker]\nqueue = []", "worker.queue", "worker.queues"),
        ("[build]\ncache = 3", "build", "builds"),
        ("[project.demo]\nx = 3", "project", "projects"),
        ("[empty]", "empty", None),
        ("worker = 3", "worker", None),
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_known_one_is_named(
    file: str, unknown: str, nearest: str | None
) -> None:
    with pytest.raises(Invalid) as caught:
        settings(file)
    assert f"holdfast.toml: unknown key `{unknown}`" in str(caught.value)
    assert nearest is None or f"nearest known one is `{nearest}`" in str(caught.value)


def test_the_tables_of_builds_are_known() -> None:
    file = 'url = "sqlite:///a.db"\n[builds]\ncache = 200\n[projects.demo]\ngithub = { secret_env = "DEMO_SECRET" }\n'
    assert settings(file) == Settings(url="sqlite:///a.db")


@pytest.mark.parametrize(
    "file",
    [
        'url = ""',
        "url = 3",
        "url = { host = 3 }",
        'heartbeat = "often"',
        "heartbeat = true",
        "heartbeat = 0",
        "lost_after = inf",
        "lost_after = nan",
        "[worker]\nconcurrency = 0",
        "[worker]\nconcurrency = 1.5",
        "[worker]\ngrace = -1",
        "[worker]\nqueues = 3",
        "[worker]\nqueues = [3]",
        '[worker]\nqueues = ["mail,"]',
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_key(file: str) -> None:
    key = file.replace("[worker]\n", "worker.").split(" =")[0]
    with pytest.raises(Invalid, match=f"holdfast.toml: `{key}` is .*; give|holdfast.toml: `{key}` is .* empty"):
        settings(file)


def test_a_wrong_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(Invalid, match="Environment variable HOLDFAST_HEARTBEAT is 'soon'"):
        settings(environment={"HOLDFAST_HEARTBEAT": "soon"})


def test_a_wrong_value_of_a_flag_names_the_flag() -> None:
    with pytest.raises(Invalid, match="--concurrency is 0"):
        settings(worker_concurrency=0)
    with pytest.raises(Invalid, match="--url is empty"):
        settings(url="")


def test_a_file_that_is_not_toml_is_refused_with_the_place() -> None:
    with pytest.raises(Invalid, match=r"holdfast.toml is not valid TOML: .*line 1"):
        settings("url = ]")


def test_the_folders_own_file_is_read_unless_another_is_given(tmp_path: Path) -> None:
    assert locate(None, tmp_path) is None
    own, other = tmp_path / "holdfast.toml", tmp_path / "other.toml"
    own.write_text('instance = "own"')
    other.write_text('instance = "other"')
    assert load({}, {}, locate(None, tmp_path)).instance == "own"
    assert load({}, {}, locate(other, tmp_path)).instance == "other"


def test_a_file_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no file"):
        locate(tmp_path / "missing.toml", tmp_path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Invalid, match="cannot be read"):
        load({}, {}, file)


def test_what_an_app_reads_goes_on_as_environment_variables() -> None:
    found = settings("heartbeat = 2\n[worker]\nconcurrency = 3", url="sqlite:///a.db")
    assert found.environment() == {"HOLDFAST_URL": "sqlite:///a.db", "HOLDFAST_HEARTBEAT": "2.0"}
