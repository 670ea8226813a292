"""`holdfast login-link`: an address that logs a browser in, once."""

from typing import Annotated

import typer

from holdfast.cli.command import Call, command
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid, NotFound, quoted
from holdfast.jobs.names import check_token_name
from holdfast.web.callers import SCOPES


def add_to(root: typer.Typer) -> None:
    command(root, "login-link")(login_link)


def login_link(
    call: Call,
    name: Annotated[str, typer.Option(help="How the audit names the person.  [your user name]")] = "",
    scope: Annotated[str, typer.Option(help=f"What the person may: {', '.join(SCOPES)}.")] = "admin",
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The address of the server.  [that of the server that runs]")
    ] = None,
) -> None:
    """Print a link that logs a browser in. It works once, within ten minutes, at every server of the instance."""
    from holdfast.cli import instance
    from holdfast.web import links

    if scope not in SCOPES:
        raise Invalid(f"--scope is {quoted(scope)}; it may be {', '.join(SCOPES)}.")
    named = check_token_name(name or instance.person())
    settings = call.settings(web_public_url=public_url)
    with instance.existing(settings) as app:
        address = settings.web_public_url or app.store.newest_server(app.lost_after)
        if address is None:
            raise NotFound(
                f"No server of instance `{app.name}` has given its address. Start one with `holdfast serve`, or name the address with "
                "--public-url."
            )
        link = links.link(address, links.new_link(app, name=named, scope=scope, actor=instance.actor()))
    if call.json:
        say_json({"login": link, "name": named, "scope": scope})
    else:
        say(link)
