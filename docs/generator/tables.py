"""docs/reference/tables.md: the tables, from both schema.sql and the comments in the migrations."""

import re

import apsw

from docs.generator import text
from docs.schema import POSTGRES, SQLITE, STORES

COMMENTED = re.compile(r"((?:^--.*\n)+)create table (?:if not exists )?\{?(\w+)\}? \(", re.MULTILINE)
CREATED = re.compile(r"^CREATE TABLE (\w+) \(\n(.*?)\n\)", re.MULTILINE | re.DOTALL)
COLUMN = re.compile(r'^    "?([a-z_]+)"? (.+?),?$', re.MULTILINE)  # a constraint begins in capitals
END_OF_TYPE = re.compile(r" (COLLATE|NOT NULL|DEFAULT|GENERATED|PRIMARY KEY).*")
PREFIX, QUEUE_TABLE = "holdfast__", "holdfast_work"
ORDER = (
    "job", "queue", "type", "key", "ready", "aside", "bucket", "waiting", "parked", "undecided", "workflow",
    "run", "publication", "step", "trigger", "run_archive", "step_archive", "leaving", "hold", "held",
    "build", "build_ref", "identity", "delivery", "hook_body", "pull_request", "default_branch",
    "status",
    "schedule", "firing", "routine", "part", "breaker", "lease", "worker", "duty",
    "abort", "attempt", "log", "audit", "token", "access", "server", "request", "trace", "dead", "ended", "archive", "sequence", "move",
    "__holdfast_instance", "__holdfast_table",
)  # fmt: skip

# Where the migration has no comment of its own.
MEANS = {
    "job": "The jobs: the truth about each of them. A table for each queue, named by the `table_naming_strategy`, here "
    "`holdfast_work`. On PostgreSQL they are partitions of `holdfast__job`, on SQLite that is a view over them.",
    "queue": "The queues, what the code declared and what an operator set.",
    "type": "The job types as they were registered last.",
    "worker": "Every start of a worker: what it does, its heartbeat, how it went.",
    "archive": "Jobs that ended `archive_after` ago, whole rows. Nothing in it changes.",
    "archive_default": "The part of the archive that no other partition takes.",
    "sequence": "The last id given out. On PostgreSQL a sequence, `holdfast__job_id`.",
    "__holdfast_table": "Which table belongs to which queue of which instance; unique in the database.",
}


def page() -> str:
    sqlite, postgres, means = in_sqlite(), in_postgres(), meanings()
    if set(ORDER) != set(sqlite) | set(postgres):
        raise LookupError(f"tables.ORDER and schema.sql differ: {sorted(set(ORDER) ^ (set(sqlite) | set(postgres)))}")
    parts = [
        "# Tables\n",
        text.MADE,
        "An instance's own tables are named `<instance>__<name>`, here for the instance `holdfast`. Read them as you like; "
        "write through Holdfast. Times are `timestamptz` on PostgreSQL and whole microseconds since 1970 on SQLite.\n",
    ]
    for name in ORDER:
        parts += [
            f"## {name}\n",
            f"{text.linked(means[name])}\n",
            columns(sqlite.get(name, {}), postgres.get(name, {})),
        ]
    return "\n".join(parts)


def columns(sqlite: dict[str, str], postgres: dict[str, str]) -> str:
    names = list(dict.fromkeys([*(postgres or sqlite), *sqlite]))
    rows = [(text.code(name), sqlite.get(name, ""), postgres.get(name, "")) for name in names]
    return text.table(("column", "SQLite", "PostgreSQL"), rows)


def in_sqlite() -> dict[str, dict[str, str]]:
    """Table → column → type."""
    database = apsw.Connection(":memory:")
    database.execute(SQLITE.read_text())
    tables: dict[str, dict[str, str]] = {}
    wanted = """select t.name, c.name, c.type from sqlite_master t, pragma_table_info(t.name) c
        where t.type = 'table' and t.name not like 'sqlite_%' order by t.rowid, c.cid"""
    for table, column, type_ in database.execute(wanted):
        tables.setdefault(short(str(table)), {})[str(column)] = str(type_).lower()
    return tables


def in_postgres() -> dict[str, dict[str, str]]:
    tables = {}
    for name, body in CREATED.findall(POSTGRES.read_text()):
        found = {column: END_OF_TYPE.sub("", rest) for column, rest in COLUMN.findall(body)}
        if name != PREFIX + "job":  # the parent of the queues' tables
            tables[short(name)] = found
    return tables


def short(name: str) -> str:
    return "job" if name == QUEUE_TABLE else name.removeprefix(PREFIX)


def meanings() -> dict[str, str]:
    """The comments before `create table`, else the words above."""
    found = dict(MEANS)
    for file in [*(STORES / "postgres").rglob("*.sql"), *(STORES / "sqlite").rglob("*.sql")]:
        if file.name != "schema.sql":
            for comment, name in COMMENTED.findall(file.read_text()):
                found.setdefault(name, sentences(comment))
    return found


def sentences(comment: str) -> str:
    lines = [line.removeprefix("--").strip() for line in comment.splitlines() if not line.startswith("-- name:")]
    return " ".join(lines)
