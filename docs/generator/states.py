"""docs/reference/states.md: the tables of `holdfast.jobs`, and the diagram drawn from them."""

from enum import StrEnum

from docs.generator import text
from holdfast.jobs.job import AttemptEnd, JobError, Outcome, Situation, State
from holdfast.jobs.states import ALONE_AFTER, MOVES, STATUS, TASK_STATE, Event

STATES = {
    State.INITIAL: "Accepted, never started.",
    State.RUNNING: "Started; its situation says who has it.",
    State.ERROR: "The last attempt ended in an error, and another one may follow.",
    State.FINAL: "Ended. No column of it changes any more.",
}
SITUATIONS = {
    Situation.HELD: "A live worker's attempt owns it.",
    Situation.WAITING: "No worker owns it; it waits for an answer (R3).",
    Situation.LOOSE: "No attempt owns it: it was lost, handed back or snoozed, and stands in the claim order again.",
}
OUTCOMES = {
    Outcome.SUCCESS: "The handler returned.",
    Outcome.FAILED: "The handler raised `Failed`.",
    Outcome.ERROR: "An error for which no retry was left, a crash too many, or it expired.",
    Outcome.ABORTED: "Somebody ended it.",
}
ENDS = {
    AttemptEnd.SUCCESS: "The handler returned.",
    AttemptEnd.FAILED: "The handler raised `Failed`.",
    AttemptEnd.ERROR: "The handler raised anything else, or its payload or result could not be used.",
    AttemptEnd.TIMEOUT: "Its time was over.",
    AttemptEnd.LOST: "Its process died or its worker was lost.",
    AttemptEnd.HANDED_BACK: "Its worker stopped before it was done, or never began it.",
    AttemptEnd.SNOOZED: "The handler raised `Snooze`.",
    AttemptEnd.ANSWERED: "The answer that the job waited for came (R3).",
    AttemptEnd.ABORTED: "Somebody ended the job.",
    AttemptEnd.EXPIRED: "It could not start before its `expires`.",
}
KINDS = {
    "exception": "The handler raised.",
    "timeout": "Its time was over.",
    "failed": "The handler raised `Failed`. Never retried.",
    "retry": "The handler raised `Retry`.",
    "aborted": "Somebody ended the job.",
    "expired": "It could not start before its `expires`.",
    "crash": "It killed its process `max_crashes` times while alone in it.",
    "payload": "The payload does not convert to the handler's types. Never retried.",
    "result": "What the handler returned is not JSON. Never retried.",
    "retry_handler": "The retry handler itself failed, or answered what it may not.",
    "damaged": "The stored error cannot be read. Its message says why.",
}
COUNTED = {AttemptEnd.ERROR, AttemptEnd.TIMEOUT}


def page() -> str:
    return "\n".join(
        [
            "# States\n",
            text.MADE,
            "A job is in one of four states. The table of moves is the whole machine: `holdfast.jobs.states.MOVES`. The "
            "database refuses every other move, also by plain SQL.\n",
            words("state", STATES, State),
            "## Moves\n",
            text.block(diagram(), "mermaid"),
            text.table(("from", "event", "to", ""), moves()),
            text.meanwhile("R3", text.linked("No job takes `wait` or is ended from outside in this version (R3).\n")),
            "An error that ends a job is two moves in one transaction: `fail`, then `end`. A job that is aborted or expires "
            "in `initial` makes three, `claim`, `fail`, `end`, without its handler being called.\n",
            "## Situations\n\nOf a `running` job:\n",
            words("situation", SITUATIONS, Situation),
            "## Outcomes\n\nOf a `final` job:\n",
            words("outcome", OUTCOMES, Outcome),
            "## Status\n\nThe same row in other words; none is stored.\n",
            text.table(("state", "outcome", "status", "task state"), status()),
            "## Ends of an attempt\n\n`job.attempts()` tells how each attempt ended. Only some ends count as `failures`.\n",
            text.table(("end", "", "counts"), ends()),
            f"A job that was lost {ALONE_AFTER} times in a row is run alone, in a child process of its own.\n",
            "## Kinds of error\n\n`job.error.kind` tells errors apart:\n",
            text.table(("kind", ""), kinds()),
        ]
    )


def words(head: str, means: "dict[State, str] | dict[Situation, str] | dict[Outcome, str]", kind: type[StrEnum]) -> str:
    text.exactly({str(name): meaning for name, meaning in means.items()}, map(str, kind), kind.__name__)
    return text.table((head, ""), [(text.code(name), text.prose(meaning)) for name, meaning in means.items()])


def diagram() -> str:
    """A Mermaid state diagram; moves between the same states share an arrow."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, event), target in MOVES.items():
        arrows.setdefault((state, target), []).append(event)
    lines = [f"    {source} --> {target}: {', '.join(events)}" for (source, target), events in arrows.items()]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {State.INITIAL}", *lines, f"    {State.FINAL} --> [*]"])


def moves() -> list[tuple[str, str, str, str]]:
    means = text.comments(Event)
    return [
        (text.code(state), text.code(event), text.code(target), means[event.name])
        for (state, event), target in MOVES.items()
    ]


def status() -> list[tuple[str, ...]]:
    return [
        (
            text.code(state),
            "" if outcome is None else text.code(outcome),
            text.code(name),
            text.code(TASK_STATE[outcome]),
        )
        for (state, outcome), name in STATUS.items()
    ]


def ends() -> list[tuple[str, str, str]]:
    text.exactly({str(end): meaning for end, meaning in ENDS.items()}, map(str, AttemptEnd), "AttemptEnd")
    return [(text.code(end), text.prose(means), "yes" if end in COUNTED else "") for end, means in ENDS.items()]


def kinds() -> list[tuple[str, str]]:
    named = set(text.comments(JobError)["kind"].split(", "))
    if not named <= set(KINDS):
        raise LookupError(f"JobError.kind: without a meaning {sorted(named - set(KINDS))}")
    return [(text.code(kind), means) for kind, means in KINDS.items()]
