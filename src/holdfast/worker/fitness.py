"""Whether a worker can still work: a fault of its own process, which no waiting cures, must end it.

- A worker waits for ever for a database that is away (C7). It must not wait for ever if only its own connections fail: a
  handler has closed their descriptors, or the process has no descriptor left for a new one (C8).
- The difference is seen from outside: a program of its own uses the same database. If that works while the worker's own
  threads have failed for `lost_after`, the worker ends, and whatever supervises it starts it again.
"""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable

from holdfast.clock import monotonic

logger = logging.getLogger("holdfast.worker")
PROBE_WITHIN = 30.0  # seconds that the other program may take
CONFIRM_AFTER = (
    5.0  # seconds and a heartbeat between two probes: a thread that is just coming back has come back by then
)
PROBE_EVERY = 10.0  # seconds, at least, between probes of a database that is away
Address = tuple[str, str, str]  # as `Store.address` says it


class Outages:
    """Since when each thread of a worker has not got through to the database."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, str]] = {}

    def began(self, thread: str) -> None:
        """To use the database. If it gets no answer, that is an outage too."""
        self._since.setdefault(thread, (monotonic(), "none, it waits without an answer."))

    def failed(self, thread: str, error: object) -> None:
        since, _ = self._since.get(thread, (monotonic(), ""))
        self._since[thread] = since, str(error)

    def worked(self, thread: str) -> None:
        self._since.pop(thread, None)

    def longest(self) -> tuple[str, float, str] | None:
        """The thread that fails longest, since when, and its last error."""
        found = [(since, thread, error) for thread, (since, error) in self._since.copy().items()]
        since, thread, error = min(found, default=(0.0, "", ""))
        return (thread, since, error) if thread else None


class Fitness(threading.Thread):
    """Ends a worker that cannot work any more, by calling `fail` with a sentence that says why."""

    def __init__(
        self,
        address: Address,
        worker: Callable[[], int],
        outages: Outages,
        heartbeat: float,
        lost_after: float,
        fail: Callable[[str], None],
    ) -> None:
        super().__init__(name="holdfast-fitness", daemon=True)
        self._address = address
        self._worker = worker
        self._outages = outages
        self._heartbeat = heartbeat
        self._lost_after = lost_after
        self._fail = fail
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()

    def run(self) -> None:
        pause = self._lost_after / 4
        while not self._closing.wait(pause):
            pause = self._lost_after / 4
            outage = self._outages.longest()
            if outage is None or monotonic() - outage[1] < self._lost_after:
                continue
            reason = self._own_fault()
            if reason is None:
                pause = max(self._lost_after, PROBE_EVERY)
            elif self._closing.wait(CONFIRM_AFTER + self._heartbeat):
                return
            elif self._goes_on(outage) and self._own_fault() is not None:
                self._fail(
                    f"Worker {self._worker()} ends, because it cannot use its database any more: {reason}. For "
                    f"{monotonic() - outage[1]:.0f} s its own connections have failed; the last error: {outage[2]} A handler may have "
                    "closed or used up the descriptors of the process. Start the worker again."
                )
                return

    def _goes_on(self, outage: tuple[str, float, str]) -> bool:
        """The same outage, without a moment in which the thread got through."""
        found = self._outages.longest()
        return found is not None and found[:2] == outage[:2]

    def _own_fault(self) -> str | None:
        """What is wrong with this process and not with the database; None if that is not known."""
        try:
            return "another process can" if self._probe(lose=False) else None
        except OSError as error:
            out_of_descriptors = error.errno == errno.EMFILE
            return "this process has no file descriptor left" if out_of_descriptors else None

    def hand_back(self) -> None:
        """Let others take the jobs now, by calling this worker lost from outside."""
        try:
            self._probe(lose=True)
        except OSError as error:
            logger.warning("Its jobs are recovered when it is missed: %s", error)

    def _probe(self, lose: bool) -> bool:
        asked = json.dumps([*self._address, self._worker(), lose])
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "holdfast.stores.probe"],
                input=f"{asked}\n".encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                timeout=PROBE_WITHIN,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return ended.returncode == 0
