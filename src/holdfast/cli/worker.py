"""`holdfast worker`: run the jobs of a module's app until a signal says stop.

One line on standard output at the start and one at the end; the log goes to standard error.
"""

import logging
import sys
from typing import Annotated, Any

import typer

from holdfast.cli.command import Call, command
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid

FORM = "%(asctime)s %(levelname)-7s %(message)s"
logger = logging.getLogger("holdfast.worker")


def add_to(root: typer.Typer) -> None:
    command(root, "worker")(worker)


def worker(
    call: Call,
    module: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app with the handlers.", show_default=False)] = "",
    queues: Annotated[list[str] | None, typer.Option(help="Only these queues; repeat it, or use commas.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Most jobs at once in a process.")] = None,
    processes: Annotated[int | None, typer.Option(help="How many worker processes.")] = None,
    labels: Annotated[list[str] | None, typer.Option(help="What this worker has, for jobs that require it.")] = None,
    grace: Annotated[float | None, typer.Option(help="Seconds that running jobs have when it stops.")] = None,
    name: Annotated[str, typer.Option(help="How it is shown; else host and process.")] = "",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C; a second one hurries it."""
    from holdfast.cli.module import import_app

    if not module:
        raise Invalid("A worker runs the handlers of your code: name it, for example `holdfast worker shop:app`.")
    flags = {"worker_queues": queues or None, "worker_labels": labels or None, "worker_concurrency": concurrency}
    settings = call.settings(**flags, worker_processes=processes, worker_grace=grace)
    logging.basicConfig(stream=sys.stderr, level=logging.DEBUG if verbose else logging.INFO, format=FORM)
    app = import_app(call, settings, module)
    ...
