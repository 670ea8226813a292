"""`holdfast workflows`: runs of workflows: look at them, submit, retry, abort, hold, archive and delete them, watch one live."""

from typing import Annotated, Any

import typer

from holdfast import views
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.jobs import read_json
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid, NotFound, backticked, quoted
from holdfast.jobs.holds import WORDS, Level, scope_words
from holdfast.workflows.definition import nearest
from holdfast.workflows.states import WorkflowState

Name = Annotated[str, typer.Argument(metavar="WORKFLOW", show_default=False)]
Trigger = Annotated[str, typer.Argument(metavar="TRIGGER", show_default=False)]
HeldLevel = Annotated[
    Level,
    typer.Argument(metavar="LEVEL", show_default=False, help="pick: tasks start; create: tasks are made; submit."),
]
HeldName = Annotated[
    str | None, typer.Argument(metavar="WORKFLOW", show_default=False, help="Without it: all of them.")
]
HeldTrigger = Annotated[str | None, typer.Argument(metavar="TRIGGER", show_default=False, help="Only one run.")]


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {
        "list": list_,
        "show": show,
        "tasks": tasks,
        "explain": explain,
        "submit": submit,
        "retry": retry,
        "abort": abort,
        "hold": hold,
        "release": release,
        "holds": holds,
        "archive": archive,
        "delete": delete,
        "watch": watch,
    }
    noun(root, "workflows", "Workflows: submit runs, look at them, retry, abort, hold, archive and delete them.", verbs)


def list_(
    call: Call,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    state: Annotated[WorkflowState | None, typer.Option(help="Only runs in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    archive: Annotated[bool, typer.Option("--archive", help="Also those in the archive.")] = False,
) -> None:
    """Runs, the newest first."""
    from holdfast.cli import instance, run_page, tables

    with instance.existing(call.settings()) as app:
        found, held = app.workflow_runs(workflow, state=state, limit=limit, archive=archive), app.holds()
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


def tasks(
    call: Call,
    workflow: Name,
    trigger: Trigger,
    step: Annotated[str, typer.Argument(metavar="STEP", show_default=False)],
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
) -> None:
    """The tasks of a step in the order they were made, each with the last job that ran it."""
    from holdfast.cli import instance, run_page, tables

    with instance.existing(call.settings()) as app:
        found = _step(app.workflow_run(workflow, trigger), step).tasks(limit)
    if call.json:
        say_json([{"name": task.name, "state": task.state, "job": views.job(task.job)} for task in found])
    else:
        tables.show(run_page.tasks_table(found), empty="There are no such tasks.")


def explain(
    call: Call,
    workflow: Name,
    trigger: Trigger,
    step: Annotated[str | None, typer.Argument(metavar="STEP", show_default=False, help="Else: all not done.")] = None,
) -> None:
    """Why a step is not done, or with no STEP every step that is not."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        run = app.workflow_run(workflow, trigger)
        steps = [each for each in run.steps.values() if not each.done] if step is None else [_step(run, step)]
        found = [each.explain() for each in steps]
    if call.json:
        shapes = [views.step_explanation(each) for each in found]
        say_json(shapes if step is None else shapes[0])
        return
    for each in found:
        say(f"{each.reason}: {each.text}")
        for other in each.details["also"]:
            say(f"also {other['reason']}: {other['text']}")
    if not found:
        say(f"Run `{trigger}` of workflow `{workflow}` is done: `{run.state}`.")


def _step(run: Any, step: str) -> Any:
    if step not in run.steps:
        raise NotFound(f"Workflow `{run.name}` has no step {backticked(step)}.{nearest(step, list(run.steps))}")
    return run.steps[step]


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
        raise Invalid(f"The params are {quoted(params)}; they must be a JSON object.")
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


def archive(call: Call, workflow: Name, trigger: Trigger) -> None:
    """Move a run that is done to the archive now, with its jobs. A SUCCESS goes there by itself after a while."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        run = app.workflow_run(workflow, trigger).archive(actor=instance.actor())
    _tell(call, run, "is in the archive")


def delete(call: Call, workflow: Name, trigger: Trigger) -> None:
    """Forget a run that is done, and its jobs, in the archive too. Its trigger stays used."""
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
