"""`holdfast bench`: how fast Holdfast is on this machine, with this database."""

from typing import Annotated

import typer

from holdfast.cli.command import Call, command


def add_to(root: typer.Typer) -> None:
    command(root, "bench")(bench)


def bench(
    call: Call,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            help="Enqueue so many 1,000 at a time, and at most 500 more one at a time; the worker runs them all.",
        ),
    ] = 10_000,
) -> None:
    """Measure this machine: jobs enqueued and run a second, and how soon an idle worker starts one.

    It makes an instance for it, `bench_` with eight letters, and removes it afterwards; one that is killed leaves it.
    Without a database it measures an SQLite file of its own among the temporary files. Where there was no instance
    before, two empty tables stay in the database, or the file: the lists of instances and of their tables.
    """
    from holdfast.cli import measuring

    measuring.run(call, jobs)
