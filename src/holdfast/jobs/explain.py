"""Why a job is not running: from the facts around it to the one reason that has to go away first (E1).

- `explain` is a function of the facts. A store reads them in one snapshot, within bounds whatever the queue holds.
- Reasons are looked for in the order in which they have to go away; the others that hold stand in `details["also"]`.
- Whether a job may start under a limit is asked of the functions that a claim asks (`jobs.throttle`).
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct, structs

from holdfast.jobs import forecast, throttle, windows, wording
from holdfast.jobs.breaker import BreakerState, is_probe
from holdfast.jobs.facts import MOST_BEFORE, MOST_DETAILED, Facts, Place, WorkerSeen
from holdfast.jobs.job import AttemptEnd, Job, Situation, State
from holdfast.jobs.reasons import REASONS, Explanation, Reason
from holdfast.jobs.states import A_CENTURY, ABORT_PATIENCE, ALONE_AFTER

MOST_NAMED = 5  # jobs or workers that a sentence names
SILENT = 15.0  # seconds without a sign of life that are worth a word


class Finding(Struct, frozen=True):
    """A reason that holds."""

    reason: Reason
    until: datetime | None = None
    details: dict[str, Any] = {}
    words: dict[str, Any] = {}  # for the sentence, where they are not those of the details
    further: tuple[str, ...] = ()  # sentences


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
        yield from found or [_in_line(facts)]


def _ended(facts: Facts) -> Finding:
    job = facts.job
    error = "" if job.error is None else f": {_error(job)}"
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
        further.append(f"It is {job.progress.fraction:.0%} done{_colon(job.progress.text)}.")
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
    words = {"key": key, "until_words": " as long as it takes" if until is None else f" until {_when(facts, until)}"}
    return Finding(Reason.WAITS_FOR_ANSWER, until, {"job_key": job.job_key, "start_time": job.start_time}, words)


# What may stand in the way of a job that nobody has, in the order in which it has to go away.


def _expires(facts: Facts) -> Finding | None:
    job, expires = facts.job, facts.job.expires_time
    if expires is None or facts.place is Place.UNDECIDED:
        return None
    if expires <= facts.now:
        return Finding(Reason.EXPIRED, None, {"expires_time": expires})
    if job.scheduled_run_time >= expires:
        return Finding(Reason.EXPIRES_FIRST, expires, {"expires_time": expires, "time_windows": list(job.time_windows)})
    return None


def _retry_handler(facts: Facts) -> Finding | None:
    if facts.place is not Place.UNDECIDED:
        return None
    having = [worker for worker in facts.workers if facts.job.job_type in worker.types]
    who = f"{_workers(having)} will be asked" if having else "no live worker has it"
    return Finding(
        Reason.RETRY_HANDLER, None, _failure(facts.job) | {"workers": _ids(having)}, {"who": who, **_error_word(facts)}
    )


def _time(facts: Facts) -> Finding | None:
    """Its time has not come, whatever put it there."""
    job = facts.job
    if facts.place is Place.UNDECIDED:
        return None
    opening = _opening(facts)
    if opening is not None:
        return Finding(Reason.WINDOW, opening, {"time_windows": list(job.time_windows)}, _listed(job.time_windows))
    if facts.due:
        return None
    until = job.scheduled_run_time
    if job.state is State.ERROR:
        return Finding(Reason.RETRY_DELAY, until, _failure(job), _error_word(facts))
    if job.situation is Situation.LOOSE:
        return Finding(Reason.SNOOZED, until, {"attempt": job.attempt})
    return Finding(Reason.NOT_DUE, until, {"scheduled_run_time": until})


def _opening(facts: Facts) -> datetime | None:
    """The opening that it waits for; None if its windows are open, or if it is wanted later than that."""
    job = facts.job
    if not job.time_windows:
        return None
    parsed = windows.parse_all(job.time_windows)
    if facts.due:
        closed = windows.closes(parsed, job.scheduled_run_time)
        return windows.opens(parsed, facts.now) if closed is not None and closed <= facts.now else None
    opening = windows.opens(parsed, facts.now)
    return opening if opening > facts.now and opening == job.scheduled_run_time else None


def _paused(facts: Facts) -> Finding | None:
    if not facts.paused:
        return None
    since = ""
    if facts.pause_time is not None:
        since = f" since {_when(facts, facts.pause_time)}, by {facts.paused_by}"
    details = {"queue": facts.job.queue, "pause_time": facts.pause_time, "paused_by": facts.paused_by}
    return Finding(Reason.PAUSED, None, details, {"since": since})


def _no_worker(facts: Facts) -> Finding | None:
    """Which of the things that a worker needs none of the living has."""
    job, living = facts.job, facts.workers
    if facts.able or facts.place is Place.UNDECIDED:
        return None
    having = [worker for worker in living if job.job_type in worker.types]
    missing = _missing_labels(facts)
    if not living:
        problem, why = "none", "none is running"
    elif any(worker.serves(job.queue) for worker in having):
        problem, why = (
            "stopping",
            f"{_workers(having)} {_verb(having, 'is', 'are')} stopping, and no other handles `{job.job_type}`",
        )
    elif having:
        served = sorted({queue for worker in having for queue in worker.queues})
        problem, why = (
            "queue",
            (
                f"{_workers(having)} {_verb(having, 'handles', 'handle')} `{job.job_type}`, but {_verb(having, 'serves', 'serve')} only "
                f"{wording.listing(served, 'queue')}, not `{job.queue}`"
            ),
        )
    elif missing:
        problem, why = (
            "labels",
            (
                f"`{job.job_type}` requires {wording.listing(facts.labels, 'label')}, and {_nobody(living, 'has', 'have')} {wording.listing(missing, 'label')}"
            ),
        )
    else:
        never = "" if facts.has_handler else ", and no code has declared a handler for it yet"
        problem, why = "type", f"{_nobody(living, 'handles', 'handle')} `{job.job_type}`{never}"
    details = {
        "problem": problem,
        "job_type": job.job_type,
        "queue": job.queue,
        "required_labels": list(facts.labels),
        "missing_labels": missing,
        "workers": [_worker_seen(facts, worker) for worker in living[:MOST_DETAILED]],
    }
    return Finding(Reason.NO_WORKER, None, details, {"why": why})


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
    }


def _breaker(facts: Facts) -> Finding | None:
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
    since = "" if found.opened_time is None else f", open since {_when(facts, found.opened_time)}"
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
        "why": f"{failures} none starts until {_when(facts, found.probe_time)}, and then one to probe the type",
    }
    return Finding(Reason.BREAKER_OPEN, found.probe_time, details, words)


def _throttled(facts: Facts) -> Finding | None:
    """What a claim would be told, for this job alone and then behind those before it (W3)."""
    job, limit = facts.job, facts.throttle_limit
    alone = throttle.admit(limit, facts.used, [throttle.Candidate(job.id, job.throttle_factor)])
    numbers = {"queue": job.queue, "throttle_limit": limit, "throttle_factor": job.throttle_factor, "used": facts.used}
    words = {name: f"{numbers[name]:g}" for name in ("throttle_limit", "throttle_factor", "used")}
    if not alone.admitted and alone.reserved_for is None:
        return Finding(Reason.FACTOR_ABOVE_LIMIT, None, numbers, words)
    if not facts.due or facts.place is Place.UNDECIDED:
        return None
    numbers |= {"used_by": list(facts.users), "used_by_count": facts.user_count, **_line(facts)}
    if alone.reserved_for is not None:
        named = _named(facts.users, facts.user_count)
        return Finding(Reason.THROTTLED, None, numbers, words | {"users": named})
    reserved_for = throttle.admit(limit, facts.used, facts.before[:MOST_BEFORE]).reserved_for
    if reserved_for is None or job.throttle_factor == 0:
        return None
    return Finding(Reason.RESERVED, None, numbers | {"reserved_for": reserved_for}, words)


def _out_of_line(facts: Facts) -> Finding | None:
    return Finding(Reason.OUT_OF_LINE) if facts.place is None and facts.due else None


OBSTACLES: Sequence[Callable[[Facts], Finding | None]] = (
    _expires,
    _retry_handler,
    _time,
    _paused,
    _no_worker,
    _breaker,
    _throttled,
    _out_of_line,
)


def _in_line(facts: Facts) -> Finding:
    """Nothing is in its way but others."""
    job = facts.job
    line = _line(facts)
    details: dict[str, Any] = {"queue": job.queue, **line}
    words = {"line": _line_words(facts, line)}
    if job.situation is not Situation.LOOSE:
        further = (f"Its attempt {job.attempt} failed: {_error(job)}.",) if job.error is not None else ()
        return Finding(Reason.IN_LINE, None, details, words, further)
    details |= {"attempt": job.attempt, "losses": job.losses, "crashes": job.crashes, "cause": _cause(facts)}
    if job.losses >= ALONE_AFTER:
        return Finding(Reason.ALONE, None, details, words)
    return Finding(Reason.LOOSE, None, details, words | {"cause": CAUSES.get(str(details["cause"]), "is over")})


CAUSES: dict[str, str] = {
    AttemptEnd.LOST: "was lost with its worker",
    AttemptEnd.HANDED_BACK: "was handed back by its worker",
    AttemptEnd.SNOOZED: "was snoozed, and that is over",
    AttemptEnd.ANSWERED: "got the answer that its response handler is to be called with",
}


def _cause(facts: Facts) -> str | None:
    last = facts.last_attempt
    return None if last is None or last.attempt != facts.job.attempt else _text(last.outcome)


def _runnable(facts: Facts) -> list[throttle.Candidate]:
    """Those before it that some live worker could run now: the others are passed over."""
    return [each for each in facts.before[:MOST_BEFORE] if each.runnable]


def _line(facts: Facts) -> dict[str, Any]:
    able = facts.able
    return {
        "before": len(_runnable(facts)),
        "more_before": len(facts.before) > MOST_BEFORE,
        "workers": _ids(able),
        "slots": sum(worker.concurrency for worker in able),
        "slots_busy": sum(min(worker.held, worker.concurrency) for worker in able),
    }


def _line_words(facts: Facts, line: dict[str, Any]) -> str:
    count = line["before"]
    more = "more than " if line["more_before"] else ""
    before = "it is the next" if not (count or more) else f"{more}{count} {'job' if count == 1 else 'jobs'} before it"
    slots, free = line["slots"], line["slots"] - line["slots_busy"]
    counted = "the only slot" if slots == 1 else f"{free} of {slots} slots" if free else f"all {slots} slots"
    verb = "is" if slots == 1 or free == 1 else "are"
    return f"{before}, and {counted} of {_workers(facts.able)} {verb} {'free' if free else 'busy'}"


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


BY_TIME = frozenset({Reason.NOT_DUE, Reason.WINDOW, Reason.RETRY_DELAY, Reason.SNOOZED})
BY_OTHERS = frozenset({Reason.THROTTLED, Reason.RESERVED, Reason.IN_LINE, Reason.LOOSE, Reason.ALONE})


def _start_in_line(facts: Facts, limited: bool) -> datetime | None:
    line = _line(facts)
    if line["more_before"]:
        return None
    free = 0 if limited else line["slots"] - line["slots_busy"]
    since = facts.job.scheduled_run_time
    return forecast.start(facts.now, line["before"] + 1 - free, forecast.speed(facts.ends, since, facts.now))


def _further(
    facts: Facts, main: Finding, took: forecast.Usual | None, start: datetime | None, end: datetime | None
) -> Iterator[str]:
    if _keeps_answer(facts.job):
        yield "An answer to it came early and is kept until it waits."
    if main.reason is Reason.HELD:
        if end is not None:
            yield f"It should end at about {_when(facts, end)}."
    elif start is not None and main.reason in BY_OTHERS and start > facts.now:
        yield f"It should start at about {_when(facts, start)}."
    if took is not None and main.reason is not Reason.HELD and not facts.job.final:
        yield f"`{facts.job.job_type}` usually takes {wording.span(took.median)}."


# Words


def _sentence(facts: Facts, finding: Finding) -> str:
    job = facts.job
    told = {name: getattr(job, name) for name in job.__struct_fields__} | finding.details
    told |= {"until": finding.until} | finding.words
    shown = {name: _when(facts, value) if isinstance(value, datetime) else value for name, value in told.items()}
    return f"Job {job.id} ({job.job_type}) {REASONS[finding.reason].sentence.format_map(shown)}"


def _when(facts: Facts, moment: datetime) -> str:
    return wording.when(moment, facts.now)


def _text(value: StrEnum | None) -> str | None:
    return None if value is None else str(value)


def _failure(job: Job) -> dict[str, Any]:
    error = None if job.error is None else structs.asdict(job.error)
    return {"attempt": job.attempt, "failures": job.failures, "retries": job.retries, "error": error}


def _error_word(facts: Facts) -> dict[str, str]:
    return {"error": _error(facts.job)}


def _error(job: Job) -> str:
    if job.error is None:
        return "an error"
    text = " ".join(f"{job.error.type}: {job.error.message}".split())
    return (text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 1] + "…").rstrip(".")


LONGEST_ERROR = 200  # characters of an error in a sentence


def _keeps_answer(job: Job) -> bool:
    return job.answer is not None and not job.answer.due


def _colon(text: str) -> str:
    return f": {text}" if text else ""


def _listed(time_windows: Sequence[str]) -> dict[str, str]:
    return {"time_windows": ", ".join(time_windows)}


def _named(ids: Sequence[int], count: int) -> str:
    """`jobs 1, 2, 3, 4, 5 and 12 others`."""
    if not ids:
        return "nothing"
    shown = [str(job) for job in ids[:MOST_NAMED]]
    left = count - len(shown)
    if left:
        shown.append(f"{left} {'other' if left == 1 else 'others'}")
    return f"{'job' if count == 1 else 'jobs'} {wording.joined(shown)}"


def _ids(workers: Sequence[WorkerSeen]) -> list[int]:
    return [worker.id for worker in workers[:MOST_DETAILED]]


def _workers(workers: Sequence[WorkerSeen]) -> str:
    if len(workers) == 1:
        return f"worker {workers[0].id} ({workers[0].name})"
    return f"{len(workers)} workers"


def _verb(workers: Sequence[WorkerSeen], one: str, many: str) -> str:
    return one if len(workers) == 1 else many


def _nobody(living: Sequence[WorkerSeen], one: str, many: str) -> str:
    if len(living) == 1:
        return f"the only live worker, {living[0].id} ({living[0].name}), does not {many}"
    return f"none of the {len(living)} live workers {one}"
