"""Reading jobs: from the row, the attempts' records and the audit."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.errors import Invalid, NotFound, quoted
from holdfast.jobs.job import Attempt, AttemptEnd, Job, Move, Progress, Situation, State
from holdfast.jobs.states import (
    STATUS,
    UNANSWERED,
)
from holdfast.stores.contract import (
    Filter,
)
from holdfast.stores.declared import Declared
from holdfast.stores.reader import RowReader, outcome_of, situation_of, state_of
from holdfast.stores.statements import RowDict


class Reading(Declared):
    """Adds the verbs that only look."""

    def get(self, job_id: int) -> Job:
        with self.work(write=False):
            return self._get(job_id)

    def get_each(self, job_ids: Sequence[int], ends: float) -> Sequence[Job | Exception]:
        """Each job, or the error for it; waits for none after `ends`."""
        with self.until(ends), self.work(write=False):
            rows = self.rows("jobs_by_id", {"ids": self.pack(job_ids)})
            found = {row["id"]: self.job_of(row) for row in rows}
            return [found.get(job_id) or self._got(job_id) for job_id in job_ids]

    def _got(self, job_id: int) -> Job | Exception:
        try:
            return self._get(job_id)
        except NotFound as error:
            return error

    def _get(self, job_id: int) -> Job:
        return self.job_of(self._stored(job_id))

    def _stored(self, job_id: int) -> RowDict:
        if not 0 < job_id < 2**63:
            raise NotFound(f"There is no job {job_id}: ids are positive 64-bit numbers.")
        for name in ("job", "archived_job"):
            for row in self.rows(name, {"id": job_id}):
                return row
        raise NotFound(f"There is no job {job_id} in instance `{self.instance}`.")

    def find(self, wanted: Filter) -> Sequence[Job]:
        """Newest first."""
        with self.work(write=False):
            return self._find(wanted)

    def _find(self, wanted: Filter) -> list[Job]:
        params = self._filter(wanted)
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
                raise Invalid(f"status={quoted(wanted.status)}: known are {', '.join(sorted(set(STATUS.values())))}.")
            if wanted.state not in (None, pairs[0][0]):
                params["limit"] = 0
            params["state"] = pairs[0][0].value
            params["outcome"] = "success" if wanted.status == "completed" else None
            params["dead"] = True if wanted.status == "dead" else None
        return params

    def job_of(self, row: RowDict, duplicate: bool = False) -> Job:
        """The value for a row of a job table or of the archive. The worker of a wait is its attempt's, not the job's (R3)."""
        read = RowReader(row)
        state, outcome = state_of(read), outcome_of(read)
        return Job(
            id=row["id"],
            job_type=row["job_type"],
            job_key=row["job_key"],
            queue=row["queue"],
            state=state,
            status=STATUS.get((state, outcome), "dead"),
            situation=situation_of(read),
            outcome=outcome,
            payload=read.table("payload"),
            result=read.value("result"),
            error=read.error("error"),
            attempt=row["attempt"],
            failures=row["failures"],
            losses=row["losses"],
            crashes=row["crashes"],
            retries=row["retries"],
            priority=row["priority"],
            timeout=row["timeout"],
            throttle_factor=row["throttle_factor"],
            time_windows=read.texts("time_windows"),
            scheduled_run_time=self._known(row["scheduled_run_time"]),
            expires_time=self.moment(row["expires_time"]),
            create_time=self._known(row["create_time"]),
            update_time=self._known(row["update_time"]),
            start_time=self.moment(row["start_time"]),
            end_time=self.moment(row["end_time"]),
            execution_time=row["execution_time"],
            total_time=row["total_time"],
            worker=None if row["situation"] == Situation.WAITING else _worker_of(row),
            retry_of=row["retry_of"],
            progress=None if row["progress"] is None else Progress(row["progress"], row["progress_text"] or ""),
            answer=read.answer("answer"),
            run=row["run"],
            duplicate=duplicate,
            archived="archive_time" in row,
            damaged=tuple(read.damaged),
            source=self.source,
        )

    def _known(self, value: Any) -> datetime:
        found = self.moment(value)
        assert found is not None
        return found

    def attempts(self, job_id: int) -> Sequence[Attempt]:
        """Every attempt: those with a record, and the last one as the row tells it."""
        with self.work(write=False):
            row = self._stored(job_id)
            found = [self._attempt_of(row) for row in self.rows("attempts", {"id": job_id})]
        return self.with_last(self.job_of(row), found, _worker_of(row))

    def with_last(self, job: Job, found: list[Attempt], worker: str | None) -> list[Attempt]:
        """The attempts that have a record, and the last one where the row tells it; `worker` is the row's."""
        if job.attempt > len(found):
            outcome = AttemptEnd.SUCCESS if job.final else None
            found.append(Attempt(job.attempt, job.start_time, job.end_time, outcome, None, None, worker))
        return found

    def _attempt_of(self, row: RowDict) -> Attempt:
        read = RowReader(row)
        error, start, end = read.error("error"), self.moment(row["start_time"]), self.moment(row["end_time"])
        outcome = read.one_of("outcome", AttemptEnd, AttemptEnd.ERROR)
        return Attempt(row["attempt"], start, end, outcome, error, row["traceback"], row["worker"])

    def history(self, job_id: int) -> Sequence[Move]:
        """Every move in order, told from the row, the attempts' records and the audit (J9)."""
        with self.work(write=False):
            row = self._stored(job_id)
            records = self.rows("attempts", {"id": job_id})
            audits = self.rows("audits", {"id": job_id})
            made_by = [f"schedule {row['schedule']}" for row in self.rows("firing_of", {"job": job_id})]
        job, worker = self.job_of(row), _told(_worker_of(row))
        actors = {row["attempt"]: row["actor"] for row in audits if row["action"] == "abort"}
        answers = [row for row in audits if row["action"] in ("complete", "fail")]
        kept = [row for row in answers if row["detail"] == "kept"]
        given = {row["attempt"]: row["actor"] for row in answers if row["detail"] != "kept"}
        moves = [Move(job.create_time, None, State.INITIAL, 0, "enqueued", made_by[0] if made_by else "app")]
        for row in records:
            self._tell_attempt(moves, row, actors, given)
        if job.attempt > len(records):
            moves.append(
                Move(
                    job.start_time or job.create_time, moves[-1].to_state, State.RUNNING, job.attempt, "claimed", worker
                )
            )
            if job.final:
                moves.append(
                    Move(
                        job.end_time or job.update_time,
                        State.RUNNING,
                        State.FINAL,
                        job.attempt,
                        "success",
                        given.get(job.attempt, worker),
                    )
                )
        elif job.final and moves[-1].to_state is not State.FINAL:
            self._tell_end(moves, job, actors.get(job.attempt, "holdfast"))
        for row in kept:
            self._tell_kept(moves, row)
        if kept and job.final and job.answer is not None and not job.answer.due:
            end = job.end_time or job.update_time
            moves.append(Move(end, State.FINAL, State.FINAL, job.attempt, "answer unused", "holdfast"))
        return moves

    def _tell_kept(self, moves: list[Move], row: RowDict) -> None:
        """An answer that came before the job waited for it."""
        time, actor = self._known(row["time"]), row["actor"]
        place = sum(move.time <= time and move.attempt <= row["attempt"] for move in moves) or 1
        state = moves[place - 1].to_state
        moves.insert(place, Move(time, state, state, row["attempt"], "answer kept", actor))

    def _tell_end(self, moves: list[Move], job: Job, actor: str) -> None:
        """The end of a job whose last attempt was over before: it was in `error`, or loose and ended by way of it (J7)."""
        end, cause = job.end_time or job.update_time, job.error.kind if job.error else "success"
        if job.error and moves[-1].to_state is State.RUNNING:
            moves.append(Move(end, State.RUNNING, State.ERROR, job.attempt, cause, actor))
        moves.append(Move(end, moves[-1].to_state, State.FINAL, job.attempt, cause, actor))

    def _tell_attempt(
        self, moves: list[Move], row: RowDict, actors: Mapping[int, str], given: Mapping[int, str]
    ) -> None:
        attempt, cause, end = row["attempt"], row["outcome"], self._known(row["end_time"])
        worker, error = _told(row["worker"]), self._attempt_of(row).error
        moves.append(
            Move(self.moment(row["start_time"]) or end, moves[-1].to_state, State.RUNNING, attempt, "claimed", worker)
        )
        ender = "holdfast" if error is not None and error.type == UNANSWERED else worker
        actor = actors.get(attempt, worker) if cause == AttemptEnd.ABORTED else given.get(attempt, ender)
        if cause == AttemptEnd.SUCCESS:
            moves.append(Move(end, State.RUNNING, State.FINAL, attempt, cause, actor))
        elif error is None:
            moves.append(Move(end, State.RUNNING, State.RUNNING, attempt, cause, actor))
        else:
            moves.append(Move(end, State.RUNNING, State.ERROR, attempt, cause, actor))
            if row["state"] == State.FINAL:
                moves.append(Move(end, State.ERROR, State.FINAL, attempt, cause, actor))


def _worker_of(row: RowDict) -> str | None:
    """Of the last attempt; also while it waits, though nobody holds it."""
    return None if row["worker"] is None else str(row["worker"])


def _told(worker: str | None) -> str:
    """An attempt that no worker began is Holdfast's own."""
    return "holdfast" if worker is None else f"worker {worker}"
