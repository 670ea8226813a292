"""Schedules: when jobs are made by themselves, and from what (W6).

- A schedule has a cron expression with its zone (`holdfast.jobs.cron`), or a period, or points in time. A period is
  aligned: its times are whole periods from `start`, or from 1970 in UTC, whenever it was stored.
- `start` belongs to it, `end` does not.
- What became due while nobody fired is a matter of `misfire`: `all` fires each of those times, `once` the last one, and
  `skip` that one only if it is hardly late: by a tenth of the time to the next one, a second at least, a minute at most.
- What is fired is a template (`holdfast.jobs.template`).
- Nothing here does I/O or reads a clock.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, field

from holdfast.errors import Invalid, quoted
from holdfast.jobs import cron as crons
from holdfast.jobs import payload as payloads
from holdfast.jobs import template, zones
from holdfast.jobs.arguments import choice
from holdfast.jobs.names import JOB_TYPE, LONGEST_TYPE
from holdfast.jobs.numbers import is_finite

MISFIRES = ("skip", "once", "all")
TIMING = ("cron", "zone", "every", "at", "start", "end", "misfire")
OPTIONS = ("job_key", "priority", "timeout", "retries", "throttle_factor", "time_windows", "on_duplicate")
ON_DUPLICATE = ("return", "replace")
SHORTEST, LONGEST = 0.1, 10 * 366 * 86400.0  # seconds between two times
MOST_POINTS = 10_000
BATCH = 100  # most times that are fired together
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_YEAR = datetime(9999, 1, 1, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)
HARDLY, HARDLY_AT_LEAST, HARDLY_AT_MOST = 0.1, timedelta(seconds=1), timedelta(seconds=60)


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When jobs are made, and from what. A value, as `make` checks it."""

    name: str
    job_type: str
    cron: str | None = None  # five or six fields
    zone: str | None = None  # of the cron expression
    every: float | None = None  # seconds
    at: tuple[datetime, ...] = ()  # points in time, in order
    start_time: datetime | None = None  # not before
    end_time: datetime | None = None  # before
    misfire: str = "once"  # skip, once or all
    payload: dict[str, Any] = field(default_factory=dict)  # a template
    const: dict[str, Any] = field(default_factory=dict)  # the template's constants
    options: dict[str, Any] = field(default_factory=dict)  # of the jobs, as for `using`

    @property
    def when(self) -> str:
        """Its times in words."""
        if self.cron is not None:
            return self.cron
        if self.every is not None:
            return f"every {self.every:g} s"
        return f"at {len(self.at)} point{'s' * (len(self.at) != 1)} in time"


class Firings(Struct, frozen=True):
    """What to do about a schedule that is due."""

    times: tuple[datetime, ...]  # to fire now
    next_time: datetime | None  # the first one after them and after what is passed over
    passed_over: bool = False  # there were others, which its misfire policy leaves out


class Made(Struct, frozen=True):
    """One firing's job: what the template gives."""

    payload: dict[str, Any]
    options: dict[str, Any]


def make(
    name: str,
    *,
    job_type: str,
    cron: str | None = None,
    every: float | timedelta | None = None,
    at: Sequence[datetime] | datetime | None = None,
    zone: str | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    misfire: str = "once",
    payload: Mapping[str, Any] | None = None,
    const: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    payload_limit: int = payloads.MAX_BYTES,
) -> Schedule:
    """A schedule, or `Invalid` with everything that is wrong with it."""
    if isinstance(every, timedelta):
        every = every.total_seconds()
    payload = _as_json(name, "payload", payload, payload_limit)
    const = _as_json(name, "const", const, payload_limit)
    options = _as_json(name, "options", options, payload_limit)
    points = [at] if isinstance(at, datetime) else at
    found = [
        *_name_problems(name),
        *_kind_problems(cron, every, points, zone),
        *_bound_problems(start, end),
        *_policy_problems(misfire, options),
        *template.problems([payload, options.get("job_key")], const),
    ]
    if found:
        raise _wrong(name, found)
    schedule = Schedule(
        name=name,
        job_type=job_type,
        cron=None if cron is None else " ".join(cron.split()),
        zone=zone,
        every=None if every is None else float(every),
        at=tuple(sorted({point.astimezone(UTC) for point in points or ()})),
        start_time=None if start is None else start.astimezone(UTC),
        end_time=None if end is None else end.astimezone(UTC),
        misfire=misfire,
        payload=payload,
        const=const,
        options=options,
    )
    if next_time(schedule, schedule.start_time - INSTANT if schedule.start_time else EPOCH - INSTANT) is None:
        raise _wrong(name, ["it has no time at all between its start and its end; move one of them"])
    return schedule


def _as_json(name: object, what: str, value: Mapping[str, Any] | None, limit: int) -> dict[str, Any]:
    """As it will be stored: what JSON carries for it."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(name, [f"{what}={quoted(value)}; give a mapping of names to values"])
    plain: dict[str, Any] = payloads.load(
        payloads.dump(dict(value), what=f"schedule {quoted(name)}: {what}", limit=limit)
    )
    return plain


def _wrong(name: object, found: Sequence[str]) -> Invalid:
    return Invalid(f"schedule {quoted(name)}: {'. Also: '.join(found)}.")


def _name_problems(name: Any) -> Iterator[str]:
    if not isinstance(name, str) or not JOB_TYPE.fullmatch(name) or len(name) > LONGEST_TYPE:
        yield f"its name has letters, digits, `_`, `-` and `.`, at most {LONGEST_TYPE} characters"


def _kind_problems(cron: Any, every: Any, at: Any, zone: Any) -> Iterator[str]:
    given = [word for word, value in (("cron", cron), ("every", every), ("at", at)) if value is not None]
    if len(given) != 1:
        yield f"give one of cron, every and at{', not ' + ' and '.join(given) if given else ''}"
    if cron is not None:
        yield from _cron_problems(cron, zone)
    elif zone is not None:
        yield f"zone={quoted(zone)} is for cron; periods and points in time need none. Leave it out"
    if every is not None and (not is_finite(every) or not SHORTEST <= every <= LONGEST):
        yield f"every={quoted(every)}; give seconds, from {SHORTEST:g} to ten years, or a timedelta"
    if at is not None:
        yield from _point_problems(at)


def _cron_problems(cron: Any, zone: Any) -> Iterator[str]:
    problem = crons.problem_of(cron) if isinstance(cron, str) else "it is not a text"
    if problem is not None:
        yield f"cron={quoted(cron)} cannot be used: {problem}. It looks like '0 3 * * *'"
    if zone is None:
        yield "cron needs the zone whose clock it goes by: zone='Europe/Amsterdam', or zone='UTC'"
    elif problem := zones.problem_of(str(zone)):
        yield f"zone: {problem.rstrip('?')}"


def _point_problems(at: Any) -> Iterator[str]:
    if not isinstance(at, Sequence) or isinstance(at, str) or not 0 < len(at) <= MOST_POINTS:
        yield f"at={quoted(at)}; give a list of 1 to {MOST_POINTS:,} aware datetimes"
        return
    for point in at:
        yield from _moment_problems("at", point)


def _bound_problems(start: Any, end: Any) -> Iterator[str]:
    found = [
        problem
        for word, value in (("start", start), ("end", end))
        if value is not None
        for problem in _moment_problems(word, value)
    ]
    yield from found
    if not found and start is not None and end is not None and end <= start:
        yield f"end={end.isoformat()} is not after start={start.isoformat()}; give a later end"


def _moment_problems(word: str, value: Any) -> Iterator[str]:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        yield f"{word}: {quoted(value)} is not an aware datetime; give it a time zone, as datetime(2026, 12, 24, 18, tzinfo=UTC)"
        return
    if not EPOCH <= value < LAST_YEAR:
        yield f"{word}: {quoted(value)} is outside the years 1970 to 9998; give a moment inside them"


def _policy_problems(misfire: Any, options: Mapping[str, Any]) -> Iterator[str]:
    if misfire not in MISFIRES:
        yield f"misfire={quoted(misfire)}; it may be {', '.join(map(repr, MISFIRES))}"
    for name in options:
        if name not in OPTIONS:
            yield f"unknown option {quoted(name)}{choice(name, (*TIMING, *OPTIONS)).removesuffix('.')}"
    duplicate = options.get("on_duplicate", "return")
    if duplicate not in ON_DUPLICATE:
        yield f"on_duplicate={quoted(duplicate)}; no caller gets an error of a schedule, so it may be {' or '.join(map(repr, ON_DUPLICATE))}"


def made(schedule: Schedule, count: int, time: datetime) -> Made:
    """What the firing with this number at this time makes."""
    zone = schedule.zone or "UTC"
    payload = template.fill(schedule.payload, schedule.const, count, time, zone)
    options = dict(schedule.options)
    if "job_key" in options:
        key = template.fill(options["job_key"], schedule.const, count, time, zone)
        options["job_key"] = key if key is None else str(key)
    return Made(payload, options)


def next_time(schedule: Schedule, after: datetime) -> datetime | None:
    """The first of its times behind this moment; None if there is none."""
    if schedule.start_time is not None:
        after = max(after, schedule.start_time - INSTANT)
    if schedule.cron is not None:
        found = crons.next_time(schedule.cron, schedule.zone or "UTC", after)
    elif schedule.every is not None:
        found = _next_period(schedule, after)
    else:
        index = bisect_right(schedule.at, after)
        found = schedule.at[index] if index < len(schedule.at) else None
    return None if found is None or (schedule.end_time is not None and found >= schedule.end_time) else found


def _next_period(schedule: Schedule, after: datetime) -> datetime | None:
    anchor, period = schedule.start_time or EPOCH, timedelta(seconds=schedule.every or 0)
    try:
        return anchor + ((after - anchor) // period + 1) * period
    except OverflowError:
        return None


def first_time(schedule: Schedule, now: datetime) -> datetime | None:
    """The first time of a schedule that is stored now: behind now, or now itself where somebody wrote that moment."""
    named = now in schedule.at or now == schedule.start_time
    return next_time(schedule, now - INSTANT if named else now)


def changed_time(new: Schedule, due: datetime | None, last: datetime | None, now: datetime) -> datetime | None:
    """The next time of a schedule that takes the place of another.

    What is due and not fired yet stays due if it is a time of the new one too; what was fired is not fired again.
    """
    if due is not None and due <= now and next_time(new, due - INSTANT) == due:
        return due
    found = first_time(new, now)
    return next_time(new, last) if found is not None and last is not None and found <= last else found


def firings(schedule: Schedule, due: datetime, now: datetime, most: int = BATCH) -> Firings:
    """Which times to fire of a schedule whose next time has come, and its next time then. Bounded work, however late."""
    if schedule.misfire == "all":
        return _fire_all(schedule, due, now, most)
    last = _last_time(schedule, due, now)
    following = next_time(schedule, max(last, now))
    if schedule.misfire == "skip" and now - last > _hardly(last, following):
        return Firings((), following, passed_over=True)
    return Firings((last,), following, passed_over=last > due)


def _fire_all(schedule: Schedule, due: datetime, now: datetime, most: int) -> Firings:
    times: list[datetime] = []
    following: datetime | None = due
    while following is not None and following <= now and len(times) < most:
        times.append(following)
        following = next_time(schedule, following)
    return Firings(tuple(times), following)


def _hardly(last: datetime, following: datetime | None) -> timedelta:
    """How late a time may be and is not missed."""
    if following is None:
        return HARDLY_AT_MOST
    return min(max((following - last) * HARDLY, HARDLY_AT_LEAST), HARDLY_AT_MOST)


def _last_time(schedule: Schedule, due: datetime, now: datetime) -> datetime:
    """The last time up to now, without a walk through all of them: halving, since times lie a tenth of a second apart."""
    low, high = due, now
    while high - low > timedelta(seconds=SHORTEST):
        middle = low + (high - low) / 2
        found = next_time(schedule, middle)
        if found is not None and found <= now:
            low = found
        else:
            high = middle
    following = next_time(schedule, low)
    while following is not None and following <= now:
        low, following = following, next_time(schedule, following)
    return low
