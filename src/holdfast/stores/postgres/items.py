"""Items on PostgreSQL: their tasks are stored behind the back of whoever makes them, a lot at a time.

- While the server stores a lot the next ones are taken from the generator, written down and sent, so that it does not wait for the
  interpreter. Whoever makes items hears of a lot when it hands in another one, or waits for all.
- A lot is one transaction and one message: a statement looks whether the run and its step are as their maker left them, so that the
  run is not locked while Python thinks. If they are not, or a key is taken, nothing has happened, and the lot is stored step by
  step. So is the one sent behind it, which begins where the first one did not end.
- What has begun of a lot is handed out when the next one is on its way, if that is there already.
"""

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from msgspec import Struct

from holdfast.clock import Clock
from holdfast.stores.adding import Unstored
from holdfast.stores.contract import NewJob, RunStep
from holdfast.stores.lending import Lending
from holdfast.stores.postgres.adding import PostgresAdding
from holdfast.stores.postgres.connection import Connection
from holdfast.stores.postgres.instance import Translating
from holdfast.stores.postgres.wire import Reply, Wire
from holdfast.stores.running import Outdated, RunHead
from holdfast.stores.statements import encode_json

MOST_COUNTED = 100  # steps of items of which it is remembered how many tasks are done
LINGER = 0.05  # seconds that a thread which stores lots waits for another one
AHEAD = 2  # lots of a maker that are sent and not answered
NOT_AS_EXPECTED = psycopg.errors.UniqueViolation, psycopg.errors.DivisionByZero, psycopg.errors.InvalidSqlStatementName

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
        self._stream: Stream | None = None  # has a connection of its own, when somebody has made items
        self.counted: dict[Step, int] = {}  # of steps whose items are being made: at least so many tasks are done

    def close(self) -> None:
        super().close()
        if self._stream is not None:
            self._stream.connection.close()

    def abandon(self) -> None:
        super().abandon()
        if self._stream is not None:
            self._stream.connection.abandon()

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
            if self._stream is None:
                self._stream = Stream(self, self.connection.another())
            maker = Maker(head, step.counts.name)
            lots = self._makers.setdefault(place, Lots(self, self._stream, maker, step.counts.created))
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

    def store_slowly(self, lot: "Lot") -> int | None:
        """Step by step, as the first lot of a maker."""
        place = lot.maker.head.id, lot.maker.step
        return super().add_items(*place, lot.produced, lot.items, lot.cursor, False)

    @contextmanager
    def mistaken(self) -> Iterator[None]:
        """A key is taken, a statement found something that it did not expect, or was to be prepared behind such a one."""
        try:
            yield
        except NOT_AS_EXPECTED as error:
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


class Sent(Struct):
    """A lot on its way, what was lent for it, and its answers."""

    lot: Lot
    lending: Lending
    wire: Wire
    added: Reply
    counted: Reply
    answered: bool = False
    error: psycopg.Error | None = None


class Stream:
    """All lots of a process go over one connection, a transaction each. They are sent before those in front of them are answered."""

    def __init__(self, store: PostgresItems, connection: Connection) -> None:
        self.connection = connection
        self._store = store
        self._unanswered: deque[Sent] = deque()

    def send(self, lot: Lot) -> Sent:
        store, lending = self._store, Lending(self._store.takers)
        try:
            name, params, queue = store._adding_all_alike(lot.jobs, True, lot.params, lending)
            with self.connection.lock, Translating(self.connection):
                with self.connection.wire.behind() as wire:
                    added = wire.send(store.text(name, queue), {**params, "tell": store.channel})
                    wire.send(store.text("lock_run"), {"id": lot.maker.head.id})
                    counted = wire.send(store.text("count_made"), lot.counting())
                sent = Sent(lot, lending, wire, added, counted)
                self._unanswered.append(sent)
        except BaseException:
            lending.end(False)
            raise
        return sent

    def answer(self, sent: Sent) -> Lending:
        """What was lent for it, which is for the caller to tell; `Mistaken` if it has to be looked at."""
        try:
            with self.connection.lock:
                self._wait_for(sent)
                lost_with = self.connection if self.connection.has(sent.wire) else self.connection.another()
                with Translating(lost_with), self._store.mistaken():
                    if sent.error is not None:
                        raise sent.error
            return self._stored(sent)
        except BaseException as error:
            sent.lending.end(isinstance(error, Mistaken), False)
            raise

    def _wait_for(self, sent: Sent) -> None:
        while not sent.answered:
            first = self._unanswered[0]
            try:
                first.wire.finish()
            except psycopg.Error as error:
                first.error = error
            first.answered = True
            self._unanswered.popleft()

    def _stored(self, sent: Sent) -> Lending:
        (row,), (count,) = sent.added.dicts(), sent.counted.dicts()
        if row["begun"]:
            sent.lending.begin(row["number"], sent.lot.jobs, row["ids"][: row["begun"]], row["lease"])
        maker = sent.lot.maker
        self._store.count_done((maker.head.id, maker.step), count["done"])
        return sent.lending


class Lots:
    """Those of one maker that are on their way: a thread stores them, and one more may wait for it."""

    def __init__(self, store: PostgresItems, stream: Stream, maker: Maker, created: int) -> None:
        self.maker = maker
        self.seen = -1  # how many tasks were done when the maker last asked
        self._store, self._stream = store, stream
        self._created = created  # with those on their way
        self._changed = threading.Condition()
        self._next: Lot | None = None
        self._taken: Lot | None = None  # by the thread
        self._begun: deque[Lending] = deque()  # still to be told
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
            self._store_now(lot)
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

    def _store_now(self, lot: Lot) -> None:
        connection = self._store.connection
        stream = Stream(self._store, connection)
        with connection.lock:
            try:
                self._hear(stream, stream.send(lot))
            except BaseException as error:
                self._error = error
        self._hand_out()

    def _store_all(self) -> None:
        """Until none came for a while."""
        sent: deque[Sent] = deque()
        try:
            while self._has_work(bool(sent)):
                lot, self._taken = self._taken, None
                if lot is not None:
                    sent.append(self._stream.send(lot))
                self._hand_out()
                if len(sent) == AHEAD or (lot is None and sent):
                    self._hear(self._stream, sent.popleft())
        except BaseException as error:
            self._error = error
            for each in sent:
                with suppress(Exception):
                    self._hear(self._stream, each)
            with self._changed:
                self._busy, self._thread = False, None
                self._changed.notify_all()
            self._hand_out()

    def _has_work(self, hears: bool) -> bool:
        """A lot was taken, or the ones before are still to be heard of or to be handed out."""
        with self._changed:
            left = hears or bool(self._begun)
            if self._next is None and not left:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait(LINGER)
            if not self._ended:
                self._taken, self._next = self._next, None
            self._busy = self._taken is not None or left
            self._changed.notify_all()
            if not self._busy:
                self._thread = None
            return self._busy

    def _hear(self, stream: Stream, sent: Sent) -> None:
        try:
            self._begun.append(stream.answer(sent))
        except Mistaken:
            self._over = self._over or self._store.store_slowly(sent.lot) is None

    def _hand_out(self) -> None:
        """What has begun."""
        while self._begun:
            self._begun.popleft().end(True)
