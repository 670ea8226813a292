"""An app in a test: an empty database, a clock that is moved by hand, and questions about what was enqueued."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from holdfast.app import App
from holdfast.clock import MovableClock
from holdfast.declare import JobType
from holdfast.errors import Invalid, quoted
from holdfast.jobs import payload as payloads
from holdfast.jobs.arguments import choice
from holdfast.jobs.job import Job

IN_MEMORY = "sqlite://:memory:"
MOST = 100_000  # jobs of a test that are looked at
SHOWN = 30  # jobs that a failure lists
OPTIONS = (
    *("job_key", "queue", "priority", "timeout", "retries", "throttle_factor", "time_windows"),
    *("scheduled_run_time", "delay", "expires", "state", "status", "outcome"),
)


@contextmanager
def rehearse(
    app: App | None = None,
    url: str | Mapping[str, Any] = IN_MEMORY,
    *,
    name: str | None = None,
    clock: MovableClock | None = None,
) -> Iterator["Rehearsal"]:
    """Give an app (or a new one) an empty database and a movable clock; afterwards it is as it was before.

    Elsewhere than in memory an instance of its own is made in that database, and left there; `name` chooses it.
    """
    clock = clock or MovableClock()
    if name is None:
        name = f"rehearsal_{_letters()}" if url != IN_MEMORY else app.name if app is not None else "rehearsal"
    if app is None:
        app = App(url, name=name, clock=clock)
    before = app.db_config, app.name, app.clock
    app.point_at(url, name, clock)
    try:
        yield Rehearsal(app, clock)
    finally:
        app.point_at(*before)


def _letters() -> str:
    return "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(12))


class Rehearsal:
    """An app in a test, with its clock."""

    def __init__(self, app: App, clock: MovableClock) -> None:
        self.app = app
        self.clock = clock

    def run_until_idle(self, *, max_jobs: int = 100_000) -> int:
        """Run everything that is due, one job at a time; the number of attempts. What is due later waits for the clock."""
        return self.app.run_until_idle(max_jobs=max_jobs)

    def enqueued(
        self, job_type: JobType | str | None = None, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> list[Job]:
        """The jobs of that type whose payload has these values and whose options are these, oldest first, ended ones too."""
        wanted = Wanted(job_type, payload, options)
        return [job for job in self._all() if not wanted.differences(job)]

    def assert_enqueued(
        self,
        job_type: JobType | str | None = None,
        payload: Mapping[str, Any] | None = None,
        *,
        count: int | None = None,
        **options: Any,
    ) -> Job:
        """The oldest of the jobs that `enqueued` finds; the assertion fails, and lists what there is, if there is none.

        With `count` there must be exactly so many. `options` are those of `using`, and `queue`, `state`, `status` and
        `outcome`; `delay` is counted from when the job was enqueued.
        """
        if count is not None and count < 1:
            raise Invalid(
                f"count={quoted(count)}: give a whole number, 1 or more; for none there is assert_not_enqueued."
            )
        wanted = Wanted(job_type, payload, options)
        jobs = self._all()
        found = [job for job in jobs if not wanted.differences(job)]
        if count is not None and len(found) != count:
            raise AssertionError(f"{wanted}: {len(found)} enqueued, not {count}.{_listed(jobs, wanted)}")
        if not found:
            raise AssertionError(f"{wanted}: none enqueued.{_listed(jobs, wanted)}")
        return found[0]

    def assert_not_enqueued(
        self, job_type: JobType | str | None = None, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        """The assertion fails if `enqueued` finds a job; without arguments, if there is any."""
        wanted = Wanted(job_type, payload, options)
        jobs = self._all()
        found = [job for job in jobs if not wanted.differences(job)]
        if found:
            raise AssertionError(f"{wanted}: {len(found)} enqueued, not 0.{_listed(jobs, wanted)}")

    def _all(self) -> list[Job]:
        return self.app.find(limit=MOST, archive=True)[::-1]


class Wanted:
    """Which jobs are meant."""

    def __init__(
        self, job_type: JobType | str | None, payload: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> None:
        for name in options:
            if name not in OPTIONS:
                raise Invalid(f"unknown option {quoted(name)}{choice(name, OPTIONS)}")
        self.job_type = job_type.name if isinstance(job_type, JobType) else job_type
        self.payload = {name: _as_stored(value) for name, value in (payload or {}).items()}
        self.options = options

    def differences(self, job: Job) -> list[str]:
        """What keeps a job from being meant."""
        found = [] if self.job_type in (None, job.job_type) else ["type"]
        stored = job.payload if isinstance(job.payload, dict) else {}
        found += [
            name for name, value in self.payload.items() if name not in stored or not _within(value, stored[name])
        ]
        return found + [name for name, value in self.options.items() if not _is_option(job, name, value)]

    def __str__(self) -> str:
        parts = [f"jobs of type `{self.job_type}`" if self.job_type else "jobs"]
        if self.payload:
            parts.append(f"with payload {self.payload}")
        if self.options:
            parts.append("and " + ", ".join(f"{name}={value!r}" for name, value in self.options.items()))
        return " ".join(parts)


def _as_stored(value: Any) -> Any:
    """The value as JSON has it; what cannot be stored is left, for it may compare in its own way."""
    try:
        return msgspec.json.decode(payloads.dump(value, what="payload"))
    except Invalid:
        return value


def _within(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(name in found and _within(value, found[name]) for name, value in wanted.items())
    return bool(wanted == found)


def _is_option(job: Job, name: str, value: Any) -> bool:
    if name == "delay":
        seconds = value.total_seconds() if hasattr(value, "total_seconds") else value
        return bool((job.scheduled_run_time - job.create_time).total_seconds() == seconds)
    if name == "time_windows":
        return tuple(value) == job.time_windows
    return bool(getattr(job, {"expires": "expires_time"}.get(name, name)) == value)


def _listed(jobs: Sequence[Job], wanted: Wanted) -> str:
    """What there is instead, the nearest first."""
    if not jobs:
        return " There are no jobs at all."
    near = sorted(jobs, key=lambda job: ("type" in wanted.differences(job), len(wanted.differences(job)), job.id))
    lines = [f"  {_line(job, wanted)}" for job in near[:SHOWN]]
    if len(jobs) > SHOWN:
        lines.append(f"  … and {len(jobs) - SHOWN} more")
    return "\n".join([f" {len(jobs)} enqueued in all:", *lines])


def _line(job: Job, wanted: Wanted) -> str:
    parts = [f"{job.id} {job.job_type} {job.payload}", job.outcome or job.state]
    if job.job_key is not None:
        parts.append(f"job_key={job.job_key!r}")
    if job.scheduled_run_time > job.create_time:
        parts.append(f"delay={(job.scheduled_run_time - job.create_time).total_seconds():g}")
    differences = wanted.differences(job)
    if differences and "type" not in differences:
        parts.append(f"differs in {', '.join(differences)}")
    return ", ".join(parts)
