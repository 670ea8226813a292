"""The filters of a list of jobs, as query parameters: every field that a job can be told apart by."""

import math
from datetime import datetime
from typing import Annotated

from litestar.params import FromQuery, QueryParameter
from msgspec import structs

from holdfast.errors import Invalid
from holdfast.jobs.job import Outcome, Situation, State
from holdfast.stores.contract import Filter
from holdfast.web import paging
from holdfast.web.shapes import Status

Word = Annotated[str | None, QueryParameter(max_length=400)]
Number = Annotated[int | None, QueryParameter(ge=0, le=2**63 - 1)]
Since = Annotated[datetime | None, QueryParameter(description="At or after this moment.")]
Until = Annotated[datetime | None, QueryParameter(description="Before this moment.")]


def wanted(
    job_type: Word = None,
    job_key: Word = None,
    queue: Word = None,
    in_state: Annotated[State | None, QueryParameter(name="state")] = None,  # `state` is a word of Litestar's
    status: FromQuery[Status | None] = None,
    situation: FromQuery[Situation | None] = None,
    outcome: FromQuery[Outcome | None] = None,
    worker: Number = None,
    run: Number = None,
    retry_of: Number = None,
    priority: FromQuery[float | None] = None,
    attempt: Annotated[int | None, QueryParameter(ge=0, le=2**31 - 1)] = None,
    failures: Annotated[int | None, QueryParameter(ge=0, le=2**31 - 1)] = None,
    error: Annotated[str | None, QueryParameter(max_length=400, description="Stands somewhere in its error.")] = None,
    create_time_since: Since = None,
    create_time_until: Until = None,
    scheduled_run_time_since: Since = None,
    scheduled_run_time_until: Until = None,
    end_time_since: Since = None,
    end_time_until: Until = None,
    archive: Annotated[bool, QueryParameter(description="Archived jobs too.")] = False,
    limit: paging.Limit = paging.USUAL,
    cursor: paging.CursorText = None,
) -> Filter:
    """What the query asks for; `Invalid` names what is wrong."""
    if priority is not None and not math.isfinite(priority):
        raise Invalid(f"priority={priority}: give a number.")  # to SQLite NaN is NULL, and that is no filter
    found = Filter(
        job_type=job_type,
        job_key=job_key,
        queue=queue,
        state=in_state,
        status=status,
        situation=situation,
        outcome=outcome,
        worker=worker,
        run=run,
        retry_of=retry_of,
        priority=priority,
        attempt=attempt,
        failures=failures,
        error=error,
        create_time_since=_aware(create_time_since),
        create_time_until=_aware(create_time_until),
        scheduled_run_time_since=_aware(scheduled_run_time_since),
        scheduled_run_time_until=_aware(scheduled_run_time_until),
        end_time_since=_aware(end_time_since),
        end_time_until=_aware(end_time_until),
        archive=archive,
    )
    return structs.replace(found, limit=limit, before=paging.read(cursor, "jobs", found))


def cursor_of(asked: Filter, before: int | None) -> str | None:
    """The cursor of the page behind one that was asked for."""
    return paging.write(before, "jobs", structs.replace(asked, limit=Filter().limit, before=None))


def _aware(moment: datetime | None) -> datetime | None:
    if moment is not None and moment.tzinfo is None:
        raise Invalid(f"{moment.isoformat()} has no time zone; write a moment as 2026-12-24T18:00:00Z.")
    return moment
