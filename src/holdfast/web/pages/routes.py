"""The pages of the dashboard, all of them."""

from litestar import Router
from litestar.di import Provide

from holdfast.web.bodies import refuse_nul
from holdfast.web.pages import (
    archive,
    builds,
    holds,
    job,
    jobs,
    overview,
    queues,
    run,
    schedules,
    settings,
    static,
    workers,
    workflows,
)
from holdfast.web.pages.page import new_frame

NOUNS = (overview, jobs, job, workflows, run, holds, builds, queues, schedules, workers, archive, settings, static)

router = Router(
    "/",
    route_handlers=[noun.router for noun in NOUNS],
    before_request=refuse_nul,
    dependencies={"frame": Provide(new_frame, sync_to_thread=False)},
)
