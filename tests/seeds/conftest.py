"""The invariants hold after each of these tests too."""

from collections.abc import Callable, Iterator

import pytest

from holdfast import App
from tests.conftest import instance_used_again, invariants_afterwards


@pytest.fixture
def instance(request: pytest.FixtureRequest) -> Iterator[str]:
    yield from instance_used_again(request)


@pytest.fixture(autouse=True)
def invariants(request: pytest.FixtureRequest, url: str, instance: str) -> Iterator[None]:
    yield from invariants_afterwards(request)


@pytest.fixture
def hipq(app: Callable[..., App]) -> App:
    """An instance with one queue."""
    made = app()
    made.queue("mail")
    return made
