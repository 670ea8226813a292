"""A run of a workflow for people: its steps as lines with bars, once or live."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast import views
from holdfast.app import App
from holdfast.cli import tables
from holdfast.cli.output import say_json, visible
from holdfast.clock import sleep
from holdfast.compose import Run, StepView, TaskOfRun
from holdfast.jobs.holds import WORDS, Hold
from holdfast.on_demand import explain_step
from holdfast.workflows.graph import in_order
from holdfast.workflows.partition import count

BAR = 20  # characters
EVERY = 0.25  # seconds between two looks
COLOURS = {
    "DORMANT": "dim",
    "START": "yellow",
    "READY": "yellow",
    "UNDONE": "yellow",
    "SUCCESS": "green",
    "IGNORED": "green",
    "ACCEPTABLE_FAILED": "green",
    "FAILED": "red",
    "SKIP_BY_FAILED": "red",
    "ERROR": "magenta",
    "SKIP_BY_ERROR": "magenta",
    "STUCK": "magenta",
}


def coloured(state: str) -> Text:
    return Text(state, style=COLOURS[state])


def listed(runs: Sequence[Run]) -> Table:
    """A line for each run."""
    rows: list[list[str | Text]] = [
        [run.name, run.trigger, coloured(run.state), f"{run.progress:.0%}", tables.moment(run.create_time)]
        for run in runs
    ]
    return tables.listing(("workflow", "trigger", "state", "done", "submitted"), rows, right=("done",))


def holds(held: Sequence[Hold]) -> Sequence[RenderableType]:
    """A line for each hold, in the colour of a warning."""
    return [
        Text(
            visible(f"held by {hold.actor} since {tables.moment(hold.hold_time)}: {WORDS[hold.level]} of {hold.scope}"),
            style="yellow",
        )
        for hold in held
    ]


def blocks(run: Run, now: datetime) -> Sequence[RenderableType]:
    """Who it is, and its steps."""
    more = [word for word, holds_ in (("aborted", run.aborted), ("archived", run.archived)) if holds_]
    state = Text.assemble(coloured(run.state), f" ({', '.join(more)})" if more else "")
    about: list[tuple[str, str | Text]] = [
        ("workflow", run.name),
        ("trigger", run.trigger),
        ("state", state),
        ("progress", f"{bar(run.progress)} {run.progress:.0%}"),
        ("submitted", tables.moment(run.create_time)),
        ("time", tables.span(((run.end_time or now) - run.create_time).total_seconds())),
    ]
    return tables.facts(about), *holds(run.row.holds), Text(), steps_table(run, now)


def steps_table(run: Run, now: datetime) -> Table:
    """A line for each step, each behind what it comes after."""
    declared = {step.name: step for step in run.row.definition.steps}
    after = {name: step.after for name, step in declared.items()}
    rows: list[list[str | Text]] = []
    for name in in_order(after, {name: step.phase for name, step in declared.items()}):
        step, total = run.steps[name], total_of(run, name)
        done = step.created - step.undone
        share = bar(done / total if total else float(step.done))
        behind = ", ".join(after[name]) or (f"phase {declared[name].phase}" if declared[name].phase else "")
        why = "" if step.done else explain_step(run.row, name, now).text.removeprefix(f"Step `{name}` ")
        rows.append([name, coloured(step.state), tasks_of(step, total), share, time_of(step, now), behind, why])
    headers = ("step", "state", "tasks", "", "time", "after", "why")
    return tables.listing(headers, rows, right=("tasks",), spare=("after", "why"))


def tasks_table(tasks: Sequence[TaskOfRun]) -> Table:
    """A line for each task."""
    rows: list[list[str | Text]] = [
        [
            task.name,
            coloured(task.state),
            str(task.job.id),
            task.job.status,
            str(task.job.attempt),
            str(task.job.error or ""),
        ]
        for task in tasks
    ]
    headers = ("task", "state", "job", "status", "attempts", "error")
    return tables.listing(headers, rows, right=("job", "attempts"), whole=("task",))


def total_of(run: Run, name: str) -> int | None:
    """How many tasks a step will have, where that is known."""
    counts = next(each.counts for each in run.row.steps if each.counts.name == name)
    return counts.created if counts.all_created else count(counts.partition)


def tasks_of(step: StepView, total: int | None) -> str:
    """How many of how many tasks are done."""
    failed = f", {step.failed} failed" if step.failed else ""
    erred = f", {step.errors} erred" if step.errors else ""
    return f"{step.created - step.undone}/{'?' if total is None else total}{failed}{erred}"


def time_of(step: StepView, now: datetime) -> str:
    if step.start_time is None:
        return ""
    return tables.span(max(0.0, ((step.end_time or now) - step.start_time).total_seconds()))


def bar(fraction: float) -> str:
    full = round(BAR * min(1.0, max(0.0, fraction)))
    return "━" * full + "╌" * (BAR - full)


def follow(app: App, run: Run, as_json: bool) -> None:
    """Until it is done. For programs an object for each change; in a pipe the page at the end."""
    try:
        if as_json:
            _follow_json(run)
        elif tables.console().is_terminal:
            _follow_live(app, run)
        else:
            tables.show(*blocks(run.wait(), app.store.now()))
    except KeyboardInterrupt:
        return


def _follow_json(run: Run) -> None:
    shown = None
    while True:
        now = views.run(run.row)
        if now != shown:
            say_json(now, lines=True)
            shown = now
        if run.done:
            return
        sleep(EVERY)
        run = run.refresh()


def _follow_live(app: App, run: Run) -> None:
    with Live(_page(app, run), console=tables.console(), auto_refresh=False) as live:
        while not run.done:
            sleep(EVERY)
            run = run.refresh()
            live.update(_page(app, run), refresh=True)


def _page(app: App, run: Run) -> Table:
    page = Table.grid()
    for block in blocks(run, app.store.now()):
        page.add_row(block)
    return page
