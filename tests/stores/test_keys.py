"""Q5: at most one living job for a type and key, whoever enqueues, however many at once."""

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from holdfast import App, Conflict, DuplicateJob
from holdfast.clock import MovableClock
from holdfast.jobs.job import Job, State
from holdfast.stores.contract import Done, NewJob, Store
from tests.by_hand import WorkerByHand, add, declare
from tests.faults.fleet import until
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("Q5")


def declared(app: App) -> Any:
    @app.queue("mail").job
    def send(to: str = "") -> str:
        return to

    return send


def test_the_second_job_of_a_key_is_the_first_one_marked_duplicate(store: Store) -> None:
    first = add(store, job_key="k", payload='{"to":"a"}')
    second = add(store, job_key="k", payload='{"to":"b"}')

    assert not first.duplicate
    assert second.duplicate
    assert (second.id, second.payload) == (first.id, {"to": "a"})
    assert not store.get(first.id).duplicate


def test_a_key_belongs_to_its_type_and_no_key_to_nobody(store: Store) -> None:
    jobs = [add(store, job_key="k"), add(store, "print", job_key="k"), add(store, job_key="K"), add(store), add(store)]

    assert len({job.id for job in jobs}) == 5
    assert not any(job.duplicate for job in jobs)


class Watched(threading.Thread):
    """Looks at a key all the time: never are two of its jobs alive."""

    def __init__(self, url: str, instance: str) -> None:
        super().__init__(daemon=True)
        self.looks, self.seen, self.over = 0, set[int](), threading.Event()
        self._sql = RawSql(url, instance)

    def run(self) -> None:
        while not self.over.is_set():
            living = self._sql("select id from {job} where job_key = 'k' and state <> 'final'")
            self.seen.add(len(living))
            self.looks += 1

    def look(self) -> None:
        """Returns when there was a look that began after now."""
        enough = self.looks + 2
        while self.looks < enough:
            time.sleep(0)

    def __enter__(self) -> "Watched":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()
        self._sql.close()
        assert self.seen <= {0, 1}, "two living jobs of one key"


@pytest.mark.fault(9, "100 enqueues of one key at once")
@pytest.mark.parametrize("many", ["threads of one App", "five Apps"])
def test_a_hundred_simultaneous_enqueues_of_one_key_make_one_job(
    app: Callable[..., App], url: str, instance: str, many: str
) -> None:
    apps = [app()] if many == "threads of one App" else [app() for _ in range(5)]
    types = [declared(each) for each in apps]
    types[0].enqueue()  # the instance is set up before the race, which is about the key
    start = threading.Barrier(20)

    def enqueue(number: int) -> list[Job]:
        start.wait()
        return [types[number % len(types)].using(job_key="k").enqueue(to=str(number)) for _ in range(5)]

    with Watched(url, instance) as watched, ThreadPoolExecutor(20) as pool:
        jobs = [job for found in pool.map(enqueue, range(20)) for job in found]
        watched.look()

    assert len(jobs) == 100
    assert sum(job.duplicate for job in jobs) == 99
    assert len({job.id for job in jobs}) == 1
    (stored,) = apps[0].find(job_key="k")
    (winner,) = [job for job in jobs if not job.duplicate]
    assert stored.payload == winner.payload


def test_on_duplicate_raise_names_the_living_job_and_stores_nothing(store: Store, sql: RawSql) -> None:
    first = add(store, job_key="k")

    with pytest.raises(DuplicateJob, match=rf"Job {first.id} of type `send` with key `k` is still `initial`") as raised:
        add(store, job_key="k", on_duplicate="raise")

    assert raised.value.job == first
    assert isinstance(raised.value, Conflict)
    assert sql.value("select count(*) from {job}") == 1


def test_raise_among_many_stores_none_of_them(store: Store, sql: RawSql) -> None:
    first = add(store, job_key="k")
    jobs = [NewJob("mail", "send", "{}"), NewJob("mail", "send", "{}", job_key="k", on_duplicate="raise")]

    with pytest.raises(DuplicateJob):
        store.add(jobs)

    assert sql("select id from {job}") == [{"id": first.id}]


def test_replace_changes_payload_times_and_options_of_a_job_that_has_not_begun(
    store: Store, clock: MovableClock
) -> None:
    first = add(store, job_key="k", payload='{"to":"a"}')
    clock.advance(5)
    later, expires = clock.now() + timedelta(hours=1), clock.now() + timedelta(hours=2)

    replaced = add(
        store,
        job_key="k",
        payload='{"to":"b"}',
        scheduled_run_time=later,
        expires_time=expires,
        priority=7,
        timeout=8.0,
        throttle_factor=0.5,
        retries=9,
        time_windows=("00:00-23:59",),
        on_duplicate="replace",
    )

    assert replaced.duplicate
    job = store.get(first.id)
    assert (job.id, job.payload, job.scheduled_run_time, job.expires_time) == (first.id, {"to": "b"}, later, expires)
    assert (job.priority, job.timeout, job.throttle_factor, job.retries) == (7, 8.0, 0.5, 9)
    assert job.time_windows == ("00:00-23:59",)
    assert (job.create_time, job.update_time) == (first.create_time, clock.now())
    assert (job.state, job.attempt) == (State.INITIAL, 0)


def test_a_replaced_job_stands_in_the_claim_order_where_its_new_options_put_it(
    store: Store, clock: MovableClock
) -> None:
    first, second = add(store, job_key="k"), add(store)
    later = add(store, job_key="later", delay=60)
    add(store, job_key="k", priority=200, on_duplicate="replace")
    add(store, job_key="later", priority=1, on_duplicate="replace")

    assert [call.id for call in WorkerByHand(store).claim(10)] == [later.id, second.id, first.id]


@pytest.mark.parametrize("state", ["held", "loose", "error", "undecided"])
def test_replace_loses_to_a_claim_and_then_is_as_return(
    store: Store, sql: RawSql, clock: MovableClock, state: str
) -> None:
    declare(store, has_retry_handler=state == "undecided")
    first = add(store, job_key="k", payload='{"to":"a"}')
    worker = WorkerByHand(store)
    call = worker.claim_one()
    if state == "loose":
        worker.hand_back(call)
    elif state != "held":
        worker.fail(call)
    before = sql.row(first.id)

    second = add(store, job_key="k", payload='{"to":"b"}', priority=1, on_duplicate="replace")

    assert second.duplicate
    assert sql.row(first.id) == before  # and, by the invariants, it can still be found


def test_a_key_is_free_again_when_its_job_is_final(store: Store, clock: MovableClock) -> None:
    worker, ids = WorkerByHand(store), []
    for end in (worker.succeed, lambda call: worker.fail(call, "failed"), lambda call: store.abort(call.id, "me")):
        job = add(store, job_key="k")
        assert not job.duplicate
        ids.append(job.id)
        call = worker.claim_one()
        assert add(store, job_key="k").id == job.id
        end(call)
        if end not in (worker.succeed,) and not store.get(job.id).final:
            worker.obey_abort(call)
        assert store.get(job.id).final
    ids.append(add(store, job_key="k").id)
    store.abort(ids[-1], "me")  # from `initial`
    ids.append(add(store, job_key="k").id)

    assert len(set(ids)) == 5
    assert sorted(ids) == ids


def test_a_key_stays_taken_through_error_retry_loss_and_snooze(store: Store, clock: MovableClock) -> None:
    job = add(store, job_key="k")
    for end in (WorkerByHand.fail, WorkerByHand.snooze, WorkerByHand.hand_back, lambda worker, _: worker.die()):
        worker = WorkerByHand(store)
        end(worker, worker.claim_one())
        assert add(store, job_key="k").id == job.id
        clock.advance(60)


@pytest.mark.parametrize("choice", ["return", "replace"])
def test_the_same_key_twice_in_one_call_is_one_job(store: Store, sql: RawSql, choice: str) -> None:
    jobs = store.add(
        [
            NewJob("mail", "send", '{"to":"a"}', job_key="k"),
            NewJob("mail", "send", '{"to":"b"}', job_key="k", on_duplicate=choice),
            NewJob("mail", "send", '{"to":"c"}', job_key="other"),
            NewJob("mail", "send", '{"to":"d"}', job_key="k", on_duplicate=choice),
        ]
    )

    assert [job.duplicate for job in jobs] == [False, True, False, True]
    assert jobs[0].id == jobs[1].id == jobs[3].id != jobs[2].id
    assert store.get(jobs[0].id).payload == {"to": "a" if choice == "return" else "d"}
    assert sql.value("select count(*) from {job}") == 2


def test_the_same_key_twice_in_one_call_with_raise_stores_nothing(store: Store, sql: RawSql) -> None:
    jobs = [NewJob("mail", "send", "{}", job_key="k"), NewJob("mail", "send", "{}", job_key="k", on_duplicate="raise")]

    with pytest.raises(DuplicateJob):
        store.add(jobs)

    assert sql.value("select count(*) from {job}") == 0
    assert not add(store, job_key="k").duplicate


def test_one_callers_duplicate_does_not_fail_another_who_came_at_the_same_time(store: Store) -> None:
    """Callers that wait for the store together share a transaction."""
    taken = add(store, job_key="k")
    started, answers = threading.Barrier(9), []

    def enqueue(number: int) -> None:
        started.wait()
        try:
            answers.append(add(store, job_key="k" if number % 2 else f"own{number}", on_duplicate="raise").id)
        except DuplicateJob as error:
            answers.append(error.job.id)

    threads = [threading.Thread(target=enqueue, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    with store.lock:  # type: ignore[attr-defined]
        started.wait()
        while len(store._adding) < 7:  # type: ignore[attr-defined]  # the first one goes alone
            pass
    for thread in threads:
        thread.join()

    assert answers.count(taken.id) == 4
    assert len(set(answers)) == 5


def test_a_key_may_be_any_text(store: Store) -> None:
    keys = ["a\tb", "a\\b", "\\N", "a\nb\r", "'; drop table x; --", "ключ", "😀", "{k}", '"', " ", "%s", ":id", "\\."]
    jobs = [add(store, job_key=key) for key in keys]
    many = store.add([NewJob("mail", "send", "{}", job_key=key) for key in keys])

    assert [store.get(job.id).job_key for job in jobs] == keys
    assert [job.id for job in many] == [job.id for job in jobs]
    assert all(job.duplicate for job in many)


SECOND = (
    "insert {how} into {{queue:mail}} "
    "(id, queue, job_type, job_key, create_time, priority, throttle_factor, payload, scheduled_run_time, update_time) "
    "select {id}, queue, job_type, job_key, create_time, 100, 1, '{{}}', create_time, create_time from {{queue:mail}} where id = :id {more}"
)


@pytest.mark.claim("J2")
def test_a_second_living_row_with_the_same_key_cannot_be_inserted_by_sql(store: Store, sql: RawSql) -> None:
    job = add(store, job_key="k")
    before = sql.row(job.id)
    ways = [("", ""), ("", "on conflict do nothing")]
    if not sql.postgres:
        ways += [(f"or {word}", "") for word in ("replace", "ignore", "fail", "abort", "rollback")]

    for how, more in ways:
        with sql.refused("living job with"):
            sql(SECOND.format(how=how, id="id + 1000", more=more), id=job.id)

    assert sql("select id from {job}") == [{"id": job.id}]
    assert sql.row(job.id) == before


@pytest.mark.claim("J3")
def test_a_row_cannot_be_replaced_by_inserting_over_it(store: Store, sql: RawSql) -> None:
    final = add(store, job_key="k")
    worker = WorkerByHand(store)
    worker.succeed(worker.claim_one())
    living = add(store)
    before = sql.row(final.id), sql.row(living.id)
    ways = [("", "")] if sql.postgres else [("", ""), ("or replace", ""), ("or ignore", "")]

    for job in (final, living):
        for how, more in ways:
            with sql.refused():
                sql(SECOND.format(how=how, id="id", more=more), id=job.id)

    assert (sql.row(final.id), sql.row(living.id)) == before


class Asked(NamedTuple):
    """One enqueue of the key, and when; `id` is None where its transaction was rolled back."""

    begun: int
    id: int | None
    duplicate: bool
    returned: int


@pytest.mark.fault(9, "an enqueue while the holder becomes final, and transactions that are rolled back")
def test_whoever_enqueues_while_the_holder_becomes_final_gets_it_or_its_successor(
    app: Callable[..., App], url: str, instance: str
) -> None:
    """Neither an error nor two living jobs, whatever the moment: who asks after the end does not get the one that ended."""
    tick, ends, asked = itertools.count().__next__, dict[int, tuple[int, int]](), list[Asked]()
    programs = [app() for _ in range(4)]
    sends = [declared(program) for program in programs]
    sends[0].enqueue()  # the instance is set up before the race

    def ask(number: int) -> None:
        send = sends[number].using(job_key="k")
        while len(ends) < 30:
            begun, job = tick(), None
            if number == 3 and begun % 2:
                with suppress(ZeroDivisionError), programs[number].transaction():
                    send.enqueue(to="nobody")
                    raise ZeroDivisionError
            else:
                job = send.enqueue()
            asked.append(Asked(begun, job and job.id, bool(job and job.duplicate), tick()))

    with Watched(url, instance) as watched, ThreadPoolExecutor(4) as pool:
        running = [pool.submit(ask, number) for number in range(4)]
        worker = WorkerByHand(programs[0].store, ("send",))
        while not all(each.done() for each in running):
            for call in worker.claim(1):
                watched.look()  # as long as it lives it is looked at
                begun = tick()
                worker.succeed(call)
                if call.job_key:
                    ends[call.id] = begun, tick()
    for each in running:
        each.result()

    stored = {job.id for job in programs[0].find(job_key="k", limit=1000)}
    made = {each.id: each for each in asked if each.id is not None and not each.duplicate}
    assert made.keys() == stored
    assert len(made.keys() - ends.keys()) <= 1
    for before, after in itertools.pairwise([*ends, *(made.keys() - ends.keys())]):
        assert ends[before][0] < made[after].returned, "a second one while the first was alive"
    late = [each for each in asked if each.duplicate and each.begun > ends.get(each.id or 0, (0, each.begun))[1]]
    assert late == [], "one that had ended was given"


def test_the_law_of_keys_holds_again_after_a_statement_that_kept_them_itself(store: Any, sql: RawSql) -> None:
    """On PostgreSQL statements for many jobs keep keys without the trigger, and only while they run."""
    other, _, _ = (add(store, job_key=key, retries=0) for key in ("other", "ended", "erred"))
    worker = WorkerByHand(store)
    _, ended, erred = worker.claim(3)
    raw = sql.filled(SECOND.format(how="", id="id + 1000", more="").replace(":id", str(other.id)))

    def and_then_a_stranger(keep: Callable[[], Any]) -> None:
        with store.transaction() as connection:
            keep()
            connection.execute(raw)

    for keep in (lambda: store.add_alike([NewJob("mail", "send", "{}", job_key="new")]), lambda: worker.succeed(ended)):
        with pytest.raises(Conflict, match="living job with"):
            and_then_a_stranger(keep)
    with store.work():
        worker.turn(done=[Done(ended, 1.0, None)])
        worker.fail(erred)
    assert sql("select job_key from {key}") == [{"job_key": "other"}]


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_job_replaced_while_a_claim_is_given_up_stands_in_line_once(store: Any, sql: RawSql) -> None:
    job, other = add(store, job_key="k"), store.another(5)
    replaces = threading.Thread(target=lambda: add(other, job_key="k", priority=7, on_duplicate="replace"))
    waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with sql.transaction():
        sql("delete from {ready}")
        sql("select * from {job} where id = :id for update", id=job.id)
        replaces.start()
        until(lambda: store.connection.database.execute(waits).fetchall(), what="it waits for the claim")
        sql("rollback")
        replaces.join()
        sql("begin")
    other.close()
    assert sql("select id, major from {ready}") == [{"id": job.id, "major": 7}]
