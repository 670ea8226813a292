"""Workers: who is alive, what they serve, and how full their hands are."""

from litestar import Router

from holdfast.web.pages.page import Html, TheFrame, page
from holdfast.web.site import TheSite


@page("/workers")
def workers(frame: TheFrame, site: TheSite) -> Html:
    with site.reader() as store:
        seen, rows = store.glance(), store.workers()
    return frame.show("workers.html", seen.time, seen=seen, workers=rows)


router = Router("/", route_handlers=[workers])
