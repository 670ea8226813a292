"""How runs leave: into the archive with their jobs, by being deleted, and out of the archive (F18).

- A run moves whole, with its steps, in one transaction. Its jobs follow it in lots, never before it: until the last has
  come a row in `leaving` says that there are more, and whoever archives next goes on.
- Of a run that is deleted the same row is left, and no run: its jobs go from the archive as well.
- Jobs in the archive stay as long as their run, so that none is ever there without its tasks.
- Only a `SUCCESS` goes by itself; others wait for a person.
- What is left for ever is the trigger (F14).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.errors import Conflict
from holdfast.stores.archiving import LOT, Archiving
from holdfast.stores.contract import RunPage, RunRow
from holdfast.stores.reader import texts_of
from holdfast.stores.statements import RowDict, encode_json

RUNS = 100  # moved, or followed by their jobs, in one transaction
FORGOTTEN = 1000  # let go of in one


class RunArchive(Archiving):
    """Adds the verbs about runs that leave."""

    # Leaving

    def archive_run(self, run: int, actor: str) -> RunRow:
        """Move a run that is done to the archive now, with its jobs."""
        with self.work():
            row = self._done_run(run, "archived")
            self._audit(actor, "archive", detail=row.title)
            self._move_run(row)
        while self.follow_runs():
            pass
        return self.run_by_id(run)

    def delete_run(self, run: int, actor: str) -> None:
        """Forget a run that is done, also an archived one, with its jobs; its trigger stays used (F14)."""
        with self.work():
            row = self._run_by_id(run)
            if row.archived:
                self.run("drop_archived_run", {"id": run})
            else:
                row = self._done_run(run, "deleted")
            self._leave(row)
            self._audit(actor, "delete", detail=row.title)
        while self.follow_runs():
            pass

    def _done_run(self, run: int, what: str) -> RunRow:
        """Locked; `Conflict` for one that is not done."""
        head, row = self.locked_head(run), self._run_by_id(run)
        if not head.over:
            raise Conflict(f"{row.title} is `{row.state}`; only one that is done can be {what}. Abort it first.")
        self.refuse_living(row, what)
        return row

    def archive_runs(self, older_than: float, limit: int = RUNS) -> int:
        """Move runs that ended in `SUCCESS` so many seconds ago; how many, 0 when none is left.

        Whoever made the items of a step may end after the run.
        """
        with self.work():
            before = self.time(self.now() - timedelta(seconds=older_than))
            found = [self._run_by_id(row["id"]) for row in self.rows("old_runs", {"before": before, "limit": limit})]
            leaving = [row for row in found if not self.has_living(row)]
            for row in leaving:
                self._move_run(row)
            return len(leaving)

    def _move_run(self, row: RunRow) -> None:
        params = {"id": row.id, "now": self.time(self.now())}
        self.run("to_run_archive", params)
        self.run("to_step_archive", params)
        self._leave(row)

    def _leave(self, row: RunRow) -> None:
        types = encode_json([f"{row.workflow}.{step.name}" for step in row.definition.steps]).decode()
        self.run("add_leaving", {"run": row.id, "trigger": row.trigger, "types": types})
        self.run("drop_run", {"id": row.id})

    # Jobs follow

    def archive(self, older_than: float, limit: int = LOT) -> int:
        """First the jobs of runs that have left."""
        return self.follow_runs(limit) or super().archive(older_than, limit)

    def follow_runs(self, limit: int = LOT) -> int:
        """Move jobs of runs that left the live tables, let go of those of deleted ones; how many, 0 when none is left."""
        moved = 0
        with self.work():
            while not moved:
                left = self.rows("leaving", {"limit": RUNS})
                for run in left:
                    moved += self._follow(run, limit - moved)
                    if moved >= limit:
                        break
                if not left:
                    break
        return moved

    def _follow(self, run: RowDict, limit: int) -> int:
        followed = self._to_archive(run, limit)
        if followed < limit and not self.rows("is_archived", {"run": run["run"]}):
            followed += self._from_archive(run["run"], limit - followed)
        if followed < limit:
            self.run("drop_leaving", {"run": run["run"]})
        return followed

    def _to_archive(self, run: RowDict, limit: int) -> int:
        words = {
            "types": self.words(texts_of(run["types"])),
            "low": f"{run['trigger']}:",
            "high": f"{run['trigger']};",
        }
        jobs = self.rows("jobs_of_run", {**words, "run": run["run"], "limit": limit})
        by_queue: dict[str, list[int]] = {}
        for job in jobs:
            by_queue.setdefault(job["queue"], []).append(job["id"])
            self.make_room_in_archive(self._known(job["end_time"]))
        for queue, ids in by_queue.items():
            params = {"ids": self.pack(ids)}
            self.run("follow_to_archive", {**params, "now": self.time(self.now())}, queue)
            self.run("drop_followed", params, queue)
        dead = [{"end_time": job["end_time"], "id": job["id"]} for job in jobs if job["outcome"] != "success"]
        if dead:
            self.run_many("drop_dead_job", dead)
        return len(jobs)

    def _from_archive(self, run: int, limit: int) -> int:
        ids = [row["id"] for row in self.rows("archived_jobs_of_run", {"run": run, "limit": limit})]
        if ids:
            self.drop_beside(ids)
            self.run("drop_jobs_of_run", {"run": run, "ids": self.pack(ids)})
        return len(ids)

    # Reading and letting go

    def archived_runs(self, wanted: RunPage) -> Sequence[RunRow]:
        """A page of the archived runs, oldest id first; the next one begins after its last id."""
        params = {"workflow": wanted.workflow, "after": wanted.after, "limit": wanted.limit}
        params |= {"since": self.time(wanted.since), "until": self.time(wanted.until)}
        with self.work(write=False):
            return [self._run_row(row) for row in self.rows("archived_run_page", params)]

    def forget_runs(self, older_than: float, limit: int = FORGOTTEN) -> int:
        """Let go of archived runs that ended so many seconds ago, for ever; how many, 0 when none is left.

        Their jobs go with the next `forget`."""
        with self.work():
            before = self.oldest_kept(self.now() - timedelta(seconds=older_than))
            return self.run("drop_old_runs", {"before": self.time(before), "limit": limit})

    def oldest_kept(self, before: datetime) -> datetime:
        """Where the archive's jobs go by whole parts: the beginning of the first part that stays."""
        return before
