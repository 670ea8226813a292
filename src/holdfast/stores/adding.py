"""New jobs: callers that come at the same time share a commit, and a key that is taken gives the job that has it."""

import contextlib
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from msgspec import structs

from holdfast.clock import Clock
from holdfast.errors import DuplicateJob, HoldfastError, Invalid, Unavailable
from holdfast.jobs import damage, throttle, throttlers
from holdfast.jobs.job import Job, Situation, State
from holdfast.jobs.states import (
    placement,
)
from holdfast.stores.changing import Changing
from holdfast.stores.contract import NewJob
from holdfast.stores.lending import Lending, Room
from holdfast.stores.reader import read_throttler
from holdfast.stores.statements import decode_any, encode_json

OFTEN = 0.25  # seconds after which a caller looks whether anybody stores what it handed in


class Adding(Changing):
    """Adds the verbs that make jobs."""

    def __init__(self, instance: str, clock: Clock) -> None:
        super().__init__(instance, clock)
        self._adding: deque[_Adding] = deque()
        self._adding_lock = threading.Lock()
        self.quiet = False
        self.lending: Lending | None = None  # around a transaction that makes jobs
        self._led = False  # somebody is storing what was handed in

    def add(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Job]:
        """Store new jobs, all or none. Callers that come at the same time share one commit."""
        if connection is not None:
            return self.add_within(jobs, connection)
        entry, leads = None, False
        try:
            with self._adding_lock:
                if self._led:
                    entry = _Adding(jobs)
                    self._adding.append(entry)
                else:
                    leads = self._led = True  # in this order: whoever is interrupted in between passes it on
            if leads:
                with self.lock:
                    return self.add_batch(jobs)
        finally:
            if leads:
                self._pass_on()
        assert entry is not None
        return self._added_by_another(entry)

    def add_each(self, lots: Sequence[Sequence[NewJob]], ends: float) -> Sequence[Sequence[Job] | Exception]:
        """What several callers hand in at the same time: each gets its jobs, or its own error, and waits for none after `ends`."""
        entries = [_Adding(jobs) for jobs in lots]
        with self.until(ends):
            self._store(entries)
        return [entry.added if entry.error is None else entry.error for entry in entries]

    def _added_by_another(self, entry: "_Adding") -> Sequence[Job]:
        """Who came first stores what has come meanwhile."""
        try:
            while not entry.wait(OFTEN):  # who led may have been interrupted
                if self.lock.acquire(blocking=False):
                    try:
                        self._lead()
                    finally:
                        self.lock.release()
            if entry.leads:
                self._lead()
        except BaseException:
            self._withdraw(entry)
            raise
        if entry.error is not None:
            raise entry.error
        return entry.added

    def _withdraw(self, entry: "_Adding") -> None:
        """Its caller was interrupted: nobody may wait to be led by it."""
        with self._adding_lock:
            if entry in self._adding:
                self._adding.remove(entry)
        if entry.leads:
            self._pass_on()

    def _pass_on(self) -> None:
        """Whoever came meanwhile is led by the first of them."""
        with self._adding_lock:
            self._led = bool(self._adding)
            if self._adding:
                self._adding[0].lead()

    def _lead(self) -> None:
        """Store what has come in so far."""
        with self.lock:
            self._add_together()
        self._pass_on()

    def _add_together(self) -> None:
        """Everything that callers have handed in so far, in one transaction; one by one if that fails."""
        entries: list[_Adding] = []
        try:
            with self._adding_lock:
                entries.extend(self._adding)
                self._adding.clear()
            self._store(entries)
        finally:
            for entry in entries:
                entry.fail_if_forgotten()

    def _store(self, entries: Sequence["_Adding"]) -> None:
        if len(entries) > 1 and self._added_at_once(entries):
            return
        for entry in entries:
            try:
                entry.finish(self.add_batch(entry.jobs))
            except Exception as error:
                entry.fail(error)

    def _added_at_once(self, entries: Sequence["_Adding"]) -> bool:
        """False if something was wrong: one caller's bad row must not fail another's."""
        try:
            added = list(self.add_batch([job for entry in entries for job in entry.jobs]))
        except Unavailable as error:  # it may have happened: trying again could store everything twice
            for entry in entries:
                entry.fail(error)
            return True
        except HoldfastError:
            return False
        for entry in entries:
            entry.finish(added[: len(entry.jobs)])
            del added[: len(entry.jobs)]
        return True

    def add_batch(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        """All or none, in a transaction of its own."""
        with self.work():
            return self.insert(jobs)

    @abstractmethod
    def insert(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        """`add` inside a transaction of this store."""

    def insert_alike(self, jobs: Sequence[NewJob]) -> list[int]:
        """`insert` of jobs with keys that are due now; their ids. Those of a type have the same options.

        Where a worker of this process lends room they begin at once, if nobody stands before them.
        """
        ids: list[int] = []
        for _, group in groupby(jobs, key=lambda new: new.job_type):
            alike = list(group)
            ids += self.add_alike(alike) or [job.id for job in self.insert(alike)]
        return ids

    @abstractmethod
    def add_alike(self, jobs: Sequence[NewJob]) -> list[int]:
        """Store them with one statement and without making values of them; none if one of them needs a second look."""

    @contextlib.contextmanager
    def lend(self, worker: int | None = None, ending: int = 0) -> Iterator[Lending]:
        """Around a transaction in which jobs may be made that are alike: they may begin in it."""
        lending, sure, stored = None, False, False
        try:
            with self.connection.lock:  # several threads may use this store
                # The end of an open transaction is for its owner to tell.
                takers = () if self.connection.depth else self.takers
                self.lending = lending = Lending(takers, worker, ending)
                try:
                    yield lending
                    sure = stored = True
                except Unstored:
                    sure = True
                    raise
                finally:
                    self.lending = None
        finally:
            if lending is not None:
                lending.end(sure, stored)

    def room_for(self, jobs: Sequence[NewJob], lending: Lending | None = None) -> Room | None:
        """What a worker lends to these jobs, which are alike."""
        lending = lending or self.lending
        if lending is None or not self.may_begin or jobs[0].job_type in self.adaptive:
            return None
        return lending.room(jobs[0], len(jobs))

    @property
    def may_begin(self) -> bool:
        """It can be seen quickly that nothing stands in line."""
        return True

    def announce_new(self, queues: Sequence[str]) -> None:
        """Jobs were stored. `quiet`: whoever does so claims them in the same transaction, or tells of them after it."""
        if not self.quiet:
            self.announce(queues)

    def insert_apart(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        """`insert` inside a transaction that goes on whatever becomes of it: all of these jobs, or none."""
        self.run("open_savepoint")
        try:
            added = self.insert(jobs)
        except BaseException:
            with contextlib.suppress(Exception):  # the whole transaction may be gone
                self.run("undo_savepoint")
                self.run("release_savepoint")
            raise
        self.run("release_savepoint")
        return added

    @abstractmethod
    def add_within(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Job]:
        """`add` inside the caller's transaction on the caller's connection."""

    def settle_duplicates(self, jobs: Sequence[NewJob], holders: Mapping[tuple[str, str], int]) -> dict[int, Job]:
        """For each job whose key is held: the job that holds it, as `on_duplicate` wants it. By position."""
        found: dict[int, Job] = {}
        for index, new in enumerate(jobs):
            holder = holders.get((new.job_type, new.job_key)) if new.job_key is not None else None
            if holder is None:
                continue
            if new.on_duplicate == "replace":
                self._replace(holder, new)
            found[index] = self.as_duplicate(new, self._get(holder))
        return found

    def as_duplicate(self, new: NewJob, existing: Job) -> Job:
        """The living job in place of the new one; `DuplicateJob` if the caller wants to be told so."""
        if new.on_duplicate == "raise":
            raise DuplicateJob(
                f"Job {existing.id} of type `{new.job_type}` with key `{new.job_key}` is still `{existing.state}`. "
                "Wait for it, or enqueue with on_duplicate='return' or 'replace'.",
                existing,
            )
        return structs.replace(existing, duplicate=True)

    def _replace(self, job_id: int, new: NewJob) -> None:
        """Other payload, times and options for a job still `initial`; a claim wins over it (Q5)."""
        dropped = self._drop_hints([job_id], unbegun=True)
        row = self._lock([job_id]).get(job_id)
        now = self.now()
        if row is None or row.state is not State.INITIAL:
            if dropped and row is not None and row.situation is Situation.LOOSE:  # claimed and handed back meanwhile
                self.place_again(row, now)
            return
        if not dropped:  # a claim was taking it, and was given up
            self._drop_hints([job_id], unbegun=True)
        at, closes = self.placed(new, now)
        params = {name: getattr(new, name) for name in ("payload", "priority", "throttle_factor", "timeout", "retries")}
        params |= {"timeout_named": new.timeout_named, "retries_named": new.retries_named}
        params["time_windows"] = encode_json(new.time_windows).decode() if new.time_windows else None
        params |= {"expires_time": self.time(new.expires_time), "scheduled_run_time": self.time(at)}
        self.run("replace_job", {**params, "id": job_id, "now": self.time(now)}, row.queue)
        row = structs.replace(row, priority=new.priority, throttle_factor=new.throttle_factor)
        self.place([(row, at, closes)], now)

    def write_traces(self, jobs: Sequence[NewJob], added: Sequence[Job]) -> None:
        """What the spans of these jobs belong to, where their programs trace."""
        rows = [
            {"job": job.id, "context": new.trace}
            for new, job in zip(jobs, added, strict=True)
            if new.trace is not None and not job.duplicate
        ]
        if rows:
            self.run_many("add_trace", rows)

    def traces(self, jobs: Sequence[int]) -> Mapping[int, str]:
        """For each of these jobs that was enqueued in a trace: its context."""
        with self.lone():
            rows = self.rows("traces", {"ids": self.pack(jobs)})
        return {row["job"]: row["context"] for row in rows if isinstance(damage.read(decode_any, row["context"]), dict)}

    def check_pools(self, jobs: Sequence[NewJob]) -> None:
        """`Invalid` for a job that the throttler of its queue could never let start."""
        found = {queue: read_throttler(self.queue_row(queue).throttler) for queue in {new.queue for new in jobs}}
        keyed = {queue: throttler for queue, throttler in found.items() if throttlers.is_keyed(throttler)}
        for new in jobs if keyed else ():
            throttler = keyed.get(new.queue)
            throttle.check_pool(throttler, throttlers.pool_of(throttler, decode_any(new.payload)), new.throttle_factor)

    def placed(self, new: NewJob, now: datetime) -> tuple[datetime, datetime | None]:
        """When a new job is to start, and until when it may; `Invalid` for one that never could."""
        throttle.check_factor(new.throttle_factor, self.queue_row(new.queue).throttle_limit)
        wanted = new.scheduled_run_time
        if new.delay is not None:
            wanted = now + timedelta(seconds=new.delay)
        at, closes = placement(new.time_windows, new.expires_time, wanted, now)
        if new.expires_time is not None and new.expires_time <= at:
            start, _ = placement(new.time_windows, None, wanted, now)
            raise Invalid(
                f"{new.job_type}: expires {new.expires_time} is not after its start {start}; the job could never run. Give a later `expires`."
            )
        return at, closes

    def job_added(self, new: NewJob, job_id: int, now: datetime, at: datetime) -> Job:
        """The value of a job that was just stored, without reading it again."""
        return Job(
            id=job_id,
            job_type=new.job_type,
            job_key=new.job_key,
            queue=new.queue,
            state=State.INITIAL,
            status="pending",
            situation=None,
            outcome=None,
            payload=decode_any(new.payload),
            result=None,
            error=None,
            attempt=0,
            failures=0,
            losses=0,
            crashes=0,
            retries=new.retries,
            priority=new.priority,
            timeout=new.timeout,
            throttle_factor=new.throttle_factor,
            time_windows=new.time_windows,
            scheduled_run_time=at,
            expires_time=new.expires_time,
            create_time=now,
            update_time=now,
            start_time=None,
            end_time=None,
            execution_time=None,
            total_time=0,
            worker=None,
            retry_of=new.retry_of,
            run=new.run,
            source=self.source,
        )

    def retry(self, new: NewJob, actor: str) -> Job:
        """A new job in place of a final one, and an audit row with the final one that says who wanted it (J11).

        Whether its timeout and its retries were named is taken from the final one.
        """
        with self.work():
            old = self._stored(new.retry_of or 0)
            named = {name: bool(old[name]) for name in ("timeout_named", "retries_named")}
            job = self.insert([structs.replace(new, **named)])[0]
            self._audit(actor, "retry", job=new.retry_of, queue=new.queue, detail=f"job {job.id}")
            return job


class Unstored(Exception):
    """A transaction was given up, and nothing of it is stored."""


class _Adding:
    """One caller's jobs on their way into the store."""

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.added: Sequence[Job] = ()
        self.error: Exception | None = None
        self.leads = False
        self._settled = False
        self._news = threading.Lock()  # had until there is some: a bare lock wakes its thread sooner than an event
        self._news.acquire()

    def wait(self, seconds: float) -> bool:
        """Until it is stored, or has to lead; False if neither has come."""
        return self._news.acquire(timeout=seconds)

    def lead(self) -> None:
        self.leads = True
        self._wake()

    def finish(self, added: Sequence[Job]) -> None:
        self.added, self._settled = added, True
        self._wake()

    def fail(self, error: Exception) -> None:
        self.error, self._settled = error, True
        self._wake()

    def _wake(self) -> None:
        if self._news.locked():
            self._news.release()

    def fail_if_forgotten(self) -> None:
        """The caller who led was interrupted."""
        if not self._settled:
            self.fail(
                Unavailable("Storing jobs was interrupted in another thread. Nothing of yours was stored; try again.")
            )


def is_plain(new: NewJob) -> bool:
    """Due now, with nothing that needs a second look."""
    return (
        new.job_key is None
        and new.scheduled_run_time is None
        and new.delay is None
        and not new.time_windows
        and new.expires_time is None
        and new.run is None
        and new.trace is None
    )
