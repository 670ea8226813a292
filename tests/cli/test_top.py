"""`holdfast top`: one frame for programs and for people, and a screen that goes on."""

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App, current_job, views
from tests.cli.conftest import Call
from tests.cli.terminal import environment, eventually, heed_ctrl_c
from tests.cli.test_tail import read_until, rest


@pytest.fixture
def busy(url: str) -> Iterator[App]:
    """An instance whose worker runs one job, with two more that wait."""
    gate = threading.Event()
    with App(url, name="shop") as app:

        @app.queue("mail", throttle_limit=1).job(timeout=60)
        def slow() -> None:
            current_job().progress(0.4, "two of five")
            gate.wait(60)

        with app.worker(concurrency=3):
            jobs = [slow.using(job_key=f"k{number}").enqueue() for number in range(2)]
            slow.using(delay=600).enqueue()
            eventually(lambda: jobs[0].refresh().progress)
            yield app
            gate.set()


def test_a_frame_for_programs(cli: Call, busy: App, url: str) -> None:
    found = cli("top", "--url", url, "--json").json
    assert list(found) == ["time", "instance", "queues", "workers", "slowest"]
    (queue,) = found["queues"]
    assert list(queue) == list(views.QUEUE_LOAD)
    assert (queue["name"], queue["ready"], queue["waiting"], queue["running"]) == ("mail", 1, 1, 1)
    assert (queue["throttle_limit"], queue["about"], queue["paused"]) == (1.0, [], False)
    (worker,) = found["workers"]
    assert list(worker) == [*views.WORKER, "jobs"]
    assert (worker["jobs"], worker["concurrency"]) == (1, 3)
    (job,) = found["slowest"]
    assert list(job) == list(views.RUNNING)
    assert (job["job_key"], job["progress"]) == ("k0", {"fraction": 0.4, "text": "two of five"})


def test_a_frame_for_people(cli: Call, busy: App, url: str) -> None:
    said = cli("top", "--url", url, "--once")
    assert (said.code, said.err) == (0, "")
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[0][:3] == ["shop", "1", "running,"]
    assert ["mail", "1", "1", "0", "1", "1", "0.0"] in lines
    assert any("1/3" in line for line in lines)
    assert "████░░░░░░ 40% two of five" in said.out


def test_an_instance_without_workers(cli: Call, shop: App, url: str) -> None:
    shop.pause("mail")
    said = cli("top", "--url", url)  # not a terminal: once
    assert "No worker is alive." in said.out
    assert "paused" in said.out


def test_in_a_terminal_it_goes_on_until_ctrl_c(busy: App, url: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "holdfast", "top", "--url", url]
    variables = environment(TERM="xterm", COLUMNS="120", LINES="40")
    program = subprocess.Popen(
        command, cwd=tmp_path, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=heed_ctrl_c
    )
    os.close(theirs)
    try:
        said = read_until(ours, b"two of five")
        busy.pause("mail")
        said += read_until(ours, b"paused")
        program.send_signal(signal.SIGINT)
        said += rest(ours)
        assert program.wait(30) == 0
    finally:
        program.kill()
        program.wait()
        os.close(ours)
    assert b"Traceback" not in said
