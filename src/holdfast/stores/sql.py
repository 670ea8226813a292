"""The store that both databases are: every verb that they speak in the same words.

The verbs are written in a chain of classes, a file for each kind, each knowing only those before it: `statements`,
`declared`, `reading`, `noting`, `breaking`, `writing`, `changing`, `adding`, `holding`, `runs`, `running`, `acting`, `building`, `scheduling`,
`archiving`, `run_archive`, `looping`, `sweeping`, `glancing`, `claiming`, `explaining`, `listing`, `admitting`, and here what workers ask.
A database adds its connection, its form of times and lists, and the two verbs that every job passes (`insert`, `exchange`), each written for
its own speed.
"""

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.errors import NotFound, quoted
from holdfast.jobs.numbers import LARGEST_ID
from holdfast.jobs.placement import DutyRule
from holdfast.stores.admitting import Admitting
from holdfast.stores.contract import (
    DamagedRow,
    Pulse,
    Restored,
    WorkerJoin,
    WorkerRow,
)
from holdfast.stores.inspection import damaged_rows
from holdfast.stores.migrate import is_leaving
from holdfast.stores.reader import texts_of
from holdfast.stores.restoration import Restoration
from holdfast.stores.statements import (
    BATCH,
    RowDict,
    encode_json,
)

WORK = ("run", "sweep", "schedule")  # the duties that change jobs unasked


class SqlStore(Admitting):
    """One connection to one instance; see `contract.Store` for the promises."""

    def begin_anew(self, ids_after: int | None, in_folder: int, owner: str | None, actor: str) -> Restored:
        """Make the instance safe to start after its database was restored from a backup."""
        return Restoration(self, self.lose, self._audit).begin_anew(ids_after, in_folder, owner, actor)

    def join(self, worker: WorkerJoin) -> int:
        """A new identity, never used before. Jobs that had nobody to run them stand in line again."""
        params: dict[str, Any] = {name: getattr(worker, name) for name in WorkerJoin.__struct_fields__}
        for name in ("queues", "types", "labels", "duties"):
            params[name] = encode_json(params[name]).decode()
        with self.work():
            found: int = self.rows("join", {**params, "now": self.time(self.now())})[0]["id"]
        self._bring_back(worker.types)
        return found

    def _bring_back(self, types: Collection[str]) -> None:
        """To the line, what a sweeper put aside because nobody handled its type.

        Apart from what makes the worker known: a sweeper that did not see it then has put aside already, and we find it.
        """
        with self.work():
            parked = {each["job_type"] for each in self.rows("parked_types")}
            for job_type in sorted(parked & set(types) - self.tripped_types()):
                self._unpark(job_type)

    def pulse(self) -> Pulse:
        """One question that saves a sweeper many."""
        with self.lone():
            row = self.rows("pulse", {"now": self.time(self.given_now())})[0]
        flags = {
            name: bool(row[name])
            for name in ("shut", "aborts", "strays", "undecided", "tripped", "aborting", "releasing")
        }
        return Pulse(row["overdue_in"], **flags)

    def damaged_rows(self, newest: int) -> Sequence[DamagedRow]:
        """Rows with columns that cannot be read, among the newest of tables that grow, and all of the others."""
        return list(damaged_rows(self, newest))

    def ready(self) -> None:
        """`Unavailable` if the database does not answer, or is known to take no writes."""
        self.pulse()

    def beat(self, worker: int, stopping: bool = False) -> bool:
        """Move the counter; False tells a worker that it was called lost."""
        with self.lone_write():
            return bool(self.rows("beat", {"id": worker, "stopping": stopping, "now": self.time(self.given_now())}))

    def leave(self, worker: int) -> None:
        with self.work():
            self.run("leave", {"id": worker, "gone": "left", "beat": None, "now": self.time(self.now())})

    def workers(self) -> Sequence[WorkerRow]:
        with self.lone():
            return [self._worker_of(row) for row in self.rows("workers")]

    def _worker_of(self, row: RowDict) -> WorkerRow:
        values = {name: row[name] for name in WorkerRow.__struct_fields__}
        for name in ("queues", "types", "labels", "duties"):
            values[name] = texts_of(values[name])
        values["start_time"], values["beat_time"] = self.moment(row["start_time"]), self.moment(row["beat_time"])
        values["stopping"], values["every_queue"] = bool(row["stopping"]), bool(row["every_queue"])
        return WorkerRow(**values)

    def set_duties(self, worker: int, duties: Sequence[str]) -> None:
        """What a worker does from now on. Jobs that had nobody else to run them stand in line again."""
        with self.work():
            self.run("set_duties", {"id": worker, "duties": encode_json(tuple(duties)).decode()})
        if "run" in duties:
            self._bring_back([name for row in self.workers() if row.id == worker for name in row.types])

    def duty_rules(self) -> Sequence[DutyRule]:
        """The switches of duties, oldest first. In an instance that moves away workers have none."""
        with self.work(write=False):
            rules, leaving = [self._rule_of(row) for row in self.rows("duty_rules")], is_leaving(self.rows("moves"))
        return [*rules, *(DutyRule(duty, on=False, id=LARGEST_ID, actor="move") for duty in WORK if leaving)]

    def switch_duty(self, rule: DutyRule, actor: str) -> DutyRule:
        """A new switch, in place of one for the same duty and the same workers."""
        params = {name: getattr(rule, name) for name in ("duty", "on", "label", "host", "version")}
        with self.work():
            now = self.time(self.now())
            self.run("drop_same_duty_rule", {name: params[name] for name in ("duty", "label", "host", "version")})
            made = self._rule_of(self.rows("add_duty_rule", {**params, "actor": actor, "now": now})[0])
            self._audit(actor, "switch_duty", detail=f"{made.duty} {'on' if made.on else 'off'}: {made.whom}")
            return made

    def drop_duty_rule(self, rule: int, actor: str) -> None:
        with self.work():
            if not self.run("drop_duty_rule", {"id": rule}):
                raise NotFound(
                    f"There is no rule {quoted(rule)} about duties in instance `{self.instance}`. `holdfast workers duty list` shows those there are."
                )
            self._audit(actor, "drop_duty_rule", detail=str(rule))

    def _rule_of(self, row: RowDict) -> DutyRule:
        names = ("duty", "label", "host", "version", "id", "actor")
        return DutyRule(
            **{name: row[name] for name in names}, on=bool(row["on"]), create_time=self.moment(row["create_time"])
        )

    def aborts(self, worker: int) -> Sequence[tuple[int, int, str]]:
        """(job, attempt, actor) of what this worker is asked to end."""
        with self.lone():
            return [(row["job"], row["attempt"], row["actor"]) for row in self.rows("aborts_of", {"worker": worker})]

    def undecided(self, types: Sequence[str]) -> Sequence[int]:
        with self.lone():
            rows = self.rows("undecided", {"types": self.words(types), "limit": BATCH})
            return [row["id"] for row in rows]
