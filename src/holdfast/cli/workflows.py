"""`holdfast workflows`: runs of workflows: look at them, submit, retry, abort and delete them, watch one live."""

from typing import Annotated, Any

import typer

from holdfast import views
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.jobs import read_json
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid
from holdfast.workflows.states import WorkflowState

Name = Annotated[str, typer.Argument(metavar="WORKFLOW", show_default=False)]
Trigger = Annotated[str, typer.Argument(metavar="TRIGGER", show_default=False)]


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {
        "list": list_,
        "show": show,
        "submit": submit,
        "retry": retry,
        "abort": abort,
        "delete": delete,
        "watch": watch,
    }
    noun(root, "workflows", "Workflows: submit runs, look at them, retry, abort and delete them.", verbs)


def list_(
    call: Call,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    state: Annotated[WorkflowState | None, typer.Option(help="Only runs in this state.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.")] = 50,
) -> None:
    """Runs, the newest first."""
    from holdfast.cli import instance, run_page, tables

    with instance.existing(call.settings()) as app:
        found = app.workflow_runs(workflow, state=state, limit=limit)
    if call.json:
        say_json([views.run(run.row) for run in found])
        return
    tables.show(run_page.listed(found), empty="There are no such runs.")


def show(call: Call, workflow: Name, trigger: Trigger) -> None:
    """One run with its steps."""
    from holdfast.cli import instance, run_page, tables

    with instance.existing(call.settings()) as app:
        run, now = app.workflow_run(workflow, trigger), app.store.now()
    if call.json:
        say_json(views.run(run.row))
    else:
        tables.show(*run_page.blocks(run, now))


def submit(
    call: Call,
    workflow: Name,
    trigger: Trigger,
    params: Annotated[str | None, typer.Option(help="Params of the run as a JSON object.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A step to ignore; may be given again.")] = None,
    priority: Annotated[float | None, typer.Option(help="Lower is more urgent.")] = None,
) -> None:
    """Start a run. A trigger that was used before gives the run it made then."""
    from holdfast.cli import instance

    given: Any = {} if params is None else read_json(params, "The params", '\'{"day": "monday"}\'')
    if not isinstance(given, dict):
        raise Invalid(f"The params are {params!r}; they must be a JSON object.")
    with instance.existing(call.settings()) as app:
        run = app.submit(workflow, trigger, given, ignore=ignore or (), priority=priority, actor=instance.actor())
    _tell(call, run, f"is `{run.state}`")


def retry(call: Call, workflow: Name, trigger: Trigger) -> None:
    """Run again what erred in a run that ended in ERROR."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        run = app.workflow_run(workflow, trigger).retry(actor=instance.actor())
    _tell(call, run, "goes on")


def abort(call: Call, workflow: Name, trigger: Trigger) -> None:
    """End everything of a run that is not done."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        run = app.workflow_run(workflow, trigger).abort(actor=instance.actor())
    _tell(call, run, "is aborted")


def delete(call: Call, workflow: Name, trigger: Trigger) -> None:
    """Forget a run that is done. Its trigger stays used."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        run = app.workflow_run(workflow, trigger)
        run.delete(actor=instance.actor())
    _tell(call, run, "is deleted")


def watch(call: Call, workflow: Name, trigger: Trigger) -> None:
    """Follow a run until it is done: a line for each step with its state, tasks, progress and time."""
    from holdfast.cli import instance, run_page

    with instance.existing(call.settings()) as app:
        run_page.follow(app, app.workflow_run(workflow, trigger), call.json)


def _tell(call: Call, run: Any, said: str) -> None:
    if call.json:
        say_json(views.run(run.row))
    else:
        say(f"Run `{run.trigger}` of workflow `{run.name}` {said}.")
