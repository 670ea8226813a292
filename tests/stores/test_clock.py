"""C6, J6: whose clock decides, and that every statement can be told the time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import App
from holdfast.clock import Clock, MovableClock
from holdfast.stores.contract import Store
from tests.by_hand import WorkerByHand, add
from tests.raw_sql import RawSql


class WrongClock(Clock):
    """A machine whose clock is in another century. Not movable: a store may not tell PostgreSQL this time."""

    def now(self) -> datetime:
        return datetime(1999, 1, 1, tzinfo=UTC)


@pytest.mark.claim("C6")
def test_on_postgresql_the_databases_clock_decides_and_on_sqlite_the_machines(
    app: Callable[..., App], url: str
) -> None:
    holdfast = app(clock=WrongClock())

    @holdfast.queue("mail").job(retries=0)
    def send(n: int) -> None:
        if n == 2:
            raise ValueError

    jobs = [send.enqueue(1), send.enqueue(2), *send.enqueue_many([{"n": 3}]), send.using(job_key="k").enqueue(4)]
    jobs.append(send.using(delay=0).enqueue(5))
    later = send.using(delay=3600).enqueue(6)
    aborted = holdfast.abort(send.using(delay=60).enqueue(7).id)
    assert holdfast.run_until_idle() == 5

    now = datetime.now(UTC) if url.startswith("postgresql") else WrongClock().now()
    assert abs(holdfast.store.now() - now) < timedelta(minutes=5)
    for job in [*(each.refresh() for each in jobs), aborted]:
        times = [job.create_time, job.update_time, job.end_time, *(move.time for move in job.history())]
        assert all(abs(time - now) < timedelta(minutes=5) for time in times if time is not None)
        assert job.end_time is not None
    assert abs(later.scheduled_run_time - now - timedelta(hours=1)) < timedelta(minutes=5)


@pytest.mark.claim("C6")
def test_every_moment_that_is_stored_is_the_one_that_was_told(store: Store, sql: RawSql, clock: MovableClock) -> None:
    """A clock far away from today: whatever read another clock would show."""
    clock.set(datetime(2040, 1, 1, tzinfo=UTC))
    worker = WorkerByHand(store)
    for _ in range(3):
        add(store)
    add(store, job_key="k", delay=0)
    add(store, delay=60)
    calls = worker.claim(4)
    worker.succeed(calls[0])
    worker.fail(calls[1])
    worker.snooze(calls[2], 5)
    store.abort(calls[3].id, "ann")
    store.beat(worker.id)
    store.pause("mail", True, "ann")
    store.leave(WorkerByHand(store).id)
    store.archive(3600)

    tables = (
        "job",
        "archive",
        "worker",
        "attempt",
        "audit",
        "abort",
        "ended",
        "dead",
        "ready",
        "waiting",
        "queue",
        "type",
    )
    seen = 0
    for table in tables:
        for row in sql(f"select * from {{{table}}}"):
            for name, value in row.items():
                if name in ("total_time", "execution_time") or not name.endswith("time") or value is None:
                    continue
                moment = value if sql.postgres else datetime.fromtimestamp(value / 1e6, UTC)
                if table in ("queue", "type"):  # made before the clock was set
                    continue
                assert timedelta(0) <= moment - clock.now() <= timedelta(seconds=60), (table, name, moment)
                seen += 1
    assert seen > 30


@pytest.mark.claim("J6")
def test_update_time_moves_with_every_change_and_create_time_never(store: Store, clock: MovableClock) -> None:
    job = add(store, job_key="k")
    worker = WorkerByHand(store)

    def changes(act: Callable[[], object]) -> bool:
        before, moment = store.get(job.id), clock.advance(600)
        act()
        found = store.get(job.id)
        assert found.create_time == job.create_time
        assert (found == before) == (found.update_time == before.update_time)
        assert found.update_time in (before.update_time, moment)
        return found.update_time == moment

    assert not changes(lambda: add(store, delay=1e6))  # another job
    assert changes(lambda: add(store, job_key="k", priority=5, on_duplicate="replace"))
    assert not changes(lambda: store.park([]))
    assert not changes(lambda: store.park(["send"]))
    assert changes(worker.claim_one)
    assert not changes(lambda: store.abort(job.id, "ann"))  # a wish is not yet a change
    assert changes(lambda: worker.die())
    assert not changes(lambda: store.restore(0, 10, 0))


@pytest.mark.claim("J6")
def test_scheduled_run_time_is_when_a_job_is_wanted_next_and_in_final_when_it_was_last_wanted(
    store: Store, clock: MovableClock
) -> None:
    job = add(store, delay=10)
    worker = WorkerByHand(store)
    wanted = [clock.now() + timedelta(seconds=10)]
    assert store.get(job.id).scheduled_run_time == wanted[-1]
    clock.advance(15)
    call = worker.claim_one()
    assert store.get(job.id).scheduled_run_time == wanted[-1]  # while it runs: when it was wanted
    worker.fail(call, retry_delay=30.0)
    wanted.append(clock.now() + timedelta(seconds=30))
    assert store.get(job.id).scheduled_run_time == wanted[-1]
    clock.advance(40)
    worker.snooze(worker.claim_one(), 50)
    wanted.append(clock.now() + timedelta(seconds=50))
    assert store.get(job.id).scheduled_run_time == wanted[-1]
    clock.advance(60)
    worker.succeed(worker.claim_one())

    assert store.get(job.id).scheduled_run_time == wanted[-1]
