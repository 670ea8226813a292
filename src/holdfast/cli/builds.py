"""`holdfast builds`: builds of commits."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.command import Call, noun


def add_to(root: typer.Typer) -> None:
    noun(root, "builds", "Builds: run the build file of a working copy.", {"run": run})


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
