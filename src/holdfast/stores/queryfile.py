"""Named statements from `.sql` files: the only place where SQL text comes from.

    -- name: claim
    -- A line of purpose.
    select …;

`{ready}` stands for the instance's table `<instance>__ready`, `{queue_table}` and what begins with it for one queue's
table; the loader puts quoted identifiers there and does nothing else to the text.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
SLOT = re.compile(r"\{(\w+)\}")


class Statement(NamedTuple):
    """One statement as written, before names are filled in."""

    name: str
    text: str


def load(package: str) -> dict[str, str]:
    """Every statement of the package's `queries/*.sql` by name."""
    found: dict[str, str] = {}
    for file in sorted(files(package).joinpath("queries").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql"):
            continue
        for statement in split(file.read_text("utf-8")):
            if statement.name in found:
                raise ValueError(f"{file.name}: statement `{statement.name}` is defined twice")
            found[statement.name] = statement.text
    return found


def split(text: str) -> list[Statement]:
    """The statements of one file, without their comments."""
    parts = NAME.split(text)[1:]
    return [Statement(name, _bare(body)) for name, body in zip(parts[::2], parts[1::2], strict=True)]


def _bare(body: str) -> str:
    lines = [line for line in body.strip().splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().removesuffix(";")


def fill(text: str, instance: str, queue_table: str = "", literals: Mapping[str, str] | None = None) -> str:
    """Names for slots: `{x}` becomes `"<instance>__x"`, `{queue_table…}` the queue's table (and what hangs on it)."""

    def name(match: re.Match[str]) -> str:
        slot = match[1]
        if literals and slot in literals:
            return literals[slot]
        if slot.startswith("queue_table"):
            suffix = slot.removeprefix("queue_table")
            return quoted(queue_table + ("_" + suffix if suffix else ""))
        return quoted(f"{instance}__{slot}")

    return SLOT.sub(name, text)


@lru_cache(maxsize=2000)
def filled(text: str, instance: str, queue_table: str = "") -> str:
    """The same, once for all connections of a process, each of which has hundreds to fill."""
    return fill(text, instance, queue_table)


def quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def numbered(package: str) -> list[tuple[int, str, str]]:
    """The package's migrations in order: number, title, text."""
    found = []
    for file in files(package).joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            number, _, title = file.name.removesuffix(".sql").partition("_")
            found.append((int(number), title.replace("_", " "), file.read_text("utf-8")))
    return sorted(found)
