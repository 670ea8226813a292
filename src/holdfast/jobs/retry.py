"""When a job that ended in an error is tried again: the retry policy as data (R5, R6).

- A policy is a frozen value, checked when it is made (`Invalid`) and kept with the job as JSON.
- `retries` bounds how often, the policy says how soon; neither knows the other.
- Nothing here draws a random number or reads a clock: the caller brings `luck`, 0 or more and below 1.
- `jitter` lengthens a delay by up to that share of itself. Delays that have grown to `most` are spread below it
  instead, so that jobs which failed together do not come back together.
"""

from typing import Any

import msgspec

from holdfast.errors import Invalid, quoted

# Ten years. A moment in our time plus any delay is still a moment that Python and both databases can hold.
LONGEST = 10 * 365 * 86_400


class NoDelay(msgspec.Struct, frozen=True, tag_field="kind", tag="none"):
    """Try again at once."""


class Fixed(msgspec.Struct, frozen=True, tag_field="kind", tag="fixed"):
    """Try again after the same number of seconds each time."""

    seconds: float

    def __post_init__(self) -> None:
        _check(self, "seconds", 0, LONGEST)


class Linear(msgspec.Struct, frozen=True, tag_field="kind", tag="linear"):
    """Wait `first` seconds, then `step` longer after each further failure, never more than `most`."""

    first: float
    step: float
    most: float = 300

    def __post_init__(self) -> None:
        for name in ("first", "step", "most"):
            _check(self, name, 0, LONGEST)


class Exponential(msgspec.Struct, frozen=True, tag_field="kind", tag="exponential"):
    """Wait `first` seconds, then `factor` times as long after each further failure, jittered, at most `most`."""

    first: float = 1
    factor: float = 2
    most: float = 300
    jitter: float = 0.1

    def __post_init__(self) -> None:
        _check_growth(self)


class Adaptive(msgspec.Struct, frozen=True, tag_field="kind", tag="adaptive"):
    """Wait as `Exponential` does, and heed what all jobs of the type have in common (R6).

    `budget` is the number of retries as a share of recent successes; a retry beyond it waits `most` seconds.
    `breaker` failures in a row open the type's breaker: none of its jobs starts, but for one that probes it every
    `probe` seconds until one succeeds.
    """

    first: float = 1
    factor: float = 2
    most: float = 300
    jitter: float = 0.1
    budget: float = 0.2
    breaker: int = 5
    probe: float = 30

    def __post_init__(self) -> None:
        _check_growth(self)
        _check(self, "budget", 0, 1)
        _check(self, "breaker", 1, 1_000_000, whole=True)
        _check(self, "probe", 0, LONGEST)


Policy = NoDelay | Fixed | Linear | Exponential | Adaptive


def _check_growth(policy: Exponential | Adaptive) -> None:
    _check(policy, "first", 0, LONGEST)
    _check(policy, "factor", 1, 1000)
    _check(policy, "most", 0, LONGEST)
    _check(policy, "jitter", 0, 1)


def _check(policy: Policy, name: str, lowest: int, highest: int, whole: bool = False) -> None:
    value: Any = getattr(policy, name)
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    # Written as one chain because NaN compares false with everything.
    if not (number and lowest <= value <= highest):
        kind = "a whole number" if whole else "a number"
        raise Invalid(
            f"{type(policy).__name__}({name}={quoted(value)}): {name} must be {kind} from {lowest} to {highest}; change it."
        )


DEFAULT = Exponential(first=1, factor=2, most=300, jitter=0.1)


def may_retry(retries: int | None, failures: int) -> bool:
    """Whether another attempt is allowed after this many failures: `retries` of them are, None is without limit."""
    return retries is None or failures <= retries


def delay(policy: Policy | None, failures: int, kind: str, luck: float) -> float:
    """The seconds from the failure with this number (the first is 1) to the next attempt.

    None is the default policy: a `timeout` is tried again at once, every other kind of error as `DEFAULT` says.
    A policy that was given holds for timeouts too.
    """
    if failures < 1:
        raise Invalid(f"There is no delay after {failures} failures; ask for it once the first failure is counted.")
    if policy is None:
        return 0.0 if kind == "timeout" else delay(DEFAULT, failures, kind, luck)
    match policy:
        case NoDelay():
            return 0.0
        case Fixed(seconds):
            return float(seconds)
        case Linear(first, step, most):
            return float(min(first + step * (failures - 1), most))
        case Exponential() | Adaptive():
            return _grown(policy, failures, luck)


def put_off(policy: Adaptive, luck: float) -> float:
    """The seconds that a retry over the budget waits: as long as the policy ever does, spread like every delay."""
    return min(policy.most / (1 + policy.jitter) * (1 + policy.jitter * luck), float(policy.most))


def _grown(policy: Exponential | Adaptive, failures: int, luck: float) -> float:
    highest = policy.most / (1 + policy.jitter)
    try:
        # As floats: whole numbers would not overflow, they would grow to a power that takes for ever to compute.
        wanted = policy.first * float(policy.factor) ** (failures - 1)
    except OverflowError:
        wanted = policy.most if policy.first else 0.0
    return min(min(wanted, highest) * (1 + policy.jitter * luck), float(policy.most))


def encode(policy: Policy | None) -> str | None:
    """The policy as JSON, every field written out: a stored job keeps its policy when a default changes later."""
    return None if policy is None else msgspec.json.encode(policy).decode()


def decode(text: str | None) -> Policy | None:
    """The inverse of `encode`; `Invalid` for anything that is not a policy."""
    if text is None:
        return None
    try:
        policy: Policy = msgspec.json.decode(text, type=Policy)
    except msgspec.DecodeError as problem:
        raise Invalid(
            f"The retry policy {quoted(text)} cannot be read: {problem}. "
            'Write it as JSON with its kind, for example {"kind": "fixed", "seconds": 5}.'
        ) from problem
    return policy
