"""I7: what `explain` says of a job that nobody has is true, told from rows that it did not read.

A job that is neither final nor running waits for something, and `explain` always names something; so each reason has here what
must be the case for it. What several reasons share is that a job in line is in the line, and that nobody waits for what has come.
"""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.jobs.explain import explain
from holdfast.jobs.reasons import Reason
from holdfast.stores.contract import Store

Row = Mapping[str, Any]
Seen = Callable[["Job"], bool]


class Job:
    """One that nobody has, with what stands beside it."""

    def __init__(self, row: Row, places: set[str], queue: Row, used: float, now: Any) -> None:
        self.row, self.places, self.queue, self.used, self.now = row, places, queue, used, now
        limit = queue["declared_limit"] if queue["set_limit"] is None else queue["set_limit"]
        self.limit = limit if limit >= 1 else float("inf")

    @property
    def due(self) -> bool:
        return bool(self.row["scheduled_run_time"] <= self.now)

    @property
    def wanted(self) -> bool:
        return self.due and not self.queue["paused"] and "undecided" not in self.places

    @property
    def stands(self) -> bool:
        """Wanted, and where somebody finds it."""
        return self.wanted and bool(self.places)


TRUE: Mapping[Reason, Seen] = {
    Reason.NOT_DUE: lambda job: not job.due,
    Reason.WINDOW: lambda job: bool(job.row["time_windows"]),
    Reason.EXPIRES_FIRST: lambda job: job.row["scheduled_run_time"] >= job.row["expires_time"],
    Reason.EXPIRED: lambda job: job.row["expires_time"] <= job.now,
    Reason.RETRY_DELAY: lambda job: job.row["state"] == "error" and not job.due,
    Reason.RETRY_HANDLER: lambda job: job.row["state"] == "error" and "undecided" in job.places,
    Reason.SNOOZED: lambda job: job.row["situation"] == "loose" and not job.due,
    Reason.PAUSED: lambda job: bool(job.queue["paused"]),
    Reason.ON_HOLD: lambda job: job.row["run"] is not None,
    Reason.NO_WORKER: lambda job: "undecided" not in job.places,
    Reason.PREFERS: lambda job: job.wanted,
    Reason.BREAKER_OPEN: lambda job: "undecided" not in job.places,
    Reason.FACTOR_ABOVE_LIMIT: lambda job: job.row["throttle_factor"] > job.limit or bool(job.queue["throttler"]),
    Reason.THROTTLED: lambda job: job.wanted and job.used + job.row["throttle_factor"] > job.limit,
    Reason.SHARE: lambda job: job.wanted and bool(job.queue["throttler"]),
    Reason.RATE: lambda job: job.wanted and bool(job.queue["throttler"]),
    Reason.REFUSED: lambda job: job.wanted and bool(job.queue["throttler"]),
    Reason.RESERVED: lambda job: job.wanted and (job.limit < float("inf") or bool(job.queue["throttler"])),
    Reason.IN_LINE: lambda job: job.stands and job.row["situation"] is None,
    Reason.OUT_OF_LINE: lambda job: job.due and not job.places,
    Reason.LOOSE: lambda job: job.stands and job.row["situation"] == "loose",
    Reason.ALONE: lambda job: job.stands and job.row["situation"] == "loose",
}


def check_explained(store: Store, row: Row, places: set[str], queue: Row, used: float) -> None:
    """Raises AssertionError naming the job. `places`: the tables beside its row in which it is found."""
    facts = store.facts(row["id"])
    if (facts.job.state, facts.job.attempt, facts.job.situation) != (row["state"], row["attempt"], row["situation"]):
        return  # it has gone on since
    said = explain(facts)
    job = Job(row, places, queue, used, store.time(facts.now))
    true = TRUE.get(said.reason, lambda job: False)(job)
    assert true, f"I7: {said.text} But it is {dict(row)}, found in {places}"
