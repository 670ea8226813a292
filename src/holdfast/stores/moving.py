"""Moving a living instance from one database to another: what is done next, and the doing of it.

The source goes `copying` → `draining` → `sealed` → `moved`, the target `arriving` → `open`. Each stage is stored before
what follows it is begun, so a move that was interrupted anywhere goes on from there.

- While it is copied everything works as ever.
- While it is drained jobs can be enqueued, but workers claim nothing and end what they have.
- From the seal on the source refuses every write; the target takes none before it is opened.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from enum import Enum
from itertools import islice, zip_longest
from typing import Any

from msgspec import Struct

from holdfast.clock import Clock, monotonic, sleep
from holdfast.database_url import resolve, shown
from holdfast.errors import Conflict, HoldfastError, Invalid, NotFound
from holdfast.stores.contract import QueueDeclared
from holdfast.stores.copying import LAST, LOT, SOURCE, TARGET, Mark, Row, Side, Table, new_mark
from holdfast.stores.open import open_store

WIDE = 10 * LOT  # rows that are compared at once before anybody looks closer
FEW = LOT  # a pass that copied no more than this was the last before the drain
MOST_PASSES = 10
GRACE = 10.0  # seconds
SEAL_PATIENCE = 30.0  # seconds until those who are in the way must have let go
LOOK_EVERY = 0.05

Tell = Callable[[str, int, int], None]  # what is done, how many rows are copied, and of about how many


def open_side(url: str, instance: str, clock: Clock) -> Side:
    """An instance as a side of a move; it need not be there."""
    kind, where = resolve(url)
    store: Any = open_store(url, instance, clock)
    if kind == "sqlite":
        from holdfast.stores.sqlite.moving import SqliteSide

        return SqliteSide(store, f"sqlite:///{os.path.abspath(where)}")
    from holdfast.stores.postgres.moving import PostgresSide

    return PostgresSide(store, shown(url))


class Step(Enum):
    """What a move does next."""

    BEGIN = "begin"
    ARRIVE = "arrive"
    COPY = "copy"
    DRAIN = "drain"
    FINISH = "finish"
    CLOSE = "close"
    NOTHING = "nothing"


# By what source and target remember of the move; None: nothing. A pair that is missing cannot come from one move.
PLAN: Mapping[tuple[str | None, str | None], Step] = {
    (None, None): Step.BEGIN,
    ("copying", None): Step.ARRIVE,
    ("copying", "arriving"): Step.COPY,
    ("draining", "arriving"): Step.DRAIN,
    ("sealed", "arriving"): Step.FINISH,
    ("sealed", "open"): Step.CLOSE,
    ("moved", "open"): Step.NOTHING,
}


def next_step(source: Mark | None, target: Mark | None) -> Step | None:
    """None if these two are not the sides of one move."""
    if source is not None and target is not None and source.mark != target.mark:
        return None
    return PLAN.get((None if source is None else source.stage, None if target is None else target.stage))


class Moved(Struct, frozen=True):
    """What came of a move."""

    instance: str
    source: str
    target: str
    tables: Mapping[str, int]  # rows in the target now
    jobs: int
    copied: int  # rows, by this call
    refused_for: float  # seconds for which nothing could be written
    idle_for: float  # seconds for which workers claimed nothing
    already: bool  # it had been moved before this call


class Move:
    """One move, as far as it has come and to its end."""

    tell: Tell = staticmethod(lambda doing, rows, total: None)

    def __init__(self, source: Side, target: Side, grace: float = GRACE) -> None:
        self.source, self.target = source, target
        self.grace = grace
        self.copied = 0
        self.total = 0  # rows, when it began
        self._steps = {
            Step.BEGIN: self.begin,
            Step.ARRIVE: self.arrive,
            Step.COPY: self.copy,
            Step.DRAIN: self.drain,
            Step.FINISH: self.finish,
            Step.CLOSE: self.close,
        }

    def run(self) -> Moved:
        """To the end. `Conflict`, `Invalid` or `NotFound`, with nothing changed, if there is nothing to go on with."""
        self.check()
        already = self.is_done()
        while (step := self._next()) is not Step.NOTHING:
            self._steps[step]()
        return self._result(already)

    def is_done(self) -> bool:
        return self._next() is Step.NOTHING

    def abandon(self) -> None:
        """The source is as it was, the target is gone. `Conflict` once the target is open."""
        self.check(abandoning=True)
        leaving, arriving = self._marks()
        if leaving is None:
            raise NotFound(
                f"Instance `{self.source.instance}` in {self.source.told} is not being moved. There is nothing to abandon."
            )
        opened = arriving is not None and arriving.mark == leaving.mark and arriving.stage != "arriving"
        if opened or leaving.stage == "moved":
            raise Conflict(
                f"Instance `{self.source.instance}` is open in {leaving.other} and may have been written to. It is moved: use it there."
            )
        if arriving is None or arriving.mark != leaving.mark:
            self._refuse_other_target(leaving)
        else:
            self.target.give_up(leaving.mark)
        self.source.unseal(SEAL_PATIENCE)

    # What is checked before anything changes

    def check(self, abandoning: bool = False) -> None:
        if self.source.is_same(self.target):
            raise Invalid(
                f"--from and --to are the same database, {self.source.told}. Name another one; an instance keeps its name when it moves."
            )
        self.check_version(self.source, "source")
        if self.target.version():  # of another version it could not be asked how far it is
            self.check_version(self.target, "target")
        self.source.take()
        leaving, arriving = self._marks()
        if not abandoning and leaving is None:
            self._refuse_arriving()
        if not abandoning and next_step(leaving, arriving) is None:
            raise self._impossible(leaving, arriving)
        if not abandoning and leaving is None and self.target.version():
            raise self._already_there()
        if not abandoning and leaving is not None and arriving is None:
            self._refuse_other_target(leaving)

    def _refuse_arriving(self) -> None:
        """What is on its way here is not whole yet, and belongs to the move that brings it."""
        coming = self.source.marks().get(TARGET)
        if coming is not None and coming.stage == "arriving":
            raise Conflict(
                f"Instance `{self.source.instance}` in {self.source.told} is itself being moved there from {coming.other} and is not open "
                "yet. End that move first: call `holdfast move` with those two again, or with --abandon."
            )

    @staticmethod
    def check_version(side: Side, which: str) -> None:
        version, wanted = side.version(), side.store.migrations().last
        if not version:
            raise NotFound(f"There is no instance `{side.instance}` in the {which}, {side.told}. Check the URL.")
        if version != wanted:
            side.store.migrations().refuse_unless_new(version)

    def _impossible(self, leaving: Mark | None, arriving: Mark | None) -> HoldfastError:
        if leaving is None or (arriving is None and self.target.version()):
            return self._already_there()
        name, cure = self.source.instance, "call `holdfast move` with that --to, or with --abandon"
        if leaving.stage == "moved":
            return Conflict(f"Instance `{name}` was moved from {self.source.told} to {leaving.other}. Use it there.")
        if arriving is not None:
            return Conflict(
                f"Instance `{name}` is on its way from {self.source.told} to {leaving.other}, and {self.target.told} holds another one of "
                f"that name. To go on, {cure}."
            )
        return Conflict(
            f"Instance `{name}` in {self.source.told} is sealed for its move to {leaving.other}, and {self.target.told} has nothing of it. "
            f"To go on, {cure}."
        )

    def _already_there(self) -> Conflict:
        return Conflict(
            f"{self.target.told} already holds an instance `{self.source.instance}`. Nothing is moved over another; give a database without it."
        )

    def _refuse_other_target(self, leaving: Mark) -> None:
        """Only what this move has made is gone on with, or taken away."""
        if leaving.other != self.target.told:
            raise Conflict(
                f"Instance `{self.source.instance}` in {self.source.told} is being moved to {leaving.other}, not to {self.target.told}. "
                "Give that --to."
            )

    def _marks(self) -> tuple[Mark | None, Mark | None]:
        known = self.target.version() == self.target.store.migrations().last
        return self.source.marks().get(SOURCE), self.target.marks().get(TARGET) if known else None

    def _next(self) -> Step:
        found = next_step(*self._marks())
        if found is None:
            raise self._impossible(*self._marks())
        return found

    # The steps

    def begin(self) -> None:
        self.source.begin(new_mark(), self.target.told)

    def arrive(self) -> None:
        """The target, closed to everybody else."""
        leaving, _ = self._marks()
        assert leaving is not None
        if self.target.version():
            raise self._already_there()
        self.target.arrive(leaving.mark, self.source.told)

    def copy(self) -> None:
        """Everything that can be copied while it is in use; again what has changed meanwhile, until that is little."""
        self.total = sum(map(self.source.count, self.source.tables()))
        for _ in range(MOST_PASSES):
            if self.copy_walked("Copying") <= FEW:
                break
        self.source.go_on(SOURCE, "draining")

    def drain(self) -> None:
        """Workers end what they have; what they do not end within the grace they lose to the seal."""
        self._count("Waiting for running jobs")
        leaving, _ = self._marks()
        assert leaving is not None
        ends = monotonic() + self.grace - seconds_between(leaving.drain_time, self.source.store.now())
        while self.source.is_busy() and monotonic() < ends:
            sleep(LOOK_EVERY)
        self.copy_walked("Copying")  # the less is left for the time in which nobody can write
        message = f"Instance `{self.source.instance}` was moved to {self.target.told}. Nothing was changed here: point the URL there."
        self.source.seal(message, SEAL_PATIENCE)

    def finish(self) -> None:
        """What could not be copied before. Then both sides are compared and the target is opened, all in one transaction."""
        self.copy_walked("Copying what is left")
        with self.target.store.work():
            self._replace([table for table in self.source.tables() if table.walk is None])
            self.target.continue_after(self.source.sequences())
            self.compare()
            self.target.open(self.source.store.now())

    def close(self) -> None:
        self.source.go_on(SOURCE, "moved")

    # Copying

    def copy_walked(self, doing: str) -> int:
        """Bring the tables that are compared by stretches into step; how many rows were copied."""
        before = self.copied
        self.target.make_queues(
            [
                QueueDeclared(row.name, row.table_name, row.claim_order, row.declared_limit, row.throttler)
                for row in self.source.store.queues()
            ]
        )
        there = {table.name: table for table in self.target.tables()}
        for table in self.source.tables():
            self._refuse_difference(table, there.get(table.name))
            if table.walk is not None:
                self._walk(table, there[table.name], doing)
        return self.copied - before

    def _replace(self, tables: Sequence[Table]) -> None:
        """Copy tables as a whole."""
        there = {table.name: table for table in self.target.tables()}
        for table in reversed(tables):
            self.target.clear(there[table.name])
        for table in tables:
            for lot in lots(self.source.read_all(table)):
                self.target.write(there[table.name], lot)
                self._count("Copying what is left", len(lot))

    def _refuse_difference(self, here: Table, there: Table | None) -> None:
        """Both have the same version; somebody may have changed a table by hand."""
        if there is None or here.columns != there.columns:
            raise Conflict(
                f"Table `{here.name}` is not the same in {self.source.told} and {self.target.told}: "
                f"{sorted(set(here.columns) ^ set(there.columns if there else ()))}. Undo what was changed by hand."
            )

    def _walk(self, here: Table, there: Table, doing: str) -> None:
        if self.source.digest(here) == self.target.digest(there):
            return
        after, last = 0, self.source.stretch(here, 0, LAST, LAST) or 0  # what comes meanwhile is for the next pass
        while (upto := self.source.stretch(here, after, last, WIDE)) is not None:
            if self.source.digest(here, after, upto) != self.target.digest(there, after, upto):
                self._walk_closely(here, there, after, upto, doing)
            after = upto
        gone = self.target.read(there, after, LAST)
        if gone:
            self.target.drop(there, gone)

    def _walk_closely(self, here: Table, there: Table, after: int, last: int, doing: str) -> None:
        while after < last:
            upto = self.source.stretch(here, after, last, LOT)
            upto = last if upto is None else upto
            if self.source.digest(here, after, upto) != self.target.digest(there, after, upto):
                self._copy_stretch(here, there, after, upto, doing)
            after = upto

    def _copy_stretch(self, here: Table, there: Table, after: int, upto: int, doing: str) -> None:
        """What differs is taken away and written anew; then it is read again and must be what was read first."""
        wanted, found = self.source.read(here, after, upto), self.target.read(there, after, upto)
        kept = set(wanted).intersection(found) if found else set()
        gone = [row for row in found if row not in kept]
        new = [row for row in wanted if row not in kept] if kept else wanted
        if gone:
            self.target.drop(there, gone)
        written = self._with_parents(here, new)
        if written:
            self.target.write(there, written)
        if set(self.target.read(there, after, upto)) != {*kept, *written}:
            raise self._differs(here)
        self._count(doing, len(written))

    def _with_parents(self, here: Table, rows: Sequence[Row]) -> Sequence[Row]:
        """Rows whose parents are in the target: a run that was archived since its table was walked comes with its steps."""
        walked = [table for table in self.source.tables() if table.name in here.parents and table.walk is not None]
        for parent in walked:
            there = next(table for table in self.target.tables() if table.name == parent.name)
            (place, _), (own, _) = (each.places(each.walk or ()) for each in (here, parent))
            ids = [row[place] for row in rows] or [0]
            first, last = min(ids) - 1, max(ids)
            known = {row[own] for row in self.target.read(there, first, last)}
            missing = [row for row in self.source.read(parent, first, last) if row[own] not in known]
            if missing:
                self.target.write(there, missing)
                known |= {row[own] for row in missing}
            rows = [row for row in rows if row[place] in known]
        return rows

    def compare(self) -> None:
        """Every table: the rows that were copied as a whole one by one, the others by their number and sum."""
        there = {table.name: table for table in self.target.tables()}
        for table in self.source.tables():
            self._count("Comparing")
            if table.walk is not None:
                same = self.source.digest(table) == self.target.digest(there[table.name])
            else:
                read = self.source.read_all(table), self.target.read_all(there[table.name])
                with closing(read[0]), closing(read[1]):
                    same = all(one == other for one, other in zip_longest(*read))
            if not same:
                raise self._differs(table)

    def _differs(self, table: Table) -> Conflict:
        return Conflict(
            f"Table `{table.name}` is not the same in {self.target.told} as in {self.source.told} after it was copied. Somebody writes to "
            "the target. Call `holdfast move` with --abandon, find out who, and begin again."
        )

    def _count(self, doing: str, rows: int = 0) -> None:
        self.copied += rows
        self.tell(doing, self.copied, self.total)

    def _result(self, already: bool) -> Moved:
        leaving, arriving = self._marks()
        assert leaving is not None
        assert arriving is not None
        tables = self.target.tables()
        counts = {table.name: self.target.count(table) for table in tables}
        return Moved(
            instance=self.target.instance,
            source=self.source.told,
            target=self.target.told,
            tables=counts,
            jobs=jobs_among(tables, counts),
            copied=self.copied,
            refused_for=seconds_between(leaving.seal_time, arriving.end_time),
            idle_for=seconds_between(leaving.drain_time, arriving.end_time),
            already=already,
        )


def jobs_among(tables: Sequence[Table], counts: Mapping[str, int]) -> int:
    """Rows that are jobs, living or archived."""
    return sum(counts[table.name] for table in tables if table.holds_jobs or table.name.endswith("__archive"))


def lots(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """So many rows at a time."""
    for first in rows:
        yield [first, *islice(rows, LOT - 1)]


def seconds_between(began: datetime | None, ended: datetime | None) -> float:
    """By the clock of the source, whoever did what in between."""
    return 0.0 if began is None or ended is None else (ended - began).total_seconds()
