"""Lists of jobs in pages, newest first, each bounded however many jobs there are.

- What stands beside the rows serves: leases for `running`, `ready` and its like for `initial` and `error`, `dead`, and the
  index of keys. Their ids are few, or else the jobs that fit are many.
- Everything else walks from the newest job on and looks at no more than `BUDGET` jobs for a page.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from holdfast.jobs.job import Job, State
from holdfast.stores.contract import AttemptRecord, AuditRow, Filter, Page, RecentEnd
from holdfast.stores.declared import ARCHIVE, LIVING
from holdfast.stores.explaining import LAST_ENDS, Explaining
from holdfast.stores.reader import error_of
from holdfast.stores.statements import RowDict

BUDGET = 10_000  # jobs looked at for a page
MOST_IDS = 2000  # that are looked up one by one
LAST = 2**63 - 1
MOST_ENDED = 1000  # jobs that tell about the durations of their types
TIMES = ("create_time", "scheduled_run_time", "end_time")
PLAIN = ("situation", "worker", "run", "retry_of", "priority", "attempt", "failures", "error")


class Listing(Explaining):
    """Adds the verbs that list."""

    def page(self, wanted: Filter) -> Page:
        with self.work(write=False):
            params = self._page_params(wanted)
            if params is None:
                return Page((), None, True)
            parts = [self._living_part(wanted.queue, params)] if wanted.live else []
            if wanted.archive and params["state"] in (None, State.FINAL):
                parts.append(self._walk(ARCHIVE, params))
            return _joined(parts, wanted.limit)

    def last_records(self) -> tuple[int, int]:
        """The numbers of the last audit row and of the last record of an attempt."""
        with self.lone():
            row = self.rows("last_records")[0]
        return row["audit"], row["attempt"]

    def records(self, audit: int, attempt: int, limit: int) -> tuple[Sequence[AuditRow], Sequence[AttemptRecord]]:
        """What came behind these numbers, in their order."""
        with self.work(write=False):
            audits = self.rows("audits_after", {"after": audit, "limit": limit})
            attempts = self.rows("attempts_after", {"after": attempt, "limit": limit})
        return [self._audit_of(row) for row in audits], [self._record_of(row) for row in attempts]

    def _audit_of(self, row: RowDict) -> AuditRow:
        return AuditRow(**{**row, "time": self._known(row["time"])})

    def _record_of(self, row: RowDict) -> AttemptRecord:
        values = {name: row[name] for name in ("id", "job", "attempt", "outcome", "state")}
        error = error_of(row["error"])
        return AttemptRecord(**values, time=self._known(row["end_time"]), error=error)

    def recent_ends(self) -> Sequence[RecentEnd]:
        """Some hundred jobs that ended lately."""
        with self.lone():
            rows = self.rows("recent_ends", {"transactions": LAST_ENDS, "limit": MOST_ENDED})
        return [RecentEnd(**row) for row in rows]

    def size(self) -> int:
        """Bytes that the database takes."""
        with self.lone():
            found: int = self.rows("size")[0]["bytes"]
        return found

    def _page_params(self, wanted: Filter) -> dict[str, Any] | None:
        """None if nothing can fit. One more is looked for than is wanted, to see whether there is more."""
        params = self._filter(structs.replace(wanted, limit=wanted.limit + 1))
        clash = params["outcome"] not in (None, wanted.outcome) or (params["dead"] and wanted.outcome == "success")
        if not params["limit"] or (wanted.outcome is not None and clash):
            return None
        params |= {name: getattr(wanted, name) for name in PLAIN}
        params["outcome"] = wanted.outcome or params["outcome"]
        params["before"] = LAST if wanted.before is None else wanted.before
        for name in TIMES:
            for end in ("since", "until"):
                params[f"{name}_{end}"] = self.time(getattr(wanted, f"{name}_{end}"))
        return params

    def _living_part(self, queue: str | None, params: dict[str, Any]) -> "Part":
        ids = self._served(params)
        if ids is not None:
            rows = self.rows("page_of", {**params, "ids": self.pack(sorted(ids))})
            return [self.job_of(row) for row in rows], None
        if queue is None:
            return self._walk(LIVING, params)
        known = queue in {row.name for row in self._read_queues()}
        return self._walk(queue, params) if known else ([], None)

    def _served(self, params: dict[str, Any]) -> list[int] | None:
        """The ids of all jobs that can fit, where they are few; None where a walk is better."""
        found: list[int] = []
        places = _places(params)
        for place in places:
            few = self._few(place, params)
            if few is None:
                return None
            found += few
        return found if places else None

    def _few(self, name: str, params: dict[str, Any]) -> list[int] | None:
        keys = {each: params[each] for each in ("job_type", "job_key")} if name == "ids_of_key" else {}
        found = [row["id"] for row in self.rows(name, {**keys, "most": MOST_IDS})]
        return None if len(found) == MOST_IDS else found

    def _walk(self, table: str, params: dict[str, Any]) -> "Part":
        """Jobs that fit, and the last one looked at where there may be more behind it."""
        rows = self.rows("page", {**params, "budget": BUDGET}, table)
        found = [self.job_of(row) for row in rows]
        if len(found) >= params["limit"]:
            return found, None
        walked = self.rows("walked", {"before": params["before"], "budget": BUDGET}, table)[0]
        return found, walked["last"] if walked["count"] == BUDGET else None


Part = tuple[list[Job], int | None]


def _places(params: dict[str, Any]) -> tuple[str, ...]:
    """Which statements name every job that can fit; none if that is not known."""
    if params["job_type"] is not None and params["job_key"] is not None:
        return ("ids_of_key",)
    if params["state"] == State.RUNNING:
        held, loose = ("ids_running",), ("ids_unbegun",)
        return {None: held + loose, "loose": loose}.get(params["situation"], held)
    if params["state"] in (State.INITIAL, State.ERROR):
        return ("ids_unbegun",)
    dead = params["dead"] or params["outcome"] not in (None, "success")
    return ("ids_dead",) if dead else ()


def _joined(parts: list[Part], limit: int) -> Page:
    """One page of several sources: none may be ahead of where another stopped looking."""
    floor = max((last for _, last in parts if last is not None), default=None)
    found = sorted((job for jobs, _ in parts for job in jobs), key=lambda job: -job.id)
    if floor is not None:
        found = [job for job in found if job.id >= floor]
    if len(found) > limit:
        return Page(found[:limit], found[limit - 1].id, True)
    return Page(found, floor, floor is None)
