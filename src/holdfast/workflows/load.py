"""Workflow definitions from what JSON, TOML or YAML give, in our own words or in TasCreed's (F1). Nothing here reads a file.

- A definition is TasCreed's when it has a key that only TasCreed knows, such as `jobName` or `stepName`; else it is ours.
- The keys of our own form are the names of the Python API, and `handler`: the name that a function is mapped to. `steps`
  is a list, or a table from name to step.
- Everything that is wrong is told at once, each with its place as it is written: `steps[2].packConf.size: …`.
- What a value must be is decided by `definition.findings`, for files and Python alike; here keys become fields.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.errors import quoted
from holdfast.workflows import definition as definitions
from holdfast.workflows import tascreed
from holdfast.workflows.definition import Definition, Finding, StepDefinition
from holdfast.workflows.partition import Items, Packs, Partition, Shards, Simple
from holdfast.workflows.written import Fields, Table, as_text, packs, policy, several

WORKFLOW = ("name", "params", "priority", "unique_alive", "fail_fast", "queue", "duration", "secrets")
STEP = (
    *("phase", "can_fail", "can_ignore", "archive", "effort", "params", "max_undone"),
    *("priority", "queue", "prefer_for", "handler", "duration"),
)
NO_LIMIT = "none"  # for TOML, which has no null


def load(content: Any, where: str = "", known: Sequence[str] = ()) -> Definition:
    """The definition that is written there; `Invalid` with everything that is wrong with it.

    `where` names the file it comes from, `known` is what its reader has found wrong already.
    """
    wrong = list(known)
    if not isinstance(content, Mapping):
        definitions.refuse([*wrong, f"it is {quoted(content)}; give a table with a name and steps"], None, where)
    top, marked = Table(content, "", wrong), tascreed.marker(content)
    fields, steps = tascreed.fields(top, marked) if marked else _fields(top)
    definition = Definition(
        **{"name": None, **fields.values},
        steps=tuple(StepDefinition(**{"name": None, **step.values}) for step in steps),
    )
    wrong += [_placed(found, fields, steps) for found in definitions.findings(definition)]
    if not steps and content.get("steps"):
        wrong.remove("steps: there are none; a workflow needs one at least")  # they are there, and all wrong
    definitions.refuse(sorted(wrong, key=_position(content)), definition.name, where)
    return definitions.decode(definitions.encode(definition))  # as a run will keep it: a date in params is a text


def _placed(found: Finding, fields: Fields, steps: Sequence[Fields]) -> str:
    places = (fields if found.step is None else steps[found.step]).places
    return f"{places.get(found.field, found.field)}: {found.text}"


STEP_PLACE = re.compile(r"steps(?:\[(\d+)\]|\.([\w-]+))")


def _position(content: Mapping[Any, Any]) -> Callable[[str], int]:
    """Orders what is wrong as it is written: first the workflow, then step by step."""
    steps = content.get("steps")
    names = {str(name): at for at, name in enumerate(steps)} if isinstance(steps, Mapping) else {}

    def position(text: str) -> int:
        found = STEP_PLACE.match(text)
        return -1 if found is None else int(found[1]) if found[1] else names.get(found[2], -1)

    return position


def _fields(top: Table) -> tuple[Fields, list[Fields]]:
    fields = Fields(top)
    for name in WORKFLOW:
        fields.take(name)
    fields.take("version", read=as_text)
    steps = [_step(table, name) for table, name in _steps(top)]
    top.finish()
    return fields, steps


def _steps(top: Table) -> Iterator[tuple[Table, str | None]]:
    """Each step, with its name where that is the key of its table."""
    wanted = "a table with the name of the step and more"
    steps = top.take("steps")
    if not isinstance(steps, Mapping):
        yield from ((table, None) for table in top.each("steps", wanted))
        return
    for name, step in steps.items():
        table = top.inside(f"steps.{name}", {} if step is None else step, wanted)
        if table is not None:
            yield table, name


def _step(table: Table, name: str | None) -> Fields:
    fields = Fields(table)
    fields.take("name")
    if name is not None:
        if fields.values.get("name", name) != name:
            table.wrong("name", f"the step is called `{name}` by the key of its table; leave this out")
        fields.put("name", name, table.place)
    for each in STEP:
        fields.take(each)
    for each in ("after", "labels", "prefers"):
        fields.take(each, read=several)
    for each in ("retries", "timeout"):
        fields.take(each, read=lambda value: None if value == NO_LIMIT else value)
        if table.is_null(each):
            fields.put(each, None)
    fields.take("retry", read=policy)
    fields.put("partition", _partition(table, fields))
    table.finish()
    return fields


def _partition(table: Table, fields: Fields) -> Partition:
    taken = {name: table.take(name) for name in ("shards", "packs", "items")}
    given = {name: value for name, value in taken.items() if value is not None and value is not False}
    if len(given) > 1:
        table.wrong("", f"it has {' and '.join(given)}; a step takes one of them")
    elif "shards" in given:
        return _shards(table, fields, given["shards"])
    elif "packs" in given:
        return _packs(table, fields, given["packs"])
    elif given.get("items", True) is not True:
        table.wrong("items", f"is {quoted(given['items'])}; give true: what makes the items is a function")
    return Items() if "items" in given else Simple()


def _shards(table: Table, fields: Fields, value: Any) -> Partition:
    fields.places["total"] = table.at("shards")
    inner = table.inside("shards", value, "") if isinstance(value, Mapping) else None
    if inner is None:
        return Shards(value)
    fields.places |= {name: inner.at(name) for name in ("total", "first")}
    made = Shards(inner.take("total"), inner.number("first"))
    inner.finish()
    return made


def _packs(table: Table, fields: Fields, value: Any) -> Partition:
    if isinstance(value, list) and len(value) == 3:
        fields.places |= {name: table.at(f"packs[{at}]") for at, name in enumerate(("start", "end", "size"))}
        return Packs(*value)
    inner = table.inside("packs", value, "[start, end, size], or a table of these")
    if inner is None:
        return Simple()
    made = packs(inner, fields, "first")
    inner.finish()
    return made
