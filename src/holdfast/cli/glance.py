"""The picture that `holdfast top` shows. It is drawn from what stands beside the jobs and costs the same with any number of them."""

import contextlib
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast import views
from holdfast.app import App
from holdfast.cli import tables
from holdfast.cli.output import say_json
from holdfast.clock import sleep
from holdfast.errors import Unavailable
from holdfast.stores.contract import Glance, QueueLoad, Running, WorkerRow

EVERY = 1.0  # seconds
BAR = 10  # characters of a progress bar


def can_refresh() -> bool:
    return tables.console().is_terminal


def print_json(app: App) -> None:
    seen, workers = app.store.glance(), app.store.workers()
    say_json(
        {
            "time": views.moment(seen.time),
            "instance": app.name,
            "queues": [views.queue_load(load) for load in seen.queues],
            "workers": [views.worker(row, seen.in_hand.get(row.id, 0)) for row in workers],
            "slowest": [views.running(job) for job in seen.slowest],
        }
    )


def print_once(app: App) -> None:
    tables.console().print(picture(app))


def refresh(app: App) -> None:
    """Until Ctrl-C, also while the database is away for a moment."""
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(picture(app), console=tables.console(), screen=True, auto_refresh=False) as live,
    ):
        while True:
            sleep(EVERY)
            try:
                live.update(picture(app), refresh=True)
            except Unavailable as error:
                live.update(Text(str(error), style="red"), refresh=True)


def picture(app: App) -> RenderableType:
    """One frame."""
    seen, workers = app.store.glance(), app.store.workers()
    parts: list[RenderableType] = [headline(app, seen, len(workers)), Text(), queues(seen)]
    parts += [Text(), hands(seen, workers)] if workers else [Text("\nNo worker is alive.", style="yellow")]
    if seen.slowest:
        parts += [Text("\nRunning longest", style="bold"), slowest(seen)]
    return Group(*parts)


def headline(app: App, seen: Glance, workers: int) -> Text:
    running = sum(load.running for load in seen.queues)
    rate = sum(load.ended_per_second for load in seen.queues)
    words = f"  {running} running, {rate:.1f} ended per second, {workers} worker{'s' * (workers != 1)}"
    return Text.assemble((app.name, "bold"), words, (f"  {tables.moment(seen.time)}", "dim"))


def queues(seen: Glance) -> RenderableType:
    headers = ("queue", "ready", "waiting", "parked", "running", "limit", "ended/s", "")
    rows = [
        (
            load.name,
            *(count(load, name) for name in ("ready", "waiting", "parked", "running")),
            f"{load.throttle_limit:g}" if load.throttle_limit >= 1 else "–",
            f"{load.ended_per_second:.1f}",
            "paused" if load.paused else "",
        )
        for load in seen.queues
    ]
    return tables.listing(headers, rows, right=headers[1:7], spare=("parked",))


def count(load: QueueLoad, name: str) -> str:
    """`about` is said of what is not counted to its end."""
    return f"about {getattr(load, name)}+" if name in load.about else str(getattr(load, name))


def hands(seen: Glance, workers: Sequence[WorkerRow]) -> RenderableType:
    rows = [
        (
            str(row.id),
            row.name,
            f"{seen.in_hand.get(row.id, 0)}/{row.concurrency}",
            tables.relative(row.beat_time, seen.time),
            "stopping" if row.stopping else "",
        )
        for row in workers
    ]
    return tables.listing(("worker", "name", "jobs", "last beat", ""), rows, right=("worker", "jobs"))


def slowest(seen: Glance) -> RenderableType:
    rows = [
        (
            str(job.id),
            job.job_type,
            job.job_key or "",
            job.queue,
            str(job.attempt),
            tables.span(max(0.0, (seen.time - job.start_time).total_seconds())),
            bar(job),
        )
        for job in seen.slowest
    ]
    headers = ("id", "type", "key", "queue", "attempt", "for", "progress")
    return tables.listing(
        headers, rows, whole=("id", "for"), right=("id", "attempt", "for"), spare=("queue", "attempt")
    )


def bar(job: Running) -> str:
    if job.progress is None:
        return ""
    full = round(job.progress.fraction * BAR)
    return f"{'█' * full}{'░' * (BAR - full)} {job.progress.fraction:.0%} {job.progress.text}".rstrip()
