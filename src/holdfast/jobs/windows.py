"""Time windows: the hours in which a job may start (W5).

A window is written `[days] HH:MM[:SS]-HH:MM[:SS] [Zone]`, for example `mon-fri 22:00-06:00 Europe/Amsterdam`.

- Days are names, ranges (`fri-mon` wraps) and comma lists of them; they name the day on which the window opens.
  Without days it opens every day. The zone is an IANA name; without one it is UTC.
- The start belongs to the window, the end does not. A start after the end crosses midnight. `24:00` as an end is
  the midnight that ends the day, so `00:00-24:00` is a whole day; equal start and end are refused.
- A window opens when its zone's clock first shows the start or later, and closes when it first shows the end or
  later. So a time that the clock skips opens (or closes) at the next valid instant, and one that it repeats does so
  once, the first time. A window that is skipped as a whole opens at that instant too, for as long as it is written.
- Several windows are open whenever one of them is; no windows at all means always.
- Moments must be aware (`Invalid` otherwise); every answer is in UTC.
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from holdfast.errors import Invalid, quoted
from holdfast.jobs import zones

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = tuple(range(7))
DAY = 86_400

_SHAPE = re.compile(r"(?:(?P<days>[^0-9\s]\S*)\s+)?(?P<start>[0-9:]+)-(?P<end>[0-9:]+)(?:\s+(?P<zone>\S+))?")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?")

# A year and its changes of the clock: windows of several zones that together never close in it never do.
_FOR_EVER = timedelta(days=400)


class Window(msgspec.Struct, frozen=True):
    """One window, as `parse` makes it.

    `start` and `end` are seconds on the zone's clock, both counted from the midnight before the start; `end` is the
    larger one. `days` are the weekdays on which it opens, Monday is 0.
    """

    start: int
    end: int
    days: tuple[int, ...] = EVERY_DAY
    zone: str = "UTC"


def parse_all(texts: Sequence[str]) -> tuple[Window, ...]:
    """Read a list of windows; `Invalid` names the first that is wrong."""
    return tuple(parse(text) for text in listed(texts))


def listed(texts: Sequence[str]) -> tuple[str, ...]:
    """The windows as they are kept; `Invalid` if they are no list. What is in it, `parse_all` looks at."""
    if isinstance(texts, str):
        raise Invalid(f"time_windows is a list of windows, not one text; write [{quoted(texts)}].")
    if not isinstance(texts, list | tuple):
        raise Invalid(f"time_windows={quoted(texts)}; give a list of windows, or [] for always.")
    return tuple(texts)


def parse(text: str) -> Window:
    """Read one window; `Invalid` says what is wrong with the text and how to write it."""
    found = _SHAPE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise _wrong(text, "it does not have the form [days] HH:MM[:SS]-HH:MM[:SS] [Zone]", "22:00-06:00")
    start, end = _seconds(text, found["start"]), _seconds(text, found["end"])
    if start == DAY:
        raise _wrong(text, "24:00 can only be an end; a window that opens at midnight starts at 00:00", "00:00-06:00")
    if start == end:
        raise _wrong(text, "it ends when it starts; a whole day is written with 24:00 as its end", "00:00-24:00")
    return Window(
        start=start,
        end=end if end > start else end + DAY,
        days=_days(text, found["days"]) if found["days"] else EVERY_DAY,
        zone=_zone(text, found["zone"] or "UTC"),
    )


def _seconds(text: str, written: str) -> int:
    found = _TIME.fullmatch(written)
    if found is None:
        raise _wrong(text, f"{written} is not a time; hours, minutes and seconds have two digits", "09:30-17:00")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    midnight = (hours, minutes, seconds) == (24, 0, 0)
    if not midnight and (hours > 23 or minutes > 59 or seconds > 59):
        raise _wrong(text, f"there is no {written} on a clock; times go from 00:00 to 23:59:59", "22:00-06:00")
    return hours * 3600 + minutes * 60 + seconds


def _days(text: str, written: str) -> tuple[int, ...]:
    days: set[int] = set()
    for part in written.lower().split(","):
        first, dash, last = part.partition("-")
        for name in (first, last) if dash else (first,):
            if name not in DAYS:
                known = f"the days are {' '.join(DAYS)}"
                raise _wrong(
                    text, f"{quoted(name)} in {quoted(written)} is not a day; {known}", "mon-fri,sun 22:00-06:00"
                )
        opening = DAYS.index(first)
        length = (DAYS.index(last) - opening) % 7 if dash else 0
        days.update((opening + offset) % 7 for offset in range(length + 1))
    return tuple(sorted(days))


def _zone(text: str, name: str) -> str:
    problem = zones.problem_of(name)
    if problem is not None:
        raise _wrong(text, problem, "22:00-06:00 Europe/Amsterdam")
    return name


def _wrong(text: object, reason: str, example: str) -> Invalid:
    return Invalid(f"The time window {quoted(text)} cannot be used: {reason}. A window looks like {example!r}.")


def place(windows: Sequence[Window], wanted: datetime | None, now: datetime) -> datetime:
    """When a job is to run: at the wanted time (without one: now) if that is inside, else at the next opening."""
    return opens(windows, now if wanted is None else wanted)


def is_open(windows: Sequence[Window], at: datetime) -> bool:
    """Whether a job may start at this moment."""
    # Compared in UTC: in its own zone Python calls a repeated time unequal to every other.
    moment = _utc(at)
    return opens(windows, moment) == moment


def opens(windows: Sequence[Window], at: datetime) -> datetime:
    """The first moment, this one or later, at which a job may start. There always is one."""
    moment = _utc(at)
    return max(moment, min((_opening(window, moment)[0] for window in windows), default=moment))


def closes(windows: Sequence[Window], at: datetime) -> datetime | None:
    """The first moment, this one or later, at which a job may not start; None if there never is one.

    Windows that overlap or touch are one opening. A moment at which they are closed is its own answer.
    """
    moment = _utc(at)
    if not windows or any(window.days == EVERY_DAY and window.end - window.start == DAY for window in windows):
        return None
    end = moment
    while end - moment < _FOR_EVER:
        openings = [_opening(window, end) for window in windows]
        further = max((closing for opening, closing in openings if opening <= end), default=end)
        if further == end:
            return end
        end = further
    return None


def _utc(at: datetime) -> datetime:
    if at.utcoffset() is None:
        raise Invalid(f"The time {at.isoformat()} has no time zone; give it one, for example datetime.now(UTC).")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise _off_the_calendar(at) from None


def _opening(window: Window, at: datetime) -> tuple[datetime, datetime]:
    """The window's first opening that is not over at this moment."""
    try:
        today = at.astimezone(ZoneInfo(window.zone)).date()
        # From yesterday, for a window that crosses midnight, to this day next week, for one that is over today.
        for offset in range(-1, 8):
            day = today + timedelta(days=offset)
            if day.weekday() in window.days:
                opening, closing = _bounds(window, day)
                if closing > at:
                    return opening, closing
    except OverflowError:
        raise _off_the_calendar(at) from None
    raise AssertionError(f"{window} does not open within a week of {at}")


def _off_the_calendar(at: datetime) -> Invalid:
    return Invalid(f"The time {at.isoformat()} is too near the end of the calendar for a time window; use another.")


@lru_cache(maxsize=8192)
def _bounds(window: Window, day: date) -> tuple[datetime, datetime]:
    midnight, zone = datetime.combine(day, time.min), ZoneInfo(window.zone)
    opening = zones.first_shown(midnight + timedelta(seconds=window.start), zone)
    closing = zones.first_shown(midnight + timedelta(seconds=window.end), zone)
    if opening == closing:
        closing = opening + timedelta(seconds=window.end - window.start)
    return opening, closing
