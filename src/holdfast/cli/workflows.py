"""`holdfast workflows`: runs of workflows: look at them, submit, retry, abort, hold and delete them, watch one live."""

from typing import Annotated, Any

import typer

from holdfast import views
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.jobs import read_json
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid
from holdfast.jobs.holds import WORDS, Level, scope_words
from holdfast.workflows.states import WorkflowState

Name = Annotated[str, typer.Argument(metavar="WORKFLOW", show_default=False)]
Trigger = Annotated[str, typer.Argument(metavar="TRIGGER", show_default=False)]
HeldLevel = Annotated[
    Level,
    typer.Argument(metavar="LEVEL", show_default=False, help="pick: tasks start; create: tasks are made; submit."),
]
HeldName = Annotated[
    str | None, typer.Argument(metavar="[WORKFLOW]", show_default=False, help="Without it: all of them.")
]
HeldTrigger = Annotated[str | None, typer.Argument(metavar="[TRIGGER]", show_default=False, help="Only one run.")]


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {
        "list": list_,
        "show": show,
        "submit": submit,
        "retry": retry,
        "abort": abort,
        "hold": hold,
        "release": release,
        "holds": holds,
        "delete": delete,
        "watch": watch,
    }
    noun(root, "workflows", "Workflows: submit runs, look at them, retry, abort, hold and delete them.", verbs)


def list_(
    call: Call,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    state: Annotated[WorkflowState | None, typer.Option(help="Only runs in this state.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.")] = 50,
) -> None:
    """Runs, the newest first."""
    from holdfast.cli import instance, run_page, tables

    with instance.existing(call.settings()) as app:
        found, held = app.workflow_runs(workflow, state=state, limit=limit), app.holds()
    if call.json:
        say_json([views.run(run.row) for run in found])
        return
    tables.show(*run_page.holds(held), run_page.listed(found), empty="There are no such runs.")


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


def hold(call: Call, level: HeldLevel, workflow: HeldName = None, trigger: HeldTrigger = None) -> None:
    """Keep tasks from starting, tasks from being made, or runs from being submitted. What runs goes on."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        held = app.hold(level, workflow=workflow, trigger=trigger, actor=instance.actor())
    if call.json:
        say_json(views.hold(held))
    else:
        say(f"{WORDS[held.level].capitalize()} of {held.scope} is held. `{held.release}` lets it go on.")


def release(call: Call, level: HeldLevel, workflow: HeldName = None, trigger: HeldTrigger = None) -> None:
    """Let go on what was held. What other holds cover stays."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        app.release(level, workflow=workflow, trigger=trigger, actor=instance.actor())
        held = app.holds()
    if call.json:
        say_json([views.hold(each) for each in held])
    else:
        say(f"{WORDS[level].capitalize()} of {scope_words(workflow, trigger)} goes on.")


def holds(call: Call) -> None:
    """What is held, by whom and since when."""
    from holdfast.cli import instance, run_page, tables

    with instance.existing(call.settings()) as app:
        held = app.holds()
    if call.json:
        say_json([views.hold(each) for each in held])
    elif held:
        tables.show(*run_page.holds(held))
    else:
        say("Nothing is held.")


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
