"""The fault report tells what was injected and what held, and hides no failure."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults.page import written
from tests.faults.report import Report
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
