"""Locks that somebody keeps on PostgreSQL, because a process was stopped or a person forgot a transaction: nobody else stands still."""

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import WAIT, App, Failed, Progress, Unavailable, current_job, per_key
from holdfast.clock import MovableClock, monotonic
from holdfast.jobs import schedules, throttlers
from holdfast.jobs.job import Situation
from holdfast.jobs.states import Waited
from holdfast.stores.contract import Claimed, Done, NewJob, Note, QueueDeclared, Report, TypeRow, Want
from holdfast.stores.open import open_store
from holdfast.stores.postgres.connection import Connection
from holdfast.stores.postgres.jobs import PostgresStore
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.sweeper import Sweeper
from tests.by_hand import WorkerByHand, add
from tests.faults import standing
from tests.faults.fleet import until

pytestmark = pytest.mark.claim("C7")
Neighbour = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def neighbour(postgres_url: str) -> Iterator[Neighbour]:
    with psycopg.connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def held_up(postgres_url: str, instance: str, clock: MovableClock) -> Iterator[PostgresStore]:
    """The store of a worker, which gives way; its instance has a queue `mail` and a limited one."""
    store = open_store(postgres_url, instance, clock)
    assert isinstance(store, PostgresStore)
    store.set_up()
    declared = [QueueDeclared(name, f"{instance}_{name}") for name in ("mail", "limited")]
    store.register(declared, [TypeRow(job_type="send", queue="mail", has_handler=True)])
    store.limit("limited", 3, "test")
    other = store.another(None)
    other.give_way(30.0, 0.05)
    other.queues()
    yield other
    other.close()
    store.close()


def keep(neighbour: Neighbour, instance: str, table: str, condition: str) -> None:
    neighbour.execute(f"select 1 from {instance}__{table} where {condition} for update".encode())


def stay_in_a_transaction(app: App) -> None:
    with app.transaction() as connection:
        connection.execute("set local transaction_timeout = '50ms'")
        connection.execute("select pg_sleep(30)")


@pytest.mark.fault(5, "a neighbour idle in transaction with the lock of a job that is due")
def test_a_job_that_cannot_be_claimed_keeps_no_other_from_it(
    postgres_url: str, instance: str, neighbour: Neighbour
) -> None:
    with App(postgres_url, name=instance, heartbeat=0.2) as app:

        @app.queue("mail").job
        def send(i: int) -> int:
            return i

        @app.queue("post").job
        def post(i: int) -> int:
            return i

        first = send.enqueue(i=1)
        keep(neighbour, instance, "job", f"id = {first.id}")
        with app.worker():
            for round_ in range(3):
                assert [job.unwrap(20) for job in (send.enqueue(i=2), post.enqueue(i=3))] == [2, 3], round_
            assert first.refresh().state == "initial"
            neighbour.rollback()
            assert first.unwrap(20) == 1


@pytest.mark.claim("W3", "W4")
@pytest.mark.parametrize(
    "throttled", [{"throttle_limit": 1}, {"throttler": per_key("i", 1)}], ids=["limit", "throttler"]
)
@pytest.mark.fault(5, "a neighbour idle in transaction with the lock of a job that is due on a throttled queue")
def test_a_job_that_cannot_be_claimed_keeps_no_other_of_a_throttled_queue_from_it(
    postgres_url: str, instance: str, neighbour: Neighbour, throttled: dict[str, Any]
) -> None:
    with App(postgres_url, name=instance, heartbeat=0.2) as app:

        @app.queue("limited", **throttled).job
        def slot(i: int) -> int:
            return i

        first = slot.enqueue(i=1)
        keep(neighbour, instance, "job", f"id = {first.id}")
        with app.worker():
            for round_ in range(3):
                assert [job.unwrap(20) for job in (slot.enqueue(i=2), slot.enqueue(i=3))] == [2, 3], round_
            assert first.refresh().state == "initial"
            neighbour.rollback()
            assert first.unwrap(20) == 1


def limited(store: PostgresStore, *factors: float) -> list[int]:
    return [add(store, queue="limited", throttle_factor=factor).id for factor in factors]


def claim(worker: WorkerByHand, room: int = 20, done: Sequence[Claimed] = ()) -> list[Claimed]:
    """From the limited queue, with free slots for all of it."""
    ends, leases = [Done(call, 0.1, None) for call in done], [call.lease for call in done]
    return list(worker.turn(done=ends, ended_leases=leases, wants=[Want("limited", room, room)]).claimed)


@pytest.mark.claim("W3")
def test_a_job_that_somebody_keeps_reserves_nothing_under_a_limit_until_it_is_let_go(
    held_up: PostgresStore, instance: str, neighbour: Neighbour
) -> None:
    worker = WorkerByHand(held_up, queues=("limited",))
    heavy, *light = limited(held_up, 3, 1, 1)
    keep(neighbour, instance, "job", f"id = {heavy}")
    calls = claim(worker)
    assert [call.id for call in calls] == light
    later = limited(held_up, 1, 1)
    (third,) = claim(worker)
    assert (third.id, claim(worker)) == (later[0], [])  # three of three are used
    neighbour.rollback()
    assert claim(worker, done=calls) == []  # what is free is reserved for it again
    assert [call.id for call in claim(worker, done=[third])] == [heavy]


@pytest.mark.claim("W3")
def test_a_locked_job_of_a_throttled_queue_does_not_cost_the_queue_a_rest(
    held_up: PostgresStore, instance: str, neighbour: Neighbour
) -> None:
    worker = WorkerByHand(held_up, ("send",), ("mail", "limited"))
    kept, other = limited(held_up, 1, 1)
    free = add(held_up).id
    keep(neighbour, instance, "job", f"id = {kept}")
    answer = worker.turn(wants=[Want("mail", 1), Want("limited", 3, 3)])
    assert (sorted(call.id for call in answer.claimed), answer.locked) == ([other, free], ())


@pytest.mark.claim("W4")
def test_a_locked_job_that_stands_aside_keeps_no_other_of_its_pool_from_starting(
    held_up: PostgresStore, instance: str, neighbour: Neighbour
) -> None:
    declared = QueueDeclared("limited", f"{instance}_limited", throttler=throttlers.encode(per_key("key", 1)))
    held_up.register([declared], [])
    worker = WorkerByHand(held_up, queues=("limited",))
    jobs = [add(held_up, queue="limited", payload='{"key":"a"}').id for _ in range(60)]
    (call,) = claim(worker)
    assert claim(worker) == []
    ((aside,),) = neighbour.execute(f"select min(id) from {instance}__aside".encode())
    assert (call.id, aside) == (jobs[0], jobs[1])
    keep(neighbour, instance, "job", f"id = {jobs[1]}")
    assert [call.id for call in claim(worker, done=[call])] == [jobs[2]]


@pytest.mark.claim("W4")
def test_a_job_that_somebody_is_aborting_keeps_no_other_from_standing_aside(
    held_up: PostgresStore, instance: str, neighbour: Neighbour
) -> None:
    heavy = limited(held_up, *[3] * 40)
    light = limited(held_up, 1)
    held_up.limit("limited", 2, "test")
    # As an abort has both when its process is stopped.
    keep(neighbour, instance, "job", f"id = {heavy[30]}")
    neighbour.execute(f"delete from {instance}__ready where id = {heavy[30]}".encode())
    worker = WorkerByHand(held_up, queues=("limited",))
    assert [call.id for call in claim(worker)] == light


@pytest.mark.parametrize("outcome", ["success", "failed"])
@pytest.mark.fault(5, "a neighbour idle in transaction with the lock of a job that ends")
def test_an_end_that_cannot_be_stored_keeps_no_other_from_it(
    postgres_url: str, instance: str, neighbour: Neighbour, outcome: str
) -> None:
    ends = threading.Event()
    with App(postgres_url, name=instance, heartbeat=0.2) as app:

        @app.queue("mail").job
        def send(i: int) -> int:
            return i

        @app.queue("mail").job
        def long(i: int) -> int:
            ends.wait(60)
            if outcome == "failed":
                raise Failed("as expected")
            return i

        with app.worker(concurrency=5):
            kept, *others = (long.enqueue(i=i) for i in range(5))
            until(lambda: {each.refresh().state for each in (kept, *others)} == {"running"}, what="all run")
            keep(neighbour, instance, "job", f"id = {kept.id}")
            ends.set()
            assert [other.wait(10).outcome for other in others] == [outcome] * 4
            assert [send.enqueue(i=i).unwrap(10) for i in range(5)] == list(range(5))
            assert kept.refresh().state == "running"
            neighbour.rollback()
            assert kept.wait(30).outcome == outcome
        assert kept.refresh().attempt == 1


@pytest.mark.claim("W6")
@pytest.mark.fault(5, "a neighbour idle in transaction with the key that a schedule wants")
def test_a_schedule_whose_key_somebody_keeps_stops_no_other(
    held_up: PostgresStore, instance: str, neighbour: Neighbour, clock: MovableClock
) -> None:
    keys = ["a", "kept", "z"]
    held_up.declare_schedules(
        [schedules.make(key, job_type="send", every=60, options={"job_key": key}) for key in keys]
    )
    clock.advance(60)
    neighbour.execute(f"insert into {instance}__key (job_type, job_key, id) values ('send', 'kept', 999)".encode())
    first = held_up.fire_due()
    assert (first.count, [told.split(":")[0] for told in first.told]) == (2, ["Schedule `kept` is left for later"])
    assert held_up.fire_due().count == 0
    neighbour.rollback()
    assert held_up.fire_due().count == 1
    assert [len(held_up.firings(key, 10)) for key in keys] == [1, 1, 1]


@pytest.mark.claim("R7", "R8")
@pytest.mark.fault(5, "a neighbour idle in transaction with the lock of a job that speaks")
def test_what_a_job_says_does_not_wait_for_another_that_somebody_keeps(
    postgres_url: str, instance: str, neighbour: Neighbour
) -> None:
    speak, saved, end = threading.Event(), threading.Event(), threading.Event()
    with App(postgres_url, name=instance, heartbeat=0.2) as app:

        @app.queue("mail").job
        def speaks(i: int) -> None:
            speak.wait(60)
            current_job().progress(i, "said")
            current_job().log("said")
            if i:
                current_job().checkpoint = i
                saved.set()
            end.wait(60)

        with app.worker(concurrency=2):
            kept, other = (speaks.enqueue(i=i) for i in range(2))
            until(lambda: {kept.refresh().state, other.refresh().state} == {"running"}, what="both run")
            keep(neighbour, instance, "job", f"id = {kept.id}")
            speak.set()
            assert saved.wait(10)
            assert [[line.text for line in job.log()] for job in (kept, other)] == [[], ["said"]]
            neighbour.rollback()
            until(lambda: kept.refresh().progress == Progress(0.0, "said"), timeout=10, what="it is heard")
            end.set()
            kept.wait(20)
        assert [line.text for line in kept.log()] == ["said"]


@pytest.mark.claim("R7")
def test_notes_tell_of_jobs_that_somebody_keeps(held_up: PostgresStore, instance: str, neighbour: Neighbour) -> None:
    jobs = [add(held_up).id for _ in range(3)]
    worker = WorkerByHand(held_up)
    calls = worker.claim(3)
    worker.succeed(calls[2])
    keep(neighbour, instance, "job", f"id in ({jobs[0]}, {jobs[2]})")
    notes = [Note(call.id, call.attempt, call.queue, checkpoint="1") for call in calls]
    assert held_up.note(notes, waits=False) == [None, True, False]
    with pytest.raises(Unavailable):
        held_up.note(notes)
    neighbour.rollback()
    assert held_up.note(notes, waits=False) == [True, True, False]


@pytest.mark.claim("C5")
@pytest.mark.fault(5, "a neighbour idle in transaction with the lock of a job that ends")
def test_a_worker_stops_although_somebody_keeps_the_lock_of_its_job(
    postgres_url: str, instance: str, neighbour: Neighbour
) -> None:
    ends = threading.Event()
    with App(postgres_url, name=instance, heartbeat=0.2, lost_after=1.0) as app:

        @app.queue("mail").job
        def long() -> int:
            ends.wait(60)
            return 7

        with app.worker():
            job = long.enqueue()
            until(lambda: job.refresh().state == "running", what="it runs")
            keep(neighbour, instance, "job", f"id = {job.id}")
            ends.set()
            began = monotonic()
        assert monotonic() - began < 30
        neighbour.rollback()
        with app.worker():
            assert job.unwrap(30) == 7  # it could not be handed back, so its worker is missed first


@pytest.mark.claim("C2", "C4")
def test_jobs_of_lost_workers_are_recovered_but_for_what_somebody_keeps(
    held_up: PostgresStore, instance: str, neighbour: Neighbour
) -> None:
    kept, other = add(held_up), add(held_up)
    lost = WorkerByHand(held_up)
    assert len(lost.claim(2)) == 2
    keep(neighbour, instance, "job", f"id = {kept.id}")
    assert held_up.lose(lost.id) == 1
    assert [held_up.get(job.id).situation for job in (kept, other)] == [Situation.HELD, Situation.LOOSE]
    again = WorkerByHand(held_up)
    (call,) = again.claim(2)
    assert (call.id, held_up.recover_strays()) == (other.id, 0)
    neighbour.rollback()
    assert held_up.recover_strays() == 1
    assert [held_up.get(job.id).situation for job in (kept, other)] == [Situation.LOOSE, Situation.HELD]
    assert [lease["worker"] for lease in held_up.rows("leases_of", {"worker": lost.id})] == []
    assert again.succeed(call, *again.claim()) == 0


@pytest.mark.claim("C2", "C4")
@pytest.mark.fault(5, "a neighbour idle in transaction with the lock of what a sweeper needs")
def test_a_sweeper_goes_on_with_what_nobody_keeps(postgres_url: str, instance: str, neighbour: Neighbour) -> None:
    with standing.make_app(postgres_url, instance) as app:
        jobs = [app.job_types["send"].enqueue(i=i) for i in range(2)]
        for _ in jobs:
            assert WorkerByHand(app.store, ("send",), ("free",)).claim(1, "free")  # and is heard of no more
        keep(neighbour, instance, "job", f"id = {jobs[0].id}")
        keep(neighbour, instance, "worker", f"id = (select min(id) from {instance}__worker)")
        with app.worker():
            assert jobs[1].unwrap(30) == 1
            neighbour.rollback()
            assert jobs[0].unwrap(30) == 0


@pytest.mark.claim("R4")
def test_what_is_overdue_ends_but_for_what_somebody_keeps(
    held_up: PostgresStore, instance: str, neighbour: Neighbour, clock: MovableClock
) -> None:
    jobs = [add(held_up, timeout=5.0, retries=0) for _ in range(2)]
    worker = WorkerByHand(held_up)
    for call in worker.claim(2):
        worker.tell(call, Waited(timeout=5.0, named=True))
    clock.advance(10)
    keep(neighbour, instance, "job", f"id = {jobs[0].id}")
    held_up.end_overdue()
    assert [held_up.get(job.id).state for job in jobs] == ["running", "final"]
    neighbour.rollback()
    held_up.end_overdue()
    assert [held_up.get(job.id).state for job in jobs] == ["final", "final"]


@pytest.mark.claim("J10")
def test_what_was_to_be_aborted_ends_but_for_what_somebody_keeps(
    held_up: PostgresStore, instance: str, neighbour: Neighbour, clock: MovableClock
) -> None:
    jobs = [add(held_up).id for _ in range(2)]
    WorkerByHand(held_up).claim(2)  # and does not obey
    for job_id in jobs:
        held_up.abort(job_id, "ann")
    clock.advance(20)
    keep(neighbour, instance, "job", f"id = {jobs[0]}")
    assert held_up.end_old_aborts(10) == 1
    assert [held_up.get(job_id).state for job_id in jobs] == ["running", "final"]
    neighbour.rollback()
    assert held_up.end_old_aborts(10) == 1
    assert held_up.get(jobs[0]).outcome == "aborted"


@pytest.mark.claim("W1", "W5")
@pytest.mark.parametrize(
    ("place", "kept"), [("ready", 1), ("parked", 1), ("ready", 1001), ("parked", 1001), ("aside", 1001)]
)
def test_what_may_not_start_any_more_leaves_the_line_but_for_what_somebody_keeps(
    held_up: PostgresStore, instance: str, neighbour: Neighbour, clock: MovableClock, place: str, kept: int
) -> None:
    worker = WorkerByHand(held_up, queues=("limited",))
    expires = clock.now() + timedelta(seconds=5)
    new = NewJob("limited", "send", "{}", throttle_factor=3, expires_time=expires)
    jobs = [job.id for job in held_up.add([new] * (kept + 1))]
    if place == "parked":
        held_up.park([])
    if place == "aside":
        held_up.limit("limited", 2, "test")
        assert claim(worker, 2000) == []
    assert neighbour.execute(f"select count(*) from {instance}__{place}".encode()).fetchone() == (kept + 1,)
    neighbour.rollback()
    clock.advance(10)
    keep(neighbour, instance, "job", f"id <> {jobs[-1]}")
    assert (held_up.shut(), held_up.get(jobs[-1]).outcome) == (1, "error")
    assert held_up.shut() == 0  # and nobody hurries
    assert held_up.get(jobs[0]).state == "initial"
    neighbour.rollback()
    while held_up.shut():
        pass
    assert neighbour.execute(f"select distinct outcome from {instance}__job".encode()).fetchall() == [("error",)]
    assert not held_up.pulse().shut


def test_hints_of_jobs_that_are_gone_are_dropped_when_they_close(
    held_up: PostgresStore, instance: str, neighbour: Neighbour, clock: MovableClock
) -> None:
    add(held_up, expires_time=clock.now() + timedelta(seconds=5))
    neighbour.execute(f"update {instance}__ready set id = id + 1000".encode())
    neighbour.commit()
    clock.advance(10)
    assert held_up.pulse().shut
    assert (held_up.shut(), held_up.pulse().shut) == (0, False)


@pytest.mark.claim("R4")
def test_what_is_overdue_is_not_hidden_by_many_that_somebody_keeps(
    held_up: PostgresStore, instance: str, neighbour: Neighbour, clock: MovableClock
) -> None:
    jobs = [job.id for job in held_up.add([NewJob("mail", "send", "{}", timeout=5.0, retries=0)] * 1002)]
    worker = WorkerByHand(held_up)
    calls = worker.claim(2000)
    reports = [Report(call.id, Waited(timeout=5.0, named=True), attempt=call.attempt) for call in calls]
    worker.turn(reports=reports, ended_leases=list({call.lease for call in calls}))
    clock.advance(10)
    keep(neighbour, instance, "job", f"id <> {jobs[-1]}")
    assert held_up.end_overdue() is None  # and nobody hurries for the others
    assert [held_up.get(job_id).state for job_id in (jobs[0], jobs[-1])] == ["running", "final"]
    neighbour.rollback()
    while held_up.end_overdue() is not None:
        pass
    assert neighbour.execute(f"select distinct state from {instance}__job".encode()).fetchall() == [("final",)]


@pytest.mark.claim("C4")
def test_jobs_of_lost_workers_are_not_hidden_by_many_that_somebody_keeps(
    held_up: PostgresStore, instance: str, neighbour: Neighbour
) -> None:
    lost = WorkerByHand(held_up, queues=("limited",))
    held_up.limit("limited", 2000, "test")
    jobs = limited(held_up, *[1] * 1002)
    calls = claim(lost, 2000) + claim(lost, 2000)
    assert len({call.lease for call in calls}) == 1002
    keep(neighbour, instance, "job", "true")
    assert lost.die() == 0
    neighbour.rollback()
    keep(neighbour, instance, "job", f"id <> {jobs[-1]}")
    assert held_up.recover_strays() == 1
    assert held_up.get(jobs[-1]).situation is Situation.LOOSE
    neighbour.rollback()
    assert held_up.recover_strays() + held_up.recover_strays() == 1001


@pytest.mark.claim("F16")
def test_tasks_of_runs_are_aborted_but_for_what_somebody_keeps(
    postgres_url: str, instance: str, neighbour: Neighbour
) -> None:
    with App(postgres_url, name=instance, patience=0.2) as app:
        workflow = app.workflow("fan")
        workflow.step(name="part", shards=3)(lambda task: None)
        runs = [workflow.submit(f"t{i}") for i in range(2)]
        tasks = [sorted(task.job.id for task in run.steps["part"].tasks()) for run in runs]
        for run, (first, *others) in zip(runs, tasks, strict=True):
            keep(neighbour, instance, "job", f"id = {first}")
            with pytest.raises(Unavailable, match="lock"):
                run.abort()
            assert [app.get(job_id).outcome for job_id in (first, *others)] == [None, "aborted", "aborted"]
        neighbour.rollback()
        keep(neighbour, instance, "job", f"id = {tasks[0][0]}")
        with pytest.raises(Unavailable, match="lock"):
            app.store.go_on_aborting()
        assert [app.get(each[0]).outcome for each in tasks] == [None, "aborted"]
        neighbour.rollback()
        assert (app.store.go_on_aborting(), app.get(tasks[0][0]).outcome) == (1, "aborted")
        assert not app.store.pulse().aborting


@pytest.mark.claim("J10")
def test_wishes_to_end_a_job_are_not_hidden_by_many_that_somebody_keeps(
    held_up: PostgresStore, instance: str, neighbour: Neighbour, clock: MovableClock
) -> None:
    jobs = [job.id for job in held_up.add([NewJob("mail", "send", "{}")] * 1002)]
    WorkerByHand(held_up).claim(2000)  # and does not obey
    for job_id in jobs:
        held_up.abort(job_id, "ann")
    clock.advance(20)
    keep(neighbour, instance, "job", f"id <> {jobs[-1]}")
    assert held_up.end_old_aborts(10) == 1
    assert held_up.get(jobs[-1]).outcome == "aborted"


@pytest.mark.claim("C4")
def test_forgotten_jobs_are_found_but_for_what_somebody_keeps(
    held_up: PostgresStore, instance: str, neighbour: Neighbour, clock: MovableClock
) -> None:
    jobs = [add(held_up).id for _ in range(2)]
    neighbour.execute(f"delete from {instance}__ready".encode())
    neighbour.commit()
    clock.advance(100)
    keep(neighbour, instance, "job", f"id = {jobs[0]}")
    assert held_up.restore(0, 1000, 60.0) == (0, 1)
    assert [call.id for call in WorkerByHand(held_up).claim(2)] == [jobs[1]]
    neighbour.rollback()
    assert held_up.restore(0, 1000, 60.0) == (0, 1)


@pytest.mark.claim("R4")
def test_sweeps_do_not_hurry_for_a_deadline_of_what_somebody_keeps(
    held_up: PostgresStore, instance: str, neighbour: Neighbour, clock: MovableClock
) -> None:
    worker, settings = WorkerByHand(held_up), WorkerSettings()
    sweeper = Sweeper(held_up.another(), settings, clock, lambda: worker.id, lambda: 0, lambda _: None, lambda: None)
    kept, other = (add(held_up, timeout=seconds, retries=0) for seconds in (5.0, 11.0))
    for call, job in zip(worker.claim(2), (kept, other), strict=True):
        worker.tell(call, Waited(timeout=job.timeout, named=True))
    clock.advance(10)
    keep(neighbour, instance, "job", f"id = {kept.id}")
    assert sweeper.sweep() == pytest.approx(1)  # for the other one
    clock.advance(1)
    assert sweeper.sweep() == min(settings.heartbeat, settings.lost_after / 4) > 1
    neighbour.rollback()
    sweeper.sweep()
    assert [held_up.get(job.id).state for job in (kept, other)] == ["final", "final"]
    sweeper.close()


@pytest.mark.timeout(30)
def test_whoever_runs_until_idle_does_not_wait_for_the_end_of_what_somebody_keeps(
    postgres_url: str, instance: str, neighbour: Neighbour, clock: MovableClock
) -> None:
    with App(postgres_url, name=instance, patience=0.2, clock=clock) as app:

        @app.queue("mail").job(timeout=5, retries=0)
        def ask() -> Any:
            return WAIT

        job = ask.enqueue()
        assert app.run_until_idle() == 1
        clock.advance(10)
        keep(neighbour, instance, "job", f"id = {job.id}")
        assert (app.run_until_idle(), job.refresh().state) == (0, "running")
        neighbour.rollback()
        assert (app.run_until_idle(), job.refresh().outcome) == (0, "error")


@pytest.mark.claim("W3")
def test_a_turn_says_which_queues_it_could_not_ask(held_up: PostgresStore, instance: str, neighbour: Neighbour) -> None:
    worker, job = WorkerByHand(held_up, ("send",), ("mail", "limited")), add(held_up)
    keep(neighbour, instance, "queue", "name = 'limited'")
    answer = worker.turn(wants=[Want("mail", 1), Want("limited", 1)])
    assert ([call.id for call in answer.claimed], answer.locked, answer.full) == ([job.id], ["limited"], {})
    neighbour.rollback()
    assert worker.turn(wants=[Want("limited", 1)]).locked == ()


def test_whoever_runs_until_idle_is_told_of_a_queue_that_cannot_be_asked(
    postgres_url: str, instance: str, neighbour: Neighbour
) -> None:
    with App(postgres_url, name=instance, patience=0.2) as app:

        @app.queue("limited", throttle_limit=1).job
        def slot() -> None: ...

        slot.enqueue()
        keep(neighbour, instance, "queue", "name = 'limited'")
        with pytest.raises(Unavailable, match="lock"):
            app.run_until_idle()
        neighbour.rollback()
        assert app.run_until_idle() == 1


def test_a_transaction_that_the_server_ends_for_its_length_is_told_in_our_words(
    postgres_url: str, instance: str, neighbour: Neighbour
) -> None:
    if neighbour.info.server_version < 170000:
        pytest.skip("its server has no transaction_timeout")
    with App(postgres_url, name=instance) as app:
        app.store.queues()
        with pytest.raises(Unavailable, match="transaction timeout"):
            stay_in_a_transaction(app)


def test_behind_a_pooler_a_transaction_that_begins_again_has_its_settings(postgres_url: str) -> None:
    connection = Connection(postgres_url, 5)
    assert connection.database
    connection.pooled, connection.database.prepare_threshold = True, None  # as it is found behind one
    connection.database.execute("reset all")
    with connection.transaction():
        connection.database.execute("commit")
        connection.ended = True
        connection.begin_again()
        assert connection.database.execute("show enable_seqscan").fetchone() == ("off",)
    connection.close()
