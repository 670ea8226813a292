"""Which jobs of a queue may start now: within its `throttle_limit` (W3), and as its throttler says (W4).

- A limit below 1 is no limit. A `throttle_factor` of 0 is not counted and never held back, but by a function.
- The first counted job that does not fit reserves what is free, so that light jobs behind it cannot starve it. In a
  pool of a throttler that holds for the jobs of the pool, and not for the others.
- Factors may be fractional and binary fractions do not add up (ten times 0.1 is not 1), so a sum may pass the limit
  by a billionth of it. That is far more than the rounding of a million terms and far less than any factor one means.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.errors import Invalid, quoted
from holdfast.jobs import throttlers
from holdfast.jobs.numbers import is_finite
from holdfast.jobs.throttlers import ADMIT, Rate, Reschedule, Throttler, Verdict

TOLERANCE = 1e-9


class Candidate(msgspec.Struct, frozen=True):
    """A due job as the throttle sees it; `runnable` when some live worker could run it."""

    id: int
    throttle_factor: float = 1
    runnable: bool = True
    pool: str | None = None  # of the queue's throttler


class Why(StrEnum):
    """What keeps a candidate from starting."""

    UNHANDLED = "unhandled"  # no live worker could run it now
    FACTOR = "factor"  # its factor is above the whole limit
    LIMIT = "limit"  # it does not fit, and what is free is reserved for it
    RESERVED = "reserved"  # what is free is reserved for a job before it
    POOL_FACTOR = "pool_factor"  # its factor is above all slots of its pool
    POOL = "pool"  # the slots of its pool are used
    RATE = "rate"  # there is no token for it yet
    REFUSED = "refused"  # the queue's function refuses it
    RESCHEDULED = "rescheduled"  # the queue's function wants it later


class Held(msgspec.Struct, frozen=True):
    """Why a candidate may not start now, with the numbers."""

    why: Why
    needed: float = 1  # its factor
    size: float | None = None  # the limit, or the slots of its pool
    used: float | None = None
    pool: str | None = None
    reserved_for: int | None = None
    seconds: float | None = None  # until there are tokens enough
    at: datetime | None = None  # the time that the function gave it


class Admission(msgspec.Struct, frozen=True):
    """The ids that may start now, in claim order, and the job that what is left is reserved for."""

    admitted: tuple[int, ...] = ()
    reserved_for: int | None = None
    held: Mapping[int, Held] = {}  # why each of the others may not


class Usage(msgspec.Struct, frozen=True):
    """What the held and waiting jobs of a queue use."""

    limit: float = 0
    used: float = 0
    throttler: Throttler | None = None
    pools: Mapping[str, float] = {}  # used of each
    tokens: float = 0  # in the bucket of a rate
    verdicts: Mapping[int, Verdict] = {}  # of a function, about the candidates
    now: datetime | None = None  # for what it wants later


def admit(limit: float, used: float, candidates: Sequence[Candidate]) -> Admission:
    """Choose from the candidates, given in claim order, on a queue whose held and waiting jobs use `used`.

    Every candidate that fits is admitted, up to the first that is runnable and within the limit but does not fit
    now; behind that one only factor 0 is. Candidates that nobody can run, or whose factor is above the limit, are
    passed over and reserve nothing. A caller that cannot itself run an admitted job leaves it and its share alone.
    """
    choice = choose(Usage(limit, used), candidates)
    return Admission(choice.admitted, choice.reserved_for)


def choose(usage: Usage, candidates: Sequence[Candidate]) -> Admission:
    """`admit` under a throttler as well. What the throttler holds back reserves nothing of the queue's limit."""
    taking = Taking(usage)
    admitted: list[int] = []
    held: dict[int, Held] = {}
    for candidate in candidates:
        reason = taking.hold(candidate)
        if reason is None:
            admitted.append(candidate.id)
        else:
            held[candidate.id] = reason
    return Admission(tuple(admitted), taking.reserved_for, held)


class Taking:
    """One pass over the candidates: what is left after those before."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self.used = usage.used
        self.pools = dict(usage.pools)
        self.tokens = usage.tokens
        self.reserved_for: int | None = None
        self._pool_reserved: dict[str, int] = {}
        self._functional = isinstance(usage.throttler, throttlers.Function)
        self._rate = usage.throttler if isinstance(usage.throttler, Rate) else None

    def hold(self, candidate: Candidate) -> Held | None:
        """Why not; None takes what it needs."""
        factor = candidate.throttle_factor
        if not candidate.runnable:
            return Held(Why.UNHANDLED, factor)
        refused = self._asked(candidate) if self._functional else None
        if refused is not None or factor == 0:
            return refused
        if self.usage.limit >= 1 and not within(self.usage.limit, factor):
            return Held(Why.FACTOR, factor, self.usage.limit, self.used)
        pool = candidate.pool
        reason = None if pool is None else self._of_pool(candidate, pool)
        reason = reason or self._of_queue(candidate)
        if reason is None:
            self.used += factor
            self.tokens -= factor
            if pool is not None:
                self.pools[pool] = self.pools.get(pool, 0) + factor
        return reason

    def _asked(self, candidate: Candidate) -> Held | None:
        answer = self.usage.verdicts.get(candidate.id)
        if answer is ADMIT:
            return None
        if isinstance(answer, Reschedule) and self.usage.now is not None:
            return Held(Why.RESCHEDULED, candidate.throttle_factor, at=answer.time(self.usage.now))
        return Held(Why.REFUSED, candidate.throttle_factor)

    def _of_pool(self, candidate: Candidate, pool: str) -> Held | None:
        factor, size = candidate.throttle_factor, throttlers.size_of(self.usage.throttler, pool)
        if size is None:
            return None
        used = self.pools.get(pool, 0)
        if not within(size, factor):
            return Held(Why.POOL_FACTOR, factor, size, used, pool)
        if pool in self._pool_reserved:
            return Held(Why.RESERVED, factor, size, used, pool, self._pool_reserved[pool])
        if within(size, used + factor):
            return None
        self._pool_reserved[pool] = candidate.id
        return Held(Why.POOL, factor, size, used, pool)

    def _of_queue(self, candidate: Candidate) -> Held | None:
        limit, factor = self.usage.limit, candidate.throttle_factor
        if self.reserved_for is not None:
            return Held(Why.RESERVED, factor, limit, self.used, None, self.reserved_for)
        if limit >= 1 and not within(limit, self.used + factor):
            self.reserved_for = candidate.id
            return Held(Why.LIMIT, factor, limit, self.used)
        if self._rate is not None and self.tokens < throttlers.price(self._rate, factor) - TOLERANCE:
            self.reserved_for = candidate.id
            return Held(Why.RATE, factor, seconds=throttlers.seconds_until(self._rate, self.tokens, factor))
        return None


def words(held: Held, throttler: Throttler | None = None) -> str:
    """Why, in a sentence without its subject: "the share of region 'eu' is used, 40 of 40"."""
    pool = throttlers.pool_words(throttler, held.pool or "")
    match held.why:
        case Why.UNHANDLED:
            return "no live worker could run it now"
        case Why.FACTOR:
            return f"its throttle_factor {held.needed:g} is above the limit {held.size:g}"
        case Why.LIMIT:
            return f"{held.used:g} of {held.size:g} are used and it needs {held.needed:g}"
        case Why.RESERVED if held.pool is not None:
            return f"what is free of the slots of {pool} is reserved for job {held.reserved_for}"
        case Why.RESERVED:
            return f"what is free is reserved for job {held.reserved_for}"
        case Why.POOL_FACTOR:
            return f"its throttle_factor {held.needed:g} is above the {held.size:g} slots of {pool}"
        case Why.POOL:
            return f"{held.used:g} of the {held.size:g} slots of {pool} are used and it needs {held.needed:g}"
        case Why.RATE:
            return f"the rate has no token for it for another {held.seconds:.3g} s"
        case Why.REFUSED:
            return "the function refuses it"
        case Why.RESCHEDULED:
            return f"the function wants it at {held.at:%Y-%m-%d %H:%M:%S} UTC"


def check_factor(factor: float, limit: float) -> None:
    """Refuse (`Invalid`) a factor that is no finite number, is negative, or could never fit under the limit."""
    if not is_finite(factor) or factor < 0:
        raise Invalid(f"throttle_factor {quoted(factor)} must be a finite number, 0 or more; 0 is not counted at all.")
    if limit >= 1 and not within(limit, factor):
        raise Invalid(
            f"throttle_factor {quoted(factor)} is above the queue's throttle_limit {quoted(limit)}, so the job could never start; "
            "lower the factor or raise the limit."
        )


def check_pool(throttler: Throttler | None, pool: str | None, factor: float) -> None:
    """Refuse (`Invalid`) a job that its pool could never let start."""
    size = throttlers.size_of(throttler, pool)
    if pool is None or size is None or factor == 0 or within(size, factor):
        return
    raise Invalid(
        f"throttle_factor {factor:g} is above the {size:g} slots that the queue's throttler gives to "
        f"{throttlers.pool_words(throttler, pool)}, so the job could never start; name it a share, or lower the factor."
    )


def within(limit: float, total: float) -> bool:
    return total <= limit * (1 + TOLERANCE)
