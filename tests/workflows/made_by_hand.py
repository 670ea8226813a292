"""Tasks that are made by hand, beside a worker that lends them room."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast import App
from holdfast.stores.contract import Claimed, Turn, Want
from tests.by_hand import WorkerByHand


class Lender:
    """A worker that has room for what is made in its process, and is told what came of it."""

    def __init__(self, worker: WorkerByHand, room: int = 100) -> None:
        self.worker, self.room = worker, room
        self.numbers = iter(range(-1, -100, -1))
        self.taken: list[Claimed] = []
        self.unknown: list[int] = []

    def may_offer(self, queue: str) -> bool:
        """Only what is made together is looked at here."""
        return False

    def lend(self, queue: str, job_type: str, most: int, worker: int | None, ending: int) -> Turn | None:
        wants = [Want(queue, min(most, self.room))]
        return Turn(self.worker.id, next(self.numbers), wants=wants, types=self.worker.types)

    def take(self, turn: Turn, claimed: Sequence[Claimed] | None, told: Mapping[Any, Any]) -> None:
        if claimed is None:
            self.unknown.append(turn.pump)
        self.taken += claimed or ()


class Scene:
    """A run with a task that has begun, after which comes a step of two, and a step whose items are made by hand."""

    def __init__(self, own: App, fail_fast: bool = False, **each: Any) -> None:
        workflow = own.workflow("w", fail_fast=fail_fast)
        workflow.step(name="first", retries=0)(lambda task: None)
        workflow.step(name="each", items=lambda task: (), **each)(lambda task: None)
        workflow.step(name="last", after=["first"], shards=2)(lambda task: None)
        self.own, self.run, self.store = own, workflow.submit("t"), own.store
        self.worker = WorkerByHand(self.store, ("w.first", "w.each", "w.last"), ("workflows",))
        calls = {call.job_key: call for call in self.worker.claim(10, "workflows")}
        self.first, self.maker = calls["t:first"], calls["t:each.items"]
        self.lender = Lender(self.worker)
        self.store.takers.append(self.lender)

    def make(self, count: int = 4) -> list[int]:
        """Items; those that have begun."""
        produced = self.run.refresh().steps["each"].created
        self.store.add_items(self.run.id, "each", produced, list(range(count)), None, False)
        return [int((call.job_key or "").rpartition("-")[2]) for call in self.lender.taken]

    def in_line(self) -> int:
        return len(self.worker.claim(100, "workflows"))
