"""`holdfast worker`: run the jobs of a module's app until a signal says stop."""

from typing import Annotated

import typer

from holdfast.cli.command import Call, command


def add_to(root: typer.Typer) -> None:
    command(root, "worker")(worker)


def worker(
    call: Call,
    module: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:APP",
            help="The app with the handlers; without one only what the settings build.",
            show_default=False,
        ),
    ] = "",
    queues: Annotated[list[str] | None, typer.Option(help="Only these queues; repeat it, or use commas.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Most jobs at once in a process.")] = None,
    processes: Annotated[int | None, typer.Option(help="How many worker processes.")] = None,
    labels: Annotated[
        list[str] | None, typer.Option(help="What it offers to jobs that require or prefer a label.")
    ] = None,
    duties: Annotated[
        list[str] | None, typer.Option(help="Which of run, sweep, schedule and serve it has.  [all]")
    ] = None,
    grace: Annotated[float | None, typer.Option(help="Seconds that running jobs get when it stops.")] = None,
    log_level: Annotated[
        str | None, typer.Option(help="Least level of what goes from `logging` to a job's log.  [INFO]")
    ] = None,
    name: Annotated[str, typer.Option(help="How it is shown, instead of host and process.")] = "",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C. A second one hurries it."""
    from holdfast.cli import working

    flags = {"worker_queues": queues or None, "worker_labels": labels or None, "worker_concurrency": concurrency}
    flags |= {"worker_duties": duties or None}
    settings = call.settings(**flags, worker_processes=processes, worker_grace=grace, worker_log_level=log_level)
    raise typer.Exit(working.work(call, settings, module, name, verbose))
