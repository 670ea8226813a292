"""`holdfast simulate`: how long jobs would wait, with these queues, these workers and these jobs."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.command import Call, command


def add_to(root: typer.Typer) -> None:
    command(root, "simulate")(simulate)


def simulate(
    call: Call,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A description of the fleet, as TOML.")] = None,
    set_: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Play it again with this changed, and show both: queues.mail.throttle_limit=20. Repeatable.",
        ),
    ] = [],  # noqa: B006
    from_archive: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="Play the jobs that an instance had on this day (UTC), as 2026-12-24."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="From which chance draws.  [1]")] = None,
    days: Annotated[float | None, typer.Option(help="How long it goes on.  [1]")] = None,
    hours: Annotated[float | None, typer.Option(help="The same in hours.")] = None,
) -> None:
    """Play a fleet on a virtual clock, through the code that schedules jobs: waits, use of workers and limits, backlogs."""
    from holdfast.cli import simulating

    simulating.run(call, file, tuple(set_), from_archive, {"seed": seed, "days": days, "hours": hours})
