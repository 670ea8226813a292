"""docs/reference/http.md: the routes of the API, read from the OpenAPI document that the server itself answers."""

from typing import Any

from docs.generator import text
from holdfast import App
from holdfast.web.app import create

HEAD = """\
`holdfast serve` answers here. Every route needs a token in `Authorization: Bearer …`, or a browser's session, apart from
`/healthz`, `/readyz`, `/login`, hooks and public badges. `/metrics` is for Prometheus and needs scope `read`. The whole document, with the shapes of
bodies and answers, is at `/api/v1/openapi.json`.
"""


def page() -> str:
    parts = ["# HTTP\n", text.MADE, HEAD]
    by_tag: dict[str, list[str]] = {}
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            by_tag.setdefault(operation["tags"][0], []).append(route(method, path, operation))
    for tag in sorted(by_tag):
        parts += [f"## {tag}\n", *by_tag[tag]]
    return "\n".join(parts)


def document() -> dict[str, Any]:
    gate: Any = create(App("sqlite://:memory:"))
    found: dict[str, Any] = gate.inner.openapi_schema.to_schema()
    return found


def route(method: str, path: str, operation: dict[str, Any]) -> str:
    lines = [f"### {method.upper()} {path}\n", f"{operation['description']}\n"]
    rows = [(text.code(each["name"]), each["in"], described(each)) for each in operation.get("parameters", ())]
    if rows:
        lines.append(text.table(("parameter", "in", ""), rows))
    body = operation.get("requestBody")
    if body:
        lines.append(f"Body: {shape(body['content']['application/json']['schema'])}.\n")
    answers = [
        (status, response["description"] + shown(response))
        for status, response in sorted(operation["responses"].items())
    ]
    lines.append(text.table(("answer", ""), answers))
    return "\n".join(lines)


def described(parameter: dict[str, Any]) -> str:
    found: str = parameter.get("description") or parameter["schema"].get("description") or ""
    return found


def shown(response: dict[str, Any]) -> str:
    content = response.get("content", {}).get("application/json")
    return f" {shape(content['schema'])}." if content else ""


def shape(schema: dict[str, Any]) -> str:
    for part in (schema, *schema.get("allOf", ()), *schema.get("oneOf", ())):
        if "$ref" in part:
            return text.code(part["$ref"].rpartition("/")[2])
    return text.code(schema.get("type", "object"))
