"""`/api/v1/builds`: look at builds, read their logs as they grow, fetch their outputs, end them, build them again."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import anyio.to_thread
from litestar import Response, Router
from litestar.params import PathParameter, QueryParameter
from litestar.response import Stream

from holdfast import views
from holdfast.builds.build import GENERATED, Build, BuildState
from holdfast.builds.buildfile import is_output_name
from holdfast.errors import Conflict, NotFound
from holdfast.projects import Projects
from holdfast.web import paging, shapes
from holdfast.web.paging import Shape
from holdfast.web.routes import act, fetch, look, watch
from holdfast.web.site import Site, TheCaller, TheSite

BuildId = Annotated[int, PathParameter(ge=1, le=2**63 - 1, description="The build's id.")]
Word = Annotated[str | None, QueryParameter(max_length=250)]
OutputName = Annotated[str, PathParameter(max_length=200, description="The output's name.")]
CHUNK = 1 << 16


@look("/builds", answers=shapes.Page[shapes.BuildShape])
def list_builds(
    site: TheSite,
    project: Word = None,
    branch: Word = None,
    commit: Word = None,
    in_state: Annotated[BuildState | None, QueryParameter(name="state")] = None,
    limit: paging.Limit = paging.USUAL,
    cursor: paging.CursorText = None,
) -> Shape:
    """Builds, newest first. Listing is not use: it keeps no build in the cache."""
    belongs = ("builds", project, branch, commit, in_state)
    wanted = {"project": project, "branch": branch, "commit": commit, "state": in_state and in_state.value}
    found = site.projects.builds(**wanted, before=paging.read(cursor, *belongs), limit=limit + 1)
    more = found[limit - 1].id if len(found) > limit else None
    return paging.page([views.build(build) for build in found[:limit]], paging.write(more, *belongs))


@look("/builds/{build_id:int}", answers=shapes.BuildPageShape, errors=(NotFound,))
def show_build(site: TheSite, build_id: BuildId) -> Shape:
    """One build with its steps and outputs. Looking at it is use: it is cached again."""
    projects = site.projects
    build = projects.use(build_id)
    result = projects.result(build)
    return views.build_page(build, () if result is None else result.outputs)


@watch("/builds/{build_id:int}/log", errors=(NotFound,), streams="The log.", media_type="text/plain")
async def log(
    site: TheSite,
    build_id: BuildId,
    follow: Annotated[bool, QueryParameter(description="False: only what is there already.")] = True,
) -> Stream:
    """The log as plain text: what is there, and then what comes, until the build is over."""
    projects = site.projects
    build = await anyio.to_thread.run_sync(projects.use, build_id)
    path = await anyio.to_thread.run_sync(projects.log_path, build)  # 404 if the folder is not here
    if path is None and not build.active:
        raise NotFound(
            f"{build.words}: its log is not in the folder. `holdfast builds retry {build.id}` builds it again."
        )
    return Stream(_log(site, projects, build, follow), media_type="text/plain", headers={"x-accel-buffering": "no"})


async def _log(site: Site, projects: Projects, build: Build, follow: bool) -> AsyncIterator[bytes]:
    if follow and build.active:
        async for chunk in site.tails.watch(build, lambda: projects.look(build.id), projects.log_path):
            yield chunk
        return
    path = await anyio.to_thread.run_sync(projects.log_path, build)
    try:
        file = None if path is None else os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    if file is None:
        return
    try:
        while chunk := await anyio.to_thread.run_sync(os.read, file, CHUNK):
            yield chunk
    finally:
        os.close(file)


@fetch("/builds/{build_id:int}/outputs/{name:str}", errors=(NotFound,))
def output(site: TheSite, build_id: BuildId, name: OutputName) -> Response[Any]:
    """An output as a download."""
    projects = site.projects
    build = projects.use(build_id)
    result = projects.result(build)
    if result is None or not is_output_name(name) or all(each.name != name for each in result.outputs):
        raise NotFound(f"{build.words} has no output `{name}`.")
    try:
        path = projects.path(build.job_id) / GENERATED / name
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        raise NotFound(f"Output `{name}` of {build.words} is not in its folder any more.") from None
    headers = {
        "content-disposition": f'attachment; filename="{name}"',  # a name of letters, digits, `.`, `_` and `-`
        "content-length": str(os.fstat(file).st_size),
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return Stream(_content(file), media_type="application/octet-stream", headers=headers)


def _content(file: int) -> Iterator[bytes]:
    with open(file, "rb") as opened:
        while chunk := opened.read(CHUNK):
            yield chunk


@act("/builds/{build_id:int}/abort", needs="operate", answers=shapes.BuildShape, errors=(Conflict, NotFound))
def abort(site: TheSite, caller: TheCaller, build_id: BuildId) -> Shape:
    """End a build: at once if it waits, else its builder is asked to."""
    return views.build(site.projects.abort(build_id, actor=caller.actor))


@act("/builds/{build_id:int}/retry", needs="operate", answers=shapes.BuildShape, errors=(Conflict, NotFound))
def retry(site: TheSite, caller: TheCaller, build_id: BuildId) -> Shape:
    """Build a completed build again, from the beginning."""
    return views.build(site.projects.retry(build_id, actor=caller.actor))


router = Router("/", route_handlers=[list_builds, show_build, log, output, abort, retry], tags=["builds"])
