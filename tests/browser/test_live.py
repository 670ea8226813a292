"""Changes are seen without loading the page again."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import Opens
from tests.browser.shop import Shop


def mark(page: Page) -> None:
    """A load of the page would take the mark away."""
    page.evaluate("window.marked = true")


def marked(page: Page) -> bool:
    return bool(page.evaluate("window.marked === true"))


def test_a_job_that_comes_and_ends_is_seen_in_the_list(shop: Shop, opens: Opens) -> None:
    page = opens("/jobs?job_type=refund")
    expect(page.locator("main")).to_contain_text("No job fits.")
    mark(page)
    job = shop.app.job_types["refund"].enqueue(order=1)
    expect(page.locator(f"#job-{job.id} .badge")).to_have_text("failed")
    assert marked(page)


def test_the_overview_counts_what_runs(shop: Shop, opens: Opens) -> None:
    page = opens("/")
    mark(page)
    shop.app.job_types["send"].enqueue_many([{"to": "a"}] * 5)
    row = page.locator("#queue-mail")
    expect(row).to_contain_text("3 of 3")
    expect(row.locator(".badge")).to_have_text("at its limit")
    shop.gate("send").set()
    expect(row).to_contain_text("0 of 3")
    assert marked(page)


def test_the_graph_of_a_run_changes_its_colours(shop: Shop, opens: Opens) -> None:
    run = shop.app.workflows["report"].submit("live")
    shop.until(lambda: run.refresh().steps["charts"].done)
    page = opens("/workflows/report/live?step=sums")
    expect(page.locator("#node-collect")).to_have_class("node good")
    expect(page.locator("#node-sums")).to_have_class("node run chosen")
    expect(page.locator("#node-tidy")).to_have_class("node idle")
    mark(page)
    shop.gate("sums").set()
    expect(page.locator("#node-tidy")).to_have_class("node good")
    expect(page.locator("#node-notify")).to_have_class("node warn")
    expect(page.locator("h1 .badge")).to_have_text("SUCCESS")
    assert marked(page)


def test_a_log_grows_and_a_job_ends_under_the_readers_eyes(shop: Shop, opens: Opens) -> None:
    job = shop.app.job_types["resize"].enqueue(picture="live.jpg")
    shop.until(lambda: shop.app.get(job.id).progress is not None)
    page = opens(f"/jobs/{job.id}")
    expect(page.locator("#lines li")).to_have_count(8)
    expect(page.locator("#lines .ink-yellow")).to_have_text("the colours are a little pale")
    mark(page)
    shop.gate("resize").set()
    expect(page.locator("#lines li")).to_have_count(9)
    expect(page.locator("h1 .badge")).to_have_text("success")
    assert marked(page)


def test_without_events_the_page_asks_now_and_then(shop: Shop, opens: Opens) -> None:
    page = opens("/jobs?job_type=refund", quiet=False)
    page.route("**/api/v1/events*", lambda route: route.abort())
    page.reload()
    expect(page.locator("#live")).to_have_attribute("data-state", "polling")
    mark(page)
    job = shop.app.job_types["refund"].enqueue(order=1)
    expect(page.locator(f"#job-{job.id}")).to_be_visible()
    assert marked(page)


def test_a_page_that_is_held_still_does_not_change_until_it_follows_again(shop: Shop, opens: Opens) -> None:
    page = opens("/jobs?job_type=refund")
    page.locator("#live").click()
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "false")
    job = shop.app.job_types["refund"].enqueue(order=1)
    shop.until(lambda: shop.app.get(job.id).final)
    page.evaluate("new Promise(done => setTimeout(done, 1500))")
    assert page.locator(f"#job-{job.id}").count() == 0
    page.locator("#live").click()
    expect(page.locator(f"#job-{job.id}")).to_be_visible()


def test_what_somebody_has_opened_stays_open(shop: Shop, opens: Opens) -> None:
    job = shop.app.job_types["charge"].enqueue(order=1, amount=1.0)
    shop.until(lambda: shop.app.get(job.id).state == "error")
    page = opens(f"/jobs/{job.id}")
    page.locator("#traceback-1 summary").click()
    expect(page.locator("#traceback-1")).not_to_have_attribute("open", "")
    shop.app.abort(job.id)
    expect(page.locator("h1 .badge")).to_have_text("aborted")
    expect(page.locator("#traceback-1")).not_to_have_attribute("open", "")


def test_the_log_of_a_build_grows_in_its_colours(shop: Shop, opens: Opens) -> None:
    build = shop.build()
    page = opens(f"/builds/{build}")
    expect(page.locator("#lines")).to_contain_text("part 4 of 5")
    assert page.locator("#lines .ink-cyan:has-text('compile')").count() >= 4
    mark(page)
    shop.yard.open()
    expect(page.locator("#lines")).to_contain_text("part 5 of 5")
    expect(page.locator("h1 .badge")).to_have_text("success")
    expect(page.get_by_role("link", name="report")).to_be_visible()
    assert marked(page)
