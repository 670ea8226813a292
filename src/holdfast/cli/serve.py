"""`holdfast serve`: the HTTP API and the dashboard."""

from typing import Annotated

import typer

from holdfast.cli.command import Call, command


def add_to(root: typer.Typer) -> None:
    command(root, "serve")(serve)


def serve(
    call: Call,
    module: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="The app to serve; without one, the instance of --url.")
    ] = "",
    host: Annotated[str | None, typer.Option(help="The address to listen at.  [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 is any that is free.  [8765]")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name by which browsers call it; repeat it, or use commas.")
    ] = None,
    proxies: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="ADDRESS",
            help="Requests from this address, or network as 10.0.0.0/8, come from a proxy: it may open any number of "
            "connections. Repeat it, or use commas.",
        ),
    ] = None,
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The address that people use, if a proxy stands before it.")
    ] = None,
) -> None:
    """Serve the API and the dashboard until Ctrl-C. On a terminal it prints a link to log in with, which works once."""
    from holdfast.cli import serving

    settings = call.settings(
        serve_host=host,
        serve_port=port,
        serve_allow_host=allow_host or None,
        serve_from=proxies or None,
        web_public_url=public_url,
    )
    serving.serve(call, settings, module)
