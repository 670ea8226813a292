"""A database that is restored from a backup gives job ids out again, while the folder of builds has files of their first owners (B2, B5)."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
from litestar.testing import TestClient

from holdfast import App
from holdfast.builds.build import BuildState
from holdfast.builds.project import Secret
from holdfast.web.app import create
from tests.builds.forge import Forge
from tests.builds.making import Repository
from tests.builds.test_hooks import ADDRESS, HOOKS
from tests.builds.yard import Yard, until

pytestmark = pytest.mark.claim("B2", "B5")
SAYS = """
[steps.a]
run = ["echo this is {number} with ${{TOKEN:-no token}} | tee art"]
outputs = {{ art = "art" }}
"""
Lives = Callable[[], Forge]


class Database:
    """A SQLite file with its backup."""

    def __init__(self, root: Path) -> None:
        self.path, self.backup = root / "jobs.db", root / "backup.db"

    def back_up(self) -> None:
        shutil.copy(self.path, self.backup)

    def restore(self) -> None:
        for left in self.path.parent.glob("jobs.db*"):
            left.unlink()
        shutil.copy(self.backup, self.path)

    @contextmanager
    def life(self, repository: Repository) -> Iterator[Forge]:
        """Programs on the database as it is, and on the folder of builds as it is."""
        root = self.path.parent
        with ExitStack() as held:
            app = held.enter_context(App(f"sqlite:///{self.path}"))
            here = Yard(app, root, repository, hooks=HOOKS, secrets={"TOKEN": Secret("TOKEN")})
            yield Forge(here, held.enter_context(TestClient(create(app, projects=here.projects), base_url=ADDRESS)))


@pytest.fixture
def database(tmp_path: Path) -> Database:
    (tmp_path / "site").mkdir()
    return Database(tmp_path / "site")


def says(number: str) -> str:
    return SAYS.format(number=number)


@pytest.fixture
def restored(database: Database, repository: Repository) -> Iterator[Forge]:
    """After the backup commit two was built by job 2; then the backup came back, and the folder stayed as it was."""
    with database.life(repository) as forge:
        forge.built("push", repository.commit(says("one")))
    database.back_up()
    with database.life(repository) as forge:
        two = forge.built("push", repository.commit(says("two")))
        assert (two["job_id"], forge.output(two["id"])) == (2, "this is two with t0ken")
    database.restore()
    with database.life(repository) as forge:
        yield forge


def shows_nothing_of_two(forge: Forge, build: int) -> None:
    """Neither the API nor the page, nor the log as it grows."""
    for path in ("", "/log?follow=false", "/outputs/art"):
        assert "this is two" not in forge.get(f"/api/v1/builds/{build}{path}").text
        assert "this is two" not in forge.get(f"/builds/{build}").text
    assert forge.get(f"/api/v1/builds/{build}/outputs/art").status_code == 404
    assert forge.get(f"/api/v1/builds/{build}").json()["outputs"] == []


def test_a_build_that_waits_shows_nothing_and_a_sweep_removes_the_folder(
    restored: Forge, repository: Repository
) -> None:
    here, three = restored.here, restored.send("push", repository.commit(says("three")))
    assert three["job_id"] == 2
    assert (here.projects.path(2) / "completed").exists()
    shows_nothing_of_two(restored, three["id"])
    here.projects.sweep(here.app.store, everything=True)
    here.stands(three["id"], BuildState.RECEIVED)


def test_a_build_that_is_aborted_before_it_begins_has_its_own_end(restored: Forge, repository: Repository) -> None:
    here, three = restored.here, restored.send("push", repository.commit(says("three")))
    here.projects.abort(three["id"])
    here.stands(three["id"], BuildState.CACHED)
    found = here.projects.look(three["id"])
    assert (found.job_id, found.outcome, found.steps) == (2, "aborted", ())
    assert here.log(found).startswith("The build ended before a builder began: ")
    assert sorted(path.name for path in here.folder(found).iterdir()) == ["completed", "generated", "log"]
    assert list((here.folder(found) / "generated").iterdir()) == []
    shows_nothing_of_two(restored, found.id)


def test_a_build_that_runs_has_its_own_files(restored: Forge, repository: Repository) -> None:
    three = restored.built("push", repository.commit(says("three")))
    restored.here.stands(three["id"], BuildState.CACHED)
    assert (three["job_id"], restored.output(three["id"])) == (2, "this is three with t0ken")
    assert "this is two" not in restored.log(three["id"])


def test_the_same_commit_in_another_context_gets_no_file_of_the_first(
    database: Database, repository: Repository
) -> None:
    """Else an untrusted build could give a trusted one its outputs."""
    with database.life(repository) as forge:
        forge.built("push", repository.commit(says("one")))
    database.back_up()
    commit = repository.commit(says("two"))
    with database.life(repository) as forge:
        theirs = forge.built("label", commit, fork=True)
        assert (theirs["job_id"], forge.output(theirs["id"])) == (2, "this is two with no token")
    database.restore()
    with database.life(repository) as forge:
        ours = forge.send("push", commit)
        assert (ours["id"], ours["job_id"]) == (theirs["id"], 2)
        shows_nothing_of_two(forge, ours["id"])
        forge.here.projects.abort(ours["id"])
        shows_nothing_of_two(forge, ours["id"])


def test_a_build_that_was_there_before_the_backup_keeps_its_files(restored: Forge) -> None:
    restored.here.projects.sweep(restored.here.app.store, everything=True)
    restored.here.stands(1, BuildState.CACHED)
    assert restored.output(1) == "this is one with t0ken"


@pytest.mark.parametrize("changed", ["commit", "job_id", "project", "instance"])
def test_completed_of_another_build_counts_for_nothing_and_the_page_says_so(
    restored: Forge, repository: Repository, changed: str
) -> None:
    here, build = restored.here, restored.here.projects.look(1)
    assert "files of this build are not" not in restored.get("/builds/1").text
    file = here.folder(build) / "completed"
    said = msgspec.json.decode(file.read_bytes())
    assert (said["commit"], said["job_id"], said["project"]) == (build.commit, build.job_id, "demo")
    assert (said["instance"], said["context"]["branch"]) == (here.app.store.identity(), "main")
    file.write_bytes(msgspec.json.encode(said | {changed: 77 if changed == "job_id" else "other"}))
    here.projects.cached.clear()
    assert here.projects.result(build) is None
    assert "files of this build are not in the folder" in restored.get("/builds/1").text
    assert "this is one" not in restored.get("/builds/1").text
    log = restored.get("/api/v1/builds/1/log")
    assert (log.status_code, "holdfast builds retry 1" in log.json()["detail"]) == (404, True)
    here.projects.retry(1)
    here.app.run_until_idle()
    assert restored.output(1) == "this is one with t0ken"


def test_completed_of_an_older_holdfast_counts_by_its_commit(restored: Forge) -> None:
    here, build = restored.here, restored.here.projects.look(1)
    file = here.folder(build) / "completed"
    said = msgspec.json.decode(file.read_bytes())
    for name in ("job_id", "project", "instance", "context", "condition_names"):
        del said[name]
    file.write_bytes(msgspec.json.encode(said))
    here.projects.cached.clear()
    assert restored.output(1) == "this is one with t0ken"
    file.write_bytes(msgspec.json.encode(said | {"commit": "ab" * 20}))
    here.projects.cached.clear()
    assert here.projects.result(build) is None


def test_a_folder_that_a_builder_has_just_made_anew_is_not_removed(
    restored: Forge, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep has read the old `completed`, and a builder begins before the sweep removes the folder."""
    here = restored.here
    commit = repository.commit(
        f'[steps.a]\nrun = ["while [ ! -e {here.gate} ]; do sleep 0.02; done", "echo last line"]\n'
    )
    three = restored.send("push", commit)
    read = here.projects._read_completed

    def slowly(build: object) -> object:
        found = read(build)
        until(lambda: "while" in here.log(three["id"]), what="the build runs")
        return found

    with here.app.worker(concurrency=2):
        monkeypatch.setattr(here.projects, "_read_completed", slowly)
        here.projects.purge(here.app.store)
        monkeypatch.undo()
        assert (here.projects.path(2) / "log").exists()
        here.open()
        until(lambda: not here.projects.look(three["id"]).active)
    here.stands(three["id"], BuildState.CACHED)
    assert "last line" in restored.log(three["id"])
