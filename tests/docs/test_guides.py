"""The code in the guides runs and prints what they say."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, blocks, python, run
from tests.postgres_server import Server

GUIDES = {page.stem: page for page in sorted((DOCS / "guides").glob("*.md"))}
URL = "postgresql://jobs:secret@localhost/shop"
WITH_POSTGRES = "enqueue-in-your-transaction"


@pytest.mark.parametrize("guide", [name for name in GUIDES if name != WITH_POSTGRES])
def test_a_guide_runs(guide: str, tmp_path: Path) -> None:
    run(GUIDES[guide], tmp_path, {}, {})


def test_the_guide_to_transactions_runs_with_postgresql(tmp_path: Path, empty_database: str) -> None:
    run(GUIDES[WITH_POSTGRES], tmp_path, {URL: empty_database}, {})


def test_the_tests_in_the_guide_to_testing_pass(tmp_path: Path) -> None:
    for block in blocks(GUIDES["test-your-jobs"]):
        if block.file:
            (tmp_path / block.file).write_text(block.text)

    said = python(["-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path)

    assert "3 passed" in said
    assert not (tmp_path / "shop.db").exists()


@pytest.fixture
def empty_database(postgres: Server) -> Iterator[str]:
    name = f"guides_{os.getpid()}"
    yield postgres.create(name)
    postgres.drop(name)
