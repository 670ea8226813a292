"""A worker played by hand: claims and reports step by step, without threads, handlers or pauses."""

import itertools
from collections.abc import Sequence
from typing import Any

from holdfast.jobs.job import Job, JobError
from holdfast.jobs.states import Aborted, Change, HandedBack, Happening, Lost, Raised, Snoozed
from holdfast.stores.contract import Claimed, Done, NewJob, Report, Store, Turn, TurnAnswer, TypeRow, Want, WorkerJoin

numbers = itertools.count(1)


class WorkerByHand:
    """One worker on a store; it handles the types it is given."""

    def __init__(
        self,
        store: Store,
        types: Sequence[str] = ("send", "print"),
        queues: Sequence[str] = ("mail",),
        labels: Sequence[str] = (),
        late: Sequence[tuple[str, float]] = (),
    ) -> None:
        self.store = store
        self.types = tuple(types)
        self.queues = tuple(queues)
        name = f"hand-{next(numbers)}"
        handled = tuple(sorted({*types, *(job_type for job_type, _ in late)}))
        self.late = tuple(late)
        self.id = store.join(WorkerJoin(name, "here", 1, "0", self.queues, handled, tuple(labels), 1))
        self._in_hand: dict[int, set[int]] = {}  # by lease

    def turn(self, **told: Any) -> TurnAnswer:
        return self.store.exchange(Turn(self.id, **{"types": self.types, "late": self.late, **told}))

    def claim(self, room: int = 1, queue: str = "mail") -> list[Claimed]:
        """What is due now, in claim order, in one batch."""
        calls = list(self.turn(wants=[Want(queue, room)], promote=True).claimed)
        for call in calls:
            self._in_hand.setdefault(call.lease, set()).add(call.id)
        return calls

    def claim_one(self, queue: str = "mail") -> Claimed:
        (call,) = self.claim(1, queue)
        return call

    def succeed(self, *calls: Claimed, result: str | None = None, seconds: float = 1.0) -> int:
        """Plain success; how many of them were stale."""
        done = [Done(call, seconds, result) for call in calls]
        return self.turn(done=done, ended_leases=self._ended(*calls)).stale

    def tell(self, call: Claimed, happening: Happening) -> Change | None:
        """Report the end of an attempt; None: stale."""
        report = Report(call.id, happening, call.attempt, call.job_type, call.lease)
        return self.turn(reports=[report], ended_leases=self._ended(call)).changes[0]

    def _ended(self, *calls: Claimed) -> list[int]:
        """The leases with nothing left in them."""
        for call in calls:
            self._in_hand.get(call.lease, set()).discard(call.id)
        ended = [lease for lease, left in self._in_hand.items() if not left]
        for lease in ended:
            del self._in_hand[lease]
        return ended

    def fail(self, call: Claimed, kind: str = "exception", **more: Any) -> Change | None:
        return self.tell(call, Raised(error(kind), more.pop("traceback", f"traceback of {call.attempt}"), 1.0, **more))

    def snooze(self, call: Claimed, delay: float = 0.0) -> Change | None:
        return self.tell(call, Snoozed(delay, 1.0))

    def hand_back(self, call: Claimed) -> Change | None:
        return self.tell(call, HandedBack(1.0))

    def crash(self, call: Claimed) -> Change | None:
        """Its child process died, with nothing else in it."""
        return self.tell(call, Lost(alone=True))

    def obey_abort(self, call: Claimed) -> Change | None:
        ((job_id, attempt, actor),) = self.store.aborts(self.id)
        assert (job_id, attempt) == (call.id, call.attempt)
        return self.tell(call, Aborted(actor, 1.0))

    def die(self) -> int:
        """Somebody calls it lost; how many jobs it had."""
        return self.store.lose(self.id) or 0


def error(kind: str = "exception", message: str = "it broke") -> JobError:
    return JobError({"failed": "Failed", "timeout": "Timeout"}.get(kind, "ValueError"), message, kind)


def add(store: Store, job_type: str = "send", queue: str = "mail", **options: Any) -> Job:
    """One new job."""
    return store.add([NewJob(queue, job_type, options.pop("payload", "{}"), **options)])[0]


def declare(store: Store, job_type: str = "send", queue: str = "mail", **options: Any) -> TypeRow:
    """Register a type with options of its own."""
    row = TypeRow(job_type=job_type, queue=queue, has_handler=True, **options)
    store.register([], [row])
    return row
