"""What a worker has in its hand: how many jobs, under which leases, and which of them have ended.

- A slot that is offered to an enqueue of this process is taken for as long as `offering` is locked, and what comes of the
  offer lies in `given` until it is handed out. The caller may be interrupted at any line: a lock is let go of even then, and
  a deque takes what it is given in one step.
- A lease ends in the turn that settles its last jobs, unless another pump is still about to settle others of them: who
  crashes then must leave the lease behind, or nobody would find those jobs. Then it ends in a turn after that.
"""

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from holdfast.stores.contract import Claimed, Done, Report
from holdfast.worker.judge import Judge

AHEAD = 0.1  # seconds of work to have in hand
MOST_AHEAD = 2000
MEMORY = 0.05  # seconds over which the rate is smoothed


class Hand:
    """Shared by the pumps and the runners of one worker."""

    def __init__(self, concurrency: int, pumps: int, judge: Judge) -> None:
        self.concurrency = concurrency
        self.finished: deque[Done | Report] = deque()
        self.offering = threading.Lock()
        self.given: deque[Sequence[Claimed]] = deque()
        self.unsure = False  # an offer was made, and nothing was heard of what came of it
        self._count = 0
        self._asked = 0  # of these, reserved for claims that were not answered yet
        self.attempts = 0
        self.stale = 0
        self.throttled = False  # there are queues with a limit or a throttler, on which an end makes room
        self._judge = judge
        self._lock = threading.Lock()
        self._leases: dict[int, int] = {}  # lease → jobs of it that are still in hand
        self._ending: set[int] = set()  # leases with nothing left in them, until the database knows
        self._settling: list[Counter[int]] = [Counter() for _ in range(pumps)]  # lease → jobs on their way there
        self._late: list[int] = []  # leases to end in the next turn
        self._rates = [0.0] * pumps  # jobs ended per second
        self._measured = [0.0] * pumps

    @property
    def count(self) -> int:
        return self._count + self._offered()

    @property
    def asked(self) -> int:
        """Of these, reserved for claims that were not answered yet."""
        return self._asked + self._offered()

    def _offered(self) -> int:
        return self.offering.locked() + len(self.given)

    def can_offer(self) -> bool:
        """To whoever has locked `offering`: nothing else is in hand, and nothing from now on is put there without regard to it."""
        with self._lock:
            return not (self._count or self.given) and self._target() > 0

    def take_given(self) -> Sequence[Claimed]:
        """What an enqueue has claimed for us, once."""
        with self._lock:
            if not self.given:
                return ()
            calls = self.given.popleft()
            self._count += len(calls)
            return calls

    def reserve(self, most: int, ending: int = 0) -> int:
        """Room for jobs, taken before the claim so that two pumps do not fill it twice; `ending` leave in the same turn."""
        with self._lock:
            room = max(0, min(most, self._target() - self.count + ending))
            self._count += room
            self._asked += room
            return room

    def answered(self, reserved: int, claimed: int = 0) -> None:
        """What a reservation came to; what it was not needed for is free again."""
        with self._lock:
            self._asked -= reserved
            self._count -= reserved - claimed

    def _target(self) -> int:
        """How many to have in hand. Claimed ahead they would leave no slot for a throttled queue, which needs a free one."""
        if self.throttled:
            return self.concurrency
        return max(self.concurrency, min(int(sum(self._rates) * AHEAD), MOST_AHEAD))

    @property
    def quick(self) -> bool:
        """All that is in hand is expected to end within a moment."""
        return sum(self._rates) * AHEAD >= self.concurrency

    def release(self, count: int) -> None:
        with self._lock:
            self._count -= count

    def free(self, reserved: int) -> int:
        """Slots in which a job could begin at once, `reserved` not counted as taken."""
        return self.concurrency - self.count + reserved

    def measure(self, pump: int, ended: int, now: float) -> None:
        """Keep the rate at which jobs end."""
        elapsed = now - self._measured[pump]
        if ended and elapsed > 0:
            self._rates[pump] += (ended / elapsed - self._rates[pump]) * min(1.0, elapsed / MEMORY + 0.1)
        elif elapsed > 0.5:
            self._rates[pump] = 0.0
        else:
            return
        self._measured[pump] = now

    def take(self, calls: Sequence[Claimed]) -> None:
        """Jobs were claimed."""
        with self._lock:
            for call in calls:
                self._leases[call.lease] = self._leases.get(call.lease, 0) + 1

    @property
    def has_finished(self) -> bool:
        """Something ended that no turn has taken yet."""
        return bool(self.finished or self._late)

    def take_finished(self, pump: int = 0) -> tuple[list[Done], list[Report], list[int]]:
        """Everything that ended since the last turn, and the leases that end with it."""
        done: list[Done] = []
        reports: list[Report] = []
        to_judge: list[Report] = []
        while self.finished:
            try:
                end = self.finished.popleft()
            except IndexError:
                break  # another pump was quicker
            if isinstance(end, Done):
                done.append(end)
            elif self._judge.wants(end):
                to_judge.append(end)
            else:
                reports.append(end)
        for report in to_judge:
            self._judge.ask(report)
        return done, reports, self._count_down(leases_of(done, reports), pump)

    def _count_down(self, taken: Mapping[int, int], pump: int) -> list[int]:
        with self._lock:
            ended, self._late = self._late, []
            for lease, count in taken.items():
                self._settling[pump][lease] += count
                left = self._leases.pop(lease, count) - count
                if left:
                    self._leases[lease] = left
                    continue
                self._ending.add(lease)
                if not any(settling[lease] for other, settling in enumerate(self._settling) if other != pump):
                    ended.append(lease)
        return ended

    def settled(self, done: Sequence[Done], reports: Sequence[Report], ended: Sequence[int], pump: int = 0) -> None:
        """The database knows of these ends, and that these leases have ended."""
        with self._lock:
            self._ending.difference_update(ended)
            settling = self._settling[pump]
            for lease, count in leases_of(done, reports).items():
                settling[lease] -= count
                if settling[lease] <= 0:
                    del settling[lease]
                    if lease in self._ending and not any(each[lease] for each in self._settling):
                        self._late.append(lease)

    def known_leases(self) -> list[int]:
        with self._lock:
            return [*self._leases, *self._ending]


def leases_of(done: Sequence[Done], reports: Sequence[Report]) -> dict[int, int]:
    """How many jobs of each lease are among these."""
    found: dict[int, int] = {}
    for item in done:
        found[item.call.lease] = found.get(item.call.lease, 0) + 1
    for report in reports:
        if report.lease:
            found[report.lease] = found.get(report.lease, 0) + 1
    return found
