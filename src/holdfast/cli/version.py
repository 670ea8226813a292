"""`holdfast version` and `holdfast --version`."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from holdfast.cli.command import Call, command
from holdfast.cli.output import say, say_json


def add_to(root: typer.Typer) -> None:
    command(root, "version")(version)

    @root.callback()
    def everywhere(
        version: Annotated[
            bool, typer.Option("--version", is_eager=True, callback=_tell, help="Show the version.")
        ] = False,
    ) -> None: ...


def version(call: Call) -> None:
    """The version of Holdfast and of this Python."""
    if call.json:
        say_json({"version": installed(), "python": platform.python_version()})
        return
    say(f"holdfast {installed()} (Python {platform.python_version()})")


def _tell(wanted: bool) -> None:
    if wanted:
        say(f"holdfast {installed()}")
        raise typer.Exit


def installed() -> str:
    try:
        return version_of("holdfast")
    except PackageNotFoundError:
        return "unknown"
