"""F12 of the pure part: how a step is cut into tasks, what they are called, and numbers that cannot be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast import Invalid
from holdfast.workflows import partition as partitions
from holdfast.workflows.partition import Items, Pack, Packs, Partition, Shard, Shards, Simple, count, task_name

pytestmark = pytest.mark.claim("F12")


def names(partition: Partition) -> list[str]:
    return [task_name(partition, "calc", index) for index in range(count(partition) or 0)]


def ranges(partition: Packs) -> list[tuple[int, int]]:
    found = [partitions.pack_of(partition, index) for index in range(count(partition) or 0)]
    return [(pack.start, pack.end) for pack in found if pack is not None]


def test_a_simple_step_has_one_task_named_like_it() -> None:
    assert names(Simple()) == ["calc"]
    assert partitions.shard_of(Simple(), 0) is None
    assert partitions.pack_of(Simple(), 0) is None


def test_shards_know_their_index_and_how_many_there_are() -> None:
    assert names(Shards(3)) == ["calc.shard-0", "calc.shard-1", "calc.shard-2"]
    assert [partitions.shard_of(Shards(3), index) for index in range(3)] == [Shard(0, 3), Shard(1, 3), Shard(2, 3)]


def test_shards_before_a_start_id_are_left_out_and_the_others_keep_their_index() -> None:
    assert names(Shards(4, first=2)) == ["calc.shard-2", "calc.shard-3"]
    assert [partitions.shard_of(Shards(4, first=2), index) for index in range(2)] == [Shard(2, 4), Shard(3, 4)]


def test_0_to_925_by_100_are_ten_packs_and_the_last_is_cut() -> None:
    packs = Packs(0, 925, 100)
    assert count(packs) == 10
    assert ranges(packs)[0] == (0, 99)
    assert ranges(packs)[9] == (900, 925)
    assert names(packs)[::9] == ["calc.pack-0", "calc.pack-9"]


def test_packs_are_counted_from_a_start_id_and_begin_at_their_start() -> None:
    packs = Packs(500, 699, 100, first=5)
    assert names(packs) == ["calc.pack-5", "calc.pack-6"]
    assert ranges(packs) == [(500, 599), (600, 699)]


def test_infinite_packs_have_no_number_and_no_last_one() -> None:
    endless = Packs(1000, None, 100)
    assert count(endless) is None
    assert partitions.pack_of(endless, 10**9) == Pack(1000 + 10**11, 1099 + 10**11)
    assert task_name(endless, "calc", 10**9) == "calc.pack-1000000000"


def test_nobody_knows_how_many_items_there_will_be() -> None:
    assert count(Items()) is None
    assert task_name(Items(), "calc", 41) == "calc.item-41"


@pytest.mark.parametrize("empty", [Shards(0), Shards(3, first=3), Packs(0, -1, 10), Packs(5, 4, 1)])
def test_a_partition_may_be_empty(empty: Partition) -> None:
    assert count(empty) == 0
    assert list(partitions.problems(empty)) == []


@given(some.integers(-1000, 1000), some.integers(0, 2000), some.integers(1, 300))
def test_packs_cover_every_number_once_and_in_order(start: int, length: int, size: int) -> None:
    found = ranges(Packs(start, start + length - 1, size))
    assert [number for first, last in found for number in range(first, last + 1)] == list(range(start, start + length))
    assert all(last - first + 1 == size for first, last in found[:-1])


@pytest.mark.parametrize(
    ("partition", "fields"),
    [
        (Shards(-1), {"total"}),
        (Shards(True), {"total"}),
        (Shards(2.0), {"total"}),  # type: ignore[arg-type]
        (Shards(None, "x"), {"total", "first"}),  # type: ignore[arg-type]
        (Shards(3, first=4), {"first"}),
        (Packs(None, "9", 0, -1), {"start", "end", "size", "first"}),  # type: ignore[arg-type]
        (Packs(0, 2**63, 1), {"end"}),
        (Packs(10, 8, 1), {"end"}),
        (Packs(10, 8, 0, -1), {"end", "size", "first"}),
    ],
)
def test_every_number_that_cannot_be_is_named(partition: Partition, fields: set[str]) -> None:
    assert {field for field, _ in partitions.problems(partition)} == fields


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"shards": 2, "packs": (0, 9, 1)}, "A step has shards and packs; it takes one of them."),
        ({"shards": "4"}, "shards: total is '4'; give a whole number, 0 or more."),
        ({"packs": (0, 9)}, r"packs=\(0, 9\); give \(start, end, size\)"),
        ({"packs": 7}, r"packs=7; give \(start, end, size\)"),
        ({"packs": (0, 9, 0)}, r"packs: size is 0; give a whole number, 1 or more."),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        partitions.of(**arguments)


def test_the_arguments_of_a_step_make_its_partition() -> None:
    assert partitions.of() == Simple()
    assert partitions.of(shards=4) == Shards(4)
    assert partitions.of(packs=[0, None, 5]) == Packs(0, None, 5)
    assert partitions.of(items=list) == Items()


@pytest.mark.parametrize("partition", [Simple(), Shards(4, 1), Packs(0, None, 5, 2), Packs(-5, 7, 1), Items()])
def test_a_partition_is_kept_as_it_is(partition: Partition) -> None:
    assert partitions.decode(partitions.encode(partition)) == partition
