"""The OpenAPI document is whole and true: what it says of every route holds for whatever is sent there."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from schemathesis import checks

from holdfast import App
from holdfast.web.app import create
from tests.web.conftest import ADDRESS, Client, token

EXAMPLES = {"sqlite": 8, "postgres": 4}  # of each operation; `make faults` sends more
SEED = 20261116
STREAMS = "/events"  # never ends
FILES = {
    "/api/v1/builds/{build_id}/log": "text/plain",
    "/api/v1/builds/{build_id}/outputs/{name}": "application/octet-stream",
}
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


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
def test_nothing_that_is_sent_breaks_the_server_or_the_document(shop: App, url: str) -> None:
    attack_everything(shop, EXAMPLES[url.partition(":")[0].removesuffix("ql")])


@pytest.mark.faults
def test_not_much_of_anything_breaks_the_server_or_the_document(shop: App) -> None:
    attack_everything(shop, 60)


def attack_everything(shop: App, examples: int) -> None:
    job = shop.enqueue("mail", "send", {"to": "a"}, job_key="known")
    shop.enqueue("mail", "ask", job_key="asked")
    shop.submit("report", "monday")
    shop.run_until_idle()
    headers = {"Authorization": f"Bearer {token(shop)}", "Host": "localhost"}
    gate = create(shop)
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", gate, headers=headers)
    assert job.id
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path.endswith(STREAMS):
            continue
        attack(operation, headers, examples)


def attack(operation: Any, headers: dict[str, str], examples: int) -> None:
    @seeded(SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        answer = case.call(base_url=ADDRESS, headers=headers)
        case.validate_response(answer, checks=CHECKS)

    send()
