"""The stylesheet, the script and the icon: three files, and no others."""

from importlib.resources import files
from typing import Any

from litestar import Request, Response, Router
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from holdfast.web.pages.page import fingerprint, page

KINDS = {"holdfast.css": "text/css", "holdfast.js": "text/javascript", "holdfast.svg": "image/svg+xml"}
FOR_A_YEAR = "private, max-age=31536000, immutable"


@page("/static/{name:str}")
def static(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
    if name not in KINDS:
        raise NotFoundException
    content = files("holdfast.web").joinpath("static", name).read_bytes()
    headers = {"cache-control": FOR_A_YEAR} if fingerprint() in request.url.query else {}
    return Response(content, media_type=KINDS[name], headers=headers)


router = Router("/", route_handlers=[static])
