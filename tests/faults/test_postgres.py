"""What is done to PostgreSQL while work goes on: it comes back by itself to the rate it had, and nothing is lost."""

import signal
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from holdfast import App, Unavailable
from tests.faults import standing
from tests.faults.fleet import make_app, until, worker
from tests.faults.load import LOST_AFTER, NEARLY, Load, load, long_jobs
from tests.faults.proxy import Proxy
from tests.faults.results import Fault, sizes
from tests.pgbouncer import Bouncer
from tests.postgres_on_demand import own_server
from tests.postgres_server import Server

SOON = 5.0  # seconds in which the full rate is to be back, on a machine that does nothing else
HALF = 0.5  # of the rate is left, whoever holds a snapshot
URGENT = 5.0  # seconds; the head of the line is looked at once a second
QUICK = ("fsync=off", "full_page_writes=off")  # the machine does not crash, only the server
SYNCHRONOUS = (*QUICK, "synchronous_standby_names='*'")
OUTAGE = LOST_AFTER * 1.5
CONNECTIONS = 40


@pytest.fixture
def server() -> Iterator[Server]:
    """A PostgreSQL of its own, because these tests maltreat it."""
    server = own_server(*QUICK, f"max_connections={CONNECTIONS}")
    server.start()
    yield server
    server.remove()


@contextmanager
def fleet(url: str, folder: Path, workers: int) -> Iterator[tuple[App, "Crew"]]:
    crew = Crew(url, folder, workers)
    try:
        with make_app(url) as app:
            yield app, crew
    finally:
        crew.workers.close()


class Crew:
    """Some workers, in whose place others can be put."""

    def __init__(self, url: str, folder: Path, count: int) -> None:
        self.url, self.folder, self.count = url, folder, count
        self.workers = ExitStack()
        self.start()

    def start(self) -> None:
        self.each = [
            self.workers.enter_context(worker(self.url, self.folder, concurrency=50)) for _ in range(self.count)
        ]

    def renew(self) -> None:
        for each in self.each:
            each.terminate()
        self.start()


def run(server: Server, statement: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(statement.encode())


def back(fault: Fault, jobs: Load, rate: float, full: bool = True) -> None:
    """From now on it is to go on. A sample may run on a busy machine: then only that it does counts."""
    if not full:
        until_more(jobs)
        return
    recovery = jobs.recovery(time.monotonic(), rate)
    fault.measured(recovery=max(recovery, fault.told.figures.get("recovery", 0.0)))
    assert recovery <= SOON, f"full rate was back only after {recovery:.1f} s"


def as_before(fault: Fault, jobs: Load, rate: float, crew: Crew) -> None:
    """It is as good as it was. Where it is not, perhaps the machine is slower now: workers that are new then do no better."""
    after = jobs.best(NEARLY * rate)
    fault.measured(rate=f"{rate:.0f} → {after:.0f}")
    if after < NEARLY * rate:
        crew.renew()
        until_more(jobs)
        anew = jobs.typical()
        fault.measured(rate_of_new_workers=round(anew))
        assert after >= NEARLY * anew, f"{rate:.0f} a second before, {after:.0f} after, {anew:.0f} by new workers"


def until_more(jobs: Load) -> None:
    before = jobs.count()
    until(lambda: jobs.count() > before, what="jobs end again")


@pytest.mark.claim("C7", "R1")
@pytest.mark.fault(5, "restart under load")
@pytest.mark.parametrize("mode", ["fast", "immediate"])
@pytest.mark.parametrize("times", [pytest.param(5, marks=[pytest.mark.faults, pytest.mark.timeout(600)])])
def test_the_rate_is_back_after_a_restart(server: Server, tmp_path: Path, fault: Fault, mode: str, times: int) -> None:
    url = server.create("load")
    with fleet(url, tmp_path, 2) as (app, crew), load(app, url, fault) as jobs:
        rate = jobs.typical()
        with long_jobs(app, tmp_path):
            for time_down in [0.0] * times + [OUTAGE]:
                server.stop(mode)
                time.sleep(time_down)
                server.start()
                fault.injected(f"{mode} restart of the server")
                back(fault, jobs, rate)
        as_before(fault, jobs, rate, crew)


@pytest.mark.claim("C7", "R1")
@pytest.mark.fault(5, "pg_terminate_backend at random")
@pytest.mark.parametrize("times", sizes(20, 400))
def test_sessions_that_are_ended_at_random_cost_nothing(
    postgres: Server, instance: str, tmp_path: Path, fault: Fault, times: int
) -> None:
    url = postgres.create(f"ended_{instance}")
    luck = fault.luck(20261116)
    full = times > 20
    with fleet(url, tmp_path, 2 if full else 1) as (app, crew), load(app, url, fault, full) as jobs:
        rate = jobs.typical(7 if full else 1)
        with long_jobs(app, tmp_path), psycopg.connect(postgres.url(), autocommit=True) as sql:
            for _ in range(times):
                found = sql.execute(
                    "select pid from pg_stat_activity where datname = %s and application_name like 'holdfast%%'",
                    (f"ended_{instance}",),
                ).fetchall()
                sql.execute("select pg_terminate_backend(%s)", luck.choice(sorted(found) or [(0,)]))
                fault.injected("pg_terminate_backend of one of our sessions")
                time.sleep(luck.uniform(0, 0.05))
            back(fault, jobs, rate, full)
        if full:
            as_before(fault, jobs, rate, crew)
    postgres.drop(f"ended_{instance}")


@contextmanager
def replicated() -> Iterator[tuple[Server, Server]]:
    """A primary whose commits wait for its replica."""
    primary, replica = own_server(*QUICK), own_server(*QUICK)
    primary.start()
    try:
        primary.create("load")
        replica.follow(primary)
        primary.settings = SYNCHRONOUS
        primary.restart()
        with psycopg.connect(primary.url(), autocommit=True) as sql:
            asked = "select sync_state from pg_stat_replication"
            until(lambda: sql.execute(asked).fetchall() == [("sync",)], what="the replica follows")
        yield primary, replica
    finally:
        replica.remove()
        primary.remove()


@pytest.mark.claim("C2", "C7", "R1")
@pytest.mark.fault(5, "failover to a streaming replica")
@pytest.mark.parametrize("way", ["addresses", "proxy"])
@pytest.mark.parametrize("full", sizes(False, True))
def test_work_goes_on_at_the_replica_that_was_promoted(tmp_path: Path, fault: Fault, way: str, full: bool) -> None:
    if way == "proxy" and not full:
        pytest.skip("at full size only")
    with replicated() as (primary, replica), ExitStack() as stack:
        url = f"postgresql://postgres@/load?host={primary.folder},{replica.folder}&target_session_attrs=read-write"
        if way == "proxy":
            proxy = Proxy(tmp_path / "proxy", primary.folder)
            stack.callback(proxy.close)
            url = proxy.url("load")
        with fleet(url, tmp_path, 2) as (app, crew), load(app, replica.url("load"), fault, full) as jobs:
            rate = jobs.typical(7 if full else 1)
            with long_jobs(app, tmp_path):
                if full:
                    stack.enter_context(worker(replica.url("load"), tmp_path))  # it waits until it can join
                primary.stop("immediate")
                time.sleep(OUTAGE)  # nobody can write
                replica.promote()
                fault.injected("crash of the primary, then promotion of its replica")
                if way == "proxy":
                    proxy.point(replica.folder)
                back(fault, jobs, rate, full)
                until(lambda: len(app.workers()) == 2 + full, what="who waited has joined")
            if full:
                as_before(fault, jobs, rate, crew)
        primary.start()  # `remove` stops it


@pytest.mark.claim("C2", "C7")
@pytest.mark.fault(5, "read-only period")
@pytest.mark.parametrize("full", sizes(False, True))
def test_a_read_only_period_takes_no_live_workers_job(server: Server, tmp_path: Path, fault: Fault, full: bool) -> None:
    url = server.create("load")
    with fleet(url, tmp_path, 2) as (app, crew), load(app, url, fault, full) as jobs:
        rate = jobs.typical(7 if full else 1)
        with long_jobs(app, tmp_path):
            run(server, "alter system set default_transaction_read_only = on")
            run(server, "select pg_reload_conf()")
            fault.injected("default_transaction_read_only, for longer than lost_after")
            until(lambda: jobs.refused > 0, what="nothing can be written")
            time.sleep(OUTAGE)
            with psycopg.connect(server.url(), autocommit=True, options="-c default_transaction_read_only=off") as sql:
                sql.execute("alter system reset default_transaction_read_only")
                sql.execute("select pg_reload_conf()")
            back(fault, jobs, rate, full)
        if full:
            as_before(fault, jobs, rate, crew)


@pytest.mark.claim("C7")
def test_a_session_that_turned_read_only_is_left_for_another(postgres_url: str, instance: str) -> None:
    """Perhaps the address leads to another server by now."""
    with make_app(postgres_url, instance) as app:
        app.find()
        app.store.connection.database.execute("set default_transaction_read_only = on")
        with pytest.raises(Unavailable, match="read-only"):
            app.job_types["quick"].enqueue(i=1)
        app.job_types["quick"].enqueue(i=2)


@pytest.mark.claim("C2", "C7")
@pytest.mark.fault(5, "pool exhausted")
@pytest.mark.parametrize("full", sizes(False, True))
def test_work_goes_on_when_a_neighbour_that_had_every_connection_leaves(
    server: Server, tmp_path: Path, fault: Fault, full: bool
) -> None:
    url = server.create("load")
    with fleet(url, tmp_path, 2) as (app, crew), load(app, url, fault, full) as jobs:
        rate = jobs.typical(7 if full else 1)
        with long_jobs(app, tmp_path), ExitStack() as neighbours:
            for each in crew.each:
                each.send(signal.SIGSTOP)
            ours = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'holdfast%'"
            run(server, ours)
            with suppress(psycopg.OperationalError):
                while True:
                    neighbours.enter_context(psycopg.connect(server.url(), autocommit=True))
            for each in crew.each:
                each.send(signal.SIGCONT)
            fault.injected("every connection taken by a neighbour, for longer than lost_after")
            time.sleep(OUTAGE)
            assert jobs.rate() == 0
            neighbours.close()
            back(fault, jobs, rate, full)
        if full:
            as_before(fault, jobs, rate, crew)


@pytest.mark.claim("C7")
@pytest.mark.fault(5, "a neighbour idle in transaction with locks on waiting jobs")
def test_a_neighbour_idle_in_transaction_keeps_only_what_it_has_locked(postgres_url: str, instance: str) -> None:
    with make_app(postgres_url, instance) as app, psycopg.connect(postgres_url) as neighbour:
        jobs = app.job_types["quick"].enqueue_many([{"i": i} for i in range(200)])
        locked = neighbour.execute(f"select id from {instance}__ready order by id limit 50 for update".encode())
        ids = {job_id for (job_id,) in locked.fetchall()}
        with app.worker():
            until(lambda: len(app.find(status="completed", limit=500)) == 150, what="all others are done")
            assert {job.id for job in app.find(state="initial", limit=500)} == ids
            neighbour.rollback()
            assert {job.wait(60).outcome for job in jobs} == {"success"}


@pytest.mark.claim("C7")
@pytest.mark.fault(5, "a neighbour idle in transaction with the lock of a queue")
def test_a_queue_whose_lock_a_neighbour_keeps_does_not_stop_the_others(
    postgres_url: str, instance: str, caplog: pytest.LogCaptureFixture
) -> None:
    with standing.make_app(postgres_url, instance) as app, psycopg.connect(postgres_url) as neighbour:
        limited, free = (app.job_types[name] for name in ("slot", "send"))
        chain = app.workflow("chain", queue="free")
        for number in range(3):
            chain.step(name=f"s{number}", after=[f"s{number - 1}"] if number else [])(lambda task: None)
        limited.enqueue(i=0)
        neighbour.execute(f"select 1 from {instance}__queue where name = 'limited' for update".encode())
        with app.worker():
            run = chain.submit("t")
            for i in range(3):
                assert free.enqueue(i=i).unwrap(30) == i
            assert run.wait(30).state == "SUCCESS"
            assert "A turn failed" not in caplog.text
            assert [job.state for job in app.find(queue="limited")] == ["initial"]
            neighbour.rollback()
            until(lambda: app.find(queue="limited")[0].state == "final", what="it is claimed when the lock is free")


@pytest.mark.claim("C2", "C7")
@pytest.mark.fault(2, "SIGSTOP inside a claim, with the queue's lock")
def test_a_worker_that_stands_still_inside_a_claim_stops_nobody_for_long(
    postgres_url: str, instance: str, tmp_path: Path, fault: Fault
) -> None:
    mark = tmp_path / "stopped"
    with standing.make_app(postgres_url, instance) as app:
        held = app.job_types["slot"].enqueue_many([{"i": i} for i in range(5)])
        with worker(postgres_url, tmp_path, module="tests.faults.standing", name=instance, more=(str(mark),)) as one:
            until(mark.exists, what="it stands still")
            began = time.monotonic()
            with app.worker():
                assert app.job_types["send"].enqueue(i=7).unwrap(30) == 7
                assert [job.unwrap(30) for job in held] == list(range(5))
                fault.injected("a worker stopped inside a claim")
                fault.measured(recovery=time.monotonic() - began)
                one.send(signal.SIGCONT)
                assert app.job_types["slot"].enqueue(i=8).unwrap(30) == 8


@pytest.mark.claim("C7")
def test_whoever_waits_for_a_lock_is_told_when_patience_ends(postgres_url: str, instance: str) -> None:
    with make_app(postgres_url, instance) as app, App(postgres_url, name=instance, patience=0.3) as hasty:
        quick = app.job_types["quick"]
        quick.enqueue(i=0)
        with app.transaction() as connection:
            quick.using(job_key="k").enqueue(i=1)
            with pytest.raises(Unavailable, match="lock"):
                hasty.enqueue("work", "quick", {"i": 2}, job_key="k")
            connection.execute(f"lock table {instance}__ready".encode())
            with pytest.raises(Unavailable, match=r"lock.*Nothing was changed"):
                hasty.enqueue("work", "quick", {"i": 3})
        assert [job.payload["i"] for job in app.find(queue="work")] == [1, 0]
        with psycopg.connect(postgres_url) as neighbour, app.transaction() as connection:
            assert connection.execute("show lock_timeout").fetchone()[0] == "0"  # the caller's own statements may wait
            neighbour.rollback()


def test_an_instance_is_set_up_when_whoever_sets_up_another_has_ended_however_long_it_took(
    postgres_url: str, instance: str
) -> None:
    with psycopg.connect(postgres_url) as neighbour, App(postgres_url, name=instance, patience=0.1) as hasty:
        neighbour.execute("select pg_advisory_xact_lock(4801, 1)")
        later = threading.Timer(0.5, neighbour.rollback)
        later.start()
        assert hasty.find() == []
        later.join()


@pytest.mark.claim("C7")
@pytest.mark.fault(5, "a session that was ended while nobody used it")
def test_the_first_enqueue_after_a_restart_connects_anew(server: Server, fault: Fault) -> None:
    with make_app(server.create("idle")) as app:
        for times in range(3):
            app.job_types["quick"].enqueue(i=times)
            server.restart("fast")
            fault.injected("a restart between two enqueues")
            assert app.job_types["quick"].enqueue(i=times).id
            server.restart("fast")
            assert len(app.job_types["quick"].enqueue_many([{"i": i} for i in range(3)])) == 3


@pytest.mark.claim("C7")
@pytest.mark.fault(5, "NOTIFY dropped silently")
def test_a_worker_that_hears_nothing_notices_it_and_looks(
    postgres: Server, postgres_url: str, instance: str, tmp_path: Path, fault: Fault
) -> None:
    proxy = Proxy(tmp_path / "proxy", postgres.folder)
    try:
        with make_app(proxy.url(postgres_url.partition("@/")[2].partition("?")[0]), instance) as app:
            with app.worker(poll=3600.0), make_app(postgres_url, instance) as elsewhere:
                quick = elsewhere.job_types["quick"]
                assert quick.enqueue(i=0).unwrap(60) == 0
                proxy.deaf = True
                until(lambda: proxy.swallowed > 0, what="something was told in vain")
                for i in range(2):
                    assert quick.enqueue(i=i).unwrap(60) == i
            fault.injected("a notification that is not passed on", proxy.swallowed)
            fault.check(postgres_url, instance)
    finally:
        proxy.close()


@pytest.mark.claim("C7", "R1", "W3")
@pytest.mark.fault(5, "PgBouncer in transaction mode")
@pytest.mark.parametrize("mode", ["transaction", pytest.param("session", marks=pytest.mark.faults)])
@pytest.mark.parametrize("prepared", [0, pytest.param(100, marks=pytest.mark.faults)])
@pytest.mark.parametrize("full", sizes(False, True))
def test_everything_works_behind_pgbouncer(
    server: Server, tmp_path: Path, fault: Fault, mode: str, prepared: int, full: bool
) -> None:
    server.create("load")
    bouncer = Bouncer(server, tmp_path / "bouncer", mode, prepared)
    try:
        url = bouncer.url("load")
        with fleet(url, tmp_path, 1) as (app, crew):
            everything(app)
            with load(app, url, fault, full) as jobs:
                rate = jobs.typical(7 if full else 1)
                with long_jobs(app, tmp_path):
                    for time_down in (0.0, OUTAGE):
                        bouncer.stop()
                        time.sleep(time_down)
                        bouncer.start()
                        fault.injected("restart of PgBouncer")
                        back(fault, jobs, rate, full)
                if full:
                    as_before(fault, jobs, rate, crew)
        untouched(url)
    finally:
        bouncer.stop()


def everything(app: App) -> None:
    """What uses a session in some way: keys, transactions, limits, aborts, notes."""
    quick, nap = app.job_types["quick"], app.job_types["nap"]
    assert quick.enqueue(i=1).unwrap(60) == 1
    first, second = (nap.using(job_key="one").enqueue(seconds=30) for _ in range(2))
    assert first.id == second.id
    with app.transaction():
        inside = quick.enqueue(i=2)
    assert inside.unwrap(60) == 2
    app.limit("work", 5)
    assert [job.unwrap(60) for job in quick.enqueue_many([{"i": i} for i in range(20)])] == list(range(20))
    app.limit("work", None)
    until(lambda: first.refresh().state == "running", what="it runs")
    app.abort(first.id)
    assert first.wait(60).outcome == "aborted"


def untouched(url: str) -> None:
    """No session of the pool listens, or has a setting that a stranger would inherit."""
    with ExitStack() as stack:
        for _ in range(8):
            sql = stack.enter_context(psycopg.connect(url, prepare_threshold=None))
            found = sql.execute(
                "select current_setting('enable_seqscan'), (select count(*) from pg_listening_channels())"
            )
            assert found.fetchone() == ("on", 0)


@pytest.mark.claim("W2")
@pytest.mark.fault(5, "a neighbour with an old snapshot at full load")
@pytest.mark.parametrize("minutes", [pytest.param(5, marks=[pytest.mark.faults, pytest.mark.timeout(900)])])
def test_half_of_the_rate_is_left_beside_an_old_snapshot(
    server: Server, tmp_path: Path, fault: Fault, minutes: int
) -> None:
    url = server.create("load")
    with fleet(url, tmp_path, 1) as (app, crew), load(app, url, fault) as jobs:
        jobs.rate(4)
        before = jobs.rate(15)
        with old_snapshot(url):
            beside = [jobs.rate(60) for _ in range(minutes)]
            urgent = app.job_types["quick"].using(priority=1).enqueue(i=7)
            asked = time.monotonic()
            urgent.unwrap(60)
            late = time.monotonic() - asked
        after = jobs.rate(15)
        as_before(fault, jobs, before, crew)
        fault.injected(f"a snapshot held for {minutes} minutes")
        fault.measured(shares=[round(each / before, 2) for each in beside], rate=round(before), urgent=round(late, 2))
    told = f"{before:.0f} a second, beside it {', '.join(f'{each:.0f}' for each in beside)}, then {after:.0f}"
    assert statistics.mean(beside) >= HALF * before, told
    assert min(beside) >= HALF * NEARLY * before, told
    assert late <= URGENT, f"what is urgent was begun only after {late:.1f} s"


@contextmanager
def old_snapshot(url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(url) as neighbour:
        neighbour.execute("set transaction isolation level repeatable read")
        neighbour.execute("select count(*) from pg_class")
        yield neighbour
        neighbour.rollback()
