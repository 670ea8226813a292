"""A repository and a folder for each test, and programs that build."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from holdfast.projects import QUEUE, STATUS_QUEUE
from tests.builds.making import Repository
from tests.builds.yard import Yard
from tests.conftest import Preparation, with_queues
from tests.invariants import check_after


@pytest.fixture(scope="session")
def preparation() -> Preparation:
    return with_queues(QUEUE, STATUS_QUEUE)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a build is performed; it is not there yet."""
    return tmp_path / "builds" / "7"


@pytest.fixture
def yard(app: Callable[..., App], tmp_path: Path, repository: Repository) -> Callable[..., Yard]:
    """Makes programs that build; each call is another process on the same database and folder."""

    def make(**settings: Any) -> Yard:
        root = tmp_path / "yard"
        root.mkdir(exist_ok=True)
        return Yard(app(), root, repository, **settings)

    return make


@pytest.fixture(autouse=True)
def invariants(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """A test of builds may leave nothing behind that breaks them; its files agree with the database."""
    if "yard" not in request.fixturenames:
        yield
        return
    url, instance = request.getfixturevalue("url"), request.getfixturevalue("instance")
    yield
    if request.node.get_closest_marker("broken_on_purpose") is None:
        check_after(url, instance, builds=tmp_path / "yard" / "builds")
