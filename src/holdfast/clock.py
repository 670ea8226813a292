"""Where the time comes from. Nothing else in Holdfast reads a clock.

- `Clock` is the machine's: `now()` for moments, `monotonic()` for durations.
- `MovableClock` stands still until a test moves it; stores are then told the time with every statement.
- `monotonic` and `sleep` are for waiting for other processes, which no test clock moves.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

monotonic = time.monotonic
sleep = time.sleep

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def microseconds(moment: datetime) -> int:
    """The moment as whole microseconds since 1970, the form in which SQLite keeps it."""
    return (moment - EPOCH) // MICROSECOND


def moment(value: int) -> datetime:
    """The inverse of `microseconds`. What no datetime can hold, which only hands write, is the first or the last one."""
    try:
        return EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return FIRST if value < 0 else LAST


class Clock:
    """The machine's clock."""

    movable = False

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class MovableClock(Clock):
    """A clock that a test moves by hand."""

    movable = True

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 0.0
        self._lock = threading.Lock()
        self.moved: list[Callable[[], None]] = []  # called after each move

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> datetime:
        """Let time pass: moments and durations both move."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds
        self._tell()
        return self._now

    def set(self, moment: datetime) -> None:
        """Jump to a moment, as a machine's clock does when it is set; durations do not notice."""
        with self._lock:
            self._now = moment
        self._tell()

    def _tell(self) -> None:
        for listener in tuple(self.moved):
            listener()
