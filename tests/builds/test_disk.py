"""Builds that take more of the disk than they may: in the clone and in steps, and on a disk that is nearly full."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.builds.build import BuildState
from holdfast.builds.order import Limits, Sandbox
from holdfast.clock import MovableClock
from holdfast.worker import builder
from holdfast.worker.building.disk import Disk, free_bytes
from holdfast.worker.building.performance import Place
from tests.builds.making import Repository, alive, build, one_step, order_of, unique
from tests.builds.test_memory import BOTH, MEGABYTE
from tests.builds.test_sandbox import needs_bubblewrap
from tests.builds.yard import Yard

pytestmark = pytest.mark.claim("B6")
LIMITS = Limits(disk=20 * MEGABYTE, file_size=5 * MEGABYTE)
MANY = "for i in 1 2 3 4 5 6 7 8 9 10; do head -c 4000000 /dev/urandom > {}/file-$i; done"


@pytest.mark.parametrize("sandbox", BOTH)
@pytest.mark.parametrize("place", [".", "$HOME", "$TMPDIR"])
def test_files_that_are_too_large_together_end_the_build(
    repository: Repository, folder: Path, place: str, sandbox: Sandbox
) -> None:
    seconds = unique()
    order = repository.order(one_step(f"{MANY.format(place)}; sleep {seconds}"), limits=LIMITS, sandbox=sandbox)
    result = build(order, folder)
    assert result.outcome == "failed"
    assert (result.error or "").startswith("disk limit: ")
    assert "20,971,520 are allowed, in step only" in (result.error or "")
    assert result.steps == {"only": "FAILED"}
    assert not alive(seconds)


def test_a_step_that_ends_before_the_next_look_is_measured_at_its_end(repository: Repository, folder: Path) -> None:
    file = one_step("for i in 1 2 3 4 5 6; do fallocate -l 4000000 file-$i; done")
    result = build(repository.order(file, limits=LIMITS), folder)
    assert (result.outcome, (result.error or "")[:11]) == ("failed", "disk limit:")
    assert build(repository.order(file), folder).outcome == "success"


@needs_bubblewrap
def test_shared_memory_of_a_sandbox_is_on_the_disk(repository: Repository, folder: Path) -> None:
    order = repository.order(one_step(MANY.format("/dev/shm")), limits=LIMITS, sandbox=Sandbox.BUBBLEWRAP)
    assert (build(order, folder).error or "").startswith("disk limit: ")


def test_a_file_without_a_name_counts_while_it_is_open(repository: Repository, folder: Path) -> None:
    lines = 'for i in 3 4 5 6 7 8; do eval "exec $i>file"; rm file; eval "head -c 4000000 /dev/urandom >&$i"; done'
    order = repository.order(one_step(f"{lines}; sleep {unique()}"), limits=LIMITS)
    assert (build(order, folder).error or "").startswith("disk limit: ")


def test_files_deeper_than_the_longest_path_count(tmp_path: Path) -> None:
    lines = f"i=0; while [ $i -lt 60 ]; do d=$(printf %0100d $i); mkdir $d; cd -P $d; i=$((i + 1)); done; {MANY.format('.')}"
    subprocess.run(["/bin/sh", "-c", lines], cwd=tmp_path, check=True)
    try:
        assert (Disk(str(tmp_path), 20 * MEGABYTE).overuse_at_end() or 0) > 20 * MEGABYTE
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / f"{0:0100d}")], check=True)


def test_the_clone_counts_and_is_cut_short(repository: Repository, folder: Path) -> None:
    repository.git("config", "core.compression", "0")
    for number in range(10):
        (repository.path / f"file-{number}").write_bytes(os.urandom(4_000_000))
    result = build(repository.order(one_step("true"), limits=Limits(disk=20 * MEGABYTE)), folder)
    assert result.outcome == "failed"
    assert (result.error or "").startswith("disk limit: ")
    assert (result.error or "").endswith("in the clone")


def test_a_commit_of_a_million_empty_files_is_not_checked_out(repository: Repository, folder: Path) -> None:
    """Each tree holds the one below it ten times: six objects are a million files."""
    repository.commit(one_step("true"))
    blob = repository.git("hash-object", "-w", "/dev/null")
    below = "\n".join(f"100644 blob {blob}\tf{number}" for number in range(10))
    for _ in range(5):
        tree = subprocess.run(
            ["git", "-C", str(repository.path), "mktree"], input=below, capture_output=True, text=True, check=True
        ).stdout.strip()
        below = "\n".join(f"040000 tree {tree}\td{number}" for number in range(10))
    top = repository.git("ls-tree", "HEAD") + f"\n040000 tree {tree}\tbomb\n"
    tree = subprocess.run(
        ["git", "-C", str(repository.path), "mktree"], input=top, capture_output=True, text=True, check=True
    ).stdout.strip()
    commit = repository.git("commit-tree", tree, "-m", "bomb")
    repository.git("branch", "--force", "bomb", commit)
    result = build(order_of(repository, commit, branch="bomb", limits=LIMITS), folder)
    assert (result.outcome, (result.error or "")[:11]) == ("failed", "disk limit:")


def test_a_hard_link_counts_once(tmp_path: Path) -> None:
    (tmp_path / "first").write_bytes(os.urandom(MEGABYTE))
    disk = Disk(str(tmp_path), MEGABYTE + 8192)
    for number in range(20):
        os.link(tmp_path / "first", tmp_path / f"link-{number}")
    assert disk.overuse_at_end() is None
    (tmp_path / "second").write_bytes(os.urandom(MEGABYTE))
    assert (disk.overuse_at_end() or 0) > 2 * MEGABYTE - 100


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every folder")
def test_what_cannot_be_read_counts_as_what_the_disk_lost(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path), 20 * MEGABYTE)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "file").write_bytes(os.urandom(100 * MEGABYTE))
    (tmp_path / "hidden").chmod(0)
    try:
        assert (disk.overuse_at_end() or 0) > 20 * MEGABYTE
    finally:
        (tmp_path / "hidden").chmod(0o700)


@pytest.mark.claim("E1")
def test_below_the_reserve_no_build_starts_and_explain_says_why(
    yard: Callable[..., Yard], clock: MovableClock, repository: Repository
) -> None:
    full = yard(disk_reserve=1 << 60)
    commit = repository.commit(one_step("true"))
    received = full.ask(commit).build
    full.app.run_until_idle()
    full.stands(received.id, BuildState.RECEIVED)
    found = full.app.explain(received.job_id)
    assert (found.reason, found.until) == ("snoozed", clock.now() + timedelta(seconds=15))
    assert "bytes are free on the disk of " in found.text
    assert "`disk_reserve` in [builds] keeps 1,152,921,504,606,846,976" in found.text
    clock.advance(15)
    full.app.run_until_idle()
    assert full.app.explain(received.job_id).until == clock.now() + timedelta(seconds=30)
    emptied = yard(disk_reserve=0)
    clock.advance(30)
    emptied.app.run_until_idle()
    assert emptied.projects.look(received.id).outcome == "success"


def test_a_build_that_meets_the_reserve_is_an_error(repository: Repository, folder: Path) -> None:
    seconds = unique()
    order = repository.order(one_step(f"sleep {seconds}"))
    place = Place(disk_reserve=1 << 60)
    result = asyncio.run(builder.perform(order, folder, lambda change: None, place))
    assert result.outcome == "error"
    assert (result.error or "").startswith("disk reserve: only ")
    assert not alive(seconds)


def test_what_is_free_counts_inodes_too(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    assert 0 < free_bytes(str(tmp_path / "not" / "there")) <= disk.f_blocks * disk.f_frsize
