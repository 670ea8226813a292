"""`holdfast top`: queues, workers and the slowest running jobs, seen live."""

from typing import Annotated

import typer

from holdfast.cli.command import Call, command


def add_to(root: typer.Typer) -> None:
    command(root, "top")(top)


def top(
    call: Call,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
) -> None:
    """What goes on, refreshed each second until Ctrl-C: queues, workers, and the jobs that run longest."""
    from holdfast.cli import glance, instance

    with instance.existing(call.settings()) as app:
        if call.json:
            glance.print_json(app)
        elif once or not glance.can_refresh():
            glance.print_once(app)
        else:
            glance.refresh(app)
