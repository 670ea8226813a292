"""The OpenAPI document is whole and true: what it says of every route holds for whatever is sent there."""

from collections.abc import Sequence
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from schemathesis import checks

from holdfast.web.app import create
from tests.web.conftest import ADDRESS, Client, token
from tests.web.furnished import ENDLESS, Deed, Furnished, Route, Row, routes

EXAMPLES = {"sqlite": 6, "postgres": 4}  # of each operation; `make faults` sends more
SEED = 20261116
STREAMS = "/events"
FILES = {
    "/api/v1/builds/{build_id}/log": "text/plain",
    "/api/v1/builds/{build_id}/outputs/{name}": "application/octet-stream",
}
SHAPE = checks.response_schema_conformance
CHECKS = [checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance, SHAPE]


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, found) for path, item in document["paths"].items() for method, found in item.items()]


def test_every_operation_is_described(client: Client) -> None:
    document = client.get("/api/v1/openapi.json").json()
    assert document["servers"] == [{"url": "/"}]
    found = operations(document)
    assert len(found) > 35
    assert all(path.startswith("/api/v1/") for path, _, _ in found)
    for path, method, operation in found:
        assert operation["summary"], (method, path)
        assert operation["tags"], (method, path)
        assert "scope `" in operation["description"], (method, path)
        assert {"401", "403", "503"} <= set(operation["responses"]), (method, path)
        for status, response in operation["responses"].items():
            if status >= "400":
                assert "application/problem+json" in response["content"], (method, path, status)
            elif path in FILES:
                assert list(response["content"]) == [FILES[path]]
            elif status not in ("204",) and not path.endswith(STREAMS):
                assert response["content"]["application/json"]["schema"], (method, path, status)
    assert len({operation["operationId"] for _, _, operation in found}) == len(found)
    assert document["security"] == [{"token": []}, {"session": []}]
    assert set(document["components"]["securitySchemes"]) == {"token", "session"}


def test_bodies_and_answers_have_examples(client: Client) -> None:
    document = client.get("/api/v1/openapi.json").json()
    schemas = document["components"]["schemas"]
    shown = [name for name in schemas if name.endswith("Body")] + ["JobShape", "RunShape", "BuildShape", "Problem"]
    assert len(shown) > 8
    for name in shown:
        assert any("examples" in field for field in schemas[name]["properties"].values()), name


@pytest.mark.long
def test_nothing_that_is_sent_breaks_the_server_or_the_document(furnished: Furnished, url: str) -> None:
    attack_everything(furnished, EXAMPLES[url.partition(":")[0].removesuffix("ql")])


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_not_much_of_anything_breaks_the_server_or_the_document(furnished: Furnished) -> None:
    attack_everything(furnished, 60)


def attack_everything(furnished: Furnished, examples: int) -> None:
    headers = {"Authorization": f"Bearer {token(furnished.app)}", "Host": "localhost"}
    gate = create(furnished.app, projects=furnished.yard.projects)
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", gate, headers=headers)
    found = {f"{each.method.upper()} {each.path}": each for each in (each.ok() for each in schema.get_all_operations())}
    known = [route for route in routes(furnished.app) if route.name in found and route.path != ENDLESS]
    assert len(known) == len(found) - 1
    deeds = furnished.deeds()
    for route in known:
        if route.method == "GET":
            look_everywhere(found[route.name], route, furnished.places(route), headers)
        else:
            assert answered(found[route.name], route, deeds[route.name], headers) < 300, route.name
            answered(found[route.name], route, deeds[route.name], headers)  # once more: much is a conflict now
    for route in sorted(known, key=lambda route: route.method != "GET"):  # what is over must not have begun again
        places = furnished.places(route)
        attack(found[route.name], route, places if route.streams else [None, *places], headers, examples)


def look_everywhere(operation: Any, route: Route, places: list[Row], headers: dict[str, str]) -> None:
    """At all there is; some of it is found, or the sweep is about nothing."""
    statuses = [answered(operation, route, Deed(place), headers) for place in places]
    assert 200 in statuses, (route.name, statuses)


def answered(operation: Any, route: Route, deed: Deed, headers: dict[str, str]) -> int:
    body = {"body": deed.body, "media_type": "application/json"} if deed.body else {}
    case = operation.Case(path_parameters=route.parameters(deed.row), **body)
    answer = case.call(base_url=ADDRESS, headers=headers)
    conforms(case, answer)
    return int(answer.status_code)


def conforms(case: Any, answer: Any) -> None:
    """The text of a stream is described as text; each event of it would be held against that."""
    stream = case.path.endswith(STREAMS) and answer.status_code == 200
    case.validate_response(answer, checks=[each for each in CHECKS if not (stream and each is SHAPE)])


def attack(operation: Any, route: Route, places: Sequence[Row | None], headers: dict[str, str], examples: int) -> None:
    """Whatever fits the document, and most often at something that exists."""

    @seeded(SEED)
    @settings(
        max_examples=examples,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), place=st.sampled_from(places))
    def send(case: Any, place: Row | None) -> None:
        if place:
            case.path_parameters = route.parameters(place)
        answer = case.call(base_url=ADDRESS, headers=headers)
        conforms(case, answer)

    send()
