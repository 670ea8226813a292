"""Playing seeds, and telling the shortest story that breaks a promise."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tests.simulation.stages import Stage
from tests.simulation.story import Action, shrunk, written
from tests.simulation.world import World


def play(seed: int, story: Sequence[Action] | None = None, stage: Stage | None = None) -> list[str]:
    """What happened; raises what the story came to, with that as a note. Without a stage it is played in memory."""
    world = World(seed, stage)
    try:
        world.play(written(seed) if story is None else story)
        return world.told
    except Exception as error:
        error.add_note("\n".join(world.told))
        raise
    finally:
        world.close()


def fault_of(seed: int, story: Sequence[Action] | None = None, stage: Stage | None = None) -> Exception | None:
    try:
        play(seed, story, stage)
    except Exception as error:
        return error
    return None


def first_fault(seeds: Iterable[int], stage: Stage | None = None) -> tuple[int, Exception] | None:
    """Of the first seed that breaks something."""
    with silence():
        for seed in seeds:
            error = fault_of(seed, None, stage)
            if error is not None:
                return seed, error
    return None


@contextmanager
def silence() -> Iterator[None]:
    """Sweepers say a lot in a world in which everything goes wrong."""
    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def story_of(seed: int, stage: Stage | None = None) -> str:
    """What is left of a seed's story when everything that does not matter is taken out, and what happened in it."""
    with silence():
        kind = type(fault_of(seed, None, stage))
        short = shrunk(written(seed), lambda story: type(fault_of(seed, story, stage)) is kind)
        error = fault_of(seed, short, stage)
    assert error is not None
    happened = "\n  ".join("\n".join(getattr(error, "__notes__", [])).splitlines())
    return f"Seed {seed} breaks a promise: {type(error).__name__}: {error}\n  {happened}"
