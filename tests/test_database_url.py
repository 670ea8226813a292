"""What names a database is read, and its password stays out of every answer."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from holdfast import App, HoldfastError, Invalid
from holdfast.cli import commands
from holdfast.database_url import passwords, resolve, shown
from tests.cli.terminal import Call, called_here, environment

MARK = "S3cretMarker"
# Every way in which a password was seen to make a URL malformed, and what else is written by mistake.
MALFORMED = [
    f"postgresql://jobs:{MARK}%zz@127.0.0.1:1/x",
    f"postgresql://jobs:{MARK}%@127.0.0.1:1/x",
    f"postgresql://jobs:{MARK}%00@127.0.0.1:1/x",
    f"postgresql://jobs:{MARK}@[bad/x",
    f"postgresql://jobs:{MARK}@[::1/x",
    f"postgresql://jobs:a@{MARK}@127.0.0.1:1/x",
    f"postgresql://jobs:a/{MARK}@127.0.0.1:1/x",
    f"postgresql://jobs:{MARK}/a@127.0.0.1:1/x",
    f"postgresql://jobs:12/{MARK}@127.0.0.1:1/x",
    f"postgresql://jobs:12/x?{MARK}@127.0.0.1:1/x",
    f"postgresql://jobs:12/x?a{MARK}=b@127.0.0.1:1/x",
    f"postgresql://jobs:{MARK}@127.0.0.1:port/x",
    f"postgresql://jobs:{MARK}@127.0.0.1:99999/x",
    f"postgresql://jobs:p@127.0.0.1:{MARK}/x",
    f"postgresql://jobs:{MARK}@127.0.0.1:1/x?nonsense=1",
    f"postgresql://jobs@127.0.0.1:1/x?password={MARK}&nonsense=1",
    f"postgresql://jobs@127.0.0.1:1/x?password={MARK}%zz",
    f"mysql://jobs:{MARK}@127.0.0.1/x",
    f"sqlite://jobs:{MARK}@127.0.0.1/x",
    f"sqlite:///jobs:{MARK}@127.0.0.1/x",
    f"sqlite:jobs:{MARK}@127.0.0.1/x",
    f"jobs:{MARK}@127.0.0.1://x",
    f"jobs:{MARK}@127.0.0.1/x",
    f"host=127.0.0.1 password={MARK} dbname=x",
    f"{MARK}",
    f'{{"database": "x", "password": "{MARK}"',
    f'{{"database": "x", "password": "{MARK}", "nonsense": 1}}',
    f'{{"password": "{MARK}"}}',
    f'{{"url": "postgresql://jobs:{MARK}%zz@127.0.0.1/x"}}',
]
# Well-formed, and no server answers there.
AWAY = [
    f"postgresql://jobs:{MARK}@127.0.0.1:1/x",
    f"postgresql://jobs:{MARK}%40@127.0.0.1:1/x",
    f"postgresql://jobs@127.0.0.1:1/x?password={MARK}",
    f"postgresql://jobs:{MARK}@127.0.0.1:1/x?sslmode=sometimes",
    f'{{"database": "x", "host": "127.0.0.1", "port": 1, "password": "{MARK}"}}',
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_url_is_refused_at_once_and_not_quoted(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        App(url).find()
    assert MARK not in f"{refused.value}{refused.getrepr()}"
    assert refused.value.__cause__ is None
    assert MARK not in shown(url)


@pytest.mark.parametrize("config", [{"database": "x", "nonsense": 1}, {"url": "nonsense"}, {"host": "x"}])
def test_of_a_malformed_mapping_no_value_is_told(config: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        App({**config, "password": MARK}).find()
    assert MARK not in str(refused.value)


@pytest.mark.parametrize("url", AWAY)
def test_an_app_that_cannot_connect_tells_no_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), App(url, patience=0.01) as app, pytest.raises(HoldfastError) as refused:
        app.find()
    assert MARK not in f"{refused.getrepr(chain=True)}{app!r}{caplog.text}{shown(app.db_config)}"


def all_commands() -> Iterator[tuple[str, ...]]:
    """Each command with the arguments that it needs."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for name, below in getattr(command, "commands", {}).items():
            yield from walk(below, (*path, name))
        if not hasattr(command, "commands"):
            yield *path, *(word for parameter in command.params for word in needed(parameter))

    def needed(parameter: Any) -> Iterator[str]:
        if parameter.required and parameter.param_type_name == "argument":
            yield {"INT": "1", "STRING": "name"}.get(str(parameter.type), "pick")
        elif parameter.required:
            yield from (parameter.opts[0], "sqlite:///other.db")

    yield from walk(typer.main.get_command(commands()), ())


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    return called_here(monkeypatch, tmp_path, capsys)


@pytest.mark.parametrize("command", list(all_commands()), ids=" ".join)
def test_no_command_tells_the_password_of_its_url(
    cli: Call, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number, url in enumerate(MALFORMED):
        if number % 2 or command == ("demo",):  # it takes no database but that of its flag
            answer = cli(*command, "--debug", "--url", url)
        else:
            monkeypatch.setenv("HOLDFAST_URL", url)
            answer = cli(*command, "--debug")
        assert MARK not in f"{answer.out}{answer.err}{caplog.text}", answer.err


@pytest.mark.parametrize("url", MALFORMED)
def test_the_sides_of_a_move_are_not_quoted(cli: Call, url: str, tmp_path: Path) -> None:
    App(f"sqlite:///{tmp_path}/shop.db").store.queues()
    for sides in (["--from", url, "--to", "sqlite:///other.db"], ["--from", "sqlite:///shop.db", "--to", url]):
        answer = cli("move", *sides, "--debug")
        assert (answer.code, MARK in answer.out + answer.err) == (2, False), answer.err


@pytest.mark.parametrize("url", [*MALFORMED, *AWAY])
def test_the_doctor_and_the_settings_file_quote_nothing(cli: Call, url: str, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(f"url = '''{url}'''")
    answer = cli("doctor", "--debug")
    assert answer.code != 0
    assert MARK not in answer.out + answer.err


@pytest.mark.parametrize("text", [f"url = ['postgresql://jobs:{MARK}@host/x']", f"url = {{ password = '{MARK}' }}"])
def test_a_url_of_another_type_is_not_quoted(cli: Call, text: str, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    answer = cli("doctor", "--debug")
    assert (answer.code, MARK in answer.err) == (2, False)


@pytest.mark.parametrize("arguments", [["doctor"], ["jobs", "list"], ["jobs", "show"], ["--url"]])
def test_a_url_in_the_wrong_place_loses_its_login(cli: Call, arguments: list[str]) -> None:
    answer = cli(*arguments, f"postgresql://jobs:{MARK}@127.0.0.1:1/x")
    assert (answer.code, MARK in answer.err) == (2, False), answer.err


@pytest.mark.parametrize("url", [MALFORMED[0], AWAY[0]])
def test_a_worker_of_a_module_logs_no_password(tmp_path: Path, url: str) -> None:
    (tmp_path / "shop.py").write_text("from holdfast import App\napp = App()\n")
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "shop:app", "--debug", "--verbose"],
        cwd=tmp_path,
        env=environment(HOLDFAST_URL=url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert worker.stdout is not None
    said = worker.stdout.readline()
    worker.terminate()
    said += worker.communicate(timeout=60)[0]
    assert said
    assert MARK not in said


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ann:pass-word@host:5432/shop", "postgresql://ann:…@host:5432/shop"),
        ("postgresql://ann@a,b:5433/shop?sslmode=require", "postgresql://ann@a,b:5433/shop?sslmode=require"),
        ("postgres://[::1]:5432/shop?password=word&user=ann", "postgresql://[::1]:5432/shop?password=…&user=ann"),
        ("postgresql://postgres@/shop?host=/run/sql", "postgresql://postgres@/shop?host=/run/sql"),
        ("postgresql://%2Frun%2Fsql/shop?options=-c a@b", "postgresql://%2Frun%2Fsql/shop?options=…"),
        ("postgresql:///shop", "postgresql:///shop"),
        ('{"database": "shop", "host": "here", "password": "word"}', "postgresql://:…@here/shop"),
        ('{"engine": "sqlite", "database": "shop.db"}', "sqlite:///shop.db"),
        ("sqlite:////srv/a:b@c.db", "sqlite:////srv/a:b@c.db"),
        ("sqlite://:memory:", "sqlite://:memory:"),
    ],
)
def test_a_database_is_shown_without_its_password(url: str, told: str) -> None:
    assert shown(url) == told


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ("postgresql://ann:p%40ss@host/shop", ("p@ss", "p%40ss")),
        ("postgresql://host/shop?password=word&sslpassword=key", ("word", "key")),
        ("postgresql://postgres:postgres@host/shop", ()),
        ("postgresql://host/shop", ()),
        ("sqlite:///shop.db", ()),
        ({"database": "shop", "user": "ann", "password": "word"}, ("word",)),
        ('{"database": "shop", "password": "shop"}', ()),
        ({"url": "postgresql://ann:word@host/shop"}, ("word",)),
    ],
)
def test_the_passwords_of_a_database_are_known(config: Any, found: tuple[str, ...]) -> None:
    assert passwords(config) == found


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://a.example,b.example:5433,10.0.0.1/shop?target_session_attrs=read-write",
        "postgresql://ann:p?ss%40w%2Frd@host/shop?options=-c%20search_path%3Dx",
        "postgresql://[fe80::1%25eth0]/shop",
        "postgresql://host",
        "postgresql://",
    ],
)
def test_what_libpq_reads_is_read(url: str) -> None:
    assert resolve(url) == ("postgresql", url)
    with App(url, patience=0.01):
        pass
