"""Outputs of builds: what is kept, and what is refused (B7)."""

import os
from pathlib import Path

import pytest

from holdfast.builds.order import Limits
from holdfast.builds.result import Output
from tests.builds.making import Repository, build, log_of, one_step

pytestmark = pytest.mark.claim("B7")


def generated(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in (folder / "generated").iterdir()}


def test_files_are_kept_under_their_names(repository: Repository, folder: Path) -> None:
    file = one_step(
        "mkdir -p out/deep; echo 1 > out/deep/a.txt; echo 22 > b", outputs="{ 'a.txt' = 'out/deep/a.txt', b = './b' }"
    )
    result = build(repository.order(file), folder)
    assert generated(folder) == {"a.txt": "1\n", "b": "22\n"}
    assert result.outputs == (Output(name="a.txt", size=2, step="only"), Output(name="b", size=3, step="only"))


def test_an_output_that_is_not_made_fails_its_step(repository: Repository, folder: Path) -> None:
    result = build(repository.order(one_step("true", outputs="{ report = 'no/report' }")), folder)
    assert (result.outcome, result.error) == ("failed", "step only: output report: there is no file no/report")


def test_a_step_that_fails_keeps_what_it_has_made(repository: Repository, folder: Path) -> None:
    file = one_step("echo why > report; exit 1", outputs="{ report = 'report', more = 'more' }")
    result = build(repository.order(file), folder)
    assert (result.outcome, result.error) == ("failed", "step only: exited with 1: echo why > report; exit 1")
    assert generated(folder) == {"report": "why\n"}


@pytest.mark.parametrize(
    ("line", "path", "why"),
    [
        ("ln -s /etc/passwd out", "out", "symbolic link"),
        ("ln -s /etc dir", "dir/passwd", "symbolic link"),
        ("ln -s ../../../secret out", "out", "symbolic link"),
        ("mkdir a; ln -s .. a/up", "a/up/holdfast.build.toml", "symbolic link"),
        ("echo x > x; ln -s x out", "out", "symbolic link"),
        ("mkfifo out", "out", "no plain file"),
        ("mkdir out", "out", "a folder"),
        ("ln SECRET out", "out", "a hard link to a file outside"),
        ("ln SECRET out; ln SECRET other", "out", "a hard link to a file outside"),
    ],
)
def test_what_leads_elsewhere_is_refused(
    repository: Repository, folder: Path, tmp_path: Path, line: str, path: str, why: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("token")
    file = one_step(line.replace("SECRET", str(secret)), outputs=f"{{ x = '{path}' }}")
    result = build(repository.order(file), folder)
    assert result.outcome == "failed"
    assert why in (result.error or "")
    assert generated(folder) == {}
    assert "token" not in log_of(folder)


def test_hard_links_within_the_working_copy_are_nobodys_elses(repository: Repository, folder: Path) -> None:
    file = one_step("mkdir d; echo 1 > a; ln a b; ln a d/c", outputs="{ x = 'd/c' }")
    assert build(repository.order(file), folder).outcome == "success"
    assert generated(folder) == {"x": "1\n"}


@pytest.mark.parametrize("name", ["../x", ".x", "_x", "a/b", "..", "a..b"])
def test_a_name_that_is_none_is_refused_before_anything_runs(repository: Repository, folder: Path, name: str) -> None:
    result = build(repository.order(one_step("echo ran", outputs=f"{{ '{name}' = 'x' }}")), folder)
    assert result.outcome == "failed"
    assert "is no name for an output" in (result.error or "")
    assert "$ echo ran" not in log_of(folder)
    assert not (folder.parent / "x").exists()


def test_outputs_are_counted_over_all_steps(repository: Repository, folder: Path) -> None:
    file = "[steps.a]\nrun='touch x'\noutputs={a='x', b='x'}\n[steps.b]\noutputs={c='x'}\n"
    result = build(repository.order(file, limits=Limits(outputs=2)), folder)
    assert (result.outcome, result.error) == ("failed", "step b: output c: a build may keep 2 and no more")
    assert sorted(os.listdir(folder / "generated")) == ["a", "b"]


def test_outputs_are_measured_over_all_steps_and_no_half_is_kept(repository: Repository, folder: Path) -> None:
    file = "[steps.a]\nrun='head -c 3000000 /dev/zero > x'\noutputs={a='x'}\n[steps.b]\nafter='a'\noutputs={b='x'}\n"
    result = build(repository.order(file, limits=Limits(output_size=5_000_000)), folder)
    assert result.error == "step b: output b: with it the outputs are larger than 5,000,000 bytes"
    assert os.listdir(folder / "generated") == ["a"]


def test_the_build_file_itself_is_not_read_through_a_link(repository: Repository, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.toml").write_text("token = 'geheim'\n")
    (repository.path / "holdfast.build.toml").symlink_to(tmp_path / "secret.toml")
    result = build(repository.order(None), folder)
    assert result.outcome == "failed"
    assert "symbolic link" in (result.error or "")
    assert "geheim" not in log_of(folder)
