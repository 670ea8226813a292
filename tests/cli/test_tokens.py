"""`holdfast tokens`: what it refuses, shows and writes down. What a token is good for stands with the API."""

import pytest

from holdfast import App
from holdfast.stores.contract import SessionLimits
from holdfast.web import links, secret
from tests.cli.conftest import Call
from tests.raw_sql import RawSql


@pytest.mark.parametrize("days", ["3000000", "inf"])
def test_a_token_that_would_outlast_the_calendar_is_refused(cli: Call, shop: App, url: str, days: str) -> None:
    answer = cli("tokens", "create", "ci", "--days", days, "--url", url)
    assert answer.code == 2
    assert "give at most 365000, or leave it out" in answer.err
    assert shop.store.tokens(30.0) == []
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


def session_of(app: App, made: str | None = None) -> str:
    """The hash of a session, made with a token or with a login link."""
    hashed = secret.hashed(secret.new())
    if made is None:
        assert app.store.log_in(
            secret.hashed(links.new_link(app, name="ann", actor="tests")), hashed, SessionLimits(), None
        )
    else:
        assert app.store.log_in_with_token(secret.hashed(made), hashed, SessionLimits())
    return hashed


def test_the_list_has_tokens_sessions_and_links(cli: Call, shop: App, url: str) -> None:
    made = cli("tokens", "create", "ci", "--scope", "operate", "--days", "1", "--json", "--url", url).json
    session_of(shop, made["token"])
    links.new_link(shop, name="bob", scope="read", actor="tests")
    rows = cli("tokens", "list", "--json", "--url", url).json
    assert [(row["name"], row["kind"], row["scope"]) for row in rows] == [
        ("bob", "login", "read"),
        ("ci", "session", "operate"),
        ("ci", "token", "operate"),
    ]
    assert len({row["id"] for row in rows}) == 3
    for row in rows:
        assert row.keys() >= {"id", "name", "kind", "scope", "queues", "create_time", "expires_time", "use_time"}
        assert row["expires_time"] <= rows[-1]["expires_time"]
    said = cli("tokens", "list", "--url", url).out
    assert all(word in said for word in ("bob", "login", "session", "token", "operate"))


def test_a_revoked_token_takes_its_sessions_with_it(cli: Call, shop: App, url: str) -> None:
    made = cli("tokens", "create", "ci", "--json", "--url", url).json
    gone, kept = session_of(shop, made["token"]), session_of(shop)
    assert cli("tokens", "revoke", "ci", "--json", "--url", url).json == {"revoked": "ci", "sessions": 1}
    assert shop.store.token(gone, "session") is None
    assert shop.store.token(kept, "session") is not None


def test_one_session_is_revoked_by_its_id(cli: Call, shop: App, url: str) -> None:
    first, second = session_of(shop), session_of(shop)
    newest = cli("tokens", "list", "--json", "--url", url).json[0]
    assert cli("tokens", "revoke", newest["id"], "--json", "--url", url).json["sessions"] == 1
    assert shop.store.token(first, "session") is not None
    assert shop.store.token(second, "session") is None


def test_all_sessions_are_revoked_at_once(cli: Call, shop: App, url: str) -> None:
    cli("tokens", "create", "ci", "--url", url)
    both = session_of(shop), session_of(shop)
    assert cli("tokens", "revoke", "--sessions", "--json", "--url", url).json == {"revoked": None, "sessions": 2}
    assert [shop.store.token(each, "session") for each in both] == [None, None]
    assert [row["name"] for row in cli("tokens", "list", "--json", "--url", url).json] == ["ci"]


def test_what_is_not_there_or_not_named_is_not_revoked(cli: Call, shop: App, url: str) -> None:
    session = session_of(shop)
    for named in ("nobody", "99", "9" * 30):
        assert cli("tokens", "revoke", named, "--url", url).code == 3
    assert cli("tokens", "revoke", "--url", url).code == 2
    assert cli("tokens", "revoke", "ann", "--sessions", "--url", url).code == 2
    assert shop.store.token(session, "session") is not None


def test_a_name_that_looks_like_an_id_is_refused(cli: Call, shop: App, url: str) -> None:
    assert cli("tokens", "create", "12", "--url", url).code == 2
    assert shop.store.tokens(30.0) == []
