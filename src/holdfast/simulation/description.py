"""A fleet as people write it: a TOML file, read with everything that is wrong told at once, each with its line.

- The tables below are all that may stand in it; the reference is made from them. `values` reads what stands for a key.
- A change is written as a line of TOML, `queues.mail.throttle_limit = 20`, and goes over what the file says.
"""

import contextlib
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from holdfast.builds.lines import Place, line_of, lines
from holdfast.declare import CRASH_POLICIES, new_job
from holdfast.errors import Invalid, backticked, quoted
from holdfast.jobs import retry, throttle, throttlers
from holdfast.jobs.names import check_job_type, check_name
from holdfast.simulation import size
from holdfast.simulation.fleet import (
    DAY,
    HOUR,
    Fleet,
    TypePlan,
    WorkerPlan,
)
from holdfast.simulation.values import (
    ARRIVALS,
    DURATIONS,
    Read,
    arrivals,
    duration,
    hint,
    labels,
    moment,
    number,
    one_of,
    or_none,
    payload,
    policy,
    seconds,
    texts,
    throttler,
    time_windows,
    times,
    whole,
    zone,
)
from holdfast.stores.contract import NewJob, QueueDeclared, TypeRow

A_MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
DEEPEST = 20  # levels of tables and lists
MOST_WORKERS = 1000


class Key(Struct, frozen=True):
    """A key that may stand in a description."""

    takes: str
    means: str
    read: Read


SIMULATION: Mapping[str, Key] = {
    "start": Key("a time", "When it begins; a Monday at midnight UTC unless said.", moment),
    "days": Key("a number", "How long it goes on; a day unless said.", number(above=True, most=366)),
    "hours": Key("a number", "The same in hours.", number(above=True, most=366 * 24)),
    "zone": Key("a zone", "Of the hours and times of day in this file; UTC unless said.", zone),
    "seed": Key("a whole number", "From which chance draws; 1 unless said.", whole(0)),
    "lost_after": Key(
        "seconds", "After which a worker that died is missed, 0.01 at least; 30 unless said.", seconds(0.01)
    ),
}
QUEUE: Mapping[str, Key] = {
    "throttle_limit": Key(
        "a number", "As in `app.queue`; below 1 there is none. `limit` is the same.", number(-math.inf)
    ),
    "order": Key('`"priority"` or `"schedule"`', "As in `app.queue`.", one_of("priority", "schedule")),
    "throttler": Key(
        "a table",
        '`{ kind = "rate", count = 100, per = 60, burst = 10 }`, `{ kind = "share", key = "region", shares = { eu = 40 } }` or '
        '`{ kind = "per_key", key = "customer", limit = 5 }`.',
        throttler,
    ),
}
TYPE: Mapping[str, Key] = {
    "queue": Key("a queue", "Where its jobs stand. Not needed where there is one queue.", lambda value: value),
    "arrivals": Key("a table, or a list of them", f"When they come: {ARRIVALS}.", arrivals),
    "duration": Key("seconds, or a table", f"How long an attempt takes: {DURATIONS}. 1 unless said.", duration),
    "failure_rate": Key("a share", "How many attempts fail, from 0 to 1.", number(most=1.0)),
    "keys": Key("a whole number", "Jobs have one of so many keys, by chance; 0 for none.", whole(0)),
    "payload": Key(
        "a table", "Values of arguments with their weights, for throttlers: `{ region = { eu = 3, us = 1 } }`.", payload
    ),
    "expires_after": Key("seconds", "From the enqueue to `expires`.", seconds(above=True)),
    "timeout": Key('seconds, or `"none"`', "As in `@queue.job`.", or_none(number(above=True))),
    "retries": Key('a whole number, or `"none"`', "As in `@queue.job`.", or_none(whole(0))),
    "retry": Key(
        "a table", '`{ kind = "fixed", seconds = 5 }`, `linear`, `exponential`, `adaptive` or `none`.', policy
    ),
    "priority": Key("a number", "As in `@queue.job`.", number(-math.inf)),
    "throttle_factor": Key("a number", "As in `@queue.job`.", number()),
    "time_windows": Key("a list of windows", "As in `@queue.job`.", time_windows),
    "on_crash": Key('`"rerun"` or `"timeout"`', "As in `@queue.job`.", one_of(*CRASH_POLICIES)),
    "max_crashes": Key('a whole number, or `"none"`', "As in `@queue.job`.", or_none(whole(1))),
    "labels": Key("a list", "That a worker must have to run them.", labels),
    "prefers": Key("a list", "Labels of workers that get them first.", labels),
    "prefer_for": Key("seconds", "How long the others leave them to those.", seconds()),
}
WORKER: Mapping[str, Key] = {
    "count": Key("a whole number", "How many there are that are alike; 1 unless said.", whole(0, MOST_WORKERS)),
    "concurrency": Key("a whole number", "Slots of each; 100 unless said, as for a worker.", whole(1, 100_000)),
    "queues": Key("a list of queues", "That they work on; all unless said.", texts),
    "types": Key("a list of types", "That they run; all whose labels they have unless said.", texts),
    "labels": Key("a list", "That they have.", labels),
    "start": Key("times of day", "When they come, each day; unless said they are there from the beginning.", times),
    "stop": Key("times of day", "When they leave in good order, each day.", times),
    "grace": Key("seconds", "What is in hand then has to end; 10 unless said.", seconds()),
    "crashes": Key("times of day", "When they die, each day.", times),
    "crashes_every": Key("seconds", "Between crashes of one of them, on average; 1 at least.", seconds(1)),
    "restart_after": Key('seconds, or `"none"`', "From a crash to the next start; 10 unless said.", or_none(seconds())),
}
SHORT = {"limit": "throttle_limit"}
SAME = {**SHORT, "hours": "days"}  # of which one may stand
RIVALS = {**SAME, **{other: name for name, other in SAME.items()}}
TABLES: Mapping[str, Mapping[str, Key]] = {"queues": QUEUE, "types": TYPE, "workers": WORKER}
MADE_UP: Mapping[str, Sequence[str]] = {  # what a day that was brings itself
    "simulation": ("start",),
    "types": ("arrivals", "duration", "failure_rate", "keys", "payload", "expires_after"),
}
Problem = tuple[Sequence[Place], str]  # what it may be due to, first of all the first, and what is wrong


class WrongDescription(Invalid):
    """A description that cannot be played; `problems` are all the reasons, each with its place."""

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        told = " ".join(f"({at}) {text}" for at, text in enumerate(problems, 1))
        super().__init__(
            problems[0] if len(problems) == 1 else f"{where} cannot be played, for {len(problems)} reasons: {told}"
        )


class Described(Struct, frozen=True):
    """What was written, and where."""

    where: str
    content: Mapping[str, Any]
    text: str = ""
    day: str = ""  # that was, whose jobs are played; none: those that are described
    changes: tuple[tuple[str, Place], ...] = ()  # as they were written, and what each is about
    problems: tuple[Problem, ...] = ()  # of the changes

    def place(self, places: Sequence[Place]) -> tuple[int, str]:
        """Of a problem, for people, and a number to sort by."""
        for index, (written, about) in reversed(list(enumerate(self.changes))):
            if any(about[: len(place)] == place or place[: len(about)] == about for place in places):
                return 1_000_000 + index, written
        place, known = places[0], lines(self.text)
        if self.day and place[:2] not in known:
            return 0, f"--from-archive {self.day}: {'.'.join(place)}"
        line = line_of(known, place)
        return line, f"{self.where}:{line}"


def read(text: str, where: str) -> Described:
    """What the file says; `WrongDescription` if it is not TOML, or more than a description could be."""
    try:
        return Described(where, _parsed(text), text)
    except tomllib.TOMLDecodeError as error:
        raise WrongDescription(where, [f"{where}: is not TOML: {error}."]) from None
    except ValueError as error:
        raise WrongDescription(where, [f"{where}: cannot be read: {error}."]) from None


def _parsed(text: str) -> dict[str, Any]:
    """What a TOML text says; `ValueError` if it says nothing that could be a description."""
    deep = f"it is nested deeper than {DEEPEST} levels, and no description is; take the inner ones away"
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError(deep) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # from `int`
        raise ValueError("a number in it has thousands of digits; write a smaller one") from None
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for several in inner for each in several if isinstance(each, dict | list)]
    if level:
        raise ValueError(deep)
    return found


def changed(described: Described, changes: Sequence[str]) -> Described:
    """With changes over it, each a line of TOML; a value that is no TOML is a text."""
    content: dict[str, Any] = _copied(described.content)
    known, problems = list(described.changes), list(described.problems)
    for written in changes:
        change = _line(written)
        place = _place_of(change)
        known.append((f"--set {written}", place))
        strange = _strange(content, change)
        problems += [((place,), told) for told in strange]
        if not strange:
            _lay_over(content, change)
    return structs.replace(described, content=content, changes=tuple(known), problems=tuple(problems))


def flagged(described: Described, flags: Mapping[str, Any]) -> Described:
    """With flags of the command over what it says of the simulation."""
    content: dict[str, Any] = _copied(described.content)
    _lay_over(content, {"simulation": dict(flags)} if flags else {})
    known = tuple((f"--{name}", ("simulation", name)) for name in flags)
    return structs.replace(described, content=content, changes=(*described.changes, *known))


def over(described: Described, content: Mapping[str, Any], day: str) -> Described:
    """What is written over what is known of a day that was."""
    under: dict[str, Any] = _copied(content)
    _lay_over(under, described.content)
    return structs.replace(described, content=under, day=day)


def _strange(content: Mapping[str, Any], change: Mapping[str, Any]) -> list[str]:
    """What is wrong with the names in a change: one with a slip of the pen would be a new queue, type or worker."""
    found = []
    for table in TABLES:
        named, known = (each.get(table) for each in (change, content))
        if isinstance(named, dict) and isinstance(known, dict):
            strange = [name for name in named if name not in known]
            found += [f"{backticked(name)} is none of the {table}.{hint(name, list(known))}" for name in strange]
    return found


def _line(written: str) -> dict[str, Any]:
    name, equals, value = written.partition("=")
    for each in (value.strip(), msgspec.json.encode(value.strip()).decode()) if equals else ():
        with contextlib.suppress(ValueError):
            return _parsed(f"{name} = {each}")
    raise Invalid(
        f"--set {quoted(written)} is no change; write what and how, for example --set queues.mail.throttle_limit=20."
    )


def _copied(value: Any) -> Any:
    return {name: _copied(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def _lay_over(content: dict[str, Any], change: Mapping[str, Any]) -> None:
    for name, value in change.items():
        if not isinstance(value, dict):  # else it is the name of a queue, a type or workers
            content.pop(RIVALS.get(name, ""), None)
    for name, value in change.items():
        if isinstance(value, dict) and isinstance(content.get(name), dict) and "kind" not in value:
            _lay_over(content[name], value)
        else:
            content[name] = value


def _place_of(change: Mapping[str, Any]) -> Place:
    place: list[str] = []
    while isinstance(change, Mapping) and len(change) == 1:
        name, change = next(iter(change.items()))
        place.append(name)
    return tuple(place)


def fleet(described: Described) -> Fleet:
    """The fleet that is described; `WrongDescription` with everything that is wrong."""
    reading = _Reading(described.content, bool(described.day))
    problems = (*described.problems, *reading.problems)
    if problems:
        found = sorted((*described.place(places), told) for places, told in problems)
        raise WrongDescription(described.where, [f"{place}: {told}" for _, place, told in found])
    return reading.fleet()


class _Reading:
    """Takes what was written apart and collects what is wrong with it."""

    def __init__(self, content: Mapping[str, Any], recorded: bool) -> None:
        self.problems: list[Problem] = []
        self._recorded = recorded
        self._unknown(content, (), ["simulation", *TABLES])
        self._simulation = self._values(content.get("simulation", {}), ("simulation",), SIMULATION)
        tables = {name: self._tables(content, name) for name in TABLES}
        self._queues = {name: self._queue(name, values) for name, values in tables["queues"].items()}
        self._types = {name: self._type(name, values) for name, values in tables["types"].items()}
        self._workers = tuple(self._worker(name, values) for name, values in tables["workers"].items())
        self._check_size()

    def fleet(self) -> Fleet:
        given = dict(self._simulation)
        named = {name: given[name] for name in ("zone", "seed", "lost_after") if name in given}
        return Fleet(
            start=given.get("start", A_MONDAY),
            seconds=self._length(),
            queues=tuple(self._queues.values()),
            types={name: plan for name, plan in self._types.items() if plan is not None},
            workers=self._workers,
            **named,
        )

    def _length(self) -> float:
        given = self._simulation
        return float(given["hours"] * HOUR if "hours" in given else given.get("days", 1.0) * DAY)

    def _check_size(self) -> None:
        """What would not come to an end, in time or in memory, is not begun."""
        length, fewer = self._length(), "have fewer come"
        plans = {name: plan for name, plan in self._types.items() if plan is not None}
        jobs = {name: sum(size.jobs(each, length) for each in plan.arrivals) for name, plan in plans.items()}
        self._check_sum("types", jobs, ["arrivals"], "`arrivals`: about {:,.0f} jobs", size.MOST_JOBS, fewer)
        retries = {
            name: size.retries(plan, jobs[name], size.slots(plan, self._queues.values(), self._workers), length)
            for name, plan in plans.items()
        }
        keys = ["retries", "retry", "failure_rate", "duration", "timeout", "arrivals"]
        self._check_sum("types", retries, keys, "about {:,.0f} retries", size.MOST_RETRIES, size.CALMER)
        crashes = {
            plan.name: plan.count
            * (len(plan.crashes) * math.ceil(length / DAY) + length / (plan.crashes_every or math.inf))
            for plan in self._workers
        }
        told, keys = "`crashes_every` and `crashes`: about {:,.0f} crashes", ["crashes_every", "crashes", "count"]
        self._check_sum("workers", crashes, keys, told, size.MOST_CRASHES, fewer)

    def _check_sum(
        self, table: str, counts: Mapping[str, float], keys: Sequence[str], told: str, most: int, act: str
    ) -> None:
        total = sum(counts.values())
        if total > most:
            worst = max(counts, key=counts.__getitem__)
            told = (
                f"{told.format(total)} of all {table} come in {self._length() / HOUR:g} h, and at most "
                f"{most:,} are played; {act}, or play fewer hours."
            )
            self.problems.append(([(table, worst, key) for key in keys], told))

    def _tables(self, content: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
        found = content.get(name)
        if not isinstance(found, dict) or not found:
            self._wrong((name,), f"it has no {name}; write one as [{name}.NAME].")
            return {}
        return {each: self._values(table, (name, each), TABLES[name]) for each, table in found.items()}

    def _values(self, table: Any, place: Place, known: Mapping[str, Key]) -> dict[str, Any]:
        if not isinstance(table, dict):
            self._wrong(
                place,
                f"{backticked('.'.join(place))} is {quoted(table)}; give a table: [{place[0]}{'.NAME' * (len(place) - 1)}].",
            )
            return {}
        short: Mapping[str, str] = SHORT if known is QUEUE else {}
        self._unknown(table, place, [*known, *short])
        for name, other in SAME.items():
            if {name, other} <= table.keys():
                self._wrong((*place, name), f"`{name}` and `{other}` say the same; give one of the two.")
        found = {}
        for name, value in table.items():
            if self._recorded and name in MADE_UP.get(place[0], ()):
                told = f"`{name}` is not for a day that was, whose jobs come and end as they did; take it away."
                self._wrong((*place, name), told)
                continue
            meant = str(short.get(name, name))
            if meant in known:
                try:
                    found[meant] = known[meant].read(value)
                except Invalid as error:
                    self._wrong((*place, name), f"`{name}` {error}")
        return found

    def _unknown(self, table: Mapping[str, Any], place: Place, known: list[str]) -> None:
        for name in table:
            if name not in known:
                self._wrong((*place, name), f"{backticked(name)} is not a known key.{hint(name, known)}")

    def _queue(self, name: str, values: Mapping[str, Any]) -> QueueDeclared:
        self._attempt(("queues", name), lambda: check_name(name, "Queue"))
        order, limit = values.get("order", "priority"), values.get("throttle_limit", 0.0)
        return QueueDeclared(name, f"simulation_{name}", order, limit, values.get("throttler"))

    def _type(self, name: str, values: dict[str, Any]) -> TypePlan | None:
        place = ("types", name)
        self._attempt(place, lambda: check_job_type(name))
        queue = values.get("queue", next(iter(self._queues)) if len(self._queues) == 1 else None)
        if not isinstance(queue, str) or queue not in self._queues:
            told = "it names no queue" if queue is None else f"{backticked(queue)} is no queue of this file"
            self._wrong((*place, "queue"), f"{told}.{hint(str(queue), list(self._queues))}")
            return None
        row = _row(name, queue, values)
        if not self._recorded:  # else each job is refused or not when it comes, and counted
            self._check_fit(row, self._queues[queue], values.get("payload", {}))
        template = self._attempt(place, lambda: new_job(row, "{}", {}))
        if not isinstance(template, NewJob):
            return None
        names = ("arrivals", "duration", "failure_rate", "keys", "expires_after", "payload")
        return TypePlan(row, template, **{each: values[each] for each in names if each in values})

    def _check_fit(self, row: TypeRow, queue: QueueDeclared, weights: Mapping[str, Mapping[str, float]]) -> None:
        """A job that the limit or its pool could never let start would be refused when it is enqueued."""
        factor, found = row.default_throttle_factor, throttlers.decode(queue.throttler)
        try:
            throttle.check_factor(factor, queue.throttle_limit)
            for value in weights.get(getattr(found, "key", ""), {None: 1.0}):
                throttle.check_pool(found, throttlers.pool_of_value(found, value), factor)
        except Invalid as error:
            own = [("types", row.job_type, name) for name in ("throttle_factor", "queue", "payload")]
            others = [("queues", queue.name, name) for name in ("throttle_limit", "limit", "throttler")]
            self.problems.append(((*own, *others), f"Type `{row.job_type}`: {error}"))

    def _worker(self, name: str, values: dict[str, Any]) -> WorkerPlan:
        place = ("workers", name)
        for key, known in (("queues", list(self._queues)), ("types", list(self._types))):
            for each in values.get(key, ()):
                if each not in known:
                    self._wrong(
                        (*place, key), f"{backticked(each)} is none of the {key} of this file.{hint(each, known)}"
                    )
        return WorkerPlan(name, **values)

    def _attempt(self, place: Place, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except Invalid as error:
            self._wrong(place, str(error))
            return None

    def _wrong(self, place: Place, told: str) -> None:
        self.problems.append(((place,), told))


def _row(name: str, queue: str, values: Mapping[str, Any]) -> TypeRow:
    """The type as it would be registered."""
    defaults = {
        f"default_{each}": values[each]
        for each in ("timeout", "priority", "throttle_factor", "time_windows", "retries")
        if each in values
    }
    others = {
        each: values[each] for each in ("on_crash", "max_crashes", "labels", "prefers", "prefer_for") if each in values
    }
    return TypeRow(
        name,
        queue,
        **defaults,
        **others,
        timeout_named="timeout" in values,
        retries_named="retries" in values,
        retry=retry.encode(values.get("retry")),
        has_handler=True,
    )
