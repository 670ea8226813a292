"""`/api/v1/schedules`: what makes jobs by itself; add, remove, reset and fire schedules."""

from datetime import datetime
from typing import Annotated, Any, Literal

from litestar import Router
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import views
from holdfast.errors import Conflict, NotFound, backticked
from holdfast.stores.contract import ScheduleRow
from holdfast.web import paging, shapes
from holdfast.web.paging import Shape
from holdfast.web.routes import act, look
from holdfast.web.site import Site, TheCaller, TheSite

Name = Annotated[str, PathParameter(max_length=200, description="The schedule's name.")]


class ScheduleBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule: `cron` with its `zone`, or `every`, or `at`."""

    queue: Annotated[str, Meta(examples=["mail"])]
    job_type: Annotated[str, Meta(examples=["send"])]
    payload: Annotated[
        dict[str, Any], Meta(description="A template of the arguments.", examples=[{"to": "a@b.c"}])
    ] = {}
    const: dict[str, Any] | UnsetType = UNSET
    cron: Annotated[str | UnsetType, Meta(examples=["0 3 * * *"])] = UNSET
    zone: Annotated[str | UnsetType, Meta(examples=["Europe/Amsterdam"])] = UNSET
    every: Annotated[float | UnsetType, Meta(description="Seconds.")] = UNSET
    at: list[datetime] | UnsetType = UNSET
    start: datetime | UnsetType = UNSET
    end: datetime | UnsetType = UNSET
    misfire: Literal["skip", "once", "all"] | UnsetType = UNSET
    job_key: str | UnsetType = UNSET
    priority: float | UnsetType = UNSET
    timeout: float | UnsetType | None = UNSET
    retries: int | UnsetType | None = UNSET
    throttle_factor: float | UnsetType = UNSET
    time_windows: list[str] | UnsetType = UNSET
    on_duplicate: Literal["return", "replace"] | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__struct_fields__[3:]}
        return {name: value for name, value in values.items() if value is not UNSET}


@look("/schedules", answers=shapes.Page[shapes.ScheduleShape])
def list_schedules(
    site: TheSite, removed: Annotated[bool, QueryParameter(description="Removed ones too.")] = False
) -> Shape:
    """Every schedule, by name."""
    with site.reader() as store:
        rows = [row for row in store.schedules() if removed or not row.removed]
    return paging.page([_shape(site, row) for row in rows])


@look("/schedules/{name:str}", answers=shapes.ScheduleShape, errors=(NotFound,))
def show_schedule(site: TheSite, name: Name) -> Shape:
    """One schedule."""
    return _shape(site, _row(site, name))


@look("/schedules/{name:str}/firings", answers=shapes.Page[shapes.FiringShape], errors=(NotFound,))
def firings(site: TheSite, name: Name, limit: paging.Limit = paging.USUAL) -> Shape:
    """What a schedule has fired, newest first; the last three months are kept."""
    _row(site, name)
    with site.reader() as store:
        return paging.page([views.firing(row) for row in store.firings(name, limit)])


@act("/schedules/{name:str}", method="PUT", needs="operate", answers=shapes.ScheduleShape, errors=(Conflict, NotFound))
def put(site: TheSite, caller: TheCaller, name: Name, data: JSONBody[ScheduleBody]) -> Shape:
    """Add a schedule, or change one: it wins over what the code declares until it is reset."""
    row = site.app.add_schedule(name, data.queue, data.job_type, data.payload, actor=caller.actor, **data.given())
    return _shape(site, row)


@act("/schedules/{name:str}", method="DELETE", needs="operate", status=204, errors=(Conflict, NotFound))
def remove(site: TheSite, caller: TheCaller, name: Name) -> None:
    """It fires no more; one that the code declares stays removed until it is reset or added."""
    site.app.remove_schedule(name, actor=caller.actor)


@act("/schedules/{name:str}/reset", needs="operate", answers=shapes.ScheduleShape, errors=(Conflict, NotFound))
def reset(site: TheSite, caller: TheCaller, name: Name) -> Shape:
    """Take back what an operator changed or removed."""
    return _shape(site, site.app.reset_schedule(name, actor=caller.actor))


@act("/schedules/{name:str}/fire", needs="operate", answers=shapes.JobShape, status=201, errors=(Conflict, NotFound))
def fire(site: TheSite, caller: TheCaller, name: Name) -> Shape:
    """Fire it now, apart from its times; the job that this made."""
    return views.job(site.app.fire_schedule(name, actor=caller.actor))


def _row(site: Site, name: str) -> ScheduleRow:
    with site.reader() as store:
        for row in store.schedules():
            if row.name == name:
                return row
    raise NotFound(f"There is no schedule {backticked(name)} in instance `{site.app.name}`.")


def _shape(site: Site, row: ScheduleRow) -> Shape:
    return views.schedule(row.schedule, row, site.app.secrets(row.schedule.job_type))


router = Router(
    "/", route_handlers=[list_schedules, show_schedule, firings, put, remove, reset, fire], tags=["schedules"]
)
