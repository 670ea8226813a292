"""How many jobs ended lately, step by step: what the small curves of the dashboard are drawn from.

Made from the newest ends that a glance brings. Of a busy instance these reach back a few seconds only; what earlier
glances have seen is remembered, so a page that is looked at fills its curve. Nothing is asked for that nobody looks at.
"""

import threading
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from holdfast.stores.contract import Glance

STEP = 5.0  # seconds
STEPS = 60
ALL = ""  # every queue together


class Seen(Struct, frozen=True):
    """What is known of one step of time."""

    seconds: float  # of it that were looked at
    counts: dict[str, int]  # queue → jobs that ended in them


class Trend:
    """What glances have seen of the last minutes."""

    def __init__(self) -> None:
        self._steps: dict[int, Seen] = {}
        self._lock = threading.Lock()

    def take(self, seen: Glance) -> None:
        """Learn from a glance."""
        now = seen.time.timestamp()
        last = int(now // STEP)
        since = max((last - STEPS) * STEP, seen.ends_since.timestamp() if seen.ends_since else 0.0)
        counts: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for ended in seen.ends:
            at = ended.end_time.timestamp()
            if at > since:
                counts[int(at // STEP)][ended.queue] += ended.count
        with self._lock:
            for step in range(int(since // STEP), last + 1):
                looked = min(now, (step + 1) * STEP) - max(since, step * STEP)
                if step not in self._steps or looked >= self._steps[step].seconds:
                    self._steps[step] = Seen(looked, dict(counts[step]))
            for step in [step for step in self._steps if step < last - STEPS]:
                del self._steps[step]

    def rates(self, now: datetime, queue: str = ALL) -> list[float]:
        """Jobs that ended in a second, for each whole step from the first one known on."""
        last = int(now.timestamp() // STEP)
        with self._lock:
            known = [self._steps.get(step) for step in range(last - STEPS, last)]
        first = next((place for place, step in enumerate(known) if step is not None), len(known))
        return [_rate(step, queue) for step in known[first:]]


def _rate(step: Seen | None, queue: str) -> float:
    if step is None or step.seconds <= 0:
        return 0.0
    count = sum(step.counts.values()) if queue == ALL else step.counts.get(queue, 0)
    return count / step.seconds


def spread(times: Sequence[datetime], now: datetime, lasts: timedelta, steps: int) -> list[float]:
    """How many of these moments fell into each of so many equal parts of the time up to now."""
    part = lasts.total_seconds() / steps
    found = [0.0] * steps
    for time in times:
        place = steps - 1 - int((now - time.astimezone(UTC)).total_seconds() // part)
        if 0 <= place < steps:
            found[place] += 1
    return found
