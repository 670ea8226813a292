"""Builds from a commit to `completed`: real repositories, real processes."""

import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from msgspec import structs

from holdfast.builds.order import Limits
from holdfast.builds.result import StepChange
from holdfast.errors import Conflict
from holdfast.jobs.outcome import Failed
from holdfast.worker import builder
from holdfast.worker.builder import BuildError, conclude, end_without_builder, read_completed
from holdfast.worker.building import source
from holdfast.worker.building.folder import BuildFolder, remove_leftovers
from holdfast.worker.building.keeper import Blotter
from holdfast.worker.building.source import credentials
from tests.builds.making import Repository, alive, build, log_of, one_step, order_of, unique, wait_until

pytestmark = pytest.mark.claim("B6")

EVERY_STATE = """
env = { GREETING = "hello" }
[steps.compile]
run = ["echo $GREETING > made.txt", "cat made.txt"]
[steps.left_out]
if = "branch == 'release'"
run = "exit 9"
[steps.skipped]
skip = true
run = "exit 9"
[steps.flaky]
can_fail = true
run = "exit 1"
[steps.test]
after = ["compile", "left_out", "skipped", "flaky"]
run = ["test -f made.txt", "exit 3", "echo unreached"]
[steps.deploy]
after = "test"
run = "echo deployed"
[steps.independent]
run = "echo independent"
"""


def test_steps_come_into_the_states_of_workflows_and_the_rest_runs_on(repository: Repository, folder: Path) -> None:
    told: list[StepChange] = []
    result = build(repository.order(EVERY_STATE), folder, told.append)
    assert result.steps == {
        "compile": "SUCCESS",
        "left_out": "IGNORED",
        "skipped": "IGNORED",
        "flaky": "ACCEPTABLE_FAILED",
        "test": "FAILED",
        "deploy": "SKIP_BY_FAILED",
        "independent": "SUCCESS",
    }
    assert (result.outcome, result.error) == ("failed", "step test: exited with 3: exit 3")
    assert [change.step for change in told if change.state == "DORMANT"] == list(result.steps)
    assert [change.state for change in told if change.step == "test"] == ["DORMANT", "READY", "FAILED"]
    assert [change.state for change in told if change.step == "deploy"] == ["DORMANT", "SKIP_BY_FAILED"]
    assert "unreached" not in log_of(folder)
    assert [change.time for change in told] == sorted(change.time for change in told)


def test_completed_holds_what_came_of_it_and_the_folder_nothing_else(repository: Repository, folder: Path) -> None:
    order = repository.order(one_step("echo 1 > out.txt", outputs="{ report = 'out.txt' }"))
    result = build(order, folder)
    assert sorted(os.listdir(folder)) == ["completed", "generated", "log"]
    assert os.listdir(folder.parent) == [folder.name]
    assert read_completed(folder) == result
    kept = json.loads((folder / "completed").read_text())
    assert (kept["outcome"], kept["error"], kept["steps"]) == ("success", None, {"only": "SUCCESS"})
    assert kept["start_time"] <= kept["details"][0]["start_time"] <= kept["details"][0]["end_time"] <= kept["end_time"]
    assert conclude(result) == {"steps": {"only": "SUCCESS"}, "outputs": ["report"]}


def test_the_log_says_what_each_step_said_between_its_marks(repository: Repository, folder: Path) -> None:
    file = "[steps.a]\nrun = 'echo from-a'\n[steps.b]\nrun = 'echo from-b'\n"
    result = build(repository.order(file), folder)
    log = (folder / "log").read_bytes()
    parts = [log[detail.log_start : detail.log_end] for detail in result.details]
    assert [b"from-a\n" in part for part in parts] == [True, False]
    assert [b"from-b\n" in part for part in parts] == [False, True]
    assert log.index(b"step a") < log.index(b"$ echo from-a") < log.index(b"a SUCCESS") < log.index(b"step b")
    assert log.endswith(b"\n")


def test_lines_have_a_terminal_with_colours_and_no_input(repository: Repository, folder: Path) -> None:
    lines = ("test -t 1 && test -t 2 && ! test -t 0", 'test -z "$(cat)"', "printf '\\033[32mgreen\\033[0m\\n'")
    assert build(repository.order(one_step(*lines)), folder).outcome == "success"
    assert "\x1b[32mgreen\x1b[0m\n" in log_of(folder)


def test_each_line_is_a_shell_of_its_own(repository: Repository, folder: Path) -> None:
    lines = ("cd /; FOO=1; export FOO", 'test -z "$FOO" && test -f holdfast.build.toml')
    assert build(repository.order(one_step(*lines)), folder).outcome == "success"


def test_what_a_line_starts_lives_until_the_end_of_its_step_and_no_longer(repository: Repository, folder: Path) -> None:
    seconds = unique()
    file = (
        f"[steps.a]\nrun = [\"sleep {seconds} & echo $! > pid\", 'kill -0 $(cat pid)']\n"
        "[steps.b]\nafter = 'a'\nrun = '! kill -0 $(cat pid)'\n"
    )
    assert build(repository.order(file), folder).outcome == "success"


def test_variables_of_order_file_and_step_in_this_order(repository: Repository, folder: Path) -> None:
    file = """
    env = { B = "file", C = "file" }
    [steps.only]
    cwd = "sub"
    env = { C = "step" }
    run = ["echo $A-$B-$C", "echo $HOLDFAST_PROJECT $HOLDFAST_BRANCH $HOLDFAST_EVENT $HOLDFAST_STEP $CI", "pwd"]
    """
    order = repository.order(file, {"sub/x": ""}, env={"A": "order", "B": "order", "C": "order"}, event="push")
    assert build(order, folder).outcome == "success"
    assert "order-file-step\n" in log_of(folder)
    assert "demo main push only true\n" in log_of(folder)
    assert "/source/sub\n" in log_of(folder)


def test_exactly_the_commit_is_built_and_only_it_is_fetched(repository: Repository, folder: Path) -> None:
    first = repository.commit(one_step("cat version", "git rev-list --count HEAD"), {"version": "one"})
    repository.commit(one_step("exit 1"), {"version": "two"})
    assert build(order_of(repository, first), folder).outcome == "success"
    assert "one" in log_of(folder)
    repository.commit(one_step("test $(git rev-list --count HEAD) = 1"))
    assert build(order_of(repository, repository.git("rev-parse", "HEAD")), folder).outcome == "success"


def test_a_server_that_gives_no_single_commits_gives_the_branch(repository: Repository, folder: Path) -> None:
    first = repository.commit(one_step("git rev-parse HEAD"))
    repository.commit("[steps.only]\n")
    repository.git("config", "protocol.version", "0")
    order = order_of(repository, first)
    command = repository.path / ".git" / "upload"
    # A server that speaks the old protocol refuses a commit that no branch points to.
    command.write_text('#!/bin/sh\nunset GIT_PROTOCOL\nexec git upload-pack "$@"\n')
    command.chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        original = source._FETCH
        patched.setattr("holdfast.worker.building.source._FETCH", (*original, f"--upload-pack={command}"))
        assert build(order, folder).outcome == "success"
    assert first in log_of(folder)
    assert "error: Server does not allow request for unadvertised object" in log_of(folder)


@pytest.mark.parametrize(
    ("build_file", "error"),
    [
        (None, "there is no build file holdfast.build.toml in this commit"),
        ("[steps.a]\nrunn = 'x'\n", "holdfast.build.toml:2: `runn` is not a known key. Did you mean `run`?"),
        ("x", "holdfast.build.toml:1: is not TOML: expected '=' after a key in a key/value pair."),
    ],
)
def test_a_build_file_that_cannot_be_is_a_failure_of_the_commit(
    repository: Repository, folder: Path, build_file: str | None, error: str
) -> None:
    result = build(repository.order(build_file), folder)
    assert (result.outcome, result.error) == ("failed", error)
    assert error in log_of(folder)


def test_a_folder_that_is_not_there_fails_the_step(repository: Repository, folder: Path) -> None:
    result = build(repository.order(one_step("true", cwd="'nowhere'")), folder)
    assert (result.outcome, result.error) == ("failed", "step only: cwd nowhere: there is no such folder")


def test_code_that_cannot_be_had_is_an_error_and_nobodys_failure(repository: Repository, folder: Path) -> None:
    repository.commit(one_step("true"))
    result = build(order_of(repository, "a" * 40), folder)
    assert result.outcome == "error"
    assert f"commit {'a' * 40} could not be fetched from file://" in (result.error or "")
    result = build(structs.replace(order_of(repository, "a" * 40), repository="file:///nowhere/at/all"), folder)
    assert result.outcome == "error"


def test_a_password_in_the_address_stays_out_of_the_log(repository: Repository, folder: Path) -> None:
    address = "http://ann:geheim99@127.0.0.1:1/x.git"
    result = build(structs.replace(order_of(repository, "a" * 40), repository=address), folder)
    assert result.outcome == "error"
    assert "http://127.0.0.1:1/x.git" in (result.error or "")
    assert "geheim99" not in log_of(folder) + (folder / "completed").read_text()


def test_the_total_timeout_is_an_error_and_named(repository: Repository, folder: Path) -> None:
    seconds = unique()
    order = repository.order(one_step(f"while :; do echo tick; sleep 0.1; done & sleep {seconds}"), timeout=4)
    result = build(structs.replace(order, silence_timeout=100), folder)
    assert result.outcome == "error"
    assert (result.error or "").startswith("total timeout: not finished after 4 s")
    assert not alive(seconds)


def test_the_silence_timeout_is_an_error_and_named(repository: Repository, folder: Path) -> None:
    seconds = unique()
    order = repository.order(one_step(f"sleep {seconds}") + "[steps.more]\nafter = 'only'\n", silence_timeout=1.5)
    result = build(order, folder)
    assert result.outcome == "error"
    assert (result.error or "").startswith("silence timeout: nothing was printed for 1.5 s")
    assert not alive(seconds)
    if result.steps:  # a machine that is slow may be silent before
        assert result.steps == {"only": "ERROR", "more": "SKIP_BY_ERROR"}


def test_whoever_prints_is_not_silent(repository: Repository, folder: Path) -> None:
    line = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 0.5; done"
    assert build(repository.order(one_step(line), silence_timeout=5), folder).outcome == "success"


async def _cancelled(order: builder.BuildOrder, folder: Path, seconds: str) -> None:
    task = asyncio.create_task(builder.perform(order, folder, lambda change: None))
    while not alive(seconds):
        assert not task.done()
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.claim("B3")
def test_a_cancelled_build_ends_its_processes_and_is_aborted_in_its_folder(
    repository: Repository, folder: Path
) -> None:
    seconds = unique()
    order = repository.order(
        one_step(f"(setsid nohup sleep {seconds} &); sleep {seconds}") + "[steps.more]\nafter='only'\n"
    )
    asyncio.run(_cancelled(order, folder, seconds))
    assert not alive(seconds)
    result = read_completed(folder)
    assert result is not None
    assert (result.outcome, result.error) == ("aborted", "aborted")
    assert result.steps == {"only": "ERROR", "more": "SKIP_BY_ERROR"}
    assert sorted(os.listdir(folder)) == ["completed", "generated", "log"]


@pytest.mark.claim("B3", "B5")
def test_a_new_attempt_begins_with_an_empty_folder(repository: Repository, folder: Path) -> None:
    build(
        repository.order(one_step("echo 1 > o", "mkdir -p d/e; touch d/e/f; chmod 0 d", outputs="{ old = 'o' }")),
        folder,
    )
    assert os.listdir(folder / "generated") == ["old"]
    seen: list[list[str]] = []
    order = repository.order(one_step("true"))
    build(order, folder, lambda change: seen.append(sorted(os.listdir(folder / "generated"))))
    assert seen[0] == []
    assert "old" not in log_of(folder)


@pytest.mark.claim("B5")
def test_an_attempt_that_was_thought_dead_cannot_complete_the_folder_of_the_next(
    repository: Repository, folder: Path
) -> None:
    result = build(repository.order(one_step("true")), folder)
    late = BuildFolder(folder)
    following = BuildFolder(folder)
    with pytest.raises(Conflict, match="newer attempt"):
        late.complete(result)
    late.close()
    assert read_completed(folder) is None
    following.complete(result)
    following.close()
    assert read_completed(folder) == result


@pytest.mark.claim("B5")
def test_a_builder_that_is_killed_leaves_no_process_and_nothing_completed(repository: Repository, folder: Path) -> None:
    seconds = unique()
    order = repository.order(one_step(f"(setsid nohup sleep {seconds} >/dev/null 2>&1 &); sleep {seconds}"))
    program = textwrap.dedent(
        f"""
        import asyncio
        from pathlib import Path
        from holdfast.builds.order import BuildOrder, Sandbox
        from holdfast.worker import builder
        order = BuildOrder(project="demo", commit={order.commit!r}, repository={order.repository!r}, sandbox=Sandbox.NONE)
        asyncio.run(builder.perform(order, Path({str(folder)!r}), lambda change: None))
        """
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        wait_until(lambda: len(alive(seconds)) == 2, "both sleepers")
        process.kill()
    wait_until(lambda: not alive(seconds), "the end of both sleepers")
    assert read_completed(folder) is None
    assert (folder / "generated").is_dir()
    assert build(order_of(repository, repository.commit(one_step("true"))), folder).outcome == "success"


def test_a_build_whose_keeper_is_killed_is_an_error(repository: Repository, folder: Path) -> None:
    line = "kill -9 $(ps -o ppid= -p $PPID); sleep 3"
    result = build(repository.order(one_step(line)), folder)
    assert (result.outcome, result.error) == ("error", "a process that watches over the build was killed or stopped")


def test_nobody_who_is_told_can_break_a_build(repository: Repository, folder: Path) -> None:
    def broken(change: StepChange) -> None:
        raise RuntimeError("no")

    assert build(repository.order(one_step("true")), folder, broken).outcome == "success"


def test_a_step_without_lines_gathers_others(repository: Repository, folder: Path) -> None:
    result = build(repository.order("[steps.a]\nrun='true'\n[steps.all]\nafter='a'\n"), folder)
    assert result.steps == {"a": "SUCCESS", "all": "SUCCESS"}


def test_secrets_are_blotted_out_of_the_log_wherever_it_is_cut(repository: Repository, folder: Path) -> None:
    file = one_step(
        "printf 'very'; sleep 0.3; echo 'secret'", "echo $TOKEN | wc -c", 'echo "x $TOKEN y"', "printf very"
    )
    assert build(repository.order(file, secrets={"TOKEN": "verysecret"}), folder).outcome == "success"
    log = log_of(folder)
    assert "x *** y" in log
    assert "\n11\n" in log
    assert "verysecret" not in log.replace("$ ", "")
    assert "\nvery\x1b" in log


def test_no_byte_of_a_secret_gets_through_where_one_begins_with_or_overlaps_another() -> None:
    generator = random.Random(8)
    for _ in range(3_000):
        secrets = ["".join(generator.choices("ab", k=generator.randint(4, 7))) for _ in range(3)]
        text = "".join(generator.choices("abc", k=30)).encode()
        blotter, shown, at = Blotter([secret.encode() for secret in secrets]), b"", 0
        while at < len(text):
            size = generator.randint(1, 6)
            shown += blotter.through(text[at : at + size])
            at += size
        shown += blotter.rest()
        assert re.sub(rb"(\*\*\*)+", b"*", shown) == _without(text, [secret.encode() for secret in secrets])


def _without(text: bytes, secrets: list[bytes]) -> bytes:
    """Byte by byte: those that are in a secret anywhere are hidden."""
    hidden = [
        any(
            text[at : at + len(secret)] == secret
            for secret in secrets
            for at in range(max(0, place - len(secret) + 1), place + 1)
        )
        for place in range(len(text))
    ]
    kept = bytes(ord("*") if hide else letter for letter, hide in zip(text, hidden, strict=True))
    return re.sub(rb"\*+", b"*", kept)


@pytest.mark.parametrize(
    ("address", "secret"),
    [("https://ann:pa%20ssword@127.0.0.1:1/x", "pa ssword"), ("https://ghp_t0ken@127.0.0.1:1/x", "ghp_t0ken")],
)
def test_what_in_an_address_is_secret_is_blotted_out(address: str, secret: str) -> None:
    assert secret in credentials(address)
    assert "ann" not in credentials(address)
    assert credentials("ssh://git-user@host/x") == credentials("git@host:x") == []


def test_a_build_that_is_not_trusted_has_no_secrets(repository: Repository, folder: Path) -> None:
    file = one_step('test -z "$TOKEN"', 'test "$MODE" = ci')
    order = repository.order(file, secrets={"TOKEN": "verysecret"}, env={"MODE": "ci"}, trusted=False)
    assert build(order, folder).outcome == "success"


def test_failed_and_error_are_told_apart_for_the_job(repository: Repository, folder: Path) -> None:
    with pytest.raises(Failed, match="exited with 1"):
        conclude(build(repository.order(one_step("exit 1")), folder))
    with pytest.raises(BuildError, match="silence timeout"):
        conclude(build(repository.order(one_step("sleep 100"), silence_timeout=1), folder))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"timeout": 1.5}, "total timeout: not finished after 1.5 s, in the clone"),
        ({"silence_timeout": 1.5}, "silence timeout: nothing was printed for 1.5 s, in the clone"),
    ],
)
def test_a_clone_from_a_server_that_never_answers_ends_in_time(
    repository: Repository, folder: Path, limits: dict[str, float], said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"git://127.0.0.1:{server.getsockname()[1]}/demo.git"
        order = structs.replace(order_of(repository, "a" * 40, **limits), repository=address)
        result = build(order, folder)
    assert (result.outcome, result.error) == ("error", said)


@pytest.mark.claim("B3")
def test_a_build_that_ends_without_a_builder_has_its_files_too(repository: Repository, folder: Path) -> None:
    order = repository.order(one_step("echo kept"))
    now = build(order, folder).end_time
    end_without_builder(folder, order.owner, "error", "its builder was lost", now)
    assert "kept" in log_of(folder)
    fresh = folder.parent / "8"
    end_without_builder(fresh, order.owner, "aborted", "aborted before a builder had it", now)
    assert sorted(os.listdir(fresh)) == ["completed", "generated", "log"]
    assert log_of(fresh) == "aborted before a builder had it\n"
    result = read_completed(fresh)
    assert result is not None
    assert (result.outcome, result.start_time, result.commit) == ("aborted", None, order.commit)


def test_what_killed_builders_left_beside_the_folders_is_removed(repository: Repository, folder: Path) -> None:
    result = build(repository.order(one_step("true")), folder)
    left = folder.parent / ".9-old-abcd"
    (left / "x").mkdir(parents=True)
    remove_leftovers(folder.parent, result.start_time or result.end_time)
    assert left.exists()
    os.utime(left, (0, 0))
    remove_leftovers(folder.parent, result.end_time)
    assert os.listdir(folder.parent) == [folder.name]


def test_the_log_is_there_while_the_build_runs(repository: Repository, folder: Path) -> None:
    seconds = unique()
    order = repository.order(one_step(f"echo first; sleep {seconds}"), limits=Limits())

    async def watched() -> str:
        task = asyncio.create_task(builder.perform(order, folder, lambda change: None))
        while not alive(seconds) or "first\n" not in log_of(folder):
            assert not task.done()
            await asyncio.sleep(0.01)
        seen = log_of(folder)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    assert "first\n" in asyncio.run(watched())
