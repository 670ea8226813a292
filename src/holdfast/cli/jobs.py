"""`holdfast jobs`: look at jobs, add them, end them, run them again."""

import contextlib
import sys
from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast import strict_json, views
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid, quoted
from holdfast.jobs.job import Job, LogLine, Outcome, State

ON_SCREEN, FOR_PROGRAMS = 50, 1000  # jobs in a list unless --limit says otherwise

Id = Annotated[int, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {
        "list": list_,
        "show": show,
        "history": history,
        "attempts": attempts,
        "explain": explain,
        "log": log,
        "tail": tail,
        "enqueue": enqueue,
        "complete": complete,
        "fail": fail,
        "abort": abort,
        "retry": retry,
    }
    noun(root, "jobs", "Jobs: look at them, add them, end them, run them again.", verbs)


def list_(
    call: Call,
    job_type: Annotated[str | None, typer.Option(help="Only jobs of this type.")] = None,
    job_key: Annotated[str | None, typer.Option(help="Only jobs with this key.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only jobs of this queue.")] = None,
    state: Annotated[State | None, typer.Option(help="Only jobs in this state.")] = None,
    status: Annotated[
        str | None, typer.Option(help="Only jobs in this status: " + ", ".join(views.STATUSES) + ".")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help=f"How many.  [{ON_SCREEN}; with --json {FOR_PROGRAMS}]")
    ] = None,
    archive: Annotated[bool, typer.Option("--archive", help="Archived jobs too.")] = False,
) -> None:
    """The newest jobs, in all states."""
    from holdfast.cli import instance, job_page, tables

    most = limit or (FOR_PROGRAMS if call.json else ON_SCREEN)
    with instance.existing(call.settings()) as app:
        found = app.find(
            job_type=job_type,
            job_key=job_key,
            queue=queue,
            state=None if state is None else state.value,
            status=status,
            limit=most + 1,
            archive=archive,
        )
        now = app.store.now()
    jobs, more = found[:most], len(found) > most
    if call.json:
        say_json([views.job(job) for job in jobs])
        return
    tables.show(job_page.listing(jobs, now), empty="There are no such jobs.")
    if more:
        say(f"These are the newest {most}; --limit shows more.")


def show(call: Call, job: Id) -> None:
    """One job: its facts, its history and its attempts."""
    from holdfast.cli import instance, job_page, tables

    with instance.existing(call.settings()) as app:
        found, moves, tries, now = app.get(job), app.history(job), app.attempts(job), app.store.now()
        why = app.explain(job)
    if call.json:
        told = {"history": [views.move(move) for move in moves], "attempts": [views.attempt(each) for each in tries]}
        say_json(views.job(found) | told | {"explanation": views.explanation(why)})
        return
    tables.show(*job_page.page(found, moves, tries, why, now))


def history(call: Call, job: Id) -> None:
    """Every move of a job, with its cause and who caused it."""
    from holdfast.cli import instance, job_page, tables

    with instance.existing(call.settings()) as app:
        moves = app.history(job)
    if call.json:
        say_json([views.move(move) for move in moves])
        return
    tables.show(job_page.history(moves))


def attempts(call: Call, job: Id) -> None:
    """Every attempt of a job, with its error and traceback."""
    from holdfast.cli import instance, job_page, tables

    with instance.existing(call.settings()) as app:
        tries = app.attempts(job)
    if call.json:
        say_json([views.attempt(each) for each in tries])
    elif tries:
        tables.show(*job_page.attempt_blocks(tries))
    else:
        say(f"Job {job} was not attempted yet.")


def log(call: Call, job: Id) -> None:
    """What a job's handler said, as far as it is kept."""
    from holdfast.cli import instance, tables
    from holdfast.cli import tail as tailing

    with instance.existing(call.settings()) as app:
        app.get(job)
        found = list(tailing.lines(app, job, 0))
    if call.json:
        say_json([views.log_line(line) for line in found if isinstance(line, LogLine)])
    elif found:
        tables.show(*(tailing.words(line) for line in found))
    else:
        say(f"Job {job} has said nothing.")


def tail(call: Call, job: Id) -> None:
    """Follow a job until it is final: its log, progress and states as they come. Ctrl-C stops following."""
    from holdfast.cli import instance
    from holdfast.cli import tail as tailing

    with contextlib.suppress(KeyboardInterrupt), instance.existing(call.settings()) as app:
        tailing.follow(app, job, call.json)


def explain(call: Call, job: Id) -> None:
    """Why a job is not running, in a sentence; of one that runs: where, and for how long that is usual."""
    from holdfast.cli import instance, job_page, tables

    with instance.existing(call.settings()) as app:
        found = app.explain(job)
    if call.json:
        say_json(views.explanation(found))
        return
    tables.show(*job_page.explanation(found))


def enqueue(
    call: Call,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)],
    job_type: Annotated[str, typer.Argument(metavar="JOB_TYPE", show_default=False)],
    payload: Annotated[str, typer.Argument(metavar="PAYLOAD", help="Arguments as a JSON object; - reads them.")] = "{}",
    key: Annotated[str | None, typer.Option(help="The job's key: one living job for each type and key.")] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds from now.")] = None,
    at: Annotated[str | None, typer.Option(help="When, as 2026-12-24T18:00:00Z.")] = None,
    priority: Annotated[float | None, typer.Option(help="Lower is more urgent.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for each attempt.")] = None,
    retries: Annotated[int | None, typer.Option(help="How often an error is retried.")] = None,
    on_duplicate: Annotated[str | None, typer.Option(help="When the key is taken: return, raise or replace.")] = None,
) -> None:
    """Add a job. A key that a living job has gives that job."""
    from holdfast.cli import instance

    arguments = _arguments(sys.stdin.read() if payload == "-" else payload)
    options = {
        "job_key": key,
        "delay": delay,
        "scheduled_run_time": _time(at),
        "priority": priority,
        "timeout": timeout,
    }
    options |= {"retries": retries, "on_duplicate": on_duplicate}
    given = {name: value for name, value in options.items() if value is not None}
    with instance.existing(call.settings()) as app:
        job = app.enqueue(queue, job_type, arguments, **given)
    if call.json:
        say_json(views.job(job))
    elif job.duplicate:
        say(f"Job {job.id} ({job.job_type}) has this key already and is `{job.state}`.")
    else:
        say(f"Job {job.id} ({job.job_type}) is enqueued on {job.queue}.")


Which = Annotated[
    list[str],
    typer.Argument(
        metavar="ID | JOB_TYPE JOB_KEY", help="The job, by its id or by its type and key.", show_default=False
    ),
]


def complete(
    call: Call,
    which: Which,
    result: Annotated[str | None, typer.Option(help="The answer as JSON; - reads it.")] = None,
) -> None:
    """Answer a job that waits: it succeeds with this result, or its response handler decides."""
    from holdfast.cli import instance

    text = sys.stdin.read() if result == "-" else result
    value = None if text is None else read_json(text, "The result", "'{\"ok\": true}'")
    with instance.existing(call.settings()) as app:
        _tell_answered(call, app.complete(**_which(which), result=value, actor=instance.actor()))


def fail(
    call: Call,
    which: Which,
    error: Annotated[str, typer.Option(help="Why.")] = "failed",
    retry: Annotated[
        bool, typer.Option("--retry", help="As an exception would: the job is retried if it may be.")
    ] = False,
) -> None:
    """Answer a job that waits with a failure."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        _tell_answered(call, app.fail(**_which(which), error=error, retry=retry, actor=instance.actor()))


def _which(words: list[str]) -> dict[str, Any]:
    if len(words) == 1 and words[0].isdecimal():
        return {"job_id": int(words[0])}
    if len(words) == 2:
        return {"job_type": words[0], "job_key": words[1]}
    raise Invalid(f"Which job is {quoted(' '.join(words))}? Give its id, or its type and its key.")


def _tell_answered(call: Call, job: Job) -> None:
    if call.json:
        say_json(views.job(job))
    elif job.final:
        say(f"Job {job.id} ({job.job_type}) is answered and final: {job.outcome}.")
    elif job.answer is not None and not job.answer.due:
        say(f"Job {job.id} ({job.job_type}) does not wait yet; the answer is kept until it does.")
    else:
        say(f"Job {job.id} ({job.job_type}) is answered.")


def abort(call: Call, job: Id) -> None:
    """End a job. One that runs is ended by its worker, within 10 s."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        ended = app.abort(job, actor=instance.actor())
    if call.json:
        say_json(views.job(ended))
    elif ended.outcome is Outcome.ABORTED:
        say(f"Job {ended.id} ({ended.job_type}) is aborted.")
    else:
        say(f"Job {ended.id} ({ended.job_type}) runs; its worker is asked to end it.")


def retry(call: Call, job: Id) -> None:
    """Run a final job again: a new job of the same type, key and payload."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        new = app.retry(job, actor=instance.actor())
    if call.json:
        say_json(views.job(new))
    else:
        say(f"Job {new.id} ({new.job_type}) is enqueued on {new.queue}; it repeats job {job}.")


def _arguments(text: str) -> dict[str, Any]:
    found = read_json(text, "The payload", '\'{"name": "value"}\'')
    if not isinstance(found, dict):
        raise Invalid(
            f"The payload is {quoted(text.strip())}; it must be a JSON object, the names and values of the arguments."
        )
    return found


def read_json(text: str, what: str, example: str) -> Any:
    """As the API reads it."""
    try:
        return strict_json.parse(text)
    except ValueError as error:
        raise Invalid(f"{what} is not JSON: {error}. Write it as {example}.") from error


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise Invalid(f"--at is {quoted(text)}; write a time as 2026-12-24T18:00:00Z.") from error
    if found.tzinfo is None:
        raise Invalid(
            f"--at is {quoted(text)}, without a time zone; write {found.isoformat()}Z for UTC, or an offset as +02:00."
        )
    return found
