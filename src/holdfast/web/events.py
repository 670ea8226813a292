"""`/api/v1/events` and the streams of jobs, runs and builds: server-sent events that go on where they stopped."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import anyio.to_thread
from litestar import Router
from litestar.params import HeaderParameter, PathParameter
from litestar.response import Stream

from holdfast.errors import NotFound
from holdfast.web.live import Topic
from holdfast.web.routes import watch
from holdfast.web.site import Site, TheSite
from holdfast.web.topics import BuildTopic, Instance, JobTopic, RunTopic

LastEvent = Annotated[
    str | None,
    HeaderParameter(
        name="Last-Event-ID",
        max_length=100,
        description="The id of the last event that is known: what came after it is told.",
    ),
]
JobId = Annotated[int, PathParameter(ge=1, le=2**63 - 1, description="The job's id.")]
BuildId = Annotated[int, PathParameter(ge=1, le=2**63 - 1, description="The build's id.")]
Name = Annotated[str, PathParameter(max_length=200, description="The workflow's name.")]
Trigger = Annotated[str, PathParameter(max_length=200, description="What made the run.")]


@watch("/events")
async def events(site: TheSite, last_event_id: LastEvent = None) -> Stream:
    """What happens in the instance.

    `counters` has how full each queue is and `changed` names those that changed, at most ten times a second. `audit` and
    `attempt` are records, told once and in order; with `Last-Event-ID` those that were missed come first, and `reset` says
    that they cannot be told.
    """
    return await _stream(site, "instance", Instance, last_event_id)


@watch("/jobs/{job_id:int}/events", errors=(NotFound,))
async def job_events(site: TheSite, job_id: JobId, last_event_id: LastEvent = None) -> Stream:
    """A job's moves and log lines so far, then each as it comes, with its progress; `end` is the last one."""
    return await _stream(site, ("job", job_id), lambda: JobTopic(job_id), last_event_id)


@watch("/workflows/{workflow:str}/{trigger:str}/events", errors=(NotFound,))
async def run_events(site: TheSite, workflow: Name, trigger: Trigger, last_event_id: LastEvent = None) -> Stream:
    """The moves of a run's steps so far and the run as it is, then each change; `end` is the last one.

    `step` is a move of a step, with its time where that is stored, or a change of its numbers; `run` is the whole run. With
    `Last-Event-ID` it goes on behind that event, or says `reset` and tells everything.
    """

    def find() -> int:
        with site.reader() as store:
            return store.run_of(workflow, trigger).id

    run = await anyio.to_thread.run_sync(find)
    return await _stream(site, ("run", run), lambda: RunTopic(run), last_event_id)


@watch("/builds/{build_id:int}/events", errors=(NotFound,))
async def build_events(site: TheSite, build_id: BuildId, last_event_id: LastEvent = None) -> Stream:
    """The moves of a build's job and of its steps so far and the build as it is, then each change; `end` is the last one.

    `move` is one of the job, `step` one of a step, with its time where that is stored; `build` is the whole build. With
    `Last-Event-ID` it goes on behind that event, or says `reset` and tells everything. Watching is not use.
    """
    cache = site.projects.settings.cache
    return await _stream(site, ("build", build_id), lambda: BuildTopic(build_id, cache), last_event_id)


async def _stream(site: Site, key: Any, make: Callable[[], Topic], last: str | None) -> Stream:
    """The first line is waited for here, so that what does not exist is answered as such."""
    told = site.live.stream(key, make, last)
    first = await anext(told, b"")

    async def all_of_it() -> AsyncIterator[bytes]:
        try:
            yield first
            async for event in told:
                yield event
        finally:
            await told.aclose()  # type: ignore[attr-defined]

    # A proxy that gathers answers would keep events from whoever waits for them.
    headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
    return Stream(all_of_it(), media_type="text/event-stream", headers=headers)


router = Router("/", route_handlers=[events, job_events, run_events, build_events], tags=["events"])
