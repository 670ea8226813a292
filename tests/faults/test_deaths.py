"""A process is killed at every point where it could be: at each statement, in the middle of a sweep, around the end of a build."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import dying_build
from tests.faults.fleet import ROOT
from tests.faults.results import Fault, sizes

pytestmark = pytest.mark.fault(1)


def run(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=1100)


@pytest.mark.claim("R1", "C3", "J5")
@pytest.mark.parametrize("every", sizes(67, 1))
def test_every_job_comes_to_its_end_whatever_statement_its_worker_is_killed_at(
    url: str, instance: str, tmp_path: Path, fault: Fault, every: int
) -> None:
    ended = run("tests.faults.dying_jobs", url, instance, every, tmp_path / "ledger")
    assert ended.returncode == 0, ended.stderr
    deaths, between = map(int, ended.stdout.split())
    assert deaths > 100 // every
    assert between > 0 or every > 1
    fault.injected("kill -9 of a worker at the n-th statement of its threads, for every n", deaths)
    fault.injected("of these between the return of a handler and the commit", between)
    fault.measured(jobs=sum(len(book.read_text().split()) for book in tmp_path.glob("ledger-*.accepted")))


@pytest.mark.claim("B3", "B5")
@pytest.mark.parametrize("every", sizes(67, 1))
def test_a_build_is_completed_once_wherever_its_builder_is_killed(
    url: str, instance: str, tmp_path: Path, fault: Fault, every: int
) -> None:
    ended = run("tests.faults.dying_build", url, instance, every, tmp_path)
    assert ended.returncode == 0, ended.stderr
    deaths = int(ended.stdout)
    assert deaths > 50 // every
    for point in dying_build.POINTS:
        fault.injected(f"kill -9 of a builder {point}, before the commit")
    fault.injected("kill -9 of a builder at the n-th statement of its threads, for every n", deaths)
    for part in tmp_path.glob("?"):
        fault.check(url, f"{instance}_{part.name}", builds=part / "builds")


@pytest.mark.fault(3)
@pytest.mark.claim("C4")
@pytest.mark.parametrize("every", sizes(61, 1))
def test_what_a_sweeper_leaves_half_done_another_finishes(url: str, instance: str, fault: Fault, every: int) -> None:
    ended = run("tests.faults.dying_sweeper", url, instance, every)
    assert ended.returncode == 0, ended.stderr
    fault.injected("death of a sweeper at its n-th statement, for every n", int(ended.stdout))
    fault.check(url, instance)
