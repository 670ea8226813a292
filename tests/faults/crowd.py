"""A great many jobs stored past the product, finished and waiting, and how much of a database an action reads.

What is counted does not depend on how busy the machine is: on PostgreSQL rows and blocks, by its statistics, on SQLite
steps of its virtual machine and pages.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import apsw
from msgspec import Struct

from tests.faults.fleet import until
from tests.raw_sql import RawSql

TIMES, MORE = 1.5, 1000
EVERY = 100  # steps of the virtual machine between two looks
NUMBERS = "with recursive n (n) as (select {first} union all select n + 1 from n where n < {first} + {count} - 1) "
NAMES = "id, queue, job_type, job_key, create_time, priority, throttle_factor, payload, scheduled_run_time, update_time"
ENDED = "start_time, end_time, state, outcome, error, attempt, execution_time, total_time, worker"
JOBS = (
    NUMBERS
    + f"insert into {{{{queue:{{queue}}}}}} ({NAMES}) select n, '{{queue}}', 'noop', null, {{now}}, 200, 1, '{{{{}}}}', {{now}}, {{now}} from n"
)
READY = """insert into {{ready}} (queue, major, minor, id, job_type, throttle_factor, ready_time)
  select queue, priority, {minor}, id, job_type, throttle_factor, create_time from {{queue:{queue}}} where state = 'initial'"""
FINISHED = (
    NUMBERS
    + f"""insert into {{{{queue:{{queue}}}}}} ({NAMES}, {ENDED})
  select n, '{{queue}}', 'noop', case when n % 2 = 0 then 'same' else 'own' || n end, {{now}}, 200, 1, '{{{{}}}}', {{now}}, {{now}}, {{ago}}, {{ago}},
    'final', case when n % 10 = 0 then 'error' else 'success' end,
    case when n % 10 = 0 then '{{{{"type":"ValueError","message":"broken","kind":"exception"}}}}' else 'NONE' end, 1, 0.001, 0.001, 1 from n"""
)
NOTED = """insert into {{ended}} (end_time, queue, ids)
  select min(end_time), min(queue), {ids} from {{queue:{queue}}} where state = 'final' group by id / 50"""
DEAD = "insert into {{dead}} (end_time, id, queue) select end_time, id, queue from {{queue:{queue}}} where outcome = 'error'"
ATTEMPTS = """insert into {{attempt}} (job, attempt, end_time, outcome, state, error, seconds)
  select id, 1, end_time, 'error', 'final', error, 1 from {{queue:{queue}}} where outcome = 'error'"""
POSTGRES = {
    "now": "now()",
    "ago": "now() - (2000000 - n) * interval '1 ms'",
    "minor": "extract(epoch from scheduled_run_time)::float8",
    "ids": "array_agg(id order by id)",
}
NOW = "cast(unixepoch('subsec') * 1000000 as integer)"
SQLITE = {
    "now": NOW,
    "ago": f"{NOW} - (2000000 - n) * 1000",
    "minor": "scheduled_run_time",
    "ids": "json_group_array(id)",
}
READ = {
    "rows": """select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) + (select sum(idx_tup_read) from pg_stat_user_indexes) as n
      from pg_stat_user_tables""",
    "blocks": """select sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0)
      + coalesce(toast_blks_hit + toast_blks_read, 0)) as n from pg_statio_user_tables""",
}
GONE = """select count(*) = 0 as gone from pg_stat_activity
  where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"""


def fill(url: str, instance: str, queues: tuple[str, ...], count: int) -> None:
    """So many finished jobs and so many waiting ones, in these queues together.

    The finished ones are older. Half of them had the same key, a tenth are dead.
    """
    sql = RawSql(url, instance)
    each = count // len(queues)
    with sql.transaction() as connection, _lawless(sql, connection):
        for number, queue in enumerate(queues):
            words = {**(POSTGRES if sql.postgres else SQLITE), "queue": queue, "count": each}
            for text in (FINISHED, NOTED, DEAD, ATTEMPTS):
                sql(text.format(**words, first=1 + number * each))
            for text in (JOBS, READY):
                sql(text.format(**words, first=1 + (len(queues) + number) * each))
        last = 2 * each * len(queues)
        sql(
            f"select setval('{instance}__job_id', {last})" if sql.postgres else f"update {{sequence}} set last = {last}"
        )
    if sql.postgres:
        sql("vacuum analyze")  # as autovacuum would, and now
    sql.close()


@contextmanager
def _lawless(sql: RawSql, connection: Any) -> Iterator[None]:
    """Finished rows are not born so: the law would refuse them."""
    if sql.postgres:
        connection.execute("set local session_replication_role = replica")
        yield
        return
    laws = sql("select name, sql from sqlite_master where type = 'trigger'")
    for law in laws:
        connection.execute(f'drop trigger "{law["name"]}"')
    yield
    for law in laws:
        connection.execute(law["sql"])


class Effort(Struct, frozen=True):
    """How much was read: rows or steps, blocks or pages."""

    rows: int
    pages: int

    def like(self, other: "Effort") -> bool:
        """Whether it is about as much; trees of a million entries have a level more than those of some thousands."""
        pairs = ((self.rows, other.rows), (self.pages, other.pages))
        return all(max(pair) <= TIMES * min(pair) + MORE for pair in pairs)


def effort_of(url: str, action: Callable[[Callable[[], None]], None]) -> Effort:
    """What a program reads from its start to its end; it calls what it is given when its work is done, still connected."""
    return _read_postgres(url, action) if url.startswith("postgresql") else _read_sqlite(action)


def _read_postgres(url: str, action: Callable[[Callable[[], None]], None]) -> Effort:
    """A session's numbers are complete when it has ended."""
    sql = RawSql(url, "")

    def read() -> list[int]:
        until(lambda: sql.value(GONE), what="all sessions have ended")
        return [int(sql.value(text)) for text in READ.values()]

    before = read()
    action(lambda: None)
    rows, pages = (now - then for now, then in zip(read(), before, strict=True))
    sql.close()
    return Effort(rows, pages)


def _read_sqlite(action: Callable[[Callable[[], None]], None]) -> Effort:
    connections: list[apsw.Connection] = []
    steps, pages = 0, 0

    def step() -> bool:
        nonlocal steps
        steps += EVERY
        return False

    def watch(connection: apsw.Connection) -> None:
        connection.set_progress_handler(step, EVERY)
        connections.append(connection)

    def done() -> None:
        nonlocal pages
        for connection in connections:
            with suppress(apsw.ConnectionClosedError):
                pages += sum(
                    connection.status(kind)[0]
                    for kind in (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
                )

    apsw.connection_hooks.append(watch)
    try:
        action(done)
    finally:
        apsw.connection_hooks.remove(watch)
    return Effort(steps, pages)
