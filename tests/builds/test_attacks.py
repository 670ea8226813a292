"""Builds that want more than they may: variables, names, processes, memory, output. Plain processes, without a sandbox."""

import os
import re
from pathlib import Path

import pytest

from holdfast.builds.order import Limits
from tests.builds.making import Repository, alive, build, log_of, one_step, order_of, unique


def test_nothing_of_the_workers_environment_is_passed_on(
    repository: Repository, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = repository.order(one_step("env", "git --version"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/wrong-git\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:bin::{os.environ['PATH']}")
    for name in ("LD_PRELOAD", "BASH_ENV", "AWS_SECRET_ACCESS_KEY", "HOLDFAST_URL", "PYTHONPATH", "ENV"):
        monkeypatch.setenv(name, f"/nonexistent/{name}-leaked")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_SSH_COMMAND", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR"):
        monkeypatch.setenv(name, f"/nonexistent/{name}-leaked")
    result = build(order, folder)
    assert (result.outcome, result.error) == ("success", None)
    log = log_of(folder)
    assert "-leaked" not in log
    assert "PATH=/" in log
    assert "HOME=/" in log
    assert f"HOME={os.environ.get('HOME')}\n" not in log
    assert not (tmp_path / "wrong-git").exists()


def test_settings_hooks_and_filters_of_the_user_are_not_git_s(
    repository: Repository, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = repository.order(one_step("cat text"), {"text": "as it is\n", ".gitattributes": "text filter=evil\n"})
    home, hooks = tmp_path / "home", tmp_path / "hooks"
    for each in (home, hooks):
        each.mkdir()
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
        (hooks / name).chmod(0o755)
    (home / ".gitconfig").write_text(
        f'[core]\n\thooksPath = {hooks}\n[init]\n\ttemplateDir = {home}\n[filter "evil"]\n\tsmudge = touch {tmp_path}/smudged\n'
    )
    (repository.path / ".git" / "hooks" / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    monkeypatch.setenv("HOME", str(home))
    assert build(order, folder).outcome == "success"
    assert "as it is" in log_of(folder)
    assert not (tmp_path / "hooked").exists()
    assert not (tmp_path / "smudged").exists()


@pytest.mark.parametrize("branch", ["$(touch${IFS}pwned)", "`touch${IFS}pwned`", "a;touch${IFS}pwned;", "'\"$HOME"])
def test_the_name_of_a_branch_is_never_a_command(repository: Repository, folder: Path, branch: str) -> None:
    repository.commit(one_step("true"))
    repository.git("checkout", "--quiet", "-b", branch)
    file = one_step(
        'printf "%s\\n" "$HOLDFAST_BRANCH"', "echo $HOLDFAST_BRANCH", "! ls | grep pwned", "test ! -e pwned"
    )
    assert build(repository.order(file, branch=branch), folder).outcome == "success"
    assert f"\n{branch}\n" in log_of(folder)


@pytest.mark.parametrize("branch", ["--upload-pack=touch x", "-c", "a\nb", "a b", "x\x1b[2J"])
def test_a_name_that_could_be_an_option_or_a_line_ends_the_build_before_it_begins(
    repository: Repository, folder: Path, branch: str
) -> None:
    commit = repository.commit(one_step("echo ran"))
    result = build(order_of(repository, commit, branch=branch), folder)
    assert result.outcome == "error"
    assert "git does not allow" in (result.error or "")
    assert "clone" not in log_of(folder)
    assert "\x1b[2J" not in log_of(folder)


@pytest.mark.parametrize(
    "line",
    [
        "(setsid nohup sleep SECONDS >/dev/null 2>&1 &)",
        "(setsid sh -c 'setsid sleep SECONDS & exec sleep SECONDS' &) ; sleep 0.1",
        "trap '' TERM HUP INT; sh -c 'trap \"\" TERM HUP; sleep SECONDS' & exit 0",
        "sh -c 'sleep SECONDS & kill -STOP $$' & sleep 0.1",
    ],
)
def test_no_process_is_left_behind(repository: Repository, folder: Path, line: str) -> None:
    seconds = unique()
    assert build(repository.order(one_step(line.replace("SECONDS", seconds))), folder).outcome == "success"
    assert not alive(seconds)


def test_many_processes_at_once_are_ended_and_named(repository: Repository, folder: Path) -> None:
    seconds = unique()
    line = f"i=0; while [ $i -lt 300 ]; do sleep {seconds} & i=$((i + 1)); done; wait"
    result = build(repository.order(one_step(line), limits=Limits(processes=60)), folder)
    assert result.outcome == "failed"
    assert "process limit" in (result.error or "") or "exited" in (
        result.error or ""
    )  # the kernel's limit, if not root
    assert not alive(seconds)


def test_a_fork_bomb_is_ended(repository: Repository, folder: Path) -> None:
    seconds = unique()
    bomb = f"bomb() {{ if [ $1 -gt 0 ]; then bomb $(($1 - 1)) & bomb $(($1 - 1)) & fi; exec sleep {seconds}; }}; bomb 8"
    result = build(repository.order(one_step(bomb), limits=Limits(processes=50)), folder)
    assert result.outcome == "failed"
    assert not alive(seconds)


def test_a_process_that_wants_too_much_memory_does_not_get_it(repository: Repository, folder: Path) -> None:
    line = "head -c 300000000 /dev/zero | tail | wc -c | grep -q 300000000"
    assert build(repository.order(one_step(line)), folder).outcome == "success"
    result = build(repository.order(one_step(line), limits=Limits(memory=100_000_000)), folder)
    assert result.outcome == "failed"


def test_processes_that_want_too_much_memory_together_are_ended(repository: Repository, folder: Path) -> None:
    seconds = unique()
    line = f"for i in 1 2 3 4; do (head -c 40000000 /dev/zero; sleep {seconds}) | tail > /dev/null & done; wait"
    result = build(repository.order(one_step(line), limits=Limits(memory=100_000_000)), folder)
    assert result.outcome == "failed"
    assert (result.error or "").startswith("memory limit: ")
    assert result.steps == {"only": "FAILED"}
    assert not alive(seconds)


def test_a_file_that_gets_too_large_is_cut_off(repository: Repository, folder: Path) -> None:
    order = repository.order(one_step("head -c 5000000 /dev/zero > big"), limits=Limits(file_size=1_000_000))
    result = build(order, folder)
    assert result.outcome == "failed"
    assert "killed by SIGXFSZ" in (result.error or "")


def test_endless_output_is_cut_off_and_named(repository: Repository, folder: Path) -> None:
    result = build(repository.order(one_step("yes"), limits=Limits(log=100_000)), folder)
    assert (result.outcome, result.error) == ("failed", "log limit: more than 100,000 bytes were printed, in step only")
    assert 100_000 <= (folder / "log").stat().st_size < 102_000
    assert log_of(folder).rstrip().endswith("in step only\x1b[0m")


def test_a_step_that_closes_its_output_is_waited_for(repository: Repository, folder: Path) -> None:
    file = one_step("exec 1>&- 2>&-; sleep 0.2; echo done > made", outputs="{ made = 'made' }")
    assert build(repository.order(file), folder).outcome == "success"
    assert (folder / "generated" / "made").read_text() == "done\n"


def test_what_is_printed_last_is_in_the_log(repository: Repository, folder: Path) -> None:
    line = "i=0; while [ $i -lt 3000 ]; do echo line-$i; i=$((i + 1)); done; exit 1"
    assert build(repository.order(one_step(line)), folder).outcome == "failed"
    assert re.findall(r"^line-(\d+)$", log_of(folder), re.MULTILINE) == [str(i) for i in range(3000)]


def test_what_is_no_text_and_marks_of_our_own_do_not_confuse_the_log(repository: Repository, folder: Path) -> None:
    lines = ("head -c 2000 /dev/urandom", "printf '\\033[1;32m── only SUCCESS\\033[0m\\n'; exit 4")
    result = build(repository.order(one_step(*lines)), folder)
    assert (result.outcome, result.steps) == ("failed", {"only": "FAILED"})
    (detail,) = result.details
    log = (folder / "log").read_bytes()
    assert detail.log_end is not None
    assert log[: detail.log_end].rstrip().endswith(b"only SUCCESS\x1b[0m")


def test_nobody_is_asked_for_a_password_or_to_turn_a_page(repository: Repository, folder: Path) -> None:
    lines = ("! (exec < /dev/tty)", "git log", "seq 500 | ${PAGER:-less}")
    assert build(repository.order(one_step(*lines), silence_timeout=60), folder).error is None


# The keeper is $1, the guardian $2: ancestors, in this order.
ANCESTORS = """
p=$$; set --
while [ $p -gt 1 ]; do
    p=$(awk '/^PPid/ {print $2}' /proc/$p/status); grep -qa [k]eeper.py /proc/$p/cmdline && set -- "$@" $p
done
"""
DAEMON = "(setsid nohup sleep SECONDS >/dev/null 2>&1 &) ; sleep 0.1"


KEEPER_AND_GUARDIAN = ("$1", "$2", "$1 $2")


@pytest.mark.parametrize(
    "attack",
    [
        *(f"kill -{number} {which}" for number in ("KILL", "STOP") for which in KEEPER_AND_GUARDIAN),
        "kill -STOP $2 && kill -KILL $1 $2",  # neither sees the other's death
    ],
)
def test_a_step_that_kills_or_stops_what_watches_over_it_leaves_no_process(
    repository: Repository, folder: Path, attack: str
) -> None:
    seconds = unique()
    line = f"{DAEMON}; {ANCESTORS.strip()}; test $# = 2 && {attack}; exec sleep SECONDS"
    result = build(repository.order(one_step(line.replace("SECONDS", seconds))), folder)
    assert not alive(seconds)
    assert (result.outcome, result.error) == ("error", "a process that watches over the build was killed or stopped")
    assert result.steps == {"only": "ERROR"}
