"""Calls in child processes: really forked, really killed, and nothing left of them."""

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.clock import monotonic, sleep
from holdfast.worker.children import Nursery
from holdfast.worker.zygote import Wire

pytestmark = pytest.mark.claim("C1")

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
PATIENCE = 60.0  # how long a test waits for what must happen, however busy the machine
FOREVER = 150.0  # longer than any test

Perform = Callable[[bytes], bytes]


class Ends:
    """Collects what a nursery tells about its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[int, bytes | None, str]] = []
        self._changed = threading.Condition()

    def __call__(self, call_id: int, reply: bytes | None, how: str) -> None:
        with self._changed:
            self.told.append((call_id, reply, how))
            self._changed.notify_all()

    def of(self, call_id: int) -> tuple[bytes | None, str]:
        with self._changed:
            assert self._changed.wait_for(lambda: self._of(call_id), PATIENCE), f"call {call_id} has not ended"
            (end,) = self._of(call_id)
            return end

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.told) >= count, PATIENCE), (
                f"{len(self.told)} of {count} ended"
            )

    def _of(self, call_id: int) -> list[tuple[bytes | None, str]]:
        return [(reply, how) for told, reply, how in self.told if told == call_id]


Open = Callable[..., tuple[Nursery, Ends]]


@pytest.fixture
def open_nursery() -> Iterator[Open]:
    opened = []

    def open_one(perform: Perform, **options: float) -> tuple[Nursery, Ends]:
        ends = Ends()
        nursery = Nursery(lambda request, _: perform(request), ends, **options)  # type: ignore[arg-type]
        opened.append(nursery)
        return nursery, ends

    yield open_one
    for nursery in opened:
        nursery.close(0)


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


def process_in(path: Path) -> psutil.Process:
    """The process whose number stands in the file, once it does."""
    until(lambda: path.exists() and path.read_text().endswith("\n"), f"{path.name} written")
    return psutil.Process(int(path.read_text()))


def write_pid(path: Path) -> None:
    path.write_text(f"{os.getpid()}\n")


def fork_into(body: Callable[[], None]) -> None:
    """Run the body in a process of its own and leave it there."""
    if os.fork() == 0:
        try:
            body()
        finally:
            os._exit(0)


def own_pid(_: bytes) -> bytes:
    return str(os.getpid()).encode()


def numbers(nursery: Nursery, ends: Ends, calls: range, fresh: bool = False) -> list[int]:
    """The process numbers of the children that performed these calls, one after the other."""
    found = []
    for call_id in calls:
        nursery.run(call_id, b"", fresh)
        found.append(int(ends.of(call_id)[0] or b"0"))
    return found


def zygote_of(nursery: Nursery, ends: Ends, call_id: int) -> psutil.Process:
    nursery.run(call_id, b"")
    child = psutil.Process(int(ends.of(call_id)[0] or b"0"))
    zygote = child.parent()
    assert zygote is not None
    return zygote


def test_a_closure_runs_in_another_process_and_its_reply_comes_back(open_nursery: Open) -> None:
    greeting = b"good morning "
    nursery, ends = open_nursery(lambda name: greeting + name + b" " + own_pid(name))
    nursery.run(1, b"Ada")
    reply, how = ends.of(1)
    assert reply is not None
    *words, pid = reply.split()
    assert (words, how) == ([b"good", b"morning", b"Ada"], "")
    assert int(pid) != os.getpid()


def test_an_idle_child_is_used_again(open_nursery: Open) -> None:
    nursery, ends = open_nursery(own_pid)
    assert len(set(numbers(nursery, ends, range(20)))) == 1


def test_a_fresh_child_is_new_and_ends_after_its_call(open_nursery: Open) -> None:
    nursery, ends = open_nursery(own_pid)
    (pooled,) = numbers(nursery, ends, range(1))
    fresh = numbers(nursery, ends, range(1, 6), fresh=True)
    assert len({pooled, *fresh}) == 6
    zygote = psutil.Process(pooled).parent()
    assert zygote is not None
    until(lambda: [child.pid for child in zygote.children()] == [pooled], "only the pooled child is left")


def test_as_many_children_are_made_as_calls_run_at_once(open_nursery: Open, tmp_path: Path) -> None:
    def meet(name: bytes) -> bytes:
        (tmp_path / name.decode()).touch()
        until(lambda: len(list(tmp_path.iterdir())) >= 3, "three calls at once")
        return own_pid(name)

    nursery, ends = open_nursery(meet)
    for call_id in range(3):
        nursery.run(call_id, str(call_id).encode())
    together = {ends.of(call_id)[0] for call_id in range(3)}
    assert len(together) == 3
    assert {str(pid).encode() for pid in numbers(nursery, ends, range(3, 9))} <= together


@pytest.mark.parametrize("size", [0, 1, 65_527, 5 * 2**20])
def test_requests_and_replies_of_any_size_arrive_whole(open_nursery: Open, size: int) -> None:
    nursery, ends = open_nursery(lambda request: request[::-1])
    request = random.Random(size).randbytes(size)
    for call_id in range(3):
        nursery.run(call_id, request, fresh=call_id == 2)
    assert [ends.of(call_id) for call_id in range(3)] == [(request[::-1], "")] * 3


def segfault() -> None:
    faulthandler.disable()  # pytest's report of it is not this test's output
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def divide_by_zero() -> None:
    os.close(2)  # the traceback is not this test's output
    raise ZeroDivisionError


DEATHS: dict[bytes, tuple[Callable[[], object], str]] = {
    b"leaves": (lambda: os._exit(3), "exited with 3"),
    b"leaves by exception": (lambda: sys.exit(4), "exited with 4"),
    b"raises": (divide_by_zero, "exited with 1"),
    b"segfaults": (segfault, "killed by signal 11 (SIGSEGV)"),
    b"is killed for memory": (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal 9 (SIGKILL)"),
    b"is interrupted": (lambda: os.kill(os.getpid(), signal.SIGINT), "killed by signal 2 (SIGINT)"),
}


def die_if_named(name: bytes) -> bytes:
    if name in DEATHS:
        DEATHS[name][0]()
    return name


@pytest.mark.parametrize("name", DEATHS)
def test_the_end_of_a_call_says_how_its_child_died(open_nursery: Open, name: bytes) -> None:
    nursery, ends = open_nursery(die_if_named)
    nursery.run(1, name)
    nursery.run(2, b"another")
    assert ends.of(1) == (None, DEATHS[name][1])
    assert ends.of(2) == (b"another", "")


@pytest.mark.fault(7, "a segfault in a child among many")
def test_a_segfault_among_many_harms_no_other(open_nursery: Open) -> None:
    nursery, ends = open_nursery(die_if_named)
    for call_id in range(300):
        nursery.run(call_id, b"segfaults" if call_id == 150 else b"lives")
        ends.wait_for(call_id - 3)
    ends.wait_for(300)
    assert [told for told in ends.told if told[1] != b"lives"] == [(150, None, "killed by signal 11 (SIGSEGV)")]


def test_standard_streams_belong_to_the_handler(open_nursery: Open) -> None:
    def litter(request: bytes) -> bytes:
        os.write(1, b"\x00\xff junk" * 1000)
        print("buffered", end="")
        for descriptor in range(3):
            os.close(descriptor)
        return request

    nursery, ends = open_nursery(litter)
    nursery.run(1, b"done", fresh=True)
    assert ends.of(1) == (b"done", "")


def test_a_child_has_random_numbers_signals_threads_and_an_event_loop_of_its_own(open_nursery: Open) -> None:
    async def answer() -> str:
        return await asyncio.to_thread(
            lambda: f"{random.random()} {threading.main_thread() is not threading.current_thread()}"
        )

    def perform(_: bytes) -> bytes:
        handlers = [
            signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1)
        ]
        assert handlers == [signal.SIG_DFL] * 4
        assert signal.set_wakeup_fd(-1) == -1
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
        return asyncio.run(answer()).encode()

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        nursery, ends = open_nursery(perform)
        nursery.start()
    finally:
        signal.signal(signal.SIGUSR1, before)
    for call_id in range(2):
        nursery.run(call_id, b"", fresh=True)
    one, other = ((ends.of(call_id)[0] or b"").split() for call_id in range(2))
    assert one[1] == other[1] == b"True"
    assert one[0] != other[0]


def test_a_copy_that_a_handler_forks_and_lets_return_does_not_answer(open_nursery: Open) -> None:
    def fork_by_mistake(_: bytes) -> bytes:
        copy = os.fork() == 0
        return b"copy" if copy else b"original"

    nursery, ends = open_nursery(fork_by_mistake)
    for call_id in range(10):
        nursery.run(call_id, b"")
        assert ends.of(call_id) == (b"original", "")


@pytest.mark.parametrize("fresh", [False, True])
def test_ending_a_call_terminates_its_child(open_nursery: Open, tmp_path: Path, fresh: bool) -> None:
    def hang(_: bytes) -> bytes:
        write_pid(tmp_path / "child")
        sleep(FOREVER)
        return b""

    nursery, ends = open_nursery(hang)
    nursery.run(1, b"", fresh)
    child = process_in(tmp_path / "child")
    nursery.end(1, grace=FOREVER)
    assert ends.of(1) == (None, "killed by signal 15 (SIGTERM)")
    assert gone(child)


def test_a_call_can_be_ended_before_its_child_is_born(open_nursery: Open) -> None:
    nursery, ends = open_nursery(lambda _: sleep(FOREVER) or b"")
    for call_id in range(10):
        nursery.run(call_id, b"x" * 1000)
        nursery.end(call_id, grace=FOREVER)
    for call_id in range(10):
        assert ends.of(call_id) == (None, "killed by signal 15 (SIGTERM)")


@pytest.mark.fault(7, "a process ignores SIGTERM")
def test_a_child_that_ignores_the_request_to_end_is_killed(open_nursery: Open, tmp_path: Path) -> None:
    def ignore(_: bytes) -> bytes:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        write_pid(tmp_path / "child")
        sleep(FOREVER)
        return b""

    nursery, ends = open_nursery(ignore)
    nursery.run(1, b"")
    child = process_in(tmp_path / "child")
    nursery.end(1, grace=0.1)
    assert ends.of(1) == (None, "killed by signal 9 (SIGKILL)")
    assert gone(child)


def test_a_reply_after_the_request_to_end_does_not_count(open_nursery: Open, tmp_path: Path) -> None:
    def answer_when_told(_: bytes) -> bytes:
        told: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
        write_pid(tmp_path / "child")
        while not told:
            sleep(0.01)
        return b"late"

    nursery, ends = open_nursery(answer_when_told)
    nursery.run(1, b"")
    process_in(tmp_path / "child")
    nursery.end(1, grace=FOREVER)
    assert ends.of(1) == (None, "exited with 0")


def test_ending_a_call_that_has_ended_does_not_touch_the_next_in_its_child(open_nursery: Open) -> None:
    nursery, ends = open_nursery(own_pid)
    for call_id in range(50):
        nursery.run(call_id, b"")
        ends.of(call_id)
        nursery.end(call_id)
    nursery.end(999)
    assert len({reply for _, reply, _ in ends.told}) == 1


def plain(path: Path) -> None:
    fork_into(lambda: stay(path))


def deaf(path: Path) -> None:
    def body() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stay(path)

    fork_into(body)


def own_session(path: Path) -> None:
    def body() -> None:
        os.setsid()
        stay(path)

    fork_into(body)


def daemon(path: Path) -> None:
    def body() -> None:
        os.setsid()
        fork_into(lambda: stay(path))

    fork_into(body)


def another_program(path: Path) -> None:
    process = subprocess.Popen(["sleep", str(FOREVER)], start_new_session=True)
    path.write_text(f"{process.pid}\n")


def generations(path: Path) -> None:
    """A daemon with a daemon with a daemon."""

    def body(depth: int) -> None:
        os.setsid()
        if depth:
            fork_into(lambda: body(depth - 1))
        else:
            stay(path)
        sleep(FOREVER)

    fork_into(lambda: body(5))


def stay(path: Path) -> None:
    write_pid(path)
    sleep(FOREVER)


WAYS = [plain, deaf, pytest.param(own_session, marks=LINUX), pytest.param(daemon, marks=LINUX)]
WAYS += [pytest.param(another_program, marks=LINUX), pytest.param(generations, marks=LINUX)]


@pytest.mark.fault(7, "a handler forks grandchildren")
@pytest.mark.parametrize("start", WAYS)
def test_ending_a_call_leaves_none_of_the_processes_it_started(
    open_nursery: Open, tmp_path: Path, start: Callable[[Path], None]
) -> None:
    def hang(_: bytes) -> bytes:
        start(tmp_path / "grandchild")
        sleep(FOREVER)
        return b""

    nursery, ends = open_nursery(hang)
    nursery.run(1, b"")
    grandchild = process_in(tmp_path / "grandchild")
    nursery.end(1, grace=0.2)
    assert ends.of(1)[0] is None
    assert gone(grandchild)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("start", WAYS)
def test_a_call_that_ends_by_itself_leaves_no_process_either(
    open_nursery: Open, tmp_path: Path, start: Callable[[Path], None], fresh: bool
) -> None:
    def leave(_: bytes) -> bytes:
        start(tmp_path / "grandchild")
        process_in(tmp_path / "grandchild")
        return b"done"

    nursery, ends = open_nursery(leave, idle_seconds=FOREVER)
    nursery.run(1, b"", fresh)
    assert ends.of(1) == (b"done", "")
    until(lambda: gone_by_number(tmp_path / "grandchild"), "the process left behind is gone")


def gone_by_number(path: Path) -> bool:
    try:
        return gone(psutil.Process(int(path.read_text())))
    except psutil.NoSuchProcess:
        return True


@LINUX
def test_a_child_that_dies_takes_its_processes_along(open_nursery: Open, tmp_path: Path) -> None:
    def abandon(_: bytes) -> bytes:
        daemon(tmp_path / "grandchild")
        process_in(tmp_path / "grandchild")
        os._exit(5)

    nursery, ends = open_nursery(abandon)
    nursery.run(1, b"")
    assert ends.of(1) == (None, "exited with 5")
    assert gone_by_number(tmp_path / "grandchild")


def test_the_grace_is_for_the_processes_of_the_group_too(open_nursery: Open, tmp_path: Path) -> None:
    def tidy() -> None:
        told: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
        write_pid(tmp_path / "grandchild")
        while not told:
            sleep(0.01)
        sleep(0.2)
        (tmp_path / "tidied").touch()

    def hang(_: bytes) -> bytes:
        fork_into(tidy)
        sleep(FOREVER)
        return b""

    nursery, ends = open_nursery(hang)
    nursery.run(1, b"")
    process_in(tmp_path / "grandchild")
    nursery.end(1, grace=FOREVER)
    assert ends.of(1) == (None, "killed by signal 15 (SIGTERM)")
    assert (tmp_path / "tidied").exists()


def test_a_child_whose_copy_keeps_its_socket_open_is_known_to_be_dead(open_nursery: Open) -> None:
    def die_beside_a_copy(_: bytes) -> bytes:
        fork_into(lambda: sleep(FOREVER))
        os._exit(6)

    nursery, ends = open_nursery(die_beside_a_copy)
    nursery.run(1, b"")
    assert ends.of(1) == (None, "exited with 6")


def test_losing_the_zygote_ends_each_call_once_and_the_next_call_starts_another(
    open_nursery: Open, tmp_path: Path
) -> None:
    def hang_if_asked(request: bytes) -> bytes:
        if request:
            plain(tmp_path / f"grandchild-{request.decode()}")
            sleep(FOREVER)
        return own_pid(request)

    nursery, ends = open_nursery(hang_if_asked)
    for call_id in range(1, 4):
        nursery.run(call_id, str(call_id).encode())
    grandchildren = [process_in(tmp_path / f"grandchild-{call_id}") for call_id in range(1, 4)]
    children = [process.parent() for process in grandchildren]
    zygote = zygote_of(nursery, ends, 4)
    zygote.kill()
    for call_id in range(1, 4):
        assert ends.of(call_id) == (None, "lost with its parent process: killed by signal 9 (SIGKILL)")
    for process in (*grandchildren, *children):
        assert process is not None
        until(lambda process=process: gone(process), "what the lost zygote had started is gone")  # type: ignore[misc]
    assert zygote_of(nursery, ends, 5) != zygote
    assert sorted(call_id for call_id, _, _ in ends.told) == [1, 2, 3, 4, 5]


def test_the_zygote_outlives_the_thread_that_started_it_and_stray_signals(open_nursery: Open) -> None:
    nursery, ends = open_nursery(own_pid)
    starter = threading.Thread(target=nursery.start)
    starter.start()
    starter.join()
    zygote = zygote_of(nursery, ends, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        zygote.send_signal(number)
    assert zygote_of(nursery, ends, 2) == zygote


def test_the_signals_of_a_terminal_do_not_reach_children(open_nursery: Open) -> None:
    nursery, ends = open_nursery(lambda _: b"%d %d" % (os.getsid(0), os.getpgid(0)))
    nursery.run(1, b"")
    session, group = map(int, (ends.of(1)[0] or b"").split())
    assert session != os.getsid(0)
    assert group not in (session, os.getpgid(0))


def test_a_nursery_works_beside_threads_and_beside_another(open_nursery: Open) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    try:
        first, first_ends = open_nursery(lambda request: b"first " + request)
        second, second_ends = open_nursery(lambda request: b"second " + request)
        for call_id in range(10):
            first.run(call_id, b"")
            second.run(call_id, b"")
        first_ends.wait_for(10)
        second_ends.wait_for(10)
        first.close()
        second.run(10, b"on")
        assert second_ends.of(10) == (b"second on", "")
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_closing_ends_what_runs_and_leaves_no_process(open_nursery: Open, tmp_path: Path) -> None:
    def hang(request: bytes) -> bytes:
        if request:
            another_program(tmp_path / "grandchild")
            sleep(FOREVER)
        return own_pid(request)

    nursery, ends = open_nursery(hang)
    nursery.run(1, b"hang")
    grandchild = process_in(tmp_path / "grandchild")
    zygote = zygote_of(nursery, ends, 2)
    family = [zygote, *zygote.children(recursive=True)]
    nursery.close(grace=0.1)
    assert ends.of(1) == (None, "killed by signal 15 (SIGTERM)")
    assert all(gone(process) for process in (grandchild, *family))
    assert zygote.pid not in [process.pid for process in psutil.Process().children()]
    nursery.close(grace=0.1)
    with pytest.raises(RuntimeError, match="closed"):
        nursery.run(3, b"")
    assert len(ends.told) == 2


def test_a_running_call_cannot_be_started_again(open_nursery: Open) -> None:
    nursery, _ = open_nursery(lambda _: sleep(FOREVER) or b"")
    nursery.run(7, b"")
    with pytest.raises(ValueError, match="Call 7 is already running"):
        nursery.run(7, b"")


def test_idle_children_are_ended(open_nursery: Open) -> None:
    nursery, ends = open_nursery(own_pid, idle_seconds=0.5)
    zygote = zygote_of(nursery, ends, 1)
    until(lambda: not zygote.children(), "the idle child is ended")
    assert numbers(nursery, ends, range(2, 4))


def test_no_more_than_a_few_children_stay_idle(open_nursery: Open, tmp_path: Path) -> None:
    def meet(name: bytes) -> bytes:
        (tmp_path / name.decode()).touch()
        until(lambda: len(list(tmp_path.iterdir())) >= 4, "four calls at once")
        return own_pid(name)

    nursery, ends = open_nursery(meet, spare=1)
    for call_id in range(4):
        nursery.run(call_id, str(call_id).encode())
    ends.wait_for(4)
    zygote = zygote_of(nursery, ends, 4)
    until(lambda: len(zygote.children()) == 1, "one spare child is left")


def descriptors() -> set[str]:
    """What each descriptor of this process leads to. The names of sockets and pipes are unique."""
    found = set[str]()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(entry))
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads descriptors in /proc")
def test_calls_leave_no_descriptor_and_no_zombie(open_nursery: Open) -> None:
    """Threads of earlier tests may open or close a few descriptors at the same time: a leak shows as one for each call."""
    nursery, ends = open_nursery(own_pid)
    zygote = zygote_of(nursery, ends, 0)
    until(lambda: len(zygote.children()) == 1, "one child")
    ours, of_zygote = descriptors(), zygote.num_fds()
    numbers(nursery, ends, range(1, 51))
    numbers(nursery, ends, range(51, 101), fresh=True)
    until(lambda: len(descriptors() - ours) < 25, "this process closed the descriptors of its calls")
    until(lambda: zygote.num_fds() <= of_zygote, "the zygote closed the descriptors of its children")
    until(lambda: len(zygote.children()) == 1, "the zygote reaped its children")


def test_every_call_ends_once_whatever_happens_to_it(open_nursery: Open) -> None:
    chance = random.Random(7)

    def perform(request: bytes) -> bytes:
        die_if_named(request)
        return request

    nursery, ends = open_nursery(perform)
    requests = [*[b"lives"] * 6, b"leaves", b"is killed for memory"]
    for call_id in range(200):
        nursery.run(call_id, chance.choice(requests), fresh=chance.random() < 0.2)
        if chance.random() < 0.2:
            nursery.end(call_id, grace=chance.choice([0, FOREVER]))
        ends.wait_for(call_id - 8)
    ends.wait_for(200)
    assert sorted(call_id for call_id, _, _ in ends.told) == list(range(200))


def test_messages_go_both_ways_while_a_call_is_performed() -> None:
    ends, heard = Ends(), list[tuple[int, bytes]]()

    def perform(request: bytes, wire: Wire) -> bytes:
        wire.send(b"one of " + request)
        wire.send(b"x" * 300_000)
        answer = wire.receive()
        assert wire.receive(wait=False) is None
        return b"told " + (answer[0] if answer else b"nothing")

    def on_message(call_id: int, message: bytes) -> None:
        heard.append((call_id, message))
        if message.startswith(b"x"):
            nursery.tell(call_id, b"%d bytes" % len(message))

    nursery = Nursery(perform, ends, on_message)
    try:
        for call_id in (1, 2):  # the same child
            nursery.run(call_id, b"call %d" % call_id)
            assert ends.of(call_id) == (b"told 300000 bytes", "")
            nursery.tell(call_id, b"too late")
    finally:
        nursery.close(0)
    assert [(call_id, message[:13]) for call_id, message in heard] == [
        (1, b"one of call 1"),
        (1, b"x" * 13),
        (2, b"one of call 2"),
        (2, b"x" * 13),
    ]


WORKER = """
import os, pathlib, subprocess, sys
from holdfast.clock import sleep
from holdfast.worker.children import Nursery
from holdfast.worker.zygote import Wire

folder = pathlib.Path(sys.argv[1])

def hang(request, wire):
    process = subprocess.Popen(["sleep", "150"], start_new_session=sys.platform == "linux")
    for name, pid in {"zygote": os.getppid(), "child": os.getpid(), "grandchild": process.pid}.items():
        (folder / name).write_text(f"{pid}\\n")
    sleep(150)

nursery = Nursery(hang, print)
nursery.run(1, b"")
if os.fork() == 0:  # holds the worker's sockets open
    (folder / "copy").write_text(f"{os.getpid()}\\n")
    sleep(150)
sleep(150)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)])
    yield started
    started.kill()
    started.wait()
    for name in ("copy", "grandchild"):
        with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
            psutil.Process(int((tmp_path / name).read_text())).kill()


@pytest.mark.fault(7, "kill -9 of a worker with children")
@pytest.mark.claim("C5")
def test_nothing_outlives_a_worker_that_is_killed(worker: subprocess.Popen[bytes], tmp_path: Path) -> None:
    family = [process_in(tmp_path / name) for name in ("zygote", "child", "grandchild")]
    process_in(tmp_path / "copy")
    worker.kill()
    until(lambda: all(gone(process) for process in family), "zygote, child and grandchild are gone")


@LINUX
@pytest.mark.claim("C5")
def test_a_child_does_not_outlive_its_zygote_though_the_worker_stands_still(
    worker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    zygote, child = (process_in(tmp_path / name) for name in ("zygote", "child"))
    process_in(tmp_path / "grandchild")
    worker.send_signal(signal.SIGSTOP)
    zygote.kill()
    until(lambda: gone(child), "the child is gone")


def test_dozens_of_children_run_at_once(open_nursery: Open, tmp_path: Path) -> None:
    count = 48

    def meet(name: bytes) -> bytes:
        (tmp_path / name.decode()).touch()
        until(lambda: len(list(tmp_path.iterdir())) >= count, "all at once")
        return name

    nursery, ends = open_nursery(meet)
    for call_id in range(count):
        nursery.run(call_id, str(call_id).encode())
    ends.wait_for(count)
    assert all(reply == str(call_id).encode() for call_id, reply, _ in ends.told)
