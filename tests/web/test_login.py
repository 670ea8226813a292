"""How a browser gets a session: by a login link, by the form, and back to the page that it asked for."""

import re
from typing import Any
from urllib.parse import quote

import pytest
from litestar.testing import TestClient

from holdfast import App
from holdfast.clock import MovableClock
from holdfast.web import auth, links
from holdfast.web.app import create
from tests.web.conftest import ADDRESS, Browser, Client, token

HTML = {"Accept": "text/html"}


def fields(page: str) -> dict[str, str]:
    """The fields of the form on a page, as a browser would send them back."""
    found = re.findall(r'<input[^>]* name="(\w+)"(?:[^>]* value="([^"]*)")?', page)
    return {name: value.replace("&amp;", "&").replace("&#39;", "'") for name, value in found}


def log_in(client: Client, shown: str, path: str = "/login", **more: str) -> Any:
    """Fill in the form that a page answers with, and send it as a browser does."""
    form = fields(client.get(path, headers=HTML).text) | {"token": shown} | more
    return client.post("/login", data=form, headers={**HTML, "Origin": ADDRESS}, follow_redirects=False)


def test_a_login_link_works_once(shop: App, stranger: Client) -> None:
    link = f"/login?token={auth.make_login(shop)}"
    first = stranger.get(link, follow_redirects=False)
    assert (first.status_code, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert stranger.get("/api/v1/jobs").status_code == 200
    stranger.cookies.clear()
    assert stranger.get(link, follow_redirects=False).status_code == 401
    page = stranger.get(link, headers=HTML, follow_redirects=False)
    assert (page.status_code, "This login link is not valid" in page.text) == (401, True)
    assert "token" in fields(page.text)


def test_asking_for_the_headers_of_a_link_does_not_use_it_up(shop: App, stranger: Client) -> None:
    link = f"/login?token={auth.make_login(shop)}"
    assert stranger.head(link).status_code == 401
    assert stranger.get(link, follow_redirects=False).status_code == 303


def test_a_login_link_is_valid_for_ten_minutes(shop: App, stranger: Client, clock: MovableClock) -> None:
    link = f"/login?token={auth.make_login(shop)}"
    clock.advance(links.LINK_LASTS.total_seconds())
    assert links.LINK_LASTS.total_seconds() == 600
    assert stranger.get(link, follow_redirects=False).status_code == 401


def test_the_form_is_open_to_everybody_and_names_nothing(shop: App, stranger: Client) -> None:
    answer = stranger.get("/login")
    assert answer.status_code == 200
    assert fields(answer.text).keys() == {"csrf_token", "next", "token"}
    assert shop.name not in answer.text
    assert "mail" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("scope", ["read", "operate", "admin"])
def test_a_token_in_the_form_makes_a_session_of_its_name_and_scope(shop: App, stranger: Client, scope: str) -> None:
    answer = log_in(stranger, f" {token(shop, scope, name='ann')}\n")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert stranger.get("/api/v1/jobs").status_code == 200
    session, _ = shop.store.tokens(30.0)
    assert (session.kind, session.name, session.scope) == ("session", "ann", scope)
    paused = stranger.post("/api/v1/queues/mail/pause", headers={"X-CSRF-Token": csrf_of(stranger)})
    assert paused.status_code == (403 if scope == "read" else 200)


def csrf_of(client: Client) -> str:
    found = re.search(r'name="csrf_token" value="(\w+)"', client.get("/queues", headers=HTML).text)
    return found[1] if found else ""


def test_the_form_takes_the_token_of_a_login_link_too(shop: App, stranger: Client) -> None:
    assert log_in(stranger, auth.make_login(shop)).status_code == 303


def test_a_wrong_token_gets_the_form_again_and_a_clear_text(shop: App, stranger: Client) -> None:
    revoked = token(shop, name="revoked")
    shop.store.revoke_token("revoked", "tests")
    for shown in ("hf_wrong", "", revoked, "\N{SNOWMAN}"):
        answer = log_in(stranger, shown, next="/jobs?state=error")
        assert answer.status_code == 401
        assert "This token is not valid" in answer.text
        assert fields(answer.text)["next"] == "/jobs?state=error"
    assert stranger.get("/api/v1/jobs").status_code == 401
    assert [row for row in shop.store.tokens(30.0) if row.kind == "session"] == []


PAGES = ("/", "/jobs?state=error&queue=mail", "/jobs/42", "/workflows/a%2Fb/x%20y", "/nothing", "/jobs?error=%22%3E'")


@pytest.mark.parametrize("page", PAGES)
def test_after_the_login_a_browser_is_back_on_the_page_that_it_asked_for(
    shop: App, stranger: Client, page: str
) -> None:
    answer = stranger.get(page, headers=HTML)
    assert answer.status_code == 401
    assert fields(answer.text).keys() == {"csrf_token", "next", "token"}
    assert log_in(stranger, token(shop), page).headers["location"] == page


def test_a_program_without_a_token_gets_no_form(stranger: Client) -> None:
    for path, headers in (("/jobs", {}), ("/api/v1/jobs", HTML), ("/jobs", {"Accept": "application/json"})):
        answer = stranger.get(path, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")


ELSEWHERE = (
    *("https://evil.example/", "https:evil.example", "//evil.example", "///evil.example", "/\\evil.example"),
    *(
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "\t//evil.example",
        " //evil.example",
        "evil.example",
    ),
    *("javascript:alert(1)", "/\r\nSet-Cookie: a=b", "/\0/evil.example", "/\x7f/evil", "//localhost:8765@evil.example"),
    *("http:///evil.example", "/login", "/login?token=x", "/jobs/\N{FULLWIDTH SOLIDUS}evil", "/" + "a" * 5000, "?a=b"),
)


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_no_login_leads_to_another_site(shop: App, stranger: Client, elsewhere: str) -> None:
    asked = stranger.get(f"/login?next={quote(elsewhere)}", headers=HTML)
    assert fields(asked.text)["next"] == "/"
    assert log_in(stranger, token(shop), next=elsewhere).headers["location"] == "/"


FOREIGN = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:9999"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": ADDRESS, "Sec-Fetch-Site": "cross-site"},
)


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_a_form_of_another_site_logs_nobody_in(
    shop: App, stranger: Client, headers: dict[str, str], accept: str
) -> None:
    """Else a stranger could have a person work in the stranger's session."""
    form = fields(stranger.get("/login").text) | {"token": token(shop)}
    answer = stranger.post("/login", data=form, headers={**headers, "Accept": accept}, follow_redirects=False)
    assert answer.status_code == 403
    assert stranger.get("/api/v1/jobs").status_code == 401


def test_nor_does_a_form_that_was_not_given_to_this_browser(shop: App, stranger: Client) -> None:
    made = token(shop)
    others = fields(stranger.get("/login").text)["csrf_token"]
    stranger.cookies.clear()
    assert fields(stranger.get("/login").text)["csrf_token"] != others
    for shown in (others, "", "0" * 64, None):
        form = {"token": made} | ({} if shown is None else {"csrf_token": shown})
        answer = stranger.post("/login", data=form, headers={**HTML, "Origin": ADDRESS}, follow_redirects=False)
        assert answer.status_code == 403, shown
    assert log_in(stranger, made).status_code == 303


def test_two_tabs_may_both_have_the_form(shop: App, stranger: Client) -> None:
    first, _ = (fields(stranger.get("/login").text) for _ in range(2))
    form, headers = first | {"token": token(shop)}, {**HTML, "Origin": ADDRESS}
    assert stranger.post("/login", data=form, headers=headers, follow_redirects=False).status_code == 303


def test_each_login_is_a_session_of_its_own(shop: App, stranger: Client) -> None:
    """A cookie of another origin does not become one."""
    stranger.cookies["holdfast_session_8765"] = "hf_planted"
    assert log_in(stranger, token(shop)).status_code == 303
    assert stranger.get("/api/v1/jobs", headers={"Cookie": "holdfast_session_8765=hf_planted"}).status_code == 401


def test_a_form_that_is_too_large_is_not_read(stranger: Client) -> None:
    assert stranger.post("/login", data={"token": "a" * 100_000}).status_code == 413


def test_logging_out_ends_the_session(browser: Browser) -> None:
    kept = dict(browser.client.cookies)
    assert browser.client.post("/logout", headers={"X-CSRF-Token": browser.csrf_token}).status_code == 200
    browser.client.cookies.update(kept)
    assert browser.client.get("/api/v1/jobs").status_code == 401


def test_whoever_logs_out_on_a_page_gets_the_form(browser: Browser) -> None:
    sent = {"data": {"csrf_token": browser.csrf_token}, "headers": HTML, "follow_redirects": False}
    answer = browser.client.post("/logout", **sent)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert "holdfast_session_8765" not in browser.client.cookies


def test_a_browser_whose_session_has_ended_is_told_so(shop: App, browser: Browser) -> None:
    assert "session has ended" not in TestClient(create(shop), base_url=ADDRESS).get("/jobs", headers=HTML).text
    shop.store.revoke_sessions("tests")
    page = browser.client.get("/jobs", headers=HTML)
    assert (page.status_code, "Your session has ended" in page.text) == (401, True)


def test_all_of_it_stays_below_the_path_that_it_is_mounted_at(shop: App) -> None:
    inner = create(shop)

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "root_path": "/admin/jobs"} if scope["type"] == "http" else scope, receive, send)

    with TestClient(mounted, base_url=ADDRESS) as client:
        page = client.get("/admin/jobs/queues", headers=HTML)
        assert 'action="/admin/jobs/login"' in page.text
        assert fields(page.text)["next"] == "/admin/jobs/queues"
        for elsewhere in ("/elsewhere", "//evil.example", "/admin/jobsevil"):
            assert fields(client.get(f"/admin/jobs/login?next={elsewhere}").text)["next"] == "/admin/jobs/"
        answer = client.get(f"/admin/jobs/login?token={auth.make_login(shop)}", follow_redirects=False)
        assert answer.headers["location"] == "/admin/jobs/"
        assert "path=/admin/jobs/" in answer.headers["set-cookie"].lower()
