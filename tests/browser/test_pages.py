"""Every page in a real browser: it says nothing on the console, fits the screen, can be read by everybody, also without script."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import PICTURES, Opens
from tests.browser.shop import Shop

CHECK = (Path(__file__).parent / "accessibility.js").read_text()
PAGES = {
    "overview": ("/", "What is wrong now"),
    "jobs": ("/jobs", "Jobs"),
    "jobs-dead": ("/jobs?status=dead", "the card of order 4712 has expired"),
    "job-running": ("/jobs/{resized}", "strip 7 of 10"),
    "job-failed": ("/jobs/{charged}", "bank.example did not answer for order 4711"),
    "workflows": ("/workflows", "2026-11-16"),
    "run": ("/workflows/report/2026-11-16?step=sums", "Tasks of sums"),
    "run-erred": ("/workflows/report/2026-11-15", "Retry what erred"),
    "builds": ("/builds", "Announce the sale"),
    "build": ("/builds/{built}", "part 4 of 5"),
    "queues": ("/queues", "throttle_limit"),
    "workers": ("/workers", "ada"),
    "schedules": ("/schedules?name=nightly", "0 3 * * *"),
    "archive": ("/archive", "Archive"),
    "settings": ("/settings", "lost_after"),
    "nothing": ("/jobs/999999", "There is no job 999999"),
}
KEPT = {
    ("overview", "wide", "light"),
    ("overview", "phone", "dark"),
    ("jobs", "wide", "light"),
    ("job-failed", "wide", "light"),
    ("job-running", "wide", "dark"),
    ("run", "wide", "light"),
    ("run", "wide", "dark"),
    ("run", "phone", "light"),
    ("build", "wide", "light"),
    ("queues", "wide", "light"),
    ("schedules", "wide", "light"),
    ("workers", "wide", "dark"),
}


def path_of(name: str, shop: Shop) -> str:
    return PAGES[name][0].format(resized=shop.resized.id, charged=shop.charged.id, built=shop.built)


def settle(page: Page) -> None:
    page.wait_for_load_state("load")
    page.locator("#live[data-state]").wait_for(state="attached")


def test_every_page_in_every_light_and_size(
    shop: Shop, opens: Opens, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    shop.open()
    found = []
    for name, (_, text) in PAGES.items():
        for size in ("wide", "phone"):
            for scheme in ("light", "dark"):
                page = opens(path_of(name, shop), size=size, scheme=scheme, quiet=name != "nothing")
                settle(page)
                assert text in page.content(), name
                if page.evaluate("document.documentElement.scrollWidth > innerWidth + 1"):
                    found.append(f"{name} {size}: is wider than the screen")
                found += [f"{name} {size} {scheme}: {wrong}" for wrong in page.evaluate(CHECK)]
                if pytestconfig.getoption("--pictures") and (name, size, scheme) in KEPT:
                    PICTURES.mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=PICTURES / f"{name}-{size}-{scheme}.png", full_page=name == "run")
                page.context.close()
    assert not found, "\n".join(found)


def test_every_page_can_be_read_without_script(shop: Shop, opens: Opens) -> None:
    shop.open()
    for name, (_, text) in PAGES.items():
        page = opens(path_of(name, shop), script=False, quiet=name != "nothing")
        assert text in re.sub(r"\s+", " ", page.locator("main").inner_text()), name
        assert not page.locator("#live").is_visible()
        page.context.close()


def test_keys_lead_to_the_content_and_to_the_search(shop: Shop, opens: Opens) -> None:
    page = opens("/queues")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    job = shop.app.job_types["approve"].using(job_key="order-1").enqueue(order=1)
    page.keyboard.type(str(job.id))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job.id}")
    page.keyboard.press("/")
    page.keyboard.type("order-1")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?job_key=order-1*")
    assert page.locator("tbody tr").count() == 1
