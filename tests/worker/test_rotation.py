"""Which queues are asked, and for how many jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.contract import Want
from holdfast.worker.rotation import Rotation, parts, shares

NAMES = [f"q{letter}" for letter in "abcdefgh"]


def rotation(*names: str) -> Rotation:
    found = Rotation()
    found.know(names)
    return found


def asked(found: Rotation, room: int) -> list[str]:
    return found.next(room, list)[0]


def test_queues_take_turns_where_there_is_no_room_for_all() -> None:
    found = rotation("qa", "qb", "qc")
    assert asked(found, 2) == ["qa", "qb"]
    found.call()
    assert asked(found, 2) == ["qc", "qa"]
    assert asked(found, 2) == ["qb"]
    assert not found.unasked


def test_whoever_rests_is_passed_over_and_told_of() -> None:
    found = rotation("qa", "qb", "qc")
    assert found.next(2, lambda queues: [queue for queue in queues if queue != "qb"]) == (["qa", "qc"], {"qb"})
    assert not found.unasked


def test_of_many_rich_queues_a_few_are_asked_at_once_and_the_others_next() -> None:
    found = rotation("qa", "qb", "qc", "qd", "qe")
    found.rich = {"qa", "qb", "qd", "qe"}
    assert found.next(9, list, most_rich=2) == (["qa", "qb", "qc"], set())
    found.call(["qa", "qb", "qc"])
    assert found.next(9, list, most_rich=2) == (["qd", "qe", "qc"], set())
    assert found.unasked == {"qa", "qb"}
    assert found.next(9, list, most_rich=2) == (["qa", "qb"], set())
    assert not found.unasked


def test_a_call_for_some_queues_is_no_call_for_others() -> None:
    found = rotation("qa", "qb", "qc")
    assert asked(found, 9) == ["qa", "qb", "qc"]
    found.call(["qb", "unknown"])
    assert found.unasked == {"qb"}
    assert asked(found, 9) == ["qb"]


def test_there_may_be_more_where_all_was_got_that_was_asked_for() -> None:
    found = rotation("qa", "qb", "qc")
    wants = [Want("qa", 2, 2), Want("qb", 2, 2), Want("qc", 2, 2)]
    assert found.learn(wants, ["qa", "qa", "qb"]) == ["qa"]
    assert found.rich == {"qa"}
    assert found.learn([Want("qb", 1, 1)], ["qb"]) == ["qb"]
    assert found.rich == {"qa", "qb"}
    assert found.learn([Want("qa", 4, 4)], ["qa"]) == []
    assert found.rich == {"qb"}
    found.know(["qa", "qc"])
    assert found.rich == set()


def test_half_of_the_room_is_for_queues_that_gave_all_they_were_asked_for() -> None:
    found = shares(NAMES, {"qc"}, 160, 16)
    assert {want.queue: (want.room, want.free) for want in found} == dict.fromkeys(NAMES, (10, 1)) | {"qc": (90, 9)}


@given(whole=st.integers(0, 600), many=st.lists(st.booleans(), min_size=1, max_size=50))
def test_the_parts_are_no_more_than_the_whole_and_everybody_gets_one(whole: int, many: list[bool]) -> None:
    found = parts(whole, many)
    assert sum(found) <= whole
    assert all(part >= 0 for part in found)
    if whole >= len(many):
        assert all(part >= 1 for part in found)


@pytest.mark.parametrize("many", [[False] * 4, [True] * 4])
def test_without_a_difference_all_get_the_same(many: list[bool]) -> None:
    assert parts(10, many) == [2, 2, 2, 2]
