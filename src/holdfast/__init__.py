"""Holdfast: durable jobs for Python, embedded in SQLite or grown on PostgreSQL."""

from holdfast.app import App
from holdfast.errors import (
    Conflict,
    DuplicateJob,
    HoldfastError,
    IllegalMove,
    Invalid,
    JobFailed,
    NotFound,
    Unavailable,
)
from holdfast.jobs.job import Attempt, Job, JobError, LogLine, Move, Progress
from holdfast.jobs.outcome import GIVE_UP, WAIT, Failed, Retry, Snooze
from holdfast.jobs.reasons import Explanation
from holdfast.jobs.retry import Adaptive, Exponential, Fixed, Linear, NoDelay
from holdfast.jobs.throttlers import ADMIT, REFUSE, Reschedule, ThrottledJob, per_key, rate, share
from holdfast.worker.handler import current_job

__all__ = [
    "ADMIT",
    "GIVE_UP",
    "REFUSE",
    "WAIT",
    "Adaptive",
    "App",
    "Attempt",
    "Conflict",
    "DuplicateJob",
    "Explanation",
    "Exponential",
    "Failed",
    "Fixed",
    "HoldfastError",
    "IllegalMove",
    "Invalid",
    "Job",
    "JobError",
    "JobFailed",
    "Linear",
    "LogLine",
    "Move",
    "NoDelay",
    "NotFound",
    "Progress",
    "Reschedule",
    "Retry",
    "Snooze",
    "ThrottledJob",
    "Unavailable",
    "current_job",
    "per_key",
    "rate",
    "share",
]
