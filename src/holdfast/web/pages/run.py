"""One run of a workflow: its steps as a graph and in time, the tasks of one of them, why it waits, and what can be done."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from litestar import Router
from litestar.params import FromPath
from msgspec import Struct

from holdfast.jobs.explain import explain
from holdfast.jobs.holds import Level
from holdfast.jobs.job import Job
from holdfast.jobs.wording import joined
from holdfast.stores.contract import RunRow, RunStep, Store
from holdfast.web import drawing
from holdfast.web.pages.drawn import address, tone
from holdfast.web.pages.filters import whole
from holdfast.web.pages.page import Form, Html, TheFrame, action, page
from holdfast.web.site import TheSite
from holdfast.workflows.graph import in_order
from holdfast.workflows.partition import count
from holdfast.workflows.states import STEP_STATES, WORKFLOW_STATES, StepState, WorkflowState

TASKS = 100  # of a step that are shown at a time
LONGEST_NAME = 19  # characters that fit into a box


class Shown(Struct, frozen=True):
    """A step as it is drawn."""

    state: StepState
    share: float  # done, from 0 to 1
    tasks: str  # how many of how many are done
    told: str  # the same in words
    short_name: str
    link_tone: str  # of the lines that go out of it
    start_time: datetime | None
    end_time: datetime | None


@page("/workflows/{name:str}/{trigger:str}")
def run(frame: TheFrame, site: TheSite, name: FromPath[str], trigger: FromPath[str]) -> Html:
    chosen, past = frame.asked("step"), whole("after", frame.asked("after", "0"))
    with site.reader() as store:
        row, now = store.run_of(name, trigger), store.now()
        steps = {each.counts.name: each for each in row.steps}
        chosen = chosen if chosen in steps else ""
        tasks = store.tasks(row.id, chosen, past, TASKS) if chosen else ()
        waiting_task = _explained(store, tasks)
    declared = {step.name: step for step in row.definition.steps}
    planned = tuple(drawing.Planned(step.name, step.after, step.phase) for step in row.definition.steps)
    path = address("workflows", row.workflow, row.trigger)
    return frame.show(
        "run.html",
        now,
        run=row,
        here_path=frame.root + path,
        steps={step: shown(each) for step, each in steps.items()},
        order=in_order({each.name: each.after for each in planned}, {each.name: each.phase for each in planned}),
        picture=drawing.graph(planned) if len(planned) <= drawing.MOST_DRAWN else None,
        timeline=drawing.timeline(
            {step: (each.start_time, each.end_time) for step, each in steps.items()},
            row.create_time,
            row.end_time or now,
        ),
        declared=declared,
        chosen=chosen,
        tasks=tasks,
        tasks_after=tasks[-1].id if len(tasks) == TASKS else None,
        step_waits=(waits_for(row, steps).get(chosen) or waiting_task) if chosen else "",
        waits=list(stalled(row)),
        verbs=list(verbs(row)),
        can_hold=can_hold(row),
    )


def shown(step: RunStep) -> Shown:
    counts = step.counts
    total = counts.created if counts.all_created else count(counts.partition)
    done = counts.created - counts.undone
    pair = STEP_STATES[counts.state]
    words = [f"{done:,} of {'an unknown number of' if total is None else f'{total:,}'} tasks done"]
    words += [f"{counts.failed:,} failed"] * bool(counts.failed) + [f"{counts.errors:,} erred"] * bool(counts.errors)
    share = 1.0 if pair.done and not total else done / total if total else 0.0
    name = counts.name
    return Shown(
        state=counts.state,
        share=min(1.0, share),
        tasks="" if not counts.created and pair.done else f"{done:,}/{'?' if total is None else f'{total:,}'}",
        told=", ".join(words),
        short_name=name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…",
        link_tone=tone(counts.state) if pair.done else "",
        start_time=step.start_time,
        end_time=step.end_time,
    )


def _explained(store: Store, tasks: Sequence[Job]) -> str:
    """Why the first task that is not done is where it is."""
    found = [job for job in tasks if not job.final]
    return explain(store.facts(found[0].id)).text if found else ""


def waits_for(row: RunRow, steps: Mapping[str, RunStep]) -> dict[str, str]:
    """What each dormant step waits for."""
    undone = {name for name, step in steps.items() if not STEP_STATES[step.counts.state].done}
    said = {}
    for step in row.definition.steps:
        if steps[step.name].counts.state is not StepState.DORMANT:
            continue
        before = [name for name in step.after if name in undone]
        earlier = [other.name for other in row.definition.steps if other.phase < step.phase and other.name in undone]
        if before:
            said[step.name] = f"It waits for {_steps(before)}."
        elif earlier:
            said[step.name] = f"It is of phase {step.phase} and waits for {_steps(earlier)} of an earlier phase."
    return said


def _steps(names: list[str]) -> str:
    shown_names = [*names[:5], f"{len(names) - 5} others"] if len(names) > 6 else names
    return f"step{'s' * (len(names) != 1)} {joined(shown_names)}"


def stalled(row: RunRow) -> Iterator[str]:
    """What a person should know about the run as a whole."""
    if row.state is WorkflowState.STUCK:
        yield "Nothing runs and nothing can start, but not everything is done. Abort it, or retry it when it has ended."


def can_hold(row: RunRow) -> bool:
    """It goes on, and nobody holds this run yet."""
    own = [hold for hold in row.holds if hold.trigger is not None and hold.level is Level.PICK]
    return not WORKFLOW_STATES[row.state].done and not own


def verbs(row: RunRow) -> Iterator[tuple[str, str, str]]:
    """What can be done to it now: the verb, its words and its look."""
    done = WORKFLOW_STATES[row.state].done
    if row.state is WorkflowState.ERROR and not row.archived:
        yield "retry", "Retry what erred", "main"
    if not done:
        yield "abort", "Abort…", "danger"
    if done and not row.archived:
        yield "archive", "Archive", ""
    if done:
        yield "delete", "Delete…", "danger"


@action("/workflows/{name:str}/{trigger:str}/retry")
def retry(frame: TheFrame, site: TheSite, name: FromPath[str], trigger: FromPath[str]) -> Html:
    site.app.workflow_run(name, trigger).retry(actor=frame.actor)
    return frame.go(address("workflows", name, trigger), "What erred runs again.")


@action("/workflows/{name:str}/{trigger:str}/abort")
def abort(frame: TheFrame, site: TheSite, name: FromPath[str], trigger: FromPath[str], data: Form) -> Html:
    path = address("workflows", name, trigger)
    found = site.app.workflow_run(name, trigger)
    if data.get("sure") != "yes":
        sentence = (
            f"Tasks of {name} {trigger} that run are cancelled, and no other one starts. Retry can go on with it later."
        )
        return frame.confirm(site.app.store.now(), f"Abort run {trigger}?", sentence, "Abort it", path, data)
    found.abort(actor=frame.actor)
    return frame.go(path, f"Run {trigger} of {name} is aborted.")


@action("/workflows/{name:str}/{trigger:str}/archive")
def archive(frame: TheFrame, site: TheSite, name: FromPath[str], trigger: FromPath[str]) -> Html:
    site.app.workflow_run(name, trigger).archive(actor=frame.actor)
    return frame.go(address("workflows", name, trigger), f"Run {trigger} of {name} is in the archive, with its jobs.")


@action("/workflows/{name:str}/{trigger:str}/delete")
def delete(frame: TheFrame, site: TheSite, name: FromPath[str], trigger: FromPath[str], data: Form) -> Html:
    found = site.app.workflow_run(name, trigger)
    if data.get("sure") != "yes":
        sentence = (
            f"Run {trigger} of {name} is forgotten. Its trigger stays used: nothing can be submitted under it again."
        )
        path = address("workflows", name, trigger)
        return frame.confirm(site.app.store.now(), f"Delete run {trigger}?", sentence, "Delete it", path, data)
    found.delete(actor=frame.actor)
    return frame.go("/workflows", f"Run {trigger} of {name} is deleted.")


router = Router("/", route_handlers=[run, retry, abort, archive, delete])
