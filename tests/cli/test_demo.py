"""`holdfast demo`: something to look at, at once, that ends well."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from holdfast import App
from tests.cli.conftest import Call

PATIENCE = 60.0


@contextmanager
def demonstration(folder: Path, *arguments: str) -> "Iterator[tuple[subprocess.Popen[str], dict[str, str]]]":
    """The program, and what it says first."""
    command = [sys.executable, "-m", "holdfast", "demo", "--folder", str(folder), "--port", "0", "--json", *arguments]
    environment = {**os.environ, "HOLDFAST_URL": "postgresql://localhost:1/not_for_a_demo"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment) as program:
        try:
            assert program.stdout is not None
            yield program, json.loads(program.stdout.readline())
        finally:
            program.kill()


def test_a_demonstration_can_be_logged_in_to_and_has_something_of_everything(tmp_path: Path) -> None:
    with demonstration(tmp_path) as (program, said), httpx.Client(follow_redirects=True) as browser:
        assert said["login"] is None  # it is no terminal
        command = shlex.split(said["login_command"])
        link = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
        page = browser.get(link.strip(), headers={"accept": "text/html"})
        assert (page.status_code, "What is wrong now" in page.text) == (200, True)
        ends = time.monotonic() + PATIENCE
        with App(f"sqlite:///{tmp_path}/demo.db") as app:
            while time.monotonic() < ends and not {"charge", "send", "resize", "report.collect"} <= {
                job.job_type for job in app.find(state="final", limit=1000) if job.outcome == "success"
            }:
                time.sleep(0.2)
            assert app.workflow_run("report", "day-1").steps["collect"].state == "SUCCESS"
            assert any(job.failures for job in app.find(job_type="charge"))
            assert app.explain(app.find(job_type="transcode")[0].id).reason == "no_worker"
            assert app.explain(app.find(job_type="approve")[0].id).reason == "waits_for_answer"
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE) == 0


def test_a_demonstration_ends_by_itself_when_asked_to(tmp_path: Path) -> None:
    with demonstration(tmp_path, "--for", "0.5") as (program, _):
        assert program.wait(PATIENCE) == 0


@pytest.mark.long
def test_the_ten_lines_run_beside_the_demonstration(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "demo", "--folder", str(tmp_path), "--port", "0", "--for", "0.5"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    lines = said.partition("    from holdfast import App")[2].partition("The demonstration")[0]
    program = "\n".join(line.removeprefix("    ") for line in f"    from holdfast import App{lines}".splitlines())
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.returncode) == ("42\n", 0)


@pytest.mark.long
def test_the_first_warning_names_a_job_and_the_command_to_use_next(tmp_path: Path, cli: Call) -> None:
    command = [sys.executable, "-m", "holdfast", "demo", "--folder", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        warning = program.stderr.readline()
        program.send_signal(signal.SIGTERM)
        assert program.stdout is not None
        said = program.stdout.read()
    found = re.search(r"Job (\d+) of type `transcode` is parked.*`holdfast (jobs explain \1)`", warning)
    assert found, warning
    url = re.search(r"export HOLDFAST_URL=(\S+)", said)
    assert url, said
    answer = cli(*found[2].split(), "--url", url[1])
    assert (answer.code, "transcode" in answer.out) == (0, True)


@pytest.mark.parametrize("lasts", ["0", "-1", "nan"])
def test_a_time_that_is_none_is_refused(cli: Call, lasts: str) -> None:
    answer = cli("demo", "--for", lasts)
    assert (answer.code, "--for" in answer.err) == (2, True)
