"""I5 and I6, told from rows at one moment: what the last claim of each queue was allowed, and when attempts began.

- I5. Whatever a queue's held and waiting jobs use now, they used when the last of them was claimed, since the others were
  held then already. So the limit of that moment must have had room for all of them; a limit that somebody lowered or raised
  later says nothing. The limits of a queue are told by the audit. What a moment cannot show, `tests.watching` does.
- I6. The row tells when its last attempt was wanted and when it began, the records tell when each earlier one did; the
  windows and the expiry of a job never change once it has begun.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.jobs import windows

Row = Mapping[str, Any]
NO_LIMIT = float("inf")
ROUNDING = 1e-9
A_TURN = 1.0  # seconds: a claim says when it began, and may have waited for whoever changed the limit


def check_limits(
    queues: Iterable[Row], jobs: Iterable[Row], leases: Iterable[Row], audits: Iterable[Row], set_back: float = 0.0
) -> None:
    """I5. Raises AssertionError naming the queue. `set_back`: seconds by which a clock may have gone back meanwhile."""
    used: dict[str, list[Row]] = {}
    for job in jobs:
        if job["situation"] in ("held", "waiting") and job["throttle_factor"]:
            used.setdefault(job["queue"], []).append(job)
    throttled = {job_id for lease in leases if lease["factor"] is not None for job_id in ids_of(lease)}
    changes = [row for row in audits if row["action"] == "limit"]
    for queue in queues:
        found = used.get(queue["name"], [])
        claimed = [job["start_time"] for job in found if job["id"] in throttled]
        if claimed:
            mine = [row for row in changes if row["queue"] == queue["name"]]
            total = sum(job["throttle_factor"] for job in found)
            last, doubt = max(claimed), max(A_TURN, set_back)
            allowed = highest_limit(queue, mine, later(last, -set_back), later(last, doubt))
            assert total <= allowed * (1 + ROUNDING), (
                f"I5: queue {queue['name']} uses {total:g} of {allowed:g} since its last claim: {[job['id'] for job in found]}"
            )


def later(moment: Any, seconds: float) -> Any:
    return moment + timedelta(seconds=seconds) if isinstance(moment, datetime) else moment + seconds * 1_000_000


def ids_of(lease: Row) -> list[int]:
    found: list[int] = lease["ids"] if isinstance(lease["ids"], list) else json.loads(lease["ids"])
    return found


def highest_limit(queue: Row, changes: Iterable[Row], since: Any, until: Any) -> float:
    """The highest limit that was in force at any moment from the one to the other."""
    declared = queue["declared_limit"]
    limit, limits = declared, []
    for change in sorted(changes, key=lambda row: row["id"]):
        if change["time"] > until:
            break
        if change["time"] >= since:
            limits.append(limit)
        limit = declared if change["detail"] == "declared" else float(change["detail"])
    return max(NO_LIMIT if each < 1 else each for each in [*limits, limit])


def check_starts(jobs: Iterable[Row], attempts: Iterable[Row]) -> None:
    """I6. Raises AssertionError naming the job."""
    earlier: dict[int, list[Row]] = {}
    for record in attempts:
        if record["start_time"] is not None:
            earlier.setdefault(record["job"], []).append(record)
    for job in jobs:
        title = f"I6: job {job['id']}"
        begun = job["start_time"] is not None and (
            job["situation"] in ("held", "waiting") or job["outcome"] == "success"
        )
        if begun:
            assert job["start_time"] >= job["scheduled_run_time"], (
                f"{title} began at {job['start_time']}, before its time {job['scheduled_run_time']}"
            )
        starts = [record["start_time"] for record in earlier.get(job["id"], [])]
        for start in {*starts, job["start_time"]} if begun else set(starts):
            _check_start(title, job, start)


def _check_start(title: str, job: Row, start: Any) -> None:
    expires = job["expires_time"]
    assert expires is None or start < expires, f"{title} began at {start}, after it had expired at {expires}"
    written = (
        json.loads(job["time_windows"] or "[]") if isinstance(job["time_windows"], str | None) else job["time_windows"]
    )
    if written:
        moment = start if isinstance(start, datetime) else datetime.fromtimestamp(start / 1_000_000, UTC)
        assert windows.is_open(windows.parse_all(written), moment), f"{title} began at {moment}, outside {written}"
