"""`holdfast jobs log` and `holdfast jobs tail`: what a job said, and a job as it goes on."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App, current_job
from tests.cli.conftest import Call
from tests.cli.terminal import Program, environment, eventually, heed_ctrl_c

pytestmark = pytest.mark.claim("R7")


@pytest.fixture
def shop(url: str) -> Iterator[App]:
    with App(url, name="shop") as app:
        app.queue("mail")
        yield app


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


def declare(app: App, gate: threading.Event) -> None:
    @app.queue("mail").job(timeout=60, retries=0)
    def speaks() -> str:
        job = current_job()
        job.log("first")
        job.progress(0.5, "half \x1b[31m")
        gate.wait(60)
        job.log("second", level="ERROR")
        job.progress(1.0)
        return "done"

    app.store.queues()


def run_one(app: App, gate: threading.Event) -> int:
    declare(app, gate)
    gate.set()
    job = app.enqueue("mail", "speaks")
    app.run_until_idle()
    return job.id


def test_the_log_of_a_job(cli: Call, shop: App, url: str, gate: threading.Event) -> None:
    job_id = run_one(shop, gate)
    found = cli("jobs", "log", job_id, "--url", url, "--json").json
    assert [(line["id"], line["attempt"], line["level"], line["text"]) for line in found] == [
        (1, 1, "INFO", "first"),
        (2, 1, "ERROR", "second"),
    ]
    first, second = cli("jobs", "log", job_id, "--url", url).out.splitlines()
    assert first.endswith(" INFO     first")
    assert second.endswith(" ERROR    second")
    assert cli("jobs", "log", 4711, "--url", url).code == 3


def test_a_job_that_said_nothing(cli: Call, shop: App, url: str, gate: threading.Event) -> None:
    declare(shop, gate)
    job = shop.enqueue("mail", "speaks")
    assert cli("jobs", "log", job.id, "--url", url).out == f"Job {job.id} has said nothing.\n"
    assert cli("jobs", "log", job.id, "--url", url, "--json").json == []


def test_dropped_lines_are_told(cli: Call, shop: App, url: str) -> None:
    @shop.queue("mail").job
    def floods() -> None:
        for number in range(3000):
            current_job().log(number)

    job = floods.enqueue()
    with shop.worker(log_limit=104):
        job.wait(30)
    dropped, *lines = cli("jobs", "log", job.id, "--url", url).out.splitlines()
    assert dropped == "… 2999 lines dropped …"
    assert [line.split()[-1] for line in lines] == ["2999"]


def test_the_tail_of_a_final_job_is_everything_it_said_and_its_end(
    cli: Call, shop: App, url: str, gate: threading.Event
) -> None:
    job_id = run_one(shop, gate)
    answer = cli("jobs", "tail", job_id, "--url", url)
    assert answer.code == 0
    first, second, progress, end = answer.out.splitlines()
    assert (first.split()[-1], second.split()[-1], progress, end) == (
        "first",
        "second",
        "▸ 100%",
        "→ final success (attempt 1)",
    )
    events = [json.loads(line) for line in cli("jobs", "tail", job_id, "--url", url, "--json").out.splitlines()]
    assert [event["event"] for event in events] == ["log", "log", "progress", "state"]
    assert events[-1]["result"] == "done"
    assert cli("jobs", "tail", 4711, "--url", url).code == 3


def test_a_running_job_is_followed_to_its_end(shop: App, url: str, gate: threading.Event, tmp_path: Path) -> None:
    declare(shop, gate)
    with shop.worker():
        job = shop.enqueue("mail", "speaks")
        eventually(lambda: job.refresh().progress and job.log())
        program = Program(tmp_path, "jobs", "tail", str(job.id), "--url", url, "--json")
        try:
            out = tmp_path / "stdout"
            eventually(lambda: '"event": "progress"' in out.read_text())
            before = [json.loads(line) for line in out.read_text().splitlines()]
            gate.set()
            answer = program.ended()
        finally:
            program.close()
    assert (answer.code, answer.err) == (0, "")
    events = [json.loads(line) for line in answer.out.splitlines()]
    assert [(event["event"], event.get("text")) for event in before] == [
        ("state", None),
        ("log", "first"),
        ("progress", "half \x1b[31m"),
    ]
    assert events[: len(before)] == before
    after = [event for event in events[len(before) :] if event["event"] != "progress"]
    assert [(event["event"], event.get("text"), event.get("state")) for event in after] == [
        ("log", "second", None),
        ("state", None, "final"),
    ]
    assert events[-2]["event"] == "progress"


def test_in_a_terminal_it_ends_quietly_with_ctrl_c(shop: App, url: str, gate: threading.Event, tmp_path: Path) -> None:
    declare(shop, gate)
    ours, theirs = pty.openpty()
    with shop.worker():
        job = shop.enqueue("mail", "speaks")
        eventually(lambda: job.refresh().progress and job.log())
        command = [sys.executable, "-m", "holdfast", "jobs", "tail", str(job.id), "--url", url]
        program = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment(TERM="xterm"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=heed_ctrl_c,
        )
        os.close(theirs)
        try:
            said = read_until(ours, b"half")
            program.send_signal(signal.SIGINT)
            assert program.wait(30) == 0
            said += rest(ours)
        finally:
            program.kill()
            program.wait()
            os.close(ours)
            gate.set()
        assert job.wait(30).outcome == "success"  # following it is all that ended
    text = said.decode()
    assert "running" in text
    assert "first" in text
    assert "␛[31m" in text  # what a job says cannot move the cursor
    assert "Traceback" not in text
    assert "Interrupted" not in text


def read_until(descriptor: int, words: bytes) -> bytes:
    said = b""
    while words not in said:
        said += os.read(descriptor, 65536)
    return said


def rest(descriptor: int) -> bytes:
    said = b""
    try:
        while piece := os.read(descriptor, 65536):
            said += piece
    except OSError:
        pass  # the other end is closed
    return said
