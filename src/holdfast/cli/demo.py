"""`holdfast demo`: a shop to look at, with its worker and its dashboard in one process."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.command import Call, command


def add_to(root: typer.Typer) -> None:
    command(root, "demo")(demo)


def demo(
    call: Call,
    folder: Annotated[
        Path | None, typer.Option(help="Where to keep its SQLite file; a new temporary folder if not given.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 is any that is free.  [8765, else any]")] = None,
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The address that people use, if a proxy stands before it.")
    ] = None,
    lasts: Annotated[float | None, typer.Option("--for", help="End by itself after so many seconds.")] = None,
) -> None:
    """Serve and work on example jobs, a workflow and more until Ctrl-C. On a terminal it prints a link to log in with."""
    from holdfast.cli import demonstration

    demonstration.run(call, call.settings(web_public_url=public_url), folder, port, lasts)
