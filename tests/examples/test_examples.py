"""The examples run from an empty folder and show what they promise."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

SHOWN = (
    r"job 1 resize +final +success: cat\.jpg resized in a thread",
    r"job 2 fetch +final +success: page 7 fetched on the event loop",
    r"job 3 convert +final +success: dog\.jpg converted in process \d+",
    r"job 4 upload +error +attempt 2: the server is busy",
    r"job 4 upload +running +attempt 3 begun by worker 1",
    r"3 attempts, 2 failures",
    r"job 5 pay +error +attempt 1: the card has expired\n.*job 5 pay +final +failed",
    r"raises JobFailed: Job 5 \(pay\) ended `failed`",
    r"The second call got job 6 too: duplicate=True",
    r"job 7 publish +initial +enqueued, wanted in 2 s",
    r"job 8 endless +error +attempt 1: aborted by the tour",
    r"attempt 1 is lost with its worker",
    r"Attempt 2, failures 0\.",
    r"9 jobs accepted, 9 ended, none lost\.",
)


def run(folder: Path, script: Path, *options: str) -> str:
    """What it prints; it must end well and complain of nothing."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    surroundings["PYTHONPATH"] = str(ROOT / "src")
    command = [sys.executable, str(script), *options]
    done = subprocess.run(
        command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def test_the_first_lines_retry_an_exception_and_end_an_expected_failure(tmp_path: Path) -> None:
    said = run(tmp_path, EXAMPLES / "first.py")

    assert said == "sent to ada@example.com in attempt 2\nnobody is not an address\n"
    assert (tmp_path / "first.db").exists()


# One test, because the tour takes seconds and pytest-xdist would otherwise make it several times.
@pytest.mark.long
def test_the_tour_shows_every_chapter_and_offers_lines_that_run(tmp_path: Path) -> None:
    tour = run(tmp_path, EXAMPLES / "tour.py", "--folder", str(tmp_path / "new"))

    assert [line for line in SHOWN if not re.search(line, tour)] == [], tour
    assert finisher(tour) == other_than_killed(tour)
    (tmp_path / "mine.py").write_text(tour.partition("Ten lines of your own:\n")[2].partition("   And then:")[0])
    assert run(tmp_path, tmp_path / "mine.py") == "42\n"


def finisher(tour: str) -> str:
    (process,) = re.findall(r"final +success: tide rendered in process (\d+)", tour)
    return str(process)


def other_than_killed(tour: str) -> str:
    (killed,) = re.findall(r"kill -9 (\d+)", tour)
    processes = re.findall(r"(?:ada|ben) is process (\d+)", tour)
    processes.remove(killed)
    return str(processes[0])


def test_the_example_of_a_build_file_builds(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "build", tmp_path / "build")
    command = [sys.executable, "-m", "holdfast", "builds", "run", "build", "--json", "--branch", "main"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == {
        "compile": "SUCCESS",
        "test": "SUCCESS",
        "spelling": "SUCCESS",
        "publish": "IGNORED",
    }
