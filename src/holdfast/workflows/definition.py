"""What a workflow is: its steps, what each comes after, and how it is cut into tasks (F1). A run keeps the definition it began with.

`problems` tells everything that is wrong with a definition at once; `check` refuses it with all of that.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from holdfast.errors import Invalid
from holdfast.workflows import graph
from holdfast.workflows.partition import MOST_UNDONE, MOST_UNDONE_ITEMS, Items, Packs, Partition, Simple

NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
LONGEST_TRIGGER = 200


class StepDefinition(Struct, frozen=True, kw_only=True):
    """One step."""

    name: str
    after: tuple[str, ...] = ()
    phase: int = 0
    partition: Partition = Simple()
    can_fail: bool = False
    can_ignore: bool = False
    archive: bool = False
    effort: float = 1
    params: dict[str, Any] = field(default_factory=dict)
    max_undone: int | None = None
    retries: int | None = 3
    retry: str | None = None  # a policy as JSON
    timeout: float | None = 30
    priority: float | None = None
    queue: str | None = None
    labels: tuple[str, ...] = ()
    handler: str | None = None  # the name that code is mapped to, where it is not the step's own
    duration: float | None = None  # seconds it is expected to take

    @property
    def most_undone(self) -> int:
        """Never more undone tasks than this at a time (F12)."""
        if self.max_undone is not None:
            return self.max_undone
        return MOST_UNDONE_ITEMS if isinstance(self.partition, Items) else MOST_UNDONE


class Definition(Struct, frozen=True, kw_only=True):
    """A workflow as it is written down."""

    name: str
    steps: tuple[StepDefinition, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    priority: float = 100
    unique_alive: bool = False
    fail_fast: bool = False
    queue: str = "workflows"
    duration: float | None = None
    version: str | None = None

    def step(self, name: str) -> StepDefinition:
        for step in self.steps:
            if step.name == name:
                return step
        raise Invalid(
            f"Workflow `{self.name}` has no step `{name}`.{nearest(name, [each.name for each in self.steps])}"
        )


def problems(definition: Definition) -> list[str]:
    """Everything that is wrong with it, each as a sentence that begins with the place."""
    found = [] if NAME.fullmatch(definition.name) else [_bad_name("workflow", definition.name)]
    if not definition.steps:
        found.append("steps: there are none; a workflow needs one at least")
    names = [step.name for step in definition.steps]
    for step in definition.steps:
        found += [f"steps.{step.name}: {problem}" for problem in _step_problems(step, definition, names)]
    found += [
        f"steps.{name}: there are {names.count(name)} steps of this name"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    circle = graph.cycle({step.name: step.after for step in definition.steps})
    if circle:
        found.append(f"steps: {' → '.join(circle)} is a circle; no step of it could ever start")
    if definition.duration is not None and not definition.duration > 0:
        found.append(f"duration: {definition.duration!r} must be seconds above 0")
    return found


def _step_problems(step: StepDefinition, definition: Definition, names: list[str]) -> Iterator[str]:
    if not NAME.fullmatch(step.name):
        yield _bad_name("step", step.name)
    for name in step.after:
        if name not in names:
            yield f"after `{name}`, which is no step of this workflow.{nearest(name, names)}"
        elif any(other.name == name and other.phase > step.phase for other in definition.steps):
            yield f"after `{name}`, which is in a later phase: phase {step.phase} ends before it could start"
    if step.effort < 0 or step.effort != step.effort:
        yield f"effort {step.effort!r} must be a number, 0 or more"
    if step.max_undone is not None and step.max_undone < 1:
        yield f"max_undone {step.max_undone!r} must be 1 or more"
    if step.retries is not None and step.retries < 0:
        yield f"retries {step.retries!r} must be 0 or more, or None for no limit"
    if step.timeout is not None and not step.timeout > 0:
        yield f"timeout {step.timeout!r} must be seconds above 0, or None for no limit"
    if step.duration is not None and not step.duration > 0:
        yield f"duration {step.duration!r} must be seconds above 0"
    if (
        isinstance(step.partition, Packs)
        and step.partition.end is not None
        and step.partition.end < step.partition.start - 1
    ):
        yield f"packs end at {step.partition.end}, before they start at {step.partition.start}"


def _bad_name(what: str, name: str) -> str:
    return f"the name of the {what} is {name!r}; it may have letters, digits, _ and -, at most 200"


def nearest(name: str, known: list[str]) -> str:
    """A hint at what was probably meant."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean `{near[0]}`?" if near else ""


def check(definition: Definition, where: str = "") -> Definition:
    """The definition itself, or `Invalid` with everything that is wrong."""
    found = problems(definition)
    if found:
        place = f" ({where})" if where else ""
        raise Invalid(f"Workflow `{definition.name}`{place} cannot be: " + "; ".join(found) + ".")
    return definition


def check_trigger(trigger: Any) -> str:
    """A run's name among the runs of its workflow."""
    if not isinstance(trigger, str) or not trigger or "/" in trigger or len(trigger) > LONGEST_TRIGGER:
        raise Invalid(f"trigger={trigger!r}; give a text of 1 to {LONGEST_TRIGGER} characters without `/`.")
    return trigger


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Params of several sources; a later one wins (F13)."""
    found: dict[str, Any] = {}
    for layer in layers:
        found.update(layer)
    return found


def encode(definition: Definition) -> str:
    """As it is kept with a run: every field written out."""
    return msgspec.json.encode(definition).decode()


decode = msgspec.json.Decoder(Definition).decode
