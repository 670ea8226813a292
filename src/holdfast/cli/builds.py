"""`holdfast builds`: look at builds, read their logs, end them, build them again; or build a working copy on the spot."""

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast import views
from holdfast.builds.build import BuildState
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.output import say, say_json

BuildId = Annotated[int, typer.Argument(metavar="BUILD", help="The build's id.", show_default=False)]


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {"list": list_, "show": show, "run": run, "abort": abort, "retry": retry, "log": log}
    noun(
        root,
        "builds",
        "Builds: look at them, read their logs, end them, build them again; or build a working copy on the spot.",
        verbs,
    )


def list_(
    call: Call,
    project: Annotated[str | None, typer.Option(help="Only builds of this project.")] = None,
    branch: Annotated[str | None, typer.Option(help="Only builds of this branch.")] = None,
    state: Annotated[BuildState | None, typer.Option(help="Only builds in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
) -> None:
    """Builds, the newest first. Looking at the list is not use: it keeps no build in the cache."""
    from holdfast.cli import build_page, instance, tables
    from holdfast.cli.projects import looking_at

    with instance.existing(call.settings()) as app:
        projects = looking_at(call, app)
        wanted = {"project": project, "branch": branch, "state": state and state.value, "limit": limit}
        found = projects.builds(**wanted)
    if call.json:
        say_json([views.build(build) for build in found])
    else:
        tables.show(build_page.listed(found), empty="There are no such builds.")


def show(call: Call, build: BuildId) -> None:
    """One build with its steps and outputs."""
    from holdfast.cli import build_page, instance, tables
    from holdfast.cli.projects import looking_at

    with instance.existing(call.settings()) as app:
        projects = looking_at(call, app)
        found = projects.use(build)
        result, now = projects.result(found), app.store.now()
    outputs = () if result is None else result.outputs
    if call.json:
        say_json(views.build_page(found, outputs))
    else:
        tables.show(*build_page.blocks(found, outputs, now))


def run(
    call: Call,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The working copy.", show_default=False)],
    step: Annotated[str | None, typer.Option(help="Only this step, and what it comes after.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Only show the steps, and which would run.")] = False,
    file: Annotated[str | None, typer.Option(help="The build file in it.  [holdfast.build.toml]")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE as the project would give it; repeat it.")] = None,
    branch: Annotated[str | None, typer.Option(help="As if it were on this branch.  [git's]")] = None,
    tag: Annotated[str | None, typer.Option(help="As if this tag had been pushed.")] = None,
    event: Annotated[str, typer.Option(help="As if this had happened.")] = "manual",
    sandbox: Annotated[str, typer.Option(help="none, auto or bubblewrap.")] = "none",
    outputs: Annotated[Path | None, typer.Option(help="Keep the outputs in this folder.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for everything.")] = None,
) -> None:
    """Run the build file of a working copy on the spot, without a server. The exit code is 0 only for success."""
    from holdfast.cli import on_the_spot

    asked = on_the_spot.Asked(
        path=path,
        file=file,
        step=step,
        env=tuple(env or ()),
        branch=branch,
        tag=tag,
        event=event,
        sandbox=sandbox,
        timeout=timeout,
    )
    if list_:
        on_the_spot.show_steps(asked, call.json)
    else:
        raise typer.Exit(on_the_spot.build(asked, call.json, outputs))


def abort(call: Call, build: BuildId) -> None:
    """End a build that waits or runs."""
    from holdfast.cli import instance
    from holdfast.cli.projects import looking_at

    with instance.existing(call.settings()) as app:
        found = looking_at(call, app).abort(build, actor=instance.actor())
    _tell(call, found, "is over" if not found.active else "is told to end")


def retry(call: Call, build: BuildId) -> None:
    """Build a completed build again, from the beginning."""
    from holdfast.cli import instance
    from holdfast.cli.projects import looking_at

    with instance.existing(call.settings()) as app:
        found = looking_at(call, app).retry(build, actor=instance.actor())
    _tell(call, found, f"is built again by job {found.job_id}")


def log(
    call: Call,
    build: BuildId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the build is over.")] = False,
) -> None:
    """The log of a build; with colours only on a terminal, and not if NO_COLOR is set."""
    from holdfast.cli import build_page, instance
    from holdfast.cli.projects import looking_at

    with instance.existing(call.settings()) as app:
        build_page.pour(looking_at(call, app), build, follow, call.json)


def _tell(call: Call, build: Any, said: str) -> None:
    if call.json:
        say_json(views.build(build))
    else:
        say(f"{build.words} {said}.")
