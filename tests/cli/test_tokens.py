"""`holdfast tokens`: what it refuses. What a token is good for stands with the API."""

import pytest

from holdfast import App
from tests.cli.conftest import Call


@pytest.mark.parametrize("days", ["3000000", "inf"])
def test_a_token_that_would_outlast_the_calendar_is_refused(cli: Call, shop: App, url: str, days: str) -> None:
    answer = cli("tokens", "create", "ci", "--days", days, "--url", url)
    assert answer.code == 2
    assert "give at most 365000, or leave it out" in answer.err
    assert shop.store.tokens() == []
    assert cli("tokens", "create", "ci", "--days", "365000", "--url", url).code == 0
