"""`/api/v1/openapi.json`: the document of the API."""

from typing import Any

from litestar import Controller, Request, Router

from holdfast.web.routes import look

ABOUT = "Durable jobs: the same nouns and names as in Python and on the command line."


class Nothing(Controller):
    """Litestar's own pages about the document, of which there are none."""

    path = "/api/v1"


@look("/openapi.json", include_in_schema=False)
def document(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """The OpenAPI document."""
    return request.app.openapi_schema.to_schema()


router = Router("/", route_handlers=[document])
