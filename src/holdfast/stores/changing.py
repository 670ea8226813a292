"""What happens to jobs: a row is locked, `decide` says what it means, and it is written, or it is stale.

Rules:
- A job's row is locked before anything is decided about it; hints are dropped before the row is locked, because
  a claim takes them in that order too.
- What happens to a job is decided by `holdfast.jobs.states.decide` and by nothing here.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from holdfast.errors import Conflict, IllegalMove, NotFound, backticked
from holdfast.jobs import breaker as breaking
from holdfast.jobs import retry
from holdfast.jobs.breaker import Breaker
from holdfast.jobs.job import Answer, Job, Situation, State
from holdfast.jobs.states import (
    Aborted,
    Answered,
    Change,
    Decided,
    Moved,
    Raised,
    Row,
    Rules,
    Succeeded,
    decide,
    is_waiting,
)
from holdfast.stores.breaking import NO_WINS, TELLING
from holdfast.stores.contract import (
    Filter,
    News,
    Report,
    TypeRow,
)
from holdfast.stores.reader import RowReader, read_policy, situation_of, state_of
from holdfast.stores.statements import RowDict, encode_json
from holdfast.stores.writing import Writing


class Changing(Writing):
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
        locked, wishes, types, now = self._look(reports)
        reports = self._heed_aborts(reports, wishes)
        lessons = self.lessons([row.job_type for report in reports if (row := self._telling(report, locked))], wins)
        changes: list[Change | None] = []
        for report in reports:
            row = locked.get(report.job_id)
            change = None
            if row is not None and self._owns(report, row) and self._first_answer(report, row):
                rules = self._rules(types.get(row.job_type), lessons.breaker(row.job_type), now)
                change = decide(row, report.happening, rules, now, random.random())
                lessons.learn(rules.policy, change, report.happening, now)
                locked[report.job_id] = None
            changes.append(change)
        told = [(report, change) for report, change in zip(reports, changes, strict=True) if change is not None]
        if told:
            self.write_changes(told, now)
        self._end_rows(reports, changes, now)
        self.keep_breakers(lessons.before, lessons.after)
        return changes

    def _telling(self, report: Report, locked: Mapping[int, Row | None]) -> Row | None:
        """The row of a report that may tell its type's breaker something."""
        return locked.get(report.job_id) if isinstance(report.happening, TELLING) else None

    def _look(
        self, reports: Sequence[Report]
    ) -> tuple[dict[int, Row | None], Sequence[RowDict], Mapping[str, TypeRow], datetime]:
        """The rows, locked; the wishes to end them; their types; and the time after that. Queues are read as well: hints are
        placed by their order as it is now.
        """
        ids = self.pack(sorted({report.job_id for report in reports}))
        named = sorted({report.job_type for report in reports if report.job_type})
        asked: list[tuple[str, Mapping[str, Any]]] = [
            self.locking(reports, ids),
            ("aborts_among", {"ids": ids}),
            ("queues", {}),
            ("types_named", {"names": self.words(named)}),
        ]
        (rows, wishes, queues, found), now = self.rows_and_now(asked)
        self._learn_queues(queues)
        locked: dict[int, Row | None] = {row["id"]: self._row_of(row) for row in rows}
        others = {row["job_type"] for row in rows}.difference(named)
        types = self._learn_types(found) | (self._types_named(others) if others else {})
        return locked, wishes, types, now

    def locking(self, reports: Sequence[Report], ids: Any) -> tuple[str, Mapping[str, Any]]:
        """The question that locks their jobs."""
        return "lock_jobs", {"ids": ids}

    def _heed_aborts(self, reports: Sequence[Report], rows: Sequence[RowDict]) -> Sequence[Report]:
        """An attempt that somebody wants to end and that ends by itself, though not in success, ends as they want (J10)."""
        if not rows:
            return reports
        wishes = {row["job"]: row for row in rows}
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
        read = RowReader(row)
        return Row(
            id=row["id"],
            queue=row["queue"],
            job_type=row["job_type"],
            job_key=row["job_key"],
            state=state_of(read),
            situation=situation_of(read),
            attempt=row["attempt"],
            failures=row["failures"],
            losses=row["losses"],
            crashes=row["crashes"],
            retries=row["retries"],
            timeout=row["timeout"],
            priority=row["priority"],
            throttle_factor=row["throttle_factor"],
            time_windows=read.windows("time_windows"),
            scheduled_run_time=self._known(row["scheduled_run_time"]),
            expires_time=self.moment(row["expires_time"]),
            start_time=self.moment(row["start_time"]),
            worker=row["worker"],
            timeout_named=bool(row["timeout_named"]),
            retries_named=bool(row["retries_named"]),
            deadline_time=self.moment(row["deadline_time"]),
            answer=read.answer("answer"),
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
        policy = read_policy(declared.retry)
        handlers = declared.has_retry_handler, declared.has_response_handler
        over = isinstance(policy, retry.Adaptive) and breaker is not None and not breaking.affords(breaker, policy, now)
        return Rules(policy, declared.on_crash, declared.max_crashes, *handlers, over_budget=over)

    def _end_rows(self, reports: Sequence[Report], changes: Sequence[Change | None], now: datetime) -> None:
        """Note what became final, for the archiver, and do what follows from it."""
        ended: dict[str, list[int]] = {}
        for change in changes:
            if change is not None and change.final:
                ended.setdefault(change.row.queue, []).append(change.row.id)
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

    def place_again(self, row: Row, now: datetime) -> None:
        """Where the row says; its window may have closed meanwhile."""
        if row.time_windows:
            self.apply([Report(row.id, Moved())])
        else:
            self.place([(row, row.scheduled_run_time, row.expires_time)], now)

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
            raise NotFound(
                f"There is no job of type `{job_type}` with key {backticked(job_key)} in instance `{self.instance}`."
            )
        return found[0].id

    def _ask_to_abort(self, row: Row, actor: str) -> None:
        params = {"job": row.id, "attempt": row.attempt, "worker": row.worker, "actor": actor}
        self.run("add_abort", {**params, "now": self.time(self.now())})
        self._audit(actor, "abort", job=row.id, attempt=row.attempt, queue=row.queue)
        self.tell(News.ABORT)

    def _worker_lives(self, worker: int | None) -> bool:
        return any(row["id"] == worker for row in self.rows("workers"))
