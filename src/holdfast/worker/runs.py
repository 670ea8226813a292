"""What tasks of workflows are told when they begin. Read once for each step of a run, not once for each task."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import structs

from holdfast.stores.contract import Claimed, RunRow
from holdfast.workflows.definition import merged
from holdfast.workflows.partition import pack_of, shard_of
from holdfast.workflows.task import TaskContext

MOST = 1000  # steps of runs that are remembered
decode_told = msgspec.json.Decoder(dict[str, Any]).decode
encode = msgspec.json.Encoder().encode


class RunMemory:
    """Turns the short payload of a task's job into everything its function may ask for."""

    def __init__(self, read: Callable[[int], RunRow]) -> None:
        self._read = read
        self._known: OrderedDict[tuple[int, str, int], tuple[TaskContext, RunRow]] = OrderedDict()

    def payload_of(self, call: Claimed) -> str:
        """The arguments of the handler, as JSON."""
        told = decode_told(call.payload)
        step, task = call.job_type.partition(".")[2], (call.job_key or "").rpartition(":")[2]
        if told.get("items"):
            context = self._of_items(call, step)
        else:
            context, row = self._of_step(call, step, told.get("publication", 0))
            partition = next(each.counts.partition for each in row.steps if each.counts.name == step)
            index = told.get("index", 0)
            context = structs.replace(
                context,
                index=index,
                shard=shard_of(partition, index),
                pack=pack_of(partition, index),
                item=told.get("item"),
            )
        return encode({"context": structs.replace(context, name=task)}).decode()

    def _of_step(self, call: Claimed, step: str, publication: int) -> tuple[TaskContext, RunRow]:
        assert call.run is not None
        key = call.run, step, publication
        found = self._known.get(key)
        if found is None:
            row = self._read(call.run)
            found = self._known[key] = context_of(row, step), row
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return found

    def _of_items(self, call: Claimed, step: str) -> TaskContext:
        """Always as it is now: it goes on where the one before it stopped."""
        assert call.run is not None
        row = self._read(call.run)
        now = next(each for each in row.steps if each.counts.name == step)
        return structs.replace(
            context_of(row, step),
            makes_items=True,
            produced=now.counts.created,
            room=row.definition.step(step).most_undone - now.counts.undone,
            cursor=None if now.cursor is None else msgspec.json.decode(now.cursor),
        )


def context_of(row: RunRow, name: str) -> TaskContext:
    """What all tasks of a step are told."""
    step = row.definition.step(name)
    declared = {each.name: each for each in row.definition.steps}
    seen = {
        each.counts.name: each.counts.state.value
        for each in row.steps
        if each.counts.name in step.after or declared[each.counts.name].phase < step.phase
    }
    params = merged(row.definition.params, row.params, step.params, row.step_params.get(name, {}), row.published)
    return TaskContext(
        run=row.id,
        workflow=row.workflow,
        trigger=row.trigger,
        step=name,
        name=name,
        params=params,
        dependencies=seen,
    )
