"""The state machine of a job: which moves exist, and what each thing that happens does to a job.

    initial ──claim──▶ running ──succeed──▶ final
                        │  ▲ └─loosen, wait, claim─┐ (running → running)
                        │  └───────────────────────┘
                       fail
                        ▼
                       error ──claim──▶ running
                        └────end──────▶ final

Rules:
- `MOVES` is the whole machine; a pair that is not in it is an illegal move (J2).
- A job that ends with an error was in `error` just before: `fail` and `end` are two moves of one transaction (J7).
- `decide` turns what happened into a `Change`, a value; a store carries it out under the fence
  (`state`, `attempt`, `situation`) that the change names, or answers *stale*.
- Nothing here does I/O or reads a clock: the time and the luck are given.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, structs

from holdfast.errors import IllegalMove
from holdfast.jobs import retry, windows
from holdfast.jobs.job import Answer, AttemptEnd, JobError, Outcome, Situation, State


class Event(StrEnum):
    """The moves by name."""

    CLAIM = "claim"  # a worker takes the job: a new attempt
    SUCCEED = "succeed"  # its handler returned, or it was completed from outside
    FAIL = "fail"  # the attempt ended in an error
    END = "end"  # no attempt will follow the error
    LOOSEN = "loosen"  # the attempt is over without error: lost, handed back, snoozed, answered
    WAIT = "wait"  # the handler returned WAIT: no worker holds the job any more
    CHANGE = "change"  # `on_duplicate="replace"`: other payload, times or options


MOVES: Mapping[tuple[State, Event], State] = MappingProxyType(
    {
        (State.INITIAL, Event.CLAIM): State.RUNNING,
        (State.INITIAL, Event.CHANGE): State.INITIAL,
        (State.RUNNING, Event.CLAIM): State.RUNNING,
        (State.RUNNING, Event.LOOSEN): State.RUNNING,
        (State.RUNNING, Event.WAIT): State.RUNNING,
        (State.RUNNING, Event.SUCCEED): State.FINAL,
        (State.RUNNING, Event.FAIL): State.ERROR,
        (State.ERROR, Event.CLAIM): State.RUNNING,
        (State.ERROR, Event.END): State.FINAL,
    }
)

SITUATION_AFTER: Mapping[Event, Situation] = MappingProxyType(
    {Event.CLAIM: Situation.HELD, Event.LOOSEN: Situation.LOOSE, Event.WAIT: Situation.WAITING}
)

TARGET: Mapping[Event, State] = MappingProxyType({event: state for (_, event), state in MOVES.items()})

STATUS: Mapping[tuple[State, Outcome | None], str] = MappingProxyType(
    {
        (State.INITIAL, None): "pending",
        (State.RUNNING, None): "running",
        (State.ERROR, None): "failed",
        (State.FINAL, Outcome.SUCCESS): "completed",
        (State.FINAL, Outcome.FAILED): "dead",
        (State.FINAL, Outcome.ERROR): "dead",
        (State.FINAL, Outcome.ABORTED): "dead",
    }
)

TASK_STATE: Mapping[Outcome | None, str] = MappingProxyType(
    {
        None: "UNDONE",
        Outcome.SUCCESS: "SUCCESS",
        Outcome.FAILED: "FAILED",
        Outcome.ERROR: "ERROR",
        Outcome.ABORTED: "ERROR",
    }
)

DEFAULT_TIMEOUT, DEFAULT_RETRIES = 30.0, 3  # of a job for which nobody names any (R4, R5)
ALONE_AFTER = 3  # losses in a row after which a job is run alone (C3)
UNHEARD_FOR = 0.5  # seconds, for each of its attempts, that an answer is left to workers that have the response handler
LONGEST_UNHEARD = 60.0
MOST_LOSSES = 30  # in a row, after which a job ends although others were lost with it each time
ABORT_PATIENCE = 10.0  # seconds a worker has to end a job that somebody wants to end (J10)


def move(state: State, event: Event, job_id: int | None = None) -> State:
    """The state after `event`; `IllegalMove`, naming both states, where there is no such move."""
    try:
        return MOVES[state, event]
    except KeyError:
        job = "A job" if job_id is None else f"Job {job_id}"
        raise IllegalMove(
            f"{job} in state `{state}` cannot `{event}`: `{state}` may not become `{TARGET[event]}`."
        ) from None


class Row(Struct, frozen=True):
    """The part of a job's row that decisions are made from."""

    id: int
    queue: str
    job_type: str
    job_key: str | None
    state: State
    situation: Situation | None
    attempt: int
    failures: int
    losses: int
    crashes: int
    retries: int | None
    timeout: float | None
    priority: float
    throttle_factor: float
    time_windows: tuple[str, ...]
    scheduled_run_time: datetime
    expires_time: datetime | None
    start_time: datetime | None
    worker: int | None
    timeout_named: bool = False
    retries_named: bool = False
    deadline_time: datetime | None = None
    answer: Answer | None = None
    run: int | None = None
    update_time: datetime | None = None


class Rules(Struct, frozen=True):
    """What a job type says about errors and crashes."""

    policy: retry.Policy | None = None
    on_crash: str = "rerun"
    max_crashes: int | None = 3
    has_retry_handler: bool = False
    has_response_handler: bool = False
    over_budget: bool = False  # as many of its jobs are tried again as adaptive retry allows (R6)


class Step(Struct, frozen=True):
    """One move as the store writes it."""

    state: State
    attempt: int
    situation: Situation | None = None
    outcome: Outcome | None = None
    error: JobError | None = None


class Record(Struct, frozen=True):
    """The end of one attempt, kept for ever (J9)."""

    end: AttemptEnd
    error: JobError | None = None
    traceback: str | None = None
    seconds: float | None = None


class Change(Struct, frozen=True):
    """Everything one happening does to one job, to be written in one transaction or not at all."""

    row: Row
    steps: tuple[Step, ...]
    record: Record | None
    failures: int
    losses: int
    crashes: int
    result: str | None
    payload: str | None
    place_time: datetime | None  # when it is wanted next; None: nobody is to look for it
    closes_time: datetime | None  # it may not start from this moment on
    deadline_time: datetime | None  # of a job that nobody holds: when its timeout is over
    undecided: bool  # the retry handler has still to be asked
    answer: Answer | None  # that is kept with the job from now on
    seconds: float | None  # that its handler took

    @property
    def final(self) -> bool:
        return self.steps[-1].state is State.FINAL


# What can happen to an attempt or a job. `decide` knows each of them.


class Raised(Struct, frozen=True, tag=True):
    """The handler raised, timed out, or its payload did not convert."""

    error: JobError
    traceback: str | None = None
    seconds: float | None = None
    retry_at: datetime | None = None  # `Retry(at=…)`
    retry_delay: float | None = None  # `Retry(delay=…)`


class Decided(Struct, frozen=True, tag=True):
    """A retry handler was asked about an error and answered."""

    error: JobError
    traceback: str | None = None
    seconds: float | None = None
    by_policy: bool = False  # it left the answer to the type's policy
    give_up: bool = False
    verdict: JobError | None = None  # the job ends with this error instead: the retry handler itself failed
    retry_at: datetime | None = None
    retry_delay: float | None = None
    payload: str | None = None


class Succeeded(Struct, frozen=True, tag=True):
    """The handler returned, or the job was completed from outside."""

    result: str | None = None
    seconds: float | None = None
    effects: str | None = None  # of a task of a workflow


class Waited(Struct, frozen=True, tag=True):
    """The handler returned `WAIT`: somebody outside will answer."""

    seconds: float | None = None
    timeout: float | None = None
    named: bool = False  # `WAIT(timeout=…)`


class Answered(Struct, frozen=True, tag=True):
    """Somebody outside answered a job that waits. `unheard`: its worker's code has no response handler to be told."""

    answer: Answer
    unheard: bool = False


class Snoozed(Struct, frozen=True, tag=True):
    """The handler raised `Snooze`."""

    delay: float
    seconds: float | None = None


class HandedBack(Struct, frozen=True, tag=True):
    """Its worker could not finish it, or had claimed it ahead and did not get to it."""

    seconds: float | None = None


class Lost(Struct, frozen=True, tag=True):
    """The process that ran it is gone. `alone`: nothing else was in that process. `only`: its worker had no other job."""

    alone: bool = False
    only: bool = False


class Aborted(Struct, frozen=True, tag=True):
    """Somebody wants it to end."""

    actor: str
    seconds: float | None = None


class Expired(Struct, frozen=True, tag=True):
    """It could not start before its `expires`."""


class Moved(Struct, frozen=True, tag=True):
    """Its window closed before its turn came."""


class Rescheduled(Struct, frozen=True, tag=True):
    """The throttler of its queue wants it later (W4)."""

    at: datetime


Happening = (
    Raised
    | Decided
    | Succeeded
    | Waited
    | Answered
    | Snoozed
    | HandedBack
    | Lost
    | Aborted
    | Expired
    | Moved
    | Rescheduled
)


def decide(row: Row, happening: Happening, rules: Rules, now: datetime, luck: float = 0.0) -> Change:
    """What `happening` does to the job; `IllegalMove` if the machine has no such move."""
    match happening:
        case Succeeded():
            return _succeed(row, happening)
        case Raised():
            return _fail(row, happening, rules, now, luck)
        case Decided():
            return _carry_out(row, happening, rules, now, luck)
        case Waited():
            return _wait(row, happening, rules, now, luck)
        case Answered():
            return _answer(row, happening.answer, rules, now, luck, unheard=happening.unheard)
        case Snoozed():
            return _loosen(
                row, Record(AttemptEnd.SNOOZED, seconds=happening.seconds), _after(now, happening.delay), now
            )
        case HandedBack():
            record = Record(AttemptEnd.HANDED_BACK, seconds=happening.seconds)
            return _loosen(row, record, row.scheduled_run_time, now, losses=row.losses, crashes=row.crashes)
        case Lost():
            return _lose(row, happening, rules, now)
        case Aborted():
            error = JobError("Aborted", f"aborted by {happening.actor}", "aborted")
            return _kill(row, error, Outcome.ABORTED, Record(AttemptEnd.ABORTED, error, seconds=happening.seconds))
        case Expired():
            error = JobError("Expired", f"expired at {row.expires_time} before it could start", "expired")
            return _kill(row, error, Outcome.ERROR, Record(AttemptEnd.EXPIRED, error))
        case Moved():
            return _replace(row, row.scheduled_run_time, now)
        case Rescheduled():
            return _replace(row, _not_before(happening.at, now), now)


def _succeed(row: Row, happening: Succeeded) -> Change:
    """What was counted on the way stays, as it does when a worker's turn settles plain success."""
    steps = (_step(row, Event.SUCCEED, outcome=Outcome.SUCCESS),)
    record = Record(AttemptEnd.SUCCESS, seconds=happening.seconds)
    return _change(row, steps, record, losses=row.losses, crashes=row.crashes, result=happening.result)


def _fail(row: Row, happening: Raised, rules: Rules, now: datetime, luck: float) -> Change:
    """An error: `failed` ends the job, a retry handler that is elsewhere is waited for, else the policy decides (R5)."""
    error, failures = happening.error, row.failures + 1
    record = Record(END_OF_KIND.get(error.kind, AttemptEnd.ERROR), error, happening.traceback, happening.seconds)
    if error.kind == "failed":
        return _end(row, error, Outcome.FAILED, record, row.failures)
    if rules.has_retry_handler and error.kind not in NEVER_RETRIED:
        return _change(row, (_step(row, Event.FAIL, error=error),), record, failures=failures, undecided=True)
    if error.kind in NEVER_RETRIED or not _may_retry(row, error, failures):
        return _end(row, error, Outcome.ERROR, record, failures)
    at = _next_time(rules, failures, error.kind, happening.retry_at, happening.retry_delay, now, luck)
    return _again(row, error, record, failures, at)


def _may_retry(row: Row, error: JobError, failures: int) -> bool:
    """By the policy. Nobody answered: once more only if somebody named a number of retries (R4)."""
    return (row.retries_named or error.type != UNANSWERED) and retry.may_retry(row.retries, failures)


UNANSWERED = "Unanswered"  # the type of the error of a wait that took too long
END_OF_KIND = MappingProxyType({"timeout": AttemptEnd.TIMEOUT, "failed": AttemptEnd.FAILED})
NEVER_RETRIED = frozenset({"payload", "result"})


def _carry_out(row: Row, happening: Decided, rules: Rules, now: datetime, luck: float) -> Change:
    """A retry handler's word; it is not bounded by `retries`. The attempt may be ending now, or have ended before."""
    error, record, failures = happening.error, None, row.failures
    if row.state is State.RUNNING:
        record = Record(END_OF_KIND.get(error.kind, AttemptEnd.ERROR), error, happening.traceback, happening.seconds)
        failures += 1
    if happening.give_up or (happening.by_policy and not _may_retry(row, error, failures)):
        return _end(row, happening.verdict or error, Outcome.ERROR, record, failures)
    at = _next_time(rules, failures, error.kind, happening.retry_at, happening.retry_delay, now, luck)
    return _again(row, error, record, failures, at, happening.payload)


def _wait(row: Row, happening: Waited, rules: Rules, now: datetime, luck: float) -> Change:
    """No worker holds it any more. An answer that is there already is taken at once (R3)."""
    if row.answer is not None and not row.answer.due:
        return _answer(row, row.answer, rules, now, luck, happening.seconds)
    steps = (_step(row, Event.WAIT),)
    deadline = wait_ends(row, happening, now)
    return structs.replace(
        _change(row, steps, None, losses=row.losses, crashes=row.crashes, deadline_time=deadline),
        answer=None,  # the one before was for the response handler, which waits for another
        seconds=happening.seconds,
    )


def wait_ends(row: Row, happening: Waited, now: datetime) -> datetime | None:
    """A `WAIT(timeout=…)` counts from the return; else the attempt's timeout, if somebody named one, covers the wait (R4)."""
    if happening.named:
        return None if happening.timeout is None else _after(now, happening.timeout)
    if row.timeout_named:
        return None if row.timeout is None else _after(row.start_time or now, row.timeout)
    return _after(now, LONGEST_WAIT)


def unanswered(row: Row) -> JobError:
    """The error of a wait that is over, with the limit as it was named; nothing changes a row while it waits (R4)."""
    assert row.deadline_time is not None
    if row.timeout_named and row.timeout is not None and row.deadline_time == timeout_ends(row, row.deadline_time):
        limit, since = row.timeout, "its start"
    else:
        limit, since = (row.deadline_time - (row.update_time or row.deadline_time)).total_seconds(), "its WAIT"
    return JobError(UNANSWERED, f"timeout: no answer within {limit:g} s of {since}", "timeout")


def _answer(
    row: Row,
    answer: Answer,
    rules: Rules,
    now: datetime,
    luck: float,
    seconds: float | None = None,
    unheard: bool = False,
) -> Change:
    """To the response handler in a new attempt, where the type has one; else it is the end of this attempt (R3)."""
    if rules.has_response_handler:
        record = Record(AttemptEnd.ANSWERED, seconds=seconds)
        if unheard:  # somebody else is to come for it, after a while: it is met again by us as well
            later = _after(now, min(UNHEARD_FOR * row.attempt, LONGEST_UNHEARD))
            change = _loosen(row, record, later, now, row.losses, row.crashes)
        else:
            change = _loosen(row, record, now, now)
        return structs.replace(change, answer=structs.replace(answer, due=True))
    if answer.failure is None:
        return structs.replace(_succeed(row, Succeeded(answer.result, seconds)), answer=None)
    change = _fail(row, Raised(answer.failure, None, seconds), rules, now, luck)
    return structs.replace(change, answer=None)


def is_waiting(row: Row) -> bool:
    """An answer can be applied; before that it is only kept."""
    return row.situation is Situation.WAITING


def _next_time(
    rules: Rules, failures: int, kind: str, at: datetime | None, delay: float | None, now: datetime, luck: float
) -> datetime:
    named = named_time(at, delay, now)
    if named is not None:
        return named
    if rules.over_budget and isinstance(rules.policy, retry.Adaptive):
        return _after(now, retry.put_off(rules.policy, luck))
    return _after(now, retry.delay(rules.policy, failures, kind, luck))


def named_time(at: datetime | None, delay: float | None, now: datetime) -> datetime | None:
    """When the next attempt is to begin, if a handler or a retry handler said so."""
    if at is not None:
        return _not_before(at, now)
    return None if delay is None else _after(now, delay)


def _not_before(at: datetime, now: datetime) -> datetime:
    """A moment that somebody named: not in the past, and not so far off that the calendar has no window behind it."""
    return max(now, min(at, _after(now, A_CENTURY)))


def _again(
    row: Row, error: JobError, record: Record | None, failures: int, at: datetime, payload: str | None = None
) -> Change:
    """In `error` until its time; windows hold for retries too (W5)."""
    step = _step(row, Event.FAIL, error=error) if record else Step(row.state, row.attempt, error=error)
    at, closes = placement(row.time_windows, row.expires_time, at, at)
    return _change(row, (step,), record, failures=failures, place_time=at, closes_time=closes, payload=payload)


def _end(
    row: Row, error: JobError, outcome: Outcome, record: Record | None, failures: int, crashes: int | None = None
) -> Change:
    """Through `error` to `final` in one transaction (J7)."""
    steps = [_step(row, Event.FAIL, error=error)] if row.state is State.RUNNING else []
    state = steps[-1].state if steps else row.state
    steps.append(Step(move(state, Event.END, row.id), row.attempt, outcome=outcome, error=error))
    crashes = row.crashes if crashes is None else crashes
    return _change(row, tuple(steps), record, failures=failures, losses=row.losses, crashes=crashes)


def _loosen(row: Row, record: Record, at: datetime, now: datetime, losses: int = 0, crashes: int = 0) -> Change:
    """No attempt owns it any more, and none failed: it stands in the claim order again (J12)."""
    at, closes = placement(row.time_windows, row.expires_time, at, now)
    steps = (_step(row, Event.LOOSEN),)
    return _change(row, steps, record, losses=losses, crashes=crashes, place_time=at, closes_time=closes)


def _lose(row: Row, happening: Lost, rules: Rules, now: datetime) -> Change:
    """A crash is not a failure; but a job that kills its process again and again, alone in it, ends (C3).

    Who is lost together with others is no more suspect than each of them, until that has happened far too often.
    """
    if rules.on_crash == "timeout" and row.timeout is not None and not happening.alone:
        steps = (Step(State.RUNNING, row.attempt, situation=Situation.HELD),)
        deadline = timeout_ends(row, now)
        return _change(row, steps, None, losses=row.losses, crashes=row.crashes, deadline_time=deadline)
    alone = happening.alone or (happening.only and row.losses >= ALONE_AFTER)
    crashes = row.crashes + alone
    text = ""
    if alone and rules.max_crashes is not None and crashes >= rules.max_crashes:
        text = f"its process died {crashes} times while it ran alone (max_crashes={rules.max_crashes})"
    elif rules.max_crashes is not None and row.losses + 1 >= MOST_LOSSES:
        text = f"{row.losses + 1} workers in a row were lost with it"
    if text:
        error = JobError("Crashed", text, "crash")
        return _end(row, error, Outcome.ERROR, Record(AttemptEnd.LOST, error), row.failures, crashes)
    losses = max(row.losses + 1, ALONE_AFTER if alone else 0)
    return _loosen(row, Record(AttemptEnd.LOST), row.scheduled_run_time, now, losses=losses, crashes=crashes)


def _kill(row: Row, error: JobError, outcome: Outcome, record: Record) -> Change:
    """To `final` from wherever it is; from `initial` by way of `running`, its handler never called (J10)."""
    if row.state is not State.INITIAL:
        ended_now = record if row.state is State.RUNNING else None
        return _end(row, error, outcome, ended_now, row.failures)
    attempt = row.attempt + 1
    steps = (
        Step(move(row.state, Event.CLAIM, row.id), attempt, situation=Situation.HELD),
        Step(MOVES[State.RUNNING, Event.FAIL], attempt, error=error),
        Step(MOVES[State.ERROR, Event.END], attempt, outcome=outcome, error=error),
    )
    return _change(row, steps, record)


def _replace(row: Row, wanted: datetime, now: datetime) -> Change:
    """Another time, in a window, `attempt` unchanged (W4, W5)."""
    at, closes = placement(row.time_windows, row.expires_time, wanted, now)
    steps = (Step(row.state, row.attempt, situation=row.situation),)
    return _change(row, steps, None, losses=row.losses, crashes=row.crashes, place_time=at, closes_time=closes)


def _change(
    row: Row,
    steps: tuple[Step, ...],
    record: Record | None,
    *,
    failures: int | None = None,
    losses: int = 0,
    crashes: int = 0,
    result: str | None = None,
    payload: str | None = None,
    place_time: datetime | None = None,
    closes_time: datetime | None = None,
    deadline_time: datetime | None = None,
    undecided: bool = False,
) -> Change:
    failures = row.failures if failures is None else failures
    return Change(
        row,
        steps,
        record,
        failures,
        losses,
        crashes,
        result,
        payload,
        place_time,
        closes_time,
        deadline_time,
        undecided,
        row.answer,
        record.seconds if record else None,
    )


def timeout_ends(row: Row, now: datetime) -> datetime:
    """By the store's clock: when the attempt of a job that nobody holds is over (J12)."""
    return _after(row.start_time or now, A_CENTURY if row.timeout is None else row.timeout)


def placement(
    time_windows: tuple[str, ...], expires_time: datetime | None, wanted: datetime | None, now: datetime
) -> tuple[datetime, datetime | None]:
    """When a job is to start, and the moment from which on it may not: its window's close or its expiry.

    A time that has passed is kept while its opening lasts, and with it the job's place in the claim order.
    """
    at, closes = wanted or now, None
    if time_windows:
        parsed = windows.parse_all(time_windows)
        at = windows.place(parsed, wanted, now)
        closes = windows.closes(parsed, at)
        if closes is not None and closes <= now:
            at = windows.opens(parsed, now)
            closes = windows.closes(parsed, at)
    if expires_time is None:
        return at, closes
    if at >= expires_time:
        return expires_time, expires_time  # it cannot start any more, and that is when it ends
    return at, expires_time if closes is None else min(closes, expires_time)


def _step(row: Row, event: Event, outcome: Outcome | None = None, error: JobError | None = None) -> Step:
    return Step(move(row.state, event, row.id), row.attempt, SITUATION_AFTER.get(event), outcome, error)


def _after(now: datetime, seconds: float) -> datetime:
    return now + timedelta(seconds=min(float(seconds), A_CENTURY))


LONGEST_WAIT = 86400.0  # seconds to wait for an answer where nobody names a time (R4)
A_CENTURY = 100 * 365.25 * 86400  # longer delays are cut to this, which a datetime can hold
