"""Arguments that a function of the API does not have, or lacks: refused as wrong values are."""

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from holdfast.errors import Invalid, quoted

P = ParamSpec("P")
R = TypeVar("R")


def refuses_wrong_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Raise `Invalid`, with the arguments that there are, where Python would raise a TypeError about a call."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # it comes from the body
                raise
            raise Invalid(_problem(function, args, kwargs)) from None

    return called


def choice(name: str, known: Collection[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known ones, and all of them."""
    near = get_close_matches(name, known, n=2) or [each for each in known if name in each.split("_")]
    hint = f"did you mean {' or '.join(f'`{each}`' for each in near)}? Known" if near else "known"
    return f"; {hint} are {', '.join(known)}."


def _problem(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    own = [each for each in signature(function).parameters.values() if each.name != "self"]
    given = args[1:] if "self" in signature(function).parameters else args
    name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    by_place = [each.name for each in own if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    known = [each.name for each in own if each.kind is not Parameter.VAR_KEYWORD]
    for each in kwargs:
        if each not in known and len(known) == len(own):
            return f"{name}(…): unknown argument {quoted(each)}{choice(each, known)}"
        if each in by_place[: len(given)]:
            return f"{name}(…): `{each}` is given twice, by position and by name. Give it once."
    if len(given) > len(by_place):
        places = ", ".join(f"`{each}`" for each in by_place) or "no argument"
        return f"{name}(…) takes {places} by position. Give the others by name; known are {', '.join(known)}."
    needed = [each.name for each in own if each.name in known and each.default is Parameter.empty]
    lacking = [each for each in needed if each not in (*kwargs, *by_place[: len(given)])]
    return f"{name}(…) lacks {' and '.join(f'`{each}`' for each in lacking)}. Its arguments are {', '.join(known)}."
