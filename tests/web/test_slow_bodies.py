"""Bodies that do not end: nobody waits for them."""

import json
from typing import Any

import anyio
import pytest

from holdfast import App
from holdfast.web import gate
from holdfast.web.app import create
from tests.web.conftest import token
from tests.web.furnished import API, Furnished, Route, routes

JSON, FORM = "application/json", "application/x-www-form-urlencoded"


class Request:
    """A request whose body begins, and stops if it is not complete; and its answer."""

    def __init__(self, route: Route, address: str, shown: str, complete: bool = False) -> None:
        kind = JSON if route.path.startswith(API) else FORM
        headers = {"host": "localhost", "authorization": f"Bearer {shown}", "content-type": kind}
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": route.method,
            "scheme": "http",
            "path": address,
            "raw_path": address.encode(),
            "query_string": b"",
            "root_path": "",
            "client": ("x", 1),
            "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
        }
        self.complete, self.answered = complete, anyio.Event()
        self.status, self.body, self.parts = 0, b"", 0

    async def receive(self) -> Any:
        if self.parts:
            await self.answered.wait()
            return {"type": "http.disconnect"}
        self.parts += 1
        return {"type": "http.request", "body": b"{", "more_body": not self.complete}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.answered.set()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_no_route_waits_for_a_body_that_does_not_end(
    shop: App, furnished: Furnished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "BODY_WITHIN", 0.01)
    asgi: Any = create(shop, projects=furnished.yard.projects)
    shown, waited = token(shop), set[str]()

    async def run() -> None:
        for route in routes(shop):
            if route.path.startswith("/hooks/") or route.method in ("GET", "HEAD"):
                continue
            request = Request(route, route.address(furnished.places(route)[0]), shown)
            with anyio.fail_after(60):
                await asgi(request.scope, request.receive, request.send)
            assert request.status, route.name
            if request.parts:
                assert (request.status, json.loads(request.body)["code"]) == (408, "too_slow"), route.name
                waited.add(route.name)

    anyio.run(run)
    assert waited >= {f"POST {API}/jobs", f"PUT {API}/schedules/{{name}}", "POST /jobs/together"}
    assert len(waited) > 20


def streamed(shop: App, job: int, complete: bool) -> Request:
    """A stream of a job, to its end."""
    address = f"{API}/jobs/{job}/events"
    request = Request(Route("GET", address, "read"), address, token(shop), complete)
    asgi: Any = create(shop)

    async def watch() -> None:
        with anyio.fail_after(60):
            await asgi(request.scope, request.receive, request.send)

    anyio.run(watch)
    return request


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_stream_has_no_limit(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "BODY_WITHIN", 0.0)
    job = shop.enqueue("mail", "send", {"to": "a"})
    shop.abort(job.id)
    request = streamed(shop, job.id, complete=True)
    assert (request.status, b"event: end" in request.body) == (200, True)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_stream_whose_request_is_not_complete_ends_quietly(
    shop: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gate, "BODY_WITHIN", 0.1)
    job = shop.enqueue("mail", "send", {"to": "a"})
    request = streamed(shop, job.id, complete=False)
    assert (request.status, b"event: end" in request.body) == (200, False)
    assert caplog.records == []
