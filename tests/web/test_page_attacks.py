"""Addresses and forms of pages that are written to break the server, or to make a filter mean everything."""

import re
from collections.abc import Iterator
from html import unescape
from itertools import product
from urllib.parse import parse_qsl, quote, urlsplit

from holdfast import App
from tests.raw_sql import RawSql
from tests.web.conftest import Browser, Client
from tests.web.furnished import Furnished, everything, routes

HTML = {"Accept": "text/html"}
HOSTILE = (
    "nan",
    "inf",
    "-1",
    "9" * 19,
    "9" * 5000,
    "1e999",
    "٣",
    "' or '1'='1",
    "1 union select hash from token",
    "%",
    "a\0b",
    "\ud7ff",
    "<script>",
    "x" * 5000,
)
JOBS = (
    *("state", "status", "outcome", "situation", "job_type", "job_key", "queue", "error"),
    *("worker", "run", "retry_of", "attempt", "failures", "before", "priority", "archive"),
    *(f"{name}_{end}" for name in ("create_time", "scheduled_run_time", "end_time") for end in ("since", "until")),
)
LISTS = {
    "/jobs": JOBS,
    "/archive": ("job_key", "before", "priority", "end_time_since"),  # it is read as that of /jobs
    "/workflows": ("workflow", "state", "before"),
    "/builds": ("project", "branch", "commit", "state", "before"),
    "/schedules": ("name",),
    "/workflows/report/monday": ("step", "after"),
    "/jobs/1": ("after",),
    "/jobs/1/log": ("after",),
    "/builds/1/log": ("after",),
    "/find": ("q",),
    "/badges/demo.svg": ("branch",),
    "/links/demo": ("branch",),
}
ANYTHING = ("archive",)  # says `yes` or nothing
PATHS = ("/jobs/{}", "/jobs/{}/log", "/builds/{}", "/builds/{}/log", "/workflows/report/{}", "/workflows/{}/x")
FOUND = re.compile(r'<tr id="(?:job|run|build|firing)-')


def test_nothing_in_an_address_breaks_a_page_or_finds_everything(
    client: Client, furnished: Furnished, sql: RawSql
) -> None:
    before = everything(sql)
    for path, names in LISTS.items():
        assert client.get(path, headers=HTML).status_code == 200, path
        for name, text in product(names, HOSTILE):
            answer = client.get(path, params={name: text}, headers=HTML)
            assert answer.status_code < 500, (path, name, text[:20])
            narrow = answer.status_code == 200 and name not in ANYTHING and not is_number(text)
            assert not (narrow and FOUND.search(answer.text)), (path, name, text[:20])
    assert everything(sql) == before


def is_number(text: str) -> bool:
    """One that may be an id behind which something is, or a time that everything is before."""
    return text.lstrip("-").isascii() and text.lstrip("-").isdigit()


def test_every_parameter_that_a_page_offers_is_tried(client: Client, furnished: Furnished) -> None:
    """Those of its forms and of its links."""
    offered: dict[str, set[str]] = {}
    for route in routes(furnished.app):
        if route.method != "GET" or route.path.startswith(("/api/", "/login")):
            continue
        for row in furnished.places(route):
            for path, names in parameters(client.get(route.address(row), headers=HTML).text):
                offered.setdefault(path, set()).update(names)
    tried = {name for names in LISTS.values() for name in names}
    assert offered["/jobs"] <= {*LISTS["/jobs"]}
    assert {path: names - tried for path, names in offered.items() if names - tried} == {}


def parameters(page: str) -> Iterator[tuple[str, set[str]]]:
    """The addresses that a page leads to, each with the names in its query."""
    for link in re.findall(r'href="([^"]+)"', page):
        address = urlsplit(unescape(link))
        if not address.netloc and not address.path.startswith(("/static/", "/api/")):
            yield address.path, {name for name, _ in parse_qsl(address.query, keep_blank_values=True)}
    for path, form in re.findall(r'<form class="[^"]*" action="([^"]+)"[^>]*>(.*?)</form>', page, re.DOTALL):
        yield path, set(re.findall(r'<(?:input|select)[^>]* name="([^"]+)"', form))


def test_nothing_in_a_path_breaks_a_page(client: Client) -> None:
    for path, text in product(PATHS, HOSTILE):
        answer = client.get(path.format(quote(text, safe="")), headers=HTML)
        assert answer.status_code in (400, 404), (path, text[:20])


def test_what_is_no_number_is_no_filter_and_changes_nothing(browser: Browser, shop: App) -> None:
    job = shop.enqueue("mail", "send", {"to": "a"})
    for number in ("nan", "inf", "-inf", "1e999", "NaN", "infinity"):
        assert browser.client.get("/api/v1/jobs", params={"priority": number}).status_code == 400, number
        assert browser.client.get("/jobs", params={"priority": number}, headers=HTML).status_code == 400, number
        assert change(browser, verb="abort", priority=number) == 400, number
    assert not shop.get(job.id).final


def test_what_narrows_nothing_is_no_filter_to_change_jobs_by(browser: Browser, shop: App) -> None:
    job = shop.enqueue("mail", "send", {"to": "a"})
    for form in ({"archive": "yes"}, {"archive": "no"}, {"job_type": " "}, {"newest": "1"}):
        assert change(browser, verb="abort", **form) == 400, form
    assert not shop.get(job.id).final


def test_a_form_that_was_written_by_hand_changes_nothing(browser: Browser, shop: App) -> None:
    job = shop.enqueue("mail", "send", {"to": "a"})
    for newest in HOSTILE:
        assert change(browser, verb="abort", job_type="send", newest=newest) == 400, newest[:20]
    assert change(browser, verb="abort", job_type="send\0") == 400
    assert not shop.get(job.id).final


def change(browser: Browser, **form: str) -> int:
    return browser.client.post(
        "/jobs/together", data={"csrf_token": browser.csrf_token, "sure": "yes", **form}, headers=HTML
    ).status_code
