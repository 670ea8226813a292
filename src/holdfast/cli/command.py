"""What every command has: the same options after its own, its settings, and an exit code for each error.

A command is a function whose first parameter is the `Call`; the others become its arguments and options.
"""

import inspect
import os
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from msgspec import Struct, structs

from holdfast.cli.output import Unwritable, complain, silence
from holdfast.config import TABLES_OF_BUILDS, Settings, load, locate
from holdfast.errors import HoldfastError, Invalid

Function = Callable[..., None]
WEB = ("anyio", "igraph", "jinja2", "litestar", "markupsafe", "prometheus_client", "uvicorn")  # what the extra brings


class Call(Struct, frozen=True):
    """One call of a command, with the options that every command has."""

    json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False
    url: Annotated[str | None, typer.Option("--url", help="The database (HOLDFAST_URL).")] = None
    instance: Annotated[str | None, typer.Option("--instance", help="The instance in it (HOLDFAST_INSTANCE).")] = None
    config: Annotated[Path | None, typer.Option("--config", help="The settings file (./holdfast.toml).")] = None
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False

    def settings(self, **flags: Any) -> Settings:
        """The settings in force; `flags` are those that only this command has."""
        file = locate(self.config, Path.cwd())
        found = load({"url": self.url, "instance": self.instance, **flags}, os.environ, file)
        if file is not None:
            _check_builds(file)
        return found


def _check_builds(file: Path) -> None:
    """Also where nothing is built a misspelt key is told."""
    content = tomllib.loads(file.read_text("utf-8"))
    if not content.keys().isdisjoint(TABLES_OF_BUILDS):
        from holdfast.builds.project import read_settings

        read_settings(content, str(file))


def command(group: typer.Typer, name: str) -> Callable[[Function], Function]:
    """Make a function a command of the group."""

    def decorate(function: Function) -> Function:
        _, *own = inspect.signature(function).parameters.values()
        parameters = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own] + _shared()

        def run(**given: Any) -> None:
            call = Call(**{shared: given.pop(shared) for shared in Call.__struct_fields__})
            _answer(call, function, given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        group.command(name, help=inspect.getdoc(function))(run)
        return function

    return decorate


def noun(root: typer.Typer, name: str, purpose: str, verbs: Mapping[str, Function]) -> None:
    """Add a noun with its verbs."""
    group = typer.Typer(help=purpose)
    for verb, function in verbs.items():
        command(group, verb)(function)
    root.add_typer(group, name=name)


def _shared() -> list[Parameter]:
    """The fields of `Call` as parameters of a function."""
    hints = get_type_hints(Call, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in structs.fields(Call)
    ]


def _answer(call: Call, function: Function, given: Mapping[str, Any]) -> None:
    """Run the command; an error becomes a paragraph and an exit code."""
    try:
        function(call, **given)
    except (typer.Exit, typer.TyperException, Unwritable):
        raise
    except HoldfastError as error:
        raise _refused(call, str(error), error.exit_code) from error
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in WEB:
            raise _refused(call, _unexpected(error), 1) from error
        text = (
            f"This command serves over HTTP and needs `{error.name}`, which is not installed. The extra `web` brings it: "
            "pip install '.[web]' in a clone of Holdfast."
        )
        raise _refused(call, text, Invalid.exit_code) from error
    except KeyboardInterrupt as error:
        raise _refused(call, "Interrupted.", 1) from error
    except BrokenPipeError as error:
        silence(sys.stdout)  # the reader went away, as `head` does
        raise typer.Exit(1) from error
    except Exception as error:
        raise _refused(call, _unexpected(error), 1) from error


def _unexpected(error: Exception) -> str:
    return f"{type(error).__qualname__}: {error}. Nobody expected this: run it again with --debug and report what it shows."


def _refused(call: Call, text: str, exit_code: int) -> typer.Exit:
    if call.debug:
        traceback.print_exc()
    complain(text)
    return typer.Exit(exit_code)
