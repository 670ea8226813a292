"""What chance decides: when jobs come, how long they take, and whether they fail.

- Every number is drawn from the seed and the name of what it is for, never from the order of what happens. So two
  variants of a fleet have the same jobs with the same work at the same times, and differ in nothing but the setting.
- Times are whole microseconds since 1970.
"""

import heapq
import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from datetime import time as time_of_day
from zoneinfo import ZoneInfo

from msgspec import Struct

from holdfast.clock import microseconds, moment
from holdfast.jobs import windows, zones
from holdfast.jobs.retry import LONGEST
from holdfast.simulation.fleet import (
    Arrivals,
    Burst,
    Duration,
    Ending,
    Every,
    Exponential,
    Fixed,
    Fleet,
    Percentiles,
    Poisson,
    TypePlan,
    WorkerPlan,
)

SECOND = 1_000_000
CEILING = math.log(LONGEST)
SLICE = 900 * SECOND  # in which the hour of the day is the same in every zone


class Arrival(Struct, frozen=True, order=True):
    """A job that comes; `number` counts those of its type."""

    time: int
    job_type: str
    number: int


def arrivals(fleet: Fleet) -> Iterator[Arrival]:
    """All jobs that come, in their order."""
    return heapq.merge(*(_of_type(fleet, name, plan) for name, plan in fleet.types.items()))


def _of_type(fleet: Fleet, name: str, plan: TypePlan) -> Iterator[Arrival]:
    streams = [
        _times(fleet, each, random.Random(f"{fleet.seed}:{name}:arrivals:{index}"))
        for index, each in enumerate(plan.arrivals)
    ]
    for number, time in enumerate(heapq.merge(*streams)):
        yield Arrival(time, name, number)


def _times(fleet: Fleet, wanted: Arrivals, luck: random.Random) -> Iterator[int]:
    start = microseconds(fleet.start)
    end = start + round(fleet.seconds * SECOND)
    match wanted:
        case Every():
            times = _evenly(wanted, start, end)
        case Poisson():
            times = _by_chance(wanted, start, end, ZoneInfo(fleet.zone), luck)
        case Burst():
            times = _in_bursts(wanted, fleet, luck)
    for time in times:
        if start <= time < end and (not wanted.during or windows.is_open(wanted.during, moment(time))):
            yield time


def _evenly(wanted: Every, start: int, end: int) -> Iterator[int]:
    step = max(1, round(wanted.seconds * SECOND))
    return iter(range(start + step, end, step))


def _by_chance(wanted: Poisson, start: int, end: int, zone: ZoneInfo, luck: random.Random) -> Iterator[int]:
    """Slice by slice with the rate of its hour: what chance has waited for before does not matter to it."""
    while start < end:
        border = min(end, (start // SLICE + 1) * SLICE)
        rates = wanted.per_hour
        rate = rates[moment(start).astimezone(zone).hour] if len(rates) > 1 else rates[0]
        time = float(start)
        while rate > 0:
            time += luck.expovariate(rate / 3600) * SECOND
            if time >= border:
                break
            yield int(time)
        start = border


def _in_bursts(wanted: Burst, fleet: Fleet, luck: random.Random) -> Iterator[int]:
    for begins in days(fleet, wanted.at):
        yield from sorted(begins + round(luck.random() * wanted.within * SECOND) for _ in range(wanted.count))


def days(fleet: Fleet, times: tuple[time_of_day, ...]) -> list[int]:
    """When the clock of the fleet's zone shows these times, from its first day to its last."""
    zone = ZoneInfo(fleet.zone)
    first = fleet.start.astimezone(zone).date()
    start = microseconds(fleet.start)
    end = start + round(fleet.seconds * SECOND)
    found = []
    for offset in range(int(fleet.seconds // 86_400) + 2):
        for each in times:
            wall = datetime.combine(first + timedelta(days=offset), each)
            found.append(microseconds(zones.first_shown(wall, zone)))
    return sorted(time for time in found if start <= time < end)


def ending(fleet: Fleet, plan: TypePlan, number: int, attempt: int) -> Ending:
    """How an attempt of a job goes."""
    luck = random.Random(f"{fleet.seed}:{plan.row.job_type}:{number}:{attempt}")
    seconds = seconds_of(plan.duration, luck)
    return Ending(seconds, luck.random() >= plan.failure_rate)


def seconds_of(duration: Duration, luck: random.Random) -> float:
    match duration:
        case Fixed():
            return duration.seconds
        case Exponential():
            drawn = luck.expovariate(1 / duration.mean)
        case Percentiles():
            drawn = math.exp(min(_between(duration.points, luck.gauss(0, 1)), CEILING))
    return max(duration.least, min(drawn, duration.most))


def _between(points: tuple[tuple[float, float], ...], at: float) -> float:
    """The value at a point of the line through these."""
    index = min(max(bisect_right(points, (at, math.inf)), 1), len(points) - 1)
    (left, low), (right, high) = points[index - 1], points[index]
    return low + (high - low) * (at - left) / (right - left)


def details(fleet: Fleet, plan: TypePlan, number: int) -> tuple[str | None, Mapping[str, str]]:
    """The key of a job and the arguments that its throttler looks at."""
    if not plan.keys and not plan.payload:
        return None, {}
    luck = random.Random(f"{fleet.seed}:{plan.row.job_type}:{number}")
    key = f"key-{luck.randrange(plan.keys)}" if plan.keys else None
    return key, {name: luck.choices(list(values), list(values.values()))[0] for name, values in plan.payload.items()}


def crashes(fleet: Fleet, plan: WorkerPlan, index: int) -> list[int]:
    """When one of these workers dies."""
    found = days(fleet, plan.crashes)
    if plan.crashes_every is not None:
        luck = random.Random(f"{fleet.seed}:{plan.name}:{index}:crashes")
        time, end = 0.0, fleet.seconds
        while (time := time + luck.expovariate(1 / plan.crashes_every)) < end:
            found.append(microseconds(fleet.start) + round(time * SECOND))
    return sorted(found)


def is_there(fleet: Fleet, plan: WorkerPlan) -> bool:
    """Whether such workers are there at the beginning: if the last of their times before it, yesterday's too, is one of coming."""
    if not plan.start:
        return True
    now = fleet.start.astimezone(ZoneInfo(fleet.zone)).time()
    times = sorted([(each, True) for each in plan.start] + [(each, False) for each in plan.stop])
    before = [there for each, there in times if each <= now]
    return before[-1] if before else bool(plan.stop) and times[-1][1]
