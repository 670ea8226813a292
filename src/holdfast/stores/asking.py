"""Asking a throttler function: it has half a second, and one that fails rests before it is asked again (W4).

It is called while its queue is locked, so whatever it does the queue is given back: a call that takes too long is left
behind in its thread, nothing is admitted, and as long as it has not come back the function is not asked again.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Any

from holdfast.clock import monotonic
from holdfast.jobs.throttlers import ThrottledJob, ThrottlerFunction, Verdict, check_verdicts

logger = logging.getLogger("holdfast.throttle")
PATIENCE = 0.5  # seconds for one call
FIRST_REST, LONGEST_REST = 1.0, 60.0  # seconds after a call that failed


class Asking:
    """The throttler function of one queue in this process, shared by all stores of an App."""

    def __init__(self, queue: str, name: str, function: ThrottlerFunction) -> None:
        self.queue = queue
        self.name = name
        self.function = function
        self._lock = threading.Lock()
        self._rest = 0.0
        self._rests_until = 0.0
        self._stuck: threading.Thread | None = None

    @property
    def rests_for(self) -> float:
        """Seconds until it may be asked; 0: now."""
        return max(0.0, self._rests_until - monotonic())

    def ask(self, running: Sequence[ThrottledJob], candidates: Sequence[ThrottledJob]) -> Sequence[Verdict] | None:
        """What it says about each candidate; None if it failed, and is to rest."""
        if self._stuck is not None and self._stuck.is_alive():
            self._fail("is still busy with a call that took too long")
            return None
        call = _Call(self.function, running, candidates)
        call.start()
        call.join(PATIENCE)
        if call.is_alive():
            self._stuck = call
            self._fail(f"took longer than {PATIENCE:g} s")
        elif call.error is not None:
            self._fail(f"failed: {type(call.error).__qualname__}: {call.error}", call.error)
        else:
            with self._lock:
                self._rest = 0.0
            return call.verdicts
        return None

    def _fail(self, what: str, error: BaseException | None = None) -> None:
        with self._lock:
            self._rest = min(LONGEST_REST, max(FIRST_REST, 2 * self._rest))
            self._rests_until = monotonic() + self._rest
        logger.error(
            "The throttler `%s` of queue `%s` %s. None of its jobs starts here; it is asked again in %g s.",
            self.name,
            self.queue,
            what,
            self._rest,
            exc_info=error,
        )


class _Call(threading.Thread):
    def __init__(self, function: ThrottlerFunction, *values: Any) -> None:
        super().__init__(name="holdfast-throttler", daemon=True)
        self.verdicts: Sequence[Verdict] = ()
        self.error: BaseException | None = None
        self._function, self._values = function, values

    def run(self) -> None:
        try:
            self.verdicts = check_verdicts(self._function(*self._values), len(self._values[1]))
        except BaseException as error:  # whatever it is, the pump goes on
            self.error = error
