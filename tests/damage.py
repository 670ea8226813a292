"""Rows that are damaged by hand, past everything that keeps them sound."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.raw_sql import RawSql

TEXTS = {
    "half an object": '{"to":',
    "no number": '{"to": NaN}',
    "nothing": "",
    "half a letter": '{"to": "\\ud800"}',
    "5,000 digits": '{"to": ' + "7" * 5000 + "}",
    "a word": "x",
    "another shape": '[[{"a": 1}], 5]',
    "five thousand levels": "[" * 5_000,
    "escape codes": "\x1b[" + "1" * 5000 + "m",
}
JOB = ("time_windows", "payload", "result", "error", "answer", "checkpoint")
RUN = ("params", "step_params", "published", "ignore", "state", "definition")
STEP = ("partition", "state", "cursor")
COLUMNS = {  # of each table what holds more than a word of its own; `*` is the table of each queue
    "*": JOB,
    "archive": JOB,
    "attempt": ("error", "outcome", "state"),
    "queue": ("throttler",),
    "type": ("default_time_windows", "retry", "schema", "labels", "prefers", "secrets"),
    "worker": ("queues", "types", "labels", "duties"),
    "schedule": ("declared_definition", "set_definition"),
    "routine": ("definition",),
    "part": ("error", "checkpoint"),
    "workflow": ("definition",),
    "step": STEP,
    "step_archive": STEP,
    "run": RUN,
    "run_archive": RUN,
    "publication": ("params",),
    "build": ("steps", "lines", "found", "context", "condition_names"),
    "trace": ("context",),
    "aside": ("lane",),
}


@contextmanager
def unguarded(sql: RawSql) -> Iterator[None]:
    """Without triggers and checks, as after a defect of a disk. On PostgreSQL the checks of a table stay."""
    if sql.postgres:
        sql("set session_replication_role = replica")
        yield
        sql("set session_replication_role = origin")
        return
    triggers = sql("select name, sql from sqlite_master where type = 'trigger'")
    for row in triggers:
        sql(f'drop trigger "{row["name"]}"')
    sql("pragma ignore_check_constraints = on")
    yield
    sql("pragma ignore_check_constraints = off")
    for row in triggers:
        sql(row["sql"])


def damage(sql: RawSql, table: str, column: str, text: str, where: str = "true") -> None:
    """Write a text into a column of some rows; on PostgreSQL not where a check of the table refuses it."""
    if sql.postgres and (table, column) in {("*", "error"), ("run", "state")}:
        return
    tables = [row["table_name"] for row in sql("select table_name from {queue}")] if table == "*" else []
    with unguarded(sql):
        for name in tables or [f"{sql.instance}__{table}"]:
            sql(f'update "{name}" set "{column}" = :text where {where}', text=text)


def damage_bytes(sql: RawSql, job_id: int, column: str) -> None:
    """A text that is not UTF-8, which only an SQLite file can have."""
    assert not sql.postgres
    tables = [row["table_name"] for row in sql("select table_name from {queue}")]
    with unguarded(sql):
        for name in tables:
            sql(
                f'''update "{name}" set "{column}" = cast(x'7b22746f223a22eda08022{"7d"}' as text) where id = :id''',
                id=job_id,
            )
