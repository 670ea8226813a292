"""A glance at the whole instance that costs the same however many jobs there are: for people who watch it each second.

Everything comes from what stands beside the jobs: `ready`, `waiting`, `parked`, `aside`, leases and the last ends. No count goes
beyond `MOST`; one that would is told as that many and named in `about`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.jobs.job import Progress
from holdfast.stores.contract import Ended, Glance, QueueLoad, QueueRow, Running
from holdfast.stores.statements import RowDict
from holdfast.stores.sweeping import Sweeping

MOST = 10_000  # rows of each kind that are counted
MOST_LEASES = 2_000
MOST_ENDS = 2_000  # transactions that ended jobs
WINDOW = 10.0  # seconds over which rates are taken
MOST_LEVELS = 100  # priorities of a queue, or types, whose first job is looked at
LATELY = timedelta(hours=1)
SLOWEST = 20  # running jobs that are shown
COUNTED = ("waiting", "parked", "aside", "held")


class Glancing(Sweeping):
    """Adds the verb that looks at everything at once."""

    def glance(self) -> Glance:
        """How full each queue is, how fast it goes, who works, and which jobs have been running longest."""
        with self.work(write=False):
            now = self.now()
            queues = self._read_queues()
            counts = {name: self._counted(name) for name in COUNTED}
            counts["ready"] = Counter({row.name: self._ready(row.name) for row in queues})
            unhandled = self._counted("parked", "job_type")
            leases = self.rows("glance_leases", {"most": MOST_LEASES})
            leased = [job for lease in leases for job in self.unpack(lease["ids"])]
            held = self.rows("glance_running", {"ids": self.pack(leased[:MOST])}) if leased else []
            ends = self._ends()
            dead = self.rows("glance_dead", {"since": self.time(now - LATELY), "most": MOST_ENDS})
            since = self._due_since(queues, now)
        counts["running"] = Counter(row["queue"] for row in held)
        counts["dead"] = Counter(row["queue"] for row in dead)
        used = Counter[str]()
        for row in held:
            used[row["queue"]] += row["throttle_factor"]
        cut = {name for name in COUNTED if counts[name].total() == MOST}
        if len(leases) == MOST_LEASES or len(leased) > MOST:
            cut.add("running")
        if len(dead) == MOST_ENDS:
            cut.add("dead")
        rates = _rates(ends, now)
        return Glance(
            time=now,
            queues=tuple(_load(row, counts, rates, cut, used[row.name], since.get(row.name)) for row in queues),
            slowest=tuple(self._running_of(row) for row in held if row["situation"] == "held")[:SLOWEST],
            in_hand=Counter(row["worker"] for row in held if row["situation"] == "held"),
            unhandled=dict(unhandled),
            deaths=tuple(self._known(row["end_time"]) for row in dead),
            ends=ends,
            ends_since=ends[-1].end_time if len(ends) == MOST_ENDS else None,
        )

    def _counted(self, name: str, by: str = "queue") -> Counter[str]:
        counts = Counter[str]()
        for row in self.rows(f"glance_{name}", {"most": MOST}):
            counts[row[by]] += row["count"]
        return counts

    def _ready(self, queue: str) -> int:
        count: int = self.rows("glance_ready", {"queue": queue, "most": MOST})[0]["count"]
        return count

    def _due_since(self, queues: Sequence[QueueRow], now: datetime) -> dict[str, datetime]:
        """When the oldest due job of each queue was wanted, told from those that stand first."""
        found = self.rows("glance_first_parked", {"most": MOST_LEVELS}) + self.rows("glance_first_aside")
        for queue in queues:
            levels = 1 if queue.claim_order == "schedule" else MOST_LEVELS
            found += self.rows("glance_first_due", {"queue": queue.name, "most": levels})
        ids = [row["id"] for row in found if row["id"] is not None]
        params = {"ids": self.pack(ids), "until": self.time(now)}
        rows = self.rows("glance_due_since", params) if ids else []
        return {row["queue"]: self._known(row["time"]) for row in rows}

    def _ends(self) -> tuple[Ended, ...]:
        rows = self.rows("glance_ended", {"most": MOST_ENDS})
        return tuple(Ended(row["queue"], self._known(row["end_time"]), row["count"]) for row in rows)

    def _running_of(self, row: RowDict) -> Running:
        return Running(
            id=row["id"],
            job_type=row["job_type"],
            job_key=row["job_key"],
            queue=row["queue"],
            attempt=row["attempt"],
            start_time=self._known(row["start_time"]),
            worker=None if row["worker"] is None else str(row["worker"]),
            progress=None if row["progress"] is None else Progress(row["progress"], row["progress_text"] or ""),
            timeout=row["timeout"],
        )


def _rates(ends: Sequence[Ended], now: datetime) -> dict[str, float]:
    """Jobs of each queue that ended in a second, over the last few."""
    since = now - timedelta(seconds=WINDOW)
    if len(ends) == MOST_ENDS:
        since = max(since, ends[-1].end_time)
    counts = Counter[str]()
    for ended in ends:
        if ended.end_time > since:
            counts[ended.queue] += ended.count
    seconds = max((now - since).total_seconds(), 0.001)
    return {queue: count / seconds for queue, count in counts.items()}


def _load(
    row: QueueRow,
    counts: Mapping[str, Counter[str]],
    rates: Mapping[str, float],
    cut: Collection[str],
    used: float,
    due_since: datetime | None,
) -> QueueLoad:
    ready = counts["ready"][row.name]
    return QueueLoad(
        name=row.name,
        paused=row.paused,
        throttle_limit=row.throttle_limit,
        ready=ready,
        waiting=counts["waiting"][row.name],
        parked=counts["parked"][row.name],
        running=counts["running"][row.name],
        ended_per_second=rates.get(row.name, 0.0),
        about=tuple(sorted({*cut, "ready"} if ready == MOST else cut)),
        aside=counts["aside"][row.name],
        held=counts["held"][row.name],
        used=used,
        dead=counts["dead"][row.name],
        due_since=due_since,
    )
