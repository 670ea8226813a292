"""A build of a working copy, where it is and as it is: uncommitted changes count."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct
from rich.text import Text

from holdfast.builds import buildfile, condition
from holdfast.builds.buildfile import BuildFile, BuildStep
from holdfast.builds.order import BUILD_FILE, BuildOrder, Sandbox, check
from holdfast.builds.result import BuildResult, StepResult
from holdfast.cli import run_page, tables
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid, NotFound, quoted, reason, shown_path
from holdfast.worker import builder
from holdfast.worker.building.performance import Place
from holdfast.worker.building.surroundings import facts

NO_COMMIT = "0" * 40


class Asked(Struct, frozen=True, kw_only=True):
    """What to build, as it was said on the command line."""

    path: Path
    file: str | None = None
    step: str | None = None
    env: tuple[str, ...] = ()
    branch: str | None = None
    tag: str | None = None
    event: str = "manual"
    sandbox: str = "none"
    timeout: float | None = None


def show_steps(asked: Asked, as_json: bool) -> None:
    """Every step in the order in which they run, and whether it would."""
    order, file = _order(asked), _file(asked)
    reasons = {step.name: _left_out(order, file, step) for step in file.steps}
    if as_json:
        say_json([_listed(step, reasons[step.name]) for step in file.steps])
        return
    rows = [
        (step.name, ", ".join(step.after), reasons[step.name] or "runs", ", ".join(step.outputs)) for step in file.steps
    ]
    tables.show(tables.listing(("step", "after", "", "outputs"), rows, whole=("step",), spare=("outputs",)))


def _listed(step: BuildStep, left_out: str | None) -> dict[str, object]:
    return {
        "name": step.name,
        "after": list(step.after),
        "run": list(step.run),
        "if": step.condition and step.condition.text,
        "outputs": dict(step.outputs),
        "hidden": step.hidden,
        "runs": left_out is None,
        "reason": left_out,
    }


def _left_out(order: BuildOrder, file: BuildFile, step: BuildStep) -> str | None:
    known = facts(order, {**order.env, **file.env, **step.env})
    if step.skip:
        return "left out: `skip` is set"
    if step.condition is not None and not condition.holds(step.condition.condition, known):
        return f"left out: {step.condition.text}"
    return None


def build(asked: Asked, as_json: bool, outputs: Path | None) -> int:
    """Perform it with its log on standard output (with JSON: on standard error); the exit code."""
    order, _ = _order(asked), _file(asked)
    if outputs is not None:
        _make(outputs)
    echo = sys.stderr if as_json else sys.stdout
    colours = echo.isatty() and not os.environ.get("NO_COLOR")
    place = Place(source=asked.path.resolve(), echo=echo.fileno(), colours=colours, step=asked.step)
    with tempfile.TemporaryDirectory(prefix="holdfast-build-") as folder:
        path = Path(folder) / "build"
        try:
            result = asyncio.run(builder.perform(order, path, lambda change: None, place))
        except OSError:
            print(file=echo, flush=True)  # where the log could not be written, that is what is told
            raise
        if outputs is not None:
            for output in result.outputs:
                shutil.copyfile(path / "generated" / output.name, outputs / output.name)
    if as_json:
        say_json({"project": order.project, "branch": order.branch, **msgspec.to_builtins(result)})
    else:
        _summary(result, outputs)
    return 0 if result.outcome == "success" else 1


def _make(outputs: Path) -> None:
    """Before the build: nobody wants to run it twice for a misspelt name."""
    try:
        outputs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"--outputs {outputs}: {error.strerror}. Name a folder, or one that can be made.") from error


def _summary(result: BuildResult, outputs: Path | None) -> None:
    rows: list[tuple[str | Text, ...]] = [
        (detail.name, run_page.coloured(detail.state), _took(detail), detail.reason or "") for detail in result.details
    ]
    say("")
    tables.show(tables.listing(("step", "state", "time", ""), rows, whole=("step", "state")))
    for output in result.outputs:
        where = f"kept in {outputs}" if outputs is not None else "checked; keep it with --outputs FOLDER"
        say(f"output {output.name}, {output.size:,} bytes: {where}")


def _took(detail: StepResult) -> str:
    if detail.start_time is None or detail.end_time is None:
        return ""
    return tables.span((detail.end_time - detail.start_time).total_seconds())


def _file(asked: Asked) -> BuildFile:
    """The build file, read before anything runs, so that what is wrong with it is usage and no failure."""
    name = asked.file or BUILD_FILE
    path = asked.path / name
    try:
        file = buildfile.read(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"There is no file {shown_path(path)}. Name the folder of a working copy that has a {name}, or another file with --file."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{shown_path(path)} cannot be read: {reason(error)}.") from error
    return file if asked.step is None else buildfile.only(file, asked.step)


def _order(asked: Asked) -> BuildOrder:
    """The order that a builder would get for this working copy."""
    if asked.sandbox not in list(Sandbox):
        raise Invalid(f"--sandbox {quoted(asked.sandbox)}: give none, auto or bubblewrap.")
    if asked.timeout is not None and not asked.timeout > 0:
        raise Invalid(f"--timeout {asked.timeout:g}: give seconds above 0.")
    path = asked.path.resolve()
    branch = asked.branch or (None if asked.tag else _git(path, "symbolic-ref", "--quiet", "--short", "HEAD"))
    return check(
        BuildOrder(
            project=re.sub(r"[^A-Za-z0-9_-]+", "-", path.name) or "project",
            commit=_git(path, "rev-parse", "--verify", "--quiet", "HEAD") or NO_COMMIT,
            repository=f"file://{quote(os.fspath(path))}",
            branch=branch,
            tag=asked.tag,
            event=asked.event,
            build_file=asked.file or BUILD_FILE,
            env=dict(map(_variable, asked.env)),
            sandbox=Sandbox(asked.sandbox),
            timeout=asked.timeout,
            silence_timeout=None,
        )
    )


def _variable(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals:
        raise Invalid(f"--env {quoted(given)}: give NAME=VALUE.")
    return name, value


def _git(path: Path, *arguments: str) -> str | None:
    """What git says about the working copy; None where there is no git, or nothing to say."""
    try:
        said = subprocess.run(
            ["git", "-C", os.fspath(path), *arguments], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return None
    return said.stdout.strip() or None if said.returncode == 0 else None
