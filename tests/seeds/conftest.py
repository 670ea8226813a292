"""The invariants hold after each of these tests too."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App
from tests.conftest import Preparation, with_queues
from tests.invariants import check_after


@pytest.fixture(scope="session")
def preparation() -> Preparation:
    return with_queues("mail")


@pytest.fixture(autouse=True)
def invariants(request: pytest.FixtureRequest, url: str, instance: str) -> Any:
    yield
    check_after(url, instance)


@pytest.fixture
def hipq(app: Callable[..., App]) -> App:
    """An instance with one queue."""
    made = app()
    made.queue("mail")
    return made
