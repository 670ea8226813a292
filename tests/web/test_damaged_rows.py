"""Every page and route of the dashboard and the API answers, whatever stands in a row."""

import json

import pytest

from holdfast import App
from tests.damage import COLUMNS, TEXTS, damage
from tests.raw_sql import RawSql
from tests.web.conftest import Browser, Client
from tests.web.furnished import Furnished, routes

pytestmark = [pytest.mark.broken_on_purpose, pytest.mark.claim("J13")]
HALF = TEXTS["half an object"]


def refused_by(client: Client, furnished: Furnished) -> list[str]:
    """The addresses of everything that exists, as far as they are not answered."""
    found = []
    for route in routes(furnished.app):
        if route.method != "GET" or route.path == "/login" or route.streams:
            continue
        kind = "application/json" if route.path.startswith("/api") else "text/html"
        for row in furnished.places(route):
            answer = client.get(route.address(row), headers={"Accept": kind}, follow_redirects=False)
            if answer.status_code >= 500:
                found.append(route.address(row))
    return found


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, len(TEXTS), 3))
def test_each_route_answers_though_each_column_of_each_table_is_damaged(
    furnished: Furnished, browser: Browser, client: Client, sql: RawSql, first: int
) -> None:
    """Column after column is damaged, each in another way, and after each table everything is read."""
    texts = list(TEXTS.items())
    for table, columns in COLUMNS.items():
        for number, column in enumerate(columns, first):
            damage(sql, table, column, texts[number % len(texts)][1])
        assert (table, refused_by(client, furnished)) == (table, [])


def test_a_list_shows_the_damage_of_one_job_and_the_others_as_they_are(
    browser: Browser, client: Client, shop: App, sql: RawSql
) -> None:
    first, second = (shop.job_types["send"].enqueue(to=to).id for to in ("ann", "bob"))
    damage(sql, "*", "payload", HALF, f"id = {first}")
    damage(sql, "*", "time_windows", "x", f"id = {first}")
    listed = {job["id"]: job for job in client.get("/api/v1/jobs").json()["items"]}
    assert listed[second]["payload"] == {"to": "bob"}
    assert listed[first]["payload"] == {"damaged": {"text": HALF, "reason": "Input data was truncated"}}
    assert listed[first]["time_windows"] == ["damaged (JSON is malformed: invalid character (byte 0)): x"]
    page = browser.client.get(f"/jobs/{first}", headers={"Accept": "text/html"}).text
    assert "Input data was truncated" in page
    streamed = json.dumps(client.get(f"/api/v1/jobs/{first}").json())
    assert HALF in json.loads(streamed)["payload"]["damaged"]["text"]


def test_each_damaged_column_is_found_for_the_doctor(furnished: Furnished, sql: RawSql) -> None:
    store, wanted = furnished.app.store, set()
    assert store.damaged_rows(1000) == []
    for table, columns in COLUMNS.items():
        name = "mail" if table == "*" else f"_{table}"
        refused = {("*", "error"), ("run", "state")} if sql.postgres else set()
        shown = [
            column for column in columns if (table, column) not in {("attempt", "state"), ("build", "found"), *refused}
        ]
        if table in ("trace", "aside") or not sql(f'select 1 from "{sql.instance}_{name}"'):
            continue  # neither is shown
        for column in shown:
            damage(sql, table, column, "[[")
            wanted.add((f"{sql.instance}_{name}", column))
    found = store.damaged_rows(1000)
    assert {(row.table, column) for row in found for column in row.columns} >= wanted
    assert len(wanted) > 40
    assert {row.living for row in found if row.table == f"{sql.instance}_mail"} == {True, False}
