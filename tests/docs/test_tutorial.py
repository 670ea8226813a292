"""The tutorial does what it says, on both databases."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, blocks, run
from tests.postgres_server import Server

TUTORIAL = DOCS / "tutorial.md"
SQLITE = "sqlite:///shop.db"


@pytest.mark.long
def test_the_tutorial_runs_on_sqlite(tmp_path: Path) -> None:
    run(TUTORIAL, tmp_path, {}, {})

    assert (tmp_path / "shop.db").exists()


@pytest.mark.long
def test_the_tutorial_runs_on_postgresql_with_one_line_changed(tmp_path: Path, empty_database: str) -> None:
    assert sum(block.text.count(SQLITE) for block in blocks(TUTORIAL) if block.language == "python") == 1

    # A dead worker is missed sooner than by default, or the page would take half a minute.
    run(TUTORIAL, tmp_path, {SQLITE: empty_database}, {"HOLDFAST_HEARTBEAT": "0.5", "HOLDFAST_LOST_AFTER": "2"})

    assert not (tmp_path / "shop.db").exists()


@pytest.fixture
def empty_database(postgres: Server) -> Iterator[str]:
    name = f"tutorial_{os.getpid()}"
    yield postgres.create(name)
    postgres.drop(name)
