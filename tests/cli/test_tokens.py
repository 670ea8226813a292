"""`holdfast tokens`: what it refuses, shows and writes down. What a token is good for stands with the API."""

import pytest

from holdfast import App
from tests.cli.conftest import Call
from tests.raw_sql import RawSql


@pytest.mark.parametrize("days", ["3000000", "inf"])
def test_a_token_that_would_outlast_the_calendar_is_refused(cli: Call, shop: App, url: str, days: str) -> None:
    answer = cli("tokens", "create", "ci", "--days", days, "--url", url)
    assert answer.code == 2
    assert "give at most 365000, or leave it out" in answer.err
    assert shop.store.tokens() == []
    assert cli("tokens", "create", "ci", "--days", "365000", "--url", url).code == 0


def test_a_token_is_shown_once_kept_as_a_hash_and_written_down(cli: Call, shop: App, url: str) -> None:
    sql = RawSql(url, shop.name)
    secret = cli("tokens", "create", "ci", "--json", "--url", url).json["token"]
    listed = cli("tokens", "list", "--url", url), cli("tokens", "list", "--json", "--url", url)
    for answer in listed:
        assert "ci" in answer.out
        assert secret not in answer.out
        assert secret[4:] not in answer.out
    assert all(secret not in str(row) for row in sql("select * from {token}"))
    assert cli("tokens", "revoke", "ci", "--url", url).code == 0
    said = [
        (row["action"], row["detail"]) for row in sql("select * from {audit} order by id") if "token" in row["action"]
    ]
    assert [action for action, _ in said] == ["create token", "revoke token"]
    assert all("ci" in detail and secret not in detail for _, detail in said)
    sql.close()
