"""A stream lasts no longer than what its caller has shown."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import App, Unavailable
from holdfast.clock import MovableClock
from holdfast.stores.contract import SessionLimits
from holdfast.web import auth, gate, secret
from holdfast.web.app import create
from tests.faults.fleet import until
from tests.web.conftest import token

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "ASK_AGAIN", 0.05)


def follow(app: App, headers: dict[str, str], path: str, then: Callable[[], Any]) -> list[dict[str, Any]]:
    """Everything that is sent on a stream until it ends, with something done once it has begun."""

    async def run() -> list[dict[str, Any]]:
        asgi, sent, begun = create(app), [], asyncio.Event()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "client": ("x", 1),
            "headers": [(b"host", b"localhost"), *((name.encode(), text.encode()) for name, text in headers.items())],
        }

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body":
                begun.set()

        async def receive() -> Any:
            await asyncio.Event().wait()

        answering = asyncio.create_task(asgi(scope, receive, send))  # type: ignore[arg-type]
        await asyncio.wait_for(begun.wait(), PATIENCE)
        await asyncio.to_thread(then)
        await asyncio.wait_for(answering, PATIENCE)
        return sent

    return asyncio.run(run())


def ended_in_order(sent: list[dict[str, Any]]) -> bool:
    return sent[0]["status"] == 200 and sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/jobs/{job}/events"])
def test_a_stream_ends_when_its_token_is_revoked(shop: App, path: str) -> None:
    job = shop.enqueue("mail", "send", {"to": "a"})
    headers = {"authorization": f"Bearer {token(shop)}"}
    sent = follow(shop, headers, path.format(job=job.id), lambda: shop.store.revoke_token("tests", "tests"))
    assert ended_in_order(sent)


def test_a_stream_ends_when_its_token_expires(shop: App, clock: MovableClock) -> None:
    headers = {"authorization": f"Bearer {token(shop, lasts=timedelta(hours=1))}"}
    assert ended_in_order(follow(shop, headers, "/api/v1/events", lambda: clock.advance(3600)))


def test_a_stream_goes_on_while_nobody_can_say_whose_it_is(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    identify, away, refused = auth.identify, threading.Event(), []

    def asked(*shown: Any, **more: Any) -> Any:
        if away.is_set():
            refused.append(shown)
            raise Unavailable("the database is away")
        return identify(*shown, **more)

    def leave_and_come_back() -> None:
        away.set()
        until(lambda: len(refused) >= 3, what="it is asked again")
        away.clear()
        shop.store.revoke_token("tests", "tests")

    monkeypatch.setattr(auth, "identify", asked)
    headers = {"authorization": f"Bearer {token(shop)}"}
    assert ended_in_order(follow(shop, headers, "/api/v1/events", leave_and_come_back))


def session(app: App) -> tuple[str, dict[str, str]]:
    """The hash of a session's secret, and the header that shows it."""
    made = secret.new()
    app.store.log_in(secret.hashed(auth.make_login(app)), secret.hashed(made), SessionLimits(), None)
    return secret.hashed(made), {"cookie": f"holdfast_session={made}"}


def test_a_stream_ends_when_its_browser_logs_out(shop: App) -> None:
    hashed, headers = session(shop)
    assert ended_in_order(follow(shop, headers, "/api/v1/events", lambda: shop.store.log_out(hashed)))


def test_a_stream_ends_when_its_session_was_idle_for_too_long(shop: App, clock: MovableClock) -> None:
    _, headers = session(shop)
    idle = SessionLimits().idle_timeout.total_seconds()
    assert ended_in_order(follow(shop, headers, "/api/v1/events", lambda: clock.advance(idle)))


def test_a_stream_ends_when_the_token_of_its_session_is_revoked(shop: App) -> None:
    made, cookie = token(shop), secret.new()
    assert shop.store.log_in_with_token(secret.hashed(made), secret.hashed(cookie), SessionLimits())
    headers = {"cookie": f"holdfast_session={cookie}"}
    assert ended_in_order(follow(shop, headers, "/api/v1/events", lambda: shop.store.revoke_token("tests", "tests")))
