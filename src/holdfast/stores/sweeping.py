"""The sweeper's verbs: lost workers, passed deadlines, closed windows, missing hints."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from holdfast.jobs.job import JobError, Situation, State
from holdfast.jobs.states import (
    Aborted,
    Expired,
    HandedBack,
    Lost,
    Moved,
    Raised,
    Row,
    timeout_ends,
    unanswered,
)
from holdfast.stores.breaking import FULL, MARK
from holdfast.stores.contract import (
    Report,
    TypeRow,
)
from holdfast.stores.looping import Looping
from holdfast.stores.statements import BATCH, RowDict


class Sweeping(Looping):
    """Adds the verbs that find what nobody looks after."""

    def lose(self, worker: int, beat: int | None = None) -> int | None:
        """Call a worker lost: its jobs are loose again, or wait for their timeout (C3). How many jobs it had.

        None if it is gone already, or its counter has moved on from `beat`: whoever saw it stand still saw something old.
        """
        with self.work():
            now = self.time(self.now())
            if not self.run("leave", {"id": worker, "gone": "lost", "beat": beat, "now": now}):
                return None
            return self._recover(self.rows("leases_of", {"worker": worker}), worker)

    def recover_strays(self) -> int:
        """Jobs under leases of workers that are gone, however that came."""
        done, _ = self._by_pages(self._recover_page)
        return done

    def _by_pages(self, do: Callable[[int], tuple[int, Sequence[int]]]) -> tuple[int, bool]:
        """How much the first page had to do of which not everything is locked by somebody else; and whether there may be more.

        So a thousand locked jobs hide none behind them. `do` is given the key after which its page begins, and answers how
        much it did and the keys of the page. Each page is a transaction.
        """
        after, done, full = 0, 0, True
        while full and not done:
            with self.work():
                done, page = do(after)
            full = len(page) == BATCH
            after = page[-1] if page else after
        return done, full

    def _recover_page(self, after: int) -> tuple[int, Sequence[int]]:
        strays = self.rows("stray_leases", {"after": after, "limit": BATCH})
        workers = {lease["worker"] for lease in strays}
        done = sum(
            self._recover([lease for lease in strays if lease["worker"] == worker], worker) for worker in workers
        )
        return done, [lease["id"] for lease in strays]

    def _recover(self, leases: Sequence[RowDict], worker: int) -> int:
        rows, busy = self._lock_free([job for lease in leases for job in self.unpack(lease["ids"])])
        held = [row for row in rows if row.situation is Situation.HELD and row.worker == worker]
        only = len(held) + len(busy) == 1
        self.apply([Report(row.id, Lost(only=only), attempt=row.attempt) for row in held])
        self._drop_leases(leases, busy)
        return len(held)

    def _drop_leases(self, leases: Sequence[RowDict], busy: set[int]) -> int:
        """But for those by which the next sweep finds jobs that somebody else has locked; how many."""
        gone = [lease["id"] for lease in leases if busy.isdisjoint(self.unpack(lease["ids"]))]
        for lease in gone:
            self.run("drop_lease", {"id": lease})
        return len(gone)

    def disown(self, worker: int, pump: int, known: Sequence[int]) -> int:
        """Hand back jobs that were claimed for this pump in a transaction whose answer it never got."""
        with self.work():
            leases = [
                row
                for row in self.rows("leases_of", {"worker": worker})
                if row["pump"] == pump and row["id"] not in set(known)
            ]
            ids = [job for lease in leases for job in self.unpack(lease["ids"])]
            held = [
                row
                for row in self._lock(ids).values()
                if row is not None and row.situation is Situation.HELD and row.worker == worker
            ]
            self.apply([Report(row.id, HandedBack(), attempt=row.attempt) for row in held])
            for lease in leases:
                self.run("drop_lease", {"id": lease["id"]})
            return len(held)

    def end_overdue(self) -> float | None:
        """Jobs that nobody holds and whose time is over: the error path. Seconds until the next such moment.

        What somebody else has locked is left and not counted: whoever looked at once again would look without end.
        """
        looks: list[datetime] = []
        _, more = self._by_pages(lambda after: self._end_overdue_page(after, looks))
        if more:
            return 0.0
        with self.work(write=False):  # what has become overdue since the first look was not seen by it
            deadline = self.moment(self.rows("next_deadline", {"now": self.time(looks[0])})[0]["deadline_time"])
            return None if deadline is None else max(0.0, (deadline - self.now()).total_seconds())

    def _end_overdue_page(self, after: int, looks: list[datetime]) -> tuple[int, Sequence[int]]:
        now = self.now()
        looks.append(now)
        leases = self.rows("overdue", {"now": self.time(now), "after": after, "limit": BATCH})
        ends = {(job, self.moment(lease["deadline_time"])) for lease in leases for job in self.unpack(lease["ids"])}
        rows, busy = self._lock_free([job for job, _ in ends])
        self.apply([self._timed_out(row) for row in rows if self._is_overdue(row, ends, now)])
        return self._drop_leases(leases, busy), [lease["id"] for lease in leases]

    def _is_overdue(self, row: Row, ends: set[tuple[int, datetime | None]], now: datetime) -> bool:
        """The lease is a hint: the job may have gone on to another attempt, whose time a worker measures."""
        if row.situation is Situation.WAITING:
            return (row.id, row.deadline_time) in ends
        held = row.situation is Situation.HELD and row.timeout is not None
        return held and (row.id, timeout_ends(row, now)) in ends

    def _timed_out(self, row: Row) -> Report:
        if row.situation is Situation.WAITING:
            error = unanswered(row)
        else:
            error = JobError("Timeout", f"timeout: not finished after {row.timeout:g} s", "timeout")
        return Report(row.id, Raised(error), attempt=row.attempt)

    def end_old_aborts(self, seconds: float) -> int:
        """Jobs whose worker was asked to end them and did not: ended here (J10)."""
        done, _ = self._by_pages(partial(self._end_page_of_aborts, seconds))
        return done

    def _end_page_of_aborts(self, seconds: float, after: int) -> tuple[int, Sequence[int]]:
        before = self.time(self.now() - timedelta(seconds=seconds))
        page = self.rows("old_aborts", {"before": before, "after": after, "limit": BATCH})
        _, busy = self._lock_free([row["job"] for row in page])
        wishes = [row for row in page if row["job"] not in busy]
        reports = [Report(row["job"], Aborted(row["actor"]), attempt=row["attempt"]) for row in wishes]
        changes = self.apply(reports)
        self.run("drop_aborts", {"ids": self.pack([row["job"] for row in wishes])})
        self._free_slots([change.row for change in changes if change is not None])
        return sum(change is not None for change in changes), [row["job"] for row in page]

    def _free_slots(self, ended: Sequence[Row]) -> None:
        """A worker that does not let go of a job that was ended keeps its lease, but not the slot under a limit."""
        for worker in {row.worker for row in ended if row.worker is not None and self.queue_row(row.queue).throttled}:
            gone = {row.id for row in ended if row.worker == worker}
            for lease in self.rows("single_leases", {"worker": worker}):
                if gone.issuperset(self.unpack(lease["ids"])):
                    self.run("drop_lease", {"id": lease["id"]})

    def shut(self) -> int:
        """Due jobs that may not start any more: expired ones end, closed windows wait for their next opening.

        What somebody else has locked is left where it is.
        """
        with self.work():
            now = self.now()
            params = {"now": self.time(now), "limit": BATCH}
            hints = ("drop_shut", "drop_shut_parked", "drop_shut_aside")
            ids = [row["id"] for name in hints for row in self.rows(name, params)]
            reports, again = [], []
            for row in self._lock(ids).values() if ids else ():
                if row is None or row.state is State.FINAL or row.situation not in (None, Situation.LOOSE):
                    continue  # the hint was wrong, and is gone
                if row.expires_time is not None and row.expires_time <= now:
                    reports.append(Report(row.id, Expired()))
                elif row.time_windows:
                    reports.append(Report(row.id, Moved()))
                else:
                    again.append((row, row.scheduled_run_time, row.expires_time))
            self.place(again, now)
            return len(self.apply(reports))

    def park(self, handled: Sequence[str]) -> int:
        """Due jobs of types nobody handles leave the line; parked ones of handled types come back (Q4)."""
        moved = 0
        with self.work():
            self._read_adaptive()
            tripped = self.tripped_types()
            for row in self.rows("parked_types"):
                if row["job_type"] in handled and row["job_type"] not in tripped:
                    moved += self._unpark(row["job_type"])
            for queue in self._read_queues():
                for row in self.rows("head_types", {"queue": queue.name, "limit": BATCH}):
                    job_type = row["job_type"].removeprefix(MARK)
                    if job_type != row["job_type"]:
                        if job_type not in tripped:
                            self.unmark_probe(queue.name, job_type)
                    elif job_type not in handled or job_type in tripped:
                        moved += self._park(queue.name, job_type)
        self._unpark_closed(tripped)
        return moved

    def parked_types(self) -> dict[str, int]:
        """Return the types that have parked jobs, each with the lowest id of these jobs."""
        with self.lone():
            return {row["job_type"]: row["first"] for row in self.rows("parked_types")}

    def _park(self, queue: str, job_type: str) -> int:
        params = {"queue": queue, "job_type": job_type, "limit": FULL}
        moved = self.run("park", params)
        self.run("drop_ready_parked", params)
        return moved

    def park_tripped(self) -> bool:
        """Due jobs of types whose breaker is open leave the line, so that no claim walks over them (R6). Whether there are more."""
        most = 0
        with self.work():
            self._read_adaptive()
            tripped = self.tripped_types()
            for queue in self._read_queues() if tripped else ():
                for row in self.rows("head_types", {"queue": queue.name, "limit": BATCH}):
                    if row["job_type"] in tripped:
                        most = max(most, self._park(queue.name, row["job_type"]))
        if most:
            self._unpark_closed(tripped)
        return most >= FULL

    def _unpark_closed(self, tripped: Collection[str]) -> None:
        """Types whose breaker was closed while their jobs were parked: whoever closed it may not have seen them yet."""
        if tripped:
            with self.work():
                for job_type, breaker in self.lock_breakers(tripped).items():
                    if breaker.closed:
                        self._unpark(job_type)
                    self.announce([self._queue_of(job_type)])  # nobody has chosen a probe while we looked

    def restore(self, after: int, count: int, older_than: float) -> tuple[int, int]:
        """Give living jobs of the next `count` ids their hint back if they lost it (C4).

        Answers the id to go on after (0: begin again) and how many were found.
        """
        with self.work(write=False):  # nearly always there is nothing, and nobody has to wait for that
            now = self.now()
            last = self.rows("last_id")[0]["last"] or 0
            upto = min(after + count, last)
            params = {"after": after, "upto": upto, "before": self.time(now - timedelta(seconds=older_than))}
            queues = [row.name for row in self._read_queues()]
            forgotten, held, waits = (
                [self._row_of(row) for queue in queues for row in self.rows(name, params, queue)]
                for name in ("forgotten", "held_rows", "unleased_waits")
            )
            leased = {row["id"] for row in self.rows("leased_ids")} if held else set()
        unleased = [row for row in held if row.id not in leased]
        found = self._restore_these(forgotten, unleased, waits) if forgotten or unleased or waits else 0
        return (0 if upto >= last else upto), found

    def _restore_these(self, forgotten: Sequence[Row], unleased: Sequence[Row], waits: Sequence[Row]) -> int:
        """Each is looked at again under its lock: it may have gone on since. What somebody has locked is found another time."""
        with self.work():
            now, types = self.now(), self._read_types()
            free, _ = self._lock_free([row.id for row in (*forgotten, *unleased, *waits)])
            rows = {row.id: row for row in free}
            found = sum(self._restore_one(seen, rows.get(seen.id), types, now) for seen in forgotten)
            found += sum(self._lease_again(rows.get(seen.id)) for seen in waits)
            return found + self._lose_unleased(unleased, rows)

    def _restore_one(self, seen: Row, row: Row | None, types: Mapping[str, TypeRow], now: datetime) -> int:
        if row is None or (row.state, row.attempt, row.situation) != (seen.state, seen.attempt, seen.situation):
            return 0
        if self._is_undecided(row, types.get(row.job_type)):
            self.run("add_undecided", self.columns({"types": [row.job_type], "ids": [row.id]}))
            self.announce([row.queue])
        else:
            self.place_again(row, now)
        return 1

    def _is_undecided(self, row: Row, declared: TypeRow | None) -> bool:
        """No retry has been decided: the time at which it is wanted is still that of the attempt which failed."""
        asked = declared is not None and declared.has_retry_handler and row.state is State.ERROR
        return asked and row.start_time is not None and row.scheduled_run_time <= row.start_time

    def _lease_again(self, row: Row | None) -> int:
        if row is None or row.situation is not Situation.WAITING:
            return 0
        lease = self.lease_waits([(row, row.deadline_time, 0)])
        self.run_all([("drop_waits", {"ids": self.pack([row.id])}, ""), lease])
        return 1

    def _lose_unleased(self, unleased: Sequence[Row], rows: Mapping[int, Row]) -> int:
        """Held, and under nobody's lease: no attempt owns it."""
        reports = [
            Report(row.id, Lost(), attempt=row.attempt)
            for row, seen in ((rows.get(seen.id), seen) for seen in unleased)
            if row is not None and row.situation is Situation.HELD and row.attempt == seen.attempt
        ]
        return sum(change is not None for change in self.apply(reports))
