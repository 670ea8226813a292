"""The archive: a search through jobs that ended long ago."""

from litestar import Router

from holdfast.web.pages.jobs import listed
from holdfast.web.pages.page import Html, TheFrame, page
from holdfast.web.site import TheSite


@page("/archive")
def archive(frame: TheFrame, site: TheSite) -> Html:
    return listed(frame, site, dict(frame.request.query_params), archive=True)


router = Router("/", route_handlers=[archive])
