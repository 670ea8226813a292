"""Where claims begin while somebody's old snapshot keeps dead rows at the head of the line.

- Without such a snapshot there are no floors: a claim looks from the beginning.
- With one, a claim begins behind the last place that this process has taken, and once a second from the beginning, so
  that whoever came later and stands before that place waits for a second at most.
- Shared by the pumps of a process: what one looked through the other need not.
"""

import threading

from msgspec import Struct

from holdfast.clock import monotonic

LOOK_EVERY = 1.0  # seconds between looks from the beginning
MANY = 10_000  # dead rows that are in the way
HELD_FOR = 2.0  # seconds after which an oldest snapshot is an old one

Place = tuple[float, float, int]  # major, minor, id
Line = tuple[str, str]  # a queue and the types that were asked for


class Floor(Struct):
    """Behind which place to look, and when to look from the beginning."""

    place: Place
    look_at: float


class Pin(Struct, frozen=True):
    """The oldest snapshot of the database, and how many dead rows stand in the line."""

    oldest: str | None
    pid: int | None
    dead: int


class Floors:
    """Of one instance, in one process."""

    def __init__(self) -> None:
        self.pinned = False
        self._floors: dict[Line, Floor] = {}
        self._lock = threading.Lock()
        self._oldest: str | None = None
        self._since = 0.0

    # Where to look

    def begin(self, line: Line) -> Place | None:
        """Behind which place this look begins; None: from the beginning."""
        with self._lock:
            floor = self._floors.get(line)
            if floor is None:
                return None
            now = monotonic()
            if now >= floor.look_at:
                floor.look_at = now + LOOK_EVERY
                return None
            return floor.place

    def learn(self, line: Line, began: Place | None, last: Place | None, filled: bool) -> None:
        """What a look has taken. If it was not filled there is nothing more behind where it began."""
        if last is None or not self.pinned:
            return
        with self._lock:
            floor = self._floors.get(line)
            if floor is None:
                self._floors[line] = Floor(last, monotonic() + LOOK_EVERY)
            elif began is None and filled:
                floor.place = last  # perhaps before the floor, and there may be more of them
            elif began is None or floor.place >= began:  # else another look has lowered it meanwhile
                floor.place = max(floor.place, last)

    def look_in(self, line: Line) -> float:
        """Seconds until the next look from the beginning."""
        floor = self._floors.get(line)
        return LOOK_EVERY if floor is None else max(0.0, floor.look_at - monotonic())

    # Whether there is a pin

    def suspects(self, pin: Pin) -> bool:
        """Whether a vacuum would be of interest: there are many dead rows, and the oldest snapshot is old, or has moved at last."""
        now = monotonic()
        moved = pin.oldest != self._oldest
        if moved:
            self._oldest, self._since = pin.oldest, now
        if self.pinned:
            return moved
        return pin.oldest is not None and pin.dead >= MANY and now - self._since >= HELD_FOR

    def found(self, left: int) -> bool:
        """What a vacuum could not remove; True if that is news of a pin."""
        was, self.pinned = self.pinned, left >= MANY
        if not self.pinned:
            with self._lock:
                self._floors.clear()
        return self.pinned and not was
