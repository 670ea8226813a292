"""Why a job is not running: from the facts around it to the one reason that has to go away first (E1).

- `explain` is a function of the facts. A store reads them in one snapshot, within bounds whatever the queue holds.
- Reasons are looked for in the order in which they have to go away; the others that hold stand in `details["also"]`.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import structs

from holdfast.jobs import forecast, obstacles, wording
from holdfast.jobs.facts import Facts
from holdfast.jobs.job import Job, Situation
from holdfast.jobs.obstacles import error_words
from holdfast.jobs.reasons import REASONS, Explanation, Finding, Reason
from holdfast.jobs.standing import ahead, in_line, throttled
from holdfast.jobs.states import A_CENTURY, ABORT_PATIENCE

SILENT = 15.0  # seconds without a sign of life that are worth a word

# In the order in which they have to go away.
OBSTACLES: Sequence[Callable[[Facts], Finding | None]] = (
    obstacles.expires,
    obstacles.retry_handler,
    obstacles.time,
    obstacles.paused,
    obstacles.on_hold,
    obstacles.no_worker,
    obstacles.preferred,
    obstacles.breaker,
    throttled,
    obstacles.out_of_line,
)


def explain(facts: Facts) -> Explanation:
    """The reason that has to go away first, with the others that hold, and the forecast where there is one."""
    main, *others = _findings(facts)
    took = forecast.usual(facts.durations)
    start, end = _forecast(facts, [main, *others], took)
    details: dict[str, Any] = {"state": str(facts.job.state), "situation": _text(facts.job.situation), **main.details}
    if not facts.job.final:
        details |= {
            "answer_kept": _keeps_answer(facts.job),
            "usual_seconds": None if took is None else took.median,
            "usual_seconds_most": None if took is None else took.most,
            "usual_of": len(facts.durations),
            "forecast_start_time": start,
            "forecast_end_time": end,
            "also": [
                {"reason": str(other.reason), "text": _sentence(facts, other), "until": other.until} for other in others
            ],
        }
    further = [*main.further, *_further(facts, main, took, start, end)]
    return Explanation(main.reason, " ".join([_sentence(facts, main), *further]), main.until, details)


def _findings(facts: Facts) -> Iterator[Finding]:
    job = facts.job
    if job.final:
        yield _ended(facts)
    elif job.situation is Situation.HELD:
        yield _held(facts)
    elif job.situation is Situation.WAITING:
        yield _waits(facts)
    else:
        found = [finding for look in OBSTACLES if (finding := look(facts)) is not None]
        yield from found or [in_line(facts)]


def _ended(facts: Facts) -> Finding:
    job = facts.job
    error = "" if job.error is None else f": {error_words(job)}"
    retried = "" if facts.retried_as is None else f"; it was retried as job {facts.retried_as}"
    details = {
        "outcome": _text(job.outcome),
        "end_time": job.end_time,
        "attempt": job.attempt,
        "error": None if job.error is None else structs.asdict(job.error),
        "retried_as": facts.retried_as,
    }
    words = {"error_words": error, "retried": retried}
    return Finding(Reason.ARCHIVED if job.archived else Reason.FINAL, None, details, words)


def _held(facts: Facts) -> Finding:
    """By a live worker, or by one that is gone and whose job nobody has taken over yet (J12)."""
    job, holder = facts.job, facts.holder
    details: dict[str, Any] = {"worker": None if job.worker is None else int(job.worker), "attempt": job.attempt}
    details["start_time"] = job.start_time
    if holder is None or holder.gone:
        until = _timeout_ends(job)
        if facts.on_crash == "timeout" and until is not None:
            return Finding(Reason.CRASHED, until, details)
        return Finding(Reason.WORKER_LOST, None, details)
    details |= {"name": holder.name, "host": holder.host, "beat_time": holder.beat_time, "timeout": job.timeout}
    if facts.abort_actor is not None and facts.abort_time is not None:
        until = facts.abort_time + timedelta(seconds=ABORT_PATIENCE)
        return Finding(Reason.ABORT_ASKED, until, {**details, "actor": facts.abort_actor})
    details["progress"] = None if job.progress is None else structs.asdict(job.progress)
    silent = (facts.now - holder.beat_time).total_seconds()
    further = []
    if job.progress is not None:
        further.append(
            f"It is {job.progress.fraction:.0%} done{f': {job.progress.text}' if job.progress.text else ''}."
        )
    if silent >= SILENT:
        further.append(
            f"Its worker has given no sign of life for {wording.span(silent)}; if it is dead, another takes the job over."
        )
    return Finding(Reason.HELD, None, details, {"usual": _usually(facts)}, tuple(further))


def _usually(facts: Facts) -> str:
    took, began = forecast.usual(facts.durations), facts.job.start_time
    if took is None:
        return ""
    longer = began is not None and (facts.now - began).total_seconds() > took.most
    text = f"; `{facts.job.job_type}` usually takes {wording.span(took.median)}, nine of ten at most {wording.span(took.most)}"
    return text + (", so this one takes long" if longer else "")


def _timeout_ends(job: Job) -> datetime | None:
    if job.timeout is None or job.start_time is None:
        return None
    return job.start_time + timedelta(seconds=min(job.timeout, A_CENTURY))


def _waits(facts: Facts) -> Finding:
    job, until = facts.job, facts.deadline_time
    key = f"its id {job.id}" if job.job_key is None else f"key `{job.job_key}`"
    words = {"key": key, "until_words": " as long as it takes" if until is None else f" until {facts.when(until)}"}
    return Finding(Reason.WAITS_FOR_ANSWER, until, {"job_key": job.job_key, "start_time": job.start_time}, words)


def _forecast(
    facts: Facts, findings: Sequence[Finding], took: forecast.Usual | None
) -> tuple[datetime | None, datetime | None]:
    """Start and end; of a job that more than time and others stand in the way of, neither is known."""
    reasons, job = {finding.reason for finding in findings}, facts.job
    if reasons == {Reason.HELD}:
        return job.start_time, forecast.end(job.start_time, took, facts.now)
    if len(reasons) == 1 and reasons <= BY_TIME:
        start = findings[0].until
    elif len(reasons) == 1 and reasons <= BY_OTHERS:
        start = _start_in_line(facts, limited=bool(reasons & {Reason.THROTTLED, Reason.RESERVED}))
    else:
        start = None
    return start, forecast.end(start, took, facts.now)


BY_TIME = frozenset({Reason.PREFERS, Reason.NOT_DUE, Reason.WINDOW, Reason.RETRY_DELAY, Reason.SNOOZED, Reason.RATE})
BY_OTHERS = frozenset({Reason.THROTTLED, Reason.RESERVED, Reason.IN_LINE, Reason.LOOSE, Reason.ALONE})


def _start_in_line(facts: Facts, limited: bool) -> datetime | None:
    if facts.more_before:
        return None
    free = 0 if limited else facts.free_slots
    speed = forecast.speed(facts.ends, facts.job.scheduled_run_time, facts.now)
    return forecast.start(facts.now, len(ahead(facts)) + 1 - free, speed)


def _further(
    facts: Facts, main: Finding, took: forecast.Usual | None, start: datetime | None, end: datetime | None
) -> Iterator[str]:
    if _keeps_answer(facts.job):
        yield "An answer to it came early and is kept until it waits."
    if main.reason is Reason.HELD:
        if end is not None:
            yield f"It should end at about {facts.when(end)}."
    elif start is not None and main.reason in BY_OTHERS and start > facts.now:
        yield f"It should start at about {facts.when(start)}."
    if took is not None and main.reason is not Reason.HELD and not facts.job.final:
        yield f"`{facts.job.job_type}` usually takes {wording.span(took.median)}."


def _sentence(facts: Facts, finding: Finding) -> str:
    job = facts.job
    told = {name: getattr(job, name) for name in job.__struct_fields__} | finding.details
    told |= {"until": finding.until} | finding.words
    shown = {name: facts.when(value) if isinstance(value, datetime) else value for name, value in told.items()}
    return f"Job {job.id} ({job.job_type}) {REASONS[finding.reason].sentence.format_map(shown)}"


def _text(value: StrEnum | None) -> str | None:
    return None if value is None else str(value)


def _keeps_answer(job: Job) -> bool:
    return job.answer is not None and not job.answer.due
