"""A small reference model of a store: the pure functions and nothing else, so that random histories have something to agree with.

It has one queue, no windows and no limits. What a store finds with indexes and hints, the model finds by looking at
every job.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from holdfast.jobs import retry
from holdfast.jobs.job import Answer, AttemptEnd, JobError, Outcome, Situation, State
from holdfast.jobs.states import (
    Aborted,
    Answered,
    Change,
    Decided,
    Expired,
    Happening,
    Lost,
    Raised,
    Row,
    Rules,
    Succeeded,
    decide,
    timeout_ends,
    unanswered,
)

ABORT_PATIENCE = 10
SEEN = (
    *("state", "situation", "attempt", "failures", "losses", "crashes"),
    *("scheduled_run_time", "priority", "job_key", "job_type"),
)

RULES = {
    "send": Rules(policy=retry.Fixed(7), max_crashes=2),
    "scan": Rules(policy=retry.NoDelay(), on_crash="timeout"),
    "ask": Rules(policy=retry.Fixed(3), has_retry_handler=True),
    "hear": Rules(policy=retry.Fixed(3), has_response_handler=True),
}


@dataclass
class ModelJob:
    """A job: its row, and what a store keeps beside it."""

    row: Row
    outcome: Outcome | None = None
    error: JobError | None = None
    deadline: datetime | None = None
    undecided: bool = False
    parked: bool = False
    wish: tuple[int, datetime] | None = None  # the attempt that somebody wants to end, and since when
    records: int = 0

    @property
    def free(self) -> bool:
        return self.row.state in (State.INITIAL, State.ERROR) or self.row.situation is Situation.LOOSE

    def seen(self) -> dict[str, Any]:
        """What must be the same in a store."""
        told = {name: getattr(self.row, name) for name in SEEN}
        return {**told, "outcome": self.outcome, "error": self.error, "records": self.records}


@dataclass
class Reference:
    """Everything an instance holds. Jobs are numbered by their place in `jobs`, workers by theirs."""

    now: datetime
    jobs: list[ModelJob] = field(default_factory=list)
    living_workers: set[int] = field(default_factory=set)

    def add(self, job_type: str, options: dict[str, Any]) -> tuple[int, bool]:
        """The job's number, and whether it is a duplicate."""
        key, delay, expires = options["job_key"], options["delay"] or 0.0, options["expires_time"]
        for number, job in enumerate(self.jobs):
            if (
                key is not None
                and job.row.state is not State.FINAL
                and (job.row.job_type, job.row.job_key) == (job_type, key)
            ):
                if options["on_duplicate"] == "replace" and job.row.state is State.INITIAL:
                    new = self._new_row(number, job_type, key, delay, expires, options)
                    job.row = structs.replace(new, answer=job.row.answer)
                    job.parked = False
                return number, True
        self.jobs.append(ModelJob(self._new_row(len(self.jobs), job_type, key, delay, expires, options)))
        return len(self.jobs) - 1, False

    def _new_row(
        self,
        number: int,
        job_type: str,
        key: str | None,
        delay: float,
        expires: datetime | None,
        options: dict[str, Any],
    ) -> Row:
        return Row(
            id=number,
            queue="mail",
            job_type=job_type,
            job_key=key,
            state=State.INITIAL,
            situation=None,
            attempt=0,
            failures=0,
            losses=0,
            crashes=0,
            retries=options["retries"],
            timeout=30.0,
            priority=options["priority"],
            throttle_factor=1.0,
            time_windows=(),
            scheduled_run_time=self.now + timedelta(seconds=delay),
            expires_time=expires,
            start_time=None,
            worker=None,
        )

    def claim(self, worker: int, types: tuple[str, ...], room: int) -> list[int]:
        due = [job for job in self.jobs if self._due(job) and job.row.job_type in types and not self._expired(job)]
        due.sort(key=lambda job: (job.row.priority, job.row.scheduled_run_time, job.row.id))
        for job in due[:room]:
            started = {"state": State.RUNNING, "situation": Situation.HELD, "attempt": job.row.attempt + 1}
            job.row = structs.replace(job.row, **started, start_time=self.now, worker=worker)
            job.error = None
        return [job.row.id for job in due[:room]]

    def _due(self, job: ModelJob) -> bool:
        return job.free and not job.undecided and not job.parked and job.row.scheduled_run_time <= self.now

    def _expired(self, job: ModelJob) -> bool:
        return job.row.expires_time is not None and job.row.expires_time <= self.now

    def tell(self, number: int, attempt: int, happening: Happening) -> bool:
        """An attempt's own report; False if it is stale."""
        job = self.jobs[number]
        judged = isinstance(happening, Decided) and job.row.state is State.ERROR
        held = (job.row.state, job.row.situation) == (State.RUNNING, Situation.HELD)
        if job.row.attempt != attempt or not (judged or held):
            return False
        if job.wish is not None and not isinstance(happening, Succeeded | Aborted):
            happening = Aborted("ann")
        self._carry_out(job, happening)
        return True

    def _carry_out(self, job: ModelJob, happening: Happening) -> None:
        change = decide(job.row, happening, RULES[job.row.job_type], self.now)
        last = change.steps[-1]
        told = change.record is not None and change.record.end is not AttemptEnd.SUCCESS
        job.records += told and job.row.situation is not Situation.LOOSE
        held = last.situation is Situation.HELD
        job.row = structs.replace(
            job.row,
            state=last.state,
            situation=last.situation,
            attempt=last.attempt,
            failures=change.failures,
            losses=change.losses,
            crashes=change.crashes,
            scheduled_run_time=self._wanted(job, change),
            worker=job.row.worker if held else None,
            answer=change.answer,
            deadline_time=change.deadline_time if last.situation is Situation.WAITING else None,
            update_time=self.now,
        )
        job.outcome, job.error = last.outcome, last.error
        job.deadline, job.undecided, job.parked = change.deadline_time, change.undecided, False
        job.wish = job.wish if held else None

    def _wanted(self, job: ModelJob, change: Change) -> datetime:
        return change.place_time or job.row.scheduled_run_time

    def abort(self, number: int) -> bool:
        """False if it is final."""
        job = self.jobs[number]
        if job.row.state is State.FINAL:
            return False
        if job.row.situation is Situation.HELD and job.row.worker in self.living_workers:
            job.wish = job.wish or (job.row.attempt, self.now)
        else:
            self._carry_out(job, Aborted("ann"))
        return True

    def answer(self, number: int, answer: Answer) -> bool:
        """False if there is nothing to be answered any more."""
        job = self.jobs[number]
        if job.row.state is State.FINAL or job.row.answer is not None:
            return False
        if job.row.situation is Situation.WAITING:
            self._carry_out(job, Answered(answer))
        else:
            job.row = structs.replace(job.row, answer=answer)
        return True

    def lose(self, worker: int) -> None:
        self.living_workers.discard(worker)
        held = [job for job in self.jobs if job.row.situation is Situation.HELD and job.row.worker == worker]
        for job in held:
            self.tell(job.row.id, job.row.attempt, Lost(only=len(held) == 1))

    def end_overdue(self) -> None:
        for job in self.jobs:
            if job.row.deadline_time is not None and job.row.deadline_time <= self.now:
                self._carry_out(job, Raised(unanswered(job.row)))
            elif (
                job.deadline is not None
                and job.row.situation is Situation.HELD
                and timeout_ends(job.row, self.now) <= self.now
            ):
                self.tell(
                    job.row.id,
                    job.row.attempt,
                    Raised(JobError("Timeout", "timeout: not finished after 30 s", "timeout")),
                )

    def end_old_aborts(self) -> None:
        for job in self.jobs:
            if job.wish is not None and job.wish[1] <= self.now - timedelta(seconds=ABORT_PATIENCE):
                self._carry_out(job, Aborted("ann"))

    def shut(self) -> None:
        for job in self.jobs:
            wanted = job.free and not job.undecided and job.row.scheduled_run_time <= self.now
            if wanted and self._expired(job):
                self._carry_out(job, Expired())

    def park(self, handled: tuple[str, ...]) -> None:
        for job in self.jobs:
            if job.parked and job.row.job_type in handled:
                job.parked = False
            elif self._due(job) and job.row.job_type not in handled:
                job.parked = True

    def unpark(self, types: tuple[str, ...]) -> None:
        for job in self.jobs:
            job.parked = job.parked and job.row.job_type not in types
