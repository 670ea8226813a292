"""Files that Holdfast makes are read by their owner, or by the group of a folder that shares."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App
from holdfast.builds.build import Build
from holdfast.builds.forges import Wanted
from holdfast.builds.project import BuildSettings, Project
from holdfast.clock import Clock
from holdfast.file_modes import ensure_folder, file_mode, make_file, open_file, too_wide
from holdfast.projects import Projects
from tests.builds.making import Repository
from tests.cli.terminal import Call, called_here, environment


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes_in(folder: Path) -> dict[str, int]:
    return {path.name: mode(path) for path in folder.iterdir() if not path.is_dir()}


@pytest.fixture(params=[0, 0o022, 0o077, 0o177])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    made.chmod(0o755)
    return made


@pytest.fixture(params=[0o755, 0o775, 0o2755, 0o2770])
def any_folder(request: pytest.FixtureRequest, folder: Path) -> Path:
    folder.chmod(request.param)
    return folder


def expected(folder: Path) -> int:
    return 0o660 if mode(folder) == 0o2770 else 0o600


def test_a_database_is_for_its_owner_or_the_group_that_shares_its_folder(umask: int, any_folder: Path) -> None:
    with App(f"sqlite:///{any_folder}/jobs.db") as app:
        app.queue("mail").job(name="send")(lambda: None)
        app.enqueue("mail", "send", {})
        with app.worker():
            found = modes_in(any_folder)
    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm"} < set(found)
    assert len(found) > 3, "a worker locks a file"
    assert set(found.values()) == {expected(any_folder)}


def test_a_database_never_has_a_wider_mode_than_it_keeps(folder: Path) -> None:
    """Looked at as often as possible while many are made."""
    seen, over = set(), threading.Event()

    def look() -> None:
        while not over.is_set():
            for entry in os.scandir(folder):
                try:
                    seen.add(stat.S_IMODE(entry.stat().st_mode))
                except FileNotFoundError:
                    continue

    before, watcher = os.umask(0), threading.Thread(target=look)
    try:
        watcher.start()
        for number in range(20):
            App(f"sqlite:///{folder}/{number}.db").store.queues()
    finally:
        os.umask(before)
        over.set()
        watcher.join()
    assert seen == {0o600}


def test_a_database_that_is_there_keeps_its_mode(folder: Path) -> None:
    path = folder / "jobs.db"
    path.touch()
    path.chmod(0o644)
    App(f"sqlite:///{path}").store.queues()
    assert mode(path) == 0o644


def test_a_link_to_a_database_that_is_not_there_yet_is_followed(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(folder / "jobs.db")
    App(f"sqlite:///{link}").store.queues()
    assert modes_in(folder)["jobs.db"] == 0o600


def test_a_database_in_memory_makes_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    App("sqlite://:memory:").store.queues()
    assert list(folder.iterdir()) == []


def test_a_file_that_cannot_be_made_is_told_by_sqlite(folder: Path) -> None:
    make_file(str(folder / "none" / "jobs.db"))
    assert list(folder.iterdir()) == []


def test_an_export_is_a_new_file_of_its_owner(umask: int, any_folder: Path) -> None:
    App(f"sqlite:///{any_folder}/jobs.db").store.queues()
    for name in ("jobs.jsonl", "jobs.jsonl.partial"):
        (any_folder / name).touch()
        (any_folder / name).chmod(0o666)
    command = [sys.executable, "-m", "holdfast", "archive", "--export", "jobs.jsonl", "--url", "sqlite:///jobs.db"]
    subprocess.run(command, cwd=any_folder, env=environment(), check=True, umask=umask, capture_output=True)
    assert modes_in(any_folder)["jobs.jsonl"] == expected(any_folder)
    assert "jobs.jsonl.partial" not in modes_in(any_folder)


def built(folder: Path, tmp_path: Path) -> Build:
    repository = Repository(tmp_path / "repository")
    commit = repository.commit('[steps.only]\nrun = ["echo made > made"]\noutputs = { made = "made" }\n')
    demo = Project(name="demo", repository=f"file://{repository.path}")
    with App(f"sqlite:///{folder}/jobs.db") as app:
        projects = Projects(app, BuildSettings(projects={"demo": demo}), folder, {})
        made = projects.ask(demo, Wanted(commit=commit, branch="main", ref="refs/heads/main")).build
        app.run_until_idle()
        return projects.look(made.id)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077], indirect=True)
def test_builds_are_for_their_owner_or_the_group(umask: int, any_folder: Path, tmp_path: Path) -> None:
    """A umask that takes the owner's rights away makes folders that no step may enter."""
    build = built(any_folder, tmp_path)
    assert build.outcome == "success", build.error
    found = [any_folder / "builds", *(any_folder / "builds").rglob("*")]
    files = {path.name: mode(path) for path in found if path.is_file()}
    folders = {path.name: mode(path) for path in found if path.is_dir()}
    assert {"log", "completed", "made", ".instance"} <= set(files)
    assert set(files.values()) == {expected(any_folder)}
    assert set(folders.values()) == {0o2770 if expected(any_folder) == 0o660 else 0o700}


def test_opening_what_is_there_leaves_its_mode(folder: Path) -> None:
    path = folder / "log"
    path.touch()
    path.chmod(0o640)
    os.close(open_file(path, os.O_WRONLY | os.O_CREAT))
    with pytest.raises(FileExistsError):
        open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    ensure_folder(folder)
    assert (mode(path), mode(folder), file_mode(folder)) == (0o640, 0o755, 0o600)


@pytest.mark.parametrize(("found", "wanted"), [(0o644, 0o600), (0o660, 0o600), (0o604, 0o600), (0o600, None)])
def test_a_mode_that_is_too_wide_is_found(folder: Path, found: int, wanted: int | None) -> None:
    path = folder / "jobs.db"
    path.touch()
    path.chmod(found)
    assert too_wide(path) == wanted


def test_the_doctor_warns_of_wide_modes_and_says_the_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli: Call = called_here(monkeypatch, folder, capsys)
    (folder / "holdfast.toml").write_text("url = 'sqlite:///jobs.db'\n[builds]\nfolder = 'builds'\n")
    (folder / "builds").mkdir(mode=0o755)
    with App("sqlite:///jobs.db", clock=Clock()) as app:
        app.store.queues()
        answer = cli("doctor")
        assert (
            f"! file modes: other users of this machine may read {folder}/builds. Run: chmod 700 {folder}/builds"
            in answer.out
        )
        for path in folder.glob("jobs.db*"):
            path.chmod(0o644)
        answer = cli("doctor")
        files = " ".join(f"{folder}/jobs.db{end}" for end in ("", "-wal", "-shm"))
        assert (answer.code, f"Run: chmod 600 {files}\n" in answer.out) == (0, True), answer.out
        found = {check["name"]: check for check in cli("doctor", "--json").json}
        assert found["file modes"]["ok"]
        assert found["file modes"]["detail"].startswith("warning: other users")
        subprocess.run(f"chmod 600 {files}; chmod 700 {folder}/builds", shell=True, check=True)
        assert "file modes" not in cli("doctor").out
