"""A definition as it is written down, read key by key: places are remembered, keys that nobody asked for are reported.

- A key whose value is null counts as not given.
- Nothing here raises: what is wrong is added to one list, each with its place.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from holdfast.errors import cut_short, quoted
from holdfast.workflows.definition import nearest
from holdfast.workflows.partition import Packs


class Table:
    """Keys and values at a place. Keys are known once they were asked for; `finish` reports the others."""

    def __init__(self, content: Mapping[Any, Any], place: str, problems: list[str]) -> None:
        self.place = place
        self.problems = problems
        self._content = content
        self._known: dict[str, None] = {}

    def at(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place and key else self.place or key

    def wrong(self, key: str, text: str) -> None:
        self.problems.append(f"{cut_short(self.at(key))}: {text}")

    def is_null(self, key: str) -> bool:
        """Whether it is there and says: nothing."""
        return key in self._content and self._content[key] is None

    def take(self, *spellings: str) -> Any:
        """The value of a key under any of its names; None if it is not given."""
        self._known.update(dict.fromkeys(spellings))
        given = [name for name in spellings if self._content.get(name) is not None]
        if len(given) > 1:
            self.wrong(given[1], f"`{given[0]}` says the same; give one of them")
        return self._content[given[0]] if given else None

    def number(self, *spellings: str) -> Any:
        """A value that is 0 if it is not given."""
        value = self.take(*spellings)
        return 0 if value is None else value

    def spelled(self, *spellings: str) -> str:
        """The place of a key under the name that was used."""
        return self.at(next((name for name in spellings if self._content.get(name) is not None), spellings[0]))

    def inside(self, key: str, value: Any, wanted: str) -> "Table | None":
        """A table in this one; None, and a problem, if it is no table."""
        if isinstance(value, Mapping):
            return Table(value, self.at(key), self.problems)
        self.wrong(key, f"is {quoted(value)}; give {wanted}")
        return None

    def each(self, key: str, wanted: str) -> Iterator["Table"]:
        """The tables of a list in this one."""
        found = self.take(key)
        if not isinstance(found, list | None):
            self.wrong(key, f"is {quoted(found)}; give a list of tables")
            return
        for at, value in enumerate(found or ()):
            table = self.inside(f"{key}[{at}]", value, wanted)
            if table is not None:
                yield table

    def finish(self, form: str = "is not a known key") -> None:
        for key in self._content:
            if not isinstance(key, str):
                self.wrong(f"{quoted(key)}", "is a key that is no text; write it in quotes")
            elif key not in self._known:
                self.wrong(key, f"{form}.{nearest(key, list(self._known))}")


class Fields:
    """What a workflow or step is made from, and where each of its fields is written."""

    def __init__(self, table: Table) -> None:
        self.values: dict[str, Any] = {}
        self.places: dict[str, str] = {}
        self._table = table

    def take(self, field: str, *spellings: str, read: Callable[[Any], Any] = lambda value: value) -> None:
        """A field from the key of its name, or of one of these."""
        self.take_from(self._table, field, *(spellings or (field,)), read=read)

    def take_from(
        self, table: Table, field: str, *spellings: str, read: Callable[[Any], Any] = lambda value: value
    ) -> None:
        value = table.take(*spellings)
        if value is not None:
            self.values[field] = read(value)
        self.places[field] = table.spelled(*spellings)

    def put(self, field: str, value: Any, place: str | None = None) -> None:
        self.values[field] = value
        if place is not None:
            self.places[field] = place


def several(value: Any) -> Any:
    """Names, also where there is only one."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def as_text(value: Any) -> Any:
    """A version may be written as a number."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def policy(value: Any) -> Any:
    """A retry policy as its JSON."""
    return msgspec.json.encode(value, enc_hook=repr).decode() if isinstance(value, Mapping) else value


def packs(table: Table, fields: Fields, first: str) -> Packs:
    """From a table of their numbers. That they never end must be said: an end that was forgotten is no wish."""
    infinite, end = table.take("infinite"), table.take("end")
    if not isinstance(infinite, bool | None):
        table.wrong("infinite", f"is {quoted(infinite)}; give true or false")
    elif not infinite and end is None:
        table.wrong("end", "there is none; give the last number, or say that they are infinite")
    fields.places |= {name: table.at(name) for name in ("start", "end", "size")} | {"first": table.at(first)}
    return Packs(table.take("start"), None if infinite else end, table.take("size"), table.number(first))
