"""docs/reference/python.md: the public names with their signatures and docstrings."""

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

import holdfast
from docs.generator import text
from holdfast import compose, declare, testing
from holdfast.clock import MovableClock
from holdfast.jobs.breaker import Breaker
from holdfast.jobs.placement import DutyRule
from holdfast.jobs.routines import Routine
from holdfast.jobs.schedules import Schedule
from holdfast.routines import RoutineTurn
from holdfast.stores.contract import FiringRow, PartRow, RoutineRow, ScheduleRow
from holdfast.worker.around import WrappedJob
from holdfast.worker.handler import CurrentJob
from holdfast.worker.worker import Worker
from holdfast.workflows.task import Task

# The public names by chapter, and the classes one meets through them.
CHAPTERS: dict[str, tuple[str, ...]] = {
    "Declaring, enqueueing, working": ("App", "Queue", "JobType", "Using", "Worker", "DutyRule"),
    "Jobs": ("Job", "JobError", "Move", "Attempt", "LogLine", "Progress", "Explanation"),
    "Workflows": ("Workflow", "Task", "Run", "StepView", "TaskOfRun"),
    "Schedules": ("Schedule", "ScheduleRow", "FiringRow"),
    "Routines": ("RoutineTurn", "Routine", "RoutineRow", "PartRow"),
    "In a handler": ("current_job", "CurrentJob", "WrappedJob", "Failed", "Retry", "Snooze", "GIVE_UP", "WAIT"),
    "Throttling a queue": ("share", "per_key", "rate", "ADMIT", "REFUSE", "Reschedule", "ThrottledJob"),
    "Delays between retries": ("NoDelay", "Fixed", "Linear", "Exponential", "Adaptive", "Breaker"),
    "Errors": (
        "HoldfastError",
        "Invalid",
        "NotFound",
        "Conflict",
        "DuplicateJob",
        "IllegalMove",
        "Unavailable",
        "JobFailed",
    ),
    "For tests": ("rehearse", "Rehearsal", "crash_here", "MovableClock"),
}
MET: dict[str, Any] = {
    "Queue": declare.Queue,
    "JobType": declare.JobType,
    "Using": declare.Using,
    "Worker": Worker,
    "CurrentJob": CurrentJob,
    "MovableClock": MovableClock,
    "WrappedJob": WrappedJob,
    "rehearse": testing.rehearse,
    "Rehearsal": testing.Rehearsal,
    "crash_here": testing.crash_here,
    "Workflow": compose.Workflow,
    "Task": Task,
    "Run": compose.Run,
    "StepView": compose.StepView,
    "TaskOfRun": compose.TaskOfRun,
    "Schedule": Schedule,
    "ScheduleRow": ScheduleRow,
    "FiringRow": FiringRow,
    "DutyRule": DutyRule,
    "RoutineTurn": RoutineTurn,
    "Routine": Routine,
    "RoutineRow": RoutineRow,
    "PartRow": PartRow,
    "Breaker": Breaker,
}

# Public by their spelling, but for the other parts of Holdfast.
INTERNAL = {
    "App": {"declare", "redeclare", "store", "add", "handlers", "await_final", "worker_for_ever", "point_at"},
    "JobType": {"row"},
    "Reschedule": {"time"},
    "Task": {"effects"},
    "Run": {"row"},
    "Worker": set(vars(Worker)) - {"start", "stop", "stopping", "stopped"},
}
NO_CALL = {
    *("Queue", "JobType", "Using", "Worker", "CurrentJob", "Job", "JobError", "Move", "Attempt", "LogLine", "Progress"),
    *("Explanation", "MovableClock", "Breaker", "WrappedJob", "Rehearsal"),
    "ThrottledJob",
    *("Workflow", "Task", "Run", "StepView", "TaskOfRun"),
    "Schedule",
    "ScheduleRow",
    "FiringRow",
    *("DutyRule", "RoutineTurn", "Routine", "RoutineRow", "PartRow"),
}

# What a name's own docstring leaves out.
NOTES = {
    "App": "Its arguments are explained under [settings](settings.md). Nothing is opened until the first operation.",
    "App.queue": "Declaring it again gives the same queue.",
    "App.queues": "The declared queues by name.",
    "App.job_types": "The declared job types by name.",
    "App.transaction": "Gives the connection: psycopg's on PostgreSQL, apsw's on SQLite. A second one inside is `Invalid`.",
    "App.enqueue": "`options` are those of [using](#jobtypeusing).",
    "App.resume": "Let a paused queue go on.",
    "App.schedule": "Times, variables and policies are explained in [schedule jobs](../guides/schedule-jobs.md).",
    "Schedule": "What `app.schedule(…)` gives. See [schedule jobs](../guides/schedule-jobs.md).",
    "ScheduleRow": "What `app.schedules()` gives.",
    "ScheduleRow.name": "The schedule's name.",
    "FiringRow": "What `app.firings(name)` gives.",
    "DutyRule": "What `app.switch_duty(…)` gives. See [place work](../guides/place-work.md#switch-duties).",
    "RoutineTurn": "See [run a routine](../guides/run-a-routine.md). It also has `routine` (the name), `index`, `scale` and `number`.",
    "Routine": "Part of a `RoutineRow`.",
    "Routine.job_type": "The type of its turns.",
    "RoutineRow": "What `app.routines()` gives.",
    "RoutineRow.name": "The routine's name.",
    "PartRow": "Part of a `RoutineRow`.",
    "App.worker": "`settings` are the [worker's](settings.md#the-worker). `with` starts and stops it.",
    "App.run_worker": "`settings` as for `worker`.",
    "Queue": "Made by `app.queue(…)`.",
    "Queue.name": "As declared.",
    "JobType": "Made by `@queue.job`.",
    "JobType.enqueue": "Store a job with these arguments; the job as stored.",
    "JobType.aenqueue": "`enqueue` for the event loop.",
    "JobType.enqueue_many": "A job for each mapping of arguments; all of them or none.",
    "Using": "Made by `job_type.using(…)`.",
    "Using.new": "A job for `app.enqueue_many`, checked but not stored.",
    "Using.enqueue": "Store a job with these arguments and the options.",
    "Worker": "Made by `app.worker(…)`.",
    "Worker.stopping": "It was told to stop.",
    "Job.final": "Whether it has ended.",
    "Explanation": "The reasons stand [here](reasons.md).",
    "CurrentJob": "What `current_job()` gives.",
    "CurrentJob.id": "The job's id.",
    "CurrentJob.attempt": "The number of this attempt, from 1.",
    "CurrentJob.job_type": "The job's type.",
    "CurrentJob.job_key": "The job's key, or None.",
    "CurrentJob.queue": "The job's queue.",
    "WAIT": text.meanwhile("R3", "A handler that returns it today ends in an error that says so."),
    "Breaker": "What `app.breakers()` gives. See [choose retries](../guides/choose-retries.md#adapt-to-what-the-type-needs).",
    "Breaker.closed": "Whether jobs of the type start.",
    "App.around": "See [the guide](../guides/wrap-every-attempt.md).",
    "WrappedJob": "What a function under `@app.around` is given.",
    "rehearse": "`from holdfast.testing import rehearse`, for `with`; pytest has a fixture of this name. See [testing](../guides/test-your-jobs.md).",
    "Rehearsal": "What `rehearse` gives: the `app` and its `clock`, a `MovableClock`.",
    "crash_here": "`from holdfast.testing import crash_here`.",
    "MovableClock": "`from holdfast.testing import MovableClock`; `rehearse` makes one, and `App(…, clock=MovableClock())` takes one.",
    "MovableClock.now": "The moment it shows.",
    "MovableClock.monotonic": "The seconds that it was moved by `advance`.",
}

JOB_OPTIONS = {
    "function": "The handler, when `@queue.job` is written without brackets.",
    "name": "The `job_type`; without it the function's name.",
    "timeout": "Seconds for each attempt, from the call of the handler. None: no limit.",
    "retries": "How many errors are retried. None: no limit.",
    "retry": "The delay before a retry. None: at once after a timeout, else `Exponential()`.",
    "priority": "Lower is more urgent.",
    "throttle_factor": "What a job counts for under its queue's `throttle_limit` (W3).",
    "time_windows": "Hours in which a job may start, as `mon-fri 22:00-06:00 Europe/Amsterdam`. Empty: always.",
    "on_crash": '`"rerun"`: started again when its worker is lost. `"timeout"`: left `running` until its timeout, then an error.',
    "max_crashes": "How often it may kill its process while alone in it, before it ends. None: for ever.",
    "isolation": '`"thread"`: in the worker (an `async def` on its event loop). `"process"`: in a child process.',
    "labels": "Labels that a worker must have (F20).",
    "secrets": "Names of arguments that views, logs and errors do not show.",
    "prefers": "Labels whose workers get its jobs first. Others take them when none of those is live, or after `prefer_for` (F20).",
    "prefer_for": "Seconds that a due job is left to workers with the labels it prefers.",
}
QUEUE_OPTIONS = {
    "name": "Lower-case words joined by underscores.",
    "throttle_limit": "The most that may run at once, as a sum of `throttle_factor`; below 1 there is no limit (W3).",
    "throttler": "`share(…)`, `per_key(…)`, `rate(…)` or a [function](../guides/throttle-a-queue.md#decide-in-code) that admits jobs (W4).",
    "order": '`"priority"`: priority before time. `"schedule"`: time before priority.',
}
SCHEDULE_OPTIONS = {
    "name": "Letters, digits, `_`, `-` and `.`.",
    "job": "The job type, or its name.",
    "workflow": "A workflow of this app, or its name, of which a run is submitted instead of a job.",
    "request": "The template of the run's request: `trigger`, `params`, `steps`, `ignore`, `priority`.",
    "cron": "Five or six fields, as `0 3 * * *`.",
    "zone": "The clock that `cron` goes by, as `Europe/Amsterdam`.",
    "every": "Seconds between two times, or a timedelta; aligned to `start`, else to 1970.",
    "at": "Points in time, aware datetimes.",
    "start": "Not before this moment.",
    "end": "Before this moment.",
    "payload": "The handler's arguments, a template with `{count}`, `{time}` and constants.",
    "const": "The template's constants by name.",
    "misfire": 'What is done about times that were missed: `"skip"`, `"once"` or `"all"`.',
    "options": "Of the jobs, as for [using](#jobtypeusing): `job_key` (a template too), `priority`, `timeout`, `retries`, "
    "`throttle_factor`, `time_windows`, `on_duplicate`.",
}
ROUTINE_OPTIONS = {
    "function": "The function, when the decorator is called with it.",
    "every": "Seconds from the end of a turn to the next one of its part, or a timedelta.",
    "name": "Letters, digits, `_`, `-` and `.`; without it the function's name.",
    "scale": "How many parts it has, at most 1,000.",
    "queue": "The queue of its turns.",
    "keep": "How many ended turns are kept of each part.",
    "retry": "How long a part waits after errors, where that is longer than `every`. None: `Exponential()`.",
    "timeout": "Seconds for each turn. None: no limit.",
    "options": "As for [job](#queuejob): `priority`, `throttle_factor`, `time_windows`, `on_crash`, `max_crashes`, `isolation`, "
    "`labels`, `prefers`, `prefer_for`.",
}
USING_OPTIONS = {
    "job_key": "At most one living job has this type and key.",
    "scheduled_run_time": "Not before this moment, an aware datetime.",
    "delay": "Not before so many seconds from now (or a timedelta).",
    "priority": "Instead of the type's.",
    "timeout": "Instead of the type's.",
    "throttle_factor": "Instead of the type's.",
    "time_windows": "Instead of the type's.",
    "expires": "Not after this moment, an aware datetime; then it ends `error`, expired.",
    "on_duplicate": '`"return"` the living job, `"raise"` `DuplicateJob`, or `"replace"` what the job holds if it has not started.',
    "retries": "Instead of the type's.",
    "connection": "Enqueue in the transaction of this connection.",
}
JOB_FIELDS = {
    "id": "Positive, growing, never given out twice in an instance.",
    "job_type": "What is to be done.",
    "job_key": "At most one living job has this type and key. None: no such rule.",
    "queue": "Where it stands.",
    "state": "[`initial`, `running`, `error` or `final`](states.md).",
    "status": "The state in [other words](states.md#status).",
    "situation": "Of a `running` job: [who has it](states.md#situations).",
    "outcome": "Of a `final` job: [how it ended](states.md#outcomes).",
    "payload": "The handler's arguments.",
    "result": "What the handler returned.",
    "error": "Why the last attempt failed, or None; `str()` of it is the message.",
    "attempt": "How often it was started. The last start has this number.",
    "failures": "How many attempts ended in an error.",
    "losses": "How many attempts in a row were lost with their worker.",
    "crashes": "How many of them while it ran alone in its process.",
    "retries": "How many errors are retried. None: no limit.",
    "priority": "Lower is more urgent.",
    "timeout": "Seconds for each attempt. None: no limit.",
    "throttle_factor": "What it counts for under its queue's `throttle_limit` (W3).",
    "time_windows": "The hours in which it may start.",
    "scheduled_run_time": "When it is wanted next; on a final job, when it was last wanted.",
    "expires_time": "The moment after which it is not started any more.",
    "create_time": "When it was enqueued.",
    "update_time": "Its last change.",
    "start_time": "The last start.",
    "end_time": "When it became final.",
    "execution_time": "Seconds of the last attempt.",
    "total_time": "Seconds of all attempts.",
    "worker": "The worker of the last attempt, by its identity.",
    "retry_of": "The final job that this one repeats.",
    "progress": "How far its handler said it is, or None.",
    "answer": "From outside: one that came before it waits, or the one that its response handler is to be called with.",
    "run": "The run of a workflow whose task it is, by its id.",
    "duplicate": "This answer to `enqueue` is the living job that had the key already.",
    "archived": "It was read from the archive.",
    "damaged": "Columns of its row that cannot be read. Their values say so.",
}


def page() -> str:
    """Every public name has its heading; one that no chapter has is an error."""
    named = {name for names in CHAPTERS.values() for name in names}
    text.exactly(dict.fromkeys(named - set(MET), ""), holdfast.__all__, "holdfast.__all__")
    parts = ["# Python\n", text.MADE, "Everything without another address is imported from `holdfast`.\n"]
    for chapter, names in CHAPTERS.items():
        parts.append(f"## {chapter}\n")
        for name in names:
            parts += entry(name, MET[name] if name in MET else getattr(holdfast, name))
    made = "\n".join(parts)
    stray = [name for name in NOTES if f"# {name}\n" not in made]
    if stray:
        raise LookupError(f"Notes about names that there are not: {stray}")
    return made


def entry(name: str, value: Any) -> list[str]:
    """One name: its call, what it promises, its fields, its members."""
    kind = value if isinstance(value, type) or inspect.isfunction(value) else type(value)
    parts = [f"### {name}\n"]
    if isinstance(value, type) and issubclass(value, holdfast.HoldfastError):
        return [*parts, f"{text.prose(value.__doc__)} Its codes stand under [errors](errors.md).\n"]
    if name not in NO_CALL and (isinstance(value, type) or inspect.isfunction(value)):
        parts.append(text.block(text.signature(name, value)))
    parts.append(said(name, kind.__doc__))
    if name in NO_CALL and isinstance(value, type) and issubclass(value, msgspec.Struct):
        parts.append(fields(name, value))
    if isinstance(value, type) and not issubclass(value, Exception):
        parts += members(name, value)
    return parts


def said(name: str, docstring: str | None) -> str:
    words = [part for part in (text.prose(docstring), NOTES.get(name)) if part]
    return "\n\n".join(words) + "\n" if words else ""


def fields(name: str, value: type[msgspec.Struct]) -> str:
    """The fields of a value; those of a job have a meaning each."""
    shown = [field for field in structs.fields(value) if value is not holdfast.Job or field.name != "source"]
    means = text.comments(value)
    if value is holdfast.Job:
        means = dict(text.exactly(JOB_FIELDS, (field.name for field in shown), "Job"))
    rows = [
        (text.code(field.name), text.code(text.annotation(field.type)), text.prose(means.get(field.name)))
        for field in shown
    ]
    if not means:
        return text.table(("field", "type"), [row[:2] for row in rows])
    return text.table(("field", "type", ""), rows)


def members(name: str, value: type) -> list[str]:
    """Public methods and properties, in the order they are written."""
    parts = []
    for member, defined in vars(value).items():
        if member.startswith("_") or member in INTERNAL.get(name, ()) or member in text.annotations(value):
            continue
        parts += one_member(name, member, defined)
    return parts


def one_member(owner: str, member: str, defined: Any) -> list[str]:
    title = f"{owner}.{member}"
    if isinstance(defined, property):
        returned = text.annotation(inspect.signature(defined.fget).return_annotation)  # type: ignore[arg-type]
        return [f"#### {title}\n", text.block(f"{title}: {returned}"), said(title, defined.__doc__)]
    if not inspect.isfunction(defined):
        return []
    begin = "async " if inspect.iscoroutinefunction(defined) else ""
    parts = [
        f"#### {title}\n",
        text.block(begin + text.signature(title, defined, bound=True)),
        said(title, defined.__doc__),
    ]
    if title in ("App.queue", "Queue.job"):
        means = QUEUE_OPTIONS if title == "App.queue" else JOB_OPTIONS
        parts.append(options(means, list(inspect.signature(defined).parameters)[1:], title))
    if title == "App.schedule":
        parts.append(options(SCHEDULE_OPTIONS, list(inspect.signature(defined).parameters)[1:], title))
    if title == "App.routine":
        parts.append(options(ROUTINE_OPTIONS, list(inspect.signature(defined).parameters)[1:], title))
    if title == "JobType.using":
        parts.append(options(USING_OPTIONS, [*declare.OPTIONS, "connection"], "using"))
    return parts


def options(means: dict[str, str], names: Sequence[str], what: str) -> str:
    text.exactly(means, names, what)
    return text.table(("option", ""), [(text.code(name), text.prose(means[name])) for name in names])
