"""What every command has: options in any place, exit codes, one paragraph for an error."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from holdfast import App, errors
from holdfast.cli import commands
from holdfast.cli.output import visible
from tests.cli.conftest import Call, make_shop
from tests.cli.terminal import environment, run

FULL = "Error: The answer cannot be written: No space left on device.\n"


@pytest.fixture
def url(sqlite_url: str) -> str:
    """Nothing here hangs on the store."""
    return sqlite_url


def test_help_lists_what_there_is(cli: Call) -> None:
    answer = cli("--help")
    assert answer.code == 0
    for noun in ("worker", "jobs", "queues", "workers", "migrate", "doctor", "version"):
        assert f"  {noun} " in answer.out


def test_without_a_command_the_help_is_shown(cli: Call) -> None:
    assert cli() == cli("--help")


def test_every_command_has_help_with_the_options_that_all_have_and_arguments_in_capitals(cli: Call) -> None:
    for path in every_command():
        answer = cli(*path, "--help")
        assert answer.code == 0, path
        for option in ("--json", "--url", "--instance", "--config", "--debug"):
            assert f"  {option} " in answer.out, (path, option)
        usage = answer.out.partition("\n\n")[0]
        assert "[[" not in usage, usage
        arguments = usage.partition("[OPTIONS]")[2]
        assert arguments == arguments.upper(), usage


def test_only_the_branch_that_is_asked_for_is_made() -> None:
    whole = names(commands())
    assert len(whole) >= 15
    assert [names(commands([name, "anything"])) for name in sorted(whole)] == [{name} for name in sorted(whole)]
    assert names(commands(["--help"])) == names(commands(["jbos"])) == whole


def names(root: typer.Typer) -> set[str]:
    return {str(found.name) for found in (*root.registered_commands, *root.registered_groups)}


def every_command() -> list[list[str]]:
    root = commands()
    paths = [[str(found.name)] for found in root.registered_commands]
    for group in root.registered_groups:
        assert group.typer_instance is not None
        paths += [[str(group.name), str(found.name)] for found in group.typer_instance.registered_commands]
    assert len(paths) >= 15
    return paths


@pytest.mark.parametrize(
    "arguments",
    [
        ["jbos"],
        ["jobs"],
        ["jobs", "lits"],
        ["jobs", "list", "--nope"],
        ["jobs", "list", "--limit", "0"],
        ["jobs", "list", "--state", "asleep"],
        ["jobs", "show"],
        ["jobs", "show", "seven"],
        ["jobs", "list", "--url"],
        ["worker"],
    ],
)
def test_a_wrong_use_is_exit_code_two_and_one_paragraph(cli: Call, arguments: list[str]) -> None:
    answer = cli(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Error: ")
    assert answer.err.count("\n") == 1


def test_a_misspelt_command_is_told_the_nearest(cli: Call) -> None:
    assert "Did you mean 'jobs'?" in cli("jbos").err


def test_a_database_that_cannot_be_named_is_exit_code_two(cli: Call) -> None:
    answer = cli("jobs", "list", "--url", "mysql://here")
    assert (answer.code, answer.out) == (2, "")
    assert "sqlite:///file.db" in answer.err


def test_a_database_that_cannot_be_used_is_exit_code_five(cli: Call, tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("this is not a database, but it is long enough to be taken for one" * 20)
    answer = cli("jobs", "list", "--url", f"sqlite:///{tmp_path}/jobs.db", "--json")
    assert (answer.code, answer.out) == (5, "")
    assert "not an SQLite database" in answer.err


def test_an_error_that_nobody_expected_is_exit_code_one(
    cli: Call, shop: App, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of\ncheese")

    monkeypatch.setattr(App, "find", broken)
    answer = cli("jobs", "list", "--url", url)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("Error: RuntimeError: out of cheese.")
    assert answer.err.count("\n") == 1


def test_an_interrupt_is_exit_code_one(cli: Call, shop: App, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(App, "find", interrupted)
    answer = cli("jobs", "list", "--url", url)
    assert (answer.code, answer.err) == (1, "Error: Interrupted.\n")


@pytest.mark.parametrize(
    "error", [errors.Invalid, errors.NotFound, errors.Conflict, errors.Unavailable, errors.HoldfastError]
)
def test_an_error_gives_its_own_exit_code(
    cli: Call, shop: App, url: str, monkeypatch: pytest.MonkeyPatch, error: type[errors.HoldfastError]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error("So it is.")

    monkeypatch.setattr(App, "find", refuse)
    answer = cli("jobs", "list", "--url", url, "--json")
    assert (answer.code, answer.out, answer.err) == (error.exit_code, "", "Error: So it is.\n")


def test_only_debug_shows_a_traceback(cli: Call, shop: App, url: str) -> None:
    assert "Traceback" not in cli("jobs", "show", 7, "--url", url).err
    answer = cli("jobs", "show", 7, "--url", url, "--debug")
    assert answer.code == 3
    assert "Traceback" in answer.err
    assert answer.err.splitlines()[-1].startswith("Error: There is no job 7")


def test_options_of_all_commands_may_stand_before_and_after_arguments(cli: Call, shop: App, url: str) -> None:
    assert cli("jobs", "show", "--url", url, 7).code == cli("jobs", "show", 7, "--url", url).code == 3


def test_settings_come_from_the_folders_file(cli: Call, shop: App, url: str, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(f'url = "{url}"\n')
    assert cli("jobs", "list", "--json").json == []


def test_the_environment_wins_over_the_file(
    cli: Call, shop: App, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.toml").write_text('url = "sqlite:///missing.db"\n')
    assert cli("jobs", "list", "--config", "other.toml").code == 3
    monkeypatch.setenv("HOLDFAST_URL", url)
    assert cli("jobs", "list", "--config", "other.toml", "--json").json == []


def test_a_mistake_in_the_file_is_exit_code_two(cli: Call, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('ulr = "x"\n')
    answer = cli("jobs", "list")
    assert answer.code == 2
    assert "unknown key `ulr`; the nearest known one is `url`" in answer.err
    assert cli("jobs", "list", "--config", "missing.toml").code == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[builds]\nfoler = "x"\n', "`builds`: unknown key `foler`; the nearest known one is `folder`"),
        (
            '[projects.demo]\nrepostory = "x"\n',
            "`projects.demo`: unknown key `repostory`; the nearest known one is `repository`",
        ),
        ("projects = 3\n", "write a table for each"),
    ],
)
@pytest.mark.parametrize("command", [("jobs", "list"), ("migrate",), ("hooks", "send", "github", "demo")])
def test_a_mistake_about_builds_is_told_by_commands_that_build_nothing(
    cli: Call, tmp_path: Path, command: tuple[str, ...], text: str, told: str
) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    answer = cli(*command)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err


def test_what_only_builds_need_need_not_be_there(cli: Call, shop: App, url: str, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        f'url = "{url}"\n[builds]\nfolder = "/nowhere"\n[projects.demo]\nrepository = "file:///nowhere"\n'
        'github = { secret_env = "NOT_SET" }\n'
    )
    assert cli("jobs", "list", "--json").json == []


def test_hooks_send_reads_the_file_as_every_command_does(cli: Call, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("url =\n")
    answer = cli("hooks", "send", "github", "demo")
    assert answer.code == 2
    assert "is not valid TOML" in answer.err


def test_the_version_is_told_by_option_and_command(cli: Call) -> None:
    assert cli("--version").out.startswith("holdfast ")
    assert cli("version").out.startswith(cli("--version").out.strip())
    assert sorted(cli("version", "--json").json) == ["python", "version"]


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    assert run(tmp_path, "--version").out.startswith("holdfast ")


def test_a_reader_that_goes_away_is_no_drama(shop: App, url: str, tmp_path: Path) -> None:
    shop.enqueue_many([shop.job_types["send"].new(to="x" * 500) for _ in range(500)])
    command = [sys.executable, "-m", "holdfast", "jobs", "list", "--json", "--url", url]
    with subprocess.Popen(
        command, env=environment(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == "[\n"
        program.stdout.close()
        assert program.stderr.read() == ""


def test_who_has_closed_standard_output_is_not_told_of_it(tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m holdfast version >&-"
    done = subprocess.run(command, shell=True, env=environment(), cwd=tmp_path, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def asked_of(tmp_path: Path, command: str, redirection: str, **variables: str) -> tuple[int, str]:
    """The exit code and standard error of a command whose streams a shell gives it."""
    line = f"{shlex.quote(sys.executable)} -m holdfast {command} {redirection}"
    done = subprocess.run(
        line, shell=True, env=environment(**variables), cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("asked", ["--help", "--version"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_line_also_where_no_command_answers(asked: str, unbuffered: str, tmp_path: Path) -> None:
    assert asked_of(tmp_path, asked, ">/dev/full", PYTHONUNBUFFERED=unbuffered) == (1, FULL)


@pytest.mark.parametrize(
    "asked",
    [
        "jobs list",
        "jobs list --json",
        "jobs tail 1",
        "jobs tail 1 --json",
        "jobs show 1",
        "queues list",
        "top",
        "archive --export -",
        'jobs enqueue mail send \'{"to": "x"}\'',
    ],
)
def test_a_full_disk_is_one_line(sqlite_url: str, asked: str, tmp_path: Path) -> None:
    with make_shop(sqlite_url) as shop:
        shop.job_types["send"].enqueue(to="x")
        shop.run_until_idle()
        if "archive" in asked:
            shop.store.archive(older_than=0.0)
    for unbuffered in ("", "1") if asked == "jobs list" else ("",):
        assert asked_of(tmp_path, f"{asked} --url {sqlite_url}", ">/dev/full", PYTHONUNBUFFERED=unbuffered) == (1, FULL)


def test_a_build_on_the_spot_whose_log_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "holdfast.build.toml").write_text('[steps.greet]\nrun = "echo hello"\n')
    assert asked_of(tmp_path, "builds run .", ">/dev/full") == (1, FULL)


def test_an_error_that_nobody_can_be_told_has_its_exit_code(tmp_path: Path) -> None:
    for redirection in ("2>/dev/full", "2>&-"):
        assert asked_of(tmp_path, "jobs list --limit 0", f">said {redirection}") == (2, "")
        assert (tmp_path / "said").read_text() == ""


@pytest.mark.parametrize("asked", ["jobs list", "jobs list --json", "archive --export -"])
def test_closed_standard_output_is_no_error(shop: App, url: str, asked: str, tmp_path: Path) -> None:
    assert asked_of(tmp_path, f"{asked} --url {url}", ">&-") == (0, "")


@pytest.mark.parametrize(
    "listing",
    [
        ("jobs", "list"),
        ("workflows", "list"),
        ("workflows", "tasks", "report", "monday", "work"),
        ("builds", "list"),
        ("schedules", "history", "nightly"),
    ],
)
def test_a_list_of_none_is_a_wrong_use_everywhere(cli: Call, sqlite_url: str, listing: tuple[str, ...]) -> None:
    answer = cli(*listing, "--limit", "0", "--url", sqlite_url)
    assert answer.code == 2
    assert "--limit" in answer.err


def test_a_terminal_without_unicode_is_no_drama(shop: App, url: str, tmp_path: Path) -> None:
    for command in (("doctor",), ("queues", "list")):
        answer = run(tmp_path, *command, "--url", url, PYTHONIOENCODING="ascii")
        assert (answer.code, answer.err) == (0, "")
        assert "?" in answer.out


def test_control_characters_cannot_reach_the_terminal() -> None:
    assert visible("a\x1b[31m\r\x00\x9b\n\tb") == "a␛[31m␍␀�\n\tb"
