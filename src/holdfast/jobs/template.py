"""Templates: JSON in whose texts variables stand in braces.

    {"day": "{time:%Y-%m-%d}", "run": "{count}", "region": "{region}", "literal": "{{not a variable}}"}

- `{time}` is the moment, as 2026-01-31T02:00:00Z. `{time:…}` writes it with strftime's letters, on the clock of the
  template's zone.
- `{count}` is a number. Any other name is a constant that was given with the template.
- A text that is one variable and nothing else becomes its value, with its type; inside a longer text it is written out.
- A brace itself is written twice. Names in objects (keys) are left as they are.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from holdfast.errors import quoted

BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OWN = ("count", "time")


def problems(template: Any, const: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a template and the constants for it, each with its cure."""
    for name in const:
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in OWN:
            yield f"const {quoted(name)}: a name has letters, digits and `_`, and is not {' or '.join(f'`{own}`' for own in OWN)}"
    known = (*OWN, *const)
    for text in _texts(template):
        for match in BRACES.finditer(text):
            problem = _problem_of(match, text, const, known)
            if problem is not None:
                yield problem


def _problem_of(match: re.Match[str], text: str, const: Mapping[str, Any], known: tuple[str, ...]) -> str | None:
    if match[0] in ("{{", "}}"):
        return None
    if match[1] is None:
        return f"{quoted(text)} has a single `{match[0]}`; write a brace twice"
    name, colon, _ = match[1].partition(":")
    if name not in known:
        near = get_close_matches(name, known, n=1)
        cure = f"did you mean `{{{near[0]}}}`?" if near else f"known are {', '.join(known)}; write a brace itself twice"
        return f"{quoted(text)} names a variable `{name}` that there is not; {cure}"
    if colon and name != "time":
        return f"{quoted(text)} gives `{name}` a form; only `time` takes one, as {{time:%Y-%m-%d}}"
    value = const.get(name)
    if match[0] != text and isinstance(value, dict | list | tuple | type(None)) and name not in OWN:
        return f"{quoted(text)} writes `{name}` into a text, but it is {quoted(value)}; let it stand alone"
    return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def fill(template: Any, const: Mapping[str, Any], count: int, time: datetime, zone: str = "UTC") -> Any:
    """The template with its variables' values."""
    if isinstance(template, str):
        return _fill_text(template, {**const, "count": count}, time, zone)
    if isinstance(template, Mapping):
        return {name: fill(item, const, count, time, zone) for name, item in template.items()}
    if isinstance(template, list | tuple):
        return [fill(item, const, count, time, zone) for item in template]
    return template


def _fill_text(text: str, values: Mapping[str, Any], time: datetime, zone: str) -> Any:
    def value_of(inner: str) -> Any:
        name, _, form = inner.partition(":")
        if name != "time":
            return values[name]
        return time.astimezone(ZoneInfo(zone)).strftime(form) if form else written(time)

    def word(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        value = value_of(match[1])
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    whole = BRACES.fullmatch(text)
    if whole is not None and whole[1] is not None:
        return value_of(whole[1])
    return BRACES.sub(word, text)


def written(time: datetime) -> str:
    """A moment as ISO 8601 in UTC."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
