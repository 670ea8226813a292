"""What tasks of workflows are told when they begin. Read once for each step of a run, not once for each task."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import structs

from holdfast.jobs.secrets import values_of
from holdfast.stores.contract import Claimed, StepOfRun
from holdfast.workflows.partition import pack_of, shard_of
from holdfast.workflows.task import TaskContext

MOST = 1000  # steps of runs that are remembered
decode_told = msgspec.json.Decoder(dict[str, Any]).decode
encode = msgspec.json.Encoder().encode


class RunMemory:
    """Turns the short payload of a task's job into everything its function may ask for."""

    def __init__(self, read: Callable[[int, str, int | None], StepOfRun], alone: bool = False) -> None:
        self._read = read
        self._alone = alone  # one job at a time: who makes items keeps others from running them
        self._known: OrderedDict[tuple[int, str, int], StepOfRun] = OrderedDict()

    def learn(self, told: Mapping[tuple[int, str, int], StepOfRun]) -> None:
        """What a turn knows of tasks that it made does not have to be read."""
        self._known.update(told)
        while len(self._known) > MOST:
            self._known.popitem(last=False)

    def payload_of(self, call: Claimed) -> str:
        """The arguments of the handler, as JSON; what must not be told of them is noted at the call."""
        assert call.run is not None
        told = decode_told(call.payload)
        name, task = call.job_type.partition(".")[2], (call.job_key or "").rpartition(":")[2]
        if told.get("items"):
            step = self._read(call.run, name, None)  # as it is now: it goes on where the one before it stopped
            most = step.declared.most_undone
            context = structs.replace(
                context_of(call.run, step),
                makes_items=True,
                produced=step.step.counts.created,
                room=most - step.step.counts.undone,
                most_undone=most,
                enough=0 if self._alone else (most + 1) // 2,
                cursor=None if step.step.cursor is None else msgspec.json.decode(step.step.cursor),
            )
        else:
            step = self._of_step(call.run, name, told.get("publication", 0))
            index, partition = told.get("index", 0), step.step.counts.partition
            context = structs.replace(
                context_of(call.run, step),
                index=index,
                shard=shard_of(partition, index),
                pack=pack_of(partition, index),
                item=told.get("item"),
            )
        if step.secrets:
            call.hidden = values_of(step.params, step.secrets)
        return encode({"context": structs.replace(context, name=task)}).decode()

    def _of_step(self, run: int, step: str, publication: int) -> StepOfRun:
        """Tasks that were made with the same published params are told the same."""
        key = run, step, publication
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._read(run, step, publication)
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return found


def context_of(run: int, step: StepOfRun) -> TaskContext:
    """What all tasks of a step are told."""
    return TaskContext(
        run=run,
        workflow=step.workflow,
        trigger=step.trigger,
        step=step.declared.name,
        name=step.declared.name,
        params=step.params,
        dependencies=step.dependencies,
    )
