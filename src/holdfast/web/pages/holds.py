"""Holding and releasing workflows: everything, one workflow, or one run (F17)."""

from litestar import Router

from holdfast.web.pages.drawn import address
from holdfast.web.pages.page import Form, Html, TheFrame, action
from holdfast.web.site import TheSite


@action("/holds/hold")
def hold(frame: TheFrame, site: TheSite, data: Form) -> Html:
    level, workflow, trigger = _named(data)
    held = site.app.hold(level, workflow=workflow, trigger=trigger, actor=frame.actor)
    return frame.go(
        _back(workflow, trigger), f"{held.scope.capitalize()} is held: no {_kept(level)}. What runs goes on."
    )


@action("/holds/release")
def release(frame: TheFrame, site: TheSite, data: Form) -> Html:
    level, workflow, trigger = _named(data)
    site.app.release(level, workflow=workflow, trigger=trigger, actor=frame.actor)
    return frame.go(_back(workflow, trigger), "It is released and goes on.")


def _named(data: Form) -> tuple[str, str | None, str | None]:
    return data.get("level", ""), data.get("workflow") or None, data.get("trigger") or None


def _kept(level: str) -> str:
    return {"pick": "task starts", "create": "task is made", "submit": "run is submitted"}.get(level, level)


def _back(workflow: str | None, trigger: str | None) -> str:
    return address("workflows", workflow, trigger) if workflow and trigger else "/workflows"


router = Router("/", route_handlers=[hold, release])
