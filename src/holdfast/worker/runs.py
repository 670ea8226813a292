"""What tasks of workflows are told when they begin. Read and written once for each step of a run, not once for each task."""

from collections import OrderedDict
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct, structs

from holdfast.jobs.secrets import Redaction
from holdfast.stores.contract import Claimed, StepOfRun
from holdfast.workflows.partition import Items, Partition, pack_of, shard_of
from holdfast.workflows.task import TaskContext

MOST = 1000  # steps of runs that are remembered
encode = msgspec.json.Encoder().encode
NULL = Raw(b"null")


class Told(Struct, frozen=True):
    """The payload of a task's job."""

    index: int = 0
    item: Raw = NULL
    items: bool = False  # it makes the step's tasks
    publication: int = 0


class Known(Struct, frozen=True):
    """A step of a run, and what all its tasks are told: JSON that is still open."""

    step: StepOfRun
    text: str


decode_told = msgspec.json.Decoder(Told).decode


class RunMemory:
    """Turns the short payload of a task's job into everything its function may ask for."""

    def __init__(self, read: Callable[[int, str, int | None], StepOfRun], lot: int, alone: bool = False) -> None:
        self._read = read
        self._lot = lot  # items that are stored at a time
        self._alone = alone  # one job at a time: who makes items keeps others from running them
        self._known: OrderedDict[tuple[int, str, int], Known] = OrderedDict()

    def learn(self, told: Mapping[tuple[int, str, int], StepOfRun]) -> None:
        """What a turn knows of tasks that it made does not have to be read."""
        for key, step in told.items():
            self._known[key] = known(key[0], step)
        while len(self._known) > MOST:
            self._known.popitem(last=False)

    def payload_of(self, call: Claimed) -> str:
        """The arguments of the handler, as JSON; what must not be told of them is noted at the call."""
        assert call.run is not None
        told = decode_told(call.payload)
        name, task = call.job_type.partition(".")[2], (call.job_key or "").rpartition(":")[2]
        if told.items:
            step = self._read(call.run, name, None)  # as it is now: it goes on where the one before it stopped
            most = step.declared.most_undone
            context = structs.replace(
                context_of(call.run, step),
                name=task,
                makes_items=True,
                produced=step.step.counts.created,
                room=most - step.step.counts.undone,
                most_undone=most,
                enough=0 if self._alone else min((most + 1) // 2, self._lot),
                cursor=None if step.step.cursor is None else msgspec.json.decode(step.step.cursor),
            )
            text = encode({"context": context}).decode()
        else:
            found = self._of_step(call.run, name, told.publication)
            step = found.step
            own = own_of(step.step.counts.partition, told)
            text = f'{found.text},"name":"{task}","index":{told.index}{own}}}}}'  # a name needs no quoting (F12)
        if step.secrets:
            call.hidden = Redaction.of(step.params, step.secrets)
        return text

    def _of_step(self, run: int, step: str, publication: int) -> Known:
        """Tasks that were made with the same published params are told the same."""
        key = run, step, publication
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = known(run, self._read(run, step, publication))
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return found


def known(run: int, step: StepOfRun) -> Known:
    return Known(step, encode({"context": context_of(run, step)}).decode()[:-2])


def own_of(partition: Partition, told: Told) -> str:
    """What only this task is told, as JSON that goes on."""
    if isinstance(partition, Items):
        return f',"item":{bytes(told.item).decode()}'
    shard, pack = shard_of(partition, told.index), pack_of(partition, told.index)
    if shard is not None:
        return f',"shard":{encode(shard).decode()}'
    return f',"pack":{encode(pack).decode()}' if pack is not None else ""


def context_of(run: int, step: StepOfRun) -> TaskContext:
    """What all tasks of a step are told."""
    return TaskContext(
        run=run,
        workflow=step.workflow,
        trigger=step.trigger,
        step=step.declared.name,
        params=step.params,
        dependencies=step.dependencies,
    )
