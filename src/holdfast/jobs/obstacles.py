"""What may stand in the way of a job that nobody has: time, people, workers, a breaker.

Each function looks at the facts and gives the reason, or None if it does not hold. Limits and throttlers are looked
at in `jobs.standing`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from holdfast.errors import Invalid
from holdfast.jobs import windows, wording
from holdfast.jobs.breaker import BreakerState, is_probe
from holdfast.jobs.facts import MOST_DETAILED, Facts, Place, WorkerSeen, ids_of, these_workers
from holdfast.jobs.job import AttemptEnd, Job, Situation, State
from holdfast.jobs.reasons import Finding, Reason


def expires(facts: Facts) -> Finding | None:
    job, expires = facts.job, facts.job.expires_time
    if expires is None or facts.place is Place.UNDECIDED:
        return None
    if expires <= facts.now:
        return Finding(Reason.EXPIRED, None, {"expires_time": expires})
    if job.scheduled_run_time >= expires:
        return Finding(Reason.EXPIRES_FIRST, expires, {"expires_time": expires, "time_windows": list(job.time_windows)})
    return None


def retry_handler(facts: Facts) -> Finding | None:
    if facts.place is not Place.UNDECIDED:
        return None
    having = [worker for worker in facts.workers if facts.job.job_type in worker.types]
    whose = _verb(having, "its", "their")
    who = f"{these_workers(having)} will be asked if {whose} code has it" if having else "no live worker has it"
    return Finding(
        Reason.RETRY_HANDLER,
        None,
        _failure(facts.job) | {"workers": ids_of(having)},
        {"who": who, "error": error_words(facts.job)},
    )


def time(facts: Facts) -> Finding | None:
    """Its time has not come, whatever put it there."""
    job = facts.job
    if facts.place is Place.UNDECIDED:
        return None
    opening = _opening(facts)
    if opening is not None:
        return Finding(
            Reason.WINDOW,
            opening,
            {"time_windows": list(job.time_windows)},
            {"time_windows": ", ".join(job.time_windows)},
        )
    if facts.due:
        return None
    until = job.scheduled_run_time
    if job.state is State.ERROR:
        return Finding(Reason.RETRY_DELAY, until, _failure(job), {"error": error_words(job)})
    if job.situation is Situation.LOOSE and facts.cause is AttemptEnd.SNOOZED:
        said = job.progress.text if job.progress is not None else ""
        further = (f"Its handler said: {said}",) if said else ()
        return Finding(Reason.SNOOZED, until, {"attempt": job.attempt, "said": said or None}, further=further)
    return Finding(Reason.NOT_DUE, until, {"scheduled_run_time": until})


def _opening(facts: Facts) -> datetime | None:
    """The opening that it waits for; None if its windows are open, or if it is wanted later than that."""
    job = facts.job
    if not job.time_windows:
        return None
    try:
        parsed = windows.parse_all(job.time_windows)
    except Invalid:
        return None  # they are damaged, and keep no job from starting
    if facts.due:
        closed = windows.closes(parsed, job.scheduled_run_time)
        return windows.opens(parsed, facts.now) if closed is not None and closed <= facts.now else None
    opening = windows.opens(parsed, facts.now)
    return opening if opening > facts.now and opening == job.scheduled_run_time else None


def paused(facts: Facts) -> Finding | None:
    if not facts.paused:
        return None
    since = ""
    if facts.pause_time is not None:
        since = f" since {facts.when(facts.pause_time)}, by {facts.paused_by}"
    details = {"queue": facts.job.queue, "pause_time": facts.pause_time, "paused_by": facts.paused_by}
    return Finding(Reason.PAUSED, None, details, {"since": since})


def on_hold(facts: Facts) -> Finding | None:
    """The oldest hold that covers it; it may start when all are released."""
    if not facts.holds:
        return None
    first, *others = ({**structs.asdict(hold), "scope": hold.scope, "release": hold.release} for hold in facts.holds)
    return Finding(Reason.ON_HOLD, None, {**first, "other_holds": others})


def no_worker(facts: Facts) -> Finding | None:
    """Which of the things that a worker needs none of the living has."""
    job, living = facts.job, facts.workers
    if facts.able or facts.place is Place.UNDECIDED:
        return None
    problem, why = _lacking(facts)
    details = {
        "problem": problem,
        "job_type": job.job_type,
        "queue": job.queue,
        "required_labels": list(facts.labels),
        "missing_labels": _missing_labels(facts),
        "workers": [_worker_seen(facts, worker) for worker in living[:MOST_DETAILED]],
    }
    return Finding(Reason.NO_WORKER, None, details, {"why": why})


def _lacking(facts: Facts) -> tuple[str, str]:
    job_type, queue, living = facts.job.job_type, facts.job.queue, facts.workers
    if not living:
        return "none", "none is running"
    having = [worker for worker in living if job_type in worker.types]
    them = these_workers(having)
    serving = [worker for worker in having if worker.serves(queue)]
    if serving and all("run" not in worker.duties for worker in serving):
        told = f"the duty `run` of {these_workers(serving)} is switched off, and no other handles `{job_type}`"
        return "duty", told
    if serving:
        return "stopping", f"{them} {_verb(having, 'is', 'are')} stopping, and no other handles `{job_type}`"
    if having:
        served = wording.listing(sorted({name for worker in having for name in worker.queues}), "queue")
        handles, serves = _verb(having, "handles", "handle"), _verb(having, "serves", "serve")
        return "queue", f"{them} {handles} `{job_type}`, but {serves} only {served}, not `{queue}`"
    missing = _missing_labels(facts)
    if missing:
        required, lacked = wording.listing(facts.labels, "label"), wording.listing(missing, "label")
        return "labels", f"`{job_type}` requires {required}, and {_nobody(living, 'has', 'have')} {lacked}"
    never = "" if facts.has_handler else ", and no code has declared a handler for it yet"
    return "type", f"{_nobody(living, 'handles', 'handle')} `{job_type}`{never}"


def _missing_labels(facts: Facts) -> list[str]:
    """What the worker with the most of the required labels lacks."""
    lacking = [[label for label in facts.labels if label not in worker.labels] for worker in facts.workers]
    return min(lacking, key=len, default=list(facts.labels))


def _worker_seen(facts: Facts, worker: WorkerSeen) -> dict[str, Any]:
    return {
        "id": worker.id,
        "name": worker.name,
        "queues": list(worker.queues),
        "serves_queue": worker.serves(facts.job.queue),
        "handles_type": facts.job.job_type in worker.types,
        "labels": list(worker.labels),
        "missing_labels": [label for label in facts.labels if label not in worker.labels],
        "stopping": worker.stopping,
        "duties": list(worker.duties),
    }


def preferred(facts: Facts) -> Finding | None:
    """Others would take it at once and leave it to those with the labels that its type prefers, who are busy (F20)."""
    wanted = facts.preference
    if wanted is None or facts.ready_time is None or facts.place is not Place.READY:
        return None
    until = facts.ready_time + timedelta(seconds=wanted.seconds)
    first = [worker for worker in facts.able if wanted.fits(worker.labels)]
    others = [worker for worker in facts.able if not wanted.fits(worker.labels)]
    if until <= facts.now or not first or not others or any(worker.held < worker.concurrency for worker in first):
        return None
    details = {"prefers": list(wanted.labels), "workers": ids_of(first), "others": ids_of(others)}
    return Finding(Reason.PREFERS, until, details, {"labels": wording.listing(wanted.labels, "label")})


def breaker(facts: Facts) -> Finding | None:
    """The type rests; the one job that probes it is let through (R6)."""
    found = facts.breaker
    if found is None or found.closed or is_probe(found, facts.job.id):
        return None
    failures = "after a failure" if found.failures == 1 else f"after {found.failures} failures in a row"
    details = {
        "job_type": facts.job.job_type,
        "breaker": str(found.state),
        "failures_in_a_row": found.failures,
        "opened_time": found.opened_time,
        "probe": found.probe,
    }
    since = "" if found.opened_time is None else f", open since {facts.when(found.opened_time)}"
    if found.state is BreakerState.PROBING:
        words = {
            "since": since,
            "why": f"{failures} job {found.probe} probes the type, and its success lets the others go on",
        }
        return Finding(Reason.BREAKER_OPEN, None, details, words)
    if found.probe_time is None or found.probe_time <= facts.now:
        words = {"since": since, "why": f"{failures} the next claim lets one job probe the type"}
        return Finding(Reason.BREAKER_OPEN, None, details, words)
    words = {
        "since": since,
        "why": f"{failures} none starts until {facts.when(found.probe_time)}, and then one to probe the type",
    }
    return Finding(Reason.BREAKER_OPEN, found.probe_time, details, words)


def out_of_line(facts: Facts) -> Finding | None:
    return Finding(Reason.OUT_OF_LINE) if facts.place is None and facts.due else None


def _failure(job: Job) -> dict[str, Any]:
    error = None if job.error is None else structs.asdict(job.error)
    return {"attempt": job.attempt, "failures": job.failures, "retries": job.retries, "error": error}


def error_words(job: Job) -> str:
    """Its last error in a sentence."""
    if job.error is None:
        return "an error"
    return wording.shortened(f"{job.error.type}: {job.error.message}").rstrip(".")


def _verb(workers: Sequence[WorkerSeen], one: str, many: str) -> str:
    return one if len(workers) == 1 else many


def _nobody(living: Sequence[WorkerSeen], one: str, many: str) -> str:
    if len(living) == 1:
        return f"the only live worker, {living[0].id} ({living[0].name}), does not {many}"
    return f"none of the {len(living)} live workers {one}"
