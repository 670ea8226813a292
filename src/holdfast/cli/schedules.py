"""`holdfast schedules`: jobs that are made by themselves; look at them, add, remove and fire."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast import strict_json, views
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.jobs import read_json
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid, quoted

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {"list": list_, "history": history, "add": add, "remove": remove, "fire": fire}
    noun(root, "schedules", "Schedules: jobs that are made by themselves.", verbs)


def list_(
    call: Call,
    removed: Annotated[
        bool, typer.Option("--removed", help="Also those that an operator removed and the code declares.")
    ] = False,
) -> None:
    """Every schedule, the newest first."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        rows = sorted(app.schedules(removed=removed), key=lambda row: (row.create_time, row.name), reverse=True)
        now = app.store.now()
    if call.json:
        say_json([views.schedule(row.schedule, row, app.secrets(row.schedule.job_type)) for row in rows])
        return

    def at(moment: datetime | None) -> str:
        return "–" if moment is None else tables.relative(moment, now)

    headers = ("schedule", "when", "zone", "job type", "next", "last", "count", "misfire", "source", "")
    cells = [
        (
            *(row.name, row.schedule.when, row.schedule.zone or "", row.schedule.job_type),
            *(at(row.next_time), at(row.last_time), str(row.count), row.schedule.misfire, row.source),
            "removed" if row.removed else row.problem or "",
        )
        for row in rows
    ]
    spare = ("zone", "misfire", "source", "last")
    tables.show(tables.listing(headers, cells, right=("count",), spare=spare), empty="There are no schedules.")


def history(
    call: Call,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 50,
) -> None:
    """What a schedule has fired, the newest first."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        found = app.firings(name, limit)
    if call.json:
        say_json([views.firing(row) for row in found])
        return
    headers = ("firing", "time", "fired", "job", "by", "")
    cells = [
        (
            *(str(row.count), tables.moment(row.time), tables.moment(row.fire_time), str(row.job), row.actor),
            "that job had the key already" if row.duplicate else "",
        )
        for row in found
    ]
    tables.show(
        tables.listing(headers, cells, whole=("job",), right=("firing", "job")),
        empty=f"Schedule `{name}` has not fired yet.",
    )


def add(
    call: Call,
    name: Name,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)] = "",
    job_type: Annotated[str, typer.Argument(metavar="JOB_TYPE", show_default=False)] = "",
    payload: Annotated[
        str,
        typer.Argument(metavar="PAYLOAD", help="Arguments as a JSON object, with {count} and {time}; - reads them."),
    ] = "{}",
    cron: Annotated[str | None, typer.Option(help="Five or six fields, as '0 3 * * *'. Needs --zone.")] = None,
    zone: Annotated[str | None, typer.Option(help="The clock that cron goes by, as Europe/Amsterdam or UTC.")] = None,
    every: Annotated[float | None, typer.Option(help="Seconds between two times.")] = None,
    at: Annotated[list[str] | None, typer.Option(help="A point in time, as 2026-12-24T18:00:00Z; repeat it.")] = None,
    start: Annotated[str | None, typer.Option(help="Not before this moment.")] = None,
    end: Annotated[str | None, typer.Option(help="Before this moment.")] = None,
    misfire: Annotated[str, typer.Option(help="About times that were missed: skip, once or all.")] = "once",
    const: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A variable for the payload; the value is JSON or text."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The jobs' key: one that still lives is not doubled.")] = None,
    priority: Annotated[float | None, typer.Option(help="Lower is more urgent.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for each attempt.")] = None,
    retries: Annotated[int | None, typer.Option(help="How often an error is retried.")] = None,
    declared: Annotated[
        bool, typer.Option("--declared", help="Take back what the code declares under this name.")
    ] = False,
) -> None:
    """Add a schedule, or put another in its place. It wins over what code declares until --declared takes that back."""
    from holdfast.cli import instance

    if not declared and not (queue and job_type):
        raise Invalid("Which jobs? Give QUEUE and JOB_TYPE, or --declared for what the code declares.")
    given: dict[str, Any] = {
        "cron": cron,
        "zone": zone,
        "every": every,
        "at": None if not at else [_moment(text, "--at") for text in at],
        "start": _moment(start, "--start"),
        "end": _moment(end, "--end"),
        "job_key": key,
        "priority": priority,
        "timeout": timeout,
        "retries": retries,
    }
    given = {word: value for word, value in given.items() if value is not None}
    if declared and (queue or given):
        raise Invalid("--declared takes back what the code declares; leave everything else out.")
    with instance.existing(call.settings()) as app:
        if declared:
            row = app.reset_schedule(name, actor=instance.actor())
        else:
            arguments = _object(sys.stdin.read() if payload == "-" else payload)
            given |= {"const": _constants(const or ()), "misfire": misfire, "actor": instance.actor()}
            row = app.add_schedule(name, queue, job_type, arguments, **given)
    if call.json:
        say_json(views.schedule(row.schedule, row, app.secrets(row.schedule.job_type)))
        return
    coming = "has no time to come" if row.next_time is None else f"comes next at {row.next_time.isoformat()}"
    say(f"Schedule `{name}` ({row.schedule.when}) {coming}.")


def remove(call: Call, name: Name) -> None:
    """Remove a schedule: it fires no more, though code declares it."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        app.remove_schedule(name, actor=instance.actor())
    if call.json:
        say_json({"name": name, "removed": True})
    else:
        say(f"Schedule `{name}` is removed.")


def fire(call: Call, name: Name) -> None:
    """Fire a schedule now, apart from its times."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        job = app.fire_schedule(name, actor=instance.actor())
    if call.json:
        say_json(views.job(job))
    elif job.duplicate:
        say(f"Schedule `{name}` made no job: job {job.id} ({job.job_type}) has its key and is `{job.state}`.")
    else:
        say(f"Schedule `{name}` made job {job.id} ({job.job_type}) on {job.queue}.")


def _object(text: str) -> dict[str, Any]:
    found = read_json(text, "The payload", '\'{"name": "value"}\'')
    if not isinstance(found, dict):
        raise Invalid(f"The payload is {quoted(text.strip())}; it must be a JSON object of the arguments.")
    return found


def _constants(texts: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise Invalid(f"--const is {quoted(text)}; write it as NAME=VALUE.")
        try:
            found[name] = strict_json.parse(value)
        except json.JSONDecodeError:
            found[name] = value
        except ValueError as error:
            raise Invalid(f"--const is {quoted(text)}: {error}.") from error
    return found


def _moment(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise Invalid(f"{option} is {quoted(text)}; write a time as 2026-12-24T18:00:00Z.") from error
    if found.tzinfo is None:
        raise Invalid(
            f"{option} is {quoted(text)}, without a time zone; write {found.isoformat()}Z for UTC, or an offset as +02:00."
        )
    return found
