"""`/api/v1/queues` and `/api/v1/types`: how full queues are, pause, resume and limit; the job types and their breakers."""

from typing import Annotated

from litestar import Router
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import views
from holdfast.errors import Conflict, NotFound, backticked
from holdfast.stores.contract import Store
from holdfast.web import paging, shapes
from holdfast.web.paging import Shape
from holdfast.web.routes import act, look
from holdfast.web.site import TheCaller, TheSite

QueueName = Annotated[str, PathParameter(max_length=40, description="The queue's name.")]
Counted = Annotated[
    bool, QueryParameter(description="Count the jobs of each status too: exact, and slow where there are millions.")
]


class QueueBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What to change of a queue."""

    throttle_limit: Annotated[
        float | UnsetType | None, Meta(description="Below 1: no limit; null: as the code declares it.", examples=[5])
    ] = UNSET
    paused: bool | UnsetType = UNSET


@look("/queues", answers=shapes.Page[shapes.QueueShape])
def list_queues(site: TheSite, counts: Counted = False) -> Shape:
    """Every queue of the instance."""
    with site.reader() as store:
        return paging.page(_queues(store, counts))


@look("/queues/{queue:str}", answers=shapes.QueueShape, errors=(NotFound,))
def show_queue(site: TheSite, queue: QueueName, counts: Counted = False) -> Shape:
    """One queue."""
    with site.reader() as store:
        return _queue(store, queue, counts)


@act("/queues/{queue:str}/pause", needs="operate", answers=shapes.QueueShape, errors=(NotFound,))
def pause(site: TheSite, caller: TheCaller, queue: QueueName) -> Shape:
    """Start no more jobs of a queue until it is resumed. What runs goes on."""
    site.app.pause(queue, actor=caller.actor)
    return _queue(site.app.store, queue)


@act("/queues/{queue:str}/resume", needs="operate", answers=shapes.QueueShape, errors=(NotFound,))
def resume(site: TheSite, caller: TheCaller, queue: QueueName) -> Shape:
    """Start jobs of a paused queue again."""
    site.app.resume(queue, actor=caller.actor)
    return _queue(site.app.store, queue)


@act("/queues/{queue:str}", method="PATCH", needs="operate", answers=shapes.QueueShape, errors=(NotFound,))
def change(site: TheSite, caller: TheCaller, queue: QueueName, data: JSONBody[QueueBody]) -> Shape:
    """Set what an operator may set; what is left out stays."""
    if data.throttle_limit is not UNSET:
        site.app.limit(queue, data.throttle_limit, actor=caller.actor)
    if data.paused is not UNSET:
        (site.app.pause if data.paused else site.app.resume)(queue, actor=caller.actor)
    return _queue(site.app.store, queue)


@look("/types", answers=shapes.Page[shapes.TypeShape])
def list_types(site: TheSite) -> Shape:
    """Every job type that is registered."""
    with site.reader() as store:
        return paging.page([views.job_type(row) for _, row in sorted(store.types().items())])


@look("/types/{job_type:str}", answers=shapes.TypeShape, errors=(NotFound,))
def show_type(site: TheSite, job_type: Annotated[str, PathParameter(max_length=200)]) -> Shape:
    """One job type."""
    with site.reader() as store:
        row = store.types().get(job_type)
    if row is None:
        raise NotFound(f"There is no job type {backticked(job_type)} in instance `{site.app.name}`.")
    return views.job_type(row)


@look("/breakers", answers=shapes.Page[shapes.BreakerShape])
def list_breakers(site: TheSite) -> Shape:
    """The breaker and the retry budget of each job type with adaptive retry."""
    with site.reader() as store:
        return paging.page([views.breaker(each) for each in store.breakers()])


@act("/breakers/{job_type:str}/reset", needs="operate", answers=shapes.BreakerShape, errors=(Conflict, NotFound))
def reset_breaker(site: TheSite, caller: TheCaller, job_type: Annotated[str, PathParameter(max_length=200)]) -> Shape:
    """Close the breaker of a job type and forget its failures and its budget."""
    return views.breaker(site.app.reset_breaker(job_type, actor=caller.actor))


def _queues(store: Store, counted: bool) -> list[Shape]:
    loads = {load.name: load for load in store.glance().queues}
    counts = store.counts() if counted else {}
    return [
        views.queue(row, counts.get(row.name, {}) if counted else None, loads.get(row.name)) for row in store.queues()
    ]


def _queue(store: Store, name: str, counted: bool = False) -> Shape:
    for shape in _queues(store, counted):
        if shape["name"] == name:
            return shape
    raise NotFound(f"There is no queue {backticked(name)} here.")


router = Router(
    "/",
    route_handlers=[
        list_queues,
        show_queue,
        pause,
        resume,
        change,
        list_types,
        show_type,
        list_breakers,
        reset_breaker,
    ],
    tags=["queues"],
)
