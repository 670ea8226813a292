"""A filter of system calls for the sandbox: what no build needs, and what is a frequent way into the kernel.

- Refused: new user namespaces, keyrings of the kernel (they belong to the user, not to a namespace), BPF, performance events,
  `userfaultfd`, `io_uring`. Programs that can do without these are told that the kernel does not have them.
- The filter is a program of classic BPF, as `seccomp(2)` takes it. Every architecture that the machine runs has its own
  numbers of calls; a call of another one is refused.
"""

import errno
import platform
import struct
from collections.abc import Iterable

from msgspec import Struct

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # codes of instructions
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in `struct seccomp_data`
ALLOW, REFUSE = 0x7FFF0000, 0x00050000  # to refuse, an error number is added
NEW_USER_NAMESPACE = 0x10000000
X32 = 0x40000000  # from here on: numbers of a second way to call an x86-64 kernel
SAME_EVERYWHERE = (425, 426, 427, 435)  # io_uring_setup, io_uring_enter, io_uring_register, clone3


class Calls(Struct, frozen=True):
    """The numbers of one architecture."""

    architecture: int  # as the kernel's audit names it
    refused: tuple[int, ...]  # add_key, request_key, keyctl, perf_event_open, bpf, userfaultfd
    clone: int
    unshare: int


X86_64 = Calls(0xC000003E, (248, 249, 250, 298, 321, 323), clone=56, unshare=272)
I386 = Calls(0x40000003, (286, 287, 288, 336, 357, 374), clone=120, unshare=310)
AARCH64 = Calls(0xC00000B7, (217, 218, 219, 241, 280, 282), clone=220, unshare=97)
ARM = Calls(0x40000028, (309, 310, 311, 364, 386, 388), clone=120, unshare=337)
MACHINES = {"x86_64": (X86_64, I386), "aarch64": (AARCH64, ARM)}


def filter_program(machine: str | None = None) -> bytes | None:
    """Return the filter for a machine, this one if none is named; None if its numbers are not known here."""
    known = MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    program = [_step(LOAD, ARCHITECTURE)]
    for calls in known:
        block = [_step(LOAD, NUMBER), *_block(calls)]
        program += [_step(EQUAL, calls.architecture, no=len(block)), *block]
    return b"".join([*program, _refuse(errno.ENOSYS)])


def _block(calls: Calls) -> Iterable[bytes]:
    if calls is X86_64:
        yield from (_step(AT_LEAST, X32, no=1), _refuse(errno.ENOSYS))
    for number in calls.refused:
        yield from (_step(EQUAL, number, no=1), _refuse(errno.EPERM))
    for number in SAME_EVERYWHERE:
        yield from (_step(EQUAL, number, no=1), _refuse(errno.ENOSYS))
    for number in (calls.clone, calls.unshare):
        yield _step(EQUAL, number, no=4)
        yield from (_step(LOAD, FIRST_ARGUMENT), _step(ANY_BIT, NEW_USER_NAMESPACE, no=1), _refuse(errno.EPERM))
        yield _step(RETURN, ALLOW)
    yield _step(RETURN, ALLOW)


def _refuse(error: int) -> bytes:
    return _step(RETURN, REFUSE | error)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """An instruction. A comparison skips so many instructions if it holds, and so many if not."""
    return struct.pack("<HBBI", code, yes, no, value)
