"""What the jobs of a type with adaptive retry share: a breaker and a retry budget (R6).

    closed ──a run of failures──▶ open ──its time has come, a job is chosen──▶ probing
       ▲                            ▲                                            │ │
       │                            └──the probe failed, or told nothing─────────┘ │
       └──────────────────────────────the probe succeeded──────────────────────────┘

Rules:
- A `Breaker` is a frozen value; each function gives the next one. A store keeps one row for each type.
- While it is not closed no job of the type starts, but for the one that probes it.
- An error counts if it could have been retried. `Failed`, an abort, a snooze, a loss, a payload or result that does
  not convert: none of them tells whether what the type needs is there.
- A job that names its next time is believed: it is not put off by the budget, and the type is not probed before it.
- Nothing here does I/O or reads a clock.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct, structs

from holdfast.jobs.job import AttemptEnd, State
from holdfast.jobs.retry import Adaptive
from holdfast.jobs.states import NEVER_RETRIED, Change, Decided, Happening, Moved, Raised, Rescheduled, named_time

HALF_LIFE = 60.0  # seconds after which a success or a retry counts half in the budget
SPARE = 10.0  # retries that are always granted: a type with few jobs must be able to retry, too


class BreakerState(StrEnum):
    """Whether jobs of the type start."""

    CLOSED = "closed"  # they do
    OPEN = "open"  # none does until `probe_time`
    PROBING = "probing"  # one does, and its end decides


class Breaker(Struct, frozen=True):
    """The breaker and the retry budget of one job type, shared by all workers (R6)."""

    job_type: str
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0  # in a row
    opened_time: datetime | None = None
    probe_time: datetime | None = None  # no job probes the type before this
    probe: int | None = None  # the job that probes it, or did last
    successes: float = 0.0  # that the budget remembers
    retries: float = 0.0
    counted_time: datetime | None = None  # when the two were counted last

    @property
    def closed(self) -> bool:
        return self.state is BreakerState.CLOSED


def succeeded(breaker: Breaker, count: int, probed: bool, now: datetime) -> Breaker:
    """So many attempts ended in success; the run of failures is over. One that probed the type closes its breaker."""
    breaker = _aged(breaker, now)
    breaker = structs.replace(breaker, successes=breaker.successes + count)
    if breaker.closed:
        return breaker if breaker.failures == 0 else structs.replace(breaker, failures=0)
    return closed(breaker) if probed else breaker


def closed(breaker: Breaker) -> Breaker:
    """Jobs of the type start again."""
    return structs.replace(
        breaker, state=BreakerState.CLOSED, failures=0, opened_time=None, probe_time=None, probe=None
    )


def failed(breaker: Breaker, policy: Adaptive, job_id: int, named: datetime | None, now: datetime) -> Breaker:
    """An attempt ended in an error that could be retried: the last of a run opens the breaker, that of a probe opens it again."""
    breaker = structs.replace(breaker, failures=breaker.failures + 1)
    rest = now + timedelta(seconds=policy.probe)
    if named is not None:
        rest = max(rest, named)
    if breaker.closed:
        if breaker.failures < policy.breaker:
            return breaker
        return structs.replace(breaker, state=BreakerState.OPEN, opened_time=now, probe_time=rest, probe=None)
    if is_probe(breaker, job_id):
        return structs.replace(breaker, state=BreakerState.OPEN, probe_time=rest)
    if named is not None and breaker.probe_time is not None:  # it began before, and knows more
        return structs.replace(breaker, probe_time=max(breaker.probe_time, named))
    return breaker


def interrupted(breaker: Breaker) -> Breaker:
    """A success came between two failures; it is counted with the others."""
    return structs.replace(breaker, failures=0) if breaker.closed else breaker


def successes_before(number: int, failures: int, successes: int) -> int:
    """How many of the successes came before the failure with this number, from 1.

    Of attempts that are told of together the order is not known: the successes are spread evenly among the failures,
    or two hundred jobs of which every fifth fails would look like a run of forty failures.
    """
    return -(-number * (successes + 1) // (failures + 1)) - 1


def is_probe(breaker: Breaker, job_id: int) -> bool:
    """The breaker hangs on the end of this job's attempt."""
    return breaker.state is BreakerState.PROBING and breaker.probe == job_id


def may_probe(breaker: Breaker, now: datetime) -> bool:
    return breaker.state is BreakerState.OPEN and (breaker.probe_time is None or breaker.probe_time <= now)


def probing(breaker: Breaker, job_id: int) -> Breaker:
    """This job, and no other, may start."""
    return structs.replace(breaker, state=BreakerState.PROBING, probe=job_id)


def released(breaker: Breaker) -> Breaker:
    """The probe is over without having told anything, or nobody has it any more: another one may follow at once."""
    return structs.replace(breaker, state=BreakerState.OPEN)


def affords(breaker: Breaker, policy: Adaptive, now: datetime) -> bool:
    """Whether one more retry keeps within the budget: a share of the recent successes, and a few to spare."""
    breaker = _aged(breaker, now)
    return breaker.retries + 1 <= SPARE + policy.budget * breaker.successes


def retried(breaker: Breaker, now: datetime) -> Breaker:
    """One more retry was granted."""
    breaker = _aged(breaker, now)
    return structs.replace(breaker, retries=breaker.retries + 1)


def _aged(breaker: Breaker, now: datetime) -> Breaker:
    """The counters as they are now: what happened longer ago weighs less."""
    if breaker.counted_time is None:
        return structs.replace(breaker, counted_time=now)
    weight = 0.5 ** (max(0.0, (now - breaker.counted_time).total_seconds()) / HALF_LIFE)
    return structs.replace(
        breaker, successes=breaker.successes * weight, retries=breaker.retries * weight, counted_time=now
    )


def learn(breaker: Breaker, policy: Adaptive, change: Change, happening: Happening, now: datetime) -> Breaker:
    """What a change of one job tells about its type."""
    row, named = change.row, retry_after(happening, now)
    if change.record is not None and change.record.end is AttemptEnd.SUCCESS:
        # An answer from outside may come long after its attempt was called; that one was let through to probe.
        began_since = row.start_time and breaker.opened_time and row.start_time > breaker.opened_time
        return succeeded(breaker, 1, is_probe(breaker, row.id) or bool(began_since), now)
    granted = _is_retry(change, happening) and (named is not None or affords(breaker, policy, now))
    if _is_failure(change):
        breaker = failed(breaker, policy, row.id, named, now)
    return retried(breaker, now) if granted else breaker


def _is_failure(change: Change) -> bool:
    record = change.record
    if record is None or record.error is None or record.end not in (AttemptEnd.ERROR, AttemptEnd.TIMEOUT):
        return False
    return record.error.kind not in NEVER_RETRIED


def _is_retry(change: Change, happening: Happening) -> bool:
    waits_in_error = change.place_time is not None and change.steps[-1].state is State.ERROR
    return waits_in_error and not isinstance(happening, Moved | Rescheduled)


def retry_after(happening: Happening, now: datetime) -> datetime | None:
    """When the job wants to be tried again, if its handler or retry handler said so."""
    if not isinstance(happening, Raised | Decided):
        return None
    return named_time(happening.retry_at, happening.retry_delay, now)
