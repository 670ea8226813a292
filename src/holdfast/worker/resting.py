"""Which throttled queues a pump leaves alone for a moment, because their jobs may not start.

Whoever settles on such a queue also claims from it in the same transaction, so the others find it full; if they looked
at every piece of news they would only take turns holding its lock. A queue that was found full is left alone for 20 ms,
then for longer, up to 200 ms. What ends in our own hand makes room that we may fill, so it ends the rest.

A queue whose lock somebody keeps is left alone for a second, whatever happens: each look at it costs the others as much.
"""

import random
from collections.abc import Iterable, Mapping

from msgspec import Struct

SHORTEST, LONGEST = 0.02, 0.2
LOCKED_FOR = 1.0
SOONEST = 0.005  # seconds until a look for a token that comes even sooner


class Rest(Struct):
    """Until when news is not listened to, and when to look without any."""

    until: float
    pause: float
    look_at: float | None
    locked: bool = False


class Rests:
    """Of one pump, by queue."""

    def __init__(self) -> None:
        self._rests: dict[str, Rest] = {}

    def found(self, asked: Iterable[str], full: Mapping[str, float | None], claimed: set[str], now: float) -> None:
        """What the last turn found: some of the queues that it asked were full."""
        for queue in asked:
            if queue not in full:
                self._rests.pop(queue, None)
                continue
            before = self._rests.get(queue)
            again = before is not None and queue not in claimed
            pause = min(LONGEST, 2 * before.pause) if again and before is not None else SHORTEST
            look_in = full[queue]
            look_at = None if look_in is None else now + max(SOONEST, look_in)
            self._rests[queue] = Rest(now + pause * (0.5 + random.random() / 2), pause, look_at)

    def locked(self, queues: Iterable[str], now: float) -> None:
        """The last turn could not ask these."""
        for queue in queues:
            self._rests[queue] = Rest(now + LOCKED_FOR, LONGEST, now + LOCKED_FOR, locked=True)

    def end(self, queues: Iterable[str] | None = None) -> None:
        """Look at these again (None: at all) as soon as there is a reason."""
        for queue in list(self._rests) if queues is None else queues:
            rest = self._rests.get(queue)
            if rest is not None and not rest.locked:
                rest.until = 0.0

    def awake(self, queues: Iterable[str], now: float) -> list[str]:
        return [queue for queue in queues if queue not in self._rests or self._rests[queue].until <= now]

    def ends(self, queues: Iterable[str]) -> dict[str, float]:
        """When those of these that rest may be looked at again."""
        return {queue: self._rests[queue].until for queue in queues if queue in self._rests}

    def due(self, now: float) -> list[str]:
        """Whose look that was planned is due; it is planned once."""
        due = [queue for queue, rest in self._rests.items() if rest.look_at is not None and rest.look_at <= now]
        for queue in due:
            self._rests[queue].until, self._rests[queue].look_at = 0.0, None
        return due

    def next_look(self) -> float | None:
        return min((rest.look_at for rest in self._rests.values() if rest.look_at is not None), default=None)
