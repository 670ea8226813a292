"""Text that others wrote stays text, wherever a page shows it."""

from typing import Any

from playwright.sync_api import Page

from tests.browser.conftest import Opens
from tests.browser.shop import Shop

EVIL = (
    "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'>"
    "\"><svg onload=window.hit=3>' onmouseover='window.hit=4' {{ 7*7 }} javascript:window.hit=5"
)
COLOURED = (
    f"\x1b[31m{EVIL}\x1b[0m\x1b]8;;javascript:window.hit=6\x07link\x1b]8;;\x07\r{EVIL}\n</pre></li>{EVIL}\n\x1b[35mend"
)


def safe(page: Page) -> None:
    page.wait_for_load_state("load")
    assert page.evaluate("window.hit === undefined")
    assert page.locator("main img, main script, main svg[onload], [onmouseover], [onerror]").count() == 0
    assert page.locator("a[href^='javascript:']").count() == 0


def test_keys_errors_tracebacks_logs_payloads_and_progress_stay_text(shop: Shop, opens: Opens) -> None:
    key = EVIL[:180]
    job = shop.app.job_types["echo"].using(job_key=key).enqueue(text=COLOURED)
    shop.until(lambda: shop.app.get(job.id).final)
    for path in (f"/jobs/{job.id}", "/jobs", "/jobs?status=dead", "/"):
        page = opens(path)
        safe(page)
    page = opens(f"/jobs/{job.id}")
    assert "<script>window.hit = 1</script>" in page.locator("main").inner_text()
    assert page.locator("#lines .ink-magenta").inner_text() == "end"


def test_triggers_params_and_published_values_stay_text(shop: Shop, opens: Opens) -> None:
    trigger = EVIL.replace("/", "|")[:180]
    shop.gate("sums").set()
    run = shop.app.workflows["report"].submit(trigger, params={"paper": EVIL})
    run.wait(60)
    page = opens("/workflows")
    safe(page)
    page.locator("tbody th a").first.click()
    page.wait_for_url("**/workflows/report/**")
    safe(page)
    page.locator("#node-sums").click()
    safe(page)
    page.get_by_role("button", name="Delete…").click()
    safe(page)
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/workflows")
    safe(page)


def test_titles_authors_branches_and_logs_of_builds_stay_text(shop: Shop, opens: Opens) -> None:
    name = "evil.txt"
    commit = shop.yard.repository.commit(f'[steps.a]\nrun = ["cat {name}"]\n', {name: COLOURED})
    build = shop.yard.ask(commit, title=EVIL, author=EVIL, branch="<img/src=x/onerror=window.hit=1>&'").build.id
    shop.until(lambda: not shop.yard.projects.look(build).active)
    for path in ("/builds", f"/builds/{build}", "/builds?branch=<script>"):
        safe(opens(path))
    page = opens(f"/builds/{build}")
    assert "<script>window.hit = 1</script>" in page.locator("#lines").inner_text()


def test_the_name_of_an_output_that_is_refused_stays_text(shop: Shop, opens: Opens) -> None:
    name = "<img src=x onerror=window.hit=7>"
    commit = shop.yard.repository.commit(f'[steps.a]\nrun = ["true"]\noutputs = {{ "{name}" = "a" }}\n')
    build = shop.yard.ask(commit, title="Outputs", author="Eve").build.id
    shop.until(lambda: not shop.yard.projects.look(build).active)
    page = opens(f"/builds/{build}")
    safe(page)
    assert name in page.locator("main").inner_text()


def test_what_stands_in_the_address_stays_text(shop: Shop, opens: Opens) -> None:
    def typed(path: str, **values: Any) -> Page:
        page = opens(path, quiet=False)
        page.locator(f"[name={next(iter(values))}]").first.fill(next(iter(values.values())))
        with page.expect_navigation():
            page.keyboard.press("Enter")
        return page

    safe(typed("/jobs", job_key=EVIL))
    safe(typed("/jobs", job_type=EVIL))
    safe(typed("/archive", job_key=EVIL))
    safe(typed("/", q=EVIL))
    for path in ("/jobs?state=<script>", "/schedules?name=<script>", "/workflows?workflow=<script>", "/jobs?before='"):
        safe(opens(path, quiet=False))


def test_a_cookie_with_markup_is_shown_as_text(shop: Shop, opens: Opens) -> None:
    page = opens("/queues")
    page.context.add_cookies([{"name": "holdfast_told", "value": "%3Cimg%20src%3Dx%3E", "url": page.url}])
    page.goto(page.url)
    assert page.locator(".notice[role=status]").inner_text() == "<img src=x>"
    safe(page)


def test_the_page_runs_no_script_but_its_own(shop: Shop, opens: Opens) -> None:
    page = opens("/", quiet=False)
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 1\">')")
    page.evaluate(
        "(() => { const made = document.createElement('script'); made.textContent = 'window.hit = 2'; document.body.append(made); })()"
    )
    page.evaluate("new Promise(done => setTimeout(done, 300))")
    assert page.evaluate("window.hit === undefined")
