"""A message about a long input repeats 80 characters of it at most, by every route."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.long_inputs import LONG, too_much
from tests.web.conftest import Client
from tests.web.furnished import API, Deed, Furnished, Route, routes


def requests(client: Client, furnished: Furnished) -> Iterator[tuple[Route, dict[str, Any], str]]:
    """Each route of the API with each of its inputs too long: what to send, and where."""
    paths = client.get(f"{API}/openapi.json").json()["paths"]
    deeds = furnished.deeds()
    for route in routes(furnished.app):
        if route.path not in paths or route.streams:
            continue
        described = paths[route.path][route.method.lower()]
        deed = deeds.get(route.name) or Deed((furnished.places(route) or [()])[0])
        json = {"json": deed.body} if deed.body else {}
        for at, _ in enumerate(deed.row):
            yield route, json, route.address((*deed.row[:at], LONG, *deed.row[at + 1 :]))
        for each in described.get("parameters", ()):
            if each["in"] == "query":
                yield route, json | {"params": {each["name"]: LONG}}, route.address(deed.row)
        for name in (*deed.body, LONG):
            yield route, {"json": {**deed.body, name: LONG}}, route.address(deed.row)
            yield route, {"json": {**deed.body, name: {LONG: LONG}}}, route.address(deed.row)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_problem_repeats_little_of_what_was_sent(client: Client, furnished: Furnished) -> None:
    refused = []
    for route, sent, address in requests(client, furnished):
        answer = client.request(route.method, address, **sent)
        if answer.status_code >= 400:
            assert answer.status_code < 500, (route.name, sent, answer.text)
            problem = answer.json()
            for text in (problem["detail"], *problem["errors"]):
                refused.append((route.name, too_much(text), text))
    assert len(refused) > 100
    bad = {(name, re.sub("x{20,}", "<x>", text)[:330]) for name, found, text in refused if found}
    assert not bad, "\n".join(map(str, sorted(bad)))
