"""Cron expressions on the clock of a time zone, right through the hours that it skips and repeats.

An expression has five fields (minute, hour, day of the month, month, day of the week) or six, with seconds first.
Fields are read as Debian's cron reads them: `*`, `1-5`, `*/15`, `1,15`, names of months and days, and beyond it `L` for
the last day of a month, `LW` for the last weekday, `5#1` for the first Friday and `5L` for the last.

- An expression with fixed hours and minutes names times of the day. One that the clock skips comes at the next valid
  instant, one that it repeats comes once, the first time; so a nightly job runs every night, and once.
- One whose minute or hour begins with `*` goes by what passes: a skipped hour has no times, a repeated one has its
  times twice; so a job of every ten minutes runs every ten minutes.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from cronsim.cronsim import FIELD_NAMES

from holdfast.jobs import zones

TAKES = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, L or LW, and a day that its months have",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT, 5#1 or 5L",
}
SOMEDAY = datetime(2000, 1, 1)  # noqa: DTZ001 - what a clock on the wall shows
SECOND = timedelta(seconds=1)


def problem_of(expression: str) -> str | None:
    """Why an expression cannot be used; None if it can."""
    parts = expression.split()
    if len(parts) not in (5, 6):
        return f"it has {len(parts)} fields; write five (minute hour day-of-month month day-of-week), or six with seconds first"
    try:
        never = next(CronSim(expression, SOMEDAY), None) is None
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        given = parts[FIELD_NAMES.index(field) - 6]
        return f"its {field} `{given}` is wrong; that field takes {TAKES[field]}, also as lists, ranges and steps"
    return "it never comes; no year has such a day" if never else None


def next_time(expression: str, zone_name: str, after: datetime) -> datetime | None:
    """The first of its times behind this moment, in UTC; None if there is none in the next fifty years."""
    zone = ZoneInfo(zone_name)
    try:
        if _names_times_of_day(expression):
            return _first_by_day(expression, zone, after)
        return _first_that_passes(expression, zone, after)
    except (OverflowError, ValueError):  # the calendar ends
        return None


def _names_times_of_day(expression: str) -> bool:
    minute, hour = expression.split()[-5:-3]
    return not (minute.startswith("*") or hour.startswith("*"))


def _first_by_day(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    for wall in _walls(expression, after.astimezone(zone)):
        instant = zones.first_shown(wall, zone)
        if instant > after:  # what the clock shows again was fired before it was set back
            return instant
    return None


def _first_that_passes(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    local = after.astimezone(zone)
    found = [_first_shown_behind(expression, zone, after, local)]
    shown = zones.shown_at(local.replace(tzinfo=None), zone)
    if len(shown) == 2 and local.fold == 0:
        # The clock will be set back and show times before this one again.
        change = zones.change_between(after.replace(microsecond=0), shown[1], zone)
        found.append(_first_shown_behind(expression, zone, after, change.astimezone(zone) - SECOND))
    return min((instant for instant in found if instant is not None), default=None)


def _first_shown_behind(expression: str, zone: ZoneInfo, after: datetime, local: datetime) -> datetime | None:
    for wall in _walls(expression, local):
        for instant in zones.shown_at(wall, zone):
            if instant > after:
                return instant
    return None


def _walls(expression: str, local: datetime) -> Iterator[datetime]:
    """What a clock on the wall shows whenever the expression fits, behind this."""
    return iter(CronSim(expression, local.replace(tzinfo=None, fold=0)))
