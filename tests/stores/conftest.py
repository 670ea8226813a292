"""After every test of a store the invariants hold over whatever the test left behind."""

from collections.abc import Iterator

import pytest

from tests.conftest import instance_used_again, invariants_afterwards


@pytest.fixture
def instance(request: pytest.FixtureRequest) -> Iterator[str]:
    """An instance with nothing in it, perhaps set up already, with at most the queue `mail`."""
    yield from instance_used_again(request, "mail")


@pytest.fixture(autouse=True)
def invariants(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from invariants_afterwards(request)
