"""A place to build in: the settings of a project on a real git repository, and looks at what lies in the folder."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import App
from holdfast.builds.build import STANDINGS, Build, BuildState
from holdfast.builds.forges import Wanted
from holdfast.builds.order import Sandbox
from holdfast.builds.project import BuildSettings, Project, Secret
from holdfast.projects import Projects
from holdfast.stores.contract import Received
from tests.builds.making import Repository

SECRET = "s3cret"
QUICK = '[steps.test]\nrun = ["echo hello"]\n'
FAILING = '[steps.test]\nrun = ["echo no; exit 3"]\n'
GATED = """
[steps.first]
run = ["echo first line", "while [ ! -e {gate} ]; do sleep 0.02; done", "echo last line"]
outputs = {{ report = "report.txt" }}
[steps.second]
after = ["first"]
run = ["echo second"]
"""


class Yard:
    """One program that builds: an app, its projects, its folder."""

    def __init__(
        self,
        app: App,
        root: Path,
        repository: Repository,
        cache: int = 10,
        keep: float | None = None,
        disk_reserve: int = 0,
        **project: Any,
    ) -> None:
        self.app, self.repository, self.root = app, repository, root
        self.gate = root / "gate"
        named: dict[str, Any] = {"sandbox": Sandbox.NONE, "hooks": {"github": Secret("HOOK_SECRET")}, **project}
        demo = Project(name="demo", repository=f"file://{repository.path}", **named)
        settings = BuildSettings(cache=cache, disk_reserve=disk_reserve, projects={"demo": demo}, keep=keep)
        self.projects = Projects(app, settings, root, {"HOOK_SECRET": SECRET, "TOKEN": "t0ken"})
        self.demo = demo

    def gated(self) -> str:
        """A commit whose build waits for the gate."""
        return self.repository.commit(GATED.format(gate=self.gate), {"report.txt": "all is well"})

    def open(self) -> None:
        self.gate.touch()

    def ask(self, commit: str, **more: Any) -> Received:
        named: dict[str, Any] = {"branch": "main", "ref": "refs/heads/main", **more}
        return self.projects.ask(self.demo, Wanted(commit=commit, **named))

    def build(self, commit: str) -> Build:
        """Ask for a build and run it to its end."""
        received = self.ask(commit)
        self.app.run_until_idle()
        return self.projects.look(received.build.id)

    def folder(self, build: Build | int) -> Path:
        found = build if isinstance(build, Build) else self.projects.look(build)
        return self.projects.path(found.job_id)

    def log(self, build: Build | int) -> str:
        """What is in it so far."""
        try:
            return (self.folder(build) / "log").read_text()
        except FileNotFoundError:
            return ""

    def stands(self, build: int, state: BuildState) -> None:
        """Every cell of the table for this build (B2): the state, the files, ACTIVE, CACHED."""
        found = self.projects.look(build)
        assert found.build_state is state
        standing, folder = STANDINGS[state], self.folder(found)
        for name in standing.exists:
            assert (folder / name).exists(), f"{state}: {name} is missing"
        for name in standing.absent:
            assert not (folder / name).exists(), f"{state}: {name or 'the folder'} is there"
        active = {each.id for each in self.projects.builds(limit=1000) if each.active}
        cached = {each for each, _ in self.app.store.cached_builds(self.projects.settings.cache)}
        assert (build in active, build in cached) == (standing.active, standing.cached)
        if not standing.active:
            assert self.projects.result(found) is not None
            assert (build in self.projects.cached) == standing.cached, "CACHED is what this process has in memory"


def until(condition: Callable[[], Any], timeout: float = 60, what: str = "", every: float = 0.02) -> Any:
    """Wait for something to become true; fails the test if it does not."""
    ends = time.monotonic() + timeout
    while time.monotonic() < ends:
        found = condition()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"did not happen within {timeout:g} s: {what or condition}")
