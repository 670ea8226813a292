"""Schedules: when each fires next, what it has fired; fire, remove, and take a removal back."""

from litestar import Router
from litestar.params import FromPath

from holdfast.web.pages.page import Form, Html, TheFrame, action, page
from holdfast.web.site import TheSite

FIRINGS = 50


@page("/schedules")
def schedules(frame: TheFrame, site: TheSite) -> Html:
    chosen = frame.asked("name")
    with site.reader() as store:
        rows, now = store.schedules(), store.now()
        firings = store.firings(chosen, FIRINGS) if chosen else ()
    return frame.show("schedules.html", now, schedules=rows, chosen=chosen, firings=firings)


@action("/schedules/{name:str}/fire")
def fire(frame: TheFrame, site: TheSite, name: FromPath[str]) -> Html:
    job = site.app.fire_schedule(name, actor=frame.actor)
    said = "the living one with its key" if job.duplicate else "new"
    return frame.go("/schedules", f"Schedule {name} has fired: job {job.id}, {said}.")


@action("/schedules/{name:str}/remove")
def remove(frame: TheFrame, site: TheSite, name: FromPath[str], data: Form) -> Html:
    if data.get("sure") != "yes":
        sentence = (
            f"Schedule {name} fires no more. One that the code declares can be brought back here; another is gone."
        )
        return frame.confirm(
            site.app.store.now(), f"Remove schedule {name}?", sentence, "Remove it", "/schedules", data
        )
    site.app.remove_schedule(name, actor=frame.actor)
    return frame.go("/schedules", f"Schedule {name} is removed.")


@action("/schedules/{name:str}/reset")
def reset(frame: TheFrame, site: TheSite, name: FromPath[str]) -> Html:
    site.app.reset_schedule(name, actor=frame.actor)
    return frame.go("/schedules", f"Schedule {name} is again as the code declares it.")


router = Router("/", route_handlers=[schedules, fire, remove, reset])
