"""Why a step of a run is where it is: every reason, the sentence that tells it, what it means and what to do (E1).

The table is the whole list, and the reference is made from it. A sentence goes on after "Step `calc` "; what stands in
braces is filled in for the step.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from holdfast.jobs.reasons import Told


class StepReason(StrEnum):
    """Why a step is not done, or how it was."""

    PHASE = "phase"
    AFTER = "after"
    CREATION_HELD = "creation_held"
    PICK_HELD = "pick_held"
    WINDS_DOWN = "winds_down"
    MAX_UNDONE = "max_undone"
    ITEMS = "items"
    TASKS = "tasks"
    STUCK = "stuck"
    SUCCEEDED = "succeeded"
    IGNORED = "ignored"
    FAILED = "failed"
    SKIPPED = "skipped"
    ABORTED = "aborted"


class StepExplanation(Struct, frozen=True):
    """The answer to "why is this step not done?": one reason, the one that has to go away first."""

    step: str
    reason: StepReason
    text: str  # a paragraph for people
    details: dict[str, Any]  # the same for programs; `also` has the other reasons that hold


class StepFinding(Struct, frozen=True):
    """A reason that holds."""

    reason: StepReason
    details: dict[str, Any] = {}
    words: dict[str, Any] = {}  # for the sentence, where they are not those of the details


STEP_REASONS: Mapping[StepReason, Told] = MappingProxyType(
    {
        StepReason.PHASE: Told(
            "waits for phase {phase_before}, of which {steps_words} not done.",
            "All steps of earlier phases are done before a phase starts.",
            "Look at the steps that it names.",
        ),
        StepReason.AFTER: Told(
            "waits for {steps_words}.",
            "Steps that it comes after are not done.",
            "Look at the steps that it names.",
        ),
        StepReason.CREATION_HELD: Told(
            "makes no tasks: {actor} holds that for {scope} since {hold_time}.",
            "Somebody holds `create`.",
            "`holdfast workflows release create …`, as the answer's `release` says.",
        ),
        StepReason.PICK_HELD: Told(
            "has {undone_words} that may not start: {actor} holds that for {scope} since {hold_time}.",
            "Somebody holds `pick`.",
            "`holdfast workflows release pick …`, as the answer's `release` says.",
        ),
        StepReason.WINDS_DOWN: Told(
            "makes no more tasks, because {because}, and waits for {undone_words}.",
            "After a failure no more tasks are made; those that exist run on.",
            "Wait; `run.retry()` runs erred tasks again when the run is done.",
        ),
        StepReason.MAX_UNDONE: Told(
            "has {done} of {total} tasks done, and as many others as may be at a time: {undone} of {max_undone}.",
            "New tasks are made when others end: never more than `max_undone` wait or run at a time.",
            "Wait for its tasks, or declare it with a higher `max_undone`.",
        ),
        StepReason.ITEMS: Told(
            "has {done_words} done and waits for job {items_job}, which makes more of them from its items.",
            "The step's tasks come from an iterable of yours, which a job of its own reads.",
            "`holdfast jobs explain ID` says where that job is.",
        ),
        StepReason.TASKS: Told(
            "waits for its tasks: {done} of {total} done.",
            "Its tasks exist, and are not done.",
            "`holdfast workflows tasks` lists them, `holdfast jobs explain ID` says where one is.",
        ),
        StepReason.STUCK: Told(
            "could start, and nobody has started it.",
            "Nothing is in its way. This cannot happen to a definition that was checked.",
            "Abort the run, and report what it is made of: this is a defect of Holdfast.",
        ),
        StepReason.SUCCEEDED: Told(
            "is done: `{state}`, {done_words}.",
            "It has a success result.",
        ),
        StepReason.IGNORED: Told(
            "is done: it was ignored, as the request asked.",
            "The request named it under `ignore`.",
        ),
        StepReason.FAILED: Told(
            "is done: `{state}`, {failed} of {created} tasks failed and {errors} erred.",
            "A task failed, or ended in an error after its retries.",
            "`holdfast workflows tasks` shows the errors. `run.retry()` runs what erred again.",
        ),
        StepReason.SKIPPED: Told(
            "was skipped (`{state}`), because of {steps_words}.",
            "A step before it, or one of its phase with `fail_fast`, has not succeeded.",
            "Look at the steps that it names. `run.retry()` undoes what was skipped by an error.",
        ),
        StepReason.ABORTED: Told(
            "was ended (`{state}`) when its run was aborted.",
            "Somebody aborted the run.",
            "`run.retry()` goes on with it.",
        ),
    }
)
