"""The store that both databases are: every verb that they speak in the same words.

The verbs are written in a chain of classes, a file for each kind, each knowing only those before it: `statements`,
`declared`, `reading`, `changing`, `adding`, `sweeping`, and here what workers ask. A database adds its connection, its
form of times and lists, and the two verbs that every job passes (`insert`, `exchange`), each written for its own speed.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from holdfast.jobs import throttle
from holdfast.stores.contract import (
    Claimed,
    Pulse,
    Turn,
    Want,
    WorkerJoin,
    WorkerRow,
)
from holdfast.stores.statements import (
    BATCH,
    RowDict,
    decode_words,
    encode_json,
)
from holdfast.stores.sweeping import Sweeping


class SqlStore(Sweeping):
    """One connection to one instance; see `contract.Store` for the promises."""

    def claim_limited(self, turn: Turn, want: Want) -> list[Claimed]:
        """Claim what fits under the limit, with the queue to ourselves (W3). Nothing is claimed ahead."""
        params = {"queue": want.queue}
        queue = self.rows("lock_queue", params)[0]
        limit, room = queue["throttle_limit"], min(want.room, want.free)
        if queue["paused"] or room <= 0:
            return []
        living = self.rows("live_types")
        if all(row["id"] != turn.worker for row in living):
            return []  # called lost: others have its jobs, and it must not take more under this name
        types = {name for row in living for name in decode_words(row["types"])}
        most = limit * (1 + throttle.TOLERANCE) if limit >= 1 else math.inf
        looked = {**params, "types": self.words(sorted(types)), "most": most, "limit": room + 1}
        found = self.rows("candidates", {**looked, "now": self.time(self.now())})
        used = self.rows("used", params, want.queue)[0]["used"]
        candidates = [throttle.Candidate(row["id"], row["throttle_factor"]) for row in found]
        admitted = set(throttle.admit(limit, used, candidates).admitted)
        chosen = [row for row in found if row["id"] in admitted and row["job_type"] in turn.types][:room]
        if len(admitted) > len(chosen):
            self.announce([want.queue])  # there is room under the limit that others may fill
        return self.claim_these(turn, want.queue, chosen) if chosen else []

    @abstractmethod
    def claim_these(self, turn: Turn, queue: str, chosen: Sequence[RowDict]) -> list[Claimed]:
        """Let chosen jobs enter running, each under a lease of its own that carries its factor."""

    def join(self, worker: WorkerJoin) -> int:
        """A new identity, never used before."""
        params: dict[str, Any] = {name: getattr(worker, name) for name in WorkerJoin.__struct_fields__}
        for name in ("queues", "types", "labels"):
            params[name] = encode_json(params[name]).decode()
        with self.work():
            row = self.rows("join", {**params, "now": self.time(self.now())})[0]
            for job_type in worker.types:
                self._unpark(job_type)
            found: int = row["id"]
            return found

    def pulse(self) -> Pulse:
        """One question that saves a sweeper many."""
        with self.lone():
            row = self.rows("pulse", {"now": self.time(self.given_now())})[0]
        flags = {name: bool(row[name]) for name in ("shut", "aborts", "strays", "undecided")}
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
        values["stopping"] = bool(row["stopping"])
        return WorkerRow(**values)

    def aborts(self, worker: int) -> Sequence[tuple[int, int, str]]:
        """(job, attempt, actor) of what this worker is asked to end."""
        with self.lone():
            return [(row["job"], row["attempt"], row["actor"]) for row in self.rows("aborts_of", {"worker": worker})]

    def undecided(self, types: Sequence[str]) -> Sequence[int]:
        with self.lone():
            rows = self.rows("undecided", {"types": self.words(types), "limit": BATCH})
            return [row["id"] for row in rows]
