"""Thousands of stories of crashes, pauses, full disks and clocks that jump, each from one number; no promise is broken in any.

A seed that fails is told as the shortest story that fails as well. `make sim SEEDS=20000` plays more of them.
"""

import pytest

from tests.simulation.playing import first_fault, story_of
from tests.simulation.story import Action, shrunk, written

SEEDS = 2000
AT_A_TIME = 50
KEPT = [1071]  # seeds that once broke a promise


@pytest.mark.fault(14, "50 seeds of crashes, delays, errors and jumping clocks")
@pytest.mark.claim("R1", "J2", "J3", "J5", "J9", "J10", "J12", "Q4", "Q5", "W1", "W3", "W5", "C2", "C3", "C4")
@pytest.mark.parametrize("start", range(0, SEEDS, AT_A_TIME))
def test_no_story_breaks_a_promise(start: int) -> None:
    found = first_fault(range(start, start + AT_A_TIME))
    if found:
        pytest.fail(story_of(found[0]), pytrace=False)


@pytest.mark.parametrize("seed", KEPT)
def test_what_once_broke_a_promise_does_not_any_more(seed: int) -> None:
    assert first_fault([seed]) is None


def test_a_seed_is_one_story() -> None:
    assert written(7) == written(7) != written(8)


def test_a_story_that_fails_shrinks_to_what_matters() -> None:
    def fails(story: list[Action]) -> bool:
        names = [action.name for action in story]
        return "kill" in names and "turn" in names[names.index("kill") :]

    seed = next(number for number in range(1000) if fails(written(number)))
    assert [action.name for action in shrunk(written(seed), fails)] == ["kill", "turn"]  # type: ignore[arg-type]
