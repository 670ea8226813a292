"""What a workflow is: its steps, what each comes after, and how it is cut into tasks (F1). A run keeps the definition it began with.

- `findings` tells everything that is wrong with a definition at once, whatever values it was made with; `check`
  refuses it with all of that.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from holdfast.errors import Invalid, backticked, quoted
from holdfast.jobs import payload as payloads
from holdfast.jobs import retry as retries_
from holdfast.jobs.names import INSTANCE_OR_QUEUE, LONGEST_NAME, LONGEST_TYPE
from holdfast.jobs.placement import PREFER_FOR
from holdfast.workflows import graph
from holdfast.workflows import partition as partitions
from holdfast.workflows.partition import MOST_UNDONE, MOST_UNDONE_ITEMS, Items, Partition, Simple, is_whole

NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
SUBMITS = "submit."  # and the name of a workflow: the job type that submits it when a schedule fires
LONGEST_TRIGGER = 200
TRIGGER = re.compile(rf"[^/\0\ud800-\udfff]{{1,{LONGEST_TRIGGER}}}")


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
    retries: int | UnsetType | None = UNSET  # unset: nobody named any, which a wait can tell from the default (R4)
    retry: str | None = None  # a policy as JSON
    timeout: float | UnsetType | None = UNSET
    priority: float | None = None
    queue: str | None = None
    labels: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()  # labels whose workers get its tasks first
    prefer_for: float = PREFER_FOR  # seconds
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
    secrets: tuple[str, ...] = ()  # params that nobody is shown

    def step(self, name: str) -> StepDefinition:
        for step in self.steps:
            if step.name == name:
                return step
        raise Invalid(
            f"Workflow `{self.name}` has no step {backticked(name)}.{nearest(name, [each.name for each in self.steps])}"
        )


class Finding(Struct, frozen=True):
    """Something that is wrong, and where: in the field of a step (by its position), or of the workflow itself."""

    step: int | None
    field: str
    text: str


def problems(definition: Definition) -> list[str]:
    """Everything that is wrong with it, each as a sentence that begins with the place."""
    return [
        f"{found.field}: {found.text}"
        if found.step is None
        else f"steps.{definition.steps[found.step].name}.{found.field}: {found.text}"
        for found in findings(definition)
    ]


def findings(definition: Definition) -> list[Finding]:
    """Everything that is wrong with it, in the order in which it is written."""
    found = [Finding(None, *wrong) for wrong in _of_workflow(definition)]
    phases = {step.name: step.phase for step in definition.steps if isinstance(step.name, str)}
    seen: set[str] = set()
    for at, step in enumerate(definition.steps):
        found += [Finding(at, *wrong) for wrong in (*_of_name(step.name, definition.name), *_of_step(step))]
        found += [Finding(at, "after", text) for text in _of_order(step, phases)]
        if is_name(step.name) and step.name in seen:
            found.append(Finding(at, "name", f"there is another step of the name `{step.name}`"))
        elif is_name(step.name):
            seen.add(step.name)
    for circle in graph.cycles(_links(definition)):
        told = " → ".join(circle)
        found.append(Finding(None, "steps", f"{told} is a circle: each comes after the next, so none could ever start"))
    return found


def _of_workflow(definition: Definition) -> Iterator[tuple[str, str]]:
    if not is_name(definition.name):
        yield "name", _bad_name(definition.name)
    if not definition.steps:
        yield "steps", "there are none; a workflow needs one at least"
    yield from _wrong("priority", definition.priority, is_number, "a number")
    yield from _wrong("unique_alive", definition.unique_alive, _is_flag, "true or false")
    yield from _wrong("fail_fast", definition.fail_fast, _is_flag, "true or false")
    yield from _wrong("queue", definition.queue, _is_queue, A_QUEUE)
    yield from _wrong("duration", definition.duration, _or_none(_is_above_zero), "seconds above 0")
    yield from _wrong("version", definition.version, _or_none(_is_text), "a text")
    yield from _wrong("secrets", definition.secrets, _is_list_of_names, "a list of names of params")
    yield from _of_params(definition.params)


def _of_name(name: Any, workflow: Any) -> Iterator[tuple[str, str]]:
    if not is_name(name):
        yield "name", _bad_name(name)
    elif is_name(workflow) and len(f"{workflow}.{name}") > LONGEST_TYPE:
        yield "name", f"its job type would be `{workflow}.{name}`, which is longer than {LONGEST_TYPE} characters"


def _of_step(step: StepDefinition) -> Iterator[tuple[str, str]]:
    yield from _wrong("after", step.after, _is_list_of_names, "names of steps")
    yield from _wrong("phase", step.phase, _is_phase, f"a whole number from 0 to {LAST_PHASE:,}")
    yield from partitions.problems(step.partition)
    for name in ("can_fail", "can_ignore", "archive"):
        yield from _wrong(name, getattr(step, name), _is_flag, "true or false")
    yield from _wrong("effort", step.effort, lambda value: is_number(value) and value >= 0, "a number, 0 or more")
    yield from _of_params(step.params)
    yield from _wrong("max_undone", step.max_undone, _or_none(_is_whole_from(1)), "a whole number, 1 or more")
    yield from _wrong(
        "retries", step.retries, _or_unset(_or_none(_is_whole_from(0))), "a whole number, 0 or more, or none"
    )
    yield from _of_retry(step.retry)
    yield from _wrong("timeout", step.timeout, _or_unset(_or_none(_is_above_zero)), "seconds above 0, or none")
    yield from _wrong("priority", step.priority, _or_none(is_number), "a number")
    yield from _wrong("queue", step.queue, _or_none(_is_queue), A_QUEUE)
    yield from _wrong("labels", step.labels, _is_list_of_names, "texts that are not empty")
    yield from _wrong("prefers", step.prefers, _is_list_of_names, "texts that are not empty")
    yield from _wrong(
        "prefer_for", step.prefer_for, lambda value: is_number(value) and value >= 0, "seconds, 0 or more"
    )
    yield from _wrong("handler", step.handler, _or_none(_is_text), "a text that is not empty")
    yield from _wrong("duration", step.duration, _or_none(_is_above_zero), "seconds above 0")


def _of_order(step: StepDefinition, phases: Mapping[str, Any]) -> Iterator[str]:
    """Dependencies that cannot be; circles are looked for in all steps together."""
    for name in _names(step):
        if name not in phases:
            yield f"{backticked(name)} is no step of this workflow.{nearest(name, list(phases))}"
        elif _is_phase(phases[name]) and _is_phase(step.phase) and phases[name] > step.phase:
            yield f"`{name}` is in phase {phases[name]}, which starts when all of phase {step.phase} is done"


def _links(definition: Definition) -> dict[str, list[str]]:
    links: dict[str, list[str]] = {}
    for step in definition.steps:
        if isinstance(step.name, str):
            links.setdefault(step.name, []).extend(_names(step))
    return links


def _names(step: StepDefinition) -> tuple[str, ...]:
    return tuple(dict.fromkeys(step.after)) if _is_list_of_names(step.after) else ()


def _of_params(params: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(params, dict):
        yield "params", f"is {quoted(params)}; give a table of names and values"
        return
    try:
        payloads.dump(params, what="params")
    except Invalid as refused:
        yield "params", str(refused).removesuffix(".")


def _of_retry(retry: Any) -> Iterator[tuple[str, str]]:
    try:
        retries_.decode(retry)
    except (Invalid, TypeError) as refused:
        yield "retry", str(refused).removesuffix(".")


Check = Callable[[Any], bool]


def _wrong(name: str, value: Any, check: Check, wanted: str) -> Iterator[tuple[str, str]]:
    if not check(value):
        yield name, f"is {quoted(value)}; give {wanted}"


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _or_unset(check: Check) -> Check:
    return lambda value: value is UNSET or check(value)


def _is_whole_from(least: int) -> Check:
    return lambda value: is_whole(value) and least <= value <= partitions.HIGHEST


LAST_PHASE = 2**31 - 1  # what both databases have room for


def _is_phase(value: Any) -> bool:
    return is_whole(value) and 0 <= value <= LAST_PHASE


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_above_zero(value: Any) -> bool:
    return is_number(value) and value > 0


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_text(each) for each in value)


A_QUEUE = f"lower-case letters, words joined by single underscores, at most {LONGEST_NAME} characters"


def _is_queue(value: Any) -> bool:
    return isinstance(value, str) and bool(INSTANCE_OR_QUEUE.fullmatch(value)) and len(value) <= LONGEST_NAME


def is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(NAME.fullmatch(value))


def _bad_name(name: Any) -> str:
    said = "there is none" if name is None else f"is {quoted(name)}"
    return f"{said}; give letters, digits, _ and -, at most 200"


def nearest(name: str, known: list[str]) -> str:
    """A hint at what was probably meant."""
    near = difflib.get_close_matches(name, [each for each in known if isinstance(each, str)], n=1)
    return f" Did you mean `{near[0]}`?" if near else ""


def check(definition: Definition, where: str = "") -> Definition:
    """The definition itself, or `Invalid` with everything that is wrong."""
    refuse(problems(definition), definition.name, where)
    return definition


def refuse(found: Sequence[str], name: Any, where: str = "") -> None:
    """`Invalid` with everything that was found, if anything was."""
    if found:
        what = f"Workflow `{name}`" if is_name(name) else "This workflow"
        place = f"{where}: {what[0].lower()}{what[1:]}" if where else what
        reasons = [text.removesuffix(".") + ("" if text.endswith("?") else ".") for text in found]
        if len(reasons) > 1:
            place, reasons = (
                f"{place} cannot be, for {len(found)} reasons",
                [f"({at}) {text}" for at, text in enumerate(reasons, 1)],
            )
        else:
            place = f"{place} cannot be"
        raise Invalid(f"{place}: {' '.join(reasons)}")


def check_trigger(trigger: Any) -> str:
    """A run's name among the runs of its workflow, and a part of its address."""
    if not isinstance(trigger, str) or not TRIGGER.fullmatch(trigger) or trigger in (".", ".."):
        raise Invalid(
            f"trigger={quoted(trigger)}; give a text of 1 to {LONGEST_TRIGGER} characters without `/`, and not `.` or `..`."
        )
    return trigger


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Params of several sources; a later one wins (F13)."""
    found: dict[str, Any] = {}
    for layer in layers:
        found.update(layer)
    return found


def encode(definition: Definition) -> str:
    """As it is kept with a run: every field written out, but for a timeout or retries that nobody named.

    Older code wrote the defaults of these as well: in its runs they count as named, as they did when the run began.
    """
    return msgspec.json.encode(definition).decode()


decode = msgspec.json.Decoder(Definition).decode
