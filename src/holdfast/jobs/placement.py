"""Who does what: labels that jobs prefer, and the duties of workers, switched by rules (F20).

- A worker that lacks a preferred label leaves such a job to those that have it, for a while.
- A duty is on or off by the newest rule that fits the worker; where none fits, by the worker's own settings.
- Nothing here does I/O.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from holdfast.errors import Invalid, quoted
from holdfast.jobs.names import check_text
from holdfast.jobs.numbers import as_stored
from holdfast.jobs.retry import LONGEST

DUTIES = ("run", "sweep", "schedule", "serve")
PREFER_FOR = 5.0  # seconds that a job is left to workers with the labels it prefers


class Preference(Struct, frozen=True):
    """Which workers get the jobs of a type first, and for how long the others leave them to those."""

    labels: tuple[str, ...]
    seconds: float = PREFER_FOR

    def fits(self, labels: Collection[str]) -> bool:
        return set(self.labels) <= set(labels)


class Colleague(Struct, frozen=True):
    """Another live worker, as far as it matters for who gets what."""

    types: tuple[str, ...]
    labels: tuple[str, ...]
    takes_jobs: bool


class Asks(Struct, frozen=True):
    """What a worker asks for: jobs of these types, and of others when they have been due for so many seconds."""

    types: tuple[str, ...] = ()
    late: tuple[tuple[str, float], ...] = ()

    @property
    def look_every(self) -> float | None:
        """Nobody tells of a job that has been due for long; None: there is no need to look for any."""
        return max(0.05, min(seconds for _, seconds in self.late) / 2) if self.late else None


def asking(
    types: Sequence[str],
    preferences: Mapping[str, Preference],
    labels: Collection[str],
    colleagues: Iterable[Colleague],
) -> Asks:
    """The types that a worker with these labels asks for: at once, or only what those who are preferred leave."""
    left = {name: each for name, each in preferences.items() if name in types and not each.fits(labels)}
    others = list(colleagues) if left else []
    late = {
        name: each.seconds
        for name, each in left.items()
        if any(other.takes_jobs and name in other.types and each.fits(other.labels) for other in others)
    }
    return Asks(tuple(name for name in types if name not in late), tuple(sorted(late.items())))


class DutyRule(Struct, frozen=True):
    """A switch of a duty for every worker that fits; what is None fits all."""

    duty: str
    on: bool
    label: str | None = None
    host: str | None = None  # may hold `*` and `?`
    version: str | None = None  # of Holdfast; may hold `*` and `?`
    id: int = 0
    actor: str = ""
    create_time: datetime | None = None

    def fits(self, version: str, host: str, labels: Collection[str]) -> bool:
        named = self.label is None or self.label in labels
        here = self.host is None or fnmatchcase(host, self.host)
        return named and here and (self.version is None or fnmatchcase(version, self.version))

    @property
    def whom(self) -> str:
        """In words."""
        parts = [("label", self.label), ("host", self.host), ("version", self.version)]
        told = " and ".join(f"{name} {value}" for name, value in parts if value is not None)
        return f"workers with {told}" if told else "every worker"


def duties_of(
    own: Collection[str], rules: Iterable[DutyRule], version: str, host: str, labels: Collection[str]
) -> tuple[str, ...]:
    """What a worker does now, in the order of `DUTIES`; the newest rule that fits it decides."""
    on = {duty: duty in own for duty in DUTIES}
    for rule in sorted(rules, key=lambda each: each.id):
        if rule.fits(version, host, labels):
            on[rule.duty] = rule.on
    return tuple(duty for duty in DUTIES if on.get(duty))


def check_duty(duty: Any) -> str:
    if duty not in DUTIES:
        raise Invalid(f"There is no duty {quoted(duty)}; known are {', '.join(DUTIES)}.")
    return str(duty)


def check_rule(rule: DutyRule) -> DutyRule:
    check_duty(rule.duty)
    for name in ("label", "host", "version"):
        value = getattr(rule, name)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise Invalid(
                f"A rule about duties: {name}={quoted(value)}; give a text that is not empty, or leave it out."
            )
        check_text(value or "", f"A rule about duties: {name}")
    return rule


def check_preference(labels: Sequence[str], seconds: Any, what: str) -> Preference | None:
    """What a type prefers, as it was declared; None: nothing."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST:
        raise Invalid(f"{what}: prefer_for={quoted(seconds)}; give seconds, 0 or more.")
    return Preference(tuple(labels), as_stored(seconds)) if labels else None


def check_labels(labels: Any, what: str) -> tuple[str, ...]:
    """Labels as they were given: a list of texts, or one text."""
    found = (labels,) if isinstance(labels, str) else tuple(labels) if isinstance(labels, Iterable) else None
    if found is None or not all(isinstance(label, str) and label.strip() for label in found):
        raise Invalid(f"{what}={quoted(labels)}; give a list of labels that are not empty.")
    for label in found:
        check_text(label, what)
    return found
