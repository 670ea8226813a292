"""Time zones by their IANA names, and what their clocks show when they are set forward or back."""

from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from holdfast.errors import quoted


def problem_of(name: str) -> str | None:
    """Why a name is no zone, with the nearest one that is; None for a zone."""
    if name == "UTC" or _zones().get(name.lower()) == name:
        return None
    nearest = get_close_matches(name.lower(), _zones(), n=1)
    cure = f"did you mean {_zones()[nearest[0]]}?" if nearest else "zones have IANA names"
    return f"{quoted(name)} is not a known time zone; {cure}"


@lru_cache(maxsize=1)
def _zones() -> dict[str, str]:
    # These two are files beside the zones: what they say depends on the machine, or is nothing at all.
    names = available_timezones() - {"localtime", "Factory"}
    return {name.lower(): name for name in sorted(names)}


def first_shown(wall: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the zone's clock first shows this time or a later one."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall:
        return instant
    # The clock skips this time. Read with the offset of either side, it lies on the other side of the change.
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return change_between(before, instant, zone)


def shown_at(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Every instant at which the zone's clock shows this time: none if it skips it, two if it repeats it."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) != wall:
        return ()
    again = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return (first,) if again == first else (first, again)


def change_between(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first second, behind `before` and up to `after`, that has the offset of `after`."""
    offset = after.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // timedelta(seconds=2) * timedelta(seconds=1)
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after
