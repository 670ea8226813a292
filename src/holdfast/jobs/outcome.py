"""What a handler may say about the attempt it was called for.

A handler returns its result, or `WAIT`; or it raises `Failed`, `Retry`, `Snooze` or anything else.
A retry handler returns a `Retry`, `GIVE_UP`, or None for the type's own policy.
"""

from datetime import datetime
from typing import Any

from msgspec import UNSET, UnsetType

from holdfast.errors import Invalid


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
        delay: float | None = None,
        at: datetime | None = None,
        payload: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(reason or "retry")
        if delay is not None and at is not None:
            raise Invalid("Retry takes delay or at, not both.")
        if delay is not None and not 0 <= delay < float("inf"):
            raise Invalid(f"Retry(delay={delay!r}): the delay must be a finite number of seconds, 0 or more.")
        if at is not None and at.tzinfo is None:
            raise Invalid("Retry(at=…) must be an aware datetime; give it a time zone, for example datetime.now(UTC).")
        self.reason = reason
        self.delay = None if delay is None else float(delay)
        self.at = at
        self.payload = payload


class Snooze(Exception):
    """End this attempt without error and come back later; `failures` is unchanged (R2)."""

    def __init__(self, delay: float, reason: str = "snoozed") -> None:
        super().__init__(reason)
        if not 0 <= delay < float("inf"):
            raise Invalid(f"Snooze({delay!r}): the delay must be a finite number of seconds, 0 or more.")
        self.delay = float(delay)
        self.reason = reason


class Wait:
    """The type of `WAIT`: the job stays `running` until it is answered from outside (R3).

    `WAIT(timeout=60)` waits for a minute from the return on, `WAIT(timeout=None)` for ever.
    """

    def __init__(self, timeout: float | UnsetType | None = UNSET) -> None:
        if timeout is not UNSET and timeout is not None and not 0 < timeout < float("inf"):
            raise Invalid(f"WAIT(timeout={timeout!r}): give seconds above 0, or None for no limit.")
        self.timeout = timeout

    def __call__(self, *, timeout: float | None) -> "Wait":
        return Wait(timeout)

    def __repr__(self) -> str:
        return "WAIT" if self.timeout is UNSET else f"WAIT(timeout={self.timeout})"


class GiveUp:
    """The type of `GIVE_UP`: a retry handler's word that the job ends here."""

    def __repr__(self) -> str:
        return "GIVE_UP"


WAIT = Wait()
GIVE_UP = GiveUp()
