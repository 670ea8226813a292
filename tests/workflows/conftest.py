"""Whatever a test about workflows did, runs, steps and tasks agree afterwards."""

from collections.abc import Iterator

import pytest

from tests.conftest import Preparation, with_queues
from tests.invariants import check_after


@pytest.fixture(scope="session")
def preparation() -> Preparation:
    return with_queues("workflows")


@pytest.fixture(autouse=True)
def invariants(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test may leave nothing behind that breaks them, unless it is marked so."""
    if not {"url", "instance"} <= set(request.fixturenames):
        yield
        return
    url, instance = request.getfixturevalue("url"), request.getfixturevalue("instance")
    yield
    if request.node.get_closest_marker("broken_on_purpose") is None:
        check_after(url, instance)
