"""How much there would be to play: what would hardly come to an end, in time or in memory, is not begun.

- Estimates, from what is described and from what was recorded, that err on the high side.
"""

import math
import random
from collections.abc import Iterable
from statistics import fmean

from holdfast.errors import Invalid
from holdfast.jobs import retry
from holdfast.simulation import chance
from holdfast.simulation.fleet import (
    DAY,
    HOUR,
    LEAST,
    Arrivals,
    Burst,
    Every,
    Fleet,
    Poisson,
    Recorded,
    TypePlan,
    WorkerPlan,
)
from holdfast.stores.contract import QueueDeclared, TypeRow

MOST_JOBS = 50_000_000
MOST_CRASHES = 100_000
MOST_RETRIES = 1_000_000
DRAWN = 200  # attempts of a type, to see how they go
CALMER = "give them an end with `retries` or a delay with `retry`"
LATER = 1000  # failures after which delays have grown


def jobs(wanted: Arrivals, length: float) -> float:
    """How many come in so many seconds; those outside of `during` count too, for they are drawn."""
    days = math.ceil(length / DAY)
    match wanted:
        case Every():
            return length / wanted.seconds
        case Poisson():
            per_hour = wanted.per_hour
            return min(max(per_hour) * length / HOUR, sum(per_hour) / len(per_hour) * 24 * days)
        case Burst():
            return wanted.count * len(wanted.at) * days


def slots(plan: TypePlan, queues: Iterable[QueueDeclared], workers: Iterable[WorkerPlan]) -> float:
    """How many jobs of a type run at once."""
    factor = plan.template.throttle_factor
    limits = [each.throttle_limit for each in queues if each.name == plan.row.queue and each.throttle_limit >= 1]
    return min(
        float(sum(each.count * each.concurrency for each in workers)),
        *(limit / factor if factor else math.inf for limit in limits),
        math.inf,
    )


def retries(plan: TypePlan, count: float, slots: float, length: float) -> float:
    """How many retries so many described jobs have, of which no more than `slots` run at once."""
    timeout = math.inf if plan.template.timeout is None else plan.template.timeout
    luck = random.Random(0)
    drawn = [chance.seconds_of(plan.duration, luck) for _ in range(DRAWN)]
    late = fmean(each > timeout for each in drawn)
    failing = (1 - late) * plan.failure_rate
    fails = late + failing
    if not fails:
        return 0.0
    seconds = fmean(max(LEAST, min(each, timeout)) for each in drawn)
    pause = (late * _pause(plan.row, "timeout") + failing * _pause(plan.row, "error")) / fails
    each = min(
        fails / (1 - fails) if fails < 1 else math.inf,
        math.inf if plan.template.retries is None else plan.template.retries,
        length / (seconds + pause),
    )
    return min(count * each, slots * length / seconds)


def check_recorded(fleet: Fleet) -> None:
    """Refuse (`Invalid`) a day that was if its jobs would be tried again too often."""
    of_type: dict[str, list[Recorded]] = {}
    for each in fleet.recorded:
        of_type.setdefault(each.job_type, []).append(each)
    for name, recorded in of_type.items():
        plan = fleet.types[name]
        count = _retries_of_recorded(plan, recorded, slots(plan, fleet.queues, fleet.workers), fleet.seconds)
        if count > MOST_RETRIES:
            raise Invalid(
                f"Type `{name}`: about {count:,.0f} retries come in {fleet.seconds / HOUR:g} h, and at most "
                f"{MOST_RETRIES:,} are played; {CALMER}, or play fewer hours."
            )


def _retries_of_recorded(plan: TypePlan, recorded: Iterable[Recorded], slots: float, length: float) -> float:
    """Of jobs whose last attempt is repeated as long as it does not end them."""
    found, shortest = 0.0, math.inf
    for each in recorded:
        last, timeout = each.endings[-1], each.options.get("timeout", plan.template.timeout)
        late = timeout is not None and last.seconds > timeout
        if (last.succeeded and not late) or last.expected:
            continue
        seconds = max(LEAST, timeout if late else last.seconds)
        most = each.options.get("retries", plan.template.retries)
        pause = _pause(plan.row, "timeout" if late else "error")
        found += min(math.inf if most is None else most, length / (seconds + pause))
        shortest = min(shortest, seconds)
    return min(found, slots * length / shortest)


def _pause(row: TypeRow, kind: str) -> float:
    """Between attempts, when many have failed."""
    policy = retry.decode(row.retry)
    pause = retry.delay(policy, LATER, kind, 0.0)
    return max(pause, policy.probe) if isinstance(policy, retry.Adaptive) else pause
