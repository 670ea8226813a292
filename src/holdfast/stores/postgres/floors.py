"""Where claims begin while somebody's old snapshot keeps dead rows at the head of the line.

- Without such a snapshot there are no floors: a claim looks from the beginning.
- With one, a claim begins behind the last place that this process has taken, and once a second it looks before that: at all of it,
  so that whoever came later and stands there waits for a second at most.
- All of it is walked over with what is dead, which takes longer and longer. So it gets no more than a tenth of the time, and in
  between only the pages of the table are looked at that are new: what is stored goes there, as nothing makes room before them.
- Shared by the pumps of a process: what one looked through the other need not.
"""

import threading
from typing import Any

from msgspec import Struct

from holdfast.clock import monotonic

LOOK_EVERY = 1.0  # seconds between looks at what stands before a floor
PART = 10  # of the time is left to looks at all of it
AGAIN = 5  # looks at the same new pages: what is stored there may be committed later
FRINGE = 64  # pages that the server adds at a time, and fills in any order
MANY = 10_000  # dead rows that are in the way
HELD_FOR = 2.0  # seconds after which an oldest snapshot is an old one

Place = tuple[float, float, int]  # major, minor, id
Line = tuple[str, str]  # a queue and the types that were asked for


class Start(Struct, frozen=True):
    """Where a claim looks: behind a place; with a page before that place, at what is stored from that page on; else at all."""

    place: Place | None = None
    page: int | None = None

    @property
    def looks_back(self) -> bool:
        return self.place is None or self.page is not None

    @property
    def asked(self) -> str:
        """As the statement is told it."""
        if self.place is None:
            return ""
        return "before" if self.looks_back else "behind"

    @property
    def params(self) -> dict[str, Any]:
        if self.place is None:
            return {}
        major, minor, last = self.place
        return {"major": major, "minor": minor, "last": last, "page": f"({self.page or 0},0)"}


ALL = Start()


class Floor(Struct):
    """Behind which place to look, and when to look before it."""

    place: Place
    look_at: float
    all_at: float = 0.0  # when that is at all of it
    sizes: tuple[int, ...] = ()  # of the table, at the last looks

    def next_page(self) -> int:
        return max(0, self.sizes[0] - FRINGE) if self.sizes else 0


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

    def begin(self, line: Line) -> Start:
        with self._lock:
            floor = self._floors.get(line)
            if floor is None:
                return ALL
            now = monotonic()
            if now < floor.look_at:
                return Start(floor.place)
            floor.look_at = now + LOOK_EVERY
            if now < floor.all_at:
                return Start(floor.place, floor.next_page())
            floor.all_at = now + LOOK_EVERY
            return ALL

    def learn(
        self, line: Line, start: Start, last: Place | None, filled: bool, size: int | None, seconds: float
    ) -> None:
        """What a look has taken. If it was not filled there is nothing more where it looked. `size`: of the table, before it looked back."""
        if not self.pinned or (start.looks_back and size is None):
            return
        with self._lock:
            floor, now = self._floors.get(line), monotonic()
            if floor is None:
                if last is None:
                    return
                floor = self._floors[line] = Floor(last, now + LOOK_EVERY)
            if start.page is not None and filled:
                floor.look_at = now  # there may be more of them
                return
            if start.place is None:
                floor.all_at = max(floor.all_at, now + seconds * (PART - 1))
            if start.looks_back and size is not None:
                floor.sizes = (*floor.sizes, size)[-AGAIN:]
            if last is None:
                return
            if start.place is None and filled:
                floor.place = last  # perhaps before the floor, and there may be more of them
            elif start.place is None or floor.place >= start.place:  # else another look has lowered it meanwhile
                floor.place = max(floor.place, last)

    def look_in(self, line: Line) -> float:
        """Seconds until the next look before the floor."""
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
