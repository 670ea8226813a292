"""What readers show in place of a stored text that cannot be read.

- Holdfast writes no such text. A person, another program or a defective disk does.
- A reader never raises because of one row: the damaged value is shown as text with the reason, everything else as it is.
- Where a value of another type is wanted, one of that type says that it is damaged.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from holdfast.errors import Invalid

LONGEST_TEXT = 10_000  # characters of a damaged text that are shown
LONGEST_REASON = 200  # characters
UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, msgspec.MsgspecError, Invalid)
T = TypeVar("T")


class Damaged(Struct, frozen=True):
    """A stored text that cannot be read, and why."""

    text: str
    reason: str

    def __str__(self) -> str:
        return f"damaged ({self.reason}): {self.text}"


def read(decode: Callable[[str], T], text: str) -> T | Damaged:
    """What a stored text says; `Damaged` if it cannot be read."""
    try:
        return decode(text)
    except UNREADABLE as error:
        return Damaged(text[:LONGEST_TEXT], " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__)


def shown(damaged: Damaged) -> dict[str, Any]:
    """Its JSON form, in place of a value that may be any JSON."""
    return {"damaged": {"text": damaged.text, "reason": damaged.reason}}
