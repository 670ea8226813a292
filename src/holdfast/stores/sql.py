"""The store that both databases are: every verb that they speak in the same words.

The verbs are written in a chain of classes, a file for each kind, each knowing only those before it: `statements`,
`declared`, `reading`, `noting`, `breaking`, `changing`, `adding`, `holding`, `running`, `building`, `scheduling`, `archiving`,
`run_archive`, `looping`, `sweeping`, `glancing`, `claiming`, `explaining`, `listing`, `admitting`, and here what workers ask. A database adds
its connection, its form of times and lists, and the two verbs that every job passes (`insert`, `exchange`), each written for its own speed.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.stores.admitting import Admitting
from holdfast.stores.contract import (
    Pulse,
    WorkerJoin,
    WorkerRow,
)
from holdfast.stores.statements import (
    BATCH,
    RowDict,
    decode_words,
    encode_json,
)


class SqlStore(Admitting):
    """One connection to one instance; see `contract.Store` for the promises."""

    def join(self, worker: WorkerJoin) -> int:
        """A new identity, never used before."""
        params: dict[str, Any] = {name: getattr(worker, name) for name in WorkerJoin.__struct_fields__}
        for name in ("queues", "types", "labels"):
            params[name] = encode_json(params[name]).decode()
        with self.work():
            row = self.rows("join", {**params, "now": self.time(self.now())})[0]
            for job_type in sorted(set(worker.types) - self.tripped_types()):
                self._unpark(job_type)
            found: int = row["id"]
            return found

    def pulse(self) -> Pulse:
        """One question that saves a sweeper many."""
        with self.lone():
            row = self.rows("pulse", {"now": self.time(self.given_now())})[0]
        flags = {
            name: bool(row[name])
            for name in ("shut", "aborts", "strays", "undecided", "tripped", "aborting", "releasing")
        }
        return Pulse(row["overdue_in"], **flags)

    def beat(self, worker: int, stopping: bool = False) -> bool:
        """Move the counter; False tells a worker that it was called lost."""
        with self.lone_write():
            return bool(self.rows("beat", {"id": worker, "stopping": stopping, "now": self.time(self.given_now())}))

    def leave(self, worker: int) -> None:
        with self.work():
            self.run("leave", {"id": worker, "gone": "left", "now": self.time(self.now())})

    def workers(self) -> Sequence[WorkerRow]:
        with self.lone():
            return [self._worker_of(row) for row in self.rows("workers")]

    def _worker_of(self, row: RowDict) -> WorkerRow:
        values = {name: row[name] for name in WorkerRow.__struct_fields__}
        for name in ("queues", "types", "labels"):
            values[name] = decode_words(values[name])
        values["start_time"], values["beat_time"] = self.moment(row["start_time"]), self.moment(row["beat_time"])
        values["stopping"], values["every_queue"] = bool(row["stopping"]), bool(row["every_queue"])
        return WorkerRow(**values)

    def aborts(self, worker: int) -> Sequence[tuple[int, int, str]]:
        """(job, attempt, actor) of what this worker is asked to end."""
        with self.lone():
            return [(row["job"], row["attempt"], row["actor"]) for row in self.rows("aborts_of", {"worker": worker})]

    def undecided(self, types: Sequence[str]) -> Sequence[int]:
        with self.lone():
            rows = self.rows("undecided", {"types": self.words(types), "limit": BATCH})
            return [row["id"] for row in rows]
