"""Whatever a test about workflows did, runs, steps and tasks agree afterwards."""

from collections.abc import Iterator

import pytest

from tests.conftest import instance_used_again, invariants_afterwards


@pytest.fixture
def instance(request: pytest.FixtureRequest) -> Iterator[str]:
    yield from instance_used_again(request)


@pytest.fixture(autouse=True)
def invariants(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from invariants_afterwards(request)
