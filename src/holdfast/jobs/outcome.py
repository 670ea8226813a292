"""What a handler may say about the attempt it was called for.

A handler returns its result, or `WAIT`; or it raises `Failed`, `Retry`, `Snooze` or anything else.
A retry handler returns a `Retry`, `GIVE_UP`, or None for the type's own policy.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import UNSET, UnsetType

from holdfast.errors import Invalid, quoted
from holdfast.jobs.numbers import is_finite, seconds_of


class Failed(Exception):
    """An expected failure: outcome `failed`, never retried (R2)."""

    def __init__(self, reason: str = "failed") -> None:
        super().__init__(reason)
        self.reason = str(reason)


class Retry(Exception):
    """Try again at a given time: raised by a handler, or returned by a retry handler (R2, R5)."""

    def __init__(
        self,
        reason: str | None = None,
        *,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        payload: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(reason or "retry")
        if delay is not None and at is not None:
            raise Invalid("Retry takes delay or at, not both.")
        if at is not None and (not isinstance(at, datetime) or at.utcoffset() is None):
            raise Invalid(
                f"Retry(at={quoted(at)}): give an aware datetime, one with a time zone, for example datetime.now(UTC)."
            )
        if payload is not None and not isinstance(payload, Mapping):
            raise Invalid(f"Retry(payload={quoted(payload)}): give the arguments as a mapping of names to values.")
        self.reason = reason
        self.delay = None if delay is None else _seconds(delay, f"Retry(delay={quoted(delay)})")
        self.at = at
        self.payload = None if payload is None else dict(payload)


class Snooze(Exception):
    """End this attempt without error and come back later; `failures` is unchanged (R2)."""

    def __init__(self, delay: float | timedelta, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.delay = _seconds(delay, f"Snooze({quoted(delay)})")
        self.reason = reason


class Wait:
    """The type of `WAIT`: the job stays `running` until it is answered from outside (R3).

    `WAIT(timeout=60)` waits for a minute from the return on, `WAIT(timeout=None)` for ever.
    """

    def __init__(self, timeout: float | timedelta | UnsetType | None = UNSET) -> None:
        seconds = seconds_of(timeout)
        if seconds is not UNSET and seconds is not None and not (is_finite(seconds) and seconds > 0):
            raise Invalid(f"WAIT(timeout={quoted(timeout)}): give seconds above 0, a timedelta, or None for no limit.")
        self.timeout: float | UnsetType | None = seconds

    def __call__(self, *, timeout: float | timedelta | None) -> "Wait":
        return Wait(timeout)

    def __repr__(self) -> str:
        return "WAIT" if self.timeout is UNSET else f"WAIT(timeout={self.timeout})"


class GiveUp:
    """The type of `GIVE_UP`: a retry handler's word that the job ends here."""

    def __repr__(self) -> str:
        return "GIVE_UP"


def _seconds(delay: float | timedelta, what: str) -> float:
    seconds = seconds_of(delay)
    if not is_finite(seconds) or seconds < 0:
        raise Invalid(f"{what}: give seconds, 0 or more, or a timedelta.")
    return float(seconds)


WAIT = Wait()
GIVE_UP = GiveUp()
