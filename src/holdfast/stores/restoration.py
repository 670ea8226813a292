"""An instance whose database was restored from a backup: the parts of it that must not go on as they were then.

- Ids that the lost time gave out may stand in other systems, as idempotency keys. New jobs get ids after them. New builds and
  runs leave out as many ids: links to them stand in forges and messages.
- The folder of builds names its instance by a word that a backup from before the first build lacks. It is taken from there.
- Workers of the backup are gone. Their jobs are loose again.
- Browser sessions and login links of the backup may have been revoked since. All of them end.
- Tokens of programs stay: only a person knows which were revoked after the backup.
"""

from collections.abc import Callable

from holdfast.errors import Invalid
from holdfast.jobs.numbers import LARGEST_ID
from holdfast.stores.contract import Restored
from holdfast.stores.statements import Statements

NUMBERED = ("build", "run")  # tables with ids of their own that people see
GAP = 1_000_000  # ids to leave out if the caller does not know which were given out


class Restoration:
    """Makes a restored instance safe to start."""

    def __init__(self, store: Statements, lose: Callable[[int], int | None], audit: Callable[..., None]) -> None:
        self._store = store
        self._lose = lose
        self._audit = audit

    def begin_anew(self, ids_after: int | None, in_folder: int, owner: str | None, actor: str) -> Restored:
        """Skip ids, end sessions and mark every worker as lost. Each call may be repeated."""
        with self._store.work(write=False):
            workers: list[int] = [row["id"] for row in self._store.rows("workers")]
        with self._store.work():
            last: int = self._store.rows("job_sequence")[0]["last"]
            after = max(last + GAP if ids_after is None else ids_after, last, in_folder)
            if after >= LARGEST_ID:
                raise Invalid(f"No ids of jobs are left after {after}. Give --ids-after a smaller number.")
            if after > last:
                self._store.run("set_job_sequence", {"last": after})
                self._skip_others(after - last)
            self._take_identity(owner)
            sessions = len(self._store.rows("revoke_sessions"))
            self._audit(actor, "restore", detail=f"ids of new jobs begin after {after}")
        jobs = sum(self._lose(worker) or 0 for worker in workers)
        return Restored(after, len(workers), jobs, sessions)

    def _skip_others(self, count: int) -> None:
        """Each build and each run of the lost time had a job."""
        for name in NUMBERED:
            table = f"{self._store.instance}__{name}"
            self._store.rows("set_id_sequence", {"table_name": table, "last": 0})  # so that there is one
            self._store.rows("skip_ids", {"table_name": table, "count": count})

    def _take_identity(self, owner: str | None) -> None:
        instance, _, token = (owner or "").partition(" ")
        if token and instance == self._store.instance:
            self._store.run("add_identity", {"token": token})  # nothing if it has one
