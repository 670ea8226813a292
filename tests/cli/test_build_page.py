"""`holdfast builds list`, `show` and `log`: the refs of a build, and a log with escape codes in a pipe and on a terminal."""

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import App
from holdfast.cli.log_text import LONGEST_HELD, LogText
from tests.builds.making import Repository, one_step
from tests.builds.yard import Yard
from tests.cli.conftest import Call
from tests.cli.terminal import PATIENCE, environment, run

NOISY = one_step(r'printf "\033[31mred\033[0m \033]0;a title\007\033[2J\033]52;c;YQ==\033\\plain\n"')
WHOLE = "\x1b[1;31mé\x1b[0m a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c\x1b[2J\x1b(Bd\x9b5me\x00\x08\tf\r\ng"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a build has left its log."""
    repository = Repository(tmp_path / "repository")
    with App(f"sqlite:///{tmp_path}/jobs.db", name="shop") as app:
        yard = Yard(app, tmp_path, repository)
        assert yard.build(repository.commit(NOISY)).outcome == "success"
    (tmp_path / "holdfast.toml").write_text(f'url = "sqlite:///{tmp_path}/jobs.db"\n')
    return tmp_path


def on_a_terminal(folder: Path, **variables: str) -> bytes:
    """What `holdfast builds log 1` writes there."""
    above, below = pty.openpty()
    command = [sys.executable, "-m", "holdfast", "builds", "log", "1"]
    said = b""
    with subprocess.Popen(command, cwd=folder, env=environment(**variables), stdout=below) as process:
        os.close(below)
        with suppress(OSError):  # the other end is closed
            while piece := os.read(above, 1 << 16):
                said += piece
        assert process.wait(PATIENCE) == 0
    os.close(above)
    return said


@pytest.mark.claim("B9")
class TestTheLogOfABuild:
    @pytest.mark.parametrize("more", [(), ("--follow",)])
    def test_has_no_escape_codes_in_a_pipe(self, folder: Path, more: tuple[str, ...]) -> None:
        answer = run(folder, "builds", "log", "1", *more)
        assert (answer.code, "\x1b" in answer.out) == (0, False)
        assert "red plain\n" in answer.out

    def test_has_colours_on_a_terminal_and_no_other_codes(self, folder: Path) -> None:
        said = on_a_terminal(folder, TERM="xterm-256color")
        assert b"\x1b[31mred\x1b[0m plain" in said
        assert not any(code in said for code in (b"\x1b]", b"\x1b[2J", b"a title\x07", b"YQ==\x1b"))

    @pytest.mark.parametrize("variables", [{"NO_COLOR": "1", "TERM": "xterm-256color"}, {"TERM": "dumb"}])
    def test_has_none_on_a_terminal_that_wants_none(self, folder: Path, variables: dict[str, str]) -> None:
        said = on_a_terminal(folder, **variables)
        assert (b"\x1b" in said, b"red plain" in said) == (False, True)

    def test_is_whole_for_a_program(self, folder: Path) -> None:
        answer = run(folder, "builds", "log", "1", "--json")
        text = "".join(json.loads(line)["text"] for line in answer.out.splitlines())
        assert "\x1b[31mred\x1b[0m" in text
        assert "\x1b" not in answer.out


class TestThePiecesOfALog:
    @pytest.mark.parametrize("size", [1, 2, 3, 1000])
    def test_give_the_same_text_wherever_they_are_cut(self, size: int) -> None:
        content, plain, colours = WHOLE.encode(), LogText(colours=False), LogText(colours=True)
        pieces = [content[at : at + size] for at in range(0, len(content), size)]
        assert "".join(plain.text(piece) for piece in pieces) == "é abcde\tf\r\ng"
        assert "".join(colours.text(piece) for piece in pieces) == "\x1b[1;31mé\x1b[0m abcde\tf\r\ng"

    def test_are_not_held_back_for_ever(self) -> None:
        text = LogText(colours=False)
        assert text.text(b"begin\x1b]" + b"x" * 2 * LONGEST_HELD + b"\nend") == "begin\nend"
        assert text.text(b"\x1b[" + b"1" * 2 * LONGEST_HELD) == "1" * 2 * LONGEST_HELD

    def test_of_any_bytes_have_no_escape_code(self) -> None:
        text = LogText(colours=False)
        said = text.text(bytes(range(256)) * 3 + "\x9b\x1b\x1b[31".encode())
        assert not any(letter in said for letter in "\x1b\x9b\x07\x00")


@pytest.mark.claim("B4")
def test_a_build_names_every_ref_that_asked_for_it(cli: Call, tmp_path: Path) -> None:
    url, repository = f"sqlite:///{tmp_path}/jobs.db", Repository(tmp_path / "repository")
    with App(url, name="shop") as app:
        yard, commit = Yard(app, tmp_path, repository), repository.commit(NOISY)
        for number in (5, 6):
            yard.ask(commit, pull_request=number, branch="fix", ref=f"refs/pull/{number}/head")
    for command in (("list",), ("show", "1")):
        assert "#5 fix, #6 fix" in cli("builds", *command, "--url", url).out
    (listed,) = cli("builds", "list", "--url", url, "--json").json
    assert [each["ref"] for each in listed["refs"]] == ["refs/pull/5/head", "refs/pull/6/head"]
