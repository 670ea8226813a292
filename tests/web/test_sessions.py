"""Sessions of browsers: how long they last, what they may, who ends them, and that they are seen."""

from datetime import timedelta

import pytest
from litestar.testing import TestClient

from holdfast import App
from holdfast.clock import MovableClock
from holdfast.stores.contract import SessionLimits, TokenRow
from holdfast.web import auth, secret, uses
from holdfast.web.app import create
from tests.raw_sql import RawSql
from tests.web.conftest import ADDRESS, Browser, Client, token

LIMITS = SessionLimits()
HOUR = 3600.0


def with_token(app: App, client: Client, made: str) -> None:
    """Log the client in with a token."""
    session = secret.new()
    assert app.store.log_in_with_token(secret.hashed(made), secret.hashed(session), LIMITS)
    client.cookies["holdfast_session_8765"] = session


def is_in(client: Client) -> bool:
    status = client.get("/api/v1/jobs").status_code
    assert status in (200, 401)
    return status == 200


def sessions(app: App) -> list[TokenRow]:
    return [row for row in app.store.tokens(app.lost_after) if row.kind == "session"]


def test_a_session_lasts_for_a_week_at_most(browser: Browser, clock: MovableClock) -> None:
    for _ in range(13):
        clock.advance(LIMITS.lifetime.total_seconds() / 14)
        assert is_in(browser.client)
    clock.advance(LIMITS.lifetime.total_seconds() / 14)
    assert not is_in(browser.client)


def test_a_session_ends_when_it_is_not_used_for_a_day(browser: Browser, shop: App, clock: MovableClock) -> None:
    clock.advance(23 * HOUR)
    assert is_in(browser.client)
    clock.advance(23 * HOUR)
    assert is_in(browser.client)
    clock.advance(24 * HOUR + 1)
    assert not is_in(browser.client)
    assert sessions(shop) == []


def test_both_times_can_be_set(shop: App, clock: MovableClock) -> None:
    limits = SessionLimits(lifetime=timedelta(hours=2), idle_timeout=timedelta(minutes=30))
    with TestClient(create(shop, session_limits=limits), base_url=ADDRESS) as client:
        Browser(client, shop)
        for _ in range(7):
            clock.advance(HOUR / 4)
            assert is_in(client)
        clock.advance(HOUR / 4)
        assert not is_in(client)
        Browser(client, shop)
        clock.advance(HOUR / 2 + 1)
        assert not is_in(client)


def test_the_last_use_is_stored_once_a_minute_at_most(browser: Browser, shop: App, clock: MovableClock) -> None:
    assert is_in(browser.client)
    first = clock.now()
    for seconds in (0, 20, 20, 19):
        clock.advance(seconds)
        assert is_in(browser.client)
        assert [row.use_time for row in sessions(shop)] == [first]
    clock.advance(1)
    assert is_in(browser.client)
    assert [row.use_time for row in sessions(shop)] == [clock.now()]


def test_the_last_use_of_a_token_is_stored_too(shop: App, client: Client, clock: MovableClock) -> None:
    clock.advance(5)
    assert is_in(client)
    assert [row.use_time for row in shop.store.tokens(30.0)] == [clock.now()]


def test_a_use_that_cannot_be_stored_stops_nobody(
    shop: App, browser: Browser, sql: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uses, "PATIENCE", 0.05)
    with shop.store.transaction() as connection:
        connection.execute(f'update "{shop.name}__access" set use_time = null')  # and its locks are kept
        assert is_in(browser.client)
    assert [row.use_time for row in sessions(shop)] == [None]


def test_a_session_is_listed_until_it_ends(browser: Browser, shop: App) -> None:
    (row,) = sessions(shop)
    assert (row.name, row.scope, row.queues) == ("app", "admin", None)
    assert row.expires_time == row.create_time + LIMITS.lifetime
    browser.client.post("/logout", headers={"X-CSRF-Token": browser.csrf_token})
    assert sessions(shop) == []


def test_a_login_link_is_listed_until_it_is_used(shop: App, stranger: Client) -> None:
    link = auth.make_login(shop, name="ann", scope="operate")
    (row,) = shop.store.tokens(30.0)
    assert (row.kind, row.name, row.scope) == ("login", "ann", "operate")
    stranger.get(f"/login?token={link}", follow_redirects=False)
    (row,) = shop.store.tokens(30.0)
    assert (row.kind, row.name, row.scope) == ("session", "ann", "operate")


def test_a_session_is_ended_by_its_id_and_others_go_on(shop: App, browser: Browser) -> None:
    with TestClient(create(shop), base_url=ADDRESS) as other:
        Browser(other, shop)
        newer, _ = sessions(shop)
        shop.store.revoke_token(str(newer.id), "tests")
        assert is_in(browser.client)
        assert not is_in(other)


def test_revoking_a_name_ends_everything_of_that_name(shop: App, stranger: Client) -> None:
    link = auth.make_login(shop, name="ann")
    with_token(shop, stranger, token(shop, name="ann"))
    assert is_in(stranger)
    assert shop.store.revoke_token("ann", "tests") == 1
    assert not is_in(stranger)
    assert stranger.get(f"/login?token={link}", follow_redirects=False).status_code == 401
    assert shop.store.tokens(30.0) == []


def test_revoking_a_token_ends_the_sessions_that_were_made_with_it(
    shop: App, stranger: Client, browser: Browser
) -> None:
    by_link = dict(browser.client.cookies)
    with_token(shop, stranger, token(shop, name="ci"))
    ci = next(row for row in shop.store.tokens(30.0) if row.kind == "token")
    assert shop.store.revoke_token(str(ci.id), "tests") == 1
    assert not is_in(stranger)
    stranger.cookies.clear()
    stranger.cookies.update(by_link)
    assert is_in(stranger)


def test_a_session_whose_token_is_gone_is_worth_nothing(shop: App, stranger: Client, sql: RawSql) -> None:
    """However it went: an older program that revokes it knows nothing of sessions."""
    with_token(shop, stranger, token(shop))
    sql("delete from {token} where kind = 'token'")
    assert not is_in(stranger)
    assert sessions(shop) == []


def test_a_session_never_outlives_its_token(shop: App, stranger: Client, clock: MovableClock) -> None:
    with_token(shop, stranger, token(shop, lasts=timedelta(hours=3)))
    (row,) = sessions(shop)
    assert row.expires_time == clock.now() + timedelta(hours=3)
    clock.advance(3 * HOUR - 1)
    assert is_in(stranger)
    clock.advance(1)
    assert not is_in(stranger)


def test_all_sessions_and_links_end_together(shop: App, browser: Browser) -> None:
    made, link = token(shop), auth.make_login(shop)
    assert shop.store.revoke_sessions("tests") == 1
    assert not is_in(browser.client)
    assert browser.client.get(f"/login?token={link}", follow_redirects=False).status_code == 401
    browser.client.headers["Authorization"] = f"Bearer {made}"
    assert is_in(browser.client)


def test_what_a_person_does_is_audited_under_the_name_of_the_session(shop: App, stranger: Client, sql: RawSql) -> None:
    link = auth.make_login(shop, name="ann", scope="operate")
    stranger.get(f"/login?token={link}", follow_redirects=False)
    csrf_token = secret.csrf_token(stranger.cookies["holdfast_session_8765"])
    assert stranger.post("/api/v1/queues/mail/pause", headers={"X-CSRF-Token": csrf_token}).status_code == 200
    assert stranger.post("/logout", headers={"X-CSRF-Token": csrf_token}).status_code == 200
    left = [(row["actor"], row["action"]) for row in sql("select * from {audit} order by id")]
    assert left == [("app", "create login link"), *(("session:ann", each) for each in ("log in", "pause", "log out"))]
