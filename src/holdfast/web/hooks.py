"""`/hooks/{forge}/{project}`: what forges send.

- An unsigned or wrongly signed delivery gets the same 401 without detail, whether there is such a hook or not. A hook
  without a secret, or of an unknown project, has a random secret for each delivery.
- What the headers show to be unsigned is refused before its body is read. Bodies that are not verified yet have limited
  room, length and time.
- A delivery counts once; what it made is committed before the answer is given.
"""

from typing import Annotated, Any

import anyio.to_thread
from litestar import Request, Response, Router, post
from litestar.params import PathParameter

from holdfast import views
from holdfast.builds.forges import Ended, Ignored, Ping
from holdfast.builds.project import Project
from holdfast.builds.webhooks import LONGEST_BODY, begin_check, read
from holdfast.errors import Invalid
from holdfast.projects import Projects
from holdfast.stores.contract import Received
from holdfast.web import secret
from holdfast.web.callers import PUBLIC
from holdfast.web.hook_bodies import Crowded, TooLong
from holdfast.web.problems import MEDIA_TYPE, Problem
from holdfast.web.site import TheSite

Name = Annotated[str, PathParameter(max_length=1000)]
NOBODY = Problem(401, "unauthorized", "Unauthorized", "")
TOO_LARGE = Problem(413, "too_large", "Content Too Large", f"A body has at most {LONGEST_BODY} bytes.")
CROWDED = Problem(
    503, "unavailable", "Service Unavailable", "Too many bodies are being received at the same time. Send it again."
)


@post(
    "/hooks/{forge:str}/{project:str}",
    opt={"needs": PUBLIC},
    include_in_schema=False,
    request_max_body_size=None,  # measured here
)
async def receive(request: Request[Any, Any, Any], site: TheSite, forge: Name, project: Name) -> Response[Any]:
    """Take a delivery."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    found = site.projects.settings.projects.get(project)
    check = begin_check(forge, _secret(site.projects, found, forge), headers, site.app.clock.now())
    if check is None:
        return _refused(NOBODY)
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > LONGEST_BODY:
        return _refused(TOO_LARGE)
    try:
        body = await site.hook_bodies.read(request.stream(), check)
    except TooLong:
        return _refused(TOO_LARGE)
    except Crowded:
        return _refused(CROWDED)
    if body is None or found is None:
        return _refused(NOBODY)
    return await anyio.to_thread.run_sync(_take, site.projects, found, forge, headers, body)


def _secret(projects: Projects, project: Project | None, forge: str) -> str:
    """The secret of a hook; a new one if there is no such hook, so that every signature is wrong."""
    where = None if project is None else project.hooks.get(forge)
    return (None if where is None else projects.secret(where)) or secret.new()


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
        tag = {} if came.tag is None else {"tag": came.tag}
        told["ended"] = {"branch": came.branch, "pull_request": came.pull_request, **tag}
    elif isinstance(came, Ping):
        told["pong"] = project.name
    return Response(told, status_code=200)


def _refused(problem: Problem) -> Response[Any]:
    return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE)


router = Router("/", route_handlers=[receive])
