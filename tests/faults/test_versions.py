"""Old and new programs on one instance: nobody is failed for what another does not know, and a migration stops no work."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import App, Unavailable
from holdfast.clock import Clock
from holdfast.stores import migrate, queryfile
from holdfast.stores.open import open_store
from tests.faults.fleet import make_app, until, worker
from tests.faults.results import Fault, sizes

ADDED = "alter table {audit} add column note text;\nalter table {attempt} add column note text;\ncreate index {note} on {attempt} (note);"

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


@pytest.mark.claim("R1")
@pytest.mark.parametrize("jobs", sizes(600, 40_000))
def test_a_migration_under_load_stops_no_worker(
    url: str, instance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, jobs: int
) -> None:
    accepted: list[int] = []
    with make_app(url, instance) as app, worker(url, tmp_path, name=instance, concurrency=50) as one:
        stop = threading.Event()

        def feed() -> None:
            while len(accepted) < jobs or not stop.is_set():
                accepted.extend(job.id for job in app.job_types["quick"].enqueue_many([{"i": 1}] * 200))

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            until(lambda: app.store.counts()["work"].get("completed", 0) > jobs // 4, 100, "a part is done")
            numbered = queryfile.numbered
            next_one = 1 + max(
                number for number, _, _ in numbered(f"holdfast.stores.{'postgres' if 'postgres' in url else 'sqlite'}")
            )
            changed = lambda package: [*numbered(package), (next_one, "notes", ADDED)]  # noqa: E731
            monkeypatch.setattr(migrate.queryfile, "numbered", changed)
            store = open_store(url, instance, Clock())
            assert store.migrate() == [f"{next_one:04} notes"]
            store.close()
            monkeypatch.undo()
            fault.injected("a migration that adds columns and an index")
        finally:
            stop.set()
            feeder.join(100)
        until(lambda: app.store.counts()["work"] == {"completed": len(accepted)}, 100, "all jobs are done")
        assert one.process.poll() is None
        with pytest.raises(Unavailable, match="newer than this Holdfast knows"):
            make_app(url, instance).find()
        fault.measured(jobs=len(accepted))
    fault.check(url, instance, accepted)
