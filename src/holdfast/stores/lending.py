"""Room that a worker of this process lends to jobs that are being made: they begin as they are stored, and never stand in line.

- Whether they may is for the database to say, as with any claim: the queue is open, and nothing stands before them that the
  worker could run.
- A worker is told what has begun when the transaction has ended, or that nobody knows. Each loan has a number of its own, by which
  the worker finds what was claimed for it unheard.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from holdfast.stores.contract import Claimed, NewJob, Taker, Turn


class Room(Struct, frozen=True):
    """Of a worker, for new jobs of one type."""

    worker: int
    number: int
    count: int
    types: tuple[str, ...]  # under these names others may stand before them that it could run


class Loan(Struct):
    """What one worker lent, and what has begun there."""

    taker: Taker
    turn: Turn
    begun: Sequence[Claimed] = ()


class Lending:
    """The loans of one transaction; `worker`: from that one alone, of whose jobs so many are `ending` in it."""

    def __init__(self, takers: Sequence[Taker], worker: int | None = None, ending: int = 0) -> None:
        self._takers, self._worker, self._ending = takers, worker, ending
        self._loans: dict[int, Loan] = {}
        self.told: Mapping[tuple[int, str, int], Any] = {}

    def room(self, new: NewJob, count: int) -> Room | None:
        """For so many new jobs like this one, or fewer."""
        for taker in self._takers:
            turn = taker.lend(new.queue, new.job_type, count, self._worker, self._ending)
            if turn is not None:
                self._loans[turn.pump] = Loan(taker, turn)
                self._ending = 0
                names = turn.types + tuple(name for name, _ in turn.late)
                return Room(turn.worker, turn.pump, turn.wants[0].room, names)
        return None

    def begin(self, number: int, jobs: Sequence[NewJob], ids: Sequence[int], lease: int) -> None:
        """The first of these jobs, which are alike, are in their first attempt, in the room with this number."""
        first = jobs[0]
        alike = first.queue, lease
        self._loans[number].begun = [
            Claimed(*alike, job_id, 1, first.job_type, new.job_key, new.payload, first.timeout, 0, run=first.run)
            for new, job_id in zip(jobs, ids, strict=False)
        ]

    @property
    def begun(self) -> set[int]:
        return {call.id for loan in self._loans.values() for call in loan.begun}

    def end(self, sure: bool, stored: bool = True) -> None:
        """The transaction has ended; nothing has begun if it was not `stored`, and nobody knows that unless it is `sure`."""
        for loan in self._loans.values():
            loan.taker.take(loan.turn, (loan.begun if stored else ()) if sure else None, self.told)
