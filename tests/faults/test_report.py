"""The fault report tells what was injected and what held, and hides no failure."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults.page import written
from tests.faults.report import Report, store_of
from tests.faults.results import Fault, Result, Told


def result(**more: Any) -> Result:
    told = Told([("kill -9", 20)], 7, 3, False, {"recovery": 1.234, "twice": 12})
    facts: dict[str, Any] = {
        "test": "tests/x.py::test_nothing_is_lost[sqlite]",
        "items": ((1, "a kill"),),
        "told": told,
        "store": "sqlite",
        "seconds": 4.2,
        "verdict": "held",
        "reason": "",
        "time": "2026-11-16T12:00:00+00:00",
    }
    return Result(**{**facts, **more})


def test_a_line_says_what_was_injected_by_which_seed_and_what_was_measured() -> None:
    page = written([result()])
    assert (
        "| nothing is lost | SQLite | kill -9 × 20 | 7 | I1–I9 checked 3 ×; recovery 1.23 s; twice 12 | 4.2 | held |"
        in page
    )
    assert "What did not hold" not in page
    assert "Not part of this run." in page


def test_a_failure_stands_first_and_in_its_line() -> None:
    page = written([result(), result(test="t::test_all_is_well", verdict="FAILED", reason="I1: job 7 is gone")])
    assert "## What did not hold\n\n- `t::test_all_is_well`: I1: job 7 is gone" in page
    assert "| 4.2 | **FAILED** |" in page
    assert "1 held, 1 FAILED" in page


def test_a_fault_that_is_injected_again_is_counted() -> None:
    fault = Fault(Told([], None, 0, False, {}))
    fault.injected("kill -9")
    fault.injected("kill -9", 2)
    assert fault.told.injected == [("kill -9", 3)]
    assert fault.luck(5).random() == fault.luck(5).random()


def test_seeds_that_follow_one_another_are_one_line_until_one_fails() -> None:
    def stretch(first: int, verdict: str = "held") -> Result:
        told = Told()
        Fault(told).played(range(first, first + 1000), "sqlite")
        return result(items=((14, "crashes"),), told=told, test=f"t::test_no_story_breaks[{first}]", verdict=verdict)

    page = written([stretch(0), stretch(1000)])
    assert "| no story breaks | SQLite | crashes | 0 to 1,999 |  | 8.4 | held |" in page
    page = written([stretch(0), stretch(1000, "FAILED"), stretch(2000)])
    assert "| 0 to 999 |  | 4.2 | held |" in page
    assert "| 2,000 to 2,999 |  | 4.2 | held |" in page
    assert "| 1,000 to 1,999 |  | 4.2 | **FAILED** |" in page


@pytest.mark.parametrize(
    ("test", "told", "store"),
    [
        ("tests/faults/test_sqlite.py::test_a", Told(), "sqlite"),
        ("tests/faults/test_postgres.py::test_a[full]", Told(), "postgres"),
        ("tests/faults/test_sqlite.py::test_a[postgres]", Told(), "postgres"),
        ("tests/x.py::test_a[50]", Told(store="sqlite"), "sqlite"),
        ("tests/x.py::test_a", Told(), ""),
    ],
)
def test_the_store_is_told_by_parameters_or_the_test_or_its_file(test: str, told: Told, store: str) -> None:
    assert store_of(test, told) == store


def ended(test: str, outcome: str) -> pytest.TestReport:
    return pytest.TestReport(test, ("x", 1, test), {}, outcome, "what it said", "teardown", [], 0.5)  # type: ignore[arg-type]


def test_a_narrower_run_replaces_its_own_tests_only(tmp_path: Path) -> None:
    page, kept = tmp_path / "page.md", tmp_path / "build" / "kept.json"
    whole = Report(page, kept, narrowed=False)
    for name in ("test_a[sqlite]", "test_b[sqlite]"):
        whole.pytest_runtest_logreport(ended(name, "failed"))
    whole.pytest_sessionfinish()
    assert page.read_text().count("**FAILED**") == 2
    part = Report(page, kept, narrowed=True)
    part.pytest_runtest_logreport(ended("test_b[sqlite]", "passed"))
    part.pytest_sessionfinish()
    assert {name: found.verdict for name, found in part.results.items()} == {
        "test_a[sqlite]": "FAILED",
        "test_b[sqlite]": "held",
    }
    assert Report(page, kept, narrowed=False).results == {}
