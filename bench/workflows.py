"""What workflows cost: milliseconds for each task of a fan-out and each step of a chain, and a step of very many items.

- A run is timed from before its submission until the end that the store has for it: whoever waits for it asks only now
  and then.
- "Bare" is the same dance with a table of tasks and their dependencies: what is done, what follows from it and what is
  taken next is one transaction, for a hundred tasks at a time where that many are there.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import apsw
import psycopg
from msgspec import Struct

from bench import flows
from bench.execution import Run, check_marks
from bench.places import UNFINISHED, Place, Postgres
from bench.processes import Stalled, Started, wait_for, workers
from bench.worker import bench_app
from holdfast import App

WIDTH, LENGTH, BATCH = 998, 200, 100
LOT = 500  # jobs that are enqueued at a time beside a worker
PATIENCE = 900


class Cost(Struct, frozen=True):
    """Milliseconds for one task, or one step."""

    fan: float
    chain: float


def ours(place: Place, runs: int) -> Cost:
    """A worker that has seen both workflows before; they come one after the other."""
    url = place.fresh()
    tasks = {"fan": WIDTH + 2, "chain": LENGTH}
    size = (runs + 1) * sum(tasks.values())
    found: dict[str, list[float]] = {"fan": [], "chain": []}
    with flow_app(url) as app, workers(url, place.folder, size, 1, *told()) as started:
        place.settle()
        at = 0
        for _ in range(runs + 1):
            for name, count in tasks.items():
                found[name].append(timed(app, name, str(at), started) / count * 1000)
                at += count
        check_marks(started, size)
    return Cost(*(median(samples[1:]) for samples in found.values()))


def flow_app(url: str, items: int = 0) -> App:
    app = App(url)
    flows.declare(app, print, WIDTH, LENGTH, items)
    return app


def told(items: int = 0) -> tuple[str, ...]:
    return ("--flows", str(WIDTH), str(LENGTH), str(items))


def timed(app: App, name: str, trigger: str, started: Sequence[Started]) -> float:
    """Seconds of one run."""
    began = time.time()
    run = app.workflows[name].submit(trigger)
    wait_for(lambda: app.store.run_state(run.id) != "UNDONE", 60, f"{name} {trigger} is done", started, every=0.02)
    ended = run.refresh()
    if ended.state != "SUCCESS" or ended.end_time is None:
        raise Stalled(f"{name} {trigger} ended {ended.state}")
    return ended.end_time.timestamp() - began


class Items(Struct, frozen=True):
    """What a step of very many items showed."""

    rate: float
    worker_cpu: float
    server_cpu: float
    memory_early: float  # megabytes when a tenth was done
    memory: float
    most_undone: int


def items(place: Place, count: int) -> Items:
    """How many were undone at most is written down by the database itself, whenever it is told a step's numbers."""
    url = place.fresh()
    with flow_app(url, count) as app:
        app.store.queues()
        note_most_undone(place)
        look = place.look()
        try:
            with workers(url, place.folder, count, 1, *told(count)) as started:
                marks = started[0].marks
                assert marks
                place.settle()
                cpu, server, began = started[0].cpu(), place.cpu(), time.time()
                run = app.workflows["items"].submit("t")
                wait_for(lambda: marks.begun() > count // 10, PATIENCE, "a tenth is done", started, every=0.2)
                early = started[0].memory()
                wait_for(lambda: app.store.run_state(run.id) != "UNDONE", PATIENCE, "all is done", started, every=0.2)
                ended = run.refresh()
                if ended.state != "SUCCESS" or ended.end_time is None:
                    raise Stalled(f"items ended {ended.state}")
                check_marks(started, count)
                costs = (started[0].cpu() - cpu) / count * 1e6, (place.cpu() - server) / count * 1e6
                rate = count / (ended.end_time.timestamp() - began)
                most = int(look.one("select max(undone) from most_undone"))
                return Items(rate, *costs, early, started[0].memory(), most)
        finally:
            look.close()


def kept_filled(place: Place, count: int, keyed: bool) -> Run:
    """What a step of items does, by a plain queue: jobs are enqueued in lots while a worker runs those before them, and never
    more than as many are undone. Whoever enqueues has a process of its own here, which a maker of items has not.
    """
    url = place.fresh()
    with bench_app(url) as app, workers(url, place.folder, count) as started:
        noop, marks = app.job_types["noop"], started[0].marks
        assert marks
        place.settle()
        look = place.look()
        cpu, server, began = started[0].cpu(), place.cpu(), time.monotonic()
        for first in range(0, count, LOT):
            room = first - flows.MOST_UNDONE + LOT
            if marks.begun() < room:
                wait_for(lambda room=room: marks.begun() >= room, PATIENCE, "room for more", started, every=0.001)
            lot = range(first, min(first + LOT, count))
            app.enqueue_many([noop.using(job_key=str(i)).new(i=i) if keyed else noop.new(i=i) for i in lot])
        unfinished = UNFINISHED.format(after=0)
        last = wait_for(lambda: look.one(unfinished) is None, PATIENCE, "every job final", started, every=0.01)
        look.close()
        check_marks(started, count)
        costs = (started[0].cpu() - cpu) / count * 1e6, (place.cpu() - server) / count * 1e6
        return Run(count / (last - began), *costs, started[0].memory())


def note_most_undone(place: Place) -> None:
    """A trigger on the numbers of steps keeps the highest one it has seen."""
    write = "update most_undone set undone = new.undone where undone < new.undone"
    make = "create table most_undone (undone bigint)"
    fill = "insert into most_undone values (0)"
    if isinstance(place, Postgres):
        body = f"begin {write}; return null; end"
        function = f"create function note_most() returns trigger language plpgsql as $$ {body} $$"
        trigger = "create trigger note_most after update on holdfast__step for each row execute function note_most()"
        for statement in (make, fill, function, trigger):
            place.execute("bench", statement)
        return
    connection = apsw.Connection(str(place.path))
    for statement in (make, fill, f"create trigger note_most after update on holdfast__step begin {write}; end"):
        connection.execute(statement)
    connection.close()


def bare(place: Place, runs: int) -> Cost:
    """The same, with nothing around it."""
    run = bare_postgres if isinstance(place, Postgres) else bare_sqlite
    url = place.fresh()
    fan = [(0, 0), *((number, 1) for number in range(1, WIDTH + 1)), (WIDTH + 1, WIDTH)]
    to_fan = [(0, number) for number in range(1, WIDTH + 1)] + [(number, WIDTH + 1) for number in range(1, WIDTH + 1)]
    chain = [(number, int(number > 0)) for number in range(LENGTH)]
    to_chain = [(number, number + 1) for number in range(LENGTH - 1)]
    return Cost(
        median(run(place, url, fan, to_fan) for _ in range(runs)) / len(fan) * 1000,
        median(run(place, url, chain, to_chain) for _ in range(runs)) / len(chain) * 1000,
    )


TABLES = (
    "drop table if exists bare_task",
    "drop table if exists bare_after",
    "create table bare_task (id integer primary key, state integer, needs integer)",
    "create table bare_after (before integer, id integer, primary key (before, id))",
    "create index bare_ready on bare_task (id) where state = 1",
)
TAKE = f"update bare_task set state = 2 where id in (select id from bare_task where state = 1 order by id limit {BATCH}) returning id"


def bare_sqlite(place: Any, url: str, tasks: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> float:
    connection = apsw.Connection(str(place.path))
    for setting in ("journal_mode=wal", "synchronous=full"):
        connection.execute(f"pragma {setting}")
    for statement in TABLES:
        connection.execute(statement)

    def step(done: Sequence[int]) -> list[int]:
        with connection:
            connection.executemany("update bare_task set state = 3 where id = ?", [(number,) for number in done])
            ended = ",".join(map(str, done))
            connection.execute(
                "update bare_task set needs = needs - f.count, state = iif(needs = f.count, 1, 0) from "
                f"(select id, count(*) as count from bare_after where before in ({ended}) group by id) f where f.id = bare_task.id"
            )
            return [number for (number,) in connection.execute(TAKE).fetchall()]

    def load() -> None:
        with connection:
            connection.executemany(
                "insert into bare_task values (?, ?, ?)", [(number, int(not needs), needs) for number, needs in tasks]
            )
            connection.executemany("insert into bare_after values (?, ?)", after)

    try:
        return danced(load, step, len(tasks))
    finally:
        connection.close()


def bare_postgres(place: Any, url: str, tasks: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> float:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in TABLES:
            connection.execute(statement.encode())

        def step(done: Sequence[int]) -> list[int]:
            with connection.pipeline():
                connection.execute("begin")
                connection.execute("update bare_task set state = 3 where id = any(%s)", [list(done)])
                connection.execute(
                    "update bare_task t set needs = needs - f.count, state = case when needs = f.count then 1 else 0 end "
                    "from (select id, count(*) as count from bare_after where before = any(%s) group by id) f "
                    "where f.id = t.id",
                    [list(done)],
                )
                taken = connection.execute(TAKE.encode())
                connection.execute("commit")
            return [number for (number,) in taken.fetchall()]

        def load() -> None:
            with connection.transaction(), connection.cursor() as cursor:
                with cursor.copy("copy bare_task from stdin") as copy:
                    for number, needs in tasks:
                        copy.write_row((number, int(not needs), needs))
                with cursor.copy("copy bare_after from stdin") as copy:
                    for pair in after:
                        copy.write_row(pair)
            connection.execute("analyze bare_task")
            connection.execute("analyze bare_after")

        return danced(load, step, len(tasks))


def danced(load: Callable[[], None], step: Callable[[Sequence[int]], list[int]], count: int) -> float:
    """Seconds until all are done."""
    began = time.monotonic()
    load()
    done, taken = 0, step([])
    while taken:
        done += len(taken)
        taken = step(taken)
    if done != count:
        raise Stalled(f"bare: {done} of {count} tasks were done")
    return time.monotonic() - began
