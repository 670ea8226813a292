"""Things that are sent to break the server, or to make it tell what it should not."""

import asyncio
import json
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest

from holdfast import App
from holdfast.web import paging
from holdfast.web.app import create
from tests.raw_sql import RawSql
from tests.web.conftest import Client, token
from tests.web.furnished import Furnished, Route, everything, routes

JSON = {"Content-Type": "application/json"}
INJECTIONS = (
    "' or '1'='1",
    "'; drop table jobs; --",
    '" or ""="',
    "1 union select hash from token",
    "%' or 1=1 --",
    "%",
    "_",
    "\\'; select pg_sleep(5); --",
    "a\0b",
    "\N{FULLWIDTH APOSTROPHE} or 1=1",
    "{job}",
    ":job_type",
    "%(job_type)s",
    "a" * 10_000,
)
STATES = {"jobs": "initial", "workflows": "SUCCESS", "builds": "Building"}


def test_no_filter_is_taken_for_sql(client: Client, furnished: Furnished, sql: RawSql) -> None:
    """Nor a limit or a cursor: every parameter of every list, on an instance in which none of them is empty."""
    before, tried = everything(sql), 0
    for route, names in queries(client, furnished).items():
        address = route.address(furnished.places(route)[0])
        for name, text in product(names, INJECTIONS):
            answer = client.get(address, params={name: text})
            assert answer.status_code in (200, 400), (address, name, text, answer.text)
            if answer.status_code == 200:
                assert answer.json()["items"] == [], (address, name, text)
                tried += 1
    assert tried > 50  # texts that are allowed, and that nothing has
    assert everything(sql) == before


def queries(client: Client, furnished: Furnished) -> dict[Route, list[str]]:
    """The query parameters of each route that has some, as the document names them."""
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    asked = {
        route: [each["name"] for each in paths[route.path]["get"].get("parameters", ()) if each["in"] == "query"]
        for route in routes(furnished.app)
        if route.method == "GET" and route.path in paths
    }
    return {route: names for route, names in asked.items() if names}


def test_no_name_in_a_path_is_taken_for_sql(client: Client, furnished: Furnished, sql: RawSql) -> None:
    before = everything(sql)
    for route in routes(furnished.app):
        if route.method != "GET" or "{" not in route.path:
            continue
        row = furnished.places(route)[0]
        for place, text in product(range(len(row)), INJECTIONS):
            answer = client.get(route.address((*row[:place], text, *row[place + 1 :])))
            assert answer.status_code in (400, 404), (route.path, place, text)
    assert everything(sql) == before


def test_a_cursor_that_was_made_by_hand_is_refused(client: Client, furnished: Furnished) -> None:
    """Of every list that has one: altered, of another list, or with other filters than it was made for."""
    lists = {route: names for route, names in queries(client, furnished).items() if "cursor" in names}
    assert len(lists) > 4
    given = {route: paged(client, furnished, route) for route in lists}
    for route, (address, good) in given.items():
        others = [cursor for _, cursor in given.values() if cursor != good]
        made = [paging.write(1, word, "of something else") for word in ("jobs", "runs", "builds", "tasks", "log")]
        for cursor in (good[:-1], good + "A", good[::-1], "AAAA", "", "=", "é", "' or 1=1 --", *others, *made):
            answer = client.get(address, params={"limit": 1, "cursor": cursor})
            assert (answer.status_code, answer.json().get("code")) == (400, "invalid"), (address, cursor)
        for name in {"state", "workflow", "project"} & {*lists[route]}:
            value = STATES[route.noun] if name == "state" else "x"
            answer = client.get(address, params={"limit": 1, "cursor": good, name: value})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid"), (address, name)


def paged(client: Client, furnished: Furnished, route: Route) -> tuple[str, str]:
    """An address of a list with more than one page, and the cursor of the second."""
    for row in furnished.places(route):
        found = client.get(route.address(row), params={"limit": 1}).json().get("cursor")
        if found is not None:
            return route.address(row), found
    raise AssertionError(f"{route.path} has one page, whatever it is about")


def test_an_altered_cursor_leads_nowhere_but_to_another_place_of_the_list(client: Client, furnished: Furnished) -> None:
    everybody = {each["id"] for each in client.get("/api/v1/jobs?limit=1000").json()["items"]}
    good = client.get("/api/v1/jobs?limit=1").json()["cursor"]
    refused = 0
    for place, letter in product(range(len(good)), "A_9"):
        answer = client.get("/api/v1/jobs", params={"cursor": good[:place] + letter + good[place + 1 :]})
        assert answer.status_code in (200, 400), answer.text
        refused += answer.status_code == 400
        assert answer.status_code == 400 or {each["id"] for each in answer.json()["items"]} <= everybody
    assert refused > len(good)


TEXTS = (
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"{",
    b"\xff\xfe",
    b'{"queue": NaN}',
    b'{"queue": Infinity}',
    b'{"queue": "mail", "queue": "other", "job_type": "send"}',
    b'{"queue": "mail", "job_type": "send", "payload": {"to": "a", "to": "b"}}',
    b'{"queue": "mail", "job_type": "send", "payload": {"to": NaN}}',
    b'{"queue": "mail", "job_type": "send", "payload": {"to": "\\ud800"}}',
    b'{"queue": "mail", "job_type": "send", "priority": 1e999}',
    b'{"queue": "mail", "job_type": "send", "retries": 1' + b"0" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"queue": "mail", "job_type": "send", "payload": ' + b'{"to":' * 5000 + b"1" + b"}" * 5000 + b"}",
)


def test_no_json_breaks_the_server(client: Client) -> None:
    for text in TEXTS:
        answer = client.post("/api/v1/jobs", content=text, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid"), text[:80]
    assert client.get("/api/v1/jobs").json()["items"] == []


BODIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "workflows/report", {"trigger": "{}"}),
    ("POST", "workflows/report", {"trigger": "x", "ignore": ["{}"]}),
    ("POST", "holds", {"level": "pick", "workflow": "{}"}),
    ("POST", "holds/release", {"level": "pick", "workflow": "report", "trigger": "{}"}),
    ("POST", "types/ask/complete", {"job_key": "{}"}),
    ("POST", "types/ask/fail", {"job_key": "{}", "error": "{}"}),
    (
        "PUT",
        "schedules/x",
        {"queue": "mail", "job_type": "send", "payload": {"to": "a"}, "cron": "{}", "zone": "UTC"},
    ),
    ("PUT", "schedules/x", {"queue": "mail", "job_type": "{}", "every": 60}),
    ("PUT", "schedules/x", {"queue": "{}", "job_type": "send", "every": 60}),
    ("PUT", "schedules/{}", {"queue": "mail", "job_type": "send", "payload": {"to": "a"}, "every": 60}),
    ("POST", "jobs", {"queue": "mail", "job_type": "{}"}),
    ("POST", "jobs", {"queue": "{}", "job_type": "send"}),
    ("POST", "jobs", {"queue": "mail", "job_type": "send", "payload": {"to": "a"}, "time_windows": ["{}"]}),
)


def test_no_text_in_a_body_is_taken_for_sql(client: Client) -> None:
    for (method, path, body), text in product(BODIES, (*INJECTIONS, "")):
        filled = json.loads(json.dumps(body).replace("{}", json.dumps(text)[1:-1]))
        answer = client.request(method, "/api/v1/" + path.format(quote(text, safe="")), json=filled)
        assert answer.status_code < 500, (text, answer.text)


def test_a_huge_body_is_cut_off(client: Client) -> None:
    answer = client.post("/api/v1/jobs", content=b'"' + b"a" * 3_000_000 + b'"', headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    payload = {"queue": "mail", "job_type": "send", "payload": {"to": "a" * 1_100_000}}
    assert client.post("/api/v1/jobs", content=json.dumps(payload), headers=JSON).status_code == 400


def test_only_json_is_read(client: Client) -> None:
    text = b'{"queue": "mail", "job_type": "send", "payload": {"to": "a"}}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/msgpack", "multipart/form-data"):
        answer = client.post("/api/v1/jobs", content=text, headers={"Content-Type": kind})
        assert answer.status_code in (400, 415), kind
    assert client.get("/api/v1/jobs").json()["items"] == []


def test_a_misspelt_filter_is_an_error_and_not_everything(client: Client) -> None:
    answer = client.get("/api/v1/jobs?stat=error")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert "`stat`" in answer.json()["detail"]


def test_an_id_that_is_none_is_not_found(client: Client) -> None:
    jobs = ("0", "-1", "9223372036854775808", "1e3", "1.5", "%31%00", "1;2", "one")
    for job, path in product(jobs, ("", "/history", "/attempts", "/explain", "/log")):
        assert client.get(f"/api/v1/jobs/{job}{path}").status_code in (400, 404), (job, path)


def test_markup_in_names_stays_text(client: Client, shop: App) -> None:
    shop.enqueue("mail", "send", {"to": "<script>"}, job_key="<script>alert(1)</script>")
    answer: Any = client.get("/api/v1/jobs")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("content", ["application/json", "application/x-www-form-urlencoded"])
def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_failure(
    shop: App, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    headers = {"host": "localhost", "authorization": f"Bearer {token(shop)}", "content-type": content}
    path = "/api/v1/jobs"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "client": ("x", 1),
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
    }
    parts = [{"type": "http.request", "body": b'{"queue": ', "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        await create(shop)(scope, receive, send)  # type: ignore[arg-type]

    asyncio.run(run())
    assert sent[0]["status"] == 400
    assert [record for record in caplog.records if record.name.startswith("holdfast")] == []
