"""Publications in stories: tasks tell later ones what they found, and cut steps that still sleep (F13).

A task is told everything that was published before it was made, nothing later, and what all tasks before it published.
What a success brought about is kept, once; what a stale or failed attempt would have brought about is not. A step that has
begun is cut as it was then.
"""

import json
from typing import Any

import msgspec
from msgspec import structs

from holdfast.stores.contract import Claimed, Submission, TypeRow
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.partition import Shards
from holdfast.workflows.task import Published, Task, TaskContext
from tests.invariants import Invariants, Row
from tests.simulation.archives import Archives
from tests.simulation.scene import Broken
from tests.simulation.stages import Stage

TALLY = Definition(
    name="tally",
    params={"n": 0, "given": 0},
    steps=(
        StepDefinition(name="count"),
        StepDefinition(name="aside"),
        StepDefinition(name="part", after=("count",), partition=Shards(3), max_undone=2),
        StepDefinition(name="sum", after=("part", "aside"), params={"given": 2}),
    ),
)
HASTY = structs.replace(TALLY, name="hasty", fail_fast=True)
TALLIES = {TALLY.name: TALLY, HASTY.name: HASTY}
TASK_TYPES = tuple(
    TypeRow(f"{name}.{step.name}", "workflows", has_handler=True)
    for name, each in TALLIES.items()
    for step in each.steps
)


def publishes(call: Claimed) -> bool:
    return call.job_type.partition(".")[0] in TALLIES


class Publications(Archives):
    """Adds workflows whose tasks publish; one of them is cut short by its first error."""

    def __init__(self, seed: int, stage: Stage) -> None:
        super().__init__(seed, stage)
        self.contexts: dict[tuple[int, int], TaskContext] = {}  # what attempts were told
        self.effects: dict[tuple[int, int], dict[str, Any]] = {}  # what successes would bring about
        self.cuts: dict[tuple[int, str], str] = {}  # of steps that have begun

    def submit_tally(self, a: float, b: float) -> None:
        wanted = Submission(
            definition=(TALLY, HASTY)[int(a * 2)], trigger=f"t{next(self.numbers)}", params={"n": -1, "given": 1}
        )
        self.attempt_to(lambda: self.submitted(wanted))

    def tell_task(self, call: Claimed, payload: str) -> None:
        """Its function is called with this."""
        context = msgspec.json.decode(payload, type=dict[str, TaskContext])["context"]
        self.contexts[call.id, call.attempt] = context
        told = json.loads(call.payload)["publication"]
        rows = self.sql("select number, params from {publication} where run = :run order by number", run=call.run)
        wanted: dict[str, Any] = {"n": -1, "given": 2 if context.step == "sum" else 1}
        for row in rows:
            wanted |= _object(row["params"]) if row["number"] <= told else {}
        if context.params != wanted:
            raise Broken(f"F13: job {call.id} is told {context.params}, until it was made {wanted} was published")
        for name, value in self._published_before(call, context):
            if context.params.get(name) != value:
                raise Broken(f"F13: job {call.id} is told {context.params}, a task before it published {name}={value}")

    def _published_before(self, call: Claimed, context: TaskContext) -> list[tuple[str, Any]]:
        """What the tasks of steps before it published."""
        before = {"part": ("count",), "sum": ("count", "aside", "part")}.get(context.step, ())
        rows = self.sql(
            "select id, attempt, job_type from {job} where run = :run and outcome = 'success'", run=call.run
        )
        found = [row for row in rows if row["job_type"].partition(".")[2] in before]
        return [each for row in found for each in self._effects_of(row).get("publish", {}).items()]

    def _effects_of(self, row: Row) -> dict[str, Any]:
        return self.effects.get((row["id"], row["attempt"]), {})

    def success_of(self, call: Claimed, how: float) -> Any:
        """What its function returns."""
        context = self.contexts[call.id, call.attempt]
        task, shards = Task(context), 1 + int(how * 1000) % 4
        value = 100 * call.id + call.attempt
        if context.step == "count":
            task.publish(n=value)
            task.repartition("part", shards=shards)
        elif context.step == "aside":
            task.publish(aside=value)
            task.repartition("part", shards=shards)  # which may have begun
        elif context.step == "part":
            task.publish(**{f"part-{context.index}": value})
            if context.index == 0:
                task.repartition("sum", shards=shards)
        effects = msgspec.to_builtins(task.effects)
        if effects is None:
            return {"by": call.attempt}
        self.effects[call.id, call.attempt] = effects
        return Published({"by": call.attempt}, effects)

    # What must hold

    def check_publications(self, invariants: Invariants) -> None:
        if not self.contexts:
            return
        settled: dict[int, list[dict[str, Any]]] = {}
        for row in (*invariants.jobs.values(), *invariants.archive.values()):
            if row["outcome"] == "success" and row["run"] is not None and self._effects_of(row):
                settled.setdefault(row["run"], []).append(self._effects_of(row))
        runs = [run for run in (*invariants.runs, *self.left.values()) if run["workflow"] in TALLIES]
        for run in runs:
            self._check_published(run, settled.get(run["id"], []))
        for step in (*invariants.steps, *self.left_steps.values()):
            if any(run["id"] == step["run"] for run in runs):
                self._check_cut(step, settled.get(step["run"], []))

    def _check_published(self, run: Row, settled: list[dict[str, Any]]) -> None:
        published, wanted = _object(run["published"]), dict[str, Any]()
        for each in settled:
            wanted |= each["publish"]
        if published != wanted:
            raise Broken(f"F13: run {run['id']} has published {published}, its tasks {wanted}")

    def _check_cut(self, step: Row, settled: list[dict[str, Any]]) -> None:
        if step["state"] in ("DORMANT", "SKIP_BY_ERROR", "SKIP_BY_FAILED"):
            return
        name, cut = (step["run"], step["name"]), json.dumps(_object(step["partition"]), sort_keys=True)
        if self.cuts.setdefault(name, cut) != cut:
            raise Broken(f"F13: step {name} began as {self.cuts[name]} and is {cut}")
        chosen = [each["repartition"][step["name"]] for each in settled if step["name"] in each.get("repartition", {})]
        if chosen and cut not in [json.dumps(each, sort_keys=True) for each in chosen]:
            raise Broken(f"F13: step {name} is {cut}, its tasks chose {chosen}")


def _object(text: Any) -> dict[str, Any]:
    """A JSON column of either store."""
    found: dict[str, Any] = text if isinstance(text, dict) else json.loads(text)
    return found
