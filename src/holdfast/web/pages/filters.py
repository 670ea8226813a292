"""The filter of a list of jobs, as it stands in an address: shareable, and checked before it is used."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import Invalid, quoted
from holdfast.jobs.job import Outcome, Situation, State
from holdfast.jobs.states import STATUS
from holdfast.stores.contract import Filter

CHOICES = {
    "state": tuple(State),
    "status": tuple(dict.fromkeys(STATUS.values())),
    "outcome": tuple(Outcome),
    "situation": tuple(Situation),
}
TEXTS = ("job_type", "job_key", "queue", "error")
WHOLE = ("worker", "run", "retry_of", "attempt", "failures", "before")
MOST_DIGITS = 18  # of a number that every database can hold
TIMES = tuple(
    f"{name}_{end}" for name in ("create_time", "scheduled_run_time", "end_time") for end in ("since", "until")
)
# What stands under "More fields": the name, the kind of input, and what to write there.
MORE: tuple[tuple[str, str, str], ...] = (
    ("situation", "text", "held, waiting or loose"),
    ("error", "text", "stands in the error"),
    ("attempt", "number", ""),
    ("failures", "number", ""),
    ("priority", "number", ""),
    ("worker", "number", "id"),
    ("run", "number", "id of a run"),
    ("retry_of", "number", "id of a job"),
    *((name, "datetime-local", "") for name in TIMES),
)


def chosen(asked: Mapping[str, str]) -> dict[str, str]:
    """What is asked for, by name; what is empty or says nothing about jobs is left out."""
    names = (*CHOICES, *TEXTS, *WHOLE, *TIMES, "priority", "archive")
    return {name: asked[name].strip() for name in names if name != "before" and asked.get(name, "").strip()}


def narrows(asked: Mapping[str, str]) -> bool:
    """Whether it is less than everything: to look into the archive too is more."""
    return bool(chosen(asked).keys() - {"archive"})


def wanted(asked: Mapping[str, str], limit: int) -> Filter:
    """The filter; `Invalid` names what does not fit."""
    values: dict[str, Any] = {}
    for name, text in (chosen(asked) | ({"before": asked["before"]} if asked.get("before") else {})).items():
        if name in CHOICES:
            values[name] = _choice(name, text)
        elif name in WHOLE:
            values[name] = whole(name, text)
        elif name in TIMES:
            values[name] = _time(name, text)
        elif name == "priority":
            values[name] = _number(name, text)
        elif name == "archive":
            values[name] = text == "yes"
        else:
            values[name] = text
    return Filter(**values, limit=limit)


def _choice(name: str, text: str) -> str:
    if text not in CHOICES[name]:
        raise Invalid(f"{name}={quoted(text)}: known are {', '.join(CHOICES[name])}.")
    return text


def whole(name: str, text: str) -> int:
    """A number as ids are; `Invalid` if it is none."""
    if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS:
        raise Invalid(f"{name}={quoted(text)}: give a whole number, 0 or more.")
    return int(text)


def _number(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise Invalid(f"{name}={quoted(text)}: give a number.")
    return found


def _time(name: str, text: str) -> datetime:
    """As ISO 8601 writes it; without a zone it is UTC, as everywhere on these pages."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{name}={quoted(text)}: give a time like 2026-11-16T03:00.") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
