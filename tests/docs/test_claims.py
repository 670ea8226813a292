"""The ledger of guarantees notices what is missing, unknown or stale."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs import claims

PYPROJECT = '[tool.pytest.ini_options]\nmarkers = ["claim(*numbers): x"]\naddopts = ["--strict-markers"]\n'
LEDGER = """
[[section]]
title = "A section"
[[section.claim]]
number = "J1"
title = "One"
scope = "now"
text = "One holds."
[[section.claim]]
number = "J2"
title = "Two"
scope = "later"
text = "Two will hold."
"""
TESTS = """
import pytest
pytestmark = pytest.mark.claim("M1")

@pytest.mark.claim("J1", "J2")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_marked(store): ...

@pytest.mark.claim("K1")
class TestClass:
    def test_inside(self): ...
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "guarantees.toml").write_text(LEDGER)
    (tmp_path / "tests").mkdir()
    return tmp_path


def run(repository: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, claims.__file__, "--root", str(repository), *options]
    quick = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=quick)


def test_marks_of_functions_classes_and_modules_are_found_once_per_test(repository: Path) -> None:
    (repository / "tests" / "test_it.py").write_text(TESTS)

    said = run(repository, "--check").stdout

    assert "tests/test_it.py::TestClass::test_inside: claims K1" in said
    assert said.count("tests/test_it.py::test_marked: claims M1") == 1
    assert "J1" not in said


def test_a_guarantee_in_force_without_a_test_fails_the_check_and_an_intended_one_does_not(repository: Path) -> None:
    run(repository, "--write")

    checked = run(repository, "--check")

    assert checked.returncode == 1
    assert checked.stdout.strip() == "J1 (One): no test holds it."


def test_the_page_is_stale_until_it_is_written_again(repository: Path) -> None:
    (repository / "tests" / "test_it.py").write_text(TESTS.replace('"M1"', '"J1"').replace('"K1"', '"J1"'))

    assert "stale" in run(repository, "--check").stdout
    assert run(repository, "--write").returncode == 0
    assert run(repository, "--check").returncode == 0
    assert "  - `TestClass::test_inside`\n  - `test_marked`\n" in (repository / "docs" / "guarantees.md").read_text()


def test_tests_that_cannot_be_collected_are_reported(repository: Path) -> None:
    (repository / "tests" / "test_it.py").write_text("import nowhere_to_be_found")

    checked = run(repository, "--check")

    assert checked.returncode == 1
    assert "nowhere_to_be_found" in checked.stderr


def test_a_number_written_twice_is_refused(repository: Path) -> None:
    (repository / "docs" / "guarantees.toml").write_text(LEDGER.replace('"J2"', '"J1"'))

    with pytest.raises(SystemExit, match="J1 is written more than once"):
        claims.read(repository / "docs" / "guarantees.toml")


def test_the_ledger_of_this_repository_reads() -> None:
    assert len(claims.read(claims.ROOT / "docs" / "guarantees.toml").claims()) == 80
