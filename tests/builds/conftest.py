"""A repository and a folder for each test."""

from pathlib import Path

import pytest

from tests.builds.making import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a build is performed; it is not there yet."""
    return tmp_path / "builds" / "7"
