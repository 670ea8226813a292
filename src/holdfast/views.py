"""The one JSON shape of each noun, for the API, `--json` and outgoing hooks.

- The tables say which names a shape has and in which order; a name is never missing, null stands for nothing.
- Moments are ISO 8601 in UTC with six decimals and a `Z`, durations are seconds.
- Rows of a store come in as structs: their types stand in a higher layer.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.jobs.job import Attempt, Job, Move

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
    "duplicate",
    "archived",
)
MOVE = ("time", "from_state", "to_state", "attempt", "cause", "actor")
ATTEMPT = ("attempt", "start_time", "end_time", "outcome", "error", "traceback", "worker")
QUEUE = ("name", "order", "throttle_limit", "declared_limit", "set_limit", "paused", "table_name")
STATUSES = ("pending", "running", "failed", "completed", "dead")
WORKER = (
    "id",
    "name",
    "host",
    "pid",
    "version",
    "queues",
    "job_types",
    "labels",
    "concurrency",
    "start_time",
    "beat_time",
    "stopping",
)

Shape = dict[str, Any]


def job(value: Job) -> Shape:
    return _shape(value, JOB)


def move(value: Move) -> Shape:
    return _shape(value, MOVE)


def attempt(value: Attempt) -> Shape:
    return _shape(value, ATTEMPT)


def queue(row: Struct, counts: Mapping[str, int]) -> Shape:
    """A queue as it is stored, with how many jobs it has in each status."""
    return _shape(row, QUEUE, order="claim_order") | {"jobs": {status: counts.get(status, 0) for status in STATUSES}}


def worker(row: Struct) -> Shape:
    """A worker as it joined, and its last sign of life."""
    return _shape(row, WORKER, job_types="types")


def _shape(value: Struct, names: tuple[str, ...], **stored_as: str) -> Shape:
    return {name: _plain(getattr(value, stored_as.get(name, name))) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
    return list(value) if isinstance(value, tuple) else msgspec.to_builtins(value)
