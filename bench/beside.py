"""Loading a great many rows that only stand beside: waiting with a later priority, scheduled for tomorrow, or finished."""

import apsw
import psycopg

from bench.places import TABLE, Place, Postgres
from bench.worker import QUEUE

KINDS = ("waiting", "scheduled", "finished")
LATER = 200  # priority of what waits beside; the measured jobs have 100
NAMES = (
    "id, job_type, create_time, priority, throttle_factor, timeout, retries, payload, scheduled_run_time, update_time"
)
ENDED = "start_time, end_time, state, outcome, attempt, execution_time, total_time, worker"

POSTGRES = {
    "at once": "interval '0 s'",
    "ahead": "interval '1 day' + n * interval '1 ms'",
    "jobs": f"""insert into {TABLE} (queue, {NAMES}) select '{QUEUE}', nextval('holdfast__job_id'), 'noop', now(), {LATER}, 1, 30, 3,
      '{{{{"i":{{spare}}}}}}', now() + {{ahead}}, now() from generate_series(1, {{count}}) n""",
    "waiting": """insert into holdfast__ready (queue, major, minor, id, job_type, throttle_factor, ready_time)
      select queue, priority, extract(epoch from scheduled_run_time)::float8, id, job_type, throttle_factor, now() from {table}""",
    "scheduled": "insert into holdfast__waiting (wake_time, id, queue) select scheduled_run_time, id, queue from {table}",
    "finished": f"""insert into {TABLE} (queue, {NAMES}, {ENDED}) select '{QUEUE}', nextval('holdfast__job_id'), 'noop', now(), {LATER}, 1, 30, 3,
      '{{{{"i":{{spare}}}}}}', now(), now(), now(), now(), 'final', 'success', 1, 0.001, 0.001, 1 from generate_series(1, {{count}}) n""",
    "ended": """insert into holdfast__ended (end_time, queue, ids)
      select now(), min(queue), array_agg(id order by id) from {table} group by id / 500""",
}
NOW = "cast(unixepoch('subsec') * 1000000 as integer)"
NUMBERS = "with recursive n (n) as (values (1) union all select n + 1 from n where n < {count})"
SQLITE = {
    "at once": "0",
    "ahead": "86400000000 + n * 1000",
    "jobs": f"""{NUMBERS} insert into {TABLE} ({NAMES}) select n, 'noop', {NOW}, {LATER}, 1, 30, 3, '{{{{"i":{{spare}}}}}}',
      {NOW} + {{ahead}}, {NOW} from n""",
    "waiting": """insert into holdfast__ready (queue, major, minor, id, job_type, throttle_factor, ready_time)
      select queue, priority, scheduled_run_time, id, job_type, throttle_factor, create_time from {table}""",
    "scheduled": "insert into holdfast__waiting (wake_time, id, queue) select scheduled_run_time, id, queue from {table}",
    "finished": f"""{NUMBERS} insert into {TABLE} ({NAMES}, {ENDED}) select n, 'noop', {NOW}, {LATER}, 1, 30, 3, '{{{{"i":{{spare}}}}}}',
      {NOW}, {NOW}, {NOW}, {NOW}, 'final', 'success', 1, 0.001, 0.001, 1 from n""",
    "ended": f"""insert into holdfast__ended (end_time, queue, ids)
      select {NOW}, min(queue), json_group_array(id) from {{table}} group by id / 500""",
}


def load_beside(place: Place, kind: str, count: int, spare: int) -> None:
    """A fresh database with so many rows in it, kept under the kind's name; their payload names the slot `spare`."""
    url = place.fresh()
    texts = POSTGRES if isinstance(place, Postgres) else SQLITE
    steps = ("finished", "ended") if kind == "finished" else ("jobs", kind)
    statements = [
        texts[step].format(
            count=count, spare=spare, ahead=texts["ahead"] if kind == "scheduled" else texts["at once"], table=TABLE
        )
        for step in steps
    ]
    if isinstance(place, Postgres):
        _load_postgres(url, statements)
        place.settle()
    else:
        _load_sqlite(str(place.path), statements, count)
    place.keep(kind)


def _load_postgres(url: str, statements: list[str]) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            b"set session_replication_role = replica"
        )  # finished rows are not born so: the law would refuse
        for statement in statements:
            connection.execute(statement.encode())


def _load_sqlite(path: str, statements: list[str], count: int) -> None:
    database = apsw.Connection(path)
    database.execute("pragma synchronous=off")
    database.execute("begin immediate")
    laws = database.execute(
        "select name, sql from sqlite_master where type = 'trigger' and tbl_name = ?", (TABLE,)
    ).fetchall()
    for name, _ in laws:
        database.execute(f'drop trigger "{name}"')
    for statement in statements:
        database.execute(statement)
    for _, text in laws:
        database.execute(text)
    database.execute("update holdfast__sequence set last = ?", (count,))
    database.execute("commit")
    database.execute("analyze")
    database.close()
