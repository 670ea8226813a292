"""`holdfast archive`: move what is old there now, write it to a file, let go of what is too old."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast.cli.command import Call, command
from holdfast.cli.output import say, say_json
from holdfast.config import LONGEST
from holdfast.errors import Invalid, quoted

AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|min|h|d)?")
UNITS = {None: 1, "s": 1, "min": 60, "h": 3600, "d": 86400}
OF_EXPORT = ("--job-type", "--queue", "--since", "--until", "--attempts", "--runs", "--workflow")
OF_JOBS = ("--job-type", "--queue", "--attempts")


def add_to(root: typer.Typer) -> None:
    command(root, "archive")(archive)


def archive(
    call: Call,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Move jobs that ended so long ago: 3600, 90min, 12h, 7d.  [archive_after]"),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Let go of archived jobs that ended longer ago, for ever.  [archive_keep]"),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Move nothing; write the archive to FILE as JSON lines, `-` is standard output, FILE.parquet is Parquet.",
        ),
    ] = None,
    job_type: Annotated[str | None, typer.Option(help="With --export: only jobs of this type.")] = None,
    queue: Annotated[str | None, typer.Option(help="With --export: only jobs of this queue.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --export: only jobs that ended then or later.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --export: only jobs that ended before.")
    ] = None,
    attempts: Annotated[bool, typer.Option("--attempts", help="With --export: every job with its attempts.")] = False,
    runs: Annotated[
        bool, typer.Option("--runs", help="With --export: runs of workflows with their steps, not jobs.")
    ] = False,
    workflow: Annotated[str | None, typer.Option(help="With --export --runs: only runs of this workflow.")] = None,
) -> None:
    """Move what ended a while ago to the archive, without waiting for a worker to do it; or export the archive."""
    if export is None:
        given = (job_type, queue, since, until, attempts or None, runs or None, workflow)
        for flag in (flag for flag, value in zip(OF_EXPORT, given, strict=True) if value is not None):
            raise Invalid(f"{flag} says what to export. Add --export FILE, or leave it out.")
        _move(call, _seconds(older_than, "--older-than"), _seconds(keep, "--keep"))
        return
    for flag in (flag for flag, value in (("--older-than", older_than), ("--keep", keep)) if value is not None):
        raise Invalid(f"{flag} beside --export: exporting neither moves nor removes anything. Do one after the other.")
    times = _time(since, "--since"), _time(until, "--until")
    if not runs:
        if workflow is not None:
            raise Invalid("--workflow says which runs to export. Add --runs, or leave it out.")
        _export(call, export, job_type, queue, *times, attempts)
        return
    for flag in (flag for flag, value in zip(OF_JOBS, (job_type, queue, attempts or None), strict=True) if value):
        raise Invalid(f"{flag} is about jobs, and --runs exports runs. Leave one of them out.")
    _export_runs(call, export, workflow, *times)


def _move(call: Call, older_than: float | None, keep: float | None) -> None:
    from holdfast.cli import instance
    from holdfast.cli.progress import counting

    with instance.existing(call.settings()) as app:
        after = app.archive_after if older_than is None else older_than
        limit = app.archive_keep if keep is None else keep
        if keep is not None and keep < after:
            raise Invalid(
                f"--keep {keep:g} s is shorter than the {after:g} s after which jobs are archived: both count from a job's end."
            )
        app.store.audit_archiving(instance.actor(), after, limit)
        with counting("archived") as count:
            runs = _all(lambda: app.store.archive_runs(after), lambda _: None)
            moved = _all(lambda: app.store.archive(after), count)
        with counting("let go of") as count:
            gone = 0 if limit is None else _all(lambda: app.store.forget_runs(limit), lambda _: None)
            forgotten = 0 if limit is None else _all(lambda: app.store.forget(limit), count)
    if call.json:
        say_json({"moved": moved, "forgotten": forgotten, "runs_moved": runs, "runs_forgotten": gone})
        return
    told = [f"Jobs moved to the archive: {moved}.", f"Runs: {runs}." if runs else ""]
    if limit is not None:
        told += [f"Jobs let go of: {forgotten}.", f"Runs: {gone}." if gone else ""]
    say(" ".join(filter(None, told)))


def _all(lot: Callable[[], int], count: Callable[[int], None]) -> int:
    """Lot after lot, until one is empty."""
    total = 0
    while done := lot():
        total += done
        count(total)
    return total


def _export(call: Call, file: str, *wanted: Any) -> None:
    from holdfast.cli import exporting, instance
    from holdfast.cli.progress import counting
    from holdfast.stores.contract import ArchivePage

    *filters, attempts = wanted
    with instance.existing(call.settings()) as app, counting("exported") as count:
        exported = exporting.export(app.store, file, ArchivePage(*filters), attempts, count)
    _tell_exported(call, "Jobs", file, exported)


def _export_runs(call: Call, file: str, *wanted: Any) -> None:
    from holdfast.cli import exporting, instance
    from holdfast.cli.progress import counting
    from holdfast.stores.contract import RunPage

    with instance.existing(call.settings()) as app, counting("exported") as count:
        exported = exporting.export_runs(app.store, file, RunPage(*wanted), count)
    _tell_exported(call, "Runs", file, exported)


def _tell_exported(call: Call, what: str, file: str, exported: int) -> None:
    if file == "-":  # they are what standard output is for
        return
    if call.json:
        say_json({"exported": exported, "file": file})
    else:
        say(f"{what} written to {file}: {exported}.")


def _seconds(text: str | None, flag: str) -> float | None:
    """A number of seconds, or one with its unit."""
    if text is None:
        return None
    found = AGE.fullmatch(text.strip())
    if found is None:
        raise Invalid(f"{flag} is {quoted(text)}; write seconds, or a number with its unit: 90min, 12h, 7d.")
    seconds = float(found[1]) * UNITS[found[2]]
    if seconds > LONGEST:
        raise Invalid(f"{flag} is {quoted(text)}; give at most a thousand years, {LONGEST / UNITS['d']:.0f}d.")
    return seconds


def _time(text: str | None, flag: str) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise Invalid(f"{flag} is {quoted(text)}; write a time as 2026-12-24T18:00:00Z.") from error
    if found.tzinfo is None:
        raise Invalid(
            f"{flag} is {quoted(text)}, without a time zone; write 2026-12-24T18:00:00Z for UTC, or an offset as +02:00."
        )
    return found
