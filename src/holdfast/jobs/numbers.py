"""What counts as a number where one is asked for: `True` is none, and neither is what a float or a column cannot hold."""

import sys
from datetime import timedelta
from typing import Any

LARGEST = 2**31 - 1  # that a count may be: PostgreSQL keeps counts in an `integer`
LARGEST_ID = 2**63 - 1


def is_finite(value: Any) -> bool:
    """A number that a float can hold; an int of a thousand digits is not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def is_whole(value: Any, lowest: int, highest: int = LARGEST) -> bool:
    """An int between the two, both included."""
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def as_stored(value: float) -> float:
    """The number as both databases keep it: a float, and a zero without a sign, which SQLite drops."""
    return float(value) + 0.0  # -0.0 + 0.0 is 0.0


def seconds_of(value: Any) -> Any:
    """A timedelta as seconds; anything else is left for the caller to judge."""
    return value.total_seconds() if isinstance(value, timedelta) else value
