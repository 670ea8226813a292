"""Adaptive retry in stories: outages of what a type needs, its breaker, and the jobs that probe it.

While the breaker of a type is not closed, one job of it at a time starts, the one that probes it, and not before its time
(R6). That none of the others is lost is everybody's promise.

- The type is declared by the first job of it: the stores go other ways as soon as a type is adaptive, and most stories
  are for the ways without.
"""

from collections.abc import Sequence

from holdfast.jobs.retry import Adaptive, encode
from holdfast.stores.contract import Claimed, NewJob, Turn, TypeRow
from tests.invariants import Row
from tests.simulation.scene import Broken, Scene
from tests.simulation.stages import Stage

FRAGILE = TypeRow(
    "fragile", "mail", has_handler=True, retry=encode(Adaptive(first=1, most=20, jitter=0, breaker=2, probe=10))
)


class Breakers(Scene):
    """Adds a type with adaptive retry."""

    def __init__(self, seed: int, stage: Stage) -> None:
        super().__init__(seed, stage)
        self.adaptive = self.out = False
        self.probes: set[tuple[int, int]] = set()  # that started since the breaker opened

    def enqueue_fragile(self, a: float, b: float) -> None:
        """A few of them."""
        if not self.adaptive:
            self.store.register([], [FRAGILE])
            for worker in self.workers:
                worker.store.queues()  # as a pump does when it hears of new types
            self.adaptive = True
        for _ in range(1 + int(a * 4)):
            new = NewJob("mail", "fragile", "{}", priority=int(b * 3), timeout=20, retries=4, retries_named=True)
            self.accept(new)

    def outage(self, a: float, b: float) -> None:
        """What its jobs need is gone, or there again."""
        self.out = a < 0.7

    def ends_as(self, call: Claimed, how: float) -> float:
        """In an outage everything breaks, and some of it says when to come again."""
        if not self.out or call.job_type != "fragile":
            return how
        return 0.7 if how < 0.8 else 0.85

    def try_fragile(self, a: float, b: float) -> None:
        """One takes what it may, and ends those of the type that it has."""
        worker = self.awake(a)
        if worker is not None:
            worker.turn(1 + int(b * 4))
            for call in [call for call in worker.hand if call.job_type == "fragile"]:
                worker.finish(call, b)
            worker.turn(1)

    def reset_breaker(self, a: float, b: float) -> None:
        if self.adaptive:
            self.store.reset_breaker("fragile", "ann")
            self.probes.clear()

    def lose_parked(self, a: float, b: float) -> None:
        hints = self.sql("select id from {parked} order by id")
        if hints:
            self.sql("delete from {parked} where id = :id", id=hints[int(a * len(hints))]["id"])

    # What must hold

    def breaker_row(self) -> Row | None:
        if not self.adaptive:
            return None
        rows = self.sql("select * from {breaker} where job_type = 'fragile'")
        return rows[0] if rows else None

    def check_probes(self, before: Row | None, turn: Turn, claimed: Sequence[Claimed]) -> None:
        """After a turn: what it claimed of the type, and what its breaker says."""
        row = self.breaker_row()
        if row is None or row["state"] == "closed":
            self.probes.clear()
            return
        started = [call for call in claimed if call.job_type == "fragile"]
        for call in started:
            if len(started) > 1 or (row["state"], row["probe"]) != ("probing", call.id):
                raise Broken(f"R6: {[call.id for call in started]} start, and the breaker is {row}")
            self._check_alone(call)
            self.probes.add((call.id, call.attempt))
        told = [item.call.job_type for item in turn.done] + [report.job_type for report in turn.reports]
        rests = before is not None and before["state"] == "open" and before["probe_time"] > self.now()
        if rests and row["state"] == "probing" and "fragile" not in told:
            raise Broken(f"R6: a probe is chosen before its time: {before}, then {row}")

    def _check_alone(self, call: Claimed) -> None:
        held = self.sql("select id, attempt from {job} where job_type = 'fragile' and situation = 'held'")
        others = [row for row in held if row["id"] != call.id and (row["id"], row["attempt"]) in self.probes]
        if others:
            raise Broken(f"R6: job {call.id} probes while {others} do")

    def check_breaker(self) -> None:
        row = self.breaker_row()
        if row is not None and row["state"] != "closed":
            marked = self.sql("select id from {ready} where job_type = '!fragile'")
            if len(marked) > 1:
                raise Broken(f"R6: {marked} are in line to probe at once")
