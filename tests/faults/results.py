"""What a fault test says about itself: what it injected, by which seed, what was measured, and how it ended."""

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.invariants import Row, check_invariants


class Told(Struct):
    """What a test has said so far; also of one that failed half-way."""

    injected: list[tuple[str, int]] = []
    seed: int | None = None
    checks: int = 0  # of all invariants
    builds: bool = False  # of those about builds too
    figures: dict[str, Any] = {}
    seeds: tuple[int, int] | None = None  # the first and the last of many
    store: str = ""  # if its parameters do not say


class Result(Struct, frozen=True):
    """One test on one store, when it is over."""

    test: str
    items: tuple[tuple[int, str], ...]  # of the fault list, each with what is injected
    told: Told
    store: str
    seconds: float
    verdict: str  # held, FAILED, not run
    reason: str
    time: str

    @property
    def sentence(self) -> str:
        name = self.test.partition("[")[0].rpartition("::")[2]
        return name.removeprefix("test_").replace("_", " ")

    @property
    def failed(self) -> bool:
        return self.verdict == "FAILED"


class Fault:
    """The fixture `fault`: everything said here stands in the fault report."""

    def __init__(self, told: Told) -> None:
        self.told = told

    def injected(self, what: str, times: int = 1) -> None:
        """Something was broken on purpose; the times of one thing add up."""
        for index, (name, before) in enumerate(self.told.injected):
            if name == what:
                self.told.injected[index] = (what, before + times)
                return
        self.told.injected.append((what, times))

    def luck(self, seed: int) -> random.Random:
        """Where every choice of the test comes from."""
        self.told.seed = seed
        return random.Random(seed)

    def played(self, seeds: range, store: str) -> None:
        """Each of these seeds is a story of its own, on this store."""
        self.told.seeds, self.told.store = (seeds[0], seeds[-1]), store

    def measured(self, **figures: Any) -> None:
        """`recovery`: seconds until it went on; `twice`: handlers called once more than their job needed; and others."""
        self.told.figures.update(figures)

    def check(
        self,
        url: str,
        instance: str,
        accepted: Iterable[int] = (),
        final_before: Mapping[int, Row] | None = None,
        builds: Path | None = None,
    ) -> None:
        """All invariants, at this moment."""
        check_invariants(url, instance, accepted, final_before, builds)
        self.told.checks += 1
        self.told.builds = self.told.builds or builds is not None


def sizes(sample: Any, full: Any, timeout: float = 1200) -> list[Any]:
    """For `parametrize`: a sample, which `make sample` runs, and the full size, which `make faults` runs."""
    marks = [pytest.mark.faults, pytest.mark.timeout(timeout)]
    return [pytest.param(sample, id="sample"), pytest.param(full, id="full", marks=marks)]
