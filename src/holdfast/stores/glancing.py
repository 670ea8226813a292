"""A glance at the whole instance that costs the same however many jobs there are: for people who watch it each second.

Everything comes from what stands beside the jobs: `ready`, `waiting`, `parked`, leases and the last ends. No count goes
beyond `MOST`; one that would is told as that many and named in `about`.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from holdfast.jobs.job import Progress
from holdfast.stores.contract import Glance, QueueLoad, QueueRow, Running
from holdfast.stores.statements import RowDict
from holdfast.stores.sweeping import Sweeping

MOST = 10_000  # rows of each kind that are counted
MOST_LEASES = 2_000
MOST_ENDS = 2_000  # transactions that ended jobs
WINDOW = 10.0  # seconds over which rates are taken
SLOWEST = 20  # running jobs that are shown


class Glancing(Sweeping):
    """Adds the verb that looks at everything at once."""

    def glance(self) -> Glance:
        """How full each queue is, how fast it goes, who works, and which jobs have been running longest."""
        with self.work(write=False):
            now = self.now()
            queues = self._read_queues()
            counts = {name: self._counted(name) for name in ("waiting", "parked")}
            counts["ready"] = Counter({row.name: self._ready(row.name) for row in queues})
            leases = self.rows("glance_leases", {"most": MOST_LEASES})
            leased = [job for lease in leases for job in self.unpack(lease["ids"])]
            held = self.rows("glance_running", {"ids": self.pack(leased[:MOST])}) if leased else []
            rates = self._rates(now)
        counts["running"] = Counter(row["queue"] for row in held)
        cut = {name for name in ("waiting", "parked") if counts[name].total() == MOST}
        if len(leases) == MOST_LEASES or len(leased) > MOST:
            cut.add("running")
        return Glance(
            time=now,
            queues=tuple(_load(row, counts, rates, cut) for row in queues),
            slowest=tuple(self._running_of(row) for row in held if row["situation"] == "held")[:SLOWEST],
            in_hand=Counter(row["worker"] for row in held if row["worker"] is not None),
        )

    def _counted(self, name: str) -> Counter[str]:
        return Counter({row["queue"]: row["count"] for row in self.rows(f"glance_{name}", {"most": MOST})})

    def _ready(self, queue: str) -> int:
        count: int = self.rows("glance_ready", {"queue": queue, "most": MOST})[0]["count"]
        return count

    def _rates(self, now: datetime) -> dict[str, float]:
        """Jobs of each queue that ended in a second, over the last few."""
        rows = self.rows("glance_ended", {"most": MOST_ENDS})
        since = now - timedelta(seconds=WINDOW)
        if len(rows) == MOST_ENDS:
            since = max(since, self._known(rows[-1]["end_time"]))
        counts = Counter[str]()
        for row in rows:
            if self._known(row["end_time"]) > since:
                counts[row["queue"]] += row["count"]
        seconds = max((now - since).total_seconds(), 0.001)
        return {queue: count / seconds for queue, count in counts.items()}

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
        )


def _load(
    row: QueueRow, counts: Mapping[str, Counter[str]], rates: Mapping[str, float], cut: Collection[str]
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
    )
