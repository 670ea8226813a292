"""How a step's work is cut into tasks (F12): one, shards, packs, or items. Nothing here does I/O.

- Tasks of a step are numbered from 0 and named after the step: `calc`, `calc.shard-3`, `calc.pack-0`, `calc.item-41`.
- A pack is an inclusive range, and the last one is cut: 0 to 925 by 100 are ten packs, the last one 900 to 925.
- A first shard or pack above 0 is TasCreed's start id. Shards before it are left out, the others keep their index;
  packs are only counted from it, their ranges say where they begin.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.errors import Invalid, quoted

MOST_UNDONE = 50
MOST_UNDONE_ITEMS = 1000
HIGHEST = 2**63 - 1  # what both databases can count to


class Simple(Struct, frozen=True, tag_field="kind", tag="simple"):
    """One task, named like the step."""


class Shards(Struct, frozen=True, tag_field="kind", tag="shards"):
    """So many tasks, each knowing its index and how many there are; only those from `first` on."""

    total: int
    first: int = 0


class Packs(Struct, frozen=True, tag_field="kind", tag="packs"):
    """Ranges of `size` numbers from `start` to `end`, both inclusive; without an end they never end."""

    start: int
    end: int | None
    size: int
    first: int = 0


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


def problems(partition: Partition) -> Iterator[tuple[str, str]]:
    """Everything that is wrong with its numbers: the field, and what is the matter with it."""
    wrong: list[tuple[str, str]] = []
    match partition:
        case Shards(total, first):
            wrong = [*_no_number("total", total, 0), *_no_number("first", first, 0)]
            if not wrong and first > total:
                wrong = [("first", f"is {first}, behind the last of {total} shards")]
        case Packs(start, end, size, first):
            wrong = [*_no_number("start", start), *([] if end is None else _no_number("end", end))]
            if not wrong and end is not None and end < start - 1:
                wrong = [("end", f"is {end}, before the start at {start}")]
            wrong += [*_no_number("size", size, 1), *_no_number("first", first, 0)]
    yield from wrong


def _no_number(name: str, value: Any, least: int = -HIGHEST) -> list[tuple[str, str]]:
    if is_whole(value) and least <= value <= HIGHEST:
        return []
    said = "there is none" if value is None else f"is {quoted(value)}"
    more = f", {least} or more" if least >= 0 else " of 64 bits" if is_whole(value) else ""
    return [(name, f"{said}; give a whole number{more}")]


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def count(partition: Partition) -> int | None:
    """How many tasks there will be; None where nobody knows before they are made, or where they never end."""
    match partition:
        case Simple():
            return 1
        case Shards(total, first):
            return max(0, total - first)
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
    """From the arguments of a step; `Invalid` for more than one of them, and for numbers that cannot be."""
    given = [name for name, value in (("shards", shards), ("packs", packs), ("items", items)) if value is not None]
    if len(given) > 1:
        raise Invalid(f"A step has {' and '.join(given)}; it takes one of them.")
    if shards is not None:
        return _checked(Shards(shards), "shards")
    if packs is not None:
        return _checked(_packs(packs), "packs")
    return Simple() if items is None else Items()


def _packs(packs: Any) -> Packs:
    try:
        start, end, size = packs
    except (TypeError, ValueError):
        raise Invalid(f"packs={quoted(packs)}; give (start, end, size), with end None if they never end.") from None
    return Packs(start, end, size)


def _checked(partition: Partition, argument: str) -> Partition:
    wrong = [f"{name} {text}" for name, text in problems(partition)]
    if wrong:
        raise Invalid(f"{argument}: {'; '.join(wrong)}.")
    return partition


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Partition).decode
