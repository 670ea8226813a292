"""Addresses and forms of pages that are written to break the server, or to make a filter mean everything."""

from itertools import product
from urllib.parse import quote

from holdfast import App
from tests.web.conftest import Browser, Client

HTML = {"Accept": "text/html"}
HOSTILE = (
    "nan",
    "inf",
    "-1",
    "9" * 19,
    "9" * 5000,
    "1e999",
    "٣",
    "' or 1=1 --",
    "a\0b",
    "\ud7ff",
    "<script>",
    "x" * 5000,
)
LISTS = {
    "/jobs": (
        *("state", "status", "outcome", "situation", "job_type", "job_key", "queue", "error"),
        *("worker", "run", "retry_of", "attempt", "failures", "before", "priority", "archive"),
        *("create_time_since", "create_time_until", "scheduled_run_time_since", "end_time_until"),
    ),
    "/archive": ("job_key", "before", "priority", "end_time_since"),
    "/workflows": ("workflow", "state", "before"),
    "/builds": ("project", "branch", "commit", "state", "before"),
    "/schedules": ("name",),
    "/workflows/report/monday": ("step", "after"),
    "/jobs/1": ("after",),
    "/jobs/1/log": ("after",),
    "/builds/1": ("after",),
    "/find": ("q",),
}
PATHS = ("/jobs/{}", "/jobs/{}/log", "/builds/{}", "/builds/{}/log", "/workflows/report/{}", "/workflows/{}/x")


def test_nothing_in_an_address_breaks_a_page(client: Client, shop: App) -> None:
    shop.enqueue("mail", "send", {"to": "a"})
    shop.submit("report", "monday")
    for path, names in LISTS.items():
        for name, text in product(names, HOSTILE):
            answer = client.get(path, params={name: text}, headers=HTML)
            assert answer.status_code < 500, (path, name, text[:20])


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
