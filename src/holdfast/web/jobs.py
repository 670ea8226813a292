"""`/api/v1/jobs` and `/api/v1/types`: look at jobs, add them, end them, run them again, answer them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from litestar import Response, Router
from litestar.di import NamedDependency, Provide
from litestar.params import HeaderParameter, JSONBody, PathParameter
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import views
from holdfast.errors import Conflict, NotFound
from holdfast.jobs.explain import explain
from holdfast.stores.contract import Filter, RequestKey
from holdfast.web import filters, paging, shapes
from holdfast.web.bodies import fingerprint
from holdfast.web.paging import Shape
from holdfast.web.routes import act, look
from holdfast.web.site import TheCaller, TheSite

JobId = Annotated[int, PathParameter(ge=1, le=2**63 - 1, description="The job's id.")]
TypeName = Annotated[str, PathParameter(max_length=200, description="The job type.")]


class NewJobBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job to be added. What is left out is as the job type has it."""

    queue: Annotated[str, Meta(examples=["mail"])]
    job_type: Annotated[str, Meta(examples=["send"])]
    payload: Annotated[dict[str, Any], Meta(description="Arguments by name.", examples=[{"to": "a@b.c"}])] = {}
    job_key: Annotated[
        str | UnsetType | None, Meta(description="At most one living job of a type has it.", examples=["welcome-42"])
    ] = UNSET
    scheduled_run_time: Annotated[datetime | UnsetType | None, Meta(description="Not before this moment.")] = UNSET
    delay: Annotated[float | UnsetType | None, Meta(description="Seconds from now, instead of a moment.")] = UNSET
    expires: Annotated[datetime | UnsetType | None, Meta(description="Not after this moment.")] = UNSET
    priority: Annotated[float | UnsetType, Meta(description="Lower is more urgent.", examples=[100])] = UNSET
    timeout: Annotated[float | UnsetType | None, Meta(description="Seconds for each attempt; null: no limit.")] = UNSET
    retries: Annotated[int | UnsetType | None, Meta(description="After an error.")] = UNSET
    throttle_factor: Annotated[float | UnsetType, Meta(description="What it counts for its queue's limit.")] = UNSET
    time_windows: Annotated[list[str] | UnsetType, Meta(examples=[["22:00-06:00"]])] = UNSET
    on_duplicate: Annotated[
        Literal["return", "raise", "replace"] | UnsetType, Meta(description="If a living job has the key.")
    ] = UNSET

    def options(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in self.__struct_fields__[3:]}
        return {name: value for name, value in given.items() if value is not UNSET}


class CompleteBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a job that waits."""

    result: Annotated[Any, Meta(examples=[{"approved": True}])] = None


class FailBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer that it failed."""

    error: Annotated[str, Meta(examples=["the parcel was refused"])] = "failed"
    retry: Annotated[bool, Meta(description="As an exception, which is retried.")] = False


NO_RESULT, JUST_FAILED = CompleteBody(), FailBody()  # where there is no body


class CompleteKeyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to the job of this key."""

    job_key: Annotated[str, Meta(examples=["welcome-42"])]
    result: Any = None


class FailKeyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer that the job of this key failed."""

    job_key: Annotated[str, Meta(examples=["welcome-42"])]
    error: Annotated[str, Meta(examples=["the parcel was refused"])] = "failed"
    retry: Annotated[bool, Meta(description="As an exception, which is retried.")] = False


@look(
    "/jobs",
    answers=shapes.Page[shapes.JobShape],
    dependencies={"wanted": Provide(filters.wanted, sync_to_thread=False)},
)
def list_jobs(site: TheSite, wanted: NamedDependency[Filter]) -> Shape:
    """Jobs, newest first, in all states; every filter narrows the list."""
    with site.reader() as store:
        found = store.page(wanted)
    return paging.page([views.job(job) for job in found.jobs], filters.cursor_of(wanted, found.before), found.complete)


@act(
    "/jobs",
    needs="enqueue",
    answers=shapes.JobShape,
    status=201,
    errors=(Conflict, NotFound),
    also={200: (shapes.JobShape, "A living job has the key: this one, with `duplicate` true.")},
)
def add_job(
    site: TheSite,
    caller: TheCaller,
    data: JSONBody[NewJobBody],
    idempotency_key: Annotated[
        str | None,
        HeaderParameter(
            name="Idempotency-Key",
            min_length=1,
            max_length=200,
            description="The same key with the same body gives the same job, for a week; with another body: 409.",
        ),
    ] = None,
) -> Response[Shape]:
    """Add a job. A type that is not known yet is registered with its first job."""
    if idempotency_key is None:
        job = site.app.enqueue(data.queue, data.job_type, data.payload, **data.options())
    else:
        job = site.app.enqueue_once(
            RequestKey(caller.name, idempotency_key, fingerprint(data)),
            data.queue,
            data.job_type,
            data.payload,
            **data.options(),
        )
    return Response(views.job(job), status_code=200 if job.duplicate else 201)


@look("/jobs/{job_id:int}", answers=shapes.JobShape, errors=(NotFound,))
def show_job(site: TheSite, job_id: JobId) -> Shape:
    """One job."""
    with site.reader() as store:
        return views.job(store.get(job_id))


@look("/jobs/{job_id:int}/history", answers=shapes.Page[shapes.MoveShape], errors=(NotFound,))
def history(site: TheSite, job_id: JobId) -> Shape:
    """Every move of a job, oldest first."""
    with site.reader() as store:
        return paging.page([views.move(move) for move in store.history(job_id)])


@look("/jobs/{job_id:int}/attempts", answers=shapes.Page[shapes.AttemptShape], errors=(NotFound,))
def attempts(site: TheSite, job_id: JobId) -> Shape:
    """Every attempt of a job with its error and traceback, oldest first."""
    with site.reader() as store:
        return paging.page([views.attempt(each) for each in store.attempts(job_id)])


@look("/jobs/{job_id:int}/explain", answers=shapes.ExplanationShape, errors=(NotFound,))
def explain_job(site: TheSite, job_id: JobId) -> Shape:
    """Why a job is not running, or where it runs."""
    with site.reader() as store:
        return views.explanation(explain(store.facts(job_id)))


@look("/jobs/{job_id:int}/log", answers=shapes.Page[shapes.LogLineShape], errors=(NotFound,))
def log(site: TheSite, job_id: JobId, limit: paging.Limit = paging.MOST, cursor: paging.CursorText = None) -> Shape:
    """What a job's handler said, oldest first."""
    after = paging.read(cursor, "log", job_id) or 0
    with site.reader() as store:
        found = store.log(job_id, after, limit + 1)
    more = found[limit - 1].id if len(found) > limit else None
    return paging.page([views.log_line(line) for line in found[:limit]], paging.write(more, "log", job_id))


@act("/jobs/{job_id:int}/abort", needs="operate", answers=shapes.JobShape, errors=(Conflict, NotFound))
def abort(site: TheSite, caller: TheCaller, job_id: JobId) -> Shape:
    """End a job: at once if nobody runs it, else its worker is asked to."""
    return views.job(site.app.abort(job_id, actor=caller.actor))


@act("/jobs/{job_id:int}/retry", needs="operate", answers=shapes.JobShape, status=201, errors=(Conflict, NotFound))
def retry(site: TheSite, caller: TheCaller, job_id: JobId) -> Shape:
    """Run a final job again: a new job of the same type, key and payload, which is the answer."""
    return views.job(site.app.retry(job_id, actor=caller.actor))


@act("/jobs/{job_id:int}/complete", needs="operate", answers=shapes.JobShape, errors=(Conflict, NotFound))
def complete(site: TheSite, caller: TheCaller, job_id: JobId, data: JSONBody[CompleteBody] = NO_RESULT) -> Shape:
    """Answer a job that waits: it succeeds, or its response handler decides."""
    return views.job(site.app.complete(job_id=job_id, result=data.result, actor=caller.actor))


@act("/jobs/{job_id:int}/fail", needs="operate", answers=shapes.JobShape, errors=(Conflict, NotFound))
def fail(site: TheSite, caller: TheCaller, job_id: JobId, data: JSONBody[FailBody] = JUST_FAILED) -> Shape:
    """Answer a job that waits with a failure."""
    return views.job(site.app.fail(job_id=job_id, error=data.error, retry=data.retry, actor=caller.actor))


@act("/types/{job_type:str}/complete", needs="operate", answers=shapes.JobShape, errors=(Conflict, NotFound))
def complete_key(site: TheSite, caller: TheCaller, job_type: TypeName, data: JSONBody[CompleteKeyBody]) -> Shape:
    """Answer the newest job of a type and key."""
    return views.job(site.app.complete(job_type, data.job_key, data.result, actor=caller.actor))


@act("/types/{job_type:str}/fail", needs="operate", answers=shapes.JobShape, errors=(Conflict, NotFound))
def fail_key(site: TheSite, caller: TheCaller, job_type: TypeName, data: JSONBody[FailKeyBody]) -> Shape:
    """Answer the newest job of a type and key with a failure."""
    return views.job(site.app.fail(job_type, data.job_key, data.error, data.retry, actor=caller.actor))


router = Router(
    "/",
    route_handlers=[
        list_jobs,
        add_job,
        show_job,
        history,
        attempts,
        explain_job,
        log,
        abort,
        retry,
        complete,
        fail,
        complete_key,
        fail_key,
    ],
    tags=["jobs"],
)
