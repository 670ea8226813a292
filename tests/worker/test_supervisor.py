"""Worker processes under a supervisor: restarted when they die, told to stop, never left behind."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.clock import monotonic, sleep

pytestmark = pytest.mark.claim("C5")

PATIENCE = 60.0  # how long a test waits for what must happen, however busy the machine

# Each worker process writes its number to `<index>.<process id>`, then a line for each signal that it gets.
PROGRAM = """
import logging, os, pathlib, signal, sys
from holdfast.clock import sleep
from holdfast.worker import supervisor
from holdfast.worker.children import Nursery

folder, count, grace = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

def record(index, text):
    with open(folder / f"{index}.{os.getpid()}", "a") as file:
        file.write(text)

def stop_on_signals(index, needed=1):
    got = []
    def note(number, frame):
        got.append(number)
        record(index, signal.Signals(number).name + "\\n")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    record(index, f"{os.getpid()}\\n")
    while len(got) < needed:
        sleep(0.01)

def serve(index):
    stop_on_signals(index)

%s

logging.basicConfig(format="%%(message)s", level=logging.INFO)
sys.exit(supervisor.run_processes(count, serve, grace=grace, log=logging.getLogger()))
"""


class Supervised:
    """A supervisor in a process of its own, as a shell would start it."""

    def __init__(self, folder: Path, changes: str, count: int, grace: float) -> None:
        self.folder = folder
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM % changes, str(folder), str(count), str(grace)],
                stderr=log,
                start_new_session=True,
            )

    def workers(self) -> dict[str, psutil.Process]:
        """The living worker processes that have begun to serve, by index."""
        found = {}
        for path in self.folder.glob("[0-9]*.[0-9]*"):
            index, pid = path.name.split(".")
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(int(pid))
                if "\n" in path.read_text() and not gone(process):
                    found[index] = process
        return found

    def wait_for_workers(self, *indexes: str) -> dict[str, psutil.Process]:
        until(lambda: set(self.workers()) == set(indexes), f"workers {indexes}")
        return self.workers()

    def signals_of(self, index: str) -> list[list[str]]:
        """For each process that filled this place, the signals it got."""
        return [path.read_text().splitlines()[1:] for path in self.folder.glob(f"{index}.[0-9]*")]

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE)


Supervise = Callable[..., Supervised]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    started = []

    def start(changes: str = "", count: int = 2, grace: float = 60.0) -> Supervised:
        started.append(Supervised(tmp_path, changes, count, grace))
        return started[-1]

    yield start
    for supervised in started:
        supervised.process.kill()
        supervised.process.wait()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < deadline, f"not in time: {what}"
        sleep(0.005)


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_reaches_every_worker_and_the_supervisor_ends_well(
    supervise: Supervise, number: signal.Signals
) -> None:
    supervised = supervise(count=3)
    workers = supervised.wait_for_workers("0", "1", "2")
    assert len({process.pid for process in workers.values()} | {supervised.process.pid}) == 4
    supervised.process.send_signal(number)
    assert supervised.exit_code() == 0
    assert [supervised.signals_of(index) for index in "012"] == [[[number.name]]] * 3
    assert all(gone(process) for process in workers.values())


def test_a_signal_from_the_terminal_comes_once(supervise: Supervise) -> None:
    supervised = supervise(count=1)
    supervised.wait_for_workers("0")
    os.killpg(supervised.process.pid, signal.SIGINT)
    assert supervised.exit_code() == 0
    assert supervised.signals_of("0") == [["SIGINT"]]


def test_a_second_signal_is_forwarded_as_well(supervise: Supervise) -> None:
    supervised = supervise("def serve(index): stop_on_signals(index, needed=2)")
    supervised.wait_for_workers("0", "1")
    supervised.process.terminate()
    until(lambda: all(supervised.signals_of(index) == [["SIGTERM"]] for index in "01"), "the first signal")
    supervised.process.send_signal(signal.SIGINT)
    assert supervised.exit_code() == 0
    assert [supervised.signals_of(index) for index in "01"] == [[["SIGTERM", "SIGINT"]]] * 2


def test_a_worker_that_does_not_stop_is_killed_after_the_grace(supervise: Supervise) -> None:
    slow = "supervisor.ALLOWANCE = 0.1\ndef serve(index): stop_on_signals(index, needed=1 + index)"
    supervised = supervise(slow, grace=0.1)
    workers = supervised.wait_for_workers("0", "1")
    supervised.process.terminate()
    assert supervised.exit_code() == 1
    assert all(gone(process) for process in workers.values())
    assert "Worker process 1 " in supervised.log.read_text().splitlines()[-1]


def test_a_second_signal_ends_the_grace_of_a_worker_that_ignores_both(supervise: Supervise) -> None:
    supervised = supervise("supervisor.ALLOWANCE = 0.1\ndef serve(index): stop_on_signals(index, 9)", 1, grace=600)
    supervised.wait_for_workers("0")
    supervised.process.terminate()
    until(lambda: supervised.signals_of("0") == [["SIGTERM"]], "the first signal")
    supervised.process.terminate()
    assert supervised.exit_code() == 1


def test_a_worker_that_dies_is_restarted_alone_and_the_log_says_how_it_died(supervise: Supervise) -> None:
    supervised = supervise()
    before = supervised.wait_for_workers("0", "1")
    before["0"].kill()
    until(lambda: gone(before["0"]), "the worker is dead")
    after = supervised.wait_for_workers("0", "1")
    assert after["0"] != before["0"]
    assert after["1"] == before["1"]
    supervised.process.terminate()
    assert supervised.exit_code() == 0
    expected = f"Worker process 0 (process id {before['0'].pid}) ended unasked: killed by signal 9 (SIGKILL)."
    assert expected in supervised.log.read_text()


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("return 7", "exited with 7"),
        ("sys.exit(8)", "exited with 8"),
        ("raise ZeroDivisionError", "exited with 1"),
        ("return", "exited with 0"),
    ],
)
def test_however_a_worker_ends_unasked_it_is_restarted_with_growing_pauses(
    supervise: Supervise, end: str, how: str
) -> None:
    hasty = "supervisor.FIRST_PAUSE, supervisor.LONGEST_PAUSE = 0.01, 0.04\n"
    supervised = supervise(hasty + f"def serve(index): {end}", count=1)
    pattern = re.compile(re.escape(how) + r"\. It is restarted in (\S+) s\.")
    until(lambda: len(pattern.findall(supervised.log.read_text())) >= 6, "six deaths")
    assert pattern.findall(supervised.log.read_text())[:6] == ["0.0", "0.01", "0.02", "0.04", "0.04", "0.04"]
    supervised.process.terminate()
    assert supervised.exit_code() == 0


def test_a_stop_does_not_wait_for_a_restart_that_is_due_later(supervise: Supervise) -> None:
    supervised = supervise("supervisor.FIRST_PAUSE = supervisor.LONGEST_PAUSE = 600\ndef serve(index): return 1")
    until(lambda: supervised.log.read_text().count("restarted in 600 s") == 2, "both workers wait for their restart")
    supervised.process.terminate()
    assert supervised.exit_code() == 0


@pytest.mark.parametrize("changes", ["", "supervisor.die_with_parent = lambda number: None"], ids=["signal", "pipe"])
def test_workers_do_not_outlive_a_supervisor_that_is_killed(supervise: Supervise, changes: str) -> None:
    supervised = supervise(changes)
    workers = supervised.wait_for_workers("0", "1")
    workers["0"].kill()  # one that was forked later holds no more of the supervisor's pipe than the first
    until(lambda: gone(workers["0"]), "the worker is dead")
    workers = supervised.wait_for_workers("0", "1")
    supervised.process.kill()
    until(lambda: all(gone(process) for process in workers.values()), "the workers are gone")


WITH_CHILD = """
def perform(request, wire):
    record(request.decode(), f"{os.getpid()}\\n")
    sleep(150)

def serve(index):
    nursery = Nursery(perform, print)
    nursery.run(1, str(index).encode())
    sleep(150)
"""


def test_the_children_of_the_workers_do_not_outlive_it_either(supervise: Supervise) -> None:
    supervised = supervise(WITH_CHILD)
    children = supervised.wait_for_workers("0", "1")
    supervised.process.kill()
    until(lambda: all(gone(process) for process in children.values()), "the workers' children are gone")
