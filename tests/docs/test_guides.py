"""The code in the guides runs and prints what they say."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builds.making import Repository
from tests.builds.site import installation
from tests.builds.yard import QUICK, SECRET
from tests.docs.blocks import DOCS, blocks, python, run
from tests.postgres_server import Server

GUIDES = {page.stem: page for page in sorted((DOCS / "guides").glob("*.md"))}
URL = "postgresql://jobs:secret@localhost/shop"
WITH_POSTGRES = ("enqueue-in-your-transaction", "use-django")


@pytest.mark.parametrize("guide", [name for name in GUIDES if name not in WITH_POSTGRES])
def test_a_guide_runs(guide: str, tmp_path: Path) -> None:
    run(GUIDES[guide], tmp_path, {}, {})


@pytest.mark.parametrize("guide", WITH_POSTGRES)
def test_a_guide_with_postgresql_runs(guide: str, tmp_path: Path, empty_database: str) -> None:
    run(GUIDES[guide], tmp_path, {URL: empty_database}, {})


def test_the_tests_in_the_guide_to_testing_pass(tmp_path: Path) -> None:
    for block in blocks(GUIDES["test-your-jobs"]):
        if block.file:
            (tmp_path / block.file).write_text(block.text)

    said = python(["-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path)

    assert "3 passed" in said
    assert not (tmp_path / "shop.db").exists()


def test_the_sender_in_the_guide_to_builds_is_believed_and_may_repeat_itself(tmp_path: Path) -> None:
    (sender,) = [block for block in blocks(GUIDES["build-on-push"]) if block.file == "notify.py"]
    (tmp_path / sender.file).write_text(sender.text)
    repository, url = Repository(tmp_path / "repository"), f"sqlite:///{tmp_path}/jobs.db"
    body = json.dumps({"commit": repository.commit(QUICK), "branch": "main"})

    with installation(tmp_path, url, "site", repository) as site:
        assert site.server
        said = [
            python([sender.file, f"{site.address}/hooks/generic/demo"], tmp_path, {"DEMO_SECRET": SECRET}, body)
            for _ in range(2)
        ]

    assert said == ["202\n", "200\n"]


@pytest.fixture
def empty_database(postgres: Server) -> Iterator[str]:
    name = f"guides_{os.getpid()}"
    yield postgres.create(name)
    postgres.drop(name)
