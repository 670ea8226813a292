"""`/api/v1/workflows`: runs of workflows, their steps and tasks; submit, retry and abort them."""

from typing import Annotated, Any, Literal

from litestar import Response, Router
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import views
from holdfast.errors import Conflict, NotFound, backticked
from holdfast.web import paging, shapes
from holdfast.web.paging import Shape
from holdfast.web.routes import act, look
from holdfast.web.site import TheCaller, TheSite
from holdfast.workflows.states import WorkflowState

Name = Annotated[str, PathParameter(max_length=200, description="The workflow's name.")]
Trigger = Annotated[str, PathParameter(max_length=200, description="What made the run.")]
StepName = Annotated[str, PathParameter(max_length=200, description="The step's name.")]


class SubmitBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A run to be started."""

    trigger: Annotated[str, Meta(description="Unique for ever in its workflow.", examples=["2026-11-15"])]
    params: Annotated[dict[str, Any], Meta(examples=[{"day": "monday"}])] = {}
    ignore: Annotated[list[str], Meta(description="Steps to ignore.")] = []
    priority: Annotated[float | UnsetType, Meta(description="Lower is more urgent.")] = UNSET


class HoldBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What to hold, or to release: everything, a workflow, or one run of it."""

    level: Annotated[Literal["pick", "create", "submit"], Meta(examples=["pick"])]
    workflow: str | None = None
    trigger: str | None = None


@look("/workflows", answers=shapes.Page[shapes.RunShape])
def list_runs(
    site: TheSite,
    workflow: Annotated[str | None, QueryParameter(max_length=200)] = None,
    in_state: Annotated[WorkflowState | None, QueryParameter(name="state")] = None,  # `state` is a word of Litestar's
    archive: Annotated[bool, QueryParameter(description="Archived runs too.")] = False,
    limit: paging.Limit = paging.USUAL,
    cursor: paging.CursorText = None,
) -> Shape:
    """Runs of workflows, newest first."""
    belongs = ("runs", workflow, in_state, archive)
    before = paging.read(cursor, *belongs)
    with site.reader() as store:
        found = store.runs(workflow, in_state, before, limit + 1, archive)
    more = found[limit - 1].id if len(found) > limit else None
    return paging.page([views.run(row) for row in found[:limit]], paging.write(more, *belongs))


@act(
    "/workflows/{workflow:str}",
    needs="enqueue",
    status=201,
    answers=shapes.RunShape,
    errors=(Conflict, NotFound),
    also={200: (shapes.RunShape, "The trigger was used before: the run it made then.")},
)
def submit(site: TheSite, caller: TheCaller, workflow: Name, data: JSONBody[SubmitBody]) -> Response[Shape]:
    """Start a run. A trigger that was used before gives the run it made then."""
    given = {} if data.priority is UNSET else {"priority": data.priority}
    with site.reader() as store:
        last = next(iter(store.runs(None, None, None, 1)), None)
    run = site.app.submit(workflow, data.trigger, data.params, ignore=data.ignore, actor=caller.actor, **given)
    known = last is not None and run.id <= last.id
    return Response(views.run(run.row), status_code=200 if known else 201)


@look("/workflows/{workflow:str}/{trigger:str}", answers=shapes.RunShape, errors=(NotFound,))
def show_run(site: TheSite, workflow: Name, trigger: Trigger) -> Shape:
    """One run with its steps."""
    with site.reader() as store:
        return views.run(store.run_of(workflow, trigger))


@act(
    "/workflows/{workflow:str}/{trigger:str}/retry",
    needs="operate",
    answers=shapes.RunShape,
    errors=(Conflict, NotFound),
)
def retry(site: TheSite, caller: TheCaller, workflow: Name, trigger: Trigger) -> Shape:
    """Run again what erred in a run that ended in ERROR."""
    return views.run(site.app.workflow_run(workflow, trigger).retry(actor=caller.actor).row)


@act(
    "/workflows/{workflow:str}/{trigger:str}/abort",
    needs="operate",
    answers=shapes.RunShape,
    errors=(Conflict, NotFound),
)
def abort(site: TheSite, caller: TheCaller, workflow: Name, trigger: Trigger) -> Shape:
    """End everything of a run that is not done."""
    return views.run(site.app.workflow_run(workflow, trigger).abort(actor=caller.actor).row)


@act(
    "/workflows/{workflow:str}/{trigger:str}", method="DELETE", needs="operate", status=204, errors=(Conflict, NotFound)
)
def delete(site: TheSite, caller: TheCaller, workflow: Name, trigger: Trigger) -> None:
    """Forget a run that is done. Its trigger stays used."""
    site.app.workflow_run(workflow, trigger).delete(actor=caller.actor)


@act(
    "/workflows/{workflow:str}/{trigger:str}/archive",
    needs="operate",
    answers=shapes.RunShape,
    errors=(Conflict, NotFound),
)
def archive(site: TheSite, caller: TheCaller, workflow: Name, trigger: Trigger) -> Shape:
    """Move a run that is done to the archive now, with its jobs."""
    return views.run(site.app.workflow_run(workflow, trigger).archive(actor=caller.actor).row)


@look(
    "/workflows/{workflow:str}/{trigger:str}/steps/{step:str}/tasks",
    answers=shapes.Page[shapes.JobShape],
    errors=(NotFound,),
)
def tasks(
    site: TheSite,
    workflow: Name,
    trigger: Trigger,
    step: StepName,
    limit: paging.Limit = paging.USUAL,
    cursor: paging.CursorText = None,
) -> Shape:
    """The jobs of a step's tasks, in the order they were made."""
    belongs = ("tasks", workflow, trigger, step)
    after = paging.read(cursor, *belongs) or 0
    with site.reader() as store:
        row = store.run_of(workflow, trigger)
        if step not in {each.counts.name for each in row.steps}:
            raise NotFound(f"{row.title} has no step {backticked(step)}.")
        found = store.tasks(row.id, step, after, limit + 1)
    more = found[limit - 1].id if len(found) > limit else None
    return paging.page([views.job(job) for job in found[:limit]], paging.write(more, *belongs))


@look("/holds", answers=shapes.Page[shapes.HoldShape])
def list_holds(site: TheSite) -> Shape:
    """What is held, the oldest first."""
    with site.reader() as store:
        return paging.page([views.hold(each) for each in store.holds()])


@act("/holds", needs="operate", answers=shapes.HoldShape, status=201, errors=(Conflict, NotFound))
def hold(site: TheSite, caller: TheCaller, data: JSONBody[HoldBody]) -> Shape:
    """Keep tasks from starting (`pick`), from being made (`create`) or runs from being submitted (`submit`)."""
    return views.hold(site.app.hold(data.level, workflow=data.workflow, trigger=data.trigger, actor=caller.actor))


@act("/holds/release", needs="operate", status=204, errors=(Conflict, NotFound))
def release(site: TheSite, caller: TheCaller, data: JSONBody[HoldBody]) -> None:
    """Take back what was held by the same words."""
    site.app.release(data.level, workflow=data.workflow, trigger=data.trigger, actor=caller.actor)


router = Router(
    "/",
    route_handlers=[list_runs, submit, show_run, retry, abort, archive, delete, tasks, list_holds, hold, release],
    tags=["workflows"],
)
