"""Calling handlers: what every runner promises. The ways are in `loop.py`, `threads.py` and `isolated.py`.

- Jobs come in batches and their ends go out in batches: `finished` is a deque, `wake` is called once for many.
- A runner never has more than `concurrency` jobs begun; what it was handed beyond that waits in `backlog`.
- A timeout runs from the call of the handler (R4). On timeout, abort or stop a coroutine is cancelled, a process is
  ended with all its children, and a thread is abandoned: its late result is nobody's (C1).
"""

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from holdfast.clock import Clock
from holdfast.stores.contract import Claimed, Done, Report
from holdfast.worker import attempt
from holdfast.worker.handler import Handler

End = Done | Report


class Runner(ABC):
    """What the worker asks of every way to call a handler."""

    def __init__(
        self, handlers: Mapping[str, Handler], concurrency: int, finished: deque[End], wake: Callable[[], None]
    ) -> None:
        self.handlers = handlers
        self.concurrency = concurrency
        self.clock = Clock()  # never the movable one: a handler takes the time it takes
        self.finished = finished
        self.wake = wake
        self.backlog: deque[Claimed] = deque()
        self.stuck = 0  # abandoned threads that have not come back

    @abstractmethod
    def start(self) -> None:
        """Make ready to be handed jobs."""

    @abstractmethod
    def hand(self, calls: Sequence[Claimed]) -> None:
        """Run these, in this order as far as there is room."""

    @abstractmethod
    def cancel(self, job_id: int, attempt_number: int, why: str, actor: str = "") -> None:
        """End a job that has begun; one that has not is taken from the backlog."""

    @abstractmethod
    def stop(self) -> None:
        """End everything that runs, handing it back."""

    def take_back(self, older_than: float = 0.0) -> list[Claimed]:
        """Jobs not begun that have been waiting here for so many seconds."""
        before = self.clock.monotonic() - older_than
        found = []
        while self.backlog and self.backlog[-1].began <= before:
            try:
                found.append(self.backlog.pop())
            except IndexError:
                break
        return found

    def take_back_if(self, unwanted: Callable[[Claimed], bool]) -> list[Claimed]:
        """Jobs not begun that are not wanted here."""
        found = []
        for call in filter(unwanted, list(self.backlog)):
            with contextlib.suppress(ValueError):  # it has begun
                self.backlog.remove(call)
                found.append(call)
        return found

    def finish(self, end: End) -> None:
        self.finished.append(end)


def cancel_in_backlog(runner: Runner, job_id: int, attempt_number: int, why: str, actor: str) -> None:
    for call in list(runner.backlog):
        if call.id == job_id and call.attempt == attempt_number:
            try:
                runner.backlog.remove(call)
            except ValueError:
                return
            call.why, call.actor = why, actor
            runner.finish(attempt.ended(call, 0.0))
            runner.wake()
