"""`/healthz`: the process answers. `/readyz`: so does its database, and takes writes.

Both need no token and name nothing, and answer HEAD too, which many who watch servers ask with.
"""

from litestar import Response, Router

from holdfast.errors import Unavailable
from holdfast.web.callers import PUBLIC
from holdfast.web.routes import look
from holdfast.web.site import TheSite


@look("/healthz", needs=PUBLIC, headers_alone=True, include_in_schema=False)
def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@look("/readyz", needs=PUBLIC, headers_alone=True, include_in_schema=False)
def readyz(site: TheSite) -> Response[dict[str, str]]:
    """The database answers too, and takes writes."""
    try:
        with site.reader() as store:
            store.ready()
    except Unavailable:
        return Response({"status": "unavailable"}, status_code=503)
    return Response({"status": "ok"})


router = Router("/", route_handlers=[healthz, readyz])
