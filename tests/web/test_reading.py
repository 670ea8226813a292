"""Nothing changes by GET: whatever is read, the database is as it was."""

import pytest

from holdfast import App
from tests.raw_sql import RawSql
from tests.web.conftest import Browser, Client
from tests.web.furnished import Furnished, everything, routes


@pytest.mark.parametrize("as_browser", [False, True], ids=["program", "browser"])
def test_no_get_changes_anything(
    furnished: Furnished, request: pytest.FixtureRequest, sql: RawSql, as_browser: bool
) -> None:
    """At whatever exists, and whatever the address says."""
    client: Client = request.getfixturevalue("browser").client if as_browser else request.getfixturevalue("client")
    before = everything(sql)
    for route in routes(furnished.app):
        if route.method not in ("GET", "HEAD") or route.path == "/login" or route.streams:
            continue  # a stream of what began again by mistake would never end
        addresses = [route.address(row) for row in furnished.places(route)]
        queries = ("", "?queue=mail&limit=5", "?delete=1&action=abort&confirm=yes&sure=yes")
        asked = [f"{address}{query}" for address in addresses for query in queries]
        statuses = {client.request(route.method, each, follow_redirects=False).status_code for each in asked}
        assert statuses & {200, 302, 303}, (route.name, statuses)
    assert everything(sql) == before


def test_what_a_person_may_do_needs_more_than_a_link(browser: Browser, shop: App) -> None:
    job = shop.job_types["ask"].enqueue()
    for action in ("abort", "retry", "delete"):
        assert browser.client.get(f"/jobs/{job.id}/{action}", follow_redirects=False).status_code in (404, 405)
    assert job.refresh().state == "initial"
