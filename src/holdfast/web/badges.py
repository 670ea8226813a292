"""`/badges/{project}.svg`: how the last build of a branch ended. `/links/{project}`: the way to that build."""

from typing import Annotated, Any

from litestar import Request, Response, Router
from litestar.exceptions import NotAuthorizedException
from litestar.params import PathParameter, QueryParameter
from litestar.response import Redirect

from holdfast.builds.badge import badge
from holdfast.errors import NotFound, backticked
from holdfast.web.bodies import refuse_nul
from holdfast.web.callers import PUBLIC, caller_of
from holdfast.web.routes import look
from holdfast.web.site import TheSite

Name = Annotated[str, PathParameter(max_length=210)]
Branch = Annotated[str | None, QueryParameter(max_length=250, description="Only builds of this branch.")]


@look("/badges/{file:str}", needs=PUBLIC, include_in_schema=False)
def show_badge(request: Request[Any, Any, Any], site: TheSite, file: Name, branch: Branch = None) -> Response[str]:
    """Show how the last build of a branch ended, as an SVG. Without a branch it is the default one.

    Without a token only of projects whose badge is public, and of their default branch: every other branch looks like
    one that does not exist.
    """
    name = file.removesuffix(".svg")
    project = site.projects.settings.projects.get(name)
    project = project if file.endswith(".svg") else None
    outsider = caller_of(request.scope) is None
    if outsider and (project is None or not project.public_badge):
        raise NotAuthorizedException
    if project is None:
        raise NotFound(f"There is no project {backticked(name)}.")
    text = badge(branch or name, site.projects.badge_build(project, branch, outsider))
    headers = {"cache-control": "no-cache", "cross-origin-resource-policy": "cross-origin"}
    return Response(text, media_type="image/svg+xml", headers=headers)


@look("/links/{project:str}", include_in_schema=False)
def link(request: Request[Any, Any, Any], site: TheSite, project: Name, branch: Branch = None) -> Redirect:
    """To the last build of a branch."""
    found = site.projects.latest(project, branch)
    if found is None:
        raise NotFound(f"Project `{project}` has no build" + (f" of branch `{branch}`." if branch else "."))
    return Redirect(f"{request.scope.get('root_path', '')}/builds/{found.id}", status_code=302)


router = Router("/", route_handlers=[show_badge, link], before_request=refuse_nul)
