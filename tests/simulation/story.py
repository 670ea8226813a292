"""A story: what happens to an instance, as data. One seed is one story, and a story can be told again without some of it.

- An action names no job and no worker, only two fractions; whoever plays it takes that share of what is there then. So a
  story from which actions were taken out still means something, and a failing one shrinks to what matters.
"""

import random
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

LENGTH = 70
ACTION = re.compile(r"^(\w+)\(([\d.]+), ([\d.]+)\)$", re.MULTILINE)

# What happens, and how often.
WEIGHTS = {
    "enqueue": 12,
    "enqueue_keyed": 5,
    "enqueue_later": 4,
    "enqueue_windowed": 3,
    "enqueue_expiring": 3,
    "enqueue_limited": 8,
    "enqueue_in_lane": 6,
    "enqueue_asking": 4,
    "submit": 4,
    "turn": 34,
    "finish": 34,
    "wait_a_little": 10,
    "wait_long": 4,
    "kill": 4,
    "kill_inside": 5,
    "fail_inside": 4,
    "lose_answer": 2,
    "slow_turn": 2,
    "sweep_inside": 3,
    "act_inside": 6,
    "make_inside": 3,
    "freeze": 3,
    "thaw": 3,
    "nap": 3,
    "start": 5,
    "leave": 2,
    "abort": 4,
    "answer": 6,
    "retry": 2,
    "pause": 2,
    "resume": 2,
    "limit": 2,
    "set_clock": 1,
    "lose_hint": 2,
    "abort_run": 2,
    "retry_run": 2,
    "hold": 2,
    "release": 3,
    "meddle": 4,
    "archive": 1,
}
FEW_JOBS = {"enqueue": 2, "enqueue_keyed": 1, "enqueue_limited": 2, "enqueue_in_lane": 1, "enqueue_windowed": 1}
KINDS = 8
PLAIN, PAUSES, TIMES, RUNS, LOSSES, BREAKERS, ARCHIVES, TALLIES = 0, 1, 2, 3, 4, 5, 6, 7
ABOUT = {  # most stories have more of one thing, by the rest of their seed divided by the number of kinds
    PAUSES: WEIGHTS | {"slow_turn": 15, "nap": 8, "freeze": 6, "thaw": 6},
    TIMES: WEIGHTS
    | FEW_JOBS
    | {"schedule": 14, "unschedule": 2, "fire_by_hand": 4, "fire_inside": 12, "fire_unheard": 4, "fire_late": 8}
    | {"schedule_again": 10, "schedule_inside": 3, "wait_a_little": 16, "wait_long": 6, "set_clock": 10},
    LOSSES: WEIGHTS | {"lose_kept": 12, "outlive": 6},
    RUNS: WEIGHTS | {"submit": 20, "make_inside": 6, "meddle": 40, "release": 20, "enqueue": 2, "enqueue_limited": 2},
    BREAKERS: WEIGHTS
    | FEW_JOBS
    | {"enqueue_fragile": 20, "try_fragile": 50, "outage": 16, "reset_breaker": 2, "lose_parked": 4}
    | {"wait_a_little": 24},
    ARCHIVES: WEIGHTS
    | FEW_JOBS
    | {"submit": 12, "submit_tally": 4, "submit_again": 6, "work_off": 36, "wait_a_little": 20, "archive": 4}
    | {"archive_jobs": 12, "archive_runs": 16, "follow_runs": 6, "archive_run": 8, "archive_inside": 16}
    | {"delete_run": 3, "retry_run": 6, "abort_run": 5},
    TALLIES: WEIGHTS
    | FEW_JOBS
    | {"submit_tally": 24, "meddle": 12, "release": 10, "work_off": 4, "retry_run": 10, "abort_run": 6},
}


class Action(Struct, frozen=True):
    """One thing that happens; `a` and `b` say to whom and how."""

    name: str
    a: float
    b: float

    def __str__(self) -> str:
        return f"{self.name}({self.a:.3f}, {self.b:.3f})"


def read(text: str) -> list[Action]:
    """A story as it was told, line by line; `#` begins a remark."""
    return [Action(name, float(a), float(b)) for name, a, b in ACTION.findall(text)]


def written(seed: int, length: int = LENGTH) -> list[Action]:
    """The story of a seed."""
    luck = random.Random(seed)
    weights = ABOUT.get(seed % KINDS, WEIGHTS)
    names = luck.choices(list(weights), list(weights.values()), k=length)
    return [Action(name, luck.random(), luck.random()) for name in names]


def shrunk(story: Sequence[Action], fails: Callable[[Sequence[Action]], bool], tries: int = 400) -> list[Action]:
    """A shorter story that fails as well: ever smaller stretches are left out as long as it does."""
    left = list(story)
    size = len(left) // 2
    while size and tries > 0:
        start = 0
        while start < len(left) and tries > 0:
            without = left[:start] + left[start + size :]
            tries -= 1
            if fails(without):
                left = without
            else:
                start += size
        size //= 2
    return left
