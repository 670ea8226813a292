"""How many jobs a second can be enqueued: one at a time, by many threads or tasks, a thousand at a time; and the same rows bare.

The same rows: the job and its place in line. Bare means tables with the same columns and primary keys, and nothing
else: no law, no other index, no Python check, nobody told.
"""

import asyncio
import time

import apsw
import psycopg

from bench.execution import Run, together
from bench.places import TABLE, Place, Postgres
from bench.processes import Stalled
from bench.worker import bench_app

LOT = 1000
NOW = 1_700_000_000_000_000
COLUMNS = (
    "queue, job_type, create_time, priority, throttle_factor, timeout, retries, payload, scheduled_run_time, "
    "update_time, state, attempt, failures, losses, crashes, total_time, error"
)
READY = "holdfast__ready"
BARE_POSTGRES = (
    f"create table bare (like {TABLE} including defaults); alter table bare add primary key (id); "
    f"create table bare_ready (like {READY}); alter table bare_ready add primary key (queue, major, minor, id)"
)
READY_COLUMNS = "queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time"
READY_VALUES = "'work', 100, {time}, {id}, 'noop', 1, null, {now}"
VALUES = "'work', 'noop', {now}, 100, 1, 30, 3, {payload}, {now}, {now}, 'initial', 0, 0, 0, 0, 0, 'NONE'"


def one_at_a_time(place: Place, count: int) -> Run:
    with bench_app(place.fresh()) as app:
        noop = app.job_types["noop"]
        noop.enqueue(i=0)
        began = time.monotonic()
        for number in range(count):
            noop.enqueue(i=number)
        seconds = time.monotonic() - began
    check_stored(place, count + 1)
    return Run(count / seconds)


def from_threads(place: Place, count: int, threads: int) -> Run:
    with bench_app(place.fresh()) as app:
        noop = app.job_types["noop"]
        noop.enqueue(i=0)
        seconds = together(count, threads, lambda number: noop.enqueue(i=number))
    check_stored(place, count + 1)
    return Run(count / seconds)


def from_tasks(place: Place, count: int, tasks: int) -> Run:
    """Tasks of one event loop, each of which enqueues its next job when the last is stored."""
    numbers = iter(range(count))

    async def enqueue_some() -> None:
        for number in numbers:
            await noop.aenqueue(i=number)

    async def all_of_them() -> None:
        await asyncio.gather(*(enqueue_some() for _ in range(tasks)))

    with bench_app(place.fresh()) as app:
        noop = app.job_types["noop"]
        noop.enqueue(i=0)
        began = time.monotonic()
        asyncio.run(all_of_them())
        seconds = time.monotonic() - began
    check_stored(place, count + 1)
    return Run(count / seconds)


def many(place: Place, count: int) -> Run:
    with bench_app(place.fresh()) as app:
        noop = app.job_types["noop"]
        noop.enqueue(i=0)
        server, began = place.cpu(), time.monotonic()
        for start in range(0, count, LOT):
            noop.enqueue_many([{"i": number} for number in range(start, start + LOT)])
        seconds = time.monotonic() - began
        server = place.cpu() - server
    check_stored(place, count + 1)
    return Run(count / seconds, server_cpu=server / count * 1e6)


def bare_one_at_a_time(place: Place, count: int) -> Run:
    url = place.fresh()
    if isinstance(place, Postgres):
        job = f"insert into bare ({COLUMNS}) values ({VALUES.format(now='now()', payload='%s')}) returning id"
        values = READY_VALUES.format(time="extract(epoch from now())", id="id", now="now()")
        statement = (
            f"with job as ({job}) insert into bare_ready ({READY_COLUMNS}) select {values} from job returning id"
        ).encode()
        with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
            connection.execute(BARE_POSTGRES.encode(), prepare=False)
            began = time.monotonic()
            for number in range(count):
                connection.execute(statement, (payload(number),)).fetchone()
            return Run(count / (time.monotonic() - began))
    database = _bare_sqlite(place.path)
    began = time.monotonic()
    for number in range(count):
        with database:
            job_id = database.execute(_sqlite_insert(), (NOW, payload(number))).fetchall()[0][0]
            database.execute(_sqlite_ready(), (NOW, job_id))
    seconds = time.monotonic() - began
    database.close()
    return Run(count / seconds)


def bare_many(place: Place, count: int) -> Run:
    """COPY, or executemany in a transaction, a thousand rows at a time."""
    url = place.fresh()
    if isinstance(place, Postgres):
        return Run(count / _copy(url, count))
    database = _bare_sqlite(place.path)
    began = time.monotonic()
    for start in range(0, count, LOT):
        database.execute("begin immediate")
        rows = ((NOW, payload(number)) for number in range(start, start + LOT))
        database.executemany(_sqlite_insert().removesuffix(" returning id"), rows)
        database.executemany(_sqlite_ready(), ((NOW, number) for number in range(start, start + LOT)))
        database.execute("commit")
    seconds = time.monotonic() - began
    stored = database.execute("select count(*) from bare").fetchall()[0][0]
    database.close()
    if stored != count:
        raise Stalled(f"{stored} of {count} bare rows are stored")
    return Run(count / seconds)


def _copy(url: str, count: int) -> float:
    now = "2026-01-01 00:00:00+00"
    ready = f"work\t100\t1700000000\t%d\tnoop\t1\t\\N\t{now}\n"
    form = f'work\tnoop\t{now}\t100\t1\t30\t3\t{{"i":%d}}\t{now}\t{now}\tinitial\t0\t0\t0\t0\t0\tNONE\n'
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BARE_POSTGRES.encode())
        began = time.monotonic()
        for start in range(0, count, LOT):
            with connection.cursor() as cursor, cursor.copy(f"copy bare ({COLUMNS}) from stdin".encode()) as copy:
                copy.write("".join([form % number for number in range(start, start + LOT)]))
            with (
                connection.cursor() as cursor,
                cursor.copy(f"copy bare_ready ({READY_COLUMNS}) from stdin".encode()) as copy,
            ):
                copy.write("".join([ready % number for number in range(start, start + LOT)]))
        return time.monotonic() - began


def _bare_sqlite(path: object) -> apsw.Connection:
    database = apsw.Connection(str(path))
    for setting in ("journal_mode=wal", "synchronous=full", "wal_autocheckpoint=4000"):
        database.execute(f"pragma {setting}")
    columns = [f"{row[1]} {row[2]}" for row in database.execute(f"pragma table_info({TABLE})") if row[1] != "id"]
    database.execute(f"create table bare (id integer primary key, {', '.join(columns)}) strict")
    columns = [f"{row[1]} {row[2]}" for row in database.execute(f"pragma table_info({READY})")]
    key = "primary key (queue, major, minor, id)"
    database.execute(f"create table bare_ready ({', '.join(columns)}, {key}) strict, without rowid")
    return database


def _sqlite_insert() -> str:
    return f"insert into bare ({COLUMNS}) values ({VALUES.format(now='?1', payload='?2')}) returning id"


def _sqlite_ready() -> str:
    return f"insert into bare_ready ({READY_COLUMNS}) values ({READY_VALUES.format(time='?1', id='?2', now='?1')})"


def payload(number: int) -> str:
    return f'{{"i":{number}}}'


def check_stored(place: Place, count: int) -> None:
    look = place.look()
    stored = look.one(f"select count(*) from {TABLE} where state = 'initial'")
    ready = look.one("select count(*) from holdfast__ready")
    look.close()
    if (stored, ready) != (count, count):
        raise Stalled(f"{count} jobs were enqueued, {stored} are stored and {ready} are ready")
