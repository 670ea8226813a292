"""Queues and job types: what the code declares, and what an operator set."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from holdfast.clock import Clock
from holdfast.errors import Conflict, NotFound, quoted
from holdfast.jobs.secrets import joined
from holdfast.jobs.states import (
    STATUS,
)
from holdfast.stores.contract import (
    News,
    QueueDeclared,
    QueueRow,
    TypeRow,
)
from holdfast.stores.reader import RowReader, outcome_of, state_of
from holdfast.stores.statements import RowDict, Statements, encode_json

LIVING, ARCHIVE = "*job", "*archive"  # in a queue's place; no queue has such a name


class Declared(Statements):
    """Adds the verbs about queues and types."""

    def __init__(self, instance: str, clock: Clock) -> None:
        super().__init__(instance, clock)
        self._queues: dict[str, QueueRow] = {}

    def register(self, queues: Sequence[QueueDeclared], types: Sequence[TypeRow]) -> None:
        """Store what the code declares, if it differs from what is stored."""
        with self.work(write=False):
            stored = {row.name: row for row in self._read_queues()}
            known = self._read_types()
        new_queues = [queue for queue in queues if _declared(stored.get(queue.name)) != queue]
        new_types = [declared for declared in types if known.get(declared.job_type) != _kept_secret(declared, known)]
        if not (new_queues or new_types):
            return
        with self.work():
            now = self.now()
            stored = {row.name: row for row in self._read_queues()}
            for queue in new_queues:
                self._register_queue(queue, stored.get(queue.name), now)
            known = self._read_types()
            for declared in new_types:
                self.run("put_type", self._type_params(_kept_secret(declared, known), now))
            self.tell(News.QUEUES)
            self._read_queues()
            self._read_types()

    def _register_queue(self, queue: QueueDeclared, stored: QueueRow | None, now: datetime) -> None:
        if stored is None:
            self.create_queue(queue, now)
            return
        if stored.table_name != queue.table_name:
            raise Conflict(
                f"Queue `{queue.name}` of instance `{self.instance}` has its jobs in table `{stored.table_name}`, but the "
                f"table_naming_strategy now says `{queue.table_name}`. Give the old strategy back, or use another instance name."
            )
        if _declared(stored) == queue:
            return
        params = {"claim_order": queue.claim_order, "declared_limit": queue.throttle_limit, "name": queue.name}
        self.run("change_queue", {**params, "throttler": queue.throttler})
        self._read_queues()
        if (stored.claim_order, stored.throttler) != (queue.claim_order, queue.throttler):
            self._take_back(queue.name)
            self.run("forget_pools", {"queue": queue.name})
        if stored.claim_order != queue.claim_order:
            self.run("reorder_ready", {"queue": queue.name})
        self._open(queue.name)

    def _open(self, queue: str) -> None:
        """Without limit and throttler nobody looks at what stands aside."""
        if not self.queue_row(queue).throttled:
            self._take_back(queue)

    def _take_back(self, queue: str) -> None:
        self.run("take_back", {"queue": queue})
        self.run("drop_taken_back", {"queue": queue})

    @abstractmethod
    def create_queue(self, queue: QueueDeclared, now: datetime) -> None: ...

    def own_table(self, queue: QueueDeclared) -> None:
        """Its name is the queue's from now on; refused if it is another's (Q1)."""
        for row in self.rows("table_owner", {"table_name": queue.table_name}):
            raise Conflict(
                f"Table `{queue.table_name}` for queue `{queue.name}` of instance `{self.instance}` belongs to queue `{row['queue']}` of "
                f"instance `{row['instance']}`. Use another queue name, instance name or table_naming_strategy."
            )
        if self.rows("foreign_table", {"table_name": queue.table_name})[0]["found"]:
            raise Conflict(
                f"Table `{queue.table_name}` for queue `{queue.name}` of instance `{self.instance}` exists already and is not Holdfast's. "
                "Use another queue name, instance name or table_naming_strategy."
            )
        self.run("own_table", {"table_name": queue.table_name, "instance": self.instance, "queue": queue.name})

    def add_queue(self, queue: QueueDeclared, now: datetime) -> None:
        """Its table is there, and empty."""
        params: dict[str, Any] = {"name": queue.name, "table_name": queue.table_name, "throttler": queue.throttler}
        params |= {"claim_order": queue.claim_order, "declared_limit": queue.throttle_limit}
        self.run("add_queue", {**params, "now": self.time(now)})

    def queues(self) -> Sequence[QueueRow]:
        with self.lone():
            return self._read_queues()

    def _read_queues(self) -> list[QueueRow]:
        return self._learn_queues(self.rows("queues"))

    def _learn_queues(self, rows: Sequence[RowDict]) -> list[QueueRow]:
        found = [QueueRow(**{**row, "paused": bool(row["paused"])}) for row in rows]
        self._queues = {row.name: row for row in found}
        return found

    def queue_row(self, name: str) -> QueueRow:
        """The queue by name, read once and again when it is not known."""
        row = self._queues.get(name)
        if row is None:
            self.queues()
            row = self._queues.get(name)
        if row is None:
            raise NotFound(
                f"There is no queue `{name}` in instance `{self.instance}`. Declare it with app.queue({quoted(name)})."
            )
        return row

    def table_named(self, name: str) -> str:
        """The table that `{queue_table}` stands for: a queue's, or `LIVING`, or `ARCHIVE`."""
        return f"{self.instance}__{name[1:]}" if name in (LIVING, ARCHIVE) else self.queue_row(name).table_name

    def types(self) -> Mapping[str, TypeRow]:
        with self.work(write=False):
            return self._read_types()

    def _read_types(self) -> dict[str, TypeRow]:
        return {row["job_type"]: self._type_of(row) for row in self.rows("types")}

    def _types_named(self, names: Iterable[str]) -> dict[str, TypeRow]:
        """Only these: an instance may have hundreds, and a change of one job needs one."""
        return self._learn_types(self.rows("types_named", {"names": self.words(sorted(names))}))

    def _learn_types(self, rows: Sequence[RowDict]) -> dict[str, TypeRow]:
        return {row["job_type"]: self._type_of(row) for row in rows}

    def _type_of(self, row: RowDict) -> TypeRow:
        read = RowReader(row)
        values = {name: row[name] for name in TYPE_COLUMNS}
        for name in ("default_time_windows", "labels", "prefers", "secrets"):
            values[name] = read.texts(name)
        values["damaged"] = tuple(read.damaged)
        for name in FLAGS:
            values[name] = bool(values[name])
        return TypeRow(**values)

    def _type_params(self, row: TypeRow, now: datetime) -> dict[str, Any]:
        params = {name: getattr(row, name) for name in TYPE_COLUMNS}
        params["default_time_windows"] = encode_json(row.default_time_windows).decode()
        for name in ("labels", "prefers", "secrets"):
            params[name] = encode_json(params[name]).decode()
        return {**params, "now": self.time(now)}

    def add_type(self, job_type: str, queue: str) -> TypeRow:
        """A type met by name: registered under this queue unless it is registered already."""
        with self.work():
            self.queue_row(queue)
            self.run("add_type", {"job_type": job_type, "queue": queue, "now": self.time(self.now())})
            return self._read_types()[job_type]

    def pause(self, queue: str, paused: bool, actor: str) -> None:
        with self.work():
            self.queue_row(queue)
            self.run("pause_queue", {"name": queue, "paused": paused})
            self._audit(actor, "pause" if paused else "resume", queue=queue)
            self._read_queues()
            self.tell(News.QUEUES)

    def limit(self, queue: str, limit: float | None, actor: str) -> None:
        with self.work():
            self.queue_row(queue)
            self.run("limit_queue", {"name": queue, "set_limit": limit})
            self._audit(actor, "limit", queue=queue, detail="declared" if limit is None else f"{limit:g}")
            self._read_queues()
            self._open(queue)
            self.tell(News.QUEUES)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """For each queue: how many jobs in each status."""
        with self.work(write=False):
            found: dict[str, dict[str, int]] = {row.name: {} for row in self._read_queues()}
            for row in self.rows("counts"):
                read = RowReader(row)
                status = STATUS.get((state_of(read), outcome_of(read)), "dead")
                found[row["queue"]][status] = found[row["queue"]].get(status, 0) + row["count"]
            return found

    def _audit(
        self,
        actor: str,
        action: str,
        *,
        job: int | None = None,
        attempt: int | None = None,
        queue: str = "",
        detail: str = "",
    ) -> None:
        params = {"actor": actor, "action": action, "job": job, "attempt": attempt, "queue": queue or None}
        self.run("add_audit", {**params, "detail": detail or None, "now": self.time(self.now())})


TYPE_COLUMNS = tuple(name for name in TypeRow.__struct_fields__ if name != "damaged")
FLAGS = ("timeout_named", "retries_named", "has_handler", "has_retry_handler", "has_response_handler")


def _kept_secret(declared: TypeRow, known: Mapping[str, TypeRow]) -> TypeRow:
    """As it is stored: jobs may have arguments that older code declared secret, so their names stay."""
    stored = known.get(declared.job_type)
    return declared if stored is None else structs.replace(declared, secrets=joined(stored.secrets, declared.secrets))


def _declared(row: QueueRow | None) -> QueueDeclared | None:
    """The part of a stored queue that the code declares."""
    if row is None:
        return None
    return QueueDeclared(row.name, row.table_name, row.claim_order, row.declared_limit, row.throttler)
