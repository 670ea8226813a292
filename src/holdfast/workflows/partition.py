"""How a step's work is cut into tasks (F12): one, shards, packs, or items. Nothing here does I/O.

- Tasks of a step are numbered from 0 and named after the step: `calc`, `calc.shard-3`, `calc.pack-0`, `calc.item-41`.
- A pack is an inclusive range, and the last one is cut: 0 to 925 by 100 are ten packs, the last one 900 to 925.
"""

from typing import Any

import msgspec
from msgspec import Struct

from holdfast.errors import Invalid

MOST_UNDONE = 50
MOST_UNDONE_ITEMS = 1000


class Simple(Struct, frozen=True, tag_field="kind", tag="simple"):
    """One task, named like the step."""


class Shards(Struct, frozen=True, tag_field="kind", tag="shards"):
    """So many tasks, each knowing its index and how many there are."""

    total: int
    first: int = 0

    def __post_init__(self) -> None:
        _check_whole(self.total, "shards", 0)
        _check_whole(self.first, "the first shard", 0)


class Packs(Struct, frozen=True, tag_field="kind", tag="packs"):
    """Ranges of `size` numbers from `start` to `end`, both inclusive; without an end they never end."""

    start: int
    end: int | None
    size: int
    first: int = 0

    def __post_init__(self) -> None:
        _check_whole(self.start, "the start of packs")
        _check_whole(self.size, "the size of a pack", 1)
        _check_whole(self.first, "the first pack", 0)
        if self.end is not None:
            _check_whole(self.end, "the end of packs")


class Items(Struct, frozen=True, tag_field="kind", tag="items"):
    """As many tasks as a function of the user gives items."""


Partition = Simple | Shards | Packs | Items


class Shard(Struct, frozen=True):
    """Which part of how many."""

    index: int
    total: int


class Pack(Struct, frozen=True):
    """An inclusive range."""

    start: int
    end: int


def _check_whole(value: Any, what: str, least: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        more = "" if least is None else f", {least} or more"
        raise Invalid(f"{what[0].upper()}{what[1:]} is {value!r}; give a whole number{more}.")


def count(partition: Partition) -> int | None:
    """How many tasks there will be; None where nobody knows before they are made, or where they never end."""
    match partition:
        case Simple():
            return 1
        case Shards(total):
            return total
        case Packs(start, end, size):
            return None if end is None else max(0, -(-(end - start + 1) // size))
        case Items():
            return None


def task_name(partition: Partition, step: str, index: int) -> str:
    match partition:
        case Simple():
            return step
        case Shards(_, first):
            return f"{step}.shard-{first + index}"
        case Packs(first=first):
            return f"{step}.pack-{first + index}"
        case Items():
            return f"{step}.item-{index}"


def shard_of(partition: Partition, index: int) -> Shard | None:
    return Shard(partition.first + index, partition.total) if isinstance(partition, Shards) else None


def pack_of(partition: Partition, index: int) -> Pack | None:
    """The range of a pack; the last one is cut."""
    if not isinstance(partition, Packs):
        return None
    start = partition.start + index * partition.size
    end = start + partition.size - 1
    return Pack(start, end if partition.end is None else min(end, partition.end))


def of(shards: Any = None, packs: Any = None, items: Any = None) -> Partition:
    """From the arguments of a step; `Invalid` for more than one of them."""
    given = [name for name, value in (("shards", shards), ("packs", packs), ("items", items)) if value is not None]
    if len(given) > 1:
        raise Invalid(f"A step has {' and '.join(given)}; it takes one of them.")
    if shards is not None:
        return Shards(shards)
    if packs is not None:
        return _packs(packs)
    return Simple() if items is None else Items()


def _packs(packs: Any) -> Packs:
    try:
        start, end, size = packs
    except (TypeError, ValueError):
        raise Invalid(f"packs={packs!r}; give (start, end, size), with end None if they never end.") from None
    return Packs(start, end, size)


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Partition).decode
