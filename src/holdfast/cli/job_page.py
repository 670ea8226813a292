"""Jobs as people read them: a row in the list, and the page of one job."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.cli import tables
from holdfast.cli.output import paragraph, visible
from holdfast.jobs.job import Attempt, Job, JobError, Move, Situation
from holdfast.jobs.reasons import Explanation

LONGEST_ERROR = 60  # characters of an error in the list


def listing(jobs: Sequence[Job], now: datetime) -> Table:
    """A row a job."""
    headers = ("id", "type", "key", "queue", "state", "attempt", "when", "error")
    rows = [
        (
            str(job.id),
            job.job_type,
            job.job_key or "",
            job.queue,
            state(job),
            str(job.attempt),
            when(job, now),
            "" if job.error is None else _shortened(job.error),
        )
        for job in jobs
    ]
    return tables.listing(
        headers, rows, whole=("id", "state", "when"), right=("id", "attempt"), spare=("queue", "attempt")
    )


def page(
    job: Job, moves: Sequence[Move], attempts: Sequence[Attempt], why: Explanation, now: datetime
) -> list[RenderableType]:
    """Everything about one job."""
    title = Text.assemble((f"Job {job.id}", "bold"), "  ", visible(job.job_type), "  ", state(job))
    parts: list[RenderableType] = [
        title,
        *([] if job.final else explanation(why)),
        tables.facts(_facts(job, now)),
        Text("\nHistory", style="bold"),
        history(moves),
    ]
    if attempts:
        parts += [Text("\nAttempts", style="bold"), *attempt_blocks(attempts)]
    return parts


def explanation(why: Explanation) -> list[RenderableType]:
    """The reason and its sentence, and a line for each other reason that holds."""
    parts: list[RenderableType] = [_reason(str(why.reason), why.text, "bold yellow")]
    return parts + [
        _reason(f"also {other['reason']}", other["text"], "yellow") for other in why.details.get("also", ())
    ]


def _reason(name: str, text: str, style: str) -> Text:
    return Text.assemble((name, style), ": ", visible(text))


def history(moves: Sequence[Move]) -> Table:
    """The moves of a job, the first one first."""
    rows = [
        (
            tables.moment(move.time),
            move.from_state or "",
            tables.coloured(f"→ {move.to_state}", move.to_state),
            str(move.attempt),
            move.cause,
            move.actor,
        )
        for move in moves
    ]
    return tables.listing(
        ("time", "from", "to", "attempt", "cause", "by"),
        rows,
        whole=("time", "to"),
        right=("attempt",),
        spare=("from", "attempt"),
    )


def attempt_blocks(attempts: Sequence[Attempt]) -> list[RenderableType]:
    """The attempts of a job, each with the traceback that it left."""
    parts: list[RenderableType] = []
    for attempt in attempts:
        parts.append(_attempt_line(attempt))
        if attempt.error is not None:
            parts.append(tables.indented(Text(visible(f"{attempt.error.type}: {attempt.error.message}"))))
        if attempt.traceback:
            parts.append(_traceback(attempt.traceback))
    return parts


def state(job: Job) -> Text:
    """The state, with the outcome of a final job and the situation of a running one that nobody holds."""
    if job.outcome is not None:
        return tables.coloured(f"{job.state} {job.outcome}", job.outcome)
    if job.situation is not None and job.situation is not Situation.HELD:
        return tables.coloured(f"{job.state} {job.situation}", job.state)
    return tables.coloured(job.state, job.state)


def when(job: Job, now: datetime) -> str:
    """What is told of its time: when it is wanted, since when somebody has it, when it ended."""
    if job.end_time is not None:
        return tables.relative(job.end_time, now)
    if job.situation in (Situation.HELD, Situation.WAITING) and job.start_time is not None:
        return f"for {tables.span(max(0.0, (now - job.start_time).total_seconds()))}"
    if job.scheduled_run_time <= now:
        return f"due {tables.relative(job.scheduled_run_time, now)}"
    return tables.relative(job.scheduled_run_time, now)


def _facts(job: Job, now: datetime) -> list[tuple[str, str | Text]]:
    """Names and values; what a job does not have is left out."""
    found: list[tuple[str, Any]] = [
        ("job_key", job.job_key),
        ("queue", job.queue),
        ("status", job.status),
        ("attempt", f"{job.attempt} ({job.failures} failed, retries {_limit(job.retries)})"),
        ("lost", f"{job.losses} times in a row, {job.crashes} of them alone" if job.losses or job.crashes else None),
        ("priority", f"{job.priority:g}"),
        ("timeout", "none" if job.timeout is None else tables.span(job.timeout)),
        ("throttle_factor", f"{job.throttle_factor:g}"),
        ("time_windows", ", ".join(job.time_windows) or None),
        *((name, _moment(getattr(job, name), now)) for name in _times()),
        ("execution_time", None if job.execution_time is None else _spent(job)),
        ("progress", None if job.progress is None else f"{job.progress.fraction:.0%} {job.progress.text}".rstrip()),
        ("worker", job.worker),
        ("retry_of", None if job.retry_of is None else str(job.retry_of)),
        ("archived", "yes" if job.archived else None),
        ("payload", _json(job.shown_payload())),
        ("result", None if job.result is None else _json(job.shown_result())),
        ("error", None if job.error is None else f"{job.error.type} ({job.error.kind}): {job.error.message}"),
    ]
    return [(name, value) for name, value in found if value is not None]


def _times() -> tuple[str, ...]:
    return ("create_time", "scheduled_run_time", "expires_time", "start_time", "end_time")


def _moment(value: datetime | None, now: datetime) -> str | None:
    return None if value is None else f"{tables.moment(value)} ({tables.relative(value, now)})"


def _spent(job: Job) -> str:
    assert job.execution_time is not None
    return f"{tables.span(job.execution_time)}, {tables.span(job.total_time)} in all attempts"


def _limit(retries: int | None) -> str:
    return "without limit" if retries is None else str(retries)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _shortened(error: JobError) -> str:
    text = paragraph(f"{error.type}: {error.message}")
    return text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 1] + "…"


def _attempt_line(attempt: Attempt) -> Text:
    began = "not started" if attempt.start_time is None else tables.moment(attempt.start_time)
    words = [f"  {attempt.attempt}  ", began, "  "]
    outcome = tables.coloured(attempt.outcome or "running", attempt.outcome or "running")
    line = Text.assemble(*words, outcome)
    if attempt.start_time is not None and attempt.end_time is not None:
        line.append(f" after {tables.span((attempt.end_time - attempt.start_time).total_seconds())}")
    if attempt.worker is not None:
        line.append(visible(f"  worker {attempt.worker}"))
    return line


def _traceback(text: str) -> RenderableType:
    shown = Text(visible(text.rstrip()), overflow="fold")
    return tables.indented(Panel(shown, border_style="dim") if tables.console().is_terminal else shown)
