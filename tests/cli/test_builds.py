"""`holdfast builds run`: a build file on the spot."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builds.making import Repository, alive, unique, wait_until
from tests.cli.conftest import Call
from tests.cli.terminal import heed_ctrl_c

FILE = """
env = { MODE = "ci" }
[steps.compile]
run = "echo $MODE-$EXTRA > out.txt"
outputs = { "out.txt" = "out.txt" }
[steps.test]
after = "compile"
run = ["echo tested", "exit $CODE"]
[steps.publish]
after = "test"
if = "branch == 'release'"
run = "echo published"
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    repository = Repository(tmp_path / "working copy")
    repository.commit(FILE)
    return repository.path


def run(copy: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the log goes to the real standard output."""
    command = [sys.executable, "-m", "holdfast", "builds", "run", str(copy), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.claim("B6")
def test_success_is_exit_code_0_with_the_log_and_a_line_for_each_step(copy: Path) -> None:
    done = run(copy, "--env", "CODE=0", "--env", "EXTRA=x")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "tested" in lines
    states = [line.split()[:2] for line in lines[lines.index("") + 2 :]][:3]
    assert states == [["compile", "SUCCESS"], ["test", "SUCCESS"], ["publish", "IGNORED"]]
    assert (copy / "out.txt").read_text() == "ci-x\n"  # in the working copy itself
    assert "\x1b" not in done.stdout


@pytest.mark.claim("B6")
def test_failure_is_exit_code_1_and_error_too(copy: Path) -> None:
    failed = run(copy, "--env", "CODE=3")
    assert (failed.returncode, "exited with 3" in failed.stdout) == (1, True)
    slow = run(copy, "--env", "CODE=$(sleep 100)", "--timeout", "0.001")
    assert slow.returncode == 1
    assert "total timeout" in slow.stdout


def test_json_is_one_object_on_standard_output_and_the_log_goes_beside(cli: Call, copy: Path) -> None:
    done = run(copy, "--json", "--env", "CODE=1", "--branch", "release")
    assert done.returncode == 1
    assert "tested" in done.stderr
    found = json.loads(done.stdout)
    assert found["steps"] == {"compile": "SUCCESS", "test": "FAILED", "publish": "SKIP_BY_FAILED"}
    assert (found["outcome"], found["branch"], found["outputs"][0]["name"]) == ("failed", "release", "out.txt")


def test_list_shows_what_would_run_and_runs_nothing(cli: Call, copy: Path) -> None:
    answer = cli("builds", "run", str(copy), "--list", "--json")
    assert [(step["name"], step["runs"]) for step in answer.json] == [
        ("compile", True),
        ("test", True),
        ("publish", False),
    ]
    assert answer.json[2]["reason"] == "left out: branch == 'release'"
    assert cli("builds", "run", str(copy), "--list", "--json", "--branch", "release").json[2]["runs"] is True
    assert "left out" in cli("builds", "run", str(copy), "--list").out
    assert not (copy / "out.txt").exists()


def test_one_step_runs_with_what_it_comes_after_and_outputs_can_be_kept(copy: Path, tmp_path: Path) -> None:
    done = run(copy, "--step", "compile", "--env", "CODE=1", "--outputs", str(tmp_path / "kept"))
    assert done.returncode == 0
    assert "tested" not in done.stdout
    assert os.listdir(tmp_path / "kept") == ["out.txt"]


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--step", "tset"), 2, "has no step `tset`. Did you mean `test`?"),
        (("--file", "other.toml"), 3, "There is no file"),
        (("--env", "NAME"), 2, "give NAME=VALUE"),
        (("--env", "LD_PRELOAD=x"), 2, "would reach beyond"),
        (("--sandbox", "docker"), 2, "give none, auto or bubblewrap"),
        (("--timeout", "0"), 2, "seconds above 0"),
        (("--branch", "--x"), 2, "git does not allow"),
        (("--file", "../x"), 2, "inside the repository"),
        (("--outputs", "{copy}/holdfast.build.toml"), 2, "Name a folder"),
        (("--outputs", "{copy}/holdfast.build.toml/kept"), 2, "Name a folder"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    cli: Call, copy: Path, options: tuple[str, ...], code: int, told: str
) -> None:
    answer = cli("builds", "run", str(copy), *(option.replace("{copy}", str(copy)) for option in options))
    assert answer.code == code
    assert told in answer.err
    assert not (copy / "out.txt").exists()


def test_a_wrong_build_file_is_usage_with_every_line_of_it(cli: Call, copy: Path) -> None:
    (copy / "holdfast.build.toml").write_text("[steps.a]\nrunn = 'x'\nafter = 'b'\n")
    answer = cli("builds", "run", str(copy))
    assert answer.code == 2
    assert "holdfast.build.toml:2: `runn`" in answer.err
    assert "holdfast.build.toml:3: `b`" in answer.err


def test_a_folder_without_git_can_be_built(tmp_path: Path) -> None:
    (tmp_path / "holdfast.build.toml").write_text("[steps.a]\nrun = 'echo $HOLDFAST_COMMIT'\n")
    assert run(tmp_path).returncode == 0


def test_an_interrupt_ends_every_process_of_the_build(copy: Path) -> None:
    seconds = unique()
    (copy / "holdfast.build.toml").write_text(f"[steps.a]\nrun = '(setsid sleep {seconds} &); sleep {seconds}'\n")
    command = [sys.executable, "-m", "holdfast", "builds", "run", str(copy)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, preexec_fn=heed_ctrl_c) as process:
        wait_until(lambda: len(alive(seconds)) == 2, "both sleepers")
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=60)
    assert process.returncode == 1
    assert not alive(seconds)
    assert "Interrupted" in complained
    assert "aborted" in said


def test_doctor_tells_of_projects_also_where_no_instance_is_yet(cli: Call, sqlite_url: str, tmp_path: Path) -> None:
    settings = tmp_path / "holdfast.toml"
    settings.write_text('[projects.demo]\nrepository = "/nowhere"\ngithub = { secret_env = "NOT_SET" }\n')
    answer = cli("doctor", "--config", str(settings), "--url", sqlite_url)
    assert answer.code == 3
    assert "There is no SQLite file" in answer.err
    assert "Start `holdfast dev` or a worker, or run `holdfast migrate`" in answer.err
    told = "nothing in environment variable NOT_SET; there is no repository at /nowhere"
    assert f"project demo: {told}" in answer.out
    for name in ("git", "bubblewrap", "limits of builds", "folder of builds"):
        assert f"✓ {name}: " in answer.out


def test_doctor_fails_while_the_disk_is_too_full_for_builds(cli: Call, sqlite_url: str, tmp_path: Path) -> None:
    settings = tmp_path / "holdfast.toml"
    settings.write_text("[builds]\ndisk_reserve = 1_000_000_000_000_000_000\n")
    answer = cli("doctor", "--config", str(settings), "--url", sqlite_url)
    assert "✗ folder of builds: No build starts: only " in answer.out
    assert "`disk_reserve` in [builds] keeps 1,000,000,000,000,000,000. Free some, or lower it." in answer.out


@pytest.mark.parametrize(
    ("keys", "warned"),
    [
        ('network = "host"', True),
        ('sandbox = "none"', True),
        ("network = true", False),
        ('network = "host"\nstrangers = "never"', False),
        ('network = "host"\nevents = ["push"]', False),
    ],
)
def test_doctor_warns_where_strangers_reach_the_network(
    cli: Call, sqlite_url: str, tmp_path: Path, keys: str, warned: bool
) -> None:
    settings = tmp_path / "holdfast.toml"
    settings.write_text(f'[projects.demo]\nrepository = "/nowhere"\n{keys}\n')
    answer = cli("doctor", "--config", str(settings), "--url", sqlite_url)
    assert ("projects demo give strangers' code this machine's network, or no sandbox" in answer.out) == warned
