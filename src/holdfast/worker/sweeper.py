"""The sweeper: what other workers left behind, what nobody looks after, what is old.

- It calls a worker lost only when it has itself watched that worker's counter stand still for `lost_after` seconds,
  without a break in its own connection or attention (C2). On SQLite a dead worker's lock tells at once.
- Everything it does goes through the store's verbs and `decide`, so two sweepers at once are harmless.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from holdfast.clock import Clock, monotonic
from holdfast.errors import Unavailable
from holdfast.jobs.states import ABORT_PATIENCE
from holdfast.stores.contract import Store, WorkerRow
from holdfast.worker import lockfile
from holdfast.worker.settings import FAREWELL, Chore, WorkerSettings

logger = logging.getLogger("holdfast.sweeper")
T = TypeVar("T")
SLICE = 20_000  # ids looked at in one search for forgotten jobs
QUICK = 0.5  # seconds between looks at locks of workers on this machine
PARK_EVERY = 20.0
PARK_ROUNDS = 20  # batches of jobs of a type with an open breaker that one sweep takes out of the line
MANY = 10_000  # jobs that were parked or came back, after which there may be more
SOON = 0.05  # seconds until the next sweep, if this one left something
ARCHIVE_EVERY = 60.0
TIDY_EVERY = 50_000  # claims
TIDY_LOOK = 1.0  # seconds between looks at the number of claims


class Seen(Struct):
    """A worker's counter and since when it has stood there."""

    beat: int
    since: float


class Vigil:
    """Who is lost. Pure but for the clock it is given."""

    def __init__(self, clock: Clock, lost_after: float) -> None:
        self._clock = clock
        self._lost_after = lost_after
        self._seen: dict[int, Seen] = {}
        self._looked = self._own_moved = clock.monotonic()
        self._own_beat: int | None = None
        self._generation = 0

    def look(self, workers: Sequence[WorkerRow], generation: int, own_beat: int | None = None) -> list[int]:
        """The workers whose counter has stood still for too long while we watched and our own moved."""
        now = self._clock.monotonic()
        if own_beat is None or own_beat != self._own_beat:
            self._own_beat, self._own_moved = own_beat, now
        away = generation != self._generation or now - self._looked > max(self._lost_after / 2, 1.0)
        if away or now - self._own_moved > max(self._lost_after / 2, 1.0):
            self._seen.clear()  # we were away, or nobody can write: what a standing counter means is unknown
        self._generation, self._looked = generation, now
        lost = []
        for worker in workers:
            seen = self._seen.get(worker.id)
            if seen is None or seen.beat != worker.beat:
                self._seen[worker.id] = Seen(worker.beat, now)
            elif now - seen.since >= self._lost_after:
                lost.append(worker.id)
        self._seen = {worker.id: self._seen[worker.id] for worker in workers}
        return lost


class Sweeper(threading.Thread):
    """Sweeps periodically in a thread of its own, with a connection of its own."""

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        clock: Clock,
        own_id: Callable[[], int],
        claims: Callable[[], int],
        ask_judge: Callable[[Store], None],
        missed: Callable[[], None],
        on_duty: Callable[[], bool] = lambda: True,
        chores: Sequence[Chore] = (),
    ) -> None:
        super().__init__(name="holdfast-sweeper", daemon=True)
        self._chores = chores
        self.store = store
        self._settings = settings
        self._own_id = own_id
        self._claims = claims
        self._seen_claims = self._tidied_claims = self._restored_claims = 0
        self._ask_judge = ask_judge
        self._missed = missed  # told when we ourselves are not among the living
        self._on_duty = on_duty
        self._clock = clock
        self._vigil = Vigil(clock, settings.lost_after)
        self._wake = threading.Event()
        self._closing = False
        self._slice = 0
        self.overdue_in: float | None = (
            None  # seconds until the next deadline that the last sweep could do something about
        )
        self._locked: Unavailable | None = None  # what a part of this sweep met
        self._look_at = 0.0
        self._unhandled: set[str] = set()  # types of which the log says that no live worker handles them
        self._next = {"park": 0.0, "restore": 0.0, "archive": 0.0}

    def close(self) -> None:
        self._closing = True
        self.store.patience = FAREWELL
        self._wake.set()
        if self.is_alive():
            self.join(5.0)
        self.store.close()

    def run(self) -> None:
        next_sweep = 0.0
        while not self._closing:
            try:
                if monotonic() >= next_sweep:
                    next_sweep = monotonic() + (self.sweep() if self._on_duty() else self.judge())
                self.tidy()
            except Unavailable as error:
                logger.warning("Cannot sweep: %s", error)
                next_sweep = monotonic() + 1.0
            except Exception:
                logger.exception("A sweep failed.")
                next_sweep = monotonic() + 1.0
            self._wake.wait(max(0.01, min(TIDY_LOOK, next_sweep - monotonic())))

    def sweep(self, everything: bool = False) -> float:
        """One round; the seconds until the next. A lock that somebody keeps is told of when all else is done."""
        self._locked = None
        self._apart(self.find_lost)
        pulse = self.store.pulse()
        if pulse.strays:
            self._apart(self.recover_strays)
        self.overdue_in = pulse.overdue_in
        overdue = pulse.overdue_in is not None and pulse.overdue_in <= 0
        if overdue:
            self.overdue_in = self._apart(self.store.end_overdue)
        if pulse.aborts:
            self._apart(lambda: self.store.end_old_aborts(ABORT_PATIENCE))
        shut = pulse.shut and (self._apart(self.store.shut) or 0) > 0
        if pulse.undecided or overdue:
            self._ask_judge(self.store)
        if pulse.aborting:
            self._apart(self.go_on_aborting)
        if pulse.releasing:
            self._apart(self.store.bring_forward)
        if pulse.tripped:
            self._apart(self.park_tripped)
        self._now_and_then("park", PARK_EVERY, self.park, everything)
        # A busy worker has no free slot for what it would find.
        rest_of_slices = self._slice and self._claims() == self._restored_claims
        self._now_and_then(
            "restore", 1.0 if rest_of_slices else self._settings.forgotten_after / 2, self.restore, everything
        )
        self._now_and_then("archive", ARCHIVE_EVERY, self.archive, everything)
        for chore in self._chores:
            self._apart(partial(chore, self.store, everything))
        if self._locked is not None:
            raise self._locked
        rest = QUICK if self.store.lock_path() else min(self._settings.heartbeat, self._settings.lost_after / 4)
        if shut or not self._next["park"]:
            rest = SOON
        return rest if self.overdue_in is None else max(SOON, min(rest, self.overdue_in))

    def _apart(self, part: Callable[[], T]) -> T | None:
        """A part of a sweep: whoever keeps a lock that it needs does not keep us from the others."""
        try:
            return part()
        except Unavailable as error:
            if not error.locked:
                raise
            self._locked = error
            return None

    def recover_strays(self) -> None:
        self._say(self.store.recover_strays(), "Jobs recovered from workers that are gone")

    def go_on_aborting(self) -> None:
        self._say(self.store.go_on_aborting(), "Tasks of aborted runs that were left and are aborted")

    def judge(self) -> float:
        """The part of a sweep that no other worker can do: ask our own retry handlers."""
        if self.store.pulse().undecided:
            self._ask_judge(self.store)
        return min(self._settings.heartbeat, self._settings.lost_after / 4)

    def find_lost(self) -> None:
        """Workers that died on this machine, and those whose heart stopped."""
        own = self._own_id()
        rows = self.store.workers()
        workers = [row for row in rows if row.id != own]
        own_beat = next((row.beat for row in rows if row.id == own), None)
        if own_beat is None:
            self._missed()
        dead = [row for row in workers if self._is_dead(row)]
        lost = set(self._vigil.look(workers, self.store.generation, own_beat))
        for row in workers:
            if row in dead or row.id in lost:
                count = self._apart(partial(self.store.lose, row.id, row.beat))
                if count is None:
                    continue
                logger.warning("Worker %s (%s) is lost; jobs recovered from it: %s.", row.id, row.name, count)
                if row.lock_path:
                    lockfile.forget(row.lock_path)

    def _is_dead(self, row: WorkerRow) -> bool:
        own_path = self.store.lock_path()
        if row.lock_path is None or own_path is None:
            return False
        # Beside our own file: another container may know the folder by another name.
        return lockfile.is_abandoned(os.path.join(os.path.dirname(own_path), os.path.basename(row.lock_path)))

    def park_tripped(self) -> None:
        """While a breaker is open its type's jobs are not in the way of the others."""
        for _ in range(PARK_ROUNDS):
            if not self.store.park_tripped():
                return

    def park(self) -> None:
        handled = self._handled()
        moved = self.store.park(sorted(handled))
        now_handled = self._handled() if moved else handled
        if not now_handled <= handled:  # who came meanwhile found nothing put aside yet
            moved += self.store.park(sorted(now_handled))
        self._unhandled -= now_handled
        if moved:
            self._report_unhandled(now_handled)
        if moved >= MANY:
            self._next["park"] = 0.0  # there may be more

    def _report_unhandled(self, handled: set[str]) -> None:
        """Log which types no live worker handles, once for each until one does."""
        for job_type, job in self.store.parked_types().items():
            if job_type not in handled | self._unhandled:
                self._unhandled.add(job_type)
                logger.warning(
                    "Job %s of type `%s` is parked: no live worker handles this type. Its jobs run as soon as one does; "
                    "`holdfast jobs explain %s` says more.",
                    job,
                    job_type,
                    job,
                )

    def _handled(self) -> set[str]:
        return {job_type for row in self.store.workers() if "run" in row.duties for job_type in row.types}

    def restore(self) -> None:
        self._restored_claims = self._claims()
        self._slice, found = self.store.restore(self._slice, SLICE, self._settings.forgotten_after)
        self._say(found, "Jobs that nobody would have found and that are in line again")
        self._say(self.store.revive_routines(), "Parts of routines that had no turn and have one again")

    def archive(self) -> None:
        """What is old moves to the archive, and what is too old leaves it."""
        after, keep = self._settings.archive_after, self._settings.archive_keep
        moved = self.store.archive_runs(after) + self.store.archive(after)
        if keep is not None:
            moved += self.store.forget_runs(keep) + self.store.forget(keep)  # in this order: jobs wait for their run
        if moved:
            self._next["archive"] = 0.0  # there may be more

    def tidy(self) -> None:
        """After many claims, and when a burst of them is over: what they left in the way of the next ones is removed."""
        claims = self._claims()
        moved, self._seen_claims = claims != self._seen_claims, claims
        thorough = claims - self._tidied_claims >= (TIDY_EVERY if moved else 1)
        if thorough:
            self._tidied_claims = claims
        if thorough or (moved and monotonic() >= self._look_at):
            self._look_at = monotonic() + TIDY_LOOK
            told = self.store.tidy(thorough)
            if told:
                logger.warning("%s", told)

    def _now_and_then(self, name: str, every: float, action: Callable[[], None], now: bool) -> None:
        moment = self._clock.monotonic()
        if now or moment >= self._next[name]:
            self._next[name] = moment + every
            self._apart(action)

    def _say(self, count: int, what: str) -> None:
        if count:
            logger.warning("%s: %s.", what, count)
