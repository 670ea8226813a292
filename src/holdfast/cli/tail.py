"""A job as it goes on: its log, its progress and its states, each as it comes.

The job is read before its log: once it is final, everything it said is there.
"""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from holdfast import views
from holdfast.app import App
from holdfast.cli import job_page, tables
from holdfast.cli.output import say_json, visible
from holdfast.clock import sleep
from holdfast.jobs.job import Job, LogLine, Progress

LOOK_EVERY = 0.2  # seconds
PAGE = 1000  # lines read at once
LEVEL_COLOURS = {"DEBUG": "dim", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}


class Gap:
    """Lines that were dropped before one that is there."""

    def __init__(self, count: int) -> None:
        self.count = count


Seen = Job | Progress | LogLine | Gap  # a job stands for its new state


def follow(app: App, job_id: int, json: bool) -> None:
    """Print what is there and what comes, until the job is final."""
    console = tables.console()
    for seen in changes(app, job_id):
        if json:
            say_json(shape(seen), lines=True)
        else:
            console.print(words(seen), soft_wrap=True)


def changes(app: App, job_id: int) -> Iterator[Seen]:
    last, progress, told = 0, None, None
    while True:
        job = app.get(job_id)
        if (job.state, job.situation, job.attempt) != told and not job.final:
            told = job.state, job.situation, job.attempt
            yield job
        for seen in lines(app, job_id, last):
            last = seen.id if isinstance(seen, LogLine) else last
            yield seen
        if job.progress is not None and job.progress != progress:
            progress = job.progress
            yield progress
        if job.final:
            yield job
            return
        sleep(LOOK_EVERY)


def lines(app: App, job_id: int, last: int) -> Iterator[LogLine | Gap]:
    """The lines behind the last one, and how many are missing where some are."""
    while found := app.log(job_id, last, PAGE):
        for line in found:
            if line.id > last + 1:
                yield Gap(line.id - last - 1)
            last = line.id
            yield line


def shape(seen: Seen) -> dict[str, Any]:
    """For programs: `event` says what it is."""
    if isinstance(seen, LogLine):
        return {"event": "log", **views.log_line(seen)}
    if isinstance(seen, Gap):
        return {"event": "dropped", "lines": seen.count}
    if isinstance(seen, Progress):
        return {"event": "progress", "fraction": seen.fraction, "text": seen.text}
    return {"event": "state", **views.job(seen)}


def words(seen: Seen) -> Text:
    """For people: a line each."""
    if isinstance(seen, LogLine):
        return log_line(seen)
    if isinstance(seen, Gap):
        return Text(f"… {seen.count} line{'s' * (seen.count != 1)} dropped …", style="dim")
    if isinstance(seen, Progress):
        return Text(visible(f"▸ {seen.fraction:.0%} {seen.text}".rstrip()), style="cyan")
    attempt = f" (attempt {seen.attempt})" if seen.attempt else ""
    error = "" if seen.error is None else visible(f": {seen.error.type}: {seen.error.message}")
    return Text.assemble("→ ", job_page.state(seen), attempt, error)


def log_line(line: LogLine) -> Text:
    level = Text(f"{line.level:<8}", style=LEVEL_COLOURS.get(line.level, ""))
    return Text.assemble(tables.moment(line.time), " ", level, " ", visible(line.text))
