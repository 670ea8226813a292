"""Every kind of handler that misbehaves, at once, in one worker with a thousand others: each gets its end, and nobody else's."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from holdfast import Job
from tests.faults import rude_fleet
from tests.faults.fleet import until, worker
from tests.faults.results import Fault, sizes
from tests.raw_sql import RawSql

ENDS = {
    "segfaults": ("error", "crash"),
    "eats_memory": ("error", "crash"),
    "eats_all_it_may": ("error", "exception"),
    "ignores_cancellation": ("error", "timeout"),
    "ignores_signals": ("error", "timeout"),
    "forks": ("error", "timeout"),
    "closes_streams": ("success", None),
    "closes_stdout": ("success", None),
    "floods": ("success", None),
    "floods_from_a_process": ("success", None),
    "never_returns": ("error", "timeout"),
}
MOST_MEMORY = 150 * 2**20  # that the worker itself may ever use, whatever it is told
MOST_DISK = 64 * 2**20  # that all of this may add to the database and its log
MUCH = 200 * 2**20  # bytes of a process that is killed for it


@pytest.mark.fault(7)
@pytest.mark.claim("C1", "C3", "R4", "R7")
@pytest.mark.parametrize("megabytes", sizes(5, 1000))
def test_handlers_that_misbehave_end_as_they_should_and_harm_no_other(
    url: str, instance: str, tmp_path: Path, fault: Fault, megabytes: int
) -> None:
    pids = tmp_path / "pids"
    with rude_fleet.make_app(url, instance) as app:
        app.find(limit=1)
        disk = size_of(url, instance)
        rude = rude_fleet.enqueue_all(app, str(pids), megabytes)
        good = app.job_types["good"].enqueue_many([{"i": number} for number in range(1000)])
        assert rude.keys() == ENDS.keys()
        for name in ENDS:
            fault.injected(f"a handler that {name.replace('_', ' ')}")
        settings = {"name": instance, "concurrency": 50, "lost_after": 5.0, "module": "tests.faults.rude_fleet"}
        with worker(url, tmp_path, **settings) as one, out_of_memory(one.process.pid) as killed:
            ended = {name: job.wait(600) for name, job in rude.items()}
            until(lambda: all(now.final for now in map(Job.refresh, good)), 100, "the good ones are done")
            memory = most_memory_of(one.process.pid)
            assert one.process.poll() is None
            assert {name: (job.outcome, job.error and job.error.kind) for name, job in ended.items()} == ENDS
            assert (len(killed), ended["eats_memory"].crashes, ended["segfaults"].crashes) == (2, 2, 2)
            assert [one.log.read_text().count(f"signal {how}") for how in ("9 (SIGKILL)", "11 (SIGSEGV)")] == [2, 2]
            assert "MemoryError" in str(ended["eats_all_it_may"].error)
            left = [int(line) for line in pids.read_text().split()]
            assert len(left) == 3
            until(lambda: not any(map(psutil.pid_exists, left)), what="no child and no grandchild is left")
        disk = size_of(url, instance) - disk
        assert [(now.outcome, now.attempt, now.result) for now in map(Job.refresh, good)] == [
            ("success", 1, number) for number in range(1000)
        ]
        kept = max(sum(len(line.text) for line in ended[name].log(limit=10_000)) for name in ENDS if "floods" in name)
        assert kept <= 2**20
        assert memory < MOST_MEMORY, f"the worker used {memory >> 20} MB"
        assert disk < MOST_DISK, f"the database has grown by {disk >> 20} MB"
        fault.measured(worker_megabytes=memory >> 20, database_megabytes=disk >> 20, log_kept_bytes=kept)
        fault.measured(log_said_megabytes=2 * megabytes)
    fault.check(url, instance, [job.id for job in (*good, *rude.values())])


@contextmanager
def out_of_memory(worker: int) -> Iterator[list[int]]:
    """Whoever of a worker's children has too much is killed from outside, as systemd-oomd would; who was."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(worker).children(recursive=True):
                    if child.pid not in killed and child.memory_info().rss > MUCH:
                        child.kill()
                        killed.append(child.pid)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield killed
    finally:
        over.set()
        watching.join()


def most_memory_of(pid: int) -> int:
    """Bytes that it had in memory at its worst moment, as Linux tells."""
    words = Path(f"/proc/{pid}/status").read_text().split()
    return int(words[words.index("VmHWM:") + 1]) * 1024


def size_of(url: str, instance: str) -> int:
    """Bytes of a database on the disk."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    sql = RawSql(url, instance)
    size: int = sql.value("select pg_database_size(current_database()) as size")
    sql.close()
    return size
