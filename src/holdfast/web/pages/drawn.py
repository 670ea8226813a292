"""Templates: where they come from, and the words and shapes that they are written with.

- Everything that is put into a template is escaped. What is HTML already is made by `markupsafe` from escaped parts only.
- No text and no number makes a filter fail: jobs and builds may say what they like.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast.jobs.job import Job, Situation
from holdfast.jobs.wording import relative, shortened, span
from holdfast.web import ansi, drawing

TONES: Mapping[str, str] = {
    # jobs: states, situations, outcomes, and how attempts end
    "initial": "idle",
    "running": "run",
    "held": "run",
    "waiting": "run",
    "loose": "warn",
    "error": "warn",
    "success": "good",
    "failed": "bad",
    "aborted": "off",
    "timeout": "bad",
    "lost": "warn",
    "handed_back": "off",
    "snoozed": "off",
    "answered": "good",
    "expired": "bad",
    # steps and workflows
    "DORMANT": "idle",
    "START": "run",
    "READY": "run",
    "UNDONE": "run",
    "SUCCESS": "good",
    "IGNORED": "off",
    "ACCEPTABLE_FAILED": "warn",
    "FAILED": "bad",
    "SKIP_BY_FAILED": "off",
    "ERROR": "bad",
    "SKIP_BY_ERROR": "off",
    "STUCK": "warn",
    # breakers
    "closed": "good",
    "open": "bad",
    "probing": "warn",
    # builds
    "Freshly received": "idle",
    "Building": "run",
}


def render(template: str, **values: Any) -> str:
    """A page; what is no character in a text becomes a question mark."""
    return ENVIRONMENT.get_template(template).render(**values).encode("utf-8", "replace").decode("utf-8")


def tone(state: Any) -> str:
    """The class that gives a state its colour."""
    return TONES.get(str(state), "idle")


def job_tone(job: Job) -> str:
    if job.outcome is not None:
        return "bad" if job.outcome == "error" else tone(job.outcome)
    return tone(job.situation) if job.situation is not None else tone(job.state)


def job_state(job: Job) -> str:
    """The outcome of a final job, else the state; with its situation where that says more."""
    if job.outcome is not None:
        return str(job.outcome)
    if job.situation in (Situation.WAITING, Situation.LOOSE):
        return f"{job.state} · {job.situation}"
    return str(job.state)


def moment(value: datetime) -> str:
    """A time of UTC to the second."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def exact(value: datetime) -> str:
    """For machines."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def clock_time(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%H:%M:%S.") + f"{value.microsecond // 1000:03d}"


def count(value: float) -> str:
    """With thin spaces between the thousands."""
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if value.is_integer() else f"{value:,.4g}"
    return shown.replace(",", "\u202f")


def rate(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 100 else f"{value:,.0f}".replace(",", "\u202f")


def pretty(value: Any) -> str:
    """JSON that people can read."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except (RecursionError, ValueError):
        return "This value has too many levels, or a number of too many digits, to be shown."


def worded(text: str) -> Markup:
    """A sentence whose words in backticks are code."""
    parts = ansi.plain(text).split("`")
    if len(parts) % 2 == 0:  # one is left over: somebody's own text has it
        return escape(ansi.plain(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def address(*parts: Any) -> str:
    """A path with its parts quoted."""
    return "/" + "/".join(quote(str(part), safe="", errors="replace") for part in parts)


def query(values: Mapping[str, Any]) -> str:
    """The part of an address behind the question mark; what is empty is left out."""
    kept = {name: value for name, value in values.items() if value not in (None, "")}
    return f"?{urlencode(kept, errors='replace')}" if kept else ""


def curve(values: list[float], width: float, height: float) -> dict[str, str]:
    line, area = drawing.curve(values, width, height)
    return {"line": line, "area": area}


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("holdfast.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "tone": tone,
        "job_tone": job_tone,
        "job_state": job_state,
        "moment": moment,
        "exact": exact,
        "clock_time": clock_time,
        "count": count,
        "rate": rate,
        "pretty": pretty,
        "span": span,
        "relative": relative,
        "shortened": shortened,
        "terminal": ansi.html,
        "plain": ansi.plain,
        "worded": worded,
        "query": query,
    }
    made.globals |= {"address": address, "curve": curve, "drawing": drawing, "max": max, "min": min}
    return made


ENVIRONMENT = _environment()
