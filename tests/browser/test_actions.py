"""What operators do on the pages, done in a browser."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import Opens
from tests.browser.shop import Shop


def told(page: Page, text: str) -> None:
    expect(page.locator(".notice[role=status]")).to_contain_text(text)


def test_a_queue_is_paused_limited_and_resumed(shop: Shop, opens: Opens) -> None:
    page = opens("/queues")
    page.get_by_role("button", name="Pause queue mail").click()
    told(page, "Queue mail is paused")
    assert [row.name for row in shop.app.store.queues() if row.paused] == ["mail"]
    page.get_by_label("throttle_limit of mail").fill("7.5")
    page.get_by_label("throttle_limit of mail").press("Enter")
    told(page, "Queue mail has a limit of 7.5")
    page.get_by_role("button", name="Take the declared limit of mail again").click()
    told(page, "the limit that the code declares")
    page.get_by_role("button", name="Resume queue mail").click()
    told(page, "Queue mail is open again")
    (mail,) = [row for row in shop.app.store.queues() if row.name == "mail"]
    assert (mail.paused, mail.set_limit) == (False, None)


def test_a_job_is_aborted_and_retried_as_a_new_one(shop: Shop, opens: Opens) -> None:
    job = shop.app.job_types["send"].using(delay=600).enqueue(to="a")
    page = opens(f"/jobs/{job.id}")
    page.get_by_role("button", name="Abort").click()
    told(page, f"Job {job.id} is aborted")
    expect(page.locator("main")).to_contain_text("browser")
    page.get_by_role("button", name="Retry as a new job").click()
    told(page, f"is a retry of job {job.id}")
    expect(page.get_by_role("link", name=f"job {job.id}")).to_be_visible()


def test_everything_that_a_filter_finds_is_aborted_after_a_question(shop: Shop, opens: Opens) -> None:
    jobs = shop.app.job_types["send"].using(delay=600).enqueue_many([{"to": str(place)} for place in range(60)])
    other = shop.app.job_types["refund"].using(delay=600).enqueue(order=1)
    page = opens("/jobs")
    page.locator("select[name=status]").select_option("pending")
    page.locator("input[name=job_type]").fill("send")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/jobs?job_type=send&status=pending")
    page.get_by_role("button", name="Abort all of these…").click()
    expect(page.locator("h1")).to_have_text("Abort 60 jobs?")
    later = shop.app.job_types["send"].using(delay=600).enqueue(to="later")
    page.get_by_role("button", name="Abort them").click()
    told(page, "60 jobs aborted.")
    assert {str(shop.app.get(job.id).outcome) for job in jobs} == {"aborted"}
    assert not shop.app.get(other.id).final
    assert not shop.app.get(later.id).final


def test_the_dead_of_a_filter_are_retried_together(shop: Shop, opens: Opens) -> None:
    jobs = [shop.app.job_types["refund"].enqueue(order=place) for place in range(3)]
    for job in jobs:
        job.wait(60)
    page = opens("/jobs?status=dead&job_type=refund")
    page.get_by_role("button", name="Retry all of these…").click()
    page.get_by_role("link", name="No, go back").click()
    page.get_by_role("button", name="Retry all of these…").click()
    page.get_by_role("button", name="Retry them").click()
    told(page, "3 jobs retried as new jobs.")
    assert {job.retry_of for job in shop.app.find(job_type="refund", limit=3)} == {job.id for job in jobs}


def test_a_schedule_is_fired_removed_and_brought_back(shop: Shop, opens: Opens) -> None:
    page = opens("/schedules")
    page.get_by_role("button", name="Fire nightly now").click()
    told(page, "Schedule nightly has fired")
    page.get_by_role("button", name="Remove nightly").click()
    page.get_by_role("button", name="Remove it").click()
    told(page, "Schedule nightly is removed")
    page.get_by_role("button", name="Bring back nightly").click()
    told(page, "as the code declares it")
    assert [row.name for row in shop.app.schedules()] == ["hourly", "nightly"]


def test_a_run_is_held_released_aborted_retried_and_deleted(shop: Shop, opens: Opens) -> None:
    run = shop.app.workflows["report"].submit("acted on", params={"paper": "none"})
    page = opens("/workflows/report/acted%20on")
    page.get_by_role("button", name="Hold this run").click()
    told(page, "is held")
    page.get_by_role("button", name="Release").click()
    told(page, "It is released")
    page.get_by_role("button", name="Abort…").click()
    page.get_by_role("button", name="Abort it").click()
    told(page, "is aborted")
    shop.gate("sums").set()
    run.wait(60)
    page.get_by_role("button", name="Retry what erred").click()
    told(page, "What erred runs again.")
    assert run.wait(60).state == "ERROR"
    shop.gate("paper").set()
    run.refresh().retry().wait(60)
    expect(page.locator("h1 .badge")).to_have_text("SUCCESS")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/workflows")
    told(page, "is deleted")


def test_a_form_without_its_token_changes_nothing(shop: Shop, opens: Opens) -> None:
    page = opens("/queues", quiet=False)
    page.evaluate("document.querySelectorAll('[name=csrf_token]').forEach(each => { each.value = 'guessed'; })")
    page.get_by_role("button", name="Pause queue mail").click()
    expect(page.locator("main, body").first).to_contain_text("CSRF")
    assert not any(row.paused for row in shop.app.store.queues())
