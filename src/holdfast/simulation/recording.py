"""A day that was, taken from an instance: its queues, types and workers as a description, and its jobs as they came.

- Nothing is changed in the instance.
- A job keeps of its own what differs from the defaults of its type, so that a change of those can be tried out on the day.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Any

import msgspec

from holdfast.errors import NotFound
from holdfast.jobs.job import Attempt, AttemptEnd, Job
from holdfast.simulation.fleet import Ending, Recorded
from holdfast.stores.contract import Filter, QueueRow, Store, TypeRow, WorkerRow

AT_A_TIME = 1000
OWN_ENDS = (AttemptEnd.SUCCESS, AttemptEnd.ERROR, AttemptEnd.TIMEOUT, AttemptEnd.FAILED, AttemptEnd.ABORTED)
OPTIONS = ("priority", "timeout", "throttle_factor", "retries", "time_windows")
COUNTED = ("on_crash", "max_crashes", "prefer_for")


def described(store: Store) -> dict[str, Any]:
    """The instance as a description says it; with its living workers."""
    found = {
        "queues": {row.name: _queue(row) for row in store.queues()},
        "types": {name: _type(row) for name, row in store.types().items()},
        "workers": _workers(store.workers()),
    }
    return {name: table for name, table in found.items() if table}


def _queue(row: QueueRow) -> dict[str, Any]:
    found: dict[str, Any] = {"throttle_limit": row.throttle_limit, "order": row.claim_order}
    throttler = msgspec.json.decode(row.throttler) if row.throttler else {}
    if throttler.get("kind", "function") != "function":
        found["throttler"] = throttler
    return found


def _type(row: TypeRow) -> dict[str, Any]:
    found = {name: getattr(row, f"default_{name}") for name in OPTIONS}
    found |= {name: getattr(row, name) for name in ("queue", *COUNTED)}
    found |= {name: list(getattr(row, name)) for name in ("labels", "prefers") if getattr(row, name)}
    found["time_windows"] = list(row.default_time_windows)
    if row.retry is not None:
        found["retry"] = msgspec.json.decode(row.retry)
    return {name: "none" if value is None else value for name, value in found.items()}


def _workers(rows: Sequence[WorkerRow]) -> dict[str, Any]:
    """Those that run jobs; which are alike are one entry."""
    kinds: dict[str, dict[str, Any]] = {}
    for row in (each for each in rows if each.types and "run" in each.duties):
        table: dict[str, Any] = {"concurrency": row.concurrency, "types": list(row.types)}
        table |= {"labels": list(row.labels)} if row.labels else {}
        table |= {} if row.every_queue else {"queues": list(row.queues)}
        kind = kinds.setdefault(msgspec.json.encode(table).decode(), {**table, "count": 0})
        kind["count"] += 1
    return {f"workers-{index}": table for index, table in enumerate(kinds.values(), 1)}


def functions(store: Store) -> list[str]:
    """Queues whose throttler is a function: they are played without it."""
    return [row.name for row in store.queues() if row.throttler and '"function"' in row.throttler]


def recorded(store: Store, since: datetime, until: datetime, count: Callable[[int], None]) -> list[Recorded]:
    """The jobs that were enqueued between the two, oldest first; `NotFound` if there are none."""
    rows = store.types()
    found: list[tuple[Job, tuple[Ending, ...]]] = []
    for jobs in _pages(store, since, until):
        attempts = store.attempts_of(jobs)
        found += [(job, _endings(job, attempts[job.id])) for job in jobs]
        count(len(found))
    if not found:
        raise NotFound(
            f"No job was enqueued between {since} and {until}; `holdfast jobs list` shows when there were any."
        )
    usual = _usual(found)
    return [
        Recorded(
            job.create_time,
            job.job_type,
            _options(job, rows[job.job_type]),
            endings if job.final and endings else (*endings, Ending(usual.get(job.job_type, 1.0))),
        )
        for job, endings in sorted(found, key=lambda each: (each[0].create_time, each[0].id))
    ]


def _pages(store: Store, since: datetime, until: datetime) -> Iterator[Sequence[Job]]:
    before: int | None = None
    while True:
        wanted = Filter(before=before, limit=AT_A_TIME, archive=True, create_time_since=since, create_time_until=until)
        page = store.page(wanted)
        if page.jobs:
            yield page.jobs
        if page.before is None:
            return
        before = page.before


def _endings(job: Job, attempts: Sequence[Attempt]) -> tuple[Ending, ...]:
    """How long each attempt took that came to an end of its own; losses and hand-backs are the workers' affair."""
    found = []
    for each in attempts:
        if each.outcome not in OWN_ENDS or each.start_time is None or each.end_time is None:
            continue
        seconds = (each.end_time - each.start_time) / timedelta(seconds=1)
        if each.attempt == job.attempt and job.answer is not None and job.execution_time is not None:
            seconds = job.execution_time  # without the time in which it waited for the answer
        if each.outcome is AttemptEnd.TIMEOUT and job.timeout is not None:
            seconds = max(seconds, job.timeout) + 0.001
        ended = each.outcome in (AttemptEnd.FAILED, AttemptEnd.ABORTED)
        found.append(Ending(max(0.0, seconds), each.outcome is AttemptEnd.SUCCESS, ended))
    return tuple(found)


def _usual(found: Sequence[tuple[Job, tuple[Ending, ...]]]) -> dict[str, float]:
    """What an attempt of each type takes, for jobs that have not had their last yet."""
    seconds: dict[str, list[float]] = {}
    for job, endings in found:
        seconds.setdefault(job.job_type, []).extend(each.seconds for each in endings)
    return {name: median(each) for name, each in seconds.items() if each}


def _options(job: Job, row: TypeRow) -> Mapping[str, Any]:
    options: dict[str, Any] = {
        name: getattr(job, name) for name in OPTIONS if getattr(job, name) != getattr(row, f"default_{name}")
    }
    options["payload"] = msgspec.json.encode(job.payload).decode()
    if job.queue != row.queue:
        options["queue"] = job.queue
    if job.job_key is not None:
        options["job_key"] = job.job_key
    if job.expires_time is not None:
        options["expires_time"] = job.expires_time
    retried = job.attempt > 1 or (job.failures and not job.final)
    if not retried and not job.time_windows and job.scheduled_run_time > job.create_time:
        options["delay"] = (job.scheduled_run_time - job.create_time).total_seconds()
    return options
