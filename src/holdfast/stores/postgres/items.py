"""Items on PostgreSQL: their tasks are stored behind the back of whoever makes them, a lot at a time.

- While the server stores a lot the next ones are taken from the generator and written down, so that it does not wait for the
  interpreter. Whoever makes items hears of a lot when it hands in another one, or waits for all.
- A lot goes out in one round trip: a statement looks whether the run and its step are as their maker left them, so that the run is not
  locked while Python thinks. If they are not, or a key is taken, nothing has happened, and the lot is stored step by step.
- What has begun of a lot is handed out when the next one is on its way, if that is there already.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from msgspec import Struct

from holdfast.clock import Clock
from holdfast.stores.adding import Unstored
from holdfast.stores.contract import NewJob, RunStep
from holdfast.stores.lending import Lending
from holdfast.stores.postgres.adding import PostgresAdding
from holdfast.stores.postgres.wire import Wire
from holdfast.stores.running import Outdated, RunHead
from holdfast.stores.statements import encode_json

MOST_COUNTED = 100  # steps of items of which it is remembered how many tasks are done
LINGER = 0.05  # seconds that a thread which stores lots waits for another one

Step = tuple[int, str]  # of a run
Answer = TypeVar("Answer")


class Mistaken(Unstored):
    """Something was not as expected; nothing was done."""


class PostgresItems(PostgresAdding):
    """Adds what makes the tasks of items."""

    def __init__(self, conninfo: str, instance: str, clock: Clock, patience: float | None = 5) -> None:
        super().__init__(conninfo, instance, clock, patience)
        self._to_begin = False  # the next statements begin the transaction
        self._ends_made = False  # the last ones end it
        self._makers: dict[Step, Lots] = {}  # of which the next lot is expected
        self.counted: dict[Step, int] = {}  # of steps whose items are being made: at least so many tasks are done

    def add_items(
        self, run: int, step: str, produced: int, items: Sequence[Any], cursor: Any, last: bool
    ) -> int | None:
        lots = self._makers.get((run, step))
        if lots is not None and not last and items and lots.goes_on(produced):
            left = lots.put(produced, items, cursor)
            if left is None:
                self._makers.pop((run, step), None)
            return left
        if not self.items_stored(run, step):
            return None
        return super().add_items(run, step, produced, items, cursor, last)

    def went_on(self, head: RunHead, step: RunStep) -> None:
        """Of a maker whose items were stored step by step: those after them are expected."""
        place = head.id, step.counts.name
        self.counted[place] = step.counts.created - step.counts.undone  # fewer than before, if erred ones are run again
        if not (self.connection.depth > 1 or self.connection.pooled):
            maker = Maker(head, step.counts.name)
            lots = self._makers.setdefault(place, Lots(self, maker, step.counts.created))
            lots.maker = maker

    def items_stored(self, run: int, step: str) -> bool:
        lots = self._makers.get((run, step))
        try:
            return lots is None or lots.finish()
        finally:
            self._makers.pop((run, step), None)

    def undone_tasks(self, run: int, step: str) -> int:
        """With those on their way. The database is asked only where this process has not heard of more that are done."""
        lots = self._makers.get((run, step))
        if lots is None:
            return super().undone_tasks(run, step)
        if self.counted.get((run, step), 0) == lots.seen:
            with self.glancing():
                for found in self._steps_named(run, [step]).values():
                    self.count_done((run, step), found.counts.created - found.counts.undone)
        return lots.undone()

    def count_done(self, step: Step, done: int) -> None:
        """So many of its tasks are done, or more."""
        self.counted[step] = max(done, self.counted.pop(step, 0))
        while len(self.counted) > MOST_COUNTED:
            with suppress(KeyError, StopIteration, RuntimeError):  # others do the same
                del self.counted[next(iter(self.counted))]

    def prepared(self, maker: "Maker", produced: int, items: Sequence[Any], cursor: Any) -> "Lot":
        """All that can be done for a lot without the database."""
        jobs = self._item_jobs(maker.head, maker.step, produced, items)
        return Lot(maker, produced, items, cursor, jobs, self._adding_alike(jobs)[1])

    def store_lot(self, lot: "Lot", meanwhile: Callable[[], None]) -> Lending:
        """In one round trip; `Mistaken` if it has to be looked at. What has begun is for the caller to tell."""
        lending, sure, stored = Lending(self.takers), False, False
        try:
            with self._translated, self.work(begin=False):
                name, params, queue = self._adding_all_alike(lot.jobs, True, lot.params, lending)
                with self._mistaken(), self.connection.wire.pipeline() as wire:
                    wire.send("begin")
                    added = wire.send(self.text(name, queue), {**params, "tell": self.channel})
                    wire.send(self.text("lock_run"), {"id": lot.maker.head.id})
                    counted = wire.send(self.text("count_made"), lot.counting())
                    wire.send("commit")
                    wire.send_off()
                    meanwhile()
                self.connection.ended = True
            (row,), (count,) = added.dicts(), counted.dicts()
            if row["begun"]:
                lending.begin(row["number"], lot.jobs, row["ids"][: row["begun"]], row["lease"])
            self.count_done((lot.maker.head.id, lot.maker.step), count["done"])
            sure = stored = True
        except Unstored:
            sure = True
            raise
        finally:
            if not stored:
                lending.end(sure, stored)
        return lending

    def store_slowly(self, lot: "Lot") -> int | None:
        """Step by step, as the first lot of a maker."""
        place = lot.maker.head.id, lot.maker.step
        return super().add_items(*place, lot.produced, lot.items, lot.cursor, False)

    @contextmanager
    def _mistaken(self) -> Iterator[None]:
        """A key is taken, or a statement found something that it did not expect."""
        try:
            yield
        except (psycopg.errors.UniqueViolation, psycopg.errors.DivisionByZero) as error:
            raise Mistaken from error

    def insert_and_look(
        self, jobs: Sequence[NewJob], looks: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> tuple[list[list[dict[str, Any]]], Sequence[NewJob]]:
        """In one round trip. Whoever has a transaction already cannot begin it again, if a key is taken."""
        if not jobs:
            return self.rows_of(looks), ()
        all_alike = self.connection.depth == 1
        name, params, queue = self._adding_all_alike(jobs, False) if all_alike else self._adding_alike(jobs)
        try:
            with self._round_trip() as wire:
                added = wire.send(self.text(name, queue), params)
                found = [wire.send(self.text(name), params) for name, params in looks]
        except psycopg.errors.UniqueViolation as error:
            raise Outdated from error
        answers = [reply.dicts() for reply in found]
        if all_alike:
            return answers, () if self._added_all_alike(jobs, added.dicts()) else jobs
        self.announce_new([jobs[0].queue])
        stored = {row["job_key"] for row in added.dicts()}
        return answers, [new for new in jobs if new.job_key not in stored]

    @contextmanager
    def glancing(self) -> Iterator[None]:
        """In one round trip."""
        if self.connection.depth or self.connection.pooled:
            with self.work(write=False):
                yield
        else:
            with self._translated, self.connection.lone():
                yield

    @contextmanager
    def making(self) -> Iterator[None]:
        """In two round trips: every answer has to wait for the interpreter, which the tasks have that begin meanwhile."""
        alone = not (self.connection.depth or self.connection.pooled)
        with self.work(begin=not alone):
            self._to_begin = self._ends_made = alone
            try:
                yield
            finally:
                self._to_begin = self._ends_made = False

    def put_made(self, maker: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> None:
        asked = [("put_items", maker), *(("put_step", step) for step in steps)]
        if not self._ends_made:
            self.rows_of(asked)
            return
        asked += [("tell", {"channel": self.channel, "queue": queue}) for queue in sorted(self._to_tell)]
        with self._round_trip() as wire:
            for name, params in asked:
                wire.send(self.text(name), params)
            wire.send("commit")
        self._to_tell.clear()
        self.connection.ended = True

    @contextmanager
    def _round_trip(self) -> Iterator[Wire]:
        """It begins the transaction, where that was left to it."""
        with self.connection.wire.pipeline() as wire:
            if self._to_begin:
                self._to_begin = False
                wire.send("begin")
                self.connection.pin(wire)
            yield wire


class Maker(Struct, frozen=True):
    """A job that makes items, and the run as it left it."""

    head: RunHead
    step: str


class Lot(Struct, frozen=True):
    """Items and their jobs, how many were there before them, and where to go on after them."""

    maker: Maker
    produced: int
    items: Sequence[Any]
    cursor: Any
    jobs: Sequence[NewJob]
    params: Mapping[str, Any]  # of the statement that stores them

    def counting(self) -> dict[str, Any]:
        """What the run and its step are expected to be, and become."""
        head, step = self.maker.head, self.maker.step
        return {
            "run": head.id,
            "name": step,
            "publication": head.publication,
            "most_undone": head.shape.steps[step].most_undone,
            "produced": self.produced,
            "made": len(self.jobs),
            "cursor": None if self.cursor is None else encode_json(self.cursor).decode(),
        }


class Lots:
    """Those of one maker that are on their way: a thread stores one, and one more may wait for it."""

    def __init__(self, store: PostgresItems, maker: Maker, created: int) -> None:
        self.maker = maker
        self.seen = -1  # how many tasks were done when the maker last asked
        self._store = store
        self._created = created  # with those on their way
        self._changed = threading.Condition()
        self._next: Lot | None = None
        self._taken: Lot | None = None  # by the thread
        self._begun: Lending | None = None  # of the lot before, still to be told
        self._busy = False
        self._thread: threading.Thread | None = None
        self._over = False  # somebody else makes these items, or nobody wants them any more
        self._error: BaseException | None = None

    def goes_on(self, produced: int) -> bool:
        return produced == self._created

    def undone(self) -> int:
        """Of the tasks that are stored and those on their way."""
        self.seen = self._store.counted.get((self.maker.head.id, self.maker.step), 0)
        return self._created - self.seen

    def put(self, produced: int, items: Sequence[Any], cursor: Any) -> int | None:
        """Room for more after these; None if items of this maker are not waited for any more."""
        lot = self._store.prepared(self.maker, produced, items, cursor)
        self._created += len(items)
        if self._store.clock.movable:  # what is played by a clock is played in order
            self._store_one(lot)
            self._hand_out()
        else:
            self._hand_in(lot)
        if self._ended:
            return self._told(None)
        return self.maker.head.shape.steps[self.maker.step].most_undone - self.undone()

    def _hand_in(self, lot: Lot) -> None:
        with self._changed:
            while self._next is not None and not self._ended:
                self._changed.wait()
            if self._ended:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._store_all, name="holdfast-items", daemon=True)
                thread.start()  # which there may be no room for
                self._thread = thread
            self._next = lot
            self._changed.notify_all()

    def finish(self) -> bool:
        """Wait for all; False if they are not waited for any more."""
        with self._changed:
            while self._busy or (self._next is not None and not self._ended):
                self._changed.wait()
            return self._told(not self._over)

    @property
    def _ended(self) -> bool:
        return self._over or self._error is not None

    def _told(self, answer: Answer) -> Answer:
        if self._error is not None:
            raise self._error
        return answer

    def _store_all(self) -> None:
        """Until none came for a while."""
        try:
            while self._has_work():
                lot, self._taken = self._taken, None
                if lot is None:
                    self._hand_out()
                else:
                    self._store_one(lot)
        except BaseException as error:
            with self._changed:
                self._error, self._busy, self._thread = error, False, None
                self._changed.notify_all()

    def _has_work(self) -> bool:
        """A lot was taken, or the one before is still to be handed out."""
        with self._changed:
            if self._next is None and self._begun is None:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait(LINGER)
            self._taken, self._next = self._next, None
            self._busy = (self._taken is not None or self._begun is not None) and not self._ended
            self._changed.notify_all()
            if not self._busy:
                self._thread = None
            return self._busy

    def _store_one(self, lot: Lot) -> None:
        try:
            try:
                begun = self._store.store_lot(lot, self._hand_out)
            except Mistaken:
                self._over = self._store.store_slowly(lot) is None
                begun = None
        except BaseException as error:
            begun, self._error = None, error
        self._hand_out()
        self._begun = begun

    def _hand_out(self) -> None:
        """What has begun of the lot before."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.end(True)
