"""The verbs that both databases speak in the same words.

A database adds to this its connection, its form of times and id lists, and the two verbs that every job passes
(`add`, `exchange`), each written for its own speed.

Rules:
- A job's row is locked before anything is decided about it; hints are dropped before the row is locked, because
  a claim takes them in that order too.
- What happens to a job is decided by `holdfast.jobs.states.decide` and by nothing here.
"""

import math
import random
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import structs

from holdfast.clock import Clock
from holdfast.errors import Conflict, DuplicateJob, HoldfastError, IllegalMove, Invalid, NotFound, Unavailable
from holdfast.jobs import retry, throttle
from holdfast.jobs.job import Attempt, AttemptEnd, Job, JobError, Move, Outcome, Situation, Source, State
from holdfast.jobs.states import (
    STATUS,
    Aborted,
    Change,
    Decided,
    Expired,
    HandedBack,
    Lost,
    Moved,
    Raised,
    Row,
    Rules,
    Step,
    Succeeded,
    decide,
    placement,
    timeout_ends,
)
from holdfast.stores.contract import (
    Claimed,
    Filter,
    NewJob,
    News,
    Pulse,
    QueueDeclared,
    QueueRow,
    Report,
    Turn,
    TypeRow,
    Want,
    WorkerJoin,
    WorkerRow,
)

RowDict = Mapping[str, Any]
BATCH = 1000
FIRST_OPTION = 4  # the options of a NewJob stand behind its queue, type, payload and key
encode_json = msgspec.json.Encoder().encode
decode_error = msgspec.json.Decoder(JobError).decode
decode_any = msgspec.json.Decoder().decode
decode_words = msgspec.json.Decoder(tuple[str, ...]).decode


class SqlStore(ABC):
    """One connection to one instance; see `contract.Store` for the promises."""

    pumps = 1
    generation = 1
    source: Source | None = None  # what the job values are to ask for more

    def __init__(self, instance: str, clock: Clock) -> None:
        self.instance = instance
        self.clock = clock
        self.lock = threading.RLock()
        self.listeners: list[Callable[[], None]] = []
        self._queues: dict[str, QueueRow] = {}
        self._adding: deque[_Adding] = deque()
        self._adding_lock = threading.Lock()
        self._led = False  # somebody is storing what was handed in

    @property
    def patience(self) -> float | None:
        """Seconds to wait for the database before `Unavailable`; None: for ever."""
        found: float | None = self.connection.patience
        return found

    @patience.setter
    def patience(self, seconds: float | None) -> None:
        self.connection.patience = seconds

    # What a database adds

    connection: Any

    @abstractmethod
    def now(self) -> datetime: ...

    @abstractmethod
    def work(self, write: bool = True) -> AbstractContextManager[None]:
        """One transaction under this store's lock; `Unavailable` if the database cannot be had."""

    @abstractmethod
    def rows(self, name: str, params: Mapping[str, Any] | None = None, queue: str = "") -> list[dict[str, Any]]: ...

    @abstractmethod
    def run(self, name: str, params: Mapping[str, Any] | None = None, queue: str = "") -> int: ...

    @abstractmethod
    def time(self, moment: datetime | None) -> Any: ...

    @abstractmethod
    def moment(self, value: Any) -> datetime | None: ...

    @abstractmethod
    def pack(self, ids: Sequence[int]) -> Any: ...

    @abstractmethod
    def unpack(self, value: Any) -> list[int]: ...

    @abstractmethod
    def create_queue(self, queue: QueueDeclared, now: datetime) -> None: ...

    @abstractmethod
    def announce(self, queues: Sequence[str]) -> None:
        """Jobs became due: tell the workers. Called inside the transaction that made it so."""

    def tell(self, news: News) -> None:
        """Something the workers should hear of at once."""
        self.announce(())

    def lock_path(self) -> str | None:
        """Where a worker keeps a locked file while it lives; None where that tells nothing."""
        return None

    def changed(self) -> bool:
        """False only if it is certain that nobody else wrote since the last time it was asked."""
        return True

    @contextmanager
    def lone_write(self) -> Iterator[None]:
        with self.work():
            yield

    @contextmanager
    def lone(self) -> Iterator[None]:
        """For a single statement, which needs no transaction around it."""
        with self.work(write=False):
            yield

    # Adding

    def add(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Job]:
        """Store new jobs, all or none. Callers that come at the same time share one commit."""
        if connection is not None:
            return self.add_within(jobs, connection)
        entry = _Adding(jobs)
        with self._adding_lock:
            self._adding.append(entry)
            lead, self._led = not self._led, True
        if not lead:
            lead = entry.wait()
        if lead:
            self._lead()
        if entry.error is not None:
            raise entry.error
        return entry.added

    def _lead(self) -> None:
        """Store what has come in so far; whoever came meanwhile is led by the first of them."""
        try:
            with self.lock:
                self._add_together()
        finally:
            with self._adding_lock:
                self._led = bool(self._adding)
                if self._adding:
                    self._adding[0].lead()

    def _add_together(self) -> None:
        """Everything that callers have handed in so far, in one transaction; one by one if that fails."""
        with self._adding_lock:
            entries = list(self._adding)
            self._adding.clear()
        try:
            if len(entries) > 1 and self._added_at_once(entries):
                return
            for entry in entries:
                try:
                    entry.finish(self.add_batch(entry.jobs))
                except Exception as error:
                    entry.fail(error)
        finally:
            for entry in entries:
                entry.fail_if_forgotten()

    def _added_at_once(self, entries: Sequence["_Adding"]) -> bool:
        """False if something was wrong: one caller's bad row must not fail another's."""
        try:
            added = list(self.add_batch([job for entry in entries for job in entry.jobs]))
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
        self._drop_hints([job_id], unbegun=True)
        row = self._lock([job_id]).get(job_id)
        if row is None or row.state is not State.INITIAL:
            return
        now = self.now()
        at, closes = self.placed(new, now)
        params = {name: getattr(new, name) for name in ("payload", "priority", "throttle_factor", "timeout", "retries")}
        params["time_windows"] = encode_json(new.time_windows).decode() if new.time_windows else None
        params |= {"expires_time": self.time(new.expires_time), "scheduled_run_time": self.time(at)}
        self.run("replace_job", {**params, "id": job_id, "now": self.time(now)}, row.queue)
        row = structs.replace(row, priority=new.priority, throttle_factor=new.throttle_factor)
        self._place(row, at, closes, now)

    def placed(self, new: NewJob, now: datetime) -> tuple[datetime, datetime | None]:
        """When a new job is to start, and until when it may; `Invalid` for one that never could."""
        throttle.check_factor(new.throttle_factor, self.queue_row(new.queue).throttle_limit)
        wanted = new.scheduled_run_time
        if new.delay is not None:
            wanted = now + timedelta(seconds=new.delay)
        at, closes = placement(new.time_windows, new.expires_time, wanted, now)
        if new.expires_time is not None and new.expires_time <= at:
            raise Invalid(
                f"{new.job_type}: expires {new.expires_time} is not after its start {at}; the job could never run. Give a later `expires`."
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
            source=self.source,
        )

    # Queues and types

    def register(self, queues: Sequence[QueueDeclared], types: Sequence[TypeRow]) -> None:
        """Store what the code declares, if it differs from what is stored."""
        with self.work(write=False):
            stored = {row.name: row for row in self._read_queues()}
            known = self._read_types()
        new_queues = [queue for queue in queues if _declared(stored.get(queue.name)) != queue]
        new_types = [declared for declared in types if known.get(declared.job_type) != declared]
        if not (new_queues or new_types):
            return
        with self.work():
            now = self.now()
            stored = {row.name: row for row in self._read_queues()}
            for queue in new_queues:
                self._register_queue(queue, stored.get(queue.name), now)
            for declared in new_types:
                self.run("put_type", self._type_params(declared, now))
            self._read_queues()

    def _register_queue(self, queue: QueueDeclared, stored: QueueRow | None, now: datetime) -> None:
        if stored is None:
            self.create_queue(queue, now)
            return
        if stored.table_name != queue.table_name:
            raise Conflict(
                f"Queue `{queue.name}` of instance `{self.instance}` has its jobs in table `{stored.table_name}`, but the "
                f"table_naming_strategy now says `{queue.table_name}`. Give the old strategy back, or use another instance name."
            )
        if _declared(stored) == queue:
            return
        params = {"claim_order": queue.claim_order, "declared_limit": queue.throttle_limit, "name": queue.name}
        self.run("change_queue", params)
        if stored.claim_order != queue.claim_order:
            self.run("reorder_ready", {"queue": queue.name})

    def queues(self) -> Sequence[QueueRow]:
        with self.lone():
            return self._read_queues()

    def _read_queues(self) -> list[QueueRow]:
        found = [QueueRow(**{**row, "paused": bool(row["paused"])}) for row in self.rows("queues")]
        self._queues = {row.name: row for row in found}
        return found

    def queue_row(self, name: str) -> QueueRow:
        """The queue by name, read once and again when it is not known."""
        row = self._queues.get(name)
        if row is None:
            self._read_queues()
            row = self._queues.get(name)
        if row is None:
            raise NotFound(
                f"There is no queue `{name}` in instance `{self.instance}`. Declare it with app.queue({name!r})."
            )
        return row

    def types(self) -> Mapping[str, TypeRow]:
        with self.work(write=False):
            return self._read_types()

    def _read_types(self) -> dict[str, TypeRow]:
        found = {}
        for row in self.rows("types"):
            values = {name: row[name] for name in TypeRow.__struct_fields__}
            for name in ("default_time_windows", "labels"):
                values[name] = decode_words(values[name])
            for name in ("has_handler", "has_retry_handler", "has_response_handler"):
                values[name] = bool(values[name])
            found[row["job_type"]] = TypeRow(**values)
        return found

    def _type_params(self, row: TypeRow, now: datetime) -> dict[str, Any]:
        params = {name: getattr(row, name) for name in TypeRow.__struct_fields__}
        params["default_time_windows"] = encode_json(row.default_time_windows).decode()
        params["labels"] = encode_json(row.labels).decode()
        return {**params, "now": self.time(now)}

    def add_type(self, job_type: str, queue: str) -> TypeRow:
        """A type met by name: registered under this queue unless it is registered already."""
        with self.work():
            self.queue_row(queue)
            self.run("add_type", {"job_type": job_type, "queue": queue, "now": self.time(self.now())})
            return self._read_types()[job_type]

    def pause(self, queue: str, paused: bool, actor: str) -> None:
        with self.work():
            self.queue_row(queue)
            self.run("pause_queue", {"name": queue, "paused": paused})
            self._audit(actor, "pause" if paused else "resume", queue=queue)
            self._read_queues()
            self.tell(News.QUEUES)

    def limit(self, queue: str, limit: float | None, actor: str) -> None:
        with self.work():
            self.queue_row(queue)
            self.run("limit_queue", {"name": queue, "set_limit": limit})
            self._audit(actor, "limit", queue=queue, detail="declared" if limit is None else f"{limit:g}")
            self._read_queues()
            self.tell(News.QUEUES)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """For each queue: how many jobs in each status."""
        with self.work(write=False):
            found: dict[str, dict[str, int]] = {row.name: {} for row in self._read_queues()}
            for row in self.rows("counts"):
                outcome = None if row["outcome"] is None else Outcome(row["outcome"])
                status = STATUS[State(row["state"]), outcome]
                found[row["queue"]][status] = found[row["queue"]].get(status, 0) + row["count"]
            return found

    def _audit(
        self,
        actor: str,
        action: str,
        *,
        job: int | None = None,
        attempt: int | None = None,
        queue: str = "",
        detail: str = "",
    ) -> None:
        params = {"actor": actor, "action": action, "job": job, "attempt": attempt, "queue": queue or None}
        self.run("add_audit", {**params, "detail": detail or None, "now": self.time(self.now())})

    # Reading

    def get(self, job_id: int) -> Job:
        with self.work(write=False):
            return self._get(job_id)

    def _get(self, job_id: int) -> Job:
        if not 0 < job_id < 2**63:
            raise NotFound(f"There is no job {job_id}: ids are positive 64-bit numbers.")
        for name in ("job", "archived_job"):
            for row in self.rows(name, {"id": job_id}):
                return self.job_of(row)
        raise NotFound(f"There is no job {job_id} in instance `{self.instance}`.")

    def find(self, wanted: Filter) -> Sequence[Job]:
        """Newest first."""
        params = self._filter(wanted)
        with self.work(write=False):
            found = [self.job_of(row) for row in self.rows("find_jobs", params)]
            if wanted.archive:
                found += [self.job_of(row) for row in self.rows("find_archived", params)]
                found.sort(key=lambda job: -job.id)
        return found[: wanted.limit]

    def _filter(self, wanted: Filter) -> dict[str, Any]:
        names = ("job_type", "job_key", "queue", "state", "before", "limit")
        params = {**{name: getattr(wanted, name) for name in names}, "outcome": None, "dead": None}
        if wanted.status is not None:
            pairs = [pair for pair, status in STATUS.items() if status == wanted.status]
            if not pairs:
                raise Invalid(f"status={wanted.status!r}: known are {', '.join(sorted(set(STATUS.values())))}.")
            if wanted.state not in (None, pairs[0][0]):
                params["limit"] = 0
            params["state"] = pairs[0][0].value
            params["outcome"] = "success" if wanted.status == "completed" else None
            params["dead"] = True if wanted.status == "dead" else None
        return params

    def job_of(self, row: RowDict, duplicate: bool = False) -> Job:
        """The value for a row of a job table or of the archive."""
        state, outcome = State(row["state"]), None if row["outcome"] is None else Outcome(row["outcome"])
        return Job(
            id=row["id"],
            job_type=row["job_type"],
            job_key=row["job_key"],
            queue=row["queue"],
            state=state,
            status=STATUS[state, outcome],
            situation=None if row["situation"] is None else Situation(row["situation"]),
            outcome=outcome,
            payload=decode_any(row["payload"]),
            result=None if row["result"] is None else decode_any(row["result"]),
            error=error_of(row["error"]),
            attempt=row["attempt"],
            failures=row["failures"],
            losses=row["losses"],
            crashes=row["crashes"],
            retries=row["retries"],
            priority=row["priority"],
            timeout=row["timeout"],
            throttle_factor=row["throttle_factor"],
            time_windows=() if row["time_windows"] is None else decode_words(row["time_windows"]),
            scheduled_run_time=self._known(row["scheduled_run_time"]),
            expires_time=self.moment(row["expires_time"]),
            create_time=self._known(row["create_time"]),
            update_time=self._known(row["update_time"]),
            start_time=self.moment(row["start_time"]),
            end_time=self.moment(row["end_time"]),
            execution_time=row["execution_time"],
            total_time=row["total_time"],
            worker=None if row["worker"] is None else str(row["worker"]),
            retry_of=row["retry_of"],
            duplicate=duplicate,
            archived="archive_time" in row,
            source=self.source,
        )

    def _known(self, value: Any) -> datetime:
        found = self.moment(value)
        assert found is not None
        return found

    def attempts(self, job_id: int) -> Sequence[Attempt]:
        """Every attempt: those with a record, and the last one as the row tells it."""
        with self.work(write=False):
            job = self._get(job_id)
            found = [self._attempt_of(row) for row in self.rows("attempts", {"id": job_id})]
        if job.attempt > len(found):
            outcome = AttemptEnd.SUCCESS if job.final else None
            found.append(Attempt(job.attempt, job.start_time, job.end_time, outcome, None, None, job.worker))
        return found

    def _attempt_of(self, row: RowDict) -> Attempt:
        error = None if row["error"] is None else error_of(row["error"])
        start, end = self.moment(row["start_time"]), self.moment(row["end_time"])
        return Attempt(row["attempt"], start, end, AttemptEnd(row["outcome"]), error, row["traceback"], row["worker"])

    def history(self, job_id: int) -> Sequence[Move]:
        """Every move in order, told from the row, the attempts' records and the audit (J9)."""
        with self.work(write=False):
            job = self._get(job_id)
            records = self.rows("attempts", {"id": job_id})
            audits = self.rows("audits", {"id": job_id})
        actors = {row["attempt"]: row["actor"] for row in audits if row["action"] == "abort"}
        moves = [Move(job.create_time, None, State.INITIAL, 0, "enqueued", "app")]
        for row in records:
            self._tell_attempt(moves, row, actors)
        if job.attempt > len(records):
            worker = f"worker {job.worker}"
            moves.append(
                Move(
                    job.start_time or job.create_time, moves[-1].to_state, State.RUNNING, job.attempt, "claimed", worker
                )
            )
            if job.final:
                moves.append(
                    Move(job.end_time or job.update_time, State.RUNNING, State.FINAL, job.attempt, "success", worker)
                )
        elif job.final and moves[-1].to_state is not State.FINAL:
            self._tell_end(moves, job, actors.get(job.attempt, "holdfast"))
        return moves

    def _tell_end(self, moves: list[Move], job: Job, actor: str) -> None:
        """The end of a job whose last attempt was over before: it was in `error`, or loose and ended by way of it (J7)."""
        end, cause = job.end_time or job.update_time, job.error.kind if job.error else "success"
        if job.error and moves[-1].to_state is State.RUNNING:
            moves.append(Move(end, State.RUNNING, State.ERROR, job.attempt, cause, actor))
        moves.append(Move(end, moves[-1].to_state, State.FINAL, job.attempt, cause, actor))

    def _tell_attempt(self, moves: list[Move], row: RowDict, actors: Mapping[int, str]) -> None:
        attempt, cause, end = row["attempt"], row["outcome"], self._known(row["end_time"])
        worker = "holdfast" if row["worker"] is None else f"worker {row['worker']}"
        moves.append(
            Move(self.moment(row["start_time"]) or end, moves[-1].to_state, State.RUNNING, attempt, "claimed", worker)
        )
        actor = actors.get(attempt, worker) if cause == AttemptEnd.ABORTED else worker
        if cause == AttemptEnd.SUCCESS:
            moves.append(Move(end, State.RUNNING, State.FINAL, attempt, cause, actor))
        elif row["error"] is None:
            moves.append(Move(end, State.RUNNING, State.RUNNING, attempt, cause, actor))
        else:
            moves.append(Move(end, State.RUNNING, State.ERROR, attempt, cause, actor))
            if row["state"] == State.FINAL:
                moves.append(Move(end, State.ERROR, State.FINAL, attempt, cause, actor))

    # What happens to jobs

    def report(self, reports: Sequence[Report]) -> Sequence[Change | None]:
        """Carry out what happened; None for each report that is stale."""
        with self.work():
            return self.apply(reports)

    def apply(self, reports: Sequence[Report]) -> list[Change | None]:
        """`report` inside a transaction."""
        if not reports:
            return []
        outside = [report.job_id for report in reports if report.attempt is None]
        if outside:
            self._drop_hints(outside)
        locked = self._lock([report.job_id for report in reports])
        reports = self._heed_aborts(reports)
        now, types = self.now(), self._read_types()
        changes: list[Change | None] = []
        for report in reports:
            row = locked.get(report.job_id)
            change = None
            if row is not None and self._owns(report, row):
                rules = self._rules(types.get(row.job_type))
                change = decide(row, report.happening, rules, now, random.random())
                self._write(change, now, report)
                locked[report.job_id] = None
            changes.append(change)
        self._end_rows(changes, now)
        return changes

    def _heed_aborts(self, reports: Sequence[Report]) -> Sequence[Report]:
        """An attempt that somebody wants to end and that ends by itself, though not in success, ends as they want (J10)."""
        wishes = {
            row["job"]: row
            for row in self.rows("aborts_among", {"ids": self.pack([report.job_id for report in reports])})
        }
        return [
            structs.replace(
                report, happening=Aborted(wishes[report.job_id]["actor"], getattr(report.happening, "seconds", None))
            )
            if report.job_id in wishes
            and report.attempt == wishes[report.job_id]["attempt"]
            and not isinstance(report.happening, Succeeded | Aborted)
            else report
            for report in reports
        ]

    def _lock(self, ids: Sequence[int]) -> dict[int, Row | None]:
        return {row["id"]: self._row_of(row) for row in self.rows("lock_jobs", {"ids": self.pack(sorted(set(ids)))})}

    def _row_of(self, row: RowDict) -> Row:
        return Row(
            id=row["id"],
            queue=row["queue"],
            job_type=row["job_type"],
            job_key=row["job_key"],
            state=State(row["state"]),
            situation=None if row["situation"] is None else Situation(row["situation"]),
            attempt=row["attempt"],
            failures=row["failures"],
            losses=row["losses"],
            crashes=row["crashes"],
            retries=row["retries"],
            timeout=row["timeout"],
            priority=row["priority"],
            throttle_factor=row["throttle_factor"],
            time_windows=() if row["time_windows"] is None else decode_words(row["time_windows"]),
            scheduled_run_time=self._known(row["scheduled_run_time"]),
            expires_time=self.moment(row["expires_time"]),
            start_time=self.moment(row["start_time"]),
            worker=row["worker"],
        )

    def _owns(self, report: Report, row: Row) -> bool:
        """The fence (J5): an attempt's own report counts only while that attempt holds the job."""
        if report.attempt is None:
            return True
        if isinstance(report.happening, Decided) and row.state is State.ERROR:
            return row.attempt == report.attempt
        return (row.state, row.attempt, row.situation) == (State.RUNNING, report.attempt, Situation.HELD)

    def _rules(self, declared: TypeRow | None) -> Rules:
        if declared is None:
            return Rules()
        policy = retry.decode(declared.retry)
        return Rules(policy, declared.on_crash, declared.max_crashes, declared.has_retry_handler)

    def _write(self, change: Change, now: datetime, report: Report) -> None:
        row = change.row
        for index, step in enumerate(change.steps):
            self._move(change, index, now)
            row_attempt = step.attempt
        if change.record is not None and not self._plain(change):
            self._record(change, row_attempt, now)
        if report.actor is not None:
            self._audit(report.actor, report.action, job=row.id, attempt=row_attempt, queue=row.queue)
        if change.undecided:
            self.run("add_undecided", {"job_type": row.job_type, "id": row.id})
            self.announce([row.queue])
        if change.place_time is not None:
            self._place(row, change.place_time, change.closes_time, now)
        if change.deadline_time is not None:
            self.run(
                "lease_until",
                {"queue": row.queue, "deadline": self.time(change.deadline_time), "ids": self.pack([row.id])},
            )
        if isinstance(report.happening, Decided) and row.state is State.ERROR:
            self.run("drop_undecided", {"job_type": row.job_type, "id": row.id})
        if change.final:
            self.run("drop_abort", {"job": row.id})

    def _plain(self, change: Change) -> bool:
        return change.record is not None and change.record.end is AttemptEnd.SUCCESS

    def _move(self, change: Change, index: int, now: datetime) -> None:
        row, step = change.row, change.steps[index]
        was = change.steps[index - 1] if index else None
        last = index == len(change.steps) - 1
        seconds = change.record.seconds if change.record and last else None
        held = step.situation is Situation.HELD
        params = {
            "id": row.id,
            "was": (was.state if was else row.state).value,
            "attempt": was.attempt if was else row.attempt,
            "situation_was": _text(was.situation if was else row.situation),
            "state": step.state.value,
            "situation": _text(step.situation),
            "to_attempt": step.attempt,
            "outcome": _text(step.outcome),
            "error": self._stored_error(step),
            "result": change.result if last else None,
            "payload": change.payload if last else None,
            "failures": change.failures if last else row.failures,
            "losses": change.losses if last else row.losses,
            "crashes": change.crashes if last else row.crashes,
            "scheduled_run_time": self.time(change.place_time) if last else None,
            "worker": None if step.state is State.RUNNING and not held else row.worker,
            "end_time": self.time(now) if step.state is State.FINAL else None,
            "seconds": seconds,
            "now": self.time(now),
        }
        if self.run("move", params, row.queue) != 1:
            raise IllegalMove(
                f"Job {row.id} changed while its row was locked. This is a defect of Holdfast; please report it."
            )

    def _stored_error(self, step: Step) -> str | None:
        """The word NONE or JSON (J4); None for a job that stays in `error` and keeps what it has."""
        if step.error is not None:
            return encode_json(step.error).decode()
        return None if step.state is State.ERROR else "NONE"

    def _record(self, change: Change, attempt: int, now: datetime) -> None:
        row, record = change.row, change.record
        assert record is not None
        self.run(
            "add_attempt",
            {
                "job": row.id,
                "attempt": attempt,
                "start_time": self.time(row.start_time) if attempt == row.attempt else None,  # it was never called
                "now": self.time(now),
                "outcome": record.end.value,
                "state": change.steps[-1].state.value,
                "error": None if record.error is None else encode_json(record.error).decode(),
                "traceback": None if record.traceback is None else storable(record.traceback),
                "seconds": record.seconds,
                "worker": None if row.worker is None or attempt != row.attempt else str(row.worker),
            },
        )

    def _end_rows(self, changes: Sequence[Change | None], now: datetime) -> None:
        """Note what became final, for the archiver and for the list of the dead."""
        ended: dict[str, list[int]] = {}
        for change in changes:
            if change is not None and change.final:
                ended.setdefault(change.row.queue, []).append(change.row.id)
                if change.steps[-1].outcome is not Outcome.SUCCESS:
                    self.run("add_dead", {"now": self.time(now), "id": change.row.id, "queue": change.row.queue})
        for queue, ids in ended.items():
            self.run("note_ended", {"now": self.time(now), "queue": queue, "ids": self.pack(ids)})
            if self.queue_row(queue).throttle_limit >= 1:
                self.announce([queue])  # an end makes room

    # Queues with a limit

    def claim_limited(self, turn: Turn, want: Want) -> list[Claimed]:
        """Claim what fits under the limit, with the queue to ourselves (W3). Nothing is claimed ahead."""
        params = {"queue": want.queue}
        queue = self.rows("lock_queue", params)[0]
        limit, room = queue["throttle_limit"], min(want.room, want.free)
        if queue["paused"] or room <= 0:
            return []
        types = {name for row in self.rows("live_types") for name in decode_words(row["types"])}
        most = limit * (1 + throttle.TOLERANCE) if limit >= 1 else math.inf
        looked = {**params, "types": self.words(sorted(types)), "most": most, "limit": room + 1}
        found = self.rows("candidates", {**looked, "now": self.time(self.now())})
        used = self.rows("used", params, want.queue)[0]["used"]
        candidates = [throttle.Candidate(row["id"], row["throttle_factor"]) for row in found]
        admitted = set(throttle.admit(limit, used, candidates).admitted)
        chosen = [row for row in found if row["id"] in admitted and row["job_type"] in turn.types][:room]
        if len(admitted) > len(chosen):
            self.announce([want.queue])  # there is room under the limit that others may fill
        return self.claim_these(turn, want.queue, chosen) if chosen else []

    @abstractmethod
    def claim_these(self, turn: Turn, queue: str, chosen: Sequence[RowDict]) -> list[Claimed]:
        """Let chosen jobs enter running, each under a lease of its own that carries its factor."""

    # Where to look for jobs

    def _place(self, row: Row, at: datetime, closes: datetime | None, now: datetime) -> None:
        """Into the claim order if its time has come, else among the waiting."""
        if at > now:
            params = {"wake_time": self.time(at), "id": row.id, "queue": row.queue, "closes_time": self.time(closes)}
            self.run("place_waiting", params)
            self.announce([row.queue])
            return
        major, minor = self.rank(row.queue, row.priority, at)
        params = {"queue": row.queue, "major": major, "minor": minor, "id": row.id, "job_type": row.job_type}
        params |= {"throttle_factor": row.throttle_factor, "closes_time": self.time(closes), "now": self.time(now)}
        self.run("place_ready", params)
        self.announce([row.queue])

    def rank(self, queue: str, priority: float, at: datetime) -> tuple[float, float]:
        """The two numbers that order due jobs (W2)."""
        instant = self.instant(at)
        by_time = self.queue_row(queue).claim_order == "schedule"
        return (instant, priority) if by_time else (priority, instant)

    @abstractmethod
    def instant(self, at: datetime) -> float:
        """The moment as the number that stands in `ready`."""

    def _drop_hints(self, ids: Sequence[int], unbegun: bool = False) -> None:
        """Before the row is locked, as a claim does it. `unbegun`: only of jobs that are still `initial`."""
        for row in self.rows("jobs_by_id", {"ids": self.pack(ids)}):
            if (
                row["state"] == "final"
                or row["situation"] in ("held", "waiting")
                or (unbegun and row["state"] != "initial")
            ):
                continue
            job = self._row_of(row)
            major, minor = self.rank(job.queue, job.priority, job.scheduled_run_time)
            self.run("drop_ready", {"queue": job.queue, "id": job.id, "major": major, "minor": minor})
            self.run("drop_waiting", {"id": job.id, "wake_time": row["scheduled_run_time"]})
            self.run("drop_parked", {"id": job.id, "job_type": job.job_type})
            self.run("drop_undecided", {"id": job.id, "job_type": job.job_type})

    # From outside

    def retry(self, new: NewJob, actor: str) -> Job:
        """A new job in place of a final one, and an audit row with the final one that says who wanted it (J11)."""
        with self.work():
            job = self.insert([new])[0]
            self._audit(actor, "retry", job=new.retry_of, queue=new.queue, detail=f"job {job.id}")
            return job

    def abort(self, job_id: int, actor: str) -> Job:
        """End the job: at once if nobody holds it, else its worker is asked to (J10)."""
        with self.work():
            job = self._get(job_id)
            if not job.archived:
                self._drop_hints([job_id])
                row = self._lock([job_id]).get(job_id)
                if row is not None and row.situation is Situation.HELD and self._worker_lives(row.worker):
                    self._ask_to_abort(row, actor)
                    return self._get(job_id)
            if job.archived or row is None or row.state is State.FINAL:
                raise IllegalMove(
                    f"Job {job_id} is `final` ({job.outcome}) and may not become `running` or `error`: it cannot be aborted."
                )
            self.apply([Report(job_id, Aborted(actor), actor=actor, action="abort")])
            return self._get(job_id)

    def _ask_to_abort(self, row: Row, actor: str) -> None:
        params = {"job": row.id, "attempt": row.attempt, "worker": row.worker, "actor": actor}
        self.run("add_abort", {**params, "now": self.time(self.now())})
        self._audit(actor, "abort", job=row.id, attempt=row.attempt, queue=row.queue)
        self.tell(News.ABORT)

    def _worker_lives(self, worker: int | None) -> bool:
        return any(row["id"] == worker for row in self.rows("workers"))

    # Workers

    def join(self, worker: WorkerJoin) -> int:
        """A new identity, never used before."""
        params: dict[str, Any] = {name: getattr(worker, name) for name in WorkerJoin.__struct_fields__}
        for name in ("queues", "types", "labels"):
            params[name] = encode_json(params[name]).decode()
        with self.work():
            row = self.rows("join", {**params, "now": self.time(self.now())})[0]
            for job_type in worker.types:
                self._unpark(job_type)
            found: int = row["id"]
            return found

    def pulse(self) -> Pulse:
        """One question that saves a sweeper many."""
        with self.lone():
            row = self.rows("pulse", {"now": self.time(self.given_now())})[0]
        flags = {name: bool(row[name]) for name in ("shut", "aborts", "strays", "undecided")}
        return Pulse(row["overdue_in"], **flags)

    def given_now(self) -> datetime | None:
        """The time to tell a statement; None where the database knows it better."""
        return self.now()

    def beat(self, worker: int, stopping: bool = False) -> bool:
        """Move the counter; False tells a worker that it was called lost."""
        with self.lone_write():
            return bool(self.rows("beat", {"id": worker, "stopping": stopping, "now": self.time(self.given_now())}))

    def leave(self, worker: int) -> None:
        with self.work():
            self.run("leave", {"id": worker, "gone": "left", "now": self.time(self.now())})

    def workers(self) -> Sequence[WorkerRow]:
        with self.lone():
            return [self._worker_of(row) for row in self.rows("workers")]

    def _worker_of(self, row: RowDict) -> WorkerRow:
        values = {name: row[name] for name in WorkerRow.__struct_fields__}
        for name in ("queues", "types", "labels"):
            values[name] = decode_words(values[name])
        values["start_time"], values["beat_time"] = self.moment(row["start_time"]), self.moment(row["beat_time"])
        values["stopping"] = bool(row["stopping"])
        return WorkerRow(**values)

    def aborts(self, worker: int) -> Sequence[tuple[int, int, str]]:
        """(job, attempt, actor) of what this worker is asked to end."""
        with self.lone():
            return [(row["job"], row["attempt"], row["actor"]) for row in self.rows("aborts_of", {"worker": worker})]

    def undecided(self, types: Sequence[str]) -> Sequence[int]:
        with self.lone():
            rows = self.rows("undecided", {"types": self.words(types), "limit": BATCH})
            return [row["id"] for row in rows]

    @abstractmethod
    def words(self, values: Sequence[str]) -> Any:
        """A list of words as a parameter."""

    # The sweeper's verbs

    def lose(self, worker: int) -> int:
        """Call a worker lost: its jobs are loose again, or wait for their timeout (C3). How many jobs it had."""
        with self.work():
            if not self.run("leave", {"id": worker, "gone": "lost", "now": self.time(self.now())}):
                return 0
            return self._recover(self.rows("leases_of", {"worker": worker}), worker)

    def recover_strays(self) -> int:
        """Jobs under leases of workers that are gone, however that came."""
        with self.work():
            strays = self.rows("stray_leases", {"limit": BATCH})
            return sum(self._recover([lease], lease["worker"]) for lease in strays)

    def _recover(self, leases: Sequence[RowDict], worker: int) -> int:
        ids = [job for lease in leases for job in self.unpack(lease["ids"])]
        reports = [
            Report(row.id, Lost(), attempt=row.attempt)
            for row in self._lock(ids).values()
            if row is not None and row.situation is Situation.HELD and row.worker == worker
        ]
        self.apply(reports)
        for lease in leases:
            self.run("drop_lease", {"id": lease["id"]})
        return len(reports)

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
        """Jobs that nobody holds and whose time is over: the error path. Seconds until the next such moment."""
        with self.work():
            now = self.now()
            leases = self.rows("overdue", {"now": self.time(now), "limit": BATCH})
            ids = [job for lease in leases for job in self.unpack(lease["ids"])]
            overdue = [row for row in self._lock(ids).values() if row is not None and self._is_overdue(row, now)]
            self.apply([self._timed_out(row) for row in overdue])
            for lease in leases:
                self.run("drop_lease", {"id": lease["id"]})
            deadline = self.moment(self.rows("next_deadline")[0]["deadline_time"])
            return None if deadline is None else max(0.0, (deadline - now).total_seconds())

    def _is_overdue(self, row: Row, now: datetime) -> bool:
        """The lease is a hint: the job may have gone on to an attempt that has time left."""
        return row.situation is Situation.HELD and row.timeout is not None and timeout_ends(row, now) <= now

    def _timed_out(self, row: Row) -> Report:
        error = JobError("Timeout", f"timeout: not finished after {row.timeout:g} s", "timeout")
        return Report(row.id, Raised(error), attempt=row.attempt)

    def end_old_aborts(self, seconds: float) -> int:
        """Jobs whose worker was asked to end them and did not: ended here (J10)."""
        with self.work():
            now = self.now()
            wishes = self.rows("old_aborts", {"before": self.time(now - timedelta(seconds=seconds)), "limit": BATCH})
            reports = [Report(row["job"], Aborted(row["actor"]), attempt=row["attempt"]) for row in wishes]
            changes = self.apply(reports)
            for row in wishes:
                self.run("drop_abort", {"job": row["job"]})
            return sum(change is not None for change in changes)

    def shut(self) -> int:
        """Due jobs that may not start any more: expired ones end, closed windows wait for their next opening."""
        with self.work():
            now = self.now()
            params = {"now": self.time(now), "limit": BATCH}
            ids = [row["id"] for name in ("drop_shut", "drop_shut_parked") for row in self.rows(name, params)]
            reports = []
            for row in self._lock(ids).values() if ids else ():
                if row is None or row.state is State.FINAL or row.situation not in (None, Situation.LOOSE):
                    continue  # the hint was wrong, and is gone
                if row.expires_time is not None and row.expires_time <= now:
                    reports.append(Report(row.id, Expired()))
                elif row.time_windows:
                    reports.append(Report(row.id, Moved()))
                else:
                    self._place(row, row.scheduled_run_time, row.expires_time, now)
            return len(self.apply(reports))

    def park(self, handled: Sequence[str]) -> int:
        """Due jobs of types nobody handles leave the line; parked ones of handled types come back (Q4)."""
        moved = 0
        with self.work():
            for row in self.rows("parked_types"):
                if row["job_type"] in handled:
                    moved += self._unpark(row["job_type"])
            for queue in self._read_queues():
                for row in self.rows("head_types", {"queue": queue.name, "limit": BATCH}):
                    if row["job_type"] not in handled:
                        params = {"queue": queue.name, "job_type": row["job_type"], "limit": 10 * BATCH}
                        moved += self.run("park", params)
                        self.run("drop_ready_parked", params)
        return moved

    def _unpark(self, job_type: str) -> int:
        params = {"job_type": job_type, "limit": 10 * BATCH}
        moved = self.run("unpark", {**params, "now": self.time(self.now())})
        self.run("drop_unparked", params)
        if moved:
            self.announce([])
        return moved

    def restore(self, after: int, count: int, older_than: float) -> tuple[int, int]:
        """Give living jobs of the next `count` ids their hint back if they lost it (C4).

        Answers the id to go on after (0: begin again) and how many were found.
        """
        with self.work():
            now = self.now()
            last = self.rows("last_id")[0]["last"] or 0
            upto = min(after + count, last)
            params = {"after": after, "upto": upto, "before": self.time(now - timedelta(seconds=older_than))}
            found, types = 0, self._read_types()
            for queue in self._read_queues():
                for row in self.rows("forgotten", params, queue.name):
                    found += self._restore_one(self._row_of(row), types, now)
                found += self._unleased(params, queue.name)
            return (0 if upto >= last else upto), found

    def _restore_one(self, seen: Row, types: Mapping[str, TypeRow], now: datetime) -> int:
        row = self._lock([seen.id]).get(seen.id)
        if row is None or (row.state, row.attempt, row.situation) != (seen.state, seen.attempt, seen.situation):
            return 0
        if self._is_undecided(row, types.get(row.job_type)):
            self.run("add_undecided", {"job_type": row.job_type, "id": row.id})
            self.announce([row.queue])
        elif row.time_windows:
            self.apply([Report(row.id, Moved())])
        else:
            self._place(row, row.scheduled_run_time, row.expires_time, now)
        return 1

    def _is_undecided(self, row: Row, declared: TypeRow | None) -> bool:
        """No retry has been decided: the time at which it is wanted is still that of the attempt which failed."""
        asked = declared is not None and declared.has_retry_handler and row.state is State.ERROR
        return asked and row.start_time is not None and row.scheduled_run_time <= row.start_time

    def _unleased(self, params: Mapping[str, Any], queue: str) -> int:
        held = self.rows("held_rows", params, queue)
        if not held:
            return 0
        leased = {row["id"] for row in self.rows("leased_ids")}
        reports = []
        for row in self._lock([row["id"] for row in held if row["id"] not in leased]).values():
            if row is not None and row.situation is Situation.HELD:
                reports.append(Report(row.id, Lost(), attempt=row.attempt))
        return sum(change is not None for change in self.apply(reports))

    def archive(self, older_than: float, limit: int = 10_000) -> int:
        """Move jobs that ended `older_than` seconds ago out of the hot tables (E4)."""
        with self.work():
            now = self.now()
            before = self.time(now - timedelta(seconds=older_than))
            moved = 0
            for row in self.rows("old_ended", {"before": before, "limit": BATCH}):
                params = {"ids": row["ids"], "now": self.time(now), "before": before}
                self.make_room_in_archive(self._known(row["end_time"]))
                moved += self.run("to_archive", params, row["queue"])
                self.run("drop_archived", params, row["queue"])
                self.run("drop_dead", params)
                self.run("drop_ended", {"id": row["id"]})
                if moved >= limit:
                    break
            self.run("forget_workers", {"before": self.time(now - timedelta(days=7))})
            return moved

    @abstractmethod
    def make_room_in_archive(self, end_time: datetime) -> None:
        """For jobs that ended at this time, where the archive has parts."""

    def tidy(self) -> str | None:
        """What the database needs from time to time; a sentence if something is wrong."""
        return None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """The caller's own transaction; enqueues inside commit or roll back with it (Q6)."""
        with self.work():
            yield None


class _Adding:
    """One caller's jobs on their way into the store."""

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.added: Sequence[Job] = ()
        self.error: BaseException | None = None
        self._leads = False
        self._woken = threading.Event()

    def wait(self) -> bool:
        """Until it is stored, or until it has to lead (True)."""
        self._woken.wait()
        return self._leads

    def lead(self) -> None:
        self._leads = True
        self._woken.set()

    def finish(self, added: Sequence[Job]) -> None:
        self.added = added
        self._woken.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self._woken.set()

    def fail_if_forgotten(self) -> None:
        """The caller who led was interrupted."""
        if not self._woken.is_set():
            self.fail(
                Unavailable("Storing jobs was interrupted in another thread. Nothing of yours was stored; try again.")
            )


def _declared(row: QueueRow | None) -> QueueDeclared | None:
    """The part of a stored queue that the code declares."""
    return None if row is None else QueueDeclared(row.name, row.table_name, row.claim_order, row.declared_limit)


def error_of(text: str) -> JobError | None:
    """The stored form: the word NONE, or JSON (J4)."""
    return None if text == "NONE" else decode_error(text)


def storable(text: str) -> str:
    """What both databases can keep as text: no NUL, no half of a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _text(value: Any) -> str | None:
    return None if value is None else value.value
