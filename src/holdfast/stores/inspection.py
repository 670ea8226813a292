"""Which rows of an instance are damaged: what `holdfast doctor` says about them.

- Every column is read as its reader reads it, so what is found here is what pages and commands show as damaged.
- Of tables that grow only the newest rows are looked at, page by page, so that it takes seconds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from holdfast.builds import context as contexts
from holdfast.builds.build import BuildStep, Line
from holdfast.jobs import payload as payloads
from holdfast.jobs import retry, routines, throttlers
from holdfast.jobs.job import AttemptEnd
from holdfast.stores.contract import DamagedRow
from holdfast.stores.declared import ARCHIVE
from holdfast.stores.explaining import Explaining
from holdfast.stores.reader import RowReader, decode_answer, decode_error, decode_words, load_table, load_windows
from holdfast.stores.scheduling import read_definition
from holdfast.stores.statements import RowDict
from holdfast.workflows import definition as definitions
from holdfast.workflows import partition as partitions
from holdfast.workflows.states import StepState, WorkflowState

PAGE = 200  # rows read at a time: each may be a megabyte
LAST = 2**63 - 1
Decoders = Mapping[str, Callable[[str], Any]]


class Table(Struct, frozen=True):
    """A table that is read newest first, and how its columns are read."""

    name: str
    statement: str
    decoders: Decoders


def stored_error(text: str) -> Any:
    return None if text == "NONE" else decode_error(text)


JOB: Decoders = {
    "time_windows": load_windows,
    "payload": load_table,
    "result": payloads.load,
    "error": stored_error,
    "answer": decode_answer,
    "checkpoint": payloads.load,
}
RUN: Decoders = {
    "definition": definitions.decode,
    "params": load_table,
    "step_params": load_table,
    "published": load_table,
    "ignore": decode_words,
    "state": WorkflowState,
}
STEP: Decoders = {"partition": partitions.decode, "state": StepState, "cursor": payloads.load}
PAGED = (
    Table("attempt", "inspect_attempts", {"error": decode_error, "outcome": AttemptEnd}),
    Table("run", "inspect_runs", RUN),
    Table("run_archive", "inspect_archived_runs", RUN),
    Table(
        "build",
        "inspect_builds",
        {
            "steps": msgspec.json.Decoder(tuple[BuildStep, ...]).decode,
            "lines": msgspec.json.Decoder(tuple[Line, ...]).decode,
            "context": contexts.decode,
            "condition_names": decode_words,
        },
    ),
)
LISTED = (
    Table("step", "inspect_steps", STEP),
    Table("step_archive", "inspect_archived_steps", STEP),
    Table("part", "inspect_parts", {"error": decode_error, "checkpoint": payloads.load}),
    Table("queue", "queues", {"throttler": throttlers.decode}),
    Table(
        "type",
        "types",
        {
            "retry": retry.decode,
            "schema": payloads.load,
            **dict.fromkeys(("default_time_windows", "labels", "prefers", "secrets"), decode_words),
        },
    ),
    Table("worker", "workers", dict.fromkeys(("queues", "types", "labels", "duties"), decode_words)),
    Table("schedule", "schedules", dict.fromkeys(("declared_definition", "set_definition"), read_definition)),
    Table("routine", "routines", {"definition": routines.decode}),
    Table("workflow", "workflows", {"definition": definitions.decode}),
)
KEYS = ("id", "name", "job_type", "run", "routine", "part")  # by which a row is named, as far as it has them


def damaged_rows(store: Explaining, newest: int) -> Iterator[DamagedRow]:
    """Of each table that grows the newest so many rows are looked at; of the others all."""
    with store.work(write=False):
        queues = [*store.queues()]
    for queue in queues:
        yield from _paged(store, Table(queue.table_name, "inspect_jobs", JOB), newest, queue.name)
    yield from _paged(store, Table(f"{store.instance}__archive", "inspect_jobs", JOB), newest, ARCHIVE)
    for table in PAGED:
        yield from _paged(store, _named(store, table), newest)
    for table in LISTED:
        with store.work(write=False):
            rows = store.rows(table.statement, {"limit": newest})
        yield from _damaged(_named(store, table), rows)


def _named(store: Explaining, table: Table) -> Table:
    return structs.replace(table, name=f"{store.instance}__{table.name}")


def _paged(store: Explaining, table: Table, newest: int, queue: str = "") -> Iterator[DamagedRow]:
    before = LAST
    for _ in range(0, newest, PAGE):
        with store.work(write=False):
            rows = store.rows(table.statement, {"before": before, "limit": PAGE}, queue)
        yield from _damaged(table, rows)
        if len(rows) < PAGE:
            return
        before = rows[-1]["id"]


def _damaged(table: Table, rows: Sequence[RowDict]) -> Iterator[DamagedRow]:
    for row in rows:
        read = RowReader(row)
        for column, decode in table.decoders.items():
            if row[column] is not None:
                read.read(column, decode, lambda _: None)
        if read.damaged:
            key = " ".join(str(row[name]) for name in KEYS if name in row)
            reasons = {column: found.reason for column, found in read.damaged.items()}
            yield DamagedRow(table.name, key, reasons, living=table.decoders is JOB and row["state"] != "final")
