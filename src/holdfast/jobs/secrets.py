"""Arguments that nobody is shown: what stands in their place, and what is taken out of texts.

- Whoever runs the job gets the value. Views, logs, errors and tracebacks do not.
- A text is cleaned of each value that is a text of four characters or more, or holds such; shorter ones would tear holes into words.
- It is cleaned before it is cut to its length: of a value that was cut in two nothing would be found.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

SHOWN = "[secret]"
SHORTEST = 4


def redacted(payload: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A payload as it may be shown."""
    return {name: SHOWN if name in names else value for name, value in payload.items()}


def values_in(payload: str, names: Collection[str]) -> tuple[str, ...]:
    """The texts to take out of whatever the job says, the longest first."""
    return values_of(msgspec.json.decode(payload), names)


def values_of(found: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """The same of arguments that are read already."""
    texts = {text for name in names for text in _texts(found.get(name)) if len(text) >= SHORTEST}
    return tuple(sorted({form for text in texts for form in _forms(text)}, key=len, reverse=True))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _forms(text: str) -> tuple[str, ...]:
    """As it is, and as Python and JSON write it: an exception may quote it."""
    return text, repr(text)[1:-1], json.dumps(text)[1:-1], msgspec.json.encode(text).decode()[1:-1]


def without(text: str, values: Collection[str]) -> str:
    """The text with none of the values in it."""
    for value in values:
        text = text.replace(value, SHOWN)
    return text
