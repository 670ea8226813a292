"""The archive: finished jobs move into it whole, are read out of it page by page, and are let go of after a while (E4).

- Only final rows move. A job's attempts, audit rows and log stand beside it by its id, and go when it goes.
- Long work is done in lots, a transaction each: nobody waits long for it, and it may stop after any of them.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.builds.build import QUEUE as BUILDS
from holdfast.clock import Clock
from holdfast.jobs.job import Attempt, Job
from holdfast.stores.contract import ArchivePage
from holdfast.stores.scheduling import Scheduling
from holdfast.stores.statements import BATCH

LOT = 10_000  # jobs moved or let go of in one transaction
BESIDE = ("drop_attempts", "drop_audits", "drop_log", "drop_traces")  # what belongs to a job and goes with it


class Archiving(Scheduling):
    """Adds the verbs about the archive."""

    def __init__(self, instance: str, clock: Clock) -> None:
        super().__init__(instance, clock)
        self._forgetting: dict[str, int] = {}  # of a part that is being let go of: the last id that is done

    def audit_archiving(self, actor: str, older_than: float, keep: float | None) -> None:
        """Write down that somebody is about to archive by hand, and to let go of what is `keep` seconds old."""
        with self.work():
            kept = "" if keep is None else f", kept for {keep:g} s"
            self._audit(actor, "archive", detail=f"what ended {older_than:g} s ago{kept}")

    def archive(self, older_than: float, limit: int = LOT) -> int:
        """Move jobs that ended `older_than` seconds ago out of the hot tables; how many, 0 when none is left (E4)."""
        while True:
            with self.work():
                now = self.now()
                moved, more = self._archive_lot(now, self.time(now - timedelta(seconds=older_than)), limit)
                self.run("forget_workers", {"before": self.time(now - timedelta(days=7))})
                self.run("forget_firings", {"before": self.time(now - timedelta(days=90))})
            # What was noted of an end that did not count, or of jobs whose run is live, moves nothing.
            if moved or not more:
                return moved

    def _archive_lot(self, now: datetime, before: Any, limit: int) -> tuple[int, bool]:
        """How many moved, and whether there may be more."""
        moved, ended = 0, self.rows("old_ended", {"before": before, "limit": BATCH})
        for row in ended:
            ids = self._with_their_builds(self.unpack(row["ids"])) if row["queue"] == BUILDS else row["ids"]
            params = {"ids": ids, "now": self.time(now), "before": before}
            self.make_room_in_archive(self._known(row["end_time"]))
            moved += self.run("to_archive", params, row["queue"])
            self.run("drop_dead", params, row["queue"])
            self.run("drop_archived", params, row["queue"])
            self.run("drop_ended", {"id": row["id"]})
            if moved >= limit:
                break
        return moved, bool(ended)

    def _with_their_builds(self, ids: Sequence[int]) -> Any:
        """The jobs of a build go together, when its current one goes (E4)."""
        lot = self.rows("jobs_with_builds", {"ids": self.pack(ids)}, BUILDS)
        for row in lot:
            self.make_room_in_archive(self._known(row["end_time"]))
        return self.pack([row["id"] for row in lot])

    @abstractmethod
    def make_room_in_archive(self, end_time: datetime) -> None:
        """For jobs that ended at this time, where the archive has parts."""

    def archived(self, wanted: ArchivePage) -> Sequence[Job]:
        """A page of the archive, oldest id first; the next one begins after its last id."""
        names = ("job_type", "queue", "after", "limit")
        params = {name: getattr(wanted, name) for name in names}
        params |= {"since": self.time(wanted.since), "until": self.time(wanted.until)}
        with self.work(write=False):
            return [self.job_of(row) for row in self.rows("archive_page", params)]

    def attempts_of(self, jobs: Sequence[Job]) -> Mapping[int, Sequence[Attempt]]:
        """The attempts of several jobs by id, as `attempts` tells them of one."""
        with self.work(write=False):
            records = self.rows("attempts_of", {"ids": self.pack([job.id for job in jobs])})
        kept: dict[int, list[Attempt]] = {job.id: [] for job in jobs}
        for row in records:
            kept[row["job"]].append(self._attempt_of(row))
        return {job.id: self.with_last(job, kept[job.id], job.worker) for job in jobs}

    def forget(self, older_than: float, limit: int = LOT) -> int:
        """Let go of archived jobs that ended `older_than` seconds ago, for ever; how many, 0 when none is left.

        Where the archive has a part for each month only whole months go.
        """
        try:
            with self.work():
                return self.let_go(self.now() - timedelta(seconds=older_than), limit)
        except BaseException:
            self._forgetting.clear()  # the last lot may not have been written
            raise

    @abstractmethod
    def let_go(self, before: datetime, limit: int) -> int:
        """One lot of `forget`."""

    def drop_beside(self, ids: Sequence[int]) -> None:
        """What is kept about these jobs beside their rows."""
        for name in BESIDE:
            self.run(name, {"ids": self.pack(ids)})
