"""After every test of a store the invariants hold over whatever the test left behind."""

from collections.abc import Iterator

import pytest

from tests.invariants import check_invariants


@pytest.fixture(autouse=True)
def invariants(request: pytest.FixtureRequest) -> Iterator[None]:
    """Checked while the test's stores are still open; a test may leave nothing behind that breaks them."""
    used = set(request.fixturenames)
    if not {"url", "instance"} <= used:
        yield
        return
    url, instance = request.getfixturevalue("url"), request.getfixturevalue("instance")
    yield
    if request.node.get_closest_marker("broken_on_purpose") is None:
        check_invariants(url, instance)
