"""The pages of the dashboard as a browser asks for them, on both databases."""

import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from litestar.testing import TestClient

from holdfast import App, Fixed, current_job
from holdfast.clock import MovableClock
from holdfast.web.app import create
from tests.web.conftest import ADDRESS, Browser, Client, token
from tests.web.furnished import Furnished, Route, routes


@pytest.fixture
def shop(shop: App) -> App:
    """With jobs that talk and stumble."""
    mail = shop.queue("mail")

    @mail.job(retry=Fixed(60))
    def stumble() -> None:
        raise ValueError(f"stumbled in attempt {current_job().attempt}")

    @mail.job(secrets=["password"], retries=0)
    def log_in(user: str, password: str) -> None:
        current_job().log(f"{user} has {password}")
        raise ValueError(f"{password} is wrong")

    @mail.job()
    def talk() -> None:
        current_job().log("\x1b[31m<b>one\x1b[0m")
        current_job().log("two")

    return shop


@pytest.fixture
def mounted(shop: App) -> Iterator[Client]:
    """The dashboard somewhere inside another application."""
    inner = create(shop)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "root_path": "/jobs-of-the-shop"}, receive, send)

    with TestClient(outer, base_url=ADDRESS) as client:
        client.headers["Authorization"] = f"Bearer {token(shop)}"
        yield client


PAGES = ("/", "/jobs", "/workflows", "/queues", "/workers", "/schedules", "/archive", "/settings")
HTML = {"Accept": "text/html"}


def text(browser: Browser, path: str, status: int = 200) -> str:
    """What a page says, in one line."""
    answer = browser.client.get(path, headers=HTML)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text)))


def act(browser: Browser, path: str, status: int = 303, **form: Any) -> str:
    """Send a form of the page; what the next page says, or this one."""
    answer = browser.client.post(
        path, data={"csrf_token": browser.csrf_token, **form}, headers=HTML, follow_redirects=False
    )
    assert answer.status_code == status, answer.text
    return text(browser, answer.headers["location"]) if status == 303 else answer.text


def test_an_empty_instance_has_every_page(browser: Browser) -> None:
    for path in PAGES:
        assert "Holdfast" in text(browser, path)


def test_nobody_sees_a_page_without_a_login(stranger: Client) -> None:
    for path in (*PAGES, "/jobs/1", "/workflows/report/x", "/static/holdfast.css", "/find?q=1"):
        answer = stranger.get(path, headers=HTML)
        assert answer.status_code == 401, path
        assert "mail" not in answer.text, path


def test_pages_bring_no_script_or_style_but_files_of_their_own(browser: Browser, shop: App) -> None:
    for path in PAGES:
        page = browser.client.get(path, headers=HTML).text
        assert re.findall(r"<script(?! src=\"/static/holdfast\.js\?\w+\" defer></script>)", page) == []
        assert " style=" not in page
        assert "<style" not in page
        assert re.findall(r"\son\w+=", page) == []


def test_files_are_kept_by_browsers_until_they_change(browser: Browser) -> None:
    address = re.search(r'href="(/static/holdfast\.css\?\w+)"', browser.client.get("/", headers=HTML).text)
    assert address is not None
    kept = browser.client.get(address[1])
    assert (kept.status_code, kept.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in kept.headers["cache-control"]
    assert browser.client.get("/static/holdfast.css").headers["cache-control"] == "no-store"
    assert browser.client.get("/static/..%2Fpages%2Fpage.py").status_code == 404


def test_the_overview_tells_numbers_and_what_is_wrong(browser: Browser, shop: App) -> None:
    shop.job_types["send"].enqueue(to="a")
    shop.job_types["refuse"].enqueue(why="as expected")
    assert "No worker is alive; 2 jobs are due." in text(browser, "/")
    shop.run_until_idle()
    assert "1 job of queue mail ended without success in the last hour." in text(browser, "/")


def test_a_job_page_tells_why_it_waits_and_what_happened(browser: Browser, shop: App) -> None:
    job = shop.job_types["send"].using(job_key="k-1").enqueue(to="ada@example.org")
    page = text(browser, f"/jobs/{job.id}")
    assert "no_worker" in page
    assert "ada@example.org" in page
    assert "It has not been started yet." in page
    shop.run_until_idle()
    page = text(browser, f"/jobs/{job.id}")
    assert "hi ada@example.org" in page
    assert "initial → running attempt 1, claimed" in page


def test_secrets_of_a_payload_are_not_shown(browser: Browser, shop: App) -> None:
    job = shop.job_types["log_in"].enqueue(user="ada", password="hunter2")
    assert "hunter2" not in text(browser, f"/jobs/{job.id}")
    shop.run_until_idle()
    page = text(browser, f"/jobs/{job.id}")
    assert "ada" in page
    assert "hunter2" not in page


def test_every_attempt_keeps_its_error_with_its_traceback(browser: Browser, shop: App, clock: MovableClock) -> None:
    job = shop.job_types["stumble"].enqueue()
    for _ in range(2):
        shop.run_until_idle()
        clock.advance(600)
    page = text(browser, f"/jobs/{job.id}")
    assert "stumbled in attempt 1" in page
    assert "stumbled in attempt 2" in page
    assert page.count("Traceback (most recent call last)") == 2


def test_a_log_is_shown_and_its_later_lines_can_be_asked_for(browser: Browser, shop: App) -> None:
    job = shop.job_types["talk"].enqueue()
    shop.run_until_idle()
    page = browser.client.get(f"/jobs/{job.id}", headers=HTML).text
    assert '<span class="ink-red">&lt;b&gt;one</span>' in page
    rest = browser.client.get(f"/jobs/{job.id}/log?after=1", headers=HTML).text
    assert ("two" in rest, "one" in rest) == (True, False)


def test_jobs_are_filtered_by_what_stands_in_the_address(browser: Browser, shop: App) -> None:
    shop.job_types["send"].using(job_key="first").enqueue(to="a")
    shop.job_types["refuse"].using(job_key="second").enqueue(why="no")
    shop.run_until_idle()
    shop.job_types["send"].using(job_key="third", priority=7).enqueue(to="b")

    def shown(query: str) -> list[str]:
        page = browser.client.get(f"/jobs?{query}", headers=HTML).text
        return re.findall(r'<td class="cut spare" title="(first|second|third)"', page)

    assert shown("") == ["third", "second", "first"]
    assert shown("job_type=send") == ["third", "first"]
    assert shown("job_key=second") == ["second"]
    assert shown("state=initial&status=pending") == ["third"]
    assert shown("status=dead") == shown("outcome=failed") == shown("error=no") == ["second"]
    assert shown("priority=7&queue=mail&attempt=0&failures=0") == ["third"]
    assert shown("create_time_since=2000-01-01T00:00&end_time_until=2100-01-01T00:00") == ["second", "first"]
    assert shown("queue=slow") == []


def test_a_filter_that_makes_no_sense_is_refused_in_words(browser: Browser) -> None:
    for query in ("state=odd", "before=x", "worker=-1", "priority=much", "create_time_since=soon"):
        assert query.partition("=")[0] in text(browser, f"/jobs?{query}", status=400)


def test_lists_go_on_from_page_to_page(browser: Browser, shop: App) -> None:
    jobs = shop.job_types["send"].enqueue_many([{"to": str(place)} for place in range(120)])
    found: list[int] = []
    path: str | None = "/jobs?job_type=send"
    while path:
        page = browser.client.get(path, headers=HTML).text
        found += map(int, re.findall(r'<tr id="job-(\d+)"', page))
        more = re.search(r'rel="next" href="([^"]+)"', page)
        path = unescape(more[1]) if more else None
    assert found == sorted((job.id for job in jobs), reverse=True)


def test_the_search_leads_to_a_job_by_id_or_key(browser: Browser, shop: App) -> None:
    job = shop.job_types["send"].using(job_key="k/1 &").enqueue(to="a")
    by_id = browser.client.get(f"/find?q={job.id}", headers=HTML, follow_redirects=False)
    assert by_id.headers["location"] == f"/jobs/{job.id}"
    by_key = browser.client.get("/find", params={"q": "k/1 &"}, headers=HTML)
    assert f'id="job-{job.id}"' in by_key.text


def test_a_job_is_aborted_and_retried_and_the_audit_names_the_session(browser: Browser, shop: App) -> None:
    job = shop.job_types["send"].enqueue(to="a")
    assert f"Job {job.id} is aborted." in act(browser, f"/jobs/{job.id}/abort")
    assert {move.actor for move in shop.history(job.id)} >= {"session:app"}
    assert f"is a retry of job {job.id}." in act(browser, f"/jobs/{job.id}/retry")
    assert "final" in act(browser, f"/jobs/{job.id}/abort", status=409)


def test_what_a_filter_finds_is_changed_together_after_a_question(browser: Browser, shop: App) -> None:
    jobs = shop.job_types["send"].enqueue_many([{"to": str(place)} for place in range(70)])
    form = {"verb": "abort", "job_type": "send"}
    question = act(browser, "/jobs/together", status=200, **form)
    assert "Abort 70 jobs?" in question
    assert not any(shop.get(job.id).final for job in jobs)
    newest = re.search(r'name="newest" value="(\d+)"', question)
    assert newest is not None
    later = shop.job_types["send"].enqueue(to="later")
    assert "70 jobs aborted." in act(browser, "/jobs/together", sure="yes", newest=newest[1], **form)
    assert {str(shop.get(job.id).outcome) for job in jobs} == {"aborted"}
    assert not shop.get(later.id).final
    assert "70 jobs retried as new jobs." in act(browser, "/jobs/together", sure="yes", verb="retry", outcome="aborted")


def test_a_change_of_everything_there_is_needs_a_filter(browser: Browser, shop: App) -> None:
    job = shop.job_types["send"].enqueue(to="a")
    assert "Without a filter" in act(browser, "/jobs/together", status=400, verb="abort", sure="yes")
    assert not shop.get(job.id).final


def test_a_run_is_drawn_with_its_steps_and_told_why_it_waits(browser: Browser, shop: App) -> None:
    shop.workflows["report"].submit("2026/11".replace("/", "-"), params={"day": 1})
    page = browser.client.get("/workflows/report/2026-11?step=count", headers=HTML).text
    assert 'id="node-prepare"' in page
    assert 'class="node idle chosen" id="node-count"' in page
    assert "It waits for step prepare." in page
    shop.run_until_idle()
    page = browser.client.get("/workflows/report/2026-11?step=count", headers=HTML).text
    assert 'class="node good chosen" id="node-count"' in page
    assert "2/2" in page
    assert "2026-11:count.shard-1" in page
    assert ">count.shard-1<" in page
    assert "SUCCESS" in text(browser, "/workflows?state=SUCCESS&workflow=report")


def test_runs_are_held_released_aborted_retried_and_deleted(browser: Browser, shop: App) -> None:
    run = shop.workflows["report"].submit("t 1")
    path = "/workflows/report/t%201"
    of_run = {"level": "pick", "workflow": "report", "trigger": "t 1"}
    assert "is kept from starting tasks" in act(browser, "/holds/hold", **of_run)
    assert "It is released" in act(browser, "/holds/release", **of_run)
    assert "Nothing is held." in text(browser, "/workflows")
    assert "every workflow" in act(browser, "/holds/hold", level="submit")
    assert "It is released" in act(browser, "/holds/release", level="submit")
    assert "Abort run t 1?" in act(browser, f"{path}/abort", status=200)
    assert "is aborted" in act(browser, f"{path}/abort", sure="yes")
    assert "What erred runs again." in act(browser, f"{path}/retry")
    shop.run_until_idle()
    assert run.refresh().state == "SUCCESS"
    assert "SUCCESS" in act(browser, f"{path}/retry", status=409)
    assert "is in the archive, with its jobs." in act(browser, f"{path}/archive")
    assert "Archive" not in re.findall(r"<button[^>]*>([^<]+)<", browser.client.get(path, headers=HTML).text)
    assert "is deleted" in act(browser, f"{path}/delete", sure="yes")
    assert text(browser, path, status=404)


def test_queues_are_paused_limited_and_resumed(browser: Browser, shop: App) -> None:
    shop.store.queues()
    assert "Queue mail is paused" in act(browser, "/queues/mail/pause")
    assert "Queue mail is open again" in act(browser, "/queues/mail/resume")
    assert "0 of 4.5 used" in act(browser, "/queues/mail/limit", limit="4.5")
    assert "set by an operator" in text(browser, "/queues")
    assert "Queue mail has the limit that the code declares." in act(browser, "/queues/mail/limit", declared="yes")
    assert "give a number" in act(browser, "/queues/mail/limit", status=400, limit="many")
    assert "no queue" in act(browser, "/queues/nowhere/pause", status=404)


def test_schedules_are_fired_removed_and_brought_back(browser: Browser, shop: App) -> None:
    shop.store.queues()
    assert "Schedule nightly has fired" in act(browser, "/schedules/nightly/fire")
    assert "was there" not in text(browser, "/schedules?name=nightly")
    assert "Remove schedule nightly?" in act(browser, "/schedules/nightly/remove", status=200)
    assert "Schedule nightly is removed." in act(browser, "/schedules/nightly/remove", sure="yes")
    assert "as the code declares it" in act(browser, "/schedules/nightly/reset")


def test_the_archive_has_its_own_search(client: Client, shop: App, clock: MovableClock) -> None:
    old = shop.job_types["send"].using(job_key="old").enqueue(to="a")
    shop.run_until_idle()
    clock.advance(timedelta(days=8).total_seconds())
    shop.store.archive(timedelta(days=7).total_seconds())
    new = shop.job_types["send"].using(job_key="new").enqueue(to="a")

    def shown(path: str) -> list[int]:
        return [job.id for job in (old, new) if f'id="job-{job.id}"' in client.get(path, headers=HTML).text]

    assert shown("/archive?job_type=send") == [old.id]
    assert shown("/jobs") == [new.id]
    assert shown("/jobs?archive=yes") == [old.id, new.id]
    assert "archived" in client.get(f"/jobs/{old.id}", headers=HTML).text


def test_what_is_not_there_is_said_in_the_frame_of_the_dashboard(browser: Browser) -> None:
    for path in ("/jobs/77", "/workflows/report/none", "/nowhere"):
        page = browser.client.get(path, headers=HTML)
        assert page.status_code == 404
        assert 'aria-label="Main"' in page.text


def test_a_reader_is_shown_no_button_and_may_press_none(shop: App, stranger: Client) -> None:
    stranger.headers["Authorization"] = f"Bearer {token(shop, scope='read')}"
    job = shop.job_types["send"].enqueue(to="a")
    for path in (f"/jobs/{job.id}", "/queues", "/schedules", "/jobs?status=pending"):
        assert 'method="post"' not in stranger.get(path, headers=HTML).text
    assert stranger.post(f"/jobs/{job.id}/abort", headers=HTML).status_code == 403
    assert not shop.get(job.id).final


def test_every_form_that_changes_something_carries_the_token_of_its_session(
    browser: Browser, furnished: Furnished
) -> None:
    found = set[str]()
    for route in routes(furnished.app):
        if route.method == "GET" and not route.path.startswith("/api/") and route.path != "/login":
            for row in furnished.places(route):
                found |= changes(browser, browser.client.get(route.address(row), headers=HTML).text)
    for name, deed in furnished.deeds().items():
        if "sure" in deed.body:  # what asks first: the question has a form too
            path = Route("POST", name.removeprefix("POST "), None).address(deed.row)
            form = {**deed.body, "csrf_token": browser.csrf_token, "sure": ""}
            question = browser.client.post(path, data=form, headers=HTML)
            found_there = changes(browser, question.text.replace('method="post">', f'method="post" action="{path}">'))
            assert found_there == {path, "/logout"}
    assert len(found) > 15


def changes(browser: Browser, page: str) -> set[str]:
    """Where the forms of a page lead that change something; each has to bring the token."""
    forms = re.findall(r'<form[^>]* method="post"[^>]*?(?: action="([^"]+)")?>(.*?)</form>', page, re.DOTALL)
    assert len(forms) == len(re.findall(r"<form[^>]*post", page, re.IGNORECASE))
    for path, form in forms:
        assert f'<input type="hidden" name="csrf_token" value="{browser.csrf_token}">' in form, path
    return {path for path, _ in forms}


def test_the_document_of_a_mounted_api_begins_its_addresses_where_it_is_mounted(mounted: Client) -> None:
    document = mounted.get("/jobs-of-the-shop/api/v1/openapi.json").json()
    assert document["servers"] == [{"url": "/jobs-of-the-shop"}]


def test_a_mounted_dashboard_links_below_where_it_is_mounted(mounted: Client) -> None:
    page = mounted.get("/jobs-of-the-shop/", headers=HTML).text
    links = re.findall(r'(?:href|action|src)="([^"#]*)"', page)
    assert links
    assert [link for link in links if not link.startswith("/jobs-of-the-shop/")] == []
