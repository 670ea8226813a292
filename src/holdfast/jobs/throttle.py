"""Which jobs of a queue may start now without passing its `throttle_limit` (W3).

- A limit below 1 is no limit. A `throttle_factor` of 0 is not counted and never held back.
- The first counted job that does not fit reserves what is free, so that light jobs behind it cannot starve it.
- Factors may be fractional and binary fractions do not add up (ten times 0.1 is not 1), so a sum may pass the limit
  by a billionth of it. That is far more than the rounding of a million terms and far less than any factor one means.
"""

import sys
from collections.abc import Sequence

import msgspec

from holdfast.errors import Invalid

TOLERANCE = 1e-9


class Candidate(msgspec.Struct, frozen=True):
    """A due job as the throttle sees it; `runnable` when some live worker could run it."""

    id: int
    throttle_factor: float = 1
    runnable: bool = True


class Admission(msgspec.Struct, frozen=True):
    """The ids that may start now, in claim order, and the job that what is left is reserved for."""

    admitted: tuple[int, ...] = ()
    reserved_for: int | None = None


def admit(limit: float, used: float, candidates: Sequence[Candidate]) -> Admission:
    """Choose from the candidates, given in claim order, on a queue whose held and waiting jobs use `used`.

    Every candidate that fits is admitted, up to the first that is runnable and within the limit but does not fit
    now; behind that one only factor 0 is. Candidates that nobody can run, or whose factor is above the limit, are
    passed over and reserve nothing. A caller that cannot itself run an admitted job leaves it and its share alone.
    """
    admitted: list[int] = []
    reserved_for: int | None = None
    for candidate in candidates:
        factor = candidate.throttle_factor
        if not candidate.runnable:
            continue
        if factor == 0 or limit < 1:
            admitted.append(candidate.id)
        elif reserved_for is not None or not _within(limit, factor):
            continue
        elif _within(limit, used + factor):
            admitted.append(candidate.id)
            used += factor
        else:
            reserved_for = candidate.id
    return Admission(tuple(admitted), reserved_for)


def check_factor(factor: float, limit: float) -> None:
    """Refuse (`Invalid`) a factor that is no finite number, is negative, or could never fit under the limit."""
    number = isinstance(factor, int | float) and not isinstance(factor, bool)
    if not (number and 0 <= factor <= sys.float_info.max):
        raise Invalid(f"throttle_factor {factor!r} must be a finite number, 0 or more; 0 is not counted at all.")
    if limit >= 1 and not _within(limit, factor):
        raise Invalid(
            f"throttle_factor {factor!r} is above the queue's throttle_limit {limit!r}, so the job could never start; "
            "lower the factor or raise the limit."
        )


def _within(limit: float, total: float) -> bool:
    return total <= limit * (1 + TOLERANCE)
