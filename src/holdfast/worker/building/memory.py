"""What the processes of a build use of the machine's memory, measured from `/proc`.

- Counted: private pages, shared pages in proportion, swap; files in memory that a process holds open although they have no
  name (memfd, deleted files on tmpfs); System V segments; without a sandbox also files that are new in `/dev/shm`. Each page
  counts once.
- Not counted: buffers of pipes and sockets, and files in memory that a process has mapped but neither open nor touched. Only a
  control group knows these (`control_group.py`).
- A look reads one small file for each process. The rest is read when the limit may have been passed.
- It uses the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import stat
import time

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "hugetlbfs")
SUSPECTED_DUTY, ROUTINE_DUTY = 0.2, 0.02  # share of the time that measuring may take
ROUTINE = 2.0  # seconds between two measures while other programs have filled the machine's shared memory
SHARED_FOLDER = "/dev/shm"
NS_GET_USERNS = 0xB701
BLOCK = 512  # bytes, the unit of `st_blocks`
Files = dict[tuple[int, int], int]  # (device, number of a file) → bytes that it occupies
Segments = dict[tuple[str, int], int]  # (namespace, number of a System V segment) → bytes


class Memory:
    """The memory of one build. `shared_folder` is None while its commands run in a sandbox, which has its own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._devices = _memory_devices()
        self.shared_folder: str | None = None
        self._old_files = set(_files_in(SHARED_FOLDER))
        self._old_segments = set(_segments_here(_own_namespace()))
        self._lowest = _shared_of_machine()
        self._next = self._next_routine = 0.0

    def overuse(self, processes: list[int], now: float) -> int | None:
        """Return how many bytes they use, if that is more than the limit and it is time for a measure."""
        private, shared = map(sum, zip(*map(_resident, processes), strict=True)) if processes else (0, 0)
        machine = _shared_of_machine()
        self._lowest = min(self._lowest, machine)
        suspected = private + shared + machine - self._lowest > self._limit
        possible = private + machine > self._limit  # all shared memory of the machine may be the build's
        if not (suspected and now >= self._next) and not (possible and now >= self._next_routine):
            return None
        used = self._measured(processes)
        cost = time.monotonic() - now
        self._next, self._next_routine = now + cost / SUSPECTED_DUTY, now + max(ROUTINE, cost / ROUTINE_DUTY)
        return used if used > self._limit else None

    def left(self) -> int:
        """Return the bytes that stay in memory although every process of the command has ended."""
        return sum(self._new_files().values()) + sum(self._segments([]).values())

    def _measured(self, processes: list[int]) -> int:
        files = {**nameless_files(processes, self._devices), **self._new_files()}
        segments = self._segments(processes)
        elsewhere = sum(files.values()) + sum(segments.values())
        return elsewhere + sum(_proportional(pid) - _counted(pid, files, segments) for pid in processes)

    def _new_files(self) -> Files:
        found = _files_in(self.shared_folder)
        return {key: size for key, size in found.items() if key not in self._old_files}

    def _segments(self, processes: list[int]) -> Segments:
        """The segments of the namespaces that the processes are in, and the new segments of this namespace."""
        own = _own_namespace()
        places = {space: pid for pid in processes if (space := _namespace(pid)) not in (own, "")}
        found = {key: size for key, size in _segments_here(own).items() if key not in self._old_segments}
        if self.shared_folder is None:
            found.clear()  # in a sandbox a process cannot reach this namespace
        for space, pid in places.items():
            found |= _segments_in(space, pid)
        return found


def nameless_files(processes: list[int], devices: set[int]) -> Files:
    """Return the files on these devices that have no name any more and that a process holds open."""
    found: Files = {}
    for pid in processes:
        for name in _descriptors(pid):
            path = f"/proc/{pid}/fd/{name}"
            with contextlib.suppress(OSError):
                if os.readlink(path).endswith(" (deleted)"):
                    file = os.stat(path)
                    if file.st_nlink == 0 and file.st_dev in devices and stat.S_ISREG(file.st_mode):
                        found[file.st_dev, file.st_ino] = file.st_blocks * BLOCK
    return found


def _descriptors(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(f"/proc/{pid}/fd")
    return []


def _memory_devices() -> set[int]:
    """The devices of files that are in memory: those of memfd, and of each file system of such a kind."""
    found = set()
    with contextlib.suppress(OSError, AttributeError):
        descriptor = os.memfd_create("holdfast")
        found.add(os.fstat(descriptor).st_dev)
        os.close(descriptor)
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            words, _, rest = line.partition(" - ")
            if rest.split(" ", 1)[0] in MEMORY_FILE_SYSTEMS:
                found.add(_device(words.split()[2], 10))
    return found


def _device(text: str, digits: int) -> int:
    major, minor = text.split(":")
    return os.makedev(int(major, digits), int(minor, digits))


def _files_in(folder: str | None) -> Files:
    """This user's plain files directly in the folder."""
    found: Files = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder) if folder else ():
            with contextlib.suppress(OSError):
                file = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(file.st_mode) and file.st_uid == os.getuid():
                    found[file.st_dev, file.st_ino] = file.st_blocks * BLOCK
    return found


def _shared_of_machine() -> int:
    """All shared memory of the machine, and its used swap, which may be shared memory."""
    found = {}
    with contextlib.suppress(OSError), open("/proc/meminfo", "rb") as file:
        for line in file:
            name, _, rest = line.partition(b":")
            if name in (b"Shmem", b"SwapTotal", b"SwapFree"):
                found[name] = int(rest.split()[0]) << 10
    return found.get(b"Shmem", 0) + found.get(b"SwapTotal", 0) - found.get(b"SwapFree", 0)


def _resident(pid: int) -> tuple[int, int]:
    """Its private pages with those swapped out, and its shared pages; pages that processes share count for each."""
    found = _numbers(f"/proc/{pid}/status", (b"RssAnon", b"VmSwap", b"RssShmem"))
    return found.get(b"RssAnon", 0) + found.get(b"VmSwap", 0), found.get(b"RssShmem", 0)


def _proportional(pid: int) -> int:
    """Its pages, each divided by the number of processes that have it."""
    names = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
    found = _numbers(f"/proc/{pid}/smaps_rollup", names)
    return sum(found.values()) if found else sum(_resident(pid))


def _numbers(path: str, names: tuple[bytes, ...]) -> dict[bytes, int]:
    """The bytes under these names in a file of `/proc`; nothing if the process has ended, or hides."""
    found = {}
    with contextlib.suppress(OSError, ValueError, IndexError), open(path, "rb") as file:
        for line in file:
            name, _, rest = line.partition(b":")
            if name in names:
                found[name] = int(rest.split()[0]) << 10
    return found


def _counted(pid: int, files: Files, segments: Segments) -> int:
    """What of its pages belongs to these files and segments."""
    if not files and not segments:
        return 0
    space, counts, total = _namespace(pid), False, 0
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps", "rb") as file:
        for line in file:
            words = line.split(None, 5)
            if not words[0].endswith(b":"):
                number = int(words[4])
                is_segment = len(words) > 5 and words[5].startswith(b"/SYSV")
                counts = (
                    (space, number) in segments if is_segment else (_device(words[3].decode(), 16), number) in files
                )
            elif counts and words[0] == b"Pss:":
                total += int(words[1]) << 10
    return total


def _own_namespace() -> str:
    return _namespace(os.getpid())


def _namespace(pid: int) -> str:
    """The namespace of its System V segments."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/ipc")
    return ""


def _segments_here(space: str) -> Segments:
    """This user's segments in the namespace of this process."""
    with contextlib.suppress(OSError), open("/proc/sysvipc/shm", "rb") as file:
        return _read_segments(file.read(), space, os.getuid())
    return {}


def _read_segments(text: bytes, space: str, user: int | None) -> Segments:
    lines = [line.split() for line in text.splitlines()]
    if not lines:
        return {}
    number, owner, resident, swapped = (lines[0].index(name) for name in (b"shmid", b"uid", b"rss", b"swap"))
    return {
        (space, int(line[number])): int(line[resident]) + int(line[swapped])
        for line in lines[1:]
        if user is None or int(line[owner]) == user
    }


def _segments_in(space: str, pid: int) -> Segments:
    """The segments in the namespace of another process. A child of this one enters it and reads them."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            _enter_namespace(pid)
            with open("/proc/sysvipc/shm", "rb") as file:
                while text := file.read(1 << 16):
                    os.write(writable, text)
        os._exit(0)
    os.close(writable)
    with open(readable, "rb") as answer:
        text = answer.read()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    return _read_segments(text, space, None)


def _enter_namespace(pid: int) -> None:
    """Enter the user namespace that owns it first: there this process has the right to enter."""
    space = os.open(f"/proc/{pid}/ns/ipc", os.O_RDONLY)
    owner: int = fcntl.ioctl(space, NS_GET_USERNS)
    for descriptor in (owner, space):
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
