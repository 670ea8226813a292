"""`/api/v1/openapi.json`: the document of the API."""

from typing import Any

from litestar import Controller, Request, Router
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, Reference, SecurityScheme

from holdfast.web.routes import look

ABOUT = """Durable jobs: the same nouns and names as in Python and on the command line.

Moments are ISO 8601 in UTC, durations are seconds. Lists come in pages: `items`, and a `cursor` that the next page is asked
for with until it is null. Errors are problem details (RFC 9457) whose `code` is stable."""
TOKEN = (
    "A token of `holdfast tokens create`. Scopes: `read`, `enqueue`, `operate`, `admin`; each includes the ones before."
)
SESSION = (
    "The session of a browser; changes need its CSRF token too. The name ends in the port, and begins with `__Host-` where people "
    "come by https."
)


class Nothing(Controller):
    """Litestar's own pages about the document, of which there are none."""

    path = "/api/v1"


def config(version: str) -> OpenAPIConfig:
    """What stands at the head of the document."""
    schemes: dict[str, SecurityScheme | Reference] = {
        "token": SecurityScheme(type="http", scheme="bearer", description=TOKEN),
        "session": SecurityScheme(
            type="apiKey", name="holdfast_session", security_scheme_in="cookie", description=SESSION
        ),
    }
    return OpenAPIConfig(
        title="Holdfast",
        version=version,
        description=ABOUT,
        security=[{"token": []}, {"session": []}],
        components=Components(security_schemes=schemes),
        openapi_controller=Nothing,  # type: ignore[arg-type]
    )


@look("/openapi.json", include_in_schema=False)
def document(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """The OpenAPI document; where this is mounted in another application, its addresses begin there."""
    made = request.app.openapi_schema.to_schema()
    return made | {"servers": [{"url": request.scope.get("root_path") or "/"}]}


router = Router("/", route_handlers=[document])
