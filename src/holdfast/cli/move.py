"""`holdfast move`: a living instance goes from one database to another."""

from typing import Annotated

import typer

from holdfast.cli.command import Call, command
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid


def add_to(root: typer.Typer) -> None:
    command(root, "move")(move)


def move(
    call: Call,
    target: Annotated[str, typer.Option("--to", metavar="URL", help="The database it goes to.")],
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="The database it is in.  [--url, HOLDFAST_URL]")
    ] = None,
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long running jobs may go on before they are cut off.")
    ] = 10.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be moved.")] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Undo a move that is not done: the source works again.")
    ] = False,
) -> None:
    """Move a living instance to another database. If it is interrupted, call it again: it goes on where it was."""
    from holdfast.cli import moving

    if source is not None and call.url is not None:
        raise Invalid("--from and --url both name the database that the instance is in. Give one of them.")
    if not 0 <= grace < float("inf"):
        raise Invalid(f"--grace is {grace:g}; give a number of seconds, 0 or more.")
    if dry_run and abandon:
        raise Invalid("--dry-run beside --abandon: give one of them.")
    with moving.opened(call, source, target, grace) as found:
        if dry_run:
            told = moving.plan(found)
        elif abandon:
            told = moving.abandon(found)
        else:
            told = moving.carry_out(found)
    if call.json:
        say_json(told.shape)
    else:
        say(told.text)
