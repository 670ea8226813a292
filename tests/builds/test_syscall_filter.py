"""The filter of system calls, played as the kernel plays it, for machines that are not here too; and real calls below it."""

import errno
import struct
from pathlib import Path

import pytest

from holdfast.builds.order import Sandbox
from holdfast.worker.building.syscall_filter import AARCH64, ARM, I386, X86_64, Calls, filter_program
from tests.builds.making import PYTHON, Repository, build, log_of, one_step, python
from tests.builds.test_sandbox import needs_bubblewrap

pytestmark = pytest.mark.claim("B6")
ALLOWED = None
NEW_USER = 0x10000000
FORK = 0x01200011  # the flags of a plain fork


def answer(machine: str, architecture: int, number: int, argument: int = 0) -> int | None:
    """The error that a call gets; None if it is allowed."""
    program = filter_program(machine)
    assert program is not None
    steps = list(struct.iter_unpack("<HBBI", program))
    given = struct.pack("<IIQQ", number, architecture, 0, argument)
    value, at = 0, 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", given, operand)
            case 0x06:
                assert operand == 0x7FFF0000 or operand >> 16 == 5
                return ALLOWED if operand == 0x7FFF0000 else operand & 0xFFFF
            case _:
                holds = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand != 0}[code]
                at += yes if holds else no


@pytest.mark.parametrize(
    ("machine", "calls"), [("x86_64", X86_64), ("x86_64", I386), ("aarch64", AARCH64), ("aarch64", ARM)]
)
class TestEveryArchitecture:
    def test_calls_that_no_build_needs_are_refused(self, machine: str, calls: Calls) -> None:
        for number in calls.refused:
            assert answer(machine, calls.architecture, number) == errno.EPERM
        for number in (425, 426, 427, 435):
            assert answer(machine, calls.architecture, number) == errno.ENOSYS

    def test_a_fork_is_allowed_and_a_new_user_namespace_is_not(self, machine: str, calls: Calls) -> None:
        for number in (calls.clone, calls.unshare):
            assert answer(machine, calls.architecture, number, FORK) is ALLOWED
            assert answer(machine, calls.architecture, number, FORK | NEW_USER) == errno.EPERM

    def test_everything_else_is_allowed(self, machine: str, calls: Calls) -> None:
        listed = {*calls.refused, 425, 426, 427, 435}
        for number in range(470):
            if number not in listed:
                assert answer(machine, calls.architecture, number) is ALLOWED


def test_calls_of_another_architecture_or_way_are_refused() -> None:
    assert answer("x86_64", AARCH64.architecture, 0) == errno.ENOSYS
    assert answer("aarch64", X86_64.architecture, 0) == errno.ENOSYS
    assert answer("x86_64", X86_64.architecture, 0x40000000) == errno.ENOSYS
    assert filter_program("riscv64") is None


CALLS = """
import ctypes, errno, platform, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def error_of(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *arguments)
    return ctypes.get_errno()
keyctl, bpf, setup, unshare = {"x86_64": (250, 321, 425, 272), "aarch64": (219, 280, 425, 97)}[platform.machine()]
print("keyctl", error_of(keyctl, 0, -3, 0) == errno.EPERM)
print("bpf", error_of(bpf, 0, 0, 0) == errno.EPERM)
print("io_uring", error_of(setup, 0, 0) == errno.ENOSYS)
print("unshare", error_of(unshare, 0x10000000) == errno.EPERM)
thread = threading.Thread(target=subprocess.run, args=(["true"],))
thread.start()
thread.join()
"""


@needs_bubblewrap
@pytest.mark.skipif(filter_program() is None, reason="this machine has no filter")
def test_the_kernel_takes_the_filter_and_threads_and_processes_still_work(repository: Repository, folder: Path) -> None:
    order = repository.order(one_step(python("calls.py")), {"calls.py": CALLS}, sandbox=Sandbox.BUBBLEWRAP, **PYTHON)
    assert build(order, folder).error is None
    for name in ("keyctl", "bpf", "io_uring", "unshare"):
        assert f"{name} True\n" in log_of(folder)
