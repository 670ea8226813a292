"""Thousands of stories of crashes, pauses, full disks and clocks that jump, each from one number; no promise is broken in any.

A seed that fails is told as the shortest story that fails as well. `make sim SEEDS=20000` plays more of them.
"""

from pathlib import Path

import pytest

from tests.faults.results import Fault
from tests.simulation.playing import first_fault, play, story_of
from tests.simulation.stages import PostgresStage, Stage
from tests.simulation.story import KINDS, Action, read, shrunk, written

SEEDS = 2000
AT_A_TIME = 50
SEEDS_ON_POSTGRES = 40
MORE_ON_POSTGRES = 1000
KEPT = sorted((Path(__file__).parent / "kept").glob("*.txt"))  # stories that once broke a promise
CLAIMS = (
    "R1",
    "J2",
    "J3",
    "J5",
    "J9",
    "J10",
    "J12",
    "Q4",
    "Q5",
    "W1",
    "W3",
    "W5",
    "C2",
    "C3",
    "C4",
    "W6",
    "R6",
    "F13",
    "F14",
    "F18",
    "E4",
)


def check(fault: Fault, seeds: range, stage: Stage | None = None) -> None:
    fault.played(seeds, "sqlite" if stage is None else "postgres")
    found = first_fault(seeds, stage)
    if found:
        pytest.fail(story_of(found[0], stage), pytrace=False)


@pytest.mark.long
@pytest.mark.fault(14, "crashes, delays, errors and jumping clocks")
@pytest.mark.claim(*CLAIMS)
@pytest.mark.parametrize("start", range(0, SEEDS, AT_A_TIME))
def test_no_story_breaks_a_promise(start: int, fault: Fault) -> None:
    check(fault, range(start, start + AT_A_TIME))


@pytest.mark.long
@pytest.mark.fault(14, "crashes, delays, errors, lost answers and jumping clocks")
@pytest.mark.claim(*CLAIMS)
@pytest.mark.parametrize("start", range(0, SEEDS_ON_POSTGRES, 10))
def test_no_story_breaks_a_promise_on_postgres(start: int, fault: Fault, on_postgres: PostgresStage) -> None:
    check(fault, range(start, start + 10), on_postgres)


@pytest.mark.faults
@pytest.mark.fault(14, "crashes, delays, errors, lost answers and jumping clocks")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", range(SEEDS_ON_POSTGRES, SEEDS_ON_POSTGRES + MORE_ON_POSTGRES, 100))
def test_no_story_breaks_a_promise_on_postgres_of_many(start: int, fault: Fault, on_postgres: PostgresStage) -> None:
    check(fault, range(start, start + 100), on_postgres)


@pytest.mark.parametrize("story", KEPT, ids=lambda path: path.stem)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_what_once_broke_a_promise_does_not_any_more(story: Path, store: str, request: pytest.FixtureRequest) -> None:
    stage: Stage | None = None if store == "sqlite" else request.getfixturevalue("on_postgres")
    actions = read(story.read_text())
    assert actions
    play(0, actions, stage)


@pytest.mark.parametrize("seed", range(KINDS))
def test_a_seed_is_one_story(seed: int) -> None:
    assert written(seed) == written(seed) != written(seed + 1)
    assert play(seed) == play(seed) != play(seed + 1)


@pytest.mark.parametrize("seed", [0, 3, 6])
def test_a_seed_is_one_story_on_postgres(seed: int, on_postgres: PostgresStage) -> None:
    assert play(seed, None, on_postgres) == play(seed, None, on_postgres)


def test_a_story_that_fails_shrinks_to_what_matters() -> None:
    def fails(story: list[Action]) -> bool:
        names = [action.name for action in story]
        return "kill" in names and "turn" in names[names.index("kill") :]

    seed = next(number for number in range(1000) if fails(written(number)))
    assert [action.name for action in shrunk(written(seed), fails)] == ["kill", "turn"]  # type: ignore[arg-type]
