"""Builds: the list by project and branch, and one build with its steps, its outputs and its log as it grows."""

import os

from litestar import Router
from litestar.params import FromPath
from markupsafe import Markup
from msgspec import Struct

from holdfast.builds.build import Build, BuildState
from holdfast.errors import Invalid, NotFound, quoted
from holdfast.projects import Projects
from holdfast.web import ansi, drawing
from holdfast.web.pages.drawn import render
from holdfast.web.pages.filters import whole
from holdfast.web.pages.page import Form, Html, TheFrame, action, page
from holdfast.web.site import TheSite

PER_PAGE = 50
LAST_BYTES = 1 << 17  # of a log that a page begins with
MOST_BYTES = 1 << 18  # that are read at a time
MOST_LINES = 2000
LONGEST = 4000  # characters of a line


class Line(Struct, frozen=True):
    """A line of a log, and where the next one begins."""

    html: Markup
    next: int


@page("/builds")
def builds(frame: TheFrame, site: TheSite) -> Html:
    chosen = {name: frame.asked(name) for name in ("project", "branch", "commit", "state")}
    before = frame.asked("before")
    if chosen["state"] and chosen["state"] not in tuple(BuildState):
        raise Invalid(f"state={quoted(chosen['state'])}: known are {', '.join(BuildState)}.")
    now = site.app.store.now()
    wanted = {name: value or None for name, value in chosen.items()}
    found = site.projects.builds(**wanted, before=whole("before", before) if before else None, limit=PER_PAGE + 1)
    return frame.show(
        "builds.html",
        now,
        builds=found[:PER_PAGE],
        projects=sorted(site.projects.settings.projects),
        chosen=chosen,
        before=before,
        cursor=found[PER_PAGE - 1].id if len(found) > PER_PAGE else None,
    )


@page("/builds/{build_id:int}")
def build(frame: TheFrame, site: TheSite, build_id: FromPath[int]) -> Html:
    projects = site.projects
    found = projects.use(build_id)
    result, now = projects.result(found), site.app.store.now()
    start = max(0, _size(projects, found) - LAST_BYTES)
    shown = [step for step in found.steps if not step.hidden]
    return frame.show(
        "build.html",
        now,
        build=found,
        steps=shown,
        hidden=len(found.steps) - len(shown),
        outputs=() if result is None else result.outputs,
        has_files=found.active or result is not None,
        commit_page=_commit_page(projects, found),
        timeline=drawing.timeline(
            {step.name: (step.start_time, step.end_time) for step in shown},
            found.start_time or found.create_time,
            found.end_time or now,
        ),
        lines=read(projects, found, start, cut=start > 0),
        cut=start > 0,
    )


def _commit_page(projects: Projects, build: Build) -> str | None:
    """Where the forge shows the commit, if the project says where people look at it."""
    project = projects.settings.projects.get(build.project)
    return None if project is None or project.web is None else f"{project.web}/commit/{build.commit}"


@page("/builds/{build_id:int}/log")
def log(frame: TheFrame, site: TheSite, build_id: FromPath[int]) -> Html:
    """The lines behind a place in the log, for the script."""
    after = whole("after", frame.asked("after", "0"))
    projects = site.projects
    found = projects.look(build_id)
    if after > _size(projects, found):
        after = 0  # a new attempt has a new log
    return Html(render("build_lines.html", lines=read(projects, found, after)), media_type="text/html")


def read(projects: Projects, build: Build, start: int, cut: bool = False) -> list[Line]:
    """Whole lines from a place on, to the end of the log if the build is over; with `cut` without the first one."""
    content = _content(projects, build, start)
    *parts, rest = content.split(b"\n")
    if rest and (not build.active or len(rest) >= LONGEST):
        parts.append(rest)
    lines, at, style = [], start, ansi.PLAIN
    for part in parts[:MOST_LINES]:
        at = min(at + len(part) + 1, start + len(content))
        html, style = ansi.rendered(part.decode("utf-8", "replace")[:LONGEST], style)
        lines.append(Line(html, at))
    return lines[1:] if cut else lines


def _content(projects: Projects, build: Build, start: int) -> bytes:
    try:
        path = projects.log_path(build)
        file = None if path is None else os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, NotFound):
        return b""
    if file is None:
        return b""
    with open(file, "rb") as opened:
        opened.seek(start)
        return opened.read(MOST_BYTES)


def _size(projects: Projects, build: Build) -> int:
    try:
        path = projects.log_path(build)
        return 0 if path is None else os.stat(path, follow_symlinks=False).st_size
    except (OSError, NotFound):
        return 0


@action("/builds/{build_id:int}/abort")
def abort(frame: TheFrame, site: TheSite, build_id: FromPath[int]) -> Html:
    ended = site.projects.abort(build_id, actor=frame.actor)
    said = f"The builder of build {build_id} was asked to end it." if ended.active else f"Build {build_id} is aborted."
    return frame.go(f"/builds/{build_id}", said)


@action("/builds/{build_id:int}/retry")
def retry(frame: TheFrame, site: TheSite, build_id: FromPath[int], data: Form) -> Html:
    if data.get("sure") != "yes":
        sentence = "Its log and its outputs are removed, and it is built again from the beginning."
        back = f"/builds/{build_id}"
        return frame.confirm(site.app.store.now(), f"Build {build_id} again?", sentence, "Build it again", back, data)
    site.projects.retry(build_id, actor=frame.actor)
    return frame.go(f"/builds/{build_id}", f"Build {build_id} is built again.")


router = Router("/", route_handlers=[builds, build, log, abort, retry])
