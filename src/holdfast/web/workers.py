"""`/api/v1/workers`: who is working."""

from litestar import Router

from holdfast import views
from holdfast.web import paging, shapes
from holdfast.web.paging import Shape
from holdfast.web.routes import look
from holdfast.web.site import TheSite


@look("/workers", answers=shapes.Page[shapes.WorkerShape])
def list_workers(site: TheSite) -> Shape:
    """Every live worker, the newest first, with how many jobs it has in its hands."""
    with site.reader() as store:
        found, in_hand = sorted(store.workers(), key=lambda row: -row.id), store.glance().in_hand
    return paging.page([views.worker(row, in_hand.get(row.id, 0)) for row in found])


router = Router("/", route_handlers=[list_workers], tags=["workers"])
