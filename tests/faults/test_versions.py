"""Old and new programs on one instance: nobody is failed for what another does not know, and a migration stops no work."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast import App, Unavailable
from holdfast.clock import Clock
from holdfast.stores import queryfile
from holdfast.stores.open import open_store
from tests.faults.fleet import make_app, until
from tests.faults.fleet import worker as start
from tests.faults.load import LONG, LOST_AFTER, long_jobs
from tests.faults.old_fleet import OLDEST, knowing
from tests.faults.results import Fault, sizes
from tests.raw_sql import RawSql

FAR = 9000  # a number that no migration has yet
HOT = {  # by whether it is PostgreSQL
    True: "alter table {{job}} add column note text;\nalter table {{ready}} add column note text;\nalter table {{lease}} add column note text;\n"
    "create index on {{lease}} (note);\ncreate index on {{ready}} (note);",
    False: 'alter table "{name}_work" add column note text;\nalter table {{ready}} add column note text;\n'
    "alter table {{lease}} add column note text;\ncreate index {{lease_note}} on {{lease}} (note);",
}

pytestmark = pytest.mark.fault(12)


def program(app: App, **handlers: Callable[[int], object]) -> App:
    queue = app.queue("work")
    for name, handler in handlers.items():
        queue.job(name=name)(handler)
    return app


def old(i: int) -> str:
    return "old"


def new(i: int) -> str:
    return "new"


@pytest.mark.claim("Q3", "Q4")
def test_old_and_new_workers_each_do_what_they_know(url: str, instance: str, fault: Fault) -> None:
    """In the new code `send` has another name, and there is one more type."""
    before = program(App(url, name=instance), send=old, print=old)
    after = program(App(url, name=instance), deliver=new, print=new, fresh=new)
    with before, after:
        jobs = {name: before.job_types[name].enqueue(i=1) for name in ("send", "print")}
        jobs |= {name: after.job_types[name].enqueue(i=1) for name in ("deliver", "fresh")}
        fault.injected("a handler renamed, and one added")
        with after.worker(concurrency=5):
            assert {name: jobs[name].wait(60).result for name in ("print", "deliver", "fresh")} == dict.fromkeys(
                ("print", "deliver", "fresh"), "new"
            )
            waits = jobs["send"].refresh()
            assert (waits.state, waits.attempt) == ("initial", 0)
            assert jobs["send"].explain().reason == "no_worker"
            with before.worker(concurrency=5):
                assert jobs["send"].wait(60).result == "old"
                mixed = [after.job_types["print"].enqueue(i=number) for number in range(50)]
                assert {job.wait(60).outcome for job in mixed} == {"success"}
    fault.check(url, instance, [job.id for job in jobs.values()])


class Feeder(threading.Thread):
    """Enqueues until it is told to end, and then at least so many; from a program that was started before the upgrade."""

    def __init__(self, app: App, most: int) -> None:
        super().__init__(daemon=True)
        self.app, self.most, self.accepted, self.over = app, most, list[int](), threading.Event()

    def run(self) -> None:
        while len(self.accepted) < self.most or not self.over.is_set():
            self.accepted += [job.id for job in self.app.job_types["quick"].enqueue_many([{"i": 1}] * 200)]

    def stop(self) -> None:
        self.over.set()
        self.join(100)


@contextmanager
def in_the_way(sql: RawSql) -> Iterator[None]:
    """For longer than `lost_after` a neighbour keeps a migration, and whoever comes behind it, from the leases."""
    if not sql.postgres:
        yield
        return
    sql("begin")
    sql("select 1 from {lease} limit 1")
    leaves = threading.Timer(LOST_AFTER * 1.5, lambda: sql("rollback"))
    leaves.start()
    yield
    leaves.join()


def done_by(sql: RawSql, after: int) -> set[int]:
    """The workers that have ended jobs behind an id."""
    return {
        row["worker"]
        for row in sql("select distinct worker from {queue:work} where id > :id and outcome is not null", id=after)
    }


@pytest.mark.claim("R1", "C2")
@pytest.mark.fault(12, "migrations under load")
@pytest.mark.parametrize("jobs", sizes(600, 40_000))
def test_migrations_of_hot_tables_under_load_stop_no_worker(url: str, tmp_path: Path, fault: Fault, jobs: int) -> None:
    """All that there are, from the first on, and one that changes the tables of every claim; old and new workers go on."""
    name, hot = "aging", HOT["postgresql" in url]
    package = f"holdfast.stores.{'postgres' if 'postgresql' in url else 'sqlite'}"
    real = [f"{number:04} {title}" for number, title, _ in queryfile.numbered(package)][OLDEST:]
    with knowing(OLDEST), make_app(url, name) as app, ExitStack() as workers:
        app.find()
        sql, feeder = RawSql(url, name), Feeder(app, jobs)
        crew = [
            workers.enter_context(start(url, tmp_path, name=name, module="tests.faults.old_fleet")) for _ in range(2)
        ]
        with long_jobs(app, tmp_path):
            feeder.start()
            until(lambda: len(done_by(sql, 0)) == 2, what="old workers are at work")
            with knowing():
                assert migrated(url, name) == real
                fault.injected("the migrations that there are", len(real))
                crew.append(workers.enter_context(start(url, tmp_path, name=name)))
                since = feeder.accepted[-1]
                until(lambda: len(done_by(sql, since)) == 3, what="old and new workers are at work")
            with knowing(more=((FAR, "hot", hot.format(name=name)),)), in_the_way(RawSql(url, name)):
                assert migrated(url, name) == [f"{FAR:04} hot"]
                fault.injected("a migration that changes the tables of every claim")
            since = feeder.accepted[-1]
            until(lambda: len(done_by(sql, since)) == 3, what="all of them go on")
            feeder.stop()
        until(
            lambda: app.store.counts()["work"] == {"completed": len(feeder.accepted) + LONG}, 100, "all jobs are done"
        )
        assert [each.process.poll() for each in crew] == [None] * 3
        assert sql("select id from {worker} where gone = 'lost'") == []
        with knowing(), pytest.raises(Unavailable, match="newer than this Holdfast knows"):
            make_app(url, name).find()
        fault.measured(jobs=len(feeder.accepted))
        sql.close()
    fault.check(url, name, feeder.accepted)


def migrated(url: str, name: str) -> Sequence[str]:
    store = open_store(url, name, Clock())
    try:
        return store.migrate()
    finally:
        store.close()
