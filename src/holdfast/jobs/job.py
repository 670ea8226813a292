"""What a job is: the values that callers see. Nothing here does I/O; a job asks its `Source` for that."""

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct, structs

from holdfast.errors import Conflict, JobFailed
from holdfast.jobs import secrets
from holdfast.jobs.reasons import Explanation


class State(StrEnum):
    """The persistent state (J1)."""

    INITIAL = "initial"
    RUNNING = "running"
    ERROR = "error"
    FINAL = "final"


class Situation(StrEnum):
    """Of a `running` row: who has it now (J12)."""

    HELD = "held"
    WAITING = "waiting"
    LOOSE = "loose"


class Outcome(StrEnum):
    """How a job ended (J7)."""

    SUCCESS = "success"
    FAILED = "failed"
    ERROR = "error"
    ABORTED = "aborted"


class AttemptEnd(StrEnum):
    """How one attempt ended (J9)."""

    SUCCESS = "success"
    FAILED = "failed"
    ERROR = "error"
    TIMEOUT = "timeout"
    LOST = "lost"
    HANDED_BACK = "handed_back"
    SNOOZED = "snoozed"
    ANSWERED = "answered"
    ABORTED = "aborted"
    EXPIRED = "expired"


LONGEST_MESSAGE = 10_000  # characters of an error's message that are kept


class JobError(Struct, frozen=True):
    """Why an attempt ended in an error. `str()` gives the message."""

    type: str
    message: str
    kind: str  # exception, timeout, failed, retry, aborted, expired, crash, payload, result, retry_handler, damaged

    def __str__(self) -> str:
        return self.message


class Answer(Struct, frozen=True):
    """What an outside system says about a job that waits for it (R3)."""

    result: str | None = None  # JSON
    error: JobError | None = None  # it failed instead
    retry: bool = False  # and that is to count as an exception
    due: bool = False  # the job has waited: the response handler is to be called with it

    @property
    def failure(self) -> JobError | None:
        """The error as it counts: `failed`, or as an exception, which may be retried."""
        return self.error and structs.replace(self.error, kind="exception" if self.retry else "failed")


class Move(Struct, frozen=True):
    """One line of a job's history."""

    time: datetime
    from_state: State | None
    to_state: State
    attempt: int
    cause: str
    actor: str


class Attempt(Struct, frozen=True):
    """One attempt; `end_time` and `outcome` are None while it goes on."""

    attempt: int
    start_time: datetime | None
    end_time: datetime | None
    outcome: AttemptEnd | None
    error: JobError | None
    traceback: str | None
    worker: str | None


class Progress(Struct, frozen=True):
    """How far a handler says it is."""

    fraction: float
    text: str = ""


class LogLine(Struct, frozen=True):
    """One line of a job's log. The id is its number among all that the job has said: a gap is what was dropped."""

    id: int
    time: datetime
    attempt: int
    level: str
    text: str


class Source(Protocol):
    """Where a job value came from and can be read again."""

    def get(self, job_id: int) -> "Job": ...

    def wait(self, job_id: int, timeout: float | None) -> "Job": ...

    async def await_final(self, job_id: int, timeout: float | None) -> "Job": ...

    def history(self, job_id: int) -> Sequence[Move]: ...

    def attempts(self, job_id: int) -> Sequence[Attempt]: ...

    def explain(self, job_id: int) -> Explanation: ...

    def log(self, job_id: int, after: int, limit: int) -> Sequence[LogLine]: ...

    def secrets(self, job_type: str) -> Collection[str]: ...


class Job(Struct, frozen=True, kw_only=True):
    """A job as it was when it was read. A value: `refresh()` gives a newer one."""

    id: int
    job_type: str
    job_key: str | None
    queue: str
    state: State
    status: str
    situation: Situation | None
    outcome: Outcome | None
    payload: dict[str, Any]
    result: Any
    error: JobError | None
    attempt: int
    failures: int
    losses: int
    crashes: int
    retries: int | None
    priority: float
    timeout: float | None
    throttle_factor: float
    time_windows: tuple[str, ...]
    scheduled_run_time: datetime
    expires_time: datetime | None
    create_time: datetime
    update_time: datetime
    start_time: datetime | None
    end_time: datetime | None
    execution_time: float | None
    total_time: float
    worker: str | None
    retry_of: int | None
    progress: Progress | None = None
    answer: Answer | None = None
    run: int | None = None
    duplicate: bool = False
    archived: bool = False
    damaged: tuple[str, ...] = ()  # columns of its row that cannot be read
    source: Source | None = None

    @property
    def final(self) -> bool:
        return self.state is State.FINAL

    def shown_payload(self) -> dict[str, Any]:
        """Its payload as views show it: without the arguments that its type calls secret."""
        return secrets.redacted(self.payload, self._secret_names(), whole="payload" in self.damaged)

    def shown_result(self) -> Any:
        """Its result as views show it: without the values of its secret arguments, which a damaged payload does not tell."""
        if "payload" in self.damaged and self._secret_names() and self.result is not None:
            return secrets.SHOWN
        return self._redaction().apply_to(self.result)

    def shown_answer(self) -> Answer | None:
        """What an outside system said about it, as views show it."""
        if self.answer is None or self.answer.result is None:
            return self.answer
        return structs.replace(self.answer, result=self._redaction().apply(self.answer.result))

    def _redaction(self) -> secrets.Redaction:
        return secrets.Redaction.of(self.payload, self._secret_names())

    def _secret_names(self) -> Collection[str]:
        return () if self.source is None else self.source.secrets(self.job_type)

    def refresh(self) -> "Job":
        """The job as it is now."""
        return self._source().get(self.id)

    def wait(self, timeout: float | None = None) -> "Job":
        """Block until the job is final; `TimeoutError` when `timeout` seconds have passed."""
        return self._source().wait(self.id, timeout)

    def unwrap(self, timeout: float | None = None) -> Any:
        """Block until final; the result, or `JobFailed` for any outcome but success."""
        return _result(self.wait(timeout))

    async def aunwrap(self, timeout: float | None = None) -> Any:
        """`unwrap` for the event loop."""
        return _result(await self._source().await_final(self.id, timeout))

    def history(self) -> Sequence[Move]:
        """Every move so far, in order."""
        return self._source().history(self.id)

    def attempts(self) -> Sequence[Attempt]:
        """Every attempt so far, in order, each with its own error."""
        return self._source().attempts(self.id)

    def explain(self) -> Explanation:
        """Why it is not running, or where it runs (E1)."""
        return self._source().explain(self.id)

    def log(self, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """What its handler said, oldest first: at most `limit` lines with an id above `after`."""
        return self._source().log(self.id, after, limit)

    def _source(self) -> Source:
        assert self.source is not None, "this job value was made without a store"
        return self.source


def _result(job: Job) -> Any:
    if job.outcome is Outcome.SUCCESS:
        if "result" in job.damaged:
            raise Conflict(
                f"Job {job.id} ({job.job_type}) succeeded, but its stored result cannot be read: {job.result['damaged']['reason']}. "
                "Restore the column `result` of its row from a backup, or enqueue the job again."
            )
        return job.result
    raise JobFailed(f"Job {job.id} ({job.job_type}) ended `{job.outcome}` in attempt {job.attempt}: {job.error}.", job)
