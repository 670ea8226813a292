"""JSON as people and programs hand it in, and nothing else: no NaN, no name twice in an object, no nesting beyond reason."""

import json
from typing import Any


def parse(text: str) -> Any:
    """What it says. `JSONDecodeError` if it is no JSON, another `ValueError` if it is none that is taken."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except NoNumber as error:
        json.loads(text)  # perhaps it is no JSON behind it either
        raise ValueError(f"{error} is no number of JSON") from None


class NoNumber(Exception):
    """NaN, or an infinity."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {twice!r:.80} twice")
    return found


def _constant(name: str) -> Any:
    raise NoNumber(name)
