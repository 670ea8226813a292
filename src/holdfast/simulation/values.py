"""What may stand for the keys of a fleet's description: each reader gives the value, or `Invalid` with what to give instead."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import msgspec

from holdfast.errors import Invalid, backticked, quoted
from holdfast.jobs import retry, throttlers, windows, zones
from holdfast.jobs.numbers import is_finite, is_whole
from holdfast.jobs.placement import check_labels
from holdfast.jobs.retry import LONGEST
from holdfast.simulation.fleet import (
    HOUR,
    Arrivals,
    Burst,
    Duration,
    Every,
    Exponential,
    Fixed,
    Percentiles,
    Poisson,
)
from holdfast.simulation.size import MOST_JOBS
from holdfast.workflows.definition import nearest

Read = Callable[[Any], Any]
YEARS = range(1970, 9001)  # in which a simulation may begin: with every duration after it, times are still moments
RATES = {"per_second": HOUR, "per_minute": HOUR / 60, "per_hour": 1.0, "per_day": 1 / 24}
BORDERS = {"min", "max"}
SHORTEST = 1e-6  # seconds: times are whole microseconds


def number(least: float = 0.0, above: bool = False, most: float = math.inf) -> Read:
    def read(value: Any) -> float:
        if not is_finite(value) or value > most or (value <= least if above else value < least):
            lower = "" if least == -math.inf else f" {'above' if above else 'of at least'} {least:g}"
            upper = "" if most == math.inf else f" and at most {most:,.10g}"
            raise Invalid(f"is {quoted(value)}; give a number{lower}{upper}.")
        return float(value)

    return read


def seconds(least: float = 0.0, above: bool = False) -> Read:
    return number(least, above, LONGEST)


def whole(least: int, most: int = 2**31 - 1) -> Read:
    def read(value: Any) -> int:
        if not is_whole(value, least, most):
            raise Invalid(f"is {quoted(value)}; give a whole number from {least} to {most:,}.")
        return int(value)

    return read


def part(value: Mapping[str, Any], name: str, read: Read) -> Any:
    """Of a table that is a value; what is wrong is told with its name."""
    try:
        return read(value[name])
    except Invalid as error:
        raise Invalid(f"has {backticked(name)}, which {error}") from None


def one_of(*known: str) -> Read:
    def read(value: Any) -> str:
        if value not in known:
            raise Invalid(f"is {quoted(value)}; it may be {' or '.join(map(repr, known))}.")
        return str(value)

    return read


def or_none(read: Read) -> Read:
    """TOML has no null: `"none"` stands for it."""
    return lambda value: None if value == "none" else read(value)


def texts(value: Any) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise Invalid(f"is {quoted(value)}; give a list of texts.")
    return tuple(found)


def labels(value: Any) -> tuple[str, ...]:
    return check_labels(texts(value), "labels")


def times(value: Any) -> tuple[time, ...]:
    """Times of the day, as texts or as TOML writes them."""
    found = value if isinstance(value, list) else [value]
    try:
        read = [each if isinstance(each, time) else time.fromisoformat(each) for each in found]
    except (TypeError, ValueError):
        raise Invalid(f'is {quoted(value)}; give times of the day, for example ["09:00", "17:30"].') from None
    if any(each.tzinfo is not None for each in read):
        raise Invalid(f"is {quoted(value)}; leave the zone out: all times of day are in that of `simulation.zone`.")
    return tuple(sorted(read))


def time_windows(value: Any) -> tuple[str, ...]:
    found = texts(value)
    windows.parse_all(found)
    return found


def moment(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise Invalid(f"is {value!s:.60}; write a time with its zone, for example 2026-01-05T00:00:00Z.")
    if value.year not in YEARS:
        raise Invalid(f"is {value!s:.60}; give a year from {YEARS[0]} to {YEARS[-1]}.")
    return value.astimezone(UTC)


def zone(value: Any) -> str:
    problem = zones.problem_of(value) if isinstance(value, str) else f"{quoted(value)} is not a time zone"
    if problem:
        raise Invalid(f"names no zone: {problem}.")
    return str(value)


def policy(value: Any) -> retry.Policy:
    found = retry.decode(as_json(value, "retry", '{ kind = "fixed", seconds = 5 }'))
    assert found is not None
    _check_fields(value, found)
    return found


def throttler(value: Any) -> str:
    text = as_json(value, "throttler", '{ kind = "rate", count = 100, per = 60 }')
    if value.get("kind") == "rate" and "burst" not in value:
        text = msgspec.json.encode({**value, "burst": value.get("count")}).decode()
    if value.get("kind") == "function":
        raise Invalid("is a function, which stands in an app's code; give a share, a per_key or a rate.")
    found = throttlers.decode(text)
    _check_fields(value, found)
    return throttlers.encode(found) or ""


def as_json(value: Any, what: str, example: str) -> str:
    if not isinstance(value, dict) or "kind" not in value:
        raise Invalid(f"is {quoted(value)}; give a table with its kind, for example {what} = {example}.")
    return msgspec.json.encode(value).decode()


def _check_fields(value: Mapping[str, Any], found: Any) -> None:
    """A field with a slip of the pen would be passed over in silence."""
    known = ["kind", *found.__struct_fields__]
    for name in value:
        if name not in known:
            raise Invalid(
                f"has {backticked(name)}, which is not known with kind {quoted(value['kind'])}.{hint(name, known)}"
            )


def payload(value: Any) -> dict[str, dict[str, float]]:
    if not isinstance(value, dict):
        raise Invalid(
            f"is {quoted(value)}; give values with their weights, for example {{ region = {{ eu = 3, us = 1 }} }}."
        )
    found = {}
    for name, weights in value.items():
        weights = {weights: 1} if isinstance(weights, str) else weights
        right = isinstance(weights, dict) and all(is_finite(each) and each >= 0 for each in weights.values())
        if not right or not 0 < sum(map(float, weights.values())) < math.inf:
            raise Invalid(
                f"has {name} = {quoted(weights)}; give values with their weights, for example {{ eu = 3, us = 1 }}, "
                "that add up to a finite number above 0."
            )
        found[name] = {str(each): float(weight) for each, weight in weights.items()}
    return found


def duration(value: Any) -> Duration:
    """A number, or a table that says how it is spread."""
    if not isinstance(value, dict):
        return Fixed(seconds()(value))
    given = {name: part(value, name, seconds(SHORTEST)) for name in value if name in BORDERS or is_finite(value[name])}
    least, most = given.pop("min", 0.0), given.pop("max", float(LONGEST))
    if least > most:
        raise Invalid(f"is {quoted(value)}; its min is above its max: exchange them.")
    if len(given) != len(value.keys() - BORDERS):
        raise Invalid(f"is {quoted(value)}; give {DURATIONS}.")
    if set(given) == {"exponential"}:
        return Exponential(given["exponential"], least, most)
    if set(given) == {"mean", "deviation"}:
        variance = math.log(1 + (given["deviation"] / given["mean"]) ** 2)
        middle = math.log(given["mean"]) - variance / 2
        return Percentiles(((0.0, middle), (1.0, middle + math.sqrt(variance))), least, most)
    return Percentiles(_points(value, given), least, most)


def _points(value: Any, given: Mapping[str, float]) -> tuple[tuple[float, float], ...]:
    points = sorted((percentile(name), math.log(each)) for name, each in given.items())
    if len(points) < 2:
        raise Invalid(f"is {quoted(value)}; give {DURATIONS}.")
    for (at, low), (next_at, high) in pairwise(points):
        if at == next_at:
            raise Invalid(f"is {quoted(value)}; it has a percentile twice (median is p50): give each once.")
        if high < low:
            raise Invalid(f"is {quoted(value)}; a higher percentile cannot be shorter.")
    return tuple(points)


DURATIONS = (
    "seconds, { exponential = MEAN }, { mean = …, deviation = … } for a lognormal one, or two percentiles or more: "
    "{ p50 = 1.2, p90 = 4, p99 = 20 }, with min and max if you like"
)


def percentile(name: str) -> float:
    """How many standard deviations `p95` is from the middle; `median` is p50."""
    text = {"median": "p50"}.get(name, name)
    try:
        share = float(text.removeprefix("p")) / 100
    except ValueError:
        share = 0.0
    if not text.startswith("p") or not 0 < share < 1:
        raise Invalid(f"has {quoted(name)}; give {DURATIONS}.")
    return NormalDist().inv_cdf(share)


def arrivals(value: Any) -> tuple[Arrivals, ...]:
    return tuple(_arrival(each) for each in (value if isinstance(value, list) else [value]))


def _arrival(value: Any) -> Arrivals:
    if not isinstance(value, dict):
        raise Invalid(f"is {quoted(value)}; give {ARRIVALS}.")
    rest = dict(value)
    during = windows.parse_all(time_windows(rest.pop("during"))) if "during" in rest else ()
    names = set(rest)
    if names == {"every"}:
        return Every(part(rest, "every", seconds(SHORTEST)), during)
    if names == {"by_hour"}:
        return Poisson(part(rest, "by_hour", rates), during)
    if len(names) == 1 and names <= RATES.keys():
        name = next(iter(names))
        return Poisson((part(rest, name, number(most=MOST_JOBS)) * RATES[name],), during)
    if {"burst", "at"} <= names <= {"burst", "at", "within"}:
        within = part(rest, "within", seconds()) if "within" in rest else 0.0
        return Burst(part(rest, "burst", whole(1, MOST_JOBS)), part(rest, "at", times), within, during)
    raise Invalid(f"is {quoted(value)}; give {ARRIVALS}.")


def rates(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != 24:
        raise Invalid("has not 24 numbers; give one for each hour of the day.")
    return tuple(number(most=MOST_JOBS)(each) for each in value)


ARRIVALS = (
    "{ per_hour = 600 } for jobs that come by chance (also per_second, per_minute, per_day, or by_hour = [24 numbers]), "
    '{ every = 10 }, or { burst = 500, at = ["09:00"], within = 60 }; each may have during = ["mon-fri 08:00-18:00"]'
)


def hint(name: str, known: list[str]) -> str:
    return nearest(name, known) or (f" Known are {', '.join(known)}." if known else "")
