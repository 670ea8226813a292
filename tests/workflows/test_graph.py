"""Circles in step graphs are found, all of them; an order for reading is behind every dependency."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.workflows.graph import cycles, in_order

pytestmark = pytest.mark.claim("F1")

NAMES = "abcde"
GRAPHS = some.fixed_dictionaries({name: some.lists(some.sampled_from(NAMES + "x"), max_size=4) for name in NAMES})


def is_cyclic(after: dict[str, list[str]]) -> bool:
    """Worked out by taking away steps that come after nothing."""
    left = dict(after)
    while True:
        free = [name for name in left if not any(other in left for other in left[name])]
        if not free:
            return bool(left)
        for name in free:
            del left[name]


def without(after: dict[str, list[str]], circles: list[list[str]]) -> dict[str, list[str]]:
    """The graph without the last link of each circle."""
    cut = {(circle[-2], circle[-1]) for circle in circles}
    return {name: [other for other in others if (name, other) not in cut] for name, others in after.items()}


def test_circles_are_told_along_their_links() -> None:
    assert cycles({"a": ["b"], "b": ["c"], "c": ["a"]}) == [["a", "b", "c", "a"]]
    assert cycles({"a": ["a"]}) == [["a", "a"]]
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": []}) == []
    assert cycles({"a": ["nobody"]}) == []


def test_two_circles_are_both_told() -> None:
    apart = {"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"]}
    assert cycles(apart) == [["a", "b", "a"], ["c", "d", "c"]]
    assert len(cycles({"a": ["b", "c"], "b": ["a"], "c": ["a"]})) == 2


def test_every_graph_of_three_steps() -> None:
    links = list(itertools.product("abc", repeat=2))
    for chosen in itertools.product([False, True], repeat=len(links)):
        after = {
            name: [to for (of, to), is_in in zip(links, chosen, strict=True) if is_in and of == name] for name in "abc"
        }
        assert bool(cycles(after)) is is_cyclic(after)


@given(GRAPHS)
def test_a_graph_without_one_link_of_each_circle_has_none(after: dict[str, list[str]]) -> None:
    found = cycles(after)
    assert bool(found) is is_cyclic(after)
    for circle in found:
        assert circle[0] == circle[-1]
        assert all(to in after[of] for of, to in itertools.pairwise(circle))
    assert not is_cyclic(without(after, found))


def test_a_long_chain_needs_no_deep_stack() -> None:
    chain = {f"s{at}": [f"s{at + 1}"] for at in range(20_000)}
    assert cycles(chain) == []
    (circle,) = cycles({**chain, "s20000": ["s0"]})
    assert len(circle) == 20_002


@given(GRAPHS, some.fixed_dictionaries({name: some.integers(0, 1) for name in NAMES}))
def test_steps_are_read_behind_what_they_come_after(after: dict[str, list[str]], phases: dict[str, int]) -> None:
    legal = {
        name: [other for other in others if other in phases and other < name and phases[other] <= phases[name]]
        for name, others in after.items()
    }
    order = in_order(legal, phases)
    assert sorted(order) == sorted(legal)
    assert [phases[name] for name in order] == sorted(phases.values())
    for name, others in legal.items():
        assert all(order.index(other) < order.index(name) for other in others)


def test_a_graph_with_a_circle_is_still_read_whole() -> None:
    order = in_order({"a": ["b"], "b": ["a"], "c": []}, {"a": 0, "b": 0, "c": 0})
    assert order == ["c", "a", "b"]
