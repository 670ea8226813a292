"""What happens to jobs: a row is locked, `decide` says what it means, and it is written, or it is stale.

Rules:
- A job's row is locked before anything is decided about it; hints are dropped before the row is locked, because
  a claim takes them in that order too.
- What happens to a job is decided by `holdfast.jobs.states.decide` and by nothing here.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import structs

from holdfast.errors import Conflict, IllegalMove, NotFound
from holdfast.jobs import breaker as breaking
from holdfast.jobs import retry
from holdfast.jobs.breaker import Breaker
from holdfast.jobs.job import Answer, AttemptEnd, Job, Outcome, Situation, State
from holdfast.jobs.payload import storable
from holdfast.jobs.states import (
    Aborted,
    Answered,
    Change,
    Decided,
    Moved,
    Raised,
    Row,
    Rules,
    Step,
    Succeeded,
    decide,
    is_waiting,
)
from holdfast.stores.breaking import NO_WINS, TELLING, Breaking
from holdfast.stores.contract import (
    Filter,
    News,
    Report,
    TypeRow,
)
from holdfast.stores.statements import RowDict, decode_answer, decode_words, encode_json, text_of


class Changing(Breaking):
    """Adds the verbs that move jobs."""

    def report(self, reports: Sequence[Report]) -> Sequence[Change | None]:
        """Carry out what happened; None for each report that is stale."""
        with self.work():
            return self.apply(reports)

    def apply(self, reports: Sequence[Report], wins: Mapping[str, int] = NO_WINS) -> list[Change | None]:
        """`report` inside a transaction. `wins`: the successes of adaptive types that are told of together with this."""
        if not reports:
            return []
        outside = [report.job_id for report in reports if report.attempt is None]
        if outside:
            self._drop_hints(outside)
        locked = self._lock([report.job_id for report in reports])
        reports = self._heed_aborts(reports)
        now, types = self.now(), self._types_named({row.job_type for row in locked.values() if row is not None})
        self._read_queues()  # their order as it is now: hints are placed by it
        lessons = self.lessons([row.job_type for report in reports if (row := self._telling(report, locked))], wins)
        changes: list[Change | None] = []
        for report in reports:
            row = locked.get(report.job_id)
            change = None
            if row is not None and self._owns(report, row) and self._first_answer(report, row):
                rules = self._rules(types.get(row.job_type), lessons.breaker(row.job_type), now)
                change = decide(row, report.happening, rules, now, random.random())
                self._write(change, now, report)
                lessons.learn(rules.policy, change, report.happening, now)
                locked[report.job_id] = None
            changes.append(change)
        self._end_rows(reports, changes, now)
        self.keep_breakers(lessons.before, lessons.after)
        return changes

    def _telling(self, report: Report, locked: Mapping[int, Row | None]) -> Row | None:
        """The row of a report that may tell its type's breaker something."""
        return locked.get(report.job_id) if isinstance(report.happening, TELLING) else None

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

    def _lock_free(self, ids: Sequence[int]) -> tuple[list[Row], set[int]]:
        """The jobs that nobody else has locked, and the ids of the others: what is swept does not wait for those."""
        rows = [self._row_of(row) for row in self.rows("lock_free_jobs", {"ids": self.pack(sorted(set(ids)))})]
        missing = set(ids) - {row.id for row in rows}
        busy = self.rows("jobs_by_id", {"ids": self.pack(sorted(missing))}) if missing else ()
        return rows, {row["id"] for row in busy if row["state"] != "final"}

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
            timeout_named=bool(row["timeout_named"]),
            retries_named=bool(row["retries_named"]),
            deadline_time=self.moment(row["deadline_time"]),
            answer=None if row["answer"] is None else decode_answer(row["answer"]),
            run=row["run"],
            update_time=self.moment(row["update_time"]),
        )

    def _owns(self, report: Report, row: Row) -> bool:
        """The fence (J5): an attempt's own report counts only while that attempt holds the job."""
        if report.attempt is None:
            return True
        if isinstance(report.happening, Decided) and row.state is State.ERROR:
            return row.attempt == report.attempt
        if isinstance(report.happening, Raised) and is_waiting(row):  # its wait is over
            return row.attempt == report.attempt and report.lease == 0
        return (row.state, row.attempt, row.situation) == (State.RUNNING, report.attempt, Situation.HELD)

    def _first_answer(self, report: Report, row: Row) -> bool:
        """Of several answers about an error that waited for its retry handler only the first counts."""
        if not (isinstance(report.happening, Decided) and row.state is State.ERROR):
            return True
        return self.run("drop_undecided", {"job_type": row.job_type, "id": row.id}) > 0

    def _rules(self, declared: TypeRow | None, breaker: Breaker | None, now: datetime) -> Rules:
        if declared is None:
            return Rules()
        policy = retry.decode(declared.retry)
        handlers = declared.has_retry_handler, declared.has_response_handler
        over = isinstance(policy, retry.Adaptive) and breaker is not None and not breaking.affords(breaker, policy, now)
        return Rules(policy, declared.on_crash, declared.max_crashes, *handlers, over_budget=over)

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
        if row.situation is Situation.WAITING:
            self.run("drop_wait", {"job": row.id})
        if change.steps[-1].situation is Situation.WAITING:
            self._lease_wait(row, change.deadline_time, report.lease)
        elif change.deadline_time is not None:
            self.run(
                "lease_until",
                {"queue": row.queue, "deadline": self.time(change.deadline_time), "ids": self.pack([row.id])},
            )
        if change.final:
            self.run("drop_abort", {"job": row.id})

    def _lease_wait(self, row: Row, deadline: datetime | None, held_under: int = 0) -> None:
        """It goes on counting against the limit, in the pool of the lease that its attempt had."""
        params = {"queue": row.queue, "factor": row.throttle_factor, "deadline": self.time(deadline), "job": row.id}
        self.run("lease_wait", {**params, "lease": held_under, "ids": self.pack([row.id])})

    def _plain(self, change: Change) -> bool:
        return change.record is not None and change.record.end is AttemptEnd.SUCCESS

    def _move(self, change: Change, index: int, now: datetime) -> None:
        row, step = change.row, change.steps[index]
        was = change.steps[index - 1] if index else None
        last = index == len(change.steps) - 1
        params = {
            "id": row.id,
            "was": (was.state if was else row.state).value,
            "attempt": was.attempt if was else row.attempt,
            "situation_was": text_of(was.situation if was else row.situation),
            "state": step.state.value,
            "situation": text_of(step.situation),
            "to_attempt": step.attempt,
            "outcome": text_of(step.outcome),
            "error": self._stored_error(step),
            "result": change.result if last else None,
            "payload": change.payload if last else None,
            "failures": change.failures if last else row.failures,
            "losses": change.losses if last else row.losses,
            "crashes": change.crashes if last else row.crashes,
            "scheduled_run_time": self.time(change.place_time) if last else None,
            "worker": None if step.situation is Situation.LOOSE else row.worker,  # whose attempt waits is kept
            "end_time": self.time(now) if step.state is State.FINAL else None,
            "deadline_time": self.time(change.deadline_time) if step.situation is Situation.WAITING else None,
            "keep_answer": change.answer is row.answer,
            "answer": None if change.answer is None else encode_json(change.answer).decode(),
            "seconds": change.seconds if last else None,
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

    def _end_rows(self, reports: Sequence[Report], changes: Sequence[Change | None], now: datetime) -> None:
        """Note what became final, for the archiver and for the list of the dead."""
        ended: dict[str, list[int]] = {}
        for change in changes:
            if change is not None and change.final:
                ended.setdefault(change.row.queue, []).append(change.row.id)
                if change.steps[-1].outcome is not Outcome.SUCCESS:
                    self.run("add_dead", {"now": self.time(now), "id": change.row.id, "queue": change.row.queue})
        turns = self.ends_of_turns(reports, changes, now) if ended else set()
        ended = {queue: [job for job in ids if job not in turns] for queue, ids in ended.items()} if turns else ended
        for queue, ids in ended.items():
            if ids:
                self.run("note_ended", {"now": self.time(now), "queue": queue, "ids": self.pack(ids)})
            if self.queue_row(queue).throttled:
                self.announce([queue])  # an end makes room
        self.ends_of_tasks(changes)

    def ends_of_turns(self, reports: Sequence[Report], changes: Sequence[Change | None], now: datetime) -> set[int]:
        """Turns of routines are among what became final: the next ones are made. Written where routines are known."""
        return set()

    def ends_of_tasks(self, changes: Iterable[Change | None]) -> None:
        """Tasks of workflows are among what became final: their runs go on. Written where runs are known."""

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

    def place_again(self, row: Row, now: datetime) -> None:
        """Where the row says; its window may have closed meanwhile."""
        if row.time_windows:
            self.apply([Report(row.id, Moved())])
        else:
            self._place(row, row.scheduled_run_time, row.expires_time, now)

    def rank(self, queue: str, priority: float, at: datetime) -> tuple[float, float]:
        """The two numbers that order due jobs (W2)."""
        instant = self.instant(at)
        by_time = self.queue_row(queue).claim_order == "schedule"
        return (instant, priority) if by_time else (priority, instant)

    def _drop_hints(self, ids: Sequence[int], unbegun: bool = False) -> int:
        """Before the row is locked, as a claim does it. `unbegun`: only of jobs that are still `initial`. How many there were."""
        dropped = 0
        for row in self.rows("jobs_by_id", {"ids": self.pack(ids)}):
            if (
                row["state"] == "final"
                or row["situation"] in ("held", "waiting")
                or (unbegun and row["state"] != "initial")
            ):
                continue
            job = self._row_of(row)
            major, minor = self.rank(job.queue, job.priority, job.scheduled_run_time)
            dropped += self.run("drop_ready", {"queue": job.queue, "id": job.id, "major": major, "minor": minor})
            dropped += self.run("drop_waiting", {"id": job.id, "wake_time": row["scheduled_run_time"]})
            if self.queue_row(job.queue).throttled:
                dropped += self.run("drop_aside", {"id": job.id})
            dropped += self.run("drop_parked", {"id": job.id, "job_type": job.job_type})
            dropped += self.run("drop_undecided", {"id": job.id, "job_type": job.job_type})
            if job.run is not None:
                dropped += self.run("drop_held", {"id": job.id})
        return dropped

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

    def answer(self, job: int | tuple[str, str], answer: Answer, actor: str) -> Job:
        """Answer a job that waits; one that does not wait yet keeps the answer until it does (R3)."""
        action = "complete" if answer.error is None else "fail"
        with self.work():
            job_id = job if isinstance(job, int) else self._newest(*job)
            row = self._lock([job_id]).get(job_id)
            if row is None or row.state is State.FINAL:
                found = self._get(job_id)
                raise Conflict(
                    f"Job {found.id} ({found.job_type}) is `final` ({found.outcome}): it waits for no answer."
                )
            if row.answer is not None:
                raise Conflict(f"Job {row.id} ({row.job_type}) has an answer already, and the first one counts.")
            if is_waiting(row):
                self.apply([Report(job_id, Answered(answer), actor=actor, action=action)])
            else:
                text = encode_json(answer).decode()
                self.run("keep_answer", {"id": job_id, "answer": text, "now": self.time(self.now())}, row.queue)
                self._audit(actor, action, job=job_id, attempt=row.attempt, queue=row.queue, detail="kept")
            return self._get(job_id)

    def _newest(self, job_type: str, job_key: str) -> int:
        """The living job of a key, else the last one that had it."""
        for row in self.rows("key_holder", {"job_type": job_type, "job_key": job_key}):
            return int(row["id"])
        found = self._find(Filter(job_type, job_key, limit=1, archive=True))
        if not found:
            raise NotFound(f"There is no job of type `{job_type}` with key `{job_key}` in instance `{self.instance}`.")
        return found[0].id

    def _ask_to_abort(self, row: Row, actor: str) -> None:
        params = {"job": row.id, "attempt": row.attempt, "worker": row.worker, "actor": actor}
        self.run("add_abort", {**params, "now": self.time(self.now())})
        self._audit(actor, "abort", job=row.id, attempt=row.attempt, queue=row.queue)
        self.tell(News.ABORT)

    def _worker_lives(self, worker: int | None) -> bool:
        return any(row["id"] == worker for row in self.rows("workers"))
