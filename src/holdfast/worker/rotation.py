"""Which queues are asked for jobs, and for how many: one after the other, so that none waits behind another for ever."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from holdfast.stores.contract import Want


class Rotation:
    """The queues of a pump in the order in which it asks them."""

    def __init__(self) -> None:
        self.queues: deque[str] = deque()
        self.unasked = 0  # of them, since somebody called

    def know(self, names: Sequence[str]) -> None:
        """There are other queues, or the same: all are asked."""
        if set(names) != set(self.queues):
            self.queues = deque(names)
        self.unasked = len(self.queues)

    def call(self) -> None:
        """Every queue may have something."""
        self.unasked = max(1, len(self.queues))

    def next(self, room: int, awake_of: Callable[[Sequence[str]], list[str]]) -> tuple[list[str], set[str]]:
        """As many of those not yet asked as there is room for, and those that were passed over because they rest."""
        unasked = list(self.queues)[: self.unasked]
        awake = awake_of(unasked)[:room]
        passed = len(unasked) if len(awake) < room else unasked.index(awake[-1]) + 1
        self.queues.rotate(-passed)
        self.unasked = max(0, self.unasked - passed) if unasked else 0
        return awake, set(unasked[:passed]) - set(awake)


def shares(queues: Sequence[str], room: int, free: int) -> list[Want]:
    """Every queue is asked for the same; `free` jobs could begin at once."""
    return [Want(queue, room // len(queues), max(0, free // len(queues))) for queue in queues]


def asks_again(wants: Sequence[Want], claimed: Iterable[str]) -> bool:
    """Whether there may be more where that came from; `claimed` are the queues of what was got."""
    counts = Counter(claimed)
    return any(counts[want.queue] >= want.room for want in wants)
