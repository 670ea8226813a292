"""Where a due job stands: what a claim would be told about it by the limit, the throttler and those before it.

Whether it may start is asked of the functions that a claim asks (`jobs.throttle`), so both say the same.
"""

from datetime import timedelta
from typing import Any

from msgspec import structs

from holdfast.jobs import throttlers, wording
from holdfast.jobs.facts import Facts, Place, ids_of, these_workers
from holdfast.jobs.job import AttemptEnd, Situation
from holdfast.jobs.obstacles import error_words
from holdfast.jobs.reasons import Finding, Reason
from holdfast.jobs.states import ALONE_AFTER
from holdfast.jobs.throttle import Admission, Candidate, Held, Usage, Why, choose
from holdfast.jobs.throttlers import Function, Rate


def throttled(facts: Facts) -> Finding | None:
    """What keeps it from starting under the limit and the throttler of its queue (W3, W4)."""
    usage = facts.usage
    if usage is None:
        return None
    if isinstance(usage.throttler, Function):
        limit = structs.replace(usage, throttler=None)
        return _held_back(facts, limit) or _refused(facts, usage.throttler)
    return _held_back(facts, usage)


def _held_back(facts: Facts, usage: Usage) -> Finding | None:
    """The job alone, and then behind those before it."""
    own = Candidate(facts.job.id, facts.job.throttle_factor, True, facts.pool)
    alone = choose(usage, [own]).held.get(own.id)
    if alone is not None and alone.why in (Why.FACTOR, Why.POOL_FACTOR):
        return _too_heavy(facts, alone)
    if not facts.due or facts.place is Place.UNDECIDED:
        return None
    if alone is not None and alone.why in (Why.LIMIT, Why.POOL):
        return _full(facts, alone)
    choice = choose(usage, [*facts.before, own])
    held = choice.held.get(own.id)
    if held is None:
        return None
    if isinstance(usage.throttler, Rate) and _is_paced(choice, held):
        return _paced(facts, usage, usage.throttler)
    if held.why is Why.RESERVED and held.reserved_for is not None and _collects(facts, usage, held.reserved_for):
        details, words = _numbers(facts, held)
        return Finding(Reason.RESERVED, None, details | {"reserved_for": held.reserved_for}, words)
    return None  # those before it take what is free, now


def _too_heavy(facts: Facts, held: Held) -> Finding:
    details, words = _numbers(facts, held)
    whole = f"the whole limit {words['size']} of queue `{facts.job.queue}`"
    if held.pool is not None:
        whole = f"all {words['size']} slots of {words['pool_words']} in queue `{facts.job.queue}`"
    return Finding(Reason.FACTOR_ABOVE_LIMIT, None, details, words | {"whole": whole})


def _full(facts: Facts, held: Held) -> Finding:
    details, words = _numbers(facts, held)
    details |= {"used_by": list(facts.users), "used_by_count": facts.user_count, **line(facts)}
    words |= {"users": wording.these(facts.users, facts.user_count, "job")}
    return Finding(Reason.THROTTLED if held.pool is None else Reason.SHARE, None, details, words)


def _numbers(facts: Facts, held: Held) -> tuple[dict[str, Any], dict[str, str]]:
    """How much there is, how much of it is used, and how much the job needs; for programs and for people."""
    job, usage = facts.job, facts.usage
    numbers = {"throttle_factor": job.throttle_factor, "size": held.size or 0.0, "used": held.used or 0.0}
    words = {name: f"{number:g}" for name, number in numbers.items()}
    words["pool_words"] = throttlers.pool_words(usage.throttler if usage else None, held.pool or "")
    words["where"] = f"under the limit of queue `{job.queue}`"
    if held.pool is not None:
        words["where"] = f"among the slots of {words['pool_words']} in queue `{job.queue}`"
    limit = usage.limit if usage and usage.limit >= 1 else None
    return {"queue": job.queue, "throttle_limit": limit, "pool": held.pool, **numbers}, words


def _is_paced(choice: Admission, held: Held) -> bool:
    """There is no token for it, or none for the one that stands before it."""
    if held.why is Why.RATE:
        return True
    first = None if held.reserved_for is None else choice.held.get(held.reserved_for)
    return held.why is Why.RESERVED and first is not None and first.why is Why.RATE


def _paced(facts: Facts, usage: Usage, rate: Rate) -> Finding:
    """The tokens of those before it come first."""
    job = facts.job
    needed = throttlers.price(rate, job.throttle_factor) + sum(each.throttle_factor for each in ahead(facts))
    until = facts.now + timedelta(seconds=max(0.0, (needed - usage.tokens) * rate.per / rate.count))
    details = {"queue": job.queue, "count": rate.count, "per": rate.per, "burst": rate.burst, "tokens": usage.tokens}
    words = {
        "count": f"{rate.count:g}",
        "per": wording.span(rate.per),
        "turn": f"its turn comes at {facts.when(until)}",
    }
    if facts.more_before:
        return Finding(Reason.RATE, None, details | line(facts), words | {"turn": before_words(facts)})
    return Finding(Reason.RATE, until, details | line(facts), words)


def _collects(facts: Facts, usage: Usage, job_id: int) -> bool:
    """Whether the job before it would not fit even if it were the only one."""
    first = [each for each in facts.before if each.id == job_id]
    return bool(choose(usage, first).held)


def _refused(facts: Facts, function: Function) -> Finding | None:
    """Nobody can know what a function says but who has it; while all slots are busy nobody asks it."""
    if not facts.due or facts.place is Place.UNDECIDED or not facts.free_slots:
        return None
    return Finding(Reason.REFUSED, None, {"queue": facts.job.queue, "throttler": function.name, **line(facts)})


def in_line(facts: Facts) -> Finding:
    """Nothing is in its way but others."""
    job = facts.job
    details: dict[str, Any] = {"queue": job.queue, **line(facts)}
    words = {"line": f"{before_words(facts)}, and {_slot_words(facts)}"}
    if job.situation is not Situation.LOOSE:
        further = (f"Its attempt {job.attempt} failed: {error_words(job)}.",) if job.error is not None else ()
        return Finding(Reason.IN_LINE, None, details, words, further)
    cause = facts.cause
    details |= {"attempt": job.attempt, "losses": job.losses, "crashes": job.crashes}
    details["cause"] = None if cause is None else str(cause)
    if job.losses >= ALONE_AFTER:
        return Finding(Reason.ALONE, None, details, words)
    return Finding(Reason.LOOSE, None, details, words | {"cause": "is over" if cause is None else CAUSES[cause]})


CAUSES = {
    AttemptEnd.LOST: "was lost with its worker",
    AttemptEnd.HANDED_BACK: "was handed back by its worker",
    AttemptEnd.SNOOZED: "was snoozed, and that is over",
    AttemptEnd.ANSWERED: "got the answer that its response handler is to be called with, by a worker whose code has it",
}


def ahead(facts: Facts) -> list[Candidate]:
    """Those before it that go first. Who waits for slots of another pool, or is too heavy, lets it pass."""
    if facts.usage is None:
        return facts.runnable
    held = choose(facts.usage, facts.before).held
    return [each for each in facts.runnable if each.id not in held or not _passed_over(facts, each, held[each.id])]


def _passed_over(facts: Facts, other: Candidate, held: Held) -> bool:
    if held.why in (Why.FACTOR, Why.POOL_FACTOR):
        return True
    in_pool = held.why is Why.POOL or (held.why is Why.RESERVED and held.pool is not None)
    return in_pool and other.pool != facts.pool


def line(facts: Facts) -> dict[str, Any]:
    """Those before it and the slots that it could have, for programs."""
    return {
        "before": len(ahead(facts)),
        "more_before": facts.more_before,
        "workers": ids_of(facts.able),
        "slots": facts.slots,
        "slots_busy": facts.slots - facts.free_slots,
    }


def before_words(facts: Facts) -> str:
    count = len(ahead(facts))
    if not (count or facts.more_before):
        return "it is the next"
    return f"{'more than ' if facts.more_before else ''}{count} {'job' if count == 1 else 'jobs'} before it"


def _slot_words(facts: Facts) -> str:
    slots, free = facts.slots, facts.free_slots
    counted = "the only slot" if slots == 1 else f"{free} of {slots} slots" if free else f"all {slots} slots"
    verb = "is" if slots == 1 or free == 1 else "are"
    return f"{counted} of {these_workers(facts.able)} {verb} {'free' if free else 'busy'}"
