"""Which queues are asked for jobs, and for how many: one after the other, so that none waits behind another for ever.

To ask a queue that has nothing costs nearly as much as one that has, and an app may have many of which few are busy. So a queue that
gave less than it was asked for is asked again only when somebody calls, and half of the room is for those that gave all of it.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from holdfast.stores.contract import Want


class Rotation:
    """The queues of a pump in the order in which it asks them."""

    def __init__(self) -> None:
        self.queues: deque[str] = deque()
        self.unasked: set[str] = set()  # of them, since somebody called
        self._called_early = False  # before any was known
        self.rich: set[str] = set()  # gave all they were asked for, the last time

    def know(self, names: Sequence[str]) -> None:
        """There are other queues, or the same: all are asked."""
        if set(names) != set(self.queues):
            self.queues = deque(names)
            self.rich &= set(names)
        self._called_early = False
        self.unasked = set(names)

    @property
    def hungry(self) -> bool:
        """Somebody called, and not all were asked since."""
        return bool(self.unasked) or self._called_early

    def call(self, queues: Iterable[str] | None = None) -> None:
        """These, or (None) all, may have something."""
        self._called_early = not self.queues
        self.unasked |= set(self.queues) if queues is None else set(queues).intersection(self.queues)

    def next(
        self, room: int, awake_of: Callable[[Sequence[str]], list[str]], most_rich: int | None = None
    ) -> tuple[list[str], set[str]]:
        """As many of those not yet asked as there is room for, and those that were passed over because they rest.

        Where `most_rich` is given no more rich ones are asked at once: each gives more then, and the others are next.
        """
        unasked = [queue for queue in self.queues if queue in self.unasked]
        awake = awake_of(unasked)
        chosen = [*self._few(awake, room if most_rich is None else most_rich)][:room]
        left = set(awake).difference(chosen)
        passed = [queue for queue in unasked if queue not in left]
        if passed:
            self.queues.rotate(-self._first_of(unasked, left))
        self.unasked.difference_update(passed)
        return chosen, set(passed).difference(chosen)

    def _few(self, queues: Iterable[str], most_rich: int) -> Iterator[str]:
        for queue in queues:
            most_rich -= queue in self.rich
            if most_rich >= 0 or queue not in self.rich:
                yield queue

    def _first_of(self, unasked: Sequence[str], left: Collection[str]) -> int:
        """Where the next round begins: at the first that was left, or behind the last."""
        first = next((queue for queue in unasked if queue in left), None)
        return self.queues.index(unasked[-1]) + 1 if first is None else self.queues.index(first)

    def learn(self, wants: Sequence[Want], claimed: Iterable[str]) -> list[str]:
        """Where there may be more; `claimed` are the queues of what was got."""
        counts = Counter(claimed)
        found = [want.queue for want in wants if counts[want.queue] >= want.room]
        self.rich = (self.rich - {want.queue for want in wants}) | set(found)
        return found


def shares(queues: Sequence[str], rich: Collection[str], room: int, free: int) -> list[Want]:
    """Every queue is asked for the same, but half of the room is for the rich ones; `free` jobs could begin at once."""
    many = [queue in rich for queue in queues]
    rooms, slots = parts(room, many), parts(free, many)
    return [Want(*want) for want in zip(queues, rooms, slots, strict=True)]


def parts(whole: int, many: Sequence[bool]) -> list[int]:
    """A part for each, at least 1 if there are so many; those who get `many` share what is left by the others."""
    favoured = sum(many)
    if favoured in (0, len(many)):
        return [max(0, whole // len(many))] * len(many)
    few = min(whole // len(many), max(1, whole // (2 * len(many))))
    return [(whole - few * (len(many) - favoured)) // favoured if each else few for each in many]
