"""Builds for people: the list, one build with its steps, and a log as it is or as it grows."""

import codecs
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import BinaryIO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.builds.build import Build
from holdfast.builds.result import Output
from holdfast.cli.log_text import LogText
from holdfast.cli.output import say_json
from holdfast.cli.tables import coloured, facts, indented, listing, relative, shows_colours, span
from holdfast.clock import sleep
from holdfast.errors import NotFound
from holdfast.projects import Projects

PAUSE = 0.1  # seconds between looks at a log
CHUNK = 1 << 16


def listed(found: Sequence[Build]) -> Table:
    headers = ("id", "project", "commit", "branch", "state", "outcome", "title", "job")
    rows = [
        (
            str(build.id),
            build.project,
            build.commit[:10],
            _place(build),
            build.build_state.value,
            _outcome(build),
            build.title,
            str(build.job_id),
        )
        for build in found
    ]
    return listing(
        headers, rows, whole=("id", "commit", "state", "outcome"), right=("id", "job"), spare=("title", "job")
    )


def blocks(build: Build, outputs: Sequence[Output], now: datetime) -> list[RenderableType]:
    pairs: list[tuple[str, str | Text]] = [
        ("build", f"{build.id} of {build.project}"),
        ("commit", f"{build.commit}  {build.title}"),
        ("for", _place(build)),
        ("by", f"{build.author or 'somebody'} over {build.forge}" + ("" if build.trusted else ", not trusted")),
        ("state", build.build_state.value),
        ("outcome", _outcome(build)),
        ("job", f"{build.job_id}, attempt {build.attempt}"),
        ("received", relative(build.create_time, now)),
    ]
    if build.start_time is not None:
        pairs.append(("started", relative(build.start_time, now)))
    if build.end_time is not None and build.start_time is not None:
        pairs.append(("took", span((build.end_time - build.start_time).total_seconds())))
    if build.error is not None:
        pairs.append(("error", build.error.message))
    pairs += [("output", f"{each.name} ({each.size} bytes) of {each.step}") for each in outputs]
    steps = [(step.name, coloured(step.state, _kind(step.state)), step.reason or "") for step in build.steps]
    found: list[RenderableType] = [facts(pairs)]
    if steps:
        found.append(indented(listing(("step", "state", "reason"), steps, whole=("step", "state"))))
    return found


def pour(projects: Projects, build_id: int, follow: bool, as_json: bool) -> None:
    """The log to standard output; with `follow` until the build is over."""
    build, position, job = projects.use(build_id), 0, 0
    write = _writer(as_json)
    while True:
        over, path = not build.active, projects.log_path(build)
        if build.job_id != job:
            position, job, write = 0, build.job_id, _writer(as_json)
        there = path is not None and path.exists()
        if not there and (over or not follow):
            raise NotFound(
                f"{build.words} is `{build.build_state}` and has no log in {projects.folder}. "
                "Run this where the settings file names its folder, or wait with --follow."
            )
        if path is not None and there:
            position = _pour_from(path.open("rb"), position, write)
        if over or not follow:
            return
        sleep(PAUSE)
        build = projects.look(build_id)


def _writer(as_json: bool) -> Callable[[bytes], None]:
    """What writes the pieces of one log: for a program everything, as JSON; for a person text."""
    if as_json:
        letters = codecs.getincrementaldecoder("utf-8")("replace")
        return lambda piece: say_json({"text": letters.decode(piece)}, lines=True)
    text = LogText(colours=shows_colours())

    def write(piece: bytes) -> None:
        sys.stdout.write(text.text(piece))
        sys.stdout.flush()

    return write


def _pour_from(file: BinaryIO, position: int, write: Callable[[bytes], None]) -> int:
    with file:
        file.seek(position)
        while chunk := file.read(CHUNK):
            position += len(chunk)
            write(chunk)
    return position


def _place(build: Build) -> str:
    """The refs that asked for it."""
    return ", ".join(each.name for each in build.refs)


def _outcome(build: Build) -> str | Text:
    return "" if build.outcome is None else coloured(build.outcome.value, build.outcome.value)


def _kind(state: str) -> str:
    return {"SUCCESS": "success", "FAILED": "failed", "ERROR": "error", "READY": "running", "START": "running"}.get(
        state, ""
    )
