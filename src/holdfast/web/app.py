"""The HTTP API and the dashboard of one app, as an ASGI application that serves alone or is mounted in another.

    from holdfast.web.app import create
    asgi = create(app)

- Every noun has a file with a `router`; `API`, `OUTSIDE` and `PAGES` list them. That is all there is to register.
- Everything passes `gate.Gate`, then the check in `auth.allow`, then the one in `addresses`.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from litestar import Litestar, Request, Router
from litestar.di import Provide
from litestar.types import ASGIApp

from holdfast.app import App
from holdfast.projects import Projects
from holdfast.stores.contract import SessionLimits
from holdfast.version import VERSION
from holdfast.web import (
    auth,
    badges,
    builds,
    document,
    events,
    health,
    hooks,
    jobs,
    login,
    metrics,
    problems,
    queues,
    schedules,
    workers,
    workflows,
)
from holdfast.web.addresses import refuse_other_spellings
from holdfast.web.bodies import StrictRequest, refuse_unknown
from holdfast.web.callers import Caller, caller_of
from holdfast.web.gate import Gate
from holdfast.web.pages import routes as pages
from holdfast.web.registration import Registration
from holdfast.web.site import Site, site_of

API: list[Router] = [
    jobs.router,
    queues.router,
    workflows.router,
    schedules.router,
    workers.router,
    builds.router,
    events.router,
    document.router,
]  # under /api/v1
OUTSIDE: list[Router] = [health.router, metrics.router, login.router, hooks.router, badges.router]
PAGES: list[Router] = [pages.router]  # the dashboard
ROOM_AROUND_A_PAYLOAD = 1 << 20  # bytes


def create(
    app: App,
    *,
    hosts: Sequence[str] = (),
    projects: Projects | None = None,
    public_url: str | None = None,
    session_limits: SessionLimits | None = None,
    registration: Registration | None = None,
) -> ASGIApp:
    """The application.

    - `hosts` are the names it may be called by besides `localhost`, addresses and that of `public_url`; `*` is any.
    - `public_url` is the address that people use, where a proxy stands before the application.
    - `registration` is that of the server that serves it, which accepts the login link that it printed.
    """
    site = Site(app, projects, public_url=public_url, session_limits=session_limits, registration=registration)
    return Gate(_routes(app.payload_limit + ROOM_AROUND_A_PAYLOAD), site, hosts)


@cache
def _routes(most_bytes: int) -> Litestar:
    """They are the same for every app; the site comes with the request."""
    return Litestar(
        [Router("/api/v1", route_handlers=API, before_request=refuse_unknown), *OUTSIDE, *PAGES],
        guards=[auth.allow, refuse_other_spellings],
        request_class=StrictRequest,
        dependencies={
            "site": Provide(_site, sync_to_thread=False),
            "caller": Provide(_caller, sync_to_thread=False),
        },
        exception_handlers={Exception: problems.answer},
        openapi_config=document.config(VERSION),
        request_max_body_size=most_bytes,
        signature_types=[Site, Caller],
        logging_config=None,
    )


def _site(request: Request[Any, Any, Any]) -> Site:
    return site_of(request.scope)


def _caller(request: Request[Any, Any, Any]) -> Caller:
    found = caller_of(request.scope)
    assert found is not None, "a route that needs nobody asks who calls"
    return found
