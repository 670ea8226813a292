"""Keyset paging: a cursor says where the next page begins, and for which list.

A cursor is opaque to callers. It holds a position and a print of the list it belongs to, so one that was made for another
list, or by hand, is refused.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar.params import QueryParameter
from msgspec import Meta

from holdfast.errors import Invalid

MOST, USUAL = 1000, 50
Limit = Annotated[int, QueryParameter(ge=1, le=MOST, description="Most items of a page.")]
CursorText = Annotated[
    str | None,
    QueryParameter(
        max_length=200, description="Where the page begins: `cursor` of the page before. Leave it out at first."
    ),
]
Shape = dict[str, Any]
Cursor = Annotated[str | None, Meta(description="Where the next page begins; null: there is no more.")]
Complete = Annotated[
    bool,
    Meta(description="False: the page was cut because it looked at as many jobs as one page may; go on with `cursor`."),
]


def page(items: Sequence[Shape], cursor: str | None = None, complete: bool = True) -> Shape:
    return {"items": list(items), "cursor": cursor, "complete": complete}


def write(position: int | None, *belongs: Any) -> str | None:
    """The cursor behind `position` in the list that `belongs` describes."""
    if position is None:
        return None
    text = msgspec.msgpack.encode((position, _print(belongs)))
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def read(cursor: str | None, *belongs: Any) -> int | None:
    """The inverse of `write`; `Invalid` for anything else."""
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        position, found = msgspec.msgpack.decode(text, type=tuple[int, bytes])
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise Invalid("The cursor is none that this server gave. Begin again without it.") from None
    if found != _print(belongs) or not 0 <= position < 2**63:
        raise Invalid("The cursor belongs to another list: keep the filters while you page. Begin again without it.")
    return position


def _print(belongs: Any) -> bytes:
    return hashlib.blake2b(repr(belongs).encode(), digest_size=8).digest()
