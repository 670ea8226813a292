"""Nothing changes by GET: whatever is read, the database is as it was."""

import re
from typing import Any

import pytest

from holdfast import App
from tests.raw_sql import RawSql
from tests.web.conftest import Browser, Client
from tests.web.furnished import everything
from tests.web.test_auth import paths


@pytest.mark.parametrize("as_browser", [False, True], ids=["program", "browser"])
def test_no_get_changes_anything(shop: App, request: pytest.FixtureRequest, sql: RawSql, as_browser: bool) -> None:
    shop.run_until_idle()
    types = shop.job_types
    job = types["send"].enqueue(to="ada")
    types["refuse"].enqueue(why="no")
    types["ask"].enqueue()
    shop.run_until_idle()
    shop.workflows["report"].submit("t")
    client: Client = request.getfixturevalue("browser").client if as_browser else request.getfixturevalue("client")
    before, answers = everything(sql), list[Any]()
    for path, method, _ in paths(shop):
        if method != "GET" or path in ("/login", "/logout") or "events" in path:
            continue
        for asked in {path, path.replace("/x", "/mail"), re.sub(r"/1(?=/|$)", f"/{job.id}", path)}:
            for query in ("", "?queue=mail&limit=5", "?delete=1&action=abort&confirm=yes"):
                answers.append(client.get(f"{asked}{query}", follow_redirects=False).status_code)
    assert answers.count(200) > 50
    assert everything(sql) == before


def test_what_a_person_may_do_needs_more_than_a_link(browser: Browser, shop: App) -> None:
    job = shop.job_types["ask"].enqueue()
    for action in ("abort", "retry", "delete"):
        assert browser.client.get(f"/jobs/{job.id}/{action}", follow_redirects=False).status_code in (404, 405)
    assert job.refresh().state == "initial"
