"""Behind a proxy that speaks TLS: the address that people use decides about cookies, hosts and origins."""

from collections.abc import Iterator

import pytest
from litestar.testing import TestClient

from holdfast import App
from holdfast.web import auth, secret
from holdfast.web.app import create
from tests.web.conftest import Client

PUBLIC = "https://jobs.example.com"
SESSION = "__Host-holdfast_session"
BEHIND = {"Host": "jobs.example.com"}  # as a proxy passes it on


@pytest.fixture
def proxied(shop: App) -> Iterator[Client]:
    """What a proxy sends, which speaks plain HTTP to the server."""
    with TestClient(create(shop, public_url=PUBLIC), base_url="http://127.0.0.1:8765") as client:
        yield client


def logged_in(client: Client, shop: App, host: dict[str, str]) -> str:
    answer = client.get(f"/login?token={auth.make_login(shop)}", headers=host, follow_redirects=False)
    assert answer.status_code == 303
    name, _, rest = answer.headers["set-cookie"].partition("=")
    kept = rest.lower()
    assert name == SESSION
    assert "; secure" in kept
    assert "path=/;" in kept
    assert "domain" not in kept
    return rest.partition(";")[0]


@pytest.mark.parametrize("host", [BEHIND, {"Host": "127.0.0.1:8765"}])
def test_cookies_are_secure_whatever_host_the_proxy_passes_on(proxied: Client, shop: App, host: dict[str, str]) -> None:
    session = logged_in(proxied, shop, host)
    assert proxied.get("/api/v1/jobs", headers={**host, "Cookie": f"{SESSION}={session}"}).status_code == 200


def test_the_name_of_the_public_address_is_a_host_of_the_server(proxied: Client) -> None:
    assert proxied.get("/healthz", headers=BEHIND).status_code == 200
    assert proxied.get("/healthz", headers={"Host": "jobs.example.com:443"}).status_code == 200
    assert proxied.get("/healthz", headers={"Host": "evil.example.com"}).status_code == 421


def test_a_cookie_that_a_neighbouring_domain_can_set_is_not_looked_at(proxied: Client, shop: App) -> None:
    session = logged_in(proxied, shop, BEHIND)
    for name in ("holdfast_session", "holdfast_session_443", "holdfast_session_8765"):
        assert proxied.get("/api/v1/jobs", headers={**BEHIND, "Cookie": f"{name}={session}"}).status_code == 401


ORIGINS = (
    ("https://jobs.example.com", 200),
    ("HTTPS://JOBS.EXAMPLE.COM", 200),
    ("http://jobs.example.com", 403),  # a page that anybody on the way can have made
    ("https://jobs.example.com:8443", 403),
    ("https://evil.example.com", 403),
    ("https://jobs.example.com.evil.example", 403),
    ("null", 403),
    ("http://[", 403),
)


@pytest.mark.parametrize(("origin", "status"), ORIGINS)
@pytest.mark.parametrize("host", [BEHIND, {"Host": "127.0.0.1:8765"}])
def test_forms_come_from_the_public_address(
    proxied: Client, shop: App, host: dict[str, str], origin: str, status: int
) -> None:
    session = logged_in(proxied, shop, host)
    shown = {"Cookie": f"{SESSION}={session}", "X-CSRF-Token": secret.csrf_token(session), "Origin": origin}
    assert proxied.post("/api/v1/queues/mail/pause", headers={**host, **shown}).status_code == status


def test_one_that_is_plain_http_changes_nothing_about_cookies(shop: App) -> None:
    with TestClient(create(shop, public_url="http://jobs.example.com"), base_url="http://jobs.example.com") as client:
        kept = client.get(f"/login?token={auth.make_login(shop)}", follow_redirects=False).headers["set-cookie"]
        assert kept.startswith("holdfast_session=")
        assert "secure" not in kept.lower()
        assert client.get("/api/v1/jobs").status_code == 200
