"""Control groups: on trees of files like the kernel's, and where this machine allows it on its own."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from holdfast.builds.order import Limits
from holdfast.builds.result import BuildResult
from holdfast.worker import builder
from holdfast.worker.building.control_group import ControlGroup, end_group, find_parent
from holdfast.worker.building.performance import Place
from tests.builds.making import Repository, alive, one_step, unique

pytestmark = pytest.mark.claim("B6")


class Tree:
    """A mounted hierarchy, and what the kernel tells a process in the group `own`."""

    def __init__(self, path: Path, own: str) -> None:
        self.root, self.own = path / "cgroup", path / "own"
        group = self.root / own.strip("/")
        group.mkdir(parents=True)
        self.parent = group.parent
        (self.parent / "cgroup.procs").touch()
        (self.parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
        self.own.write_text(f"1:name=systemd:/elsewhere\n0::{own}\n")

    def find(self) -> str | None:
        return find_parent(str(self.root), str(self.own))

    def delegate(self) -> None:
        try:
            os.setxattr(self.parent, "user.delegate", b"1")
        except OSError:
            pytest.skip("this file system has no attributes")


def test_groups_are_made_beside_the_workers_own_where_that_was_delegated(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "/system.slice/holdfast.service/worker")
    assert tree.find() is None
    tree.delegate()
    assert tree.find() == str(tree.root / "system.slice" / "holdfast.service")


def test_groups_are_made_in_the_root_of_a_container(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "/worker")
    assert tree.find() == str(tree.root)


def test_without_controllers_or_a_group_of_its_own_there_are_none(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "/worker")
    (tree.parent / "cgroup.subtree_control").write_text("cpu\n")
    assert tree.find() is None
    assert (tree.parent / "cgroup.subtree_control").read_text() == "+memory +pids", "the kernel was asked to add them"
    tree.own.write_text("0::/\n")
    assert tree.find() is None
    tree.own.write_text("4:memory:/x\n")
    assert tree.find() is None
    assert find_parent(str(tmp_path / "none"), str(tmp_path / "none")) is None


def test_a_group_has_the_limits_and_says_which_one_the_kernel_enforced(tmp_path: Path) -> None:
    folder = tmp_path / "group"
    group = ControlGroup(str(folder), memory=1_000_000, processes=20)
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert written == {"memory.max": "1000000", "memory.oom.group": "1", "pids.max": "20"}
    group.join()
    assert (folder / "cgroup.procs").read_text() == "0"
    assert group.overuse() is None
    (folder / "pids.events").write_text("max 3\n")
    assert group.overuse() == ("processes", "20")
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 1\n")
    (folder / "memory.peak").write_text("1000448\n")
    assert group.overuse() == ("memory", "1000448")


def perform(repository: Repository, folder: Path, parent: Path, line: str) -> BuildResult:
    order = repository.order(one_step(line), limits=Limits(memory=50_000_000, processes=100))
    place = Place(group_parent=str(parent))
    return asyncio.run(builder.perform(order, folder, lambda change: None, place))


def test_each_command_of_a_build_is_in_a_group(repository: Repository, folder: Path, tmp_path: Path) -> None:
    (parent := tmp_path / "parent").mkdir()
    seen = f"cat {parent}/*/memory.max {parent}/*/pids.max {parent}/*/cgroup.procs"
    result = perform(repository, folder, parent, f'test "$({seen})" = 500000001000')
    assert (result.outcome, result.error) == ("success", None)
    (group,) = parent.iterdir()
    assert (group / "cgroup.kill").read_text() == "1"


def test_a_limit_that_the_kernel_enforced_is_the_builds_error(
    repository: Repository, folder: Path, tmp_path: Path
) -> None:
    (parent := tmp_path / "parent").mkdir()
    seconds = unique()
    line = f"echo oom_kill 1 > $(echo {parent}/*)/memory.events; sleep {seconds}"
    result = perform(repository, folder, parent, line)
    assert (result.outcome, result.error) == (
        "failed",
        "memory limit: 50,000,000 bytes, 50,000,000 are allowed, in step only",
    )
    assert not alive(seconds)


def test_the_group_of_a_keeper_that_is_killed_is_ended(repository: Repository, folder: Path, tmp_path: Path) -> None:
    (parent := tmp_path / "parent").mkdir()
    line = f"rm {parent}/*/cgroup.kill; kill -9 $(ps -o ppid= -p $PPID); exec sleep {unique()}"
    assert perform(repository, folder, parent, line).outcome == "error"
    (group,) = parent.iterdir()
    assert (group / "cgroup.kill").read_text() == "1"


def test_all_processes_of_a_real_group_are_ended_with_it() -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if " cgroup2 " in line]
    folder = Path(mounts[0] if mounts else "/nonexistent", f"holdfast-test-{unique()}")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this user may make no control group here")
    seconds = unique()
    try:
        (folder / "inner").mkdir()
        for group in (folder, folder / "inner"):
            line = f"echo 0 > {group}/cgroup.procs && exec setsid sleep {seconds}"
            subprocess.run(
                ["/bin/sh", "-c", f"({line}) & while ! grep -q . {group}/cgroup.procs; do :; done"], check=True
            )
    finally:
        end_group(str(folder))
    assert not alive(seconds)
    assert not folder.exists()


def test_to_end_a_group_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    end_group(str(tmp_path / "none"))
