"""The one JSON shape of each noun, for the API, `--json` and outgoing hooks.

- The tables say which names a shape has and in which order; a name is never missing, null stands for nothing.
- Moments are ISO 8601 in UTC with six decimals and a `Z`, durations are seconds.
- Rows of a store come in as structs: their types stand in a higher layer.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.builds.build import Build
from holdfast.jobs import damage
from holdfast.jobs.damage import Damaged
from holdfast.jobs.job import Attempt, Job, LogLine, Move, Situation
from holdfast.jobs.payload import load
from holdfast.jobs.reasons import Explanation
from holdfast.jobs.schedules import Schedule
from holdfast.jobs.secrets import redacted

JOB = (
    "id",
    "job_type",
    "job_key",
    "queue",
    "state",
    "status",
    "situation",
    "outcome",
    "payload",
    "result",
    "error",
    "attempt",
    "failures",
    "losses",
    "crashes",
    "retries",
    "priority",
    "timeout",
    "throttle_factor",
    "time_windows",
    "scheduled_run_time",
    "expires_time",
    "create_time",
    "update_time",
    "start_time",
    "end_time",
    "execution_time",
    "total_time",
    "worker",
    "retry_of",
    "progress",
    "answer",
    "run",
    "duplicate",
    "archived",
)
MOVE = ("time", "from_state", "to_state", "attempt", "cause", "actor")
ATTEMPT = ("attempt", "start_time", "end_time", "outcome", "error", "traceback", "worker")
LOG_LINE = ("id", "time", "attempt", "level", "text")
QUEUE_LOAD = (
    "name",
    "paused",
    "throttle_limit",
    "ready",
    "waiting",
    "parked",
    "running",
    "ended_per_second",
    "about",
    "aside",
    "held",
    "used",
    "dead",
    "due_since",
)
LOAD = QUEUE_LOAD[3:]  # without what the queue itself says
RUNNING = ("id", "job_type", "job_key", "queue", "attempt", "start_time", "worker", "progress", "timeout")
EXPLANATION = ("reason", "text", "until", "details")
QUEUE = ("name", "order", "throttle_limit", "declared_limit", "set_limit", "paused", "table_name")
BREAKER = ("job_type", "state", "failures", "opened_time", "probe_time", "probe", "successes", "retries")
SCHEDULE = (
    "name",
    "job_type",
    "cron",
    "zone",
    "every",
    "at",
    "start_time",
    "end_time",
    "misfire",
    "payload",
    "const",
    "options",
)
SCHEDULE_STORED = (
    "next_time",
    "last_time",
    "last_job",
    "count",
    "source",
    "declared",
    "removed",
    "problem",
    "create_time",
    "update_time",
)
FIRING = ("schedule", "count", "time", "fire_time", "job", "duplicate", "actor")
DUTY_RULE = ("id", "duty", "on", "label", "host", "version", "actor", "create_time")
ROUTINE = ("name", "job_type", "every", "scale", "keep")
ROUTINE_STORED = ("paused", "removed", "create_time", "update_time")
PART = ("index", "turns", "failures", "next_time", "last_job", "last_end_time", "last_outcome", "error", "error_time")
STATUSES = ("pending", "running", "failed", "completed", "dead")
RUN = (
    "id",
    "workflow",
    "trigger",
    "state",
    "progress",
    "aborted",
    "params",
    "ignore",
    "priority",
    "create_time",
    "update_time",
    "end_time",
    "archived",
)
STEP = ("state", "created", "undone", "succeeded", "failed", "errors", "all_created")
STEP_TIMES = ("start_time", "end_time", "creation_held")
STEP_EXPLANATION = ("step", "reason", "text", "details")
HOLD = ("level", "workflow", "trigger", "actor", "hold_time")
TYPE = (
    "job_type",
    "queue",
    "default_timeout",
    "default_priority",
    "default_throttle_factor",
    "default_time_windows",
    "default_retries",
    "on_crash",
    "max_crashes",
    "has_handler",
    "has_retry_handler",
    "has_response_handler",
    "labels",
    "secrets",
)
BUILD = (
    "id",
    "job_id",
    "project",
    "commit",
    "event",
    "branch",
    "tag",
    "pull_request",
    "forge",
    "trusted",
    "title",
    "author",
    "build_state",
    "outcome",
    "error",
    "attempt",
    "start_time",
    "end_time",
    "use_time",
    "create_time",
    "update_time",
)
BUILD_REF = ("ref", "branch", "tag", "pull_request")
BUILD_STEP = ("name", "state", "start_time", "end_time", "hidden", "reason", "log_start", "log_end")
OUTPUT = ("name", "size", "step")
WORKER = (
    "id",
    "name",
    "host",
    "pid",
    "version",
    "queues",
    "job_types",
    "labels",
    "duties",
    "concurrency",
    "start_time",
    "beat_time",
    "stopping",
)

AUDIT = ("id", "time", "actor", "action", "job", "attempt", "queue", "detail")
ATTEMPT_RECORD = ("id", "job", "attempt", "outcome", "state", "time", "error")
TOKEN = ("id", "name", "kind", "scope", "queues", "create_time", "expires_time", "use_time", "idle_expires_time")

Shape = dict[str, Any]


def job(value: Job) -> Shape:
    """A job, without its secret arguments and their values."""
    shown = {"payload": value.shown_payload(), "result": value.shown_result(), "answer": value.shown_answer()}
    return _shape(value, JOB) | {name: _plain(each) for name, each in shown.items()}


def move(value: Move) -> Shape:
    return _shape(value, MOVE)


def attempt(value: Attempt) -> Shape:
    return _shape(value, ATTEMPT)


def log_line(value: LogLine) -> Shape:
    return _shape(value, LOG_LINE)


def explanation(value: Explanation) -> Shape:
    return _shape(value, EXPLANATION)


def queue(row: Struct, counts: Mapping[str, int] | None = None, load: Struct | None = None) -> Shape:
    """A queue as it is stored, with how many jobs it has in each status, if they were counted, and how full it is."""
    throttler = getattr(row, "throttler", None)
    return _shape(row, QUEUE, order="claim_order") | {
        "throttler": _read(throttler),
        "jobs": None if counts is None else {status: counts.get(status, 0) for status in STATUSES},
        "load": None if load is None else _shape(load, LOAD),
    }


def job_type(row: Any) -> Shape:
    """A job type as it is registered, with the schema of its arguments and its retry policy."""
    parts = {name: getattr(row, name) for name in ("schema", "retry")}
    return _shape(row, TYPE) | {name: _read(text) for name, text in parts.items()}


def queue_load(row: Struct) -> Shape:
    """How full a queue is; counts named in `about` are at least that much."""
    return _shape(row, QUEUE_LOAD)


def running(row: Struct) -> Shape:
    """A job that a worker holds."""
    return _shape(row, RUNNING)


def breaker(value: Struct) -> Shape:
    """The breaker and the retry budget of a job type with adaptive retry."""
    return _shape(value, BREAKER)


def worker(row: Struct, jobs: int) -> Shape:
    """A worker as it joined, its last sign of life, and how many jobs it has in its hands."""
    return _shape(row, WORKER, job_types="types") | {"jobs": jobs}


def duty_rule(row: Struct) -> Shape:
    """A switch of a duty, and whom it fits."""
    return _shape(row, DUTY_RULE)


def moment(value: datetime) -> str:
    """ISO 8601 in UTC."""
    return value.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def schedule(value: Schedule, row: Struct, secrets: Collection[str]) -> Shape:
    """A schedule without its job type's secret arguments, and what is stored about it."""
    payload = {"payload": _plain(redacted(value.payload, secrets))}
    return _shape(value, SCHEDULE) | payload | _shape(row, SCHEDULE_STORED)


def firing(row: Struct) -> Shape:
    """One firing of a schedule."""
    return _shape(row, FIRING)


def routine(row: Any) -> Shape:
    """A routine with its parts; `running` and `failing` count them."""
    parts = [part(each) for each in row.parts]
    counts = {
        "running": sum(each["state"] == "running" for each in parts),
        "failing": sum(each["failures"] > 0 for each in parts),
        "turns": sum(each["turns"] for each in parts),
    }
    return _shape(row.routine, ROUTINE) | _shape(row, ROUTINE_STORED) | counts | {"parts": parts}


def part(row: Any) -> Shape:
    """A part of a routine: `running` while somebody has its turn, `waiting` for its time, or `idle` without a turn."""
    turn = row.turn
    began = turn is not None and turn.situation in (Situation.HELD, Situation.WAITING)
    told = {
        "state": "idle" if turn is None else "running" if began else "waiting",
        "job": None if turn is None else turn.id,
        "worker": turn.worker if began else None,
        "checkpoint": row.checkpoint,
    }
    return _shape(row, PART) | told


def text(value: Any) -> str:
    """A value as JSON on a line."""
    return msgspec.json.encode(value).decode()


def audit(row: Struct) -> Shape:
    """What somebody did from outside."""
    return _shape(row, AUDIT)


def attempt_record(row: Struct) -> Shape:
    """An attempt that did not end in plain success, as `/events` tells of it."""
    return _shape(row, ATTEMPT_RECORD)


def token(row: Struct) -> Shape:
    """A token, a session or a login link, without its secret."""
    return _shape(row, TOKEN)


def _shape(value: Struct, names: tuple[str, ...], **stored_as: str) -> Shape:
    return {name: _plain(getattr(value, stored_as.get(name, name))) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else msgspec.to_builtins(value)


def _read(text: str | None) -> Any:
    """The value of stored JSON; of what cannot be read the damage."""
    found = None if text is None else damage.read(load, text)
    return damage.shown(found) if isinstance(found, Damaged) else found


def run(row: Any) -> Shape:
    """A run of a workflow with its steps."""
    steps = {each.counts.name: run_step(each) for each in row.steps}
    return _shape(row, RUN, params="shown_params") | {"holds": [hold(each) for each in row.holds], "steps": steps}


def step_explanation(value: Struct) -> Shape:
    """Why a step is not done."""
    return _shape(value, STEP_EXPLANATION)


def hold(value: Struct) -> Shape:
    """Something that is held, by whom and since when."""
    return _shape(value, HOLD)


def run_step(step: Any) -> Shape:
    """A step of a run, with its tasks in numbers."""
    return _shape(step.counts, STEP) | _shape(step, STEP_TIMES)


def build(value: Build) -> Shape:
    """A build, with the refs that asked for it and the state of each of its steps by name."""
    refs = [_shape(each, BUILD_REF) for each in value.refs]
    return _shape(value, BUILD) | {"refs": refs, "steps": {step.name: step.state for step in value.steps}}


def build_step(step: Struct) -> Shape:
    """A step of a build."""
    return _shape(step, BUILD_STEP)


def build_page(value: Build, outputs: Sequence[Struct]) -> Shape:
    """A build with everything about its steps, and its outputs."""
    details = {
        "step_details": [build_step(step) for step in value.steps],
        "outputs": [_shape(each, OUTPUT) for each in outputs],
    }
    return build(value) | details
