"""Builds that take memory in ways that no page of a process shows. Each holds it, so the keeper has time to find it."""

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.builds.order import Limits, Sandbox
from tests.builds.making import PYTHON, Repository, alive, build, log_of, one_step, python, unique
from tests.builds.test_sandbox import needs_bubblewrap

pytestmark = pytest.mark.claim("B6")
PROGRAM = """
import ctypes, mmap, os, sys, time
how, size, name, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
held = []
def memfd():
    held.append(os.memfd_create("x"))
    for _ in range(size >> 20):
        os.write(held[-1], b"x" * (1 << 20))
def segment():
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    number = libc.shmget(0, ctypes.c_size_t(size), 0o1600)
    place = ctypes.c_void_p(libc.shmat(number, None, 0))
    ctypes.memset(place, 1, size)
    libc.shmdt(place)
if how == "memfds":
    size //= 20
    for _ in range(20):
        memfd()
elif how == "memfd-child":  # the one who holds it has not written it
    memfd()
    if os.fork():
        os._exit(0)
elif how == "mapped":
    memfd()
    held.append(mmap.mmap(held[0], size))
    held[1][:] = bytes(size)
    os.close(held[0])
elif how == "shared":  # one piece, in five processes
    held.append(mmap.mmap(-1, size))
    held[0][:] = bytes(size)
    for _ in range(4):
        if not os.fork():
            assert sum(held[0][:: 1 << 12]) == 0
            break
elif how == "segment":
    segment()
elif how == "file":
    with open("/dev/shm/" + name, "wb") as file:
        for _ in range(size >> 20):
            file.write(b"x" * (1 << 20))
elif how == "deleted":
    held.append(open("/dev/shm/" + name, "wb"))
    os.unlink("/dev/shm/" + name)
    for _ in range(size >> 20):
        held[-1].write(b"x" * (1 << 20))
print("has it", flush=True)
time.sleep(seconds)
"""
MEGABYTE = 1 << 20
LIMITS = Limits(memory=128 * MEGABYTE)
BOTH = [pytest.param(Sandbox.NONE, id="plain"), pytest.param(Sandbox.BUBBLEWRAP, id="sandbox", marks=needs_bubblewrap)]


@pytest.fixture
def name() -> Iterator[str]:
    """Of a file in `/dev/shm` that is gone after the test. One test at a time: it counts for every build without a sandbox."""
    with open(Path(tempfile.gettempdir(), "holdfast-test-shared-memory.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        name = f"holdfast-test-{unique()}"
        yield name
        Path("/dev/shm", name).unlink(missing_ok=True)


@pytest.mark.parametrize("sandbox", BOTH)
@pytest.mark.parametrize("how", ["memfds", "memfd-child", "mapped"])
def test_memory_that_no_page_of_a_process_shows_counts(
    repository: Repository, folder: Path, how: str, sandbox: Sandbox
) -> None:
    seconds = unique()
    line = f"{python('eat.py', how, str(300 * MEGABYTE), '-', seconds)}; exec sleep {seconds}"
    order = repository.order(one_step(line), {"eat.py": PROGRAM}, sandbox=sandbox, limits=LIMITS, **PYTHON)
    result = build(order, folder)
    assert result.outcome == "failed"
    assert (result.error or "").startswith("memory limit: ")
    assert "134,217,728 are allowed, in step only" in (result.error or "")
    assert not alive(seconds)


@needs_bubblewrap
def test_a_segment_that_no_process_has_attached_counts_in_a_sandbox(repository: Repository, folder: Path) -> None:
    line = python("eat.py", "segment", str(160 * MEGABYTE), "-", unique())
    order = repository.order(one_step(line), {"eat.py": PROGRAM}, sandbox=Sandbox.BUBBLEWRAP, limits=LIMITS, **PYTHON)
    assert (build(order, folder).error or "").startswith("memory limit: ")


@pytest.mark.parametrize("how", ["file", "deleted"])
def test_files_in_memory_count_without_a_sandbox(repository: Repository, folder: Path, name: str, how: str) -> None:
    line = python("eat.py", how, str(160 * MEGABYTE), name, unique())
    result = build(repository.order(one_step(line), {"eat.py": PROGRAM}, limits=LIMITS), folder)
    assert (result.error or "").startswith("memory limit: ")


def test_what_stays_in_memory_after_the_step_is_in_the_log_and_counts(
    repository: Repository, folder: Path, name: str
) -> None:
    little, much = (python("eat.py", "file", str(size * MEGABYTE), name, "0") for size in (20, 160))
    assert build(repository.order(one_step(little), {"eat.py": PROGRAM}, limits=LIMITS), folder).outcome == "success"
    assert re.search(r"[\d,]{10} bytes stay in memory, in /dev/shm or in System V segments", log_of(folder))
    Path("/dev/shm", name).unlink()
    result = build(repository.order(one_step(much), {"eat.py": PROGRAM}, limits=LIMITS), folder)
    assert (result.error or "").startswith("memory limit: ")


@pytest.mark.parametrize("sandbox", BOTH)
def test_a_page_that_processes_share_counts_once(
    repository: Repository, folder: Path, name: str, sandbox: Sandbox
) -> None:
    line = python("eat.py", "shared", str(50 * MEGABYTE), name, "3")
    limits = Limits(memory=160 * MEGABYTE)
    order = repository.order(one_step(line), {"eat.py": PROGRAM}, sandbox=sandbox, limits=limits, **PYTHON)
    assert build(order, folder).error is None
    assert log_of(folder).count("has it") == 5


def test_files_that_were_in_memory_before_do_not_count(repository: Repository, folder: Path, name: str) -> None:
    Path("/dev/shm", name).write_bytes(bytes(160 * MEGABYTE))
    line = f"{python('eat.py', 'none', '0', name, '1')} < /dev/shm/{name}"
    assert build(repository.order(one_step(line), {"eat.py": PROGRAM}, limits=LIMITS), folder).error is None
    assert os.path.getsize(f"/dev/shm/{name}") == 160 * MEGABYTE
