"""A queue's throttler as data: shares of its slots by a key of the payload, a limit for each key, a rate, or a function (W4).

- A throttler is a frozen value, checked when it is made (`Invalid`) and kept with the queue as JSON. Every worker can
  carry out the ready-made ones; of a function only its name is kept, and only workers whose code has it may claim.
- Slots and tokens are counted in `throttle_factor`, as under `throttle_limit`; factor 0 takes none.
- Nothing here does I/O or reads a clock.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.errors import Invalid, backticked, quoted
from holdfast.jobs.arguments import refuses_wrong_arguments
from holdfast.jobs.numbers import is_finite

OTHERS = ""  # the pool of all values that no share names
LONGEST = 10 * 365 * 86_400  # seconds; see `retry.LONGEST`


class Share(Struct, frozen=True, tag_field="kind", tag="share"):
    """So many slots for each named value of a key; all the other values together have `others` (None: no limit)."""

    key: str
    shares: dict[str, float]
    others: float | None = 0

    def __post_init__(self) -> None:
        what = f"share({quoted(self.key)}, …)"
        _check_key(self.key, what)
        if not isinstance(self.shares, dict) or not self.shares:
            raise Invalid(f'{what}: shares={quoted(self.shares)}; name them, for example {{"eu": 40, "us": 30}}.')
        _check_slots(self.shares, what)
        if self.others is not None:
            _check_number(self.others, f"{what}: others", 0)


class PerKey(Struct, frozen=True, tag_field="kind", tag="per_key"):
    """So many slots for each value of a key that there is; `limits` has those that differ."""

    key: str
    limit: float
    limits: dict[str, float] = {}

    def __post_init__(self) -> None:
        what = f"per_key({quoted(self.key)}, …)"
        _check_key(self.key, what)
        _check_number(self.limit, f"{what}: limit", 0)
        if not isinstance(self.limits, dict):
            raise Invalid(f'{what}: limits={quoted(self.limits)}; give a dict, for example {{"acme": 20}}.')
        _check_slots(self.limits, what)


class Rate(Struct, frozen=True, tag_field="kind", tag="rate"):
    """A token bucket: it gains `count` tokens in `per` seconds, holds `burst` of them, and is full at first."""

    count: float
    per: float
    burst: float

    def __post_init__(self) -> None:
        for name in ("count", "per", "burst"):
            _check_number(getattr(self, name), f"rate(…): {name}", 0, above=True)
        if self.per > LONGEST:
            raise Invalid(f"rate(…): per={quoted(self.per)}; give at most {LONGEST} seconds, which is ten years.")


class Function(Struct, frozen=True, tag_field="kind", tag="function"):
    """A function of the app, known by its name."""

    name: str


Throttler = Share | PerKey | Rate | Function


@refuses_wrong_arguments
def share(key: str, shares: Mapping[str, float], others: float | None = 0) -> Share:
    """Split a queue's slots by a value in the payload: `share("region", {"eu": 40, "us": 30, "ap": 30})`.

    `key` names an argument, or with dots something inside it. Values that are not named share `others` slots: 0 by
    default, so such a job is refused when it is enqueued; None gives them no limit of their own.
    """
    return Share(key, dict(shares) if isinstance(shares, Mapping) else shares, others)


@refuses_wrong_arguments
def per_key(key: str, limit: float, limits: Mapping[str, float] | None = None) -> PerKey:
    """At most `limit` slots for each value of a key of the payload: `per_key("customer", 5, {"acme": 20})`.

    Jobs without the key count as one more value.
    """
    return PerKey(key, limit, dict(limits) if isinstance(limits, Mapping) else limits or {})


@refuses_wrong_arguments
def rate(count: float, per: float, burst: float | None = None) -> Rate:
    """At most `count` starts in `per` seconds on average: a token bucket that all workers share.

    It holds `burst` tokens, by default `count`, and is full at first: in any `t` seconds no more than
    `burst + count * t / per` jobs start. `burst=1` spaces them evenly.
    """
    return Rate(count, per, count if burst is None else burst)


class Decision(Enum):
    """What a throttler function says about a candidate."""

    ADMIT = "admit"
    REFUSE = "refuse"


ADMIT, REFUSE = Decision.ADMIT, Decision.REFUSE


class Reschedule(Struct, frozen=True):
    """A throttler function's third answer: not now, and not before this time. `attempt` stays as it is."""

    delay: float | None = None  # seconds from now
    at: datetime | None = None

    def __post_init__(self) -> None:
        if (self.delay is None) == (self.at is None):
            raise Invalid("Reschedule(…): give a delay in seconds, or at=, an aware datetime.")
        if self.delay is not None:
            _check_number(self.delay, "Reschedule(…): delay", 0)
        elif not isinstance(self.at, datetime) or self.at.utcoffset() is None:
            raise Invalid(f"Reschedule(at={quoted(self.at)}): give an aware datetime, for example datetime.now(UTC).")

    def time(self, now: datetime) -> datetime:
        """When the job is wanted next."""
        if self.at is not None:
            return self.at.astimezone(UTC)
        return now + timedelta(seconds=min(float(self.delay or 0), LONGEST))


class ThrottledJob(Struct, frozen=True):
    """A job as a throttler function sees it."""

    id: int
    job_type: str
    job_key: str | None
    payload: dict[str, Any]
    throttle_factor: float
    priority: float
    scheduled_run_time: datetime


Verdict = Decision | Reschedule
ThrottlerFunction = Callable[[Sequence[ThrottledJob], Sequence[ThrottledJob]], Sequence[Verdict]]


def check_verdicts(answers: Any, count: int) -> Sequence[Verdict]:
    """One for each candidate, in their order; `Invalid` for anything else."""
    try:
        found = list(answers)
    except TypeError:
        raise Invalid(f"it returned {quoted(answers)}; return a list with an answer for each candidate.") from None
    if len(found) != count:
        raise Invalid(f"it returned {len(found)} answers for {count} candidates; return one for each, in their order.")
    for answer in found:
        if not isinstance(answer, Decision | Reschedule):
            raise Invalid(f"it answered {quoted(answer)}; answer ADMIT, REFUSE or Reschedule(…).")
    return found


# Pools: the jobs of a queue that share a number of slots.


def is_keyed(throttler: Throttler | None) -> bool:
    return isinstance(throttler, Share | PerKey)


def path_of(throttler: Throttler | None) -> list[str]:
    """Where in the payload the key is."""
    return throttler.key.split(".") if isinstance(throttler, Share | PerKey) else []


def pool_of(throttler: Throttler | None, payload: Any) -> str | None:
    """Which pool a job with this payload belongs to; None where the throttler knows no pools."""
    if not isinstance(throttler, Share | PerKey):
        return None
    found = payload
    for name in path_of(throttler):
        found = found.get(name) if isinstance(found, dict) else None
    return pool_of_value(throttler, found)


def pool_of_value(throttler: Throttler | None, value: Any) -> str | None:
    """`pool_of` where the value is known: text counts as itself, nothing as empty text, the rest as its JSON."""
    text = "" if value is None else value if isinstance(value, str) else encode_value(value).decode()
    match throttler:
        case Share():
            return text if text in throttler.shares else OTHERS
        case PerKey():
            return text
        case _:
            return None


encode_value = msgspec.json.Encoder(order="deterministic").encode


def size_of(throttler: Throttler | None, pool: str | None) -> float | None:
    """How many slots a pool has; None: no limit of its own."""
    match throttler:
        case Share() if pool is not None:
            return throttler.shares.get(pool, throttler.others)
        case PerKey() if pool is not None:
            return throttler.limits.get(pool, throttler.limit)
        case _:
            return None


def pool_words(throttler: Throttler | None, pool: str) -> str:
    """The pool in a sentence."""
    if isinstance(throttler, Share) and pool not in throttler.shares:
        return f"all values of {throttler.key} that have no share of their own"
    key = throttler.key if isinstance(throttler, Share | PerKey) else "key"
    return f"{key} {pool!r}" if pool else f"jobs without {key}"


# The bucket


def refill(rate: Rate, tokens: float | None, elapsed: float) -> float:
    """What is in the bucket `elapsed` seconds after `tokens` were; None: it was never used."""
    if tokens is None:
        return rate.burst
    return min(rate.burst, tokens + max(0.0, elapsed) * rate.count / rate.per)


def price(rate: Rate, factor: float) -> float:
    """What must be there for a job to start. One that is heavier than the bucket needs a full one and leaves a debt."""
    return min(factor, rate.burst)


def seconds_until(rate: Rate, tokens: float, factor: float) -> float:
    """Until a job of this factor can start."""
    return max(0.0, (price(rate, factor) - tokens) * rate.per / rate.count)


# As JSON


def encode(throttler: Throttler | None) -> str | None:
    return None if throttler is None else msgspec.json.encode(throttler, order="deterministic").decode()


def decode(text: str | None) -> Throttler | None:
    """The inverse of `encode`; `Invalid` for anything that is not a throttler."""
    if text is None:
        return None
    try:
        found: Throttler = msgspec.json.decode(text, type=Throttler)
    except msgspec.DecodeError as problem:
        raise Invalid(
            f"The throttler {quoted(text)} cannot be read: {problem}. Declare it with share(…), per_key(…), rate(…) or a function."
        ) from problem
    return found


def named(function: Any, what: str) -> Function:
    """A throttler function as it is registered; `Invalid` for what has no name to be known by."""
    name = getattr(function, "__name__", "")
    if not callable(function) or not name.isidentifier():
        raise Invalid(
            f"{what}: throttler={quoted(function)}; give share(…), per_key(…), rate(…), or a function with a name: "
            "workers know by it whether their code has it."
        )
    return Function(name)


def _check_key(key: Any, what: str) -> None:
    if not isinstance(key, str) or not all(key.split(".")):
        raise Invalid(
            f'{what}: the key is the name of an argument, with dots for what is inside it, like "customer.id".'
        )


def _check_slots(slots: Mapping[str, float], what: str) -> None:
    for name, count in slots.items():
        if not isinstance(name, str) or not name:
            raise Invalid(f"{what}: {quoted(name)} is no value to name; give text, as it stands in the payload.")
        _check_number(count, f"{what}: {backticked(name)}", 0)


def _check_number(value: Any, what: str, lowest: float, above: bool = False) -> None:
    if not (is_finite(value) and (value > lowest if above else value >= lowest)):
        raise Invalid(f"{what}={quoted(value)}; give a finite number {'above' if above else 'of at least'} {lowest:g}.")
