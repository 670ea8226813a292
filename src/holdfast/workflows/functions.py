"""What is handed in for a workflow by code: functions of steps, makers of items, names and params. Checked before they are used.

- A step's function takes the task, and a maker of items the task and perhaps `cursor`; what has a default is left alone.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from typing import Any

from holdfast.errors import Invalid, quoted

POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def check_function(function: Any, step: str) -> None:
    """`Invalid` for what cannot be called once for each task."""
    if not callable(function):
        raise Invalid(f"Step `{step}`: {quoted(function)} is no function; give one that takes the task.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Invalid(
            f"Step `{step}`: its function yields, and what a task does is done when its function returns. "
            "A function that yields the things to be done goes to items=."
        )
    _check_arguments(function, f"Step `{step}`: its function", ())


def check_items(function: Any, step: str) -> None:
    """`Invalid` for what cannot make items."""
    if not callable(function):
        raise Invalid(
            f"Step `{step}`: items={quoted(function)}; give a function that takes the task and gives the items."
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise Invalid(f"Step `{step}`: what makes its items is async; give a plain function or generator.")
    _check_arguments(function, f"Step `{step}`: what makes its items", ("cursor",))


def _check_arguments(function: Callable[..., Any], who: str, known: tuple[str, ...]) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # of a function that is not written in Python
    places = [each for each in parameters if each.kind in POSITIONAL and each.name not in known]
    if not places and not any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
        raise Invalid(f"{who} takes no task; give it one argument.")
    needed = [*places[1:], *(each for each in parameters if each.kind is Parameter.KEYWORD_ONLY)]
    names = sorted(each.name for each in needed if each.default is Parameter.empty and each.name not in known)
    if names:
        told = ", ".join(f"`{name}`" for name in names)
        raise Invalid(f"{who} is called with the task alone, and takes {told} too; give that a default.")


def table(value: Any, what: str) -> dict[str, Any]:
    """Names and values; `Invalid` for anything else."""
    if value is not None and not isinstance(value, Mapping):
        raise Invalid(f"{what}={quoted(value)}; give a dict of names and values.")
    return dict(value or {})


def names(value: Any, what: str) -> tuple[str, ...]:
    """Names, also where there is only one; `Invalid` for what is no list."""
    if value is None or isinstance(value, str):
        return () if value is None else (value,)
    try:
        return tuple(value)
    except TypeError:
        raise Invalid(f"{what}={quoted(value)}; give a list of names of steps.") from None


def iterated(given: Any, step: str) -> Iterator[Any]:
    """What a maker of items gave, to be gone through."""
    try:
        return iter(given)
    except TypeError:
        raise Invalid(
            f"Step `{step}`: its items are {quoted(given)}; return something to go through, or yield."
        ) from None


def pairs(lot: list[Any], step: str) -> tuple[list[Any], Any]:
    """The items of a maker that takes a cursor, and the last cursor."""
    for each in lot:
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise Invalid(
                f"Step `{step}`: its items gave {quoted(each)}; who takes a `cursor` gives pairs of a cursor and an item."
            )
    return [item for _, item in lot], lot[-1][0] if lot else None
