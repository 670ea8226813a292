"""`/hooks/{forge}/{project}`: what forges send.

- A hook without a secret does not exist, and neither does one of an unknown project: the same 404.
- Whoever has not signed what they sent is told nothing but 401. A body that is too large, or comes too slowly, is not
  read to its end.
- A delivery counts once; what it made is committed before the answer is given.
"""

from typing import Annotated, Any

import anyio
import anyio.to_thread
from litestar import Request, Response, Router, post
from litestar.params import PathParameter

from holdfast import views
from holdfast.builds.forges import Ended, Ignored, Ping
from holdfast.builds.project import Project
from holdfast.builds.webhooks import FORGES, LONGEST_BODY, read, signed
from holdfast.errors import Invalid
from holdfast.projects import Projects
from holdfast.stores.contract import Received
from holdfast.web.callers import PUBLIC
from holdfast.web.problems import MEDIA_TYPE, Problem
from holdfast.web.site import TheSite

Name = Annotated[str, PathParameter(max_length=1000)]
PATIENCE = 15.0  # seconds for a whole body
NO_HOOK = Problem(404, "not_found", "Not Found", "There is no such hook.")
NOBODY = Problem(401, "unauthorized", "Unauthorized", "")
TOO_LARGE = Problem(413, "too_large", "Content Too Large", f"A body has at most {LONGEST_BODY} bytes.")
TOO_SLOW = Problem(408, "too_slow", "Request Timeout", f"The body did not come within {PATIENCE:g} seconds.")


class Refused(Exception):
    """The body is not read to its end."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


@post(
    "/hooks/{forge:str}/{project:str}",
    opt={"needs": PUBLIC},
    include_in_schema=False,
    request_max_body_size=None,  # measured here
)
async def receive(request: Request[Any, Any, Any], site: TheSite, forge: Name, project: Name) -> Response[Any]:
    """Take a delivery."""
    found = _hook(site.projects, forge, project)
    if found is None:
        return _refused(NO_HOOK)
    wanted, secret = found
    try:
        body = await _body(request)
    except Refused as refused:
        return _refused(refused.problem)
    headers = {name.lower(): value for name, value in request.headers.items()}
    if not signed(forge, secret, headers, body, site.app.clock.now()):
        return _refused(NOBODY)
    return await anyio.to_thread.run_sync(_take, site.projects, wanted, forge, headers, body)


def _hook(projects: Projects, forge: str, name: str) -> tuple[Project, str] | None:
    project = projects.settings.projects.get(name)
    where = None if project is None or forge not in FORGES else project.hooks.get(forge)
    secret = None if where is None else projects.secret(where)
    return (project, secret) if project is not None and secret else None


async def _body(request: Request[Any, Any, Any]) -> bytes:
    """All of it, if that is not too much and does not take too long."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > LONGEST_BODY:
        raise Refused(TOO_LARGE)
    body = bytearray()
    with anyio.move_on_after(PATIENCE):
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST_BODY:
                raise Refused(TOO_LARGE)
        return bytes(body)
    raise Refused(TOO_SLOW)


def _take(projects: Projects, project: Project, forge: str, headers: dict[str, str], body: bytes) -> Response[Any]:
    try:
        delivery = read(forge, headers, body)
    except Invalid as error:
        return _refused(Problem(400, error.code, "Bad Request", str(error)))
    came = projects.receive(project, delivery)
    told: dict[str, Any] = {"event": delivery.event, "delivery": delivery.id}
    if isinstance(came, Received):
        told |= views.build(came.build) | {"how": came.how, "superseded": list(came.superseded)}
        return Response(told, status_code=202 if came.how in ("new", "again") else 200)
    if isinstance(came, Ignored):
        told["ignored"] = came.why
    elif isinstance(came, Ended):
        told["ended"] = {"branch": came.branch, "pull_request": came.pull_request}
    elif isinstance(came, Ping):
        told["pong"] = project.name
    return Response(told, status_code=200)


def _refused(problem: Problem) -> Response[Any]:
    return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE)


router = Router("/", route_handlers=[receive])
