"""The form in which TasCreed writes its job definitions, with the meaning that each key has here.

| there | here |
| --- | --- |
| `jobName` (`name`), `version`, `params`, `uniqueAliveInstance` | the same |
| `priority` p, higher is more urgent | 100 − p, lower is more urgent |
| `duration` in milliseconds | seconds |
| `traits` of a job | checked, and without effect, as there: every trait that can be set belongs to a step |
| `stepName` (`name`), `stepType` (`type`), `effort`, `params` | the same; a `shardConf` needs `"stepType": "SHARD"`, and so on |
| `dependentStep`, `dependency.doneSteps` (`steps`) | both together are `after` |
| `dependency.phase` | `phase` |
| `traits`, `ignorable` of a step | `can_fail`, `can_ignore`, `archive` |
| `shardConf.shard` (`sharding`), `startShardId` | that many shards; those before the start id are left out |
| `packConf` | packs; with `infinite`, `end` is ignored; `startPackId` is the number of the first |
| `maxTaskCount` | `max_undone`; 0 or less is the default of 50, as there |
| `maxPickTimes` (`maxErrorTimes`) | `retries`: so many failures are forgiven, any number if it is negative |
| `exeClass` | `handler`, a name to be mapped to a function |
| `affinityRule` | a label that a worker needs |

- A step has no `timeout`, since there is no such thing in TasCreed. `timeout`, `retry` and `queue` of a step,
  `fail_fast` and `queue` of the workflow may be added; they are ours.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.errors import quoted
from holdfast.workflows.definition import is_number, nearest
from holdfast.workflows.partition import MOST_UNDONE, Partition, Shards, Simple, is_whole
from holdfast.workflows.written import Fields, Table, as_text, packs, policy, several

OF_WORKFLOW = ("jobName", "uniqueAliveInstance")
OF_STEP = (
    *("stepName", "stepType", "dependentStep", "dependency", "shardConf", "packConf"),
    *("exeClass", "affinityRule", "maxPickTimes", "maxErrorTimes", "ignorable", "traits"),
)
TRAITS = {
    **dict.fromkeys(("CAN_FAIL", "canFail", "can-fail"), "can_fail"),
    **dict.fromkeys(("CAN_IGNORE", "canIgnore", "can-ignore", "ignorable"), "can_ignore"),
    **dict.fromkeys(("ARCHIVE", "archive"), "archive"),
}
KINDS = {"SIMPLE": "", "SHARD": "shardConf", "PACK": "packConf"}


def marker(content: Mapping[Any, Any]) -> str | None:
    """A key that only TasCreed knows, if there is one."""
    steps = content.get("steps")
    tables = [step for step in steps if isinstance(step, Mapping)] if isinstance(steps, list) else []
    found = [key for key in OF_WORKFLOW if key in content]
    found += [key for table in tables for key in OF_STEP if key in table]
    return found[0] if found else None


def fields(top: Table, marked: str) -> tuple[Fields, list[Fields]]:
    """The fields of the workflow and of its steps."""
    form = f"is not a key of TasCreed's form, which this is because of `{marked}`"
    found = Fields(top)
    found.take("name", "jobName", "name")
    found.take("version", read=as_text)
    found.take("priority", read=lambda value: 100 - value if is_number(value) else value)
    found.take("unique_alive", "uniqueAliveInstance")
    found.take("params")
    _duration(top, found)
    list(_traits(top))
    found.take("fail_fast")
    found.take("queue")
    steps = [_step(table, form) for table in top.each("steps", "a table with the `stepName` and more")]
    top.finish(form)
    return found, steps


def _duration(table: Table, found: Fields) -> None:
    value = table.take("duration")
    if is_number(value) and value > 0:
        found.put("duration", value / 1000)
    elif value is not None:
        table.wrong("duration", f"is {quoted(value)}; give milliseconds above 0")


def _traits(table: Table) -> Iterator[str]:
    """The fields that the traits switch on."""
    given = table.take("traits")
    if not isinstance(given, list | None):
        table.wrong("traits", f"is {quoted(given)}; give a list of traits")
        return
    for at, name in enumerate(given or ()):
        if isinstance(name, str) and name in TRAITS:
            yield TRAITS[name]
        else:
            table.wrong(f"traits[{at}]", f"is {quoted(name)}, which is no trait.{nearest(str(name), list(TRAITS))}")


def _step(table: Table, form: str) -> Fields:
    found = Fields(table)
    found.put("timeout", None)
    found.take("name", "stepName", "name")
    found.take("effort")
    found.take("params")
    found.take("handler", "exeClass")
    found.take("labels", "affinityRule", read=several)
    found.take("retries", "maxPickTimes", "maxErrorTimes", read=_retries)
    found.take("timeout")
    found.take("retry", read=policy)
    found.take("queue")
    found.take("can_ignore", "ignorable")
    _duration(table, found)
    for trait in _traits(table):
        found.put(trait, True, table.at("traits"))
    _dependencies(table, found, form)
    found.put("partition", _partition(table, found, form))
    table.finish(form)
    return found


def _retries(value: Any) -> Any:
    return None if is_whole(value) and value < 0 else value


def _dependencies(table: Table, found: Fields, form: str) -> None:
    found.take("after", "dependentStep", read=several)
    dependency = table.take("dependency")
    inner = None if dependency is None else table.inside("dependency", dependency, "a table of doneSteps and phase")
    if inner is None:
        return
    many, single = several(inner.take("doneSteps", "steps")), found.values.get("after")
    if many is not None and single is not None:
        found.put(
            "after", (*many, *single) if isinstance(many, tuple) and isinstance(single, tuple) else many, table.place
        )
    elif many is not None:
        found.put("after", many, inner.spelled("doneSteps", "steps"))
    found.put("phase", inner.number("phase"), inner.at("phase"))
    inner.finish(form)


def _partition(table: Table, found: Fields, form: str) -> Partition:
    kind = table.take("stepType", "type") or "SIMPLE"
    if not isinstance(kind, str) or kind not in KINDS:
        place = table.spelled("stepType", "type")
        table.problems.append(
            f"{place}: is {quoted(kind)}; give SIMPLE, SHARD or PACK.{nearest(str(kind), list(KINDS))}"
        )
        kind = ""
    given = {name: table.take(KINDS[name]) for name in ("SHARD", "PACK")}
    for name, content in given.items():
        if kind and kind != name and content is not None:
            table.wrong(
                KINDS[name], f'the step is {kind} and would not use it; give "stepType": "{name}" or leave it out'
            )
    if not kind or kind == "SIMPLE":
        return Simple()
    if given[kind] is None:
        table.wrong(KINDS[kind], f"there is none, and the step is a {kind}")
        return Simple()
    inner = table.inside(KINDS[kind], given[kind], "a table of numbers")
    return Simple() if inner is None else _numbers(inner, found, kind, form)


def _numbers(inner: Table, found: Fields, kind: str, form: str) -> Partition:
    found.take_from(inner, "max_undone", "maxTaskCount", read=_most_undone)
    made: Partition
    if kind == "SHARD":
        made = Shards(inner.take("shard", "sharding"), inner.number("startShardId"))
        found.places |= {"total": inner.spelled("shard", "sharding"), "first": inner.at("startShardId")}
    else:
        made = packs(inner, found, "startPackId")
    inner.finish(form)
    return made


def _most_undone(value: Any) -> Any:
    return MOST_UNDONE if is_whole(value) and value <= 0 else value
