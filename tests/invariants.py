"""What must hold over a store at any moment between two transactions, checked by plain SQL.

The numbers are those of the fault list: I1 no accepted job is lost; I2 at most one live attempt owns a job; I3 a final
row never changes; I4 at most one living job per type and key; I5 no claim lifts a queue above the limit then in force;
I6 nothing starts outside its window or before its time; I7 every job is final, running, or can be found by somebody and is
explained truly; I8 runs of workflows agree with their steps and tasks; I9 `attempt` is what the records of attempts say; I10
builds agree with their files. That a final row never changes and no second job takes a key is also refused by the tables.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.clock import Clock
from holdfast.stores.contract import Store
from holdfast.stores.open import open_store
from tests.build_invariants import check_builds
from tests.explain_invariants import check_explained
from tests.prepared import session_in
from tests.raw_sql import RawSql
from tests.run_invariants import check_runs
from tests.start_invariants import check_limits, check_starts, ids_of
from tests.watching import THERE, breaches

Row = dict[str, Any]
EXPLAINED = 4  # jobs at a time


def check_invariants(
    url: str,
    instance: str,
    accepted: Iterable[int] = (),
    final_before: Mapping[int, Row] | None = None,
    builds: Path | None = None,
    explains: int = EXPLAINED,
) -> None:
    """Raises AssertionError naming the invariant and the job.

    `final_before`: what `final_rows` gave earlier. `builds`: the folder of all builds. `explains`: how many jobs `explain` is asked about.
    """
    sql = RawSql(url, instance, session_in(url))
    try:
        invariants = Invariants(sql)
        invariants.check(accepted, final_before or {}, builds)
        if some := invariants.unowned()[:explains]:
            with closing(open_store(url, instance, Clock())) as store:
                invariants.explained(store, some)
        assert not (seen := breaches(sql)), "; ".join(seen[:5])
    finally:
        sql.close()


def check_after(url: str, instance: str, builds: Path | None = None) -> None:
    """The same after each of thousands of tests. On PostgreSQL to ask `explain` would be a connection and a dozen plans more: there the
    simulation does, and the faults do.
    """
    check_invariants(url, instance, builds=builds, explains=0 if url.startswith("postgresql") else EXPLAINED)


def final_rows(url: str, instance: str) -> dict[int, Row]:
    """Every final row, live or archived, as it is now."""
    sql = RawSql(url, instance)
    try:
        return Invariants(sql).finals
    finally:
        sql.close()


class Invariants:
    """One look at everything an instance holds, under one snapshot."""

    def __init__(self, sql: RawSql, set_back: float = 0.0) -> None:
        """`set_back`: seconds by which clocks may have gone back since the jobs that run were claimed."""
        self.sql, self.set_back = sql, set_back
        with sql.snapshot():
            if not sql(THERE[sql.postgres], table=f"{sql.instance}__queue"):
                self.jobs, self.archive, self.hints, self.keys, self.leases, self.attempts = {}, {}, {}, [], [], []
                self.runs, self.steps, self.holds, self.queues, self.audits, self.builds = [], [], [], [], [], []
                return
            self.jobs: dict[int, Row] = {row["id"]: row for row in sql("select * from {job}")}
            self.archive: dict[int, Row] = {row["id"]: row for row in sql("select * from {archive}")}
            self.queues = sql("select * from {queue}")
            self.orders = {row["name"]: row["claim_order"] for row in self.queues}
            self.hints = {
                name: sql(f"select * from {{{name}}}")
                for name in ("ready", "aside", "waiting", "parked", "undecided", "held")
            }
            self.keys = sql("select * from {key}")
            self.leases = sql("select * from {lease}")
            self.attempts = sql("select * from {attempt} order by job, attempt")
            self.runs = sql("select * from {run}")
            self.steps = sql("select * from {step} order by run, position")
            self.holds = sql("select * from {hold}")
            self.audits = sql("select * from {audit}")
            self.builds = sql("select * from {build}")

    def check(self, accepted: Iterable[int], final_before: Mapping[int, Row], builds: Path | None = None) -> None:
        for job_id in accepted:
            assert job_id in self.jobs or job_id in self.archive, f"I1: job {job_id} was accepted and is gone"
        assert not self.jobs.keys() & self.archive.keys(), "J3: a job is live and archived at once"
        self.owners()
        finals = self.finals
        for job_id, row in final_before.items():
            assert finals.get(job_id) == row, f"I3: final job {job_id} changed"
        self.living_keys()
        self.places()
        self.records()
        everything = {**self.jobs, **self.archive}
        check_limits(self.queues, self.jobs.values(), self.leases, self.audits, self.set_back)
        check_starts(everything.values(), self.attempts)
        check_runs(self.runs, self.steps, everything.values(), bool(self.holds))
        if builds is not None:
            check_builds(self.builds, everything, builds)

    @cached_property
    def finals(self) -> dict[int, Row]:
        """What has ended, by id."""
        found = {job_id: row for job_id, row in self.jobs.items() if row["state"] == "final"}
        for job_id, row in self.archive.items():
            found[job_id] = {name: value for name, value in row.items() if name != "archive_time"}
        return found

    def owners(self) -> None:
        leased: dict[int, set[int | None]] = {}
        for lease in self.leases:
            ownerless = lease["deadline_time"] is not None or lease["job"] is not None
            assert (lease["worker"] is None) == ownerless, f"I2: lease {lease} has no owner"
            for job_id in ids_of(lease):
                leased.setdefault(job_id, set()).add(lease["worker"])
        for job_id, row in self.jobs.items():
            if row["situation"] == "held":
                assert row["worker"] is not None, f"I2: job {job_id} is held by nobody"
                assert leased.get(job_id, set()) & {None, row["worker"]}, f"I2: held job {job_id} has no lease"
            if row["situation"] == "waiting":
                waits = [lease["deadline_time"] for lease in self.leases if lease["job"] == job_id]
                assert waits == [row["deadline_time"]], (
                    f"I2: job {job_id} waits until {row['deadline_time']}, leases {waits}"
                )
            if row["situation"] == "loose":
                assert row["worker"] is None, f"I2: loose job {job_id} still names worker {row['worker']}"

    def living_keys(self) -> None:
        living = [row for row in self.jobs.values() if row["state"] != "final" and row["job_key"] is not None]
        pairs = Counter((row["job_type"], row["job_key"]) for row in living)
        assert all(count == 1 for count in pairs.values()), f"I4: two living jobs share a key: {pairs.most_common(1)}"
        held = {(row["job_type"], row["job_key"], row["id"]) for row in self.keys}
        assert held == {(row["job_type"], row["job_key"], row["id"]) for row in living}, "I4: keys and rows disagree"

    def places(self) -> None:
        found: dict[int, list[str]] = {}
        for name, hints in self.hints.items():
            for hint in hints:
                row = self.jobs.get(hint["id"])
                if row is not None and self._agrees(name, hint, row):
                    found.setdefault(row["id"], []).append(name)
        for job_id, row in self.jobs.items():
            places = found.get(job_id, [])
            assert len(places) == is_free(row), (
                f"I7: job {job_id} ({row['state']}, {row['situation']}) is found in {places}"
            )

    def unowned(self) -> list[int]:
        """Jobs that are neither final nor running."""
        return [job_id for job_id, row in self.jobs.items() if is_free(row)]

    def explained(self, store: Store, job_ids: Iterable[int]) -> None:
        """What `explain` says of each of these is so."""
        queues = {row["name"]: row for row in self.queues}
        used: Counter[str] = Counter()
        for row in self.jobs.values():
            if row["situation"] in ("held", "waiting"):
                used[row["queue"]] += row["throttle_factor"]
        for job_id in job_ids:
            row = self.jobs[job_id]
            places = {name for name, hints in self.hints.items() if any(hint["id"] == job_id for hint in hints)}
            check_explained(store, row, places, queues[row["queue"]], used[row["queue"]])

    def _agrees(self, name: str, hint: Row, row: Row) -> bool:
        if name == "waiting":
            return bool(hint["wake_time"] == row["scheduled_run_time"])
        if name not in ("ready", "aside"):
            return bool(hint["job_type"] == row["job_type"])
        wanted = row["scheduled_run_time"].timestamp() if self.sql.postgres else float(row["scheduled_run_time"])
        order = (row["priority"], wanted) if self.orders[row["queue"]] == "priority" else (wanted, row["priority"])
        return (hint["major"], hint["minor"]) == order

    def records(self) -> None:
        kept: dict[int, list[int]] = {}
        for record in self.attempts:
            kept.setdefault(record["job"], []).append(record["attempt"])
        for job_id, row in {**self.jobs, **self.archive}.items():
            records = kept.get(job_id, [])
            assert records == list(range(1, len(records) + 1)), f"I9: job {job_id} has records of attempts {records}"
            plain = row["situation"] in ("held", "waiting") or row["outcome"] == "success"
            assert row["attempt"] == len(records) + plain, (
                f"I9: job {job_id} has attempt {row['attempt']}, records {records}"
            )


def is_free(row: Row) -> bool:
    """Neither final nor running."""
    return row["state"] != "final" and row["situation"] in (None, "loose")
