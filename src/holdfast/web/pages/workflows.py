"""Runs of workflows: the list with their progress."""

from litestar import Router

from holdfast.errors import Invalid, quoted
from holdfast.web.pages.filters import whole
from holdfast.web.pages.page import Html, TheFrame, page
from holdfast.web.site import TheSite
from holdfast.workflows.states import WorkflowState

PER_PAGE = 50


@page("/workflows")
def workflows(frame: TheFrame, site: TheSite) -> Html:
    workflow, state, before = frame.asked("workflow"), frame.asked("state"), frame.asked("before")
    if state and state not in tuple(WorkflowState):
        raise Invalid(f"state={quoted(state)}: known are {', '.join(WorkflowState)}.")
    with site.reader() as store:
        runs = store.runs(workflow or None, state or None, whole("before", before) if before else None, PER_PAGE + 1)
        names, holds, now = sorted(store.workflows()), store.holds(), store.now()
    return frame.show(
        "workflows.html",
        now,
        runs=runs[:PER_PAGE],
        names=names if not workflow or workflow in names else [*names, workflow],
        holds=holds,
        workflow=workflow,
        state=state,
        before=before,
        cursor=runs[PER_PAGE - 1].id if len(runs) > PER_PAGE else None,
    )


router = Router("/", route_handlers=[workflows])
