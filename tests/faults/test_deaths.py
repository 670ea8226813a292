"""A process is killed at every point where it could be: at each statement, in the middle of a sweep, around the end of a build."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.builds.build import BuildState
from tests.builds.conftest import repository, yard  # noqa: F401  the fixtures
from tests.builds.making import Repository
from tests.builds.yard import QUICK, Yard
from tests.faults.dying import DIED
from tests.faults.fleet import ROOT
from tests.faults.results import Fault, sizes

pytestmark = pytest.mark.fault(1)


def run(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=1100)


@pytest.mark.claim("R1", "C3", "J5")
@pytest.mark.parametrize("every", sizes(97, 1))
def test_every_job_comes_to_its_end_whatever_statement_its_program_dies_at(
    url: str, instance: str, tmp_path: Path, fault: Fault, every: int
) -> None:
    ended = run("tests.faults.dying_jobs", url, instance, every, tmp_path / "ledger")
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 1
    fault.injected("death at the n-th statement, for every n", int(ended.stdout))
    fault.measured(jobs=sum(len(book.read_text().split()) for book in tmp_path.glob("ledger-*.accepted")))


@pytest.mark.claim("B3", "B5")
@pytest.mark.parametrize("when", ["before the rename", "after the rename"])
def test_a_build_is_completed_once_though_its_builder_dies_around_the_rename(
    yard: Callable[..., Yard],  # noqa: F811
    repository: Repository,  # noqa: F811
    url: str,
    instance: str,
    tmp_path: Path,
    fault: Fault,
    when: str,
) -> None:
    here = yard()
    build = here.ask(repository.commit(QUICK)).build
    died = run("tests.faults.dying_build", here.root, url, instance, repository.path, when)
    assert died.returncode == DIED, died.stderr
    fault.injected(f"death {when} of `completed`, before the commit")
    folder = here.folder(build.id).parent
    fault.check(url, instance, builds=folder)
    assert here.projects.look(build.id).build_state is BuildState.BUILDING
    again = run("tests.faults.dying_build", here.root, url, instance, repository.path, "never")
    assert again.returncode == 0, again.stderr
    fault.check(url, instance, builds=folder)
    found = here.projects.look(build.id)
    assert (found.outcome, found.attempt) == ("success", 2)
    here.stands(build.id, BuildState.CACHED)


@pytest.mark.fault(3)
@pytest.mark.claim("C4")
@pytest.mark.parametrize("every", sizes(61, 1))
def test_what_a_sweeper_leaves_half_done_another_finishes(url: str, instance: str, fault: Fault, every: int) -> None:
    ended = run("tests.faults.dying_sweeper", url, instance, every)
    assert ended.returncode == 0, ended.stderr
    fault.injected("death of a sweeper at its n-th statement, for every n", int(ended.stdout))
    fault.check(url, instance)
