"""One job: why it is where it is, its attempts in time, what it was given, what came of it, and what it says."""

from litestar import Router
from litestar.params import FromPath

from holdfast.builds.build import JOB_TYPE as BUILD
from holdfast.builds.build import QUEUE as BUILDS
from holdfast.errors import NotFound
from holdfast.jobs.explain import explain
from holdfast.jobs.job import Attempt, Job, Move
from holdfast.jobs.reasons import REASONS, Reason
from holdfast.stores.contract import RunRow, Store
from holdfast.web import drawing
from holdfast.web.pages.drawn import render, tone
from holdfast.web.pages.filters import whole
from holdfast.web.pages.page import Frame, Html, TheFrame, action, page
from holdfast.web.site import TheSite

LINES = 500  # of the log at a time
CALM = (Reason.HELD, Reason.FINAL, Reason.ARCHIVED)


@page("/jobs/{job_id:int}")
def job(frame: TheFrame, site: TheSite, job_id: FromPath[int]) -> Html:
    after = _after(frame)
    with site.reader() as store:
        facts = store.facts(job_id)
        found, now = facts.job, facts.now
        attempts, moves = store.attempts(job_id), store.history(job_id)
        log = store.log(job_id, after, LINES)
        run = _run(store, found)
    why = explain(facts)
    return frame.show(
        "job.html",
        now,
        job=found,
        payload=found.shown_payload(),
        result=found.shown_result(),
        why=why,
        why_tone=_why_tone(found, why.reason),
        cure="" if why.reason in CALM else REASONS[why.reason].cure,
        attempts=attempts,
        attempt_tone=attempt_tone,
        timeline=drawing.timeline(
            {str(each.attempt): (each.start_time, each.end_time) for each in attempts},
            found.create_time,
            found.end_time or now,
        ),
        moves=moves,
        move_tone=move_tone,
        log=log,
        after=after,
        may_be_more=len(log) == LINES,
        run=run,
        build=found.payload.get("build") if (found.queue, found.job_type) == (BUILDS, BUILD) else None,
    )


def _after(frame: Frame) -> int:
    return whole("after", frame.asked("after", "0"))


def _run(store: Store, found: Job) -> RunRow | None:
    if found.run is None:
        return None
    try:
        return store.run_by_id(found.run)
    except NotFound:
        return None


def _why_tone(found: Job, reason: Reason) -> str:
    if found.outcome is not None:
        return "good" if found.outcome == "success" else "bad"
    return "run" if reason in (Reason.HELD, Reason.WAITS_FOR_ANSWER) else "warn"


def attempt_tone(attempt: Attempt) -> str:
    if attempt.outcome is None:
        return "run"
    return "bad" if attempt.outcome == "error" else tone(attempt.outcome)


def move_tone(move: Move) -> str:
    if move.to_state != "final":
        return tone(move.to_state)
    return "bad" if move.cause == "error" else tone(move.cause) if tone(move.cause) != "idle" else "bad"


@page("/jobs/{job_id:int}/log")
def log_lines(frame: TheFrame, site: TheSite, job_id: FromPath[int]) -> Html:
    """The lines behind one, for the script."""
    with site.reader() as store:
        log = store.log(job_id, _after(frame), LINES)
    return Html(render("log_lines.html", log=log), media_type="text/html")


@action("/jobs/{job_id:int}/abort")
def abort(frame: TheFrame, site: TheSite, job_id: FromPath[int]) -> Html:
    ended = site.app.abort(job_id, actor=frame.actor)
    return frame.go(
        f"/jobs/{job_id}",
        f"Job {job_id} is aborted." if ended.final else f"The worker of job {job_id} was asked to end it.",
    )


@action("/jobs/{job_id:int}/retry")
def retry(frame: TheFrame, site: TheSite, job_id: FromPath[int]) -> Html:
    new = site.app.retry(job_id, actor=frame.actor)
    return frame.go(f"/jobs/{new.id}", f"Job {new.id} is a retry of job {job_id}.")


router = Router("/", route_handlers=[job, log_lines, abort, retry])
