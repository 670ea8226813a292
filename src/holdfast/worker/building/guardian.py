"""The outer of the two processes that watch over a build: it ends everything when the keeper ends, however it ends.

- It forks the keeper and adopts what the keeper leaves. A command without a sandbox runs as the same user and can kill or
  stop the keeper; a keeper that is stopped counts as killed.
- The keeper ends the build when the guardian dies. If a command kills both at once, the worker ends the processes that
  have the build's mark in their environment.
- It uses the standard library and its neighbours only, and is started without the rest of Holdfast: it is there in 50 ms,
  has one thread, and so may fork.
"""

import os
import select
import signal

from holdfast.worker.building import keeper, process_tree

TICK = 0.25  # seconds between two looks whether the worker lives


def main(log: int, echo: int) -> None:
    """Run a keeper until it ends, then end what it left. Its requests come on descriptor 0."""
    worker = os.getppid()
    process_tree.refuse_readers()  # the requests have secrets
    process_tree.adopt_orphans()
    guardian = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            keeper.main(log, echo, guardian)
        finally:
            os._exit(0)
    for descriptor in (0, 1, log, echo):
        if descriptor >= 0:
            os.close(descriptor)  # the worker sees the end of the keeper's answers when the keeper ends
    _watch(child, worker)
    process_tree.end_below()


def _watch(child: int, worker: int) -> None:
    """Return when the keeper has ended or is stopped, or when the worker is gone."""
    woken = process_tree.signal_pipe()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # the keeper gets these too, ends the build, and says so
    while os.getppid() == worker and not _keeper_is_gone(child):
        select.select([woken], [], [], TICK)
        process_tree.empty_signal_pipe(woken)


def _keeper_is_gone(child: int) -> bool:
    while True:
        pid, _ = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if pid in (0, child):
            return pid == child
