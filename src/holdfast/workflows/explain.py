"""Why a step is not done: from the facts of its run to the one reason that has to go away first (E1).

A function of the facts, which a store reads in one snapshot. Reasons are looked for in the order in which they have to
go away; the others that hold stand in `details["also"]`.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from holdfast.jobs import wording
from holdfast.jobs.holds import Hold, Level
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.partition import Items, count
from holdfast.workflows.plan import StepRow
from holdfast.workflows.reasons import STEP_REASONS, StepExplanation, StepFinding, StepReason
from holdfast.workflows.states import STEP_STATES, Result, StepState

MOST_NAMED = 5


class StepFacts(Struct, frozen=True, kw_only=True):
    """Everything that an explanation of a step is made from."""

    definition: Definition
    rows: Mapping[str, StepRow]  # of all steps
    step: str
    now: datetime
    holds: Sequence[Hold] = ()  # that its run is kept back by
    items_job: int | None = None  # that makes the next of its tasks
    aborted: bool = False  # its run was
    task: str = ""  # what is said of its first task that is not done

    @property
    def declared(self) -> StepDefinition:
        return next(step for step in self.definition.steps if step.name == self.step)

    @property
    def row(self) -> StepRow:
        return self.rows[self.step]

    @property
    def total(self) -> int | None:
        """How many tasks it will have; None: nobody knows."""
        return self.row.created if self.row.all_created else count(self.row.partition)

    def undone(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not STEP_STATES[self.rows[name].state].done]


def explain(facts: StepFacts) -> StepExplanation:
    """The reason that has to go away first, with the others that hold."""
    main, *others = _findings(facts)
    details: dict[str, Any] = {"state": facts.row.state.value, **main.details}
    details["also"] = [{"reason": str(other.reason), "text": _sentence(facts, other)} for other in others]
    text = _sentence(facts, main)
    if facts.task and main.reason in WITH_TASK:
        text += f" The first task that is not done: {facts.task}"
    return StepExplanation(facts.step, main.reason, text, details)


WITH_TASK = (StepReason.TASKS, StepReason.MAX_UNDONE, StepReason.WINDS_DOWN, StepReason.ITEMS)


def _findings(facts: StepFacts) -> Iterator[StepFinding]:
    state = facts.row.state
    if STEP_STATES[state].done:
        yield _done(facts)
    elif state is StepState.DORMANT:
        found = [finding for finding in (_phase(facts), _after(facts)) if finding is not None]
        yield from found or [StepFinding(StepReason.STUCK)]
    else:
        yield from _begun(facts)


def _phase(facts: StepFacts) -> StepFinding | None:
    phases = {step.name: step.phase for step in facts.definition.steps}
    names = facts.undone([name for name, phase in phases.items() if phase < facts.declared.phase])
    if not names:
        return None
    before = min(phases[name] for name in names)
    names = [name for name in names if phases[name] == before]
    words = {"steps_words": f"{_steps(names)} {'is' if len(names) == 1 else 'are'}"}
    return StepFinding(StepReason.PHASE, {"phase_before": before, "steps": names}, words)


def _after(facts: StepFacts) -> StepFinding | None:
    names = facts.undone(facts.declared.after)
    if not names:
        return None
    states = {name: facts.rows[name].state.value for name in names}
    told = [f"step `{name}`, which is `{state}`" for name, state in list(states.items())[:MOST_NAMED]]
    told += [f"{len(names) - MOST_NAMED} others"] if len(names) > MOST_NAMED else []
    return StepFinding(StepReason.AFTER, {"steps": names, "states": states}, {"steps_words": wording.joined(told)})


def _begun(facts: StepFacts) -> Iterator[StepFinding]:
    """Tasks are being made, or done; after a retry they wait for their phase."""
    earlier = _phase(facts)
    if earlier is not None:
        yield earlier
        return
    row, most = facts.row, facts.declared.most_undone
    numbers = {"done": row.created - row.undone, "undone": row.undone, "total": facts.total, "max_undone": most}
    words = {
        "undone_words": _tasks(row.undone),
        "total": "an unknown number of" if facts.total is None else facts.total,
    }
    words["done_words"] = _tasks(row.created - row.undone)
    winds_down = row.state is StepState.START and not row.all_created and _spoiled_by(facts)
    if row.state is StepState.START and not row.all_created and not winds_down:
        yield from _held(facts, Level.CREATE, StepReason.CREATION_HELD, numbers, words)
    if row.undone:
        yield from _held(facts, Level.PICK, StepReason.PICK_HELD, numbers, words)
    if winds_down:
        yield StepFinding(StepReason.WINDS_DOWN, numbers, {**words, "because": winds_down})
    elif row.undone >= most and not row.all_created:
        yield StepFinding(StepReason.MAX_UNDONE, numbers, words)
    elif isinstance(row.partition, Items) and not row.all_created and facts.items_job is not None:
        yield StepFinding(StepReason.ITEMS, {**numbers, "items_job": facts.items_job}, words)
    elif row.undone or row.all_created:
        yield StepFinding(StepReason.TASKS, numbers, words)


def _spoiled_by(facts: StepFacts) -> str:
    """What keeps a step that has begun from making more tasks (F4, F9); empty: nothing."""
    row = facts.row
    if row.failed + row.errors:
        return f"{_tasks(row.failed)} failed and {row.errors} erred"
    cut = _erred_in_phase(facts)
    return f"{_steps(cut)} erred" if cut else ""


def _erred_in_phase(facts: StepFacts) -> list[str]:
    """With `fail_fast`: the steps that cut its phase."""
    if not facts.definition.fail_fast:
        return []
    phase = facts.declared.phase
    beside = [step.name for step in facts.definition.steps if step.phase == phase and step.name != facts.step]
    return [name for name in beside if facts.rows[name].state is StepState.ERROR]


def _held(
    facts: StepFacts, level: Level, reason: StepReason, numbers: dict[str, Any], words: dict[str, Any]
) -> Iterator[StepFinding]:
    for hold in facts.holds:
        if hold.level is level:
            told = {"scope": hold.scope, "release": hold.release}
            yield StepFinding(reason, {**numbers, **structs.asdict(hold), **told}, words)


def _done(facts: StepFacts) -> StepFinding:
    row = facts.row
    counts = {name: getattr(row, name) for name in ("created", "succeeded", "failed", "errors")}
    words = {"done_words": _tasks(row.created)}
    if row.state is StepState.IGNORED:
        return StepFinding(StepReason.IGNORED)
    if facts.aborted and row.state in (StepState.ERROR, StepState.SKIP_BY_ERROR):
        return StepFinding(StepReason.ABORTED, counts)
    if row.failed or row.errors:
        return StepFinding(StepReason.FAILED, counts)
    skipped = _skipped_by(facts)
    if row.state in SKIPS and (skipped or not row.created):
        states = {name: facts.rows[name].state.value for name in skipped}
        told = wording.joined(
            [f"step `{name}`, which is `{state}`" for name, state in states.items()] or ["another step"]
        )
        return StepFinding(StepReason.SKIPPED, {"steps": skipped, "states": states}, {"steps_words": told})
    return StepFinding(StepReason.FAILED if row.state in FAILURES else StepReason.SUCCEEDED, counts, words)


SKIPS = (StepState.SKIP_BY_FAILED, StepState.SKIP_BY_ERROR, StepState.ACCEPTABLE_FAILED)
FAILURES = (StepState.FAILED, StepState.ERROR)


def _skipped_by(facts: StepFacts) -> list[str]:
    """Steps before it that have not succeeded, else those that cut its phase."""
    bad = (Result.FAILED, Result.ERROR)
    before = [name for name in facts.declared.after if STEP_STATES[facts.rows[name].state].result in bad]
    return (before or _erred_in_phase(facts))[:MOST_NAMED]


def _sentence(facts: StepFacts, finding: StepFinding) -> str:
    told = {"state": facts.row.state.value, **finding.details, **finding.words}
    shown = {
        name: wording.when(value, facts.now) if isinstance(value, datetime) else value for name, value in told.items()
    }
    return f"Step `{facts.step}` {STEP_REASONS[finding.reason].sentence.format_map(shown)}"


def _tasks(number: int) -> str:
    return "1 task" if number == 1 else f"{number} tasks"


def _steps(names: Sequence[str]) -> str:
    return wording.listing(names, "step", MOST_NAMED)
