"""Each job and each build has one address."""

import pytest
from litestar import Litestar
from litestar.handlers import asgi
from litestar.testing import TestClient

from holdfast import App
from holdfast.web.app import create
from tests.raw_sql import RawSql
from tests.web.conftest import ADDRESS, Browser, Client, token
from tests.web.furnished import Furnished, everything, routes

SPELLINGS = (
    *("+{}", "-{}", "0{}", "00{}", "%20{}", "{}%20", "{}%09", "{}_0", "0_{}", "{}.0", "{}e0", "0x{}", "{}%00"),
    *("%E0%A5%A7", "%D9%A1", "%EF%BC%91", "%31"),  # the digit one: of Devanagari, Arabic, in full width, encoded
    *("0", "-0", "9223372036854775808", "9" * 5000, "True"),
)
AROUND = ("{}/", "{}//", "/{}")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_an_id_is_written_in_one_way(client: Client, furnished: Furnished, sql: RawSql) -> None:
    """Of every route that has one, with every method."""
    before, found = everything(sql), 0
    for route in routes(furnished.app):
        if "_id}" not in route.path:
            continue
        found += 1
        good, *rest = furnished.places(route)[0]
        for spelling in SPELLINGS:
            address = route.path.replace("{job_id}", "{build_id}").replace("{build_id}", spelling.format(good))
            answer = client.request(route.method, address.replace("{name}", str(*rest)))
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (route.name, spelling)
        for around in AROUND:
            answer = client.request(route.method, around.format(route.address((good, *rest))))
            assert answer.status_code == 404, (route.name, around)
    assert found > 15
    assert everything(sql) == before


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_the_one_way_leads_to_the_job(client: Client, shop: App) -> None:
    jobs = [shop.enqueue("mail", "send", {"to": "a"}) for _ in range(11)]
    for job in jobs:
        for path in (f"/jobs/{job.id}", f"/api/v1/jobs/{job.id}"):
            assert client.get(path).status_code == 200


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_page_does_so_too(browser: Browser, shop: App) -> None:
    job = shop.enqueue("mail", "send", {"to": "a"})
    form = {"csrf_token": browser.csrf_token}
    for spelling in SPELLINGS:
        page = browser.client.get(f"/jobs/{spelling.format(job.id)}", headers={"Accept": "text/html"})
        done = browser.client.post(f"/jobs/{spelling.format(job.id)}/abort", data=form)
        assert (page.status_code, done.status_code) == (404, 404), spelling
    assert not shop.get(job.id).final


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_so_it_is_where_the_application_is_mounted(shop: App) -> None:
    job = shop.enqueue("mail", "send", {"to": "a"})
    mounted = asgi("/queue", is_mount=True, copy_scope=True)(create(shop))
    with TestClient(Litestar([mounted], logging_config=None), base_url=ADDRESS) as client:
        client.headers["Authorization"] = f"Bearer {token(shop)}"
        assert client.get(f"/queue/jobs/{job.id}").status_code == 200
        assert client.get(f"/queue/jobs/0{job.id}").status_code == 404
        assert client.get(f"/queue/api/v1/jobs/+{job.id}").status_code == 404
