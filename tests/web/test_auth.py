"""The one check: every route, every method, every trick."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlencode

import anyio
import pytest
from litestar import Litestar
from litestar.exceptions import WebSocketDisconnect
from litestar.testing import TestClient

from holdfast import App
from holdfast.clock import MovableClock
from holdfast.web import auth, secret
from holdfast.web.app import create
from holdfast.web.callers import PUBLIC, SCOPES
from tests.raw_sql import RawSql
from tests.web.conftest import ADDRESS, Browser, Client, token
from tests.web.furnished import API, Deed, Furnished, Route, everything, routes

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND")
NAMES_NOTHING = {
    "status": 401,
    "code": "unauthorized",
    "title": "Unauthorized",
    "detail": "Show who you are: a token in `Authorization: Bearer …`, or a login.",
    "type": "about:blank",
    "errors": [],
}
# What is decided before a store is asked about more than a token: the sweeps over all routes need only one.
before_the_store = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def paths(app: App) -> Iterator[tuple[str, str, str | None]]:
    """Every path and method that there is, filled with what does not exist, and the scope it needs."""
    for route in routes(app):
        yield re.sub(r"\{\w+\}", "x", re.sub(r"\{\w+_id\}", "1", route.path)), route.method, route.needs


def test_every_route_says_what_it_needs(shop: App) -> None:
    found = list(paths(shop))
    assert len(found) > 40
    assert {needs for _, _, needs in found} <= {*SCOPES, PUBLIC}
    assert {path for path, _, needs in found if needs == PUBLIC} <= {"/healthz", "/readyz", "/login"} | {
        path for path, _, _ in found if path.startswith(("/hooks/", "/badges/"))
    }


def test_nothing_that_changes_something_needs_only_to_be_read(shop: App) -> None:
    weak = [path for path, method, needs in paths(shop) if method not in ("GET", "OPTIONS") and needs == "read"]
    assert weak == ["/logout"]


@before_the_store
def test_without_a_token_every_route_and_method_answers_the_same(shop: App, stranger: Client) -> None:
    open_ones = {(path, method) for path, method, needs in paths(shop) if needs == PUBLIC}
    for path in {path for path, _, _ in paths(shop)} | {"/", "/nothing", "/api/v1/nothing", "/api"}:
        for method in METHODS:
            if (path, method) in open_ones:
                continue
            answer = stranger.request(method, path)
            assert answer.status_code == 401, (method, path)
            assert method == "HEAD" or answer.json() == NAMES_NOTHING, (method, path)
            assert "allow" not in answer.headers


WAYS = (
    *("/{}", "{}/", "{}//", "/.{}", "/%2e{}", "/%2e%2e{}", "{}/%2e", "{};", ";{}", "{};healthz", "{};/healthz"),
    *("{}/healthz", "{}%2fhealthz", "{}/../healthz", "/healthz/..{}", "/healthz/%2e%2e{}", "/healthz%2f..{}"),
    *("/healthz;{}", "/hooks/x/..{}", "/badges/..{}", "/login/..{}"),
)


@before_the_store
def test_no_route_is_reached_without_a_good_token_however_it_is_written(furnished: Furnished, sql: RawSql) -> None:
    """Every route, streams included, at something that exists; who may only look changes nothing in any of these ways either."""
    app = furnished.app
    asgi, worthless, weak = create(app, projects=furnished.yard.projects), credentials(app), bearer(token(app, "read"))
    deeds, before = furnished.deeds(), everything(sql)

    async def asked(route: Route, path: str, shown: list[tuple[bytes, bytes]], refused: Sequence[int]) -> None:
        status = await status_of(asgi, route.method, path, shown)
        if status not in refused and not is_open(path):
            reached.append((route.method, path, status))

    async def ask() -> None:
        for route in routes(app):
            address = route.address(deeds[route.name].row if route.name in deeds else furnished.places(route)[0])
            for shown in worthless if route.needs != PUBLIC else ():
                await asked(route, address, shown, [401])
            for path in (address.upper(), *(way.format(address) for way in WAYS)) if route.needs != PUBLIC else ():
                await asked(route, path, [], [401])
                if route.needs != "read":
                    await asked(route, path, weak, [403, 404, 405])

    reached: list[tuple[str, str, int]] = []
    anyio.run(ask)
    assert reached == []
    assert everything(sql) == before


def is_open(path: str) -> bool:
    """What is another way to write an address that needs nobody."""
    return unquote(path).lstrip("/").partition(";")[0] == "healthz"


def credentials(app: App) -> list[list[tuple[bytes, bytes]]]:
    """Everything that is worth nothing: none, a wrong one, one that is over, one that was taken back, a session that ended."""
    revoked, late = token(app, name="revoked"), token(app, name="late", lasts=timedelta(0))
    app.store.revoke_token("revoked", "tests")
    ended = (b"cookie", b"holdfast_session_8765=hf_ended")
    return [[], bearer("hf_wrong"), bearer(late), bearer(revoked), [ended]]


def bearer(shown: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {shown}".encode())]


TRICKS = (
    "//api/v1/jobs",
    "/api//v1/jobs",
    "/api/v1/jobs/",
    "/api/v1/jobs//",
    "/API/v1/jobs",
    "/api/v1/jobs;healthz",
    "/api/v1/jobs;/healthz",
    "/api/v1/jobs/healthz",
    "/api/v1/jobs/1/healthz",
    "/api/v1/jobs%2fhealthz",
    "/healthz/../api/v1/jobs",
    "/healthz/%2e%2e/api/v1/jobs",
    "/healthz%2f..%2fapi/v1/jobs",
    "/healthz/..;/api/v1/jobs",
    "/./api/v1/jobs",
    "/%2e/api/v1/jobs",
    "/api/v1/%6aobs",
    "/healthz%00/../api/v1/jobs",
    "/hooks/../api/v1/jobs",
    "/login/../api/v1/jobs",
    "/api/v1/jobs?token=x",
    "/api/v1/jobs#/healthz",
    "/metrics/healthz",
    "/\\api\\v1\\jobs",
)


@before_the_store
def test_no_way_of_writing_a_path_gets_past_the_check(shop: App, stranger: Client) -> None:
    late = token(shop, name="late", lasts=timedelta(0))
    for path in TRICKS:
        for headers in ({}, {"Authorization": "Bearer hf_wrong"}, {"Authorization": f"Bearer {late}"}):
            for method in ("GET", "POST"):
                answer = stranger.request(method, f"{ADDRESS}{path}", headers=headers)
                assert answer.status_code == 401, (method, path, headers)


async def status_of(asgi: Any, method: str, path: str, headers: list[tuple[bytes, bytes]]) -> int:
    """For a path as it is written: a client would take its dots out before it asks."""
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def answer(message: Any) -> None:
        statuses.append(message.get("status"))

    scope = {"type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(), "query_string": b""}
    scope |= {
        "headers": [(b"host", b"localhost:8765"), *headers],
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
    }
    scope |= {"client": ("127.0.0.1", 9), "server": ("127.0.0.1", 8765), "asgi": {"version": "3.0"}}
    await asgi(scope, receive, answer)
    return statuses[0]


@before_the_store
def test_nor_does_one_that_no_client_would_send(shop: App) -> None:
    asgi, weak = create(shop), token(shop, "read")
    known = [(b"authorization", f"Bearer {weak}".encode())]
    for path in (
        *TRICKS,
        "/../api/v1/jobs",
        "/healthz/..",
        "/healthz/.",
        "/badges/../api/v1/jobs",
        "healthz/../metrics",
    ):
        bare = path.partition("?")[0]
        for method in ("GET", "POST", "DELETE"):
            assert anyio.run(status_of, asgi, method, bare, []) == 401, (method, path)
            changes = method != "GET"
            assert anyio.run(status_of, asgi, method, bare, known) in ((403, 404, 405) if changes else (200, 404)), path


def test_what_needs_nobody_answers(stranger: Client) -> None:
    assert stranger.get("/healthz").json() == {"status": "ok"}
    assert stranger.get("/readyz").json() == {"status": "ok"}


@before_the_store
@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_reaches_so_far_and_no_further(shop: App, stranger: Client, scope: str) -> None:
    stranger.headers["Authorization"] = f"Bearer {token(shop, scope)}"
    for path, method, needs in paths(shop):
        if needs in (PUBLIC, None) or path.endswith("/events"):
            continue
        answer = stranger.request(method, path)
        if SCOPES.index(needs) > SCOPES.index(scope):
            assert answer.status_code == 403, (method, path)
            assert needs in answer.json()["detail"]
        else:
            assert answer.status_code not in (401, 403), (method, path)


def test_only_the_whole_token_counts(shop: App, stranger: Client) -> None:
    made = token(shop)
    headers = (
        "",
        "Bearer",
        "Bearer ",
        "Bearer hf_",
        "Basic dGVzdHM6dGVzdHM=",
        "Bearer null",
        "bearer\t{token}",
        "Bearer {token}x",
        "{token}",
    )
    for header in headers:
        stranger.headers["Authorization"] = header.replace("{token}", made)
        assert stranger.get("/api/v1/jobs").status_code == 401, header


def test_two_tokens_at_once_are_worth_nothing(shop: App, stranger: Client) -> None:
    both = [("Authorization", f"Bearer {token(shop)}")] * 2
    assert stranger.request("GET", "/api/v1/jobs", headers=both).status_code == 401


def test_a_token_is_worth_nothing_once_its_time_is_over(shop: App, stranger: Client, clock: MovableClock) -> None:
    stranger.headers["Authorization"] = f"Bearer {token(shop, lasts=timedelta(days=1))}"
    assert stranger.get("/api/v1/jobs").status_code == 200
    clock.advance(86400)
    assert stranger.get("/api/v1/jobs").status_code == 401


def test_a_token_is_worth_nothing_once_it_is_revoked(shop: App, client: Client) -> None:
    assert client.get("/api/v1/jobs").status_code == 200
    shop.store.revoke_token("tests", "tests")
    assert client.get("/api/v1/jobs").status_code == 401


def test_only_hashes_are_stored(shop: App, stranger: Client, sql: RawSql) -> None:
    made, login = token(shop), auth.make_login(shop)
    stored = " ".join(str(value) for row in sql("select * from {token}") for value in row.values())
    assert secret.hashed(made) in stored
    assert made not in stored
    assert login not in stored


def test_a_token_is_no_session_and_a_login_no_token(shop: App, stranger: Client) -> None:
    stranger.cookies["holdfast_session_8765"] = token(shop)
    assert stranger.get("/api/v1/jobs").status_code == 401
    stranger.cookies.clear()
    login = auth.make_login(shop)
    assert stranger.get("/api/v1/jobs", headers={"Authorization": f"Bearer {login}"}).status_code == 401
    assert stranger.get(f"/login?token={token(shop, name='other')}", follow_redirects=False).status_code == 401


OTHERS_COOKIES = [
    'prefs={"a":"b"}',
    "x=a b c",
    "x[1]=2",
    "foo",
    "a@b=1",
    'x="unterminated',
    "=",
    "holdfast_session_8766=other",
]


def test_a_session_lasts_whatever_cookies_other_programs_of_the_machine_set(browser: Browser) -> None:
    own = f"holdfast_session_8765={browser.client.cookies['holdfast_session_8765']}"
    browser.client.cookies.clear()
    for foreign in OTHERS_COOKIES:
        for cookies in (f"{foreign}; {own}", f"{own}; {foreign}", f"{foreign};{own};{foreign}"):
            assert browser.client.get("/api/v1/jobs", headers={"Cookie": cookies}).status_code == 200, cookies
        assert browser.client.get("/api/v1/jobs", headers={"Cookie": foreign}).status_code == 401


FOREIGN = (
    {},
    {"X-CSRF-Token": ""},
    {"X-CSRF-Token": "0" * 64},
    {"X-CSRF-Token": "{right}", "Origin": "http://evil.example"},
    {"X-CSRF-Token": "{right}", "Origin": "null"},
    {"X-CSRF-Token": "{right}", "Origin": "http://localhost:9999"},
    {"X-CSRF-Token": "{right}", "Sec-Fetch-Site": "cross-site"},
    {"X-CSRF-Token": "{right}", "Sec-Fetch-Site": "same-site"},
    {"Content-Type": "text/plain"},
)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@before_the_store
def test_a_session_changes_nothing_from_elsewhere(furnished: Furnished, browser: Browser, sql: RawSql) -> None:
    """Whatever it is, by whatever route; the same requests are granted when they come from our own pages."""
    others, browser = browser.csrf_token, another_session(browser, furnished.app)
    changes = [route for route in routes(furnished.app) if route.method not in auth.SAFE and route.needs != PUBLIC]
    deeds = furnished.deeds()
    before = everything(sql)
    for route in changes:
        for headers in (*FOREIGN, {"X-CSRF-Token": others}):
            sent = {name: value.replace("{right}", browser.csrf_token) for name, value in headers.items()}
            assert do(browser, route, deeds[route.name], sent) == 403, (route.name, headers)
        for shown in ("", "0" * 64, others):
            form = {**deeds[route.name].body, "csrf_token": shown}
            assert do(browser, route, Deed(deeds[route.name].row, form), FORM) == 403, (route.name, shown)
    assert everything(sql) == before
    granted = {"X-CSRF-Token": browser.csrf_token, "Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}
    known = {route.name: route for route in changes}
    for name, deed in deeds.items():
        assert do(browser, known[name], deed, granted) < 400, name


def another_session(browser: Browser, app: App) -> Browser:
    browser.client.cookies.clear()
    return Browser(browser.client, app)


def do(browser: Browser, route: Route, deed: Deed, headers: dict[str, str]) -> int:
    """The status of what a browser sends for a deed: JSON to the API, a form to pages."""
    form = headers == FORM or not route.path.startswith(API)
    body = urlencode(deed.body) if form else json.dumps(deed.body) if deed.body else ""
    kind = {"Content-Type": "application/x-www-form-urlencoded" if form else "application/json"} if body else {}
    sent = {**kind, **headers}
    address = route.address(deed.row)
    return browser.client.request(route.method, address, content=body, headers=sent, follow_redirects=False).status_code


def test_a_form_brings_its_token(browser: Browser, shop: App) -> None:
    assert browser.client.post("/logout", data={"csrf_token": "wrong"}).status_code == 403
    assert browser.client.get("/api/v1/jobs").status_code == 200
    answer = browser.client.post("/logout", data={"csrf_token": browser.csrf_token}, headers={"Origin": ADDRESS})
    assert answer.status_code == 200
    assert browser.client.get("/api/v1/jobs").status_code == 401


def test_a_session_acts_with_its_csrf_token(browser: Browser, shop: App) -> None:
    headers = {"X-CSRF-Token": browser.csrf_token, "Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}
    assert browser.client.post("/api/v1/queues/mail/pause", headers=headers).status_code == 200
    assert [row.paused for row in shop.store.queues() if row.name == "mail"] == [True]


HOSTS = (
    ("localhost", 401),
    ("localhost:8765", 401),
    ("LOCALHOST", 401),
    ("127.0.0.1:8765", 401),
    ("[::1]:8765", 401),
    ("192.168.1.7", 401),
    ("evil.example", 421),
    ("evil.example:8765", 421),
    ("localhost.evil.example", 421),
    ("127.0.0.1.evil.example", 421),
    ("localhost@evil.example", 421),
    ("", 421),
    ("127.0.0.1:80@evil.example", 421),
    ("localhost:1,evil.example", 421),
    ("127.0.0.1:x", 421),
)


def test_a_name_that_was_not_given_is_refused(stranger: Client) -> None:
    for host, status in HOSTS:
        assert stranger.get("/api/v1/jobs", headers={"Host": host}).status_code == status, host


@before_the_store
def test_no_route_answers_under_a_name_that_was_not_given(furnished: Furnished, browser: Browser, sql: RawSql) -> None:
    """A page of another site whose name was bent to our address would bring the cookie, and could read the CSRF token."""
    deeds = furnished.deeds()
    before = everything(sql)
    for route in routes(furnished.app):
        deed = deeds.get(route.name) or Deed(furnished.places(route)[0])
        for host in ("evil.example", "evil.example:8765", "localhost.evil.example"):
            bent = {"Host": host, "X-CSRF-Token": browser.csrf_token, "Origin": f"http://{host}"}
            assert do(browser, route, deed, bent) == 421, (route.name, host)
    assert everything(sql) == before


def test_a_name_that_was_given_is_not(shop: App) -> None:
    with TestClient(create(shop, hosts=["jobs.example"]), base_url="http://jobs.example") as client:
        assert client.get("/healthz").status_code == 200


def test_every_answer_is_shielded(client: Client) -> None:
    for path in ("/healthz", "/nothing", "/api/v1/jobs", "/api/v1/openapi.json"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_a_preflight_of_another_site_is_refused(stranger: Client) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = stranger.request("OPTIONS", "/api/v1/jobs", headers=asked)
    assert answer.status_code == 401
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_application_can_be_mounted_in_another(shop: App) -> None:
    from litestar import asgi

    inner = create(shop)

    @asgi("/jobs-of-the-shop", is_mount=True, copy_scope=True)
    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await inner(scope, receive, send)

    with TestClient(Litestar([mounted], logging_config=None), base_url=ADDRESS) as client:
        assert client.get("/jobs-of-the-shop/healthz").status_code == 200
        assert client.get("/jobs-of-the-shop/api/v1/jobs").status_code == 401
        client.headers["Authorization"] = f"Bearer {token(shop)}"
        assert client.get("/jobs-of-the-shop/api/v1/jobs").status_code == 200


def test_a_websocket_is_closed_before_anything_looks_at_it(client: Client) -> None:
    """No page needs one, and no check of origins would be made."""
    for path in ("/", "/api/jobs", "/events"):
        with pytest.raises(WebSocketDisconnect) as closed, client.websocket_connect(path):
            pass
        assert closed.value.code == 1008
