"""Several worker processes under one supervisor: forked, restarted, told to stop, never left behind.

- Each worker process leads a process group, so that a terminal's Ctrl-C comes once, forwarded by the supervisor.
- A worker process dies with its supervisor: by signal on Linux, and everywhere because a pipe ends.
"""

import contextlib
import logging
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast.clock import monotonic
from holdfast.worker.processes import die_with_parent, fork, how_it_ended, reset_signals, run_and_exit

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
ALLOWANCE = 5.0  # seconds that a worker may take to end once its grace is over
QUICK_DEATH = 10.0  # a worker that lived longer than so many seconds is restarted at once
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0  # seconds before the second restart after quick deaths, and at most


def run_processes(count: int, serve: Callable[[int], int | None], *, grace: float, log: logging.Logger) -> int:
    """Keep `count` processes running `serve(index)` until SIGTERM or SIGINT; from the main thread only.

    A process that ends before it was told to, however it ends, is restarted. Stop signals are forwarded, each one. The
    result is 0 if all processes then ended by themselves, 1 if some had to be killed after the grace.
    """
    return _Supervisor(count, serve, grace, log).run()


@dataclass(eq=False, slots=True)
class _Post:
    """The place of one worker process, whoever fills it."""

    index: int
    pid: int | None = None
    start_time: float = 0.0  # when it started or, while there is none, when the next one starts
    quick_deaths: int = 0


class _Supervisor:
    def __init__(self, count: int, serve: Callable[[int], int | None], grace: float, log: logging.Logger) -> None:
        self._serve = serve
        self._grace = grace
        self._log = log
        self._posts = [_Post(index) for index in range(count)]
        self._kill_time: float | None = None  # set by the first stop signal
        self._killed = False

    def run(self) -> int:
        self._life_reader, self._life_writer = os.pipe()
        try:
            with self._signals_caught():
                while self._kill_time is None or self._filled():
                    self._start_due()
                    self._take_signals()
                    self._take_deaths()
                    self._kill_overdue()
        finally:
            os.close(self._life_writer)
            os.close(self._life_reader)
        return int(self._killed)

    @contextlib.contextmanager
    def _signals_caught(self) -> Iterator[None]:
        """Signals become bytes to read, so nothing happens in a handler."""
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)
        before = {number: signal.signal(number, lambda *_: None) for number in (*STOP_SIGNALS, signal.SIGCHLD)}
        wakeup = signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._wake_reader.close()
            self._wake_writer.close()

    def _filled(self) -> list[tuple[_Post, int]]:
        return [(post, post.pid) for post in self._posts if post.pid is not None]

    def _start_due(self) -> None:
        for post in self._posts:
            if post.pid is None and self._kill_time is None and monotonic() >= post.start_time:
                try:
                    post.pid = fork()
                except OSError as error:
                    post.start_time = monotonic() + LONGEST_PAUSE
                    self._log.error(
                        "Worker process %s could not be forked: %s. Next try in %s s.", post.index, error, LONGEST_PAUSE
                    )
                    continue
                if post.pid == 0:
                    run_and_exit(lambda: self._work(post.index))  # noqa: B023
                post.start_time = monotonic()

    def _work(self, index: int) -> int | None:
        """In the worker process."""
        os.setpgid(0, 0)
        os.close(self._life_writer)
        reset_signals()
        self._wake_reader.close()
        self._wake_writer.close()
        die_with_parent(signal.SIGKILL)
        threading.Thread(
            target=_exit_at_end_of, args=(self._life_reader,), name="holdfast-supervised", daemon=True
        ).start()
        return self._serve(index)

    def _take_signals(self) -> None:
        """Wait for a signal or the next thing to do; forward what asks to stop."""
        poll = select.poll()
        poll.register(self._wake_reader, select.POLLIN)
        if not poll.poll(self._milliseconds_to_next()):
            return
        for number in self._wake_reader.recv(4096):
            if number in STOP_SIGNALS:
                self._stop(number)

    def _milliseconds_to_next(self) -> float | None:
        restarts = [post.start_time for post in self._posts if post.pid is None]
        times = restarts if self._kill_time is None else [self._kill_time]
        return max(0.0, min(times) - monotonic()) * 1000 if times else None

    def _stop(self, number: int) -> None:
        again = self._kill_time is not None
        latest = monotonic() + ALLOWANCE + (0.0 if again else self._grace)
        self._kill_time = latest if self._kill_time is None else min(latest, self._kill_time)
        self._log.info(
            "%s: worker processes are told to stop%s.", signal.Signals(number).name, " at once" if again else ""
        )
        for _, pid in self._filled():
            os.kill(pid, number)

    def _take_deaths(self) -> None:
        for post, pid in self._filled():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                post.pid = None
                self._note_death(post, pid, how_it_ended(status))

    def _note_death(self, post: _Post, pid: int, how: str) -> None:
        if self._kill_time is not None:
            self._log.info("Worker process %s (process id %s) ended: %s.", post.index, pid, how)
            return
        quick = monotonic() - post.start_time < QUICK_DEATH
        post.quick_deaths = post.quick_deaths + 1 if quick else 0
        pause = 0.0
        if post.quick_deaths > 1:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(post.quick_deaths - 2, 10))
        post.start_time = monotonic() + pause
        self._log.error(
            "Worker process %s (process id %s) ended unasked: %s. It is restarted in %s s.", post.index, pid, how, pause
        )

    def _kill_overdue(self) -> None:
        if self._kill_time is not None and monotonic() >= self._kill_time:
            for post, pid in self._filled():
                self._log.error(
                    "Worker process %s (process id %s) did not stop in time and is killed.", post.index, pid
                )
                self._killed = True
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                post.pid = None


def _exit_at_end_of(descriptor: int) -> None:
    """The supervisor holds the other end of this pipe and never writes."""
    os.read(descriptor, 1)
    os._exit(1)
