"""Pieces of Markdown, and words taken from the code."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from docs import claims

MADE = "Made from the code by `make docs`; edit the code, not this page.\n"
REFERENCE = re.compile(r"(?<!\[)\b([A-Z][0-9]{1,2})\b(?!\])")
FIELD = re.compile(r"^    (\w+)\s*[:=][^#\n]*#\s*(.+)$", re.MULTILINE)
DOTTED = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")
INTENDED = "*Intended; not in force yet.*"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; empty cells are empty, bars are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(value: Any) -> str:
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")


def code(value: Any) -> str:
    return f"`{value}`"


def block(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```\n"


def prose(text: str | None) -> str:
    """A docstring as Markdown: guarantees become links, and one that is not in force is marked."""
    clean = inspect.cleandoc(text or "")
    later = any(is_later(number) for number in REFERENCE.findall(clean))
    return linked(clean) + (f" {INTENDED}" if later else "")


def linked(text: str) -> str:
    """The text with a link behind each guarantee that it names."""
    return REFERENCE.sub(lambda match: _link(match[1]), text)


def _link(number: str) -> str:
    title = _titles().get(number)
    if title is None:
        return number
    return f"[{number}](../guarantees.md#{anchor(f'{number} {title[0]}')})"


def is_later(number: str) -> bool:
    return _titles().get(number, ("", "now"))[1] == "later"


def meanwhile(number: str, sentence: str) -> str:
    """A sentence that is true only until the guarantee is in force."""
    return sentence if is_later(number) else ""


def anchor(heading: str) -> str:
    """As GitHub makes it from a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@lru_cache(maxsize=1)
def _titles() -> Mapping[str, tuple[str, str]]:
    ledger = claims.read(Path(claims.ROOT) / "docs" / "guarantees.toml")
    return {claim.number: (claim.title, claim.scope) for claim in ledger.claims()}


def comments(owner: type) -> dict[str, str]:
    """The comment behind each field or member of a class, where it has one."""
    return dict(FIELD.findall(inspect.getsource(owner)))


def exactly(means: Mapping[str, str], names: Iterable[str], what: str) -> Mapping[str, str]:
    """The meanings, if they are of these names and no others."""
    wanted, given = set(names), set(means)
    if wanted != given:
        raise LookupError(
            f"{what}: without a meaning {sorted(wanted - given)}, without a name {sorted(given - wanted)}"
        )
    return means


def annotation(value: Any) -> str:
    """A type as one writes it."""
    if value is inspect.Parameter.empty:
        return ""
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    return DOTTED.sub("", text).replace("NoneType", "None").replace("'", "")


def default(value: Any) -> str:
    return "" if value is inspect.Parameter.empty else repr(value)


def signature(name: str, function: Any, bound: bool = False) -> str:
    """A call with its parameters, over several lines if it is long; `bound` leaves out `self`."""
    made = inspect.signature(function)
    parameters = list(made.parameters.values())[1 if bound else 0 :]
    parts = []
    for index, parameter in enumerate(parameters):
        star = parameter.kind is parameter.KEYWORD_ONLY
        if star and not any(
            before.kind in (before.KEYWORD_ONLY, before.VAR_POSITIONAL) for before in parameters[:index]
        ):
            parts.append("*")
        parts.append(_parameter(parameter))
    returned = annotation(made.return_annotation)
    end = f" -> {returned}" if returned not in ("", "None") else ""
    line = f"{name}({', '.join(parts)}){end}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    type_ = annotation(parameter.annotation)
    given = default(parameter.default)
    text = f"{stars}{parameter.name}" + (f": {type_}" if type_ else "")
    return text + (f" = {given}" if given and type_ else f"={given}" if given else "")


def annotations(owner: type) -> set[str]:
    """The names of a class's own fields."""
    return set(vars(owner).get("__annotations__", ()))
