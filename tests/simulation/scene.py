"""What all stories have: a movable clock, a real store, jobs and runs that were accepted, and workers that are alive."""

import itertools
import random
from collections.abc import Callable
from typing import Any

from holdfast.clock import MovableClock
from holdfast.errors import Conflict, NotFound, Unavailable
from holdfast.stores.contract import NewJob
from holdfast.worker.settings import WorkerSettings
from tests.invariants import Row
from tests.simulation.stages import Stage

SETTINGS = WorkerSettings(heartbeat=5, lost_after=30, archive_after=300)
STEP = 5.0  # seconds between two beats


class Broken(AssertionError):
    """A promise was."""


class Killed(BaseException):
    """The process is no more: nobody may catch this."""


class Scene:
    """What the parts of a world stand on; each adds its actions, and the promises about them."""

    def __init__(self, seed: int, stage: Stage) -> None:
        random.seed(seed)
        self.clock = MovableClock()
        self.stage = stage
        self.store, self.sql = stage.begin(self.clock)
        self.told: list[str] = []
        self.accepted: list[int] = []
        self.runs: list[int] = []
        self.numbers = itertools.count(1)
        self.workers: list[Any] = []

    def say(self, words: str) -> None:
        self.told.append(f"{self.clock.monotonic():7.1f} {words}")

    def now(self) -> Any:
        """As the store writes it."""
        return self.store.time(self.clock.now())

    # Clients

    def accept(self, new: NewJob) -> None:
        job = self.store.add([new])[0]
        if not job.duplicate:
            self.accepted.append(job.id)
        self.say(f"job {job.id} {new.job_type}{' (duplicate)' if job.duplicate else ''}")

    def attempt_to(self, act: Callable[[], Any]) -> None:
        """What is refused with a reason is an ordinary answer."""
        try:
            act()
        except (Conflict, NotFound) as error:
            self.say(f"refused: {error}")

    def at_a_run(self, share: float, state: str, act: Callable[[int], Any]) -> None:
        """One in this state, if there is any."""
        found = [row["id"] for row in self.sql("select id from {run} where state = :state order by id", state=state)]
        runs = found or self.runs
        if runs:
            self.attempt_to(lambda: act(runs[int(share * len(runs))]))

    def struck(self, acts: tuple[str, ...], a: float, b: float) -> None:
        """A client meets a full disk, or dies, at one of its statements."""
        act = acts[int(a * len(acts))]
        self.say(f"which is {act}")
        error = Killed if int(b * 1000) % 2 else self.stage.full
        try:
            with self.stage.struck(self.store, int(b * 20), error):
                getattr(self, act)(b, a)
        except Unavailable as problem:
            self.say(f"it cannot: {problem}")
        except Killed:
            self.stage.gone(self.store)
            self.store = self.stage.process()

    # Workers

    def awake(self, share: float) -> Any:
        """One that does not stand still; None if all do."""
        able = [worker for worker in self.workers if worker.frozen_since is None]
        return able[int(share * len(able))] if able else None

    def bury(self, worker: Any) -> None:
        self.say(f"{worker} is dead")
        self.stage.gone(worker.store)
        self.workers.remove(worker)


def unchanged(kind: str, before: dict[Any, Row], now: dict[Any, Row]) -> None:
    """What was seen once stays as it was."""
    for name, row in before.items():
        if now.get(name) != row:
            raise Broken(f"{kind} {name} was {row} and is {now.get(name)}")
