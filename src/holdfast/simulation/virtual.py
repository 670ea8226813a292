"""A worker that only pretends to be a process: what it has in hand, what it tells, what it asks for."""

from collections.abc import Sequence
from typing import Any

from holdfast.clock import MovableClock, microseconds
from holdfast.jobs.outcome import Failed
from holdfast.jobs.placement import Asks
from holdfast.simulation.fleet import Ending, WorkerPlan
from holdfast.stores.contract import Claimed, Done, Report, Turn, TurnAnswer, Want, WorkerJoin
from holdfast.version import VERSION
from holdfast.worker import attempt
from holdfast.worker.rotation import Rotation, shares


class SimulatedError(Exception):
    """What a handler raises that fails."""


class VirtualWorker:
    """One start of a worker."""

    def __init__(self, store: Any, place: Any, now: int, clock: MovableClock) -> None:
        self.place, self.group = place, place.group
        plan: WorkerPlan = self.group.plan
        self.concurrency = plan.concurrency
        self._store = store
        self._clock = clock
        self.hand: dict[int, Claimed] = {}
        self.came = now
        self.stopping = False
        self._spent = now  # up to here the use of its slots is counted
        self._done: list[Done] = []
        self._reports: list[Report] = []
        self._leases: dict[int, int] = {}  # lease → jobs of it that are still in hand
        self._rotation = Rotation()
        self._rotation.know(self.group.queues)
        self.id: int = store.join(
            WorkerJoin(
                place.name,
                place.name,
                1,
                VERSION,
                self.group.queues,
                self.group.types,
                plan.labels,
                plan.concurrency,
                None,
                not plan.queues,
            )
        )

    @property
    def room(self) -> int:
        return 0 if self.stopping else self.concurrency - len(self.hand)

    def turn(self, asks: Asks, hungry: Sequence[str], promote: bool) -> tuple[TurnAnswer, list[Want], bool]:
        """Settle what ended and claim what fits, as a pump does; the answer, what was asked, and whether there was something to tell."""
        wants = self._wants(hungry)
        done, reports, ended = self._done, self._reports, [lease for lease, left in self._leases.items() if not left]
        turn = Turn(self.id, 0, done, reports, ended, wants, asks.types, promote, late=asks.late)
        answer: TurnAnswer = self._store.exchange(turn)
        self._done, self._reports = [], []
        self._rotation.learn(wants, [call.queue for call in answer.claimed])
        for lease in ended:
            del self._leases[lease]
        self.spend(turn_time := self._now())
        for call in answer.claimed:
            call.began = turn_time
            self.hand[call.id] = call
            self._leases[call.lease] = self._leases.get(call.lease, 0) + 1
        return answer, wants, bool(done or reports)

    def _wants(self, hungry: Sequence[str]) -> list[Want]:
        if not hungry or self.room <= 0:
            return []
        self._rotation.call()
        queues, _ = self._rotation.next(self.room, lambda names: [name for name in names if name in hungry])
        return shares(queues, self._rotation.rich, self.room, self.room) if queues else []

    def _now(self) -> int:
        return microseconds(self._clock.now())

    def end(self, call: Claimed, ending: Ending) -> bool:
        """Its handler comes to an end; whether in plain success."""
        if call.timeout is not None and ending.seconds > call.timeout:
            return self._end(call, attempt.timed_out(call, call.timeout))
        if ending.succeeded:
            return self._end(call, attempt.returned(call, None, ending.seconds))
        error: Exception = SimulatedError("it fails in this simulation")
        if ending.expected:
            error = Failed("it fails in this simulation")
        return self._end(call, attempt.raised(call, error, ending.seconds))

    def _end(self, call: Claimed, end: Done | Report) -> bool:
        self.spend(self._now())
        del self.hand[call.id]
        self._leases[call.lease] -= 1
        if isinstance(end, Done):
            self._done.append(end)
            return True
        self._reports.append(end)
        return False

    def spend(self, now: int) -> None:
        """Count the use of its slots up to now."""
        self.place.tally.busy += len(self.hand) * (now - self._spent)
        self._spent = now

    def stop(self) -> None:
        self.stopping = True
        self._store.beat(self.id, True)

    def hand_back(self) -> None:
        """The grace period is over: what is in hand goes back."""
        for call in list(self.hand.values()):
            call.why = "stopping"
            self._end(call, attempt.ended(call, 0.0))

    def leave(self, now: int) -> None:
        self._store.leave(self.id)
        self.place.tally.there += now - self.came

    def die(self, now: int) -> None:
        """Without a word: what it had ended and not told is forgotten, as is what it has in hand."""
        self.spend(now)
        self.place.tally.there += now - self.came
        self.hand.clear()
