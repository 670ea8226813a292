"""Asking a type's retry handler what is to become of an error (R5)."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from holdfast.clock import sleep
from holdfast.errors import Invalid, Unavailable
from holdfast.jobs.job import Job, JobError, State
from holdfast.jobs.outcome import GiveUp, Retry
from holdfast.jobs.secrets import Redaction
from holdfast.jobs.states import NEVER_RETRIED, STATUS, Decided, Raised
from holdfast.stores.contract import Report, Store
from holdfast.worker.attempt import message_of, type_of
from holdfast.worker.handler import Handler

PATIENCE = 10.0  # seconds a retry handler may take
PAUSE = 0.1  # seconds before the database is asked again


class Judge:
    """Runs retry handlers, each in a thread of its own: it may block, and errors are rare."""

    def __init__(
        self, handlers: Mapping[str, Handler], read: Callable[[int], Job], answer: Callable[[Report], None]
    ) -> None:
        self._handlers = handlers
        self._read = read
        self._answer = answer
        self._asked: set[int] = set()

    @property
    def busy(self) -> bool:
        """Not everything that it was asked about from other processes is answered."""
        return bool(self._asked)

    def wants(self, report: Report) -> bool:
        """An error of a type whose retry handler is here, and that may be retried at all."""
        happening = report.happening
        if (
            not isinstance(happening, Raised)
            or happening.error.kind == "failed"
            or happening.error.kind in NEVER_RETRIED
        ):
            return False
        return self._has(report.job_type)

    def _has(self, job_type: str) -> bool:
        handler = self._handlers.get(job_type)
        return handler is not None and handler.retry_handler is not None

    def ask(self, report: Report) -> None:
        """Answers later, with a report of what was decided."""
        try:
            threading.Thread(target=self._judge, args=(report,), name="holdfast-judge", daemon=True).start()
        except RuntimeError:  # no thread to be had
            self._judge(report)

    def ask_about_undecided(self, store: Store) -> None:
        """Errors that processes without the retry handler left. Where the type has none any more the policy decides."""
        for job_id in store.undecided([job_type for job_type in self._handlers if self._has(job_type)]):
            job = self._read(job_id)
            if job.error is None:
                continue
            if not self._has(job.job_type):
                self._answer(Report(job_id, Decided(job.error, by_policy=True), job.attempt, job.job_type))
            elif job_id not in self._asked:
                self._asked.add(job_id)
                self.ask(Report(job_id, Raised(job.error), job.attempt, job.job_type))

    def _judge(self, report: Report) -> None:
        happening = report.happening
        assert isinstance(happening, Raised)
        handler = self._handlers[report.job_type]
        try:
            job = as_failed(self._read(report.job_id), happening.error)
        except Unavailable:  # which is not the retry handler's fault: it is asked when the database is back
            sleep(PAUSE)
            self._answer(report)
            return
        decided = self._decided(handler, job, happening)
        self._answer(structs.replace(report, happening=decided))
        self._asked.discard(report.job_id)

    def _decided(self, handler: Handler, job: Job, happening: Raised) -> Decided:
        """Whatever the retry handler does, this does not raise: nobody else would end the attempt."""
        try:
            return decided_by(self._called(handler, job, happening.error), happening, handler, job)
        except Exception as broken:
            return decided_by(broken, happening, handler, job)

    def _called(self, handler: Handler, job: Job, error: JobError) -> Any:
        """What the retry handler returned or raised, or that it took too long."""
        box: list[Any] = []
        function = handler.retry_handler
        assert function is not None

        def call() -> None:
            try:
                answer = function(job, error)
                box.append(asyncio.run(answer) if inspect.iscoroutine(answer) else answer)
            except BaseException as raised:
                box.append(raised)

        thread = threading.Thread(target=call, name="holdfast-retry-handler", daemon=True)
        thread.start()
        thread.join(PATIENCE)
        return box[0] if box else TimeoutError(f"it took longer than {PATIENCE:g} s")


def as_failed(job: Job, error: JobError) -> Job:
    """The job as the retry handler is to see it: in `error`, this failure counted, also while its row is still `running`."""
    if job.state is not State.RUNNING:
        return job
    return structs.replace(
        job, state=State.ERROR, status=STATUS[State.ERROR, None], situation=None, error=error, failures=job.failures + 1
    )


def decided_by(answer: Any, raised: Raised, handler: Handler, job: Job) -> Decided:
    """A retry handler's answer as a decision. A handler that fails ends the job, with that error."""
    told = (raised.error, raised.traceback, raised.seconds)
    if isinstance(answer, Retry):
        try:
            payload = (
                None
                if answer.payload is None
                else handler.signature.check((), answer.payload, limit=handler.payload_limit)
            )
        except Invalid as error:
            return Decided(
                *told, give_up=True, verdict=JobError("Invalid", f"the retry handler's payload: {error}", "payload")
            )
        return Decided(*told, retry_at=answer.at, retry_delay=answer.delay, payload=payload)
    if isinstance(answer, GiveUp):
        return Decided(*told, give_up=True)
    if answer is None:
        return Decided(*told, by_policy=True, retry_at=raised.retry_at, retry_delay=raised.retry_delay)
    if isinstance(answer, BaseException):
        hidden = Redaction.of(job.payload, handler.secrets)
        kind = type_of(answer, hidden)
        text = f"the retry handler failed: {kind}: {message_of(answer, hidden)}"
        return Decided(*told, give_up=True, verdict=JobError(kind, text, "retry_handler"))
    text = f"the retry handler returned {type(answer).__qualname__}; it may return Retry, GIVE_UP or None"
    return Decided(*told, give_up=True, verdict=JobError("TypeError", text, "retry_handler"))
