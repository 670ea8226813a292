"""Where the tests of workers begin."""

import pytest

from tests.conftest import Preparation, with_queues


@pytest.fixture(scope="session")
def preparation() -> Preparation:
    return with_queues("mail", "work")
