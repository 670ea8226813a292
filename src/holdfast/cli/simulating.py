"""What `holdfast simulate` does: reads, plays once or twice, and shows what came of it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs
from rich.console import RenderableType
from rich.text import Text

from holdfast.cli import instance, tables
from holdfast.cli.command import Call
from holdfast.cli.output import say, say_json
from holdfast.cli.progress import counting, passing
from holdfast.clock import monotonic
from holdfast.errors import Invalid, NotFound, quoted, reason, shown_path
from holdfast.simulation import description, recording, size, values
from holdfast.simulation.description import Described
from holdfast.simulation.fleet import DAY, Fleet, Recorded
from holdfast.simulation.playing import play
from holdfast.simulation.tally import QueueResult, Result, Spread, TypeResult, WorkerResult

RARE = {"duplicates": 0, "limit use": None, "at limit": None}  # not shown where both have just that
BARS = " ▁▂▃▄▅▆▇█"
NARROW = 48  # columns of a chart on a narrow terminal

Measures = Mapping[str, float | None]  # None: nothing was measured


class Variant(Struct, frozen=True):
    """A fleet that was played."""

    result: Result
    took: float  # seconds


def run(call: Call, file: Path | None, changes: Sequence[str], day: str | None, flags: Mapping[str, Any]) -> None:
    if file is None and day is None:
        raise Invalid("Name a file that describes the fleet, or --from-archive DAY for one that was.")
    described, recorded = _read(call, file, day)
    described = _flagged(described, flags)
    fleets = [_fleet(described, recorded, day)]
    if changes:
        fleets.append(_fleet(description.changed(described, changes), recorded, day))
    several = ("As described: ", "With the change: ") if changes else ("",)
    variants = [_played(fleet, which) for fleet, which in zip(fleets, several, strict=True)]
    if call.json:
        say_json(_shape(variants, changes))
    else:
        _show(variants, changes)


def _read(call: Call, file: Path | None, day: str | None) -> tuple[Described, list[Recorded]]:
    written = None if file is None else _file(file)
    if day is None:
        assert written is not None
        return written, []
    since = _midnight(day)
    with instance.existing(call.settings()) as app, counting("read") as count:
        content = recording.described(app.store)
        for queue in recording.functions(app.store):
            say(
                f"Queue `{queue}` has a function as its throttler, which stands in the app's code: it is played without."
            )
        recorded = recording.recorded(app.store, since, since + timedelta(days=1), count)
    if "workers" not in content and (written is None or "workers" not in written.content):
        raise NotFound(
            "No worker that runs jobs is alive, so nobody knows how many there are to be. Describe them in a file, as [workers.NAME] "
            "with count and concurrency, and name it before --from-archive."
        )
    if written is None:
        written = Described(f"--from-archive {day}", {})
    return description.over(written, content, day), recorded


def _file(file: Path) -> Described:
    try:
        return description.read(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        raise NotFound(f"There is no file {shown_path(file)}. Name a description of a fleet, as TOML.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(
            f"{shown_path(file)} cannot be read: {reason(error)}. Name a description of a fleet, as TOML."
        ) from error


def _midnight(day: str) -> datetime:
    try:
        found = date.fromisoformat(day)
    except ValueError:
        raise Invalid(f"--from-archive is {quoted(day)}; write a day as 2026-12-24.") from None
    if found.year not in values.YEARS:
        years = values.YEARS
        raise Invalid(f"--from-archive is {quoted(day)}; give a day of a year from {years[0]} to {years[-1]}.")
    return datetime.combine(found, datetime.min.time(), UTC)


def _flagged(described: Described, flags: Mapping[str, Any]) -> Described:
    """Flags win over what the file says of the same."""
    given = {name: value for name, value in flags.items() if value is not None}
    if {"days", "hours"} <= given.keys():
        raise Invalid("Give --days or --hours, not both.")
    return description.flagged(described, given)


def _fleet(described: Described, recorded: list[Recorded], day: str | None) -> Fleet:
    fleet = description.fleet(described)
    if day is None:
        return fleet
    unknown = {each.job_type for each in recorded} - fleet.types.keys()
    assert not unknown, unknown
    simulation = described.content.get("simulation", {})
    length = fleet.seconds if {"days", "hours"} & simulation.keys() else DAY
    found = structs.replace(fleet, start=_midnight(day), seconds=length, recorded=recorded)
    size.check_recorded(found)
    return found


def _played(fleet: Fleet, which: str) -> Variant:
    began = monotonic()
    with passing(which) as told:
        return Variant(play(fleet, told), monotonic() - began)


# For programs


def _shape(variants: Sequence[Variant], changes: Sequence[str]) -> dict[str, Any]:
    described, changed = variants[0], variants[1] if changes else None
    return {
        "described": msgspec.to_builtins(described.result),
        "changed": None if changed is None else msgspec.to_builtins(changed.result),
        "set": list(changes),
        "differences": None
        if changed is None
        else {
            f"{name}: {what}": {"described": before, "changed": after}
            for name, what, before, after, _ in _measures(described.result, changed.result)
        },
    }


# For people


def _show(variants: Sequence[Variant], changes: Sequence[str]) -> None:
    first = variants[0]
    result = first.result
    took = " and ".join(tables.span(each.took) for each in variants)
    say(
        f"{result.jobs:,} jobs in {tables.span(result.seconds)} from {result.start}, seed {result.seed}; it took {took}.\n"
    )
    _show_refused(variants)
    if changes:
        changed = variants[1].result
        say(f"As described, and with {', '.join(changes)}:\n")
        tables.show(_compared(result, changed), Text())
        tables.show(*_charts(result, changed))
        return
    tables.show(_types(result), Text(), _queues(result), Text(), _workers(result), Text())
    tables.show(*_charts(result))


def _show_refused(variants: Sequence[Variant]) -> None:
    for when, variant in zip(("", ", with the change"), variants, strict=False):
        refused = sum(each.refused for each in variant.result.types.values())
        if refused:
            say(f"Refused when they came{when}: {refused:,}. The first is {variant.result.first_refusal}\n")


def _types(result: Result) -> RenderableType:
    spans = ("wait p50", "p90", "p99", "max", "turnaround p50", "p99 ")
    rare = ("duplicates",) if any(each.duplicates for each in result.types.values()) else ()
    counts = (*rare, "retries", "dead", "left")
    headers = ("type", "queue", "jobs", *spans, *counts)
    rows = [
        (
            name,
            each.queue,
            f"{each.arrived:,}",
            *_spans(each.wait, "p50", "p90", "p99", "max"),
            *_spans(each.turnaround, "p50", "p99"),
            *(f"{getattr(each, count):,}" for count in counts),
        )
        for name, each in result.types.items()
    ]
    return tables.listing(headers, rows, right=headers[2:], whole=("type",), spare=("queue", "turnaround p50", "p99 "))


def _spans(spread: Spread, *names: str) -> list[str]:
    return [tables.span(getattr(spread, name)) if spread.count else "–" for name in names]


def _queues(result: Result) -> RenderableType:
    headers = ("queue", "wait p50", "p90", "p99", "max", "limit", "in use", "limit use", "at limit", "most backlog")
    rows = [
        (
            name,
            *_spans(each.wait, "p50", "p90", "p99", "max"),
            "–" if each.throttle_limit is None else f"{each.throttle_limit:g}",
            f"{each.in_use:.2f}",
            *("–" if share is None else f"{share:.0%}" for share in (each.limit_use, each.at_limit)),
            f"{each.most_backlog:,}",
        )
        for name, each in result.queues.items()
    ]
    return tables.listing(headers, rows, right=headers[1:], whole=("queue",))


def _workers(result: Result) -> RenderableType:
    headers = ("workers", "count", "slots", "utilisation", "busiest", "attempts", "crashes")
    rows = [
        (
            name,
            f"{each.workers}",
            f"{each.slots:,}",
            f"{each.utilisation:.0%}",
            f"{each.busiest:.0%}",
            f"{each.attempts:,}",
            f"{each.crashes:,}",
        )
        for name, each in result.workers.items()
    ]
    return tables.listing(headers, rows, right=headers[1:], whole=("workers",))


def _charts(*results: Result) -> Iterator[RenderableType]:
    """The backlog of each queue from left to right; of several results, on the same scale."""
    stretch = results[0].stretch
    width = len(next(iter(results[0].queues.values())).backlog)
    if tables.console().width < width + 16:
        width = NARROW
    yield Text(
        f"Backlog, the most in each {tables.span(stretch * len(next(iter(results[0].queues.values())).backlog) / width)}"
    )
    for name in results[0].queues:
        series = [_squeezed(each.queues[name].backlog, width) for each in results if name in each.queues]
        most = max((max(each) for each in series), default=0)
        for index, each in enumerate(series):
            label = name if not index else "changed"
            yield Text(f"{label[:20]:<20} {''.join(_bar(value, most) for value in each)} {max(each):,}")


def _squeezed(values: Sequence[int], width: int) -> list[int]:
    size = max(1, len(values) // width)
    return [max(values[start : start + size]) for start in range(0, len(values), size)]


def _bar(value: int, most: int) -> str:
    return BARS[0] if not value else BARS[max(1, round(value / most * (len(BARS) - 1)))]


def _compared(described: Result, changed: Result) -> RenderableType:
    headers = ("of", "measure", "as described", "changed", "difference")
    rows = [
        (name, what, _told(what, before), _told(what, after), difference)
        for name, what, before, after, difference in _measures(described, changed)
        if what not in RARE or {before, after} != {RARE[what]}
    ]
    return tables.listing(headers, rows, right=headers[2:], whole=headers)


def _measures(described: Result, changed: Result) -> Iterator[tuple[str, str, float | None, float | None, str]]:
    """What people look at, of both."""
    for name, each in described.types.items():
        yield from _both(name, _of_type(each), _of_type(changed.types[name]))
    for name, queue in described.queues.items():
        yield from _both(f"queue {name}", _of_queue(queue), _of_queue(changed.queues[name]))
    for name, worker in described.workers.items():
        yield from _both(f"worker {name}", _of_worker(worker), _of_worker(changed.workers[name]))


def _both(name: str, before: Measures, after: Measures) -> Iterator[tuple[str, str, float | None, float | None, str]]:
    for what, value in before.items():
        yield name, what, value, after[what], _difference(what, value, after[what])


def _of_type(each: TypeResult) -> Measures:
    return {
        "wait p50": _of_spread(each.wait, "p50"),
        "wait p99": _of_spread(each.wait, "p99"),
        "wait max": _of_spread(each.wait, "max"),
        "turnaround p99": _of_spread(each.turnaround, "p99"),
        "duplicates": each.duplicates,
        "retries": each.retries,
        "dead": each.dead,
        "left": each.left,
    }


def _of_spread(spread: Spread, name: str) -> float | None:
    return getattr(spread, name) if spread.count else None


def _of_queue(each: QueueResult) -> Measures:
    return {"limit use": each.limit_use, "at limit": each.at_limit, "most backlog": each.most_backlog}


def _of_worker(each: WorkerResult) -> Measures:
    return {"slots": each.slots, "utilisation": each.utilisation if each.slots else None}


def _told(what: str, value: float | None) -> str:
    if value is None:
        return "–"
    if what.startswith(("wait", "turnaround")):
        return tables.span(value)
    return f"{value:.0%}" if what in ("limit use", "at limit", "utilisation") else f"{value:,}"


def _difference(what: str, before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return ""
    if before == after:
        return "same"
    sign = "+" if after > before else "−"
    if what in ("limit use", "at limit", "utilisation"):
        return f"{sign}{abs(after - before) * 100:.2g} points"
    if not before:
        return f"{sign}{_told(what, abs(after - before))}"
    return f"{sign}{max(0.01, abs(after / before - 1)):.0%}"
