"""What is wrong now, told from a glance at the instance: each trouble in one sentence, with what to do about it.

A function of what was read; nothing here asks a store.
"""

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from msgspec import Struct

from holdfast.jobs.breaker import Breaker, BreakerState
from holdfast.jobs.wording import relative, span
from holdfast.stores.contract import Glance, QueueLoad, RunRow, ScheduleRow, WorkerRow

SILENT = 15.0  # seconds without a sign of life
TOO_LONG_DUE = 60.0  # seconds, as the sweepers count (C4)
PAST_TIMEOUT = 15.0  # seconds in which a worker should have ended the job
MOST_NAMED = 5


class Trouble(Struct, frozen=True):
    """Something that a person should look at."""

    tone: str  # bad or warn
    text: str
    cure: str
    link: str = ""


class Known(Struct, frozen=True):
    """What was read at about the same moment."""

    seen: Glance
    workers: Sequence[WorkerRow]
    breakers: Sequence[Breaker]
    schedules: Sequence[ScheduleRow]
    runs: Sequence[RunRow]  # that ended in an error or are stuck


def troubles(known: Known) -> list[Trouble]:
    """The worst first."""
    found = [
        *_no_worker(known),
        *_unhandled(known),
        *_past_timeout(known),
        *_silent(known),
        *_dead(known),
        *_runs(known),
        *_breakers(known),
        *_queues(known),
        *_schedules(known),
    ]
    return sorted(found, key=lambda trouble: trouble.tone != "bad")


def _no_worker(known: Known) -> Iterator[Trouble]:
    if any(not worker.stopping for worker in known.workers):
        return
    due = sum(load.ready + load.parked + load.aside for load in known.seen.queues)
    said = f"{_jobs_are(due)} due" if due else "nothing is due yet"
    yield Trouble(
        "bad" if due else "warn", f"No worker is alive; {said}.", "Start one: holdfast worker module:app", "/workers"
    )


def _unhandled(known: Known) -> Iterator[Trouble]:
    if not known.workers:
        return
    for job_type, count in sorted(known.seen.unhandled.items()):
        if any(breaker.job_type == job_type and not breaker.closed for breaker in known.breakers):
            continue
        if any(job_type in worker.types for worker in known.workers):
            continue
        yield Trouble(
            "bad",
            f"No live worker handles {job_type}: {_jobs_are(count)} waiting.",
            "Run a worker whose code declares this job type.",
            f"/jobs?job_type={quote(job_type, safe='')}",
        )


def _past_timeout(known: Known) -> Iterator[Trouble]:
    for job in known.seen.slowest[:MOST_NAMED]:
        seconds = (known.seen.time - job.start_time).total_seconds()
        if job.timeout is not None and seconds > job.timeout + PAST_TIMEOUT:
            yield Trouble(
                "bad",
                f"Job {job.id} ({job.job_type}) is stuck: it has been running for {span(seconds)}, past its timeout of {span(job.timeout)}.",
                "Its worker should have ended it. Look at what it says, or abort it.",
                f"/jobs/{job.id}",
            )


def _silent(known: Known) -> Iterator[Trouble]:
    for worker in known.workers:
        seconds = (known.seen.time - worker.beat_time).total_seconds()
        if seconds > SILENT:
            held = known.seen.in_hand.get(worker.id, 0)
            yield Trouble(
                "warn",
                f"Worker {worker.id} ({worker.name}) has given no sign of life for {span(seconds)}; it holds {_jobs(held)}.",
                "If it is dead, another worker takes its jobs over by itself.",
                "/workers",
            )


def _dead(known: Known) -> Iterator[Trouble]:
    for load in known.seen.queues:
        if load.dead:
            more = "at least " if "dead" in load.about else ""
            yield Trouble(
                "bad",
                f"{more}{_jobs(load.dead)} of queue {load.name} ended without success in the last hour.".capitalize(),
                "Look at their errors, mend the cause, and retry them together.",
                f"/jobs?status=dead&queue={load.name}",
            )


def _runs(known: Known) -> Iterator[Trouble]:
    for run in known.runs[:MOST_NAMED]:
        yield Trouble(
            "bad",
            f"Run {run.trigger} of workflow {run.workflow} is {run.state}.",
            "Retry runs only what erred; archive it if nothing is to be done.",
            f"/workflows/{quote(run.workflow, safe='')}/{quote(run.trigger, safe='')}",
        )


def _breakers(known: Known) -> Iterator[Trouble]:
    for breaker in known.breakers:
        if breaker.closed:
            continue
        probe = "one job probes it now" if breaker.state is BreakerState.PROBING else "one job probes it soon"
        if breaker.state is BreakerState.OPEN and breaker.probe_time is not None:
            probe = f"one job probes it {relative(breaker.probe_time, known.seen.time)}"
        yield Trouble(
            "warn",
            f"The breaker of {breaker.job_type} is {breaker.state.value} after {breaker.failures} failures in a row; {probe}.",
            "Mend what the type needs; a probe that succeeds lets the others go on.",
            f"/jobs?job_type={quote(breaker.job_type, safe='')}",
        )


def _queues(known: Known) -> Iterator[Trouble]:
    free = sum(max(0, worker.concurrency - known.seen.in_hand.get(worker.id, 0)) for worker in known.workers)
    for load in known.seen.queues:
        due = load.ready + load.parked + load.aside
        if load.paused and due:
            yield Trouble(
                "warn", f"Queue {load.name} is paused, and {_jobs_are(due)} due in it.", "Resume it.", "/queues"
            )
        elif load.due_since is not None and free and load.ready and not _full(load):
            seconds = (known.seen.time - load.due_since).total_seconds()
            if seconds > TOO_LONG_DUE:
                yield Trouble(
                    "warn",
                    f"A job of queue {load.name} has been due for {span(seconds)} although workers have free slots.",
                    "Its page says why it does not run.",
                    f"/jobs?queue={load.name}&state=initial",
                )


def _full(load: QueueLoad) -> bool:
    return load.throttle_limit >= 1 and load.used + 1 > load.throttle_limit


def _schedules(known: Known) -> Iterator[Trouble]:
    for row in known.schedules:
        if row.problem is not None and not row.removed:
            yield Trouble(
                "warn", f"Schedule {row.name} could not fire: {row.problem}", "Correct it or remove it.", "/schedules"
            )


def _jobs(count: int) -> str:
    return f"{count:,} job{'s' * (count != 1)}"


def _jobs_are(count: int) -> str:
    return f"{_jobs(count)} {'is' if count == 1 else 'are'}"
