"""What a live worker withstands: reports that cannot be stored, being called lost, half an outage, odd exceptions."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Failed, NoDelay, Retry, Snooze, Unavailable
from holdfast.clock import MovableClock
from holdfast.stores.contract import WorkerRow
from holdfast.worker.sweeper import Vigil
from tests.faults.fleet import ROOT, make_app, until
from tests.raw_sql import RawSql


@pytest.fixture
def app(url: str, instance: str) -> Iterator[App]:
    with App(url, name=instance, heartbeat=0.5, lost_after=5) as app:
        app.queue("work")
        yield app


def job_type(app: App, function: Callable[..., Any], **options: Any) -> Any:
    return app.queue("work").job(**options)(function)


def raise_(error: BaseException) -> Any:
    raise error


@pytest.mark.claim("R2")
def test_a_delay_may_be_any_number(app: App) -> None:
    odd = job_type(app, lambda: raise_(Retry(delay=Decimal("0.01"))), name="odd", retries=1)  # type: ignore[arg-type]
    with app.worker():
        assert odd.enqueue().wait(30).failures == 2


@pytest.mark.claim("C7", "R1")
def test_a_report_that_cannot_be_stored_ends_its_job_and_harms_no_other(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = job_type(app, lambda: raise_(ValueError("poison")), name="bad", retry=NoDelay(), retries=0)
    good = job_type(app, lambda: 1, name="good")
    with app.worker() as worker:
        for pump in worker.pumps:
            poison(pump.store, monkeypatch)
        ended = bad.enqueue().wait(30)
        assert good.enqueue().unwrap(30) == 1
        assert all(pump.is_alive() for pump in worker.pumps)
        until(lambda: worker.hand.count == 0, what="nothing is left in hand")
    assert (ended.outcome, ended.error.kind) == ("error", "result")


REFUSING = {
    "sqlite": "create trigger refuse before insert on {attempt} when new.error like '%poison%' begin select raise(abort, 'refused'); end",
    "postgres": """create function {refuse}() returns trigger language plpgsql as $$
      begin raise exception 'refused' using errcode = 'data_exception'; end $$;
      create trigger refuse before insert on {attempt} for each row when (new.error like '%poison%') execute function {refuse}()""",
}


@pytest.mark.claim("C7", "R1", "J9")
def test_of_ends_that_are_told_together_only_what_the_database_refuses_is_another(app: App, sql: RawSql) -> None:
    together = threading.Barrier(8)

    def body(i: int) -> None:
        together.wait(30)
        raise Failed("poison" if i == 3 else f"no {i}")

    ends = job_type(app, body, name="ends")
    with app.worker(concurrency=8):
        sql(REFUSING["postgres" if sql.postgres else "sqlite"])
        jobs = [ends.enqueue(i=i) for i in range(8)]
        found = [job.wait(30) for job in jobs]
    assert [(job.outcome, job.attempt) for i, job in enumerate(found) if i != 3] == [("failed", 1)] * 7
    assert [len(job.attempts()) for job in found] == [1] * 8
    assert (found[3].outcome, found[3].error.kind) == ("error", "result")


def poison(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store breaks on any report about an exception that says so."""
    exchange = store.exchange

    def breaking(turn: Any) -> Any:
        for report in turn.reports:
            if getattr(getattr(report.happening, "error", None), "message", "") == "poison":
                raise TypeError("unsupported type")
        return exchange(turn)

    monkeypatch.setattr(store, "exchange", breaking)


@pytest.mark.claim("C7")
def test_a_database_that_leaves_while_the_queues_are_read_costs_a_worker_no_slot(app: App) -> None:
    good = job_type(app, lambda: 1, name="good")
    with app.worker(concurrency=3, poll=0.2) as worker:
        assert good.enqueue().unwrap(30) == 1
        for pump in worker.pumps:
            away_while_queues_are_read(pump.store)
            pump._reread = True
            pump.look()
        assert good.enqueue().unwrap(30) == 1
        until(lambda: worker.hand.count == 0, what="no slot is taken by nobody")


def away_while_queues_are_read(store: Any) -> None:
    """Once."""
    queues = store.queues

    def away() -> Any:
        store.queues = queues
        raise Unavailable("PostgreSQL was lost.")

    store.queues = away


@pytest.mark.claim("C7")
def test_what_was_not_answered_is_asked_again_without_waiting_for_the_next_poll(app: App) -> None:
    good = job_type(app, lambda: 1, name="good")
    with app.worker(poll=60.0) as worker:
        assert good.enqueue().unwrap(30) == 1
        for pump in worker.pumps:
            away_once(pump.store)
        assert good.enqueue().unwrap(30) == 1


def away_once(store: Any) -> None:
    """As if the connection broke in the next turn."""
    exchange = store.exchange

    def away(turn: Any) -> Any:
        store.exchange = exchange
        raise Unavailable("PostgreSQL was lost.")

    store.exchange = away


@pytest.mark.claim("C2")
def test_a_worker_that_was_called_lost_claims_nothing_under_its_old_name(app: App) -> None:
    """Its claims would be taken for a dead worker's, again and again, until a healthy job is called a killer."""
    nap = job_type(app, lambda: time.sleep(0.3), name="nap")
    with app.worker() as worker:
        worker.pulse.close()  # it does not learn of its loss
        worker._missed = lambda: None  # type: ignore[method-assign]
        worker.sweeper._missed = lambda: None
        app.store.lose(worker.id)
        job = nap.enqueue()
        worker.pumps[0].look(promote=True)
        time.sleep(1.0)  # the wrong thing would happen within this time
        assert job.refresh().attempt == 0


@pytest.mark.claim("C1")
def test_an_idle_worker_with_fewer_slots_than_queues_rests(app: App) -> None:
    for name in ("a", "b", "c"):
        app.queue(name)
    job_type(app, lambda: None, name="nothing")
    with app.worker(concurrency=1) as worker:
        time.sleep(0.5)
        turns = count_turns(worker.pumps[0].store)
        time.sleep(1.0)
        assert len(turns) < 20


def count_turns(store: Any) -> list[int]:
    turns: list[int] = []
    exchange = store.exchange

    def counting(turn: Any) -> Any:
        turns.append(1)
        return exchange(turn)

    store.exchange = counting
    return turns


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.claim("R2", "J9")
def test_an_exception_with_half_a_character_in_its_text_is_told(app: App, isolation: str) -> None:
    half = job_type(app, lambda: raise_(Failed("half \udc80")), name="half", isolation=isolation)
    with app.worker():
        ended = half.enqueue().wait(30)
    assert (ended.outcome, ended.attempt) == ("failed", 1)
    assert "half" in str(ended.error)


@pytest.mark.claim("R2")
def test_an_exception_that_is_not_what_it_says_does_not_stop_the_loop(app: App) -> None:
    class Broken(Snooze):
        def __init__(self) -> None:
            pass

    async def broken() -> None:
        raise Broken

    async def good() -> int:
        return 1

    bad, fine = job_type(app, broken, retries=0), job_type(app, good)
    with app.worker():
        assert bad.enqueue().wait(30).outcome == "error"
        assert fine.enqueue().unwrap(30) == 1


def row(number: int, beat: int) -> WorkerRow:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return WorkerRow(number, "w", "h", 1, "0", (), (), (), 1, beat, None, now, now, False)


@pytest.mark.claim("C2")
def test_a_counter_that_stands_still_is_a_loss_only_while_ones_own_moves() -> None:
    clock = MovableClock()
    vigil = Vigil(clock, lost_after=10)
    lost: list[int] = []
    for second in range(40):
        lost += vigil.look([row(2, 7)], 1, own_beat=0)  # nobody can write: our own heart stands still as well
        clock.advance(1)
        assert lost == [], second
    for second in range(12):
        lost += vigil.look([row(2, 7)], 1, own_beat=second)
        clock.advance(1)
    assert lost[0] == 2


@pytest.mark.claim("C2")
def test_a_worker_is_called_lost_also_with_the_longest_heartbeat_allowed(url: str, instance: str) -> None:
    with App(url, name=instance, heartbeat=1.0, lost_after=2.0) as app:
        job_type(app, lambda: None, name="nothing")
        dead = app.worker()
        dead.store = app.store
        dead.join()
        lock, dead._lock_file = dead._lock_file, None  # it keeps its lock: only its heart has stopped
        with app.worker() as worker:
            until(lambda: [row.id for row in app.workers()] == [worker.id], 30, what="the dead one is missed")
        if lock:
            lock.release()


@pytest.mark.claim("C6")
def test_a_job_enqueued_by_another_process_is_noticed_at_once(url: str, instance: str) -> None:
    """Not only at the next poll: on SQLite the news of a write comes before the write can be seen."""
    with make_app(url, instance) as app, app.worker(poll=30.0):
        code = (
            f"from tests.faults.fleet import make_app; make_app({url!r}, {instance!r}).job_types['quick'].enqueue(i=1)"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, "-c", code], env=environment, cwd=ROOT, check=False, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            until(lambda: not app.find(state="initial"), 10, what="it is claimed")


@pytest.mark.claim("C3")
def test_the_lock_of_a_worker_is_looked_for_beside_ones_own_file(tmp_path: Path) -> None:
    """Another container may know the folder by another name."""
    with App(f"sqlite:///{tmp_path}/x.db", heartbeat=60, lost_after=600) as app:
        job_type(app, lambda: None, name="nothing")
        other = app.worker()
        other.store = app.store
        other.join()
        assert other._lock_file is not None
        app.store.connection.database.execute(
            "update holdfast__worker set lock_path = '/elsewhere/' || replace(lock_path, rtrim(lock_path, replace(lock_path, '/', '')), '')"
        )
        with app.worker() as worker:
            worker.sweeper.find_lost()
            assert {row.id for row in app.workers()} == {other.id, worker.id}
        other._leave()
