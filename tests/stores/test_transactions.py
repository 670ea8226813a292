"""Q6: many jobs or none, and all of it inside the caller's own transaction if they want."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from holdfast import App, DuplicateJob, Invalid, NotFound, Unavailable
from holdfast.clock import MovableClock
from holdfast.stores.contract import NewJob, Store
from tests.by_hand import WorkerByHand, add
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("Q6")
Make = Callable[..., App]


class Undone(Exception):
    pass


@contextmanager
def rolled_back() -> Iterator[None]:
    """What is inside ends by raising `Undone`."""
    with pytest.raises(Undone):
        yield


def declared(app: App) -> Any:
    @app.queue("mail").job(name="send")
    def send(to: str = "") -> str:
        return to

    return send


def test_many_jobs_are_stored_in_the_order_given(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)

    @holdfast.queue("post").job
    def scan(n: int) -> None: ...

    jobs = holdfast.enqueue_many([send.using(job_key="k").new("a"), scan.new(n=1), send.new("b")])
    jobs += send.enqueue_many([{"to": "c"}, {"to": "d"}])

    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert [(job.queue, job.payload) for job in jobs] == [
        ("mail", {"to": "a"}),
        ("post", {"n": 1}),
        ("mail", {"to": "b"}),
        ("mail", {"to": "c"}),
        ("mail", {"to": "d"}),
    ]
    assert [job.refresh() for job in jobs] == jobs
    assert holdfast.enqueue_many([]) == []
    with pytest.raises(Invalid, match="enqueue_many takes what"):
        holdfast.enqueue_many([{"to": "a"}])  # type: ignore[list-item]


def test_one_bad_job_among_many_and_none_is_stored(app: Make, clock: MovableClock) -> None:
    holdfast = app()
    send = declared(holdfast)
    taken = send.using(job_key="k").enqueue("taken")

    with pytest.raises(Invalid):
        send.enqueue_many([{"to": "a"}, {"to": 5}])
    with pytest.raises(DuplicateJob):
        holdfast.enqueue_many([send.new("a"), send.using(job_key="k", on_duplicate="raise").new("b"), send.new("c")])
    with pytest.raises(Invalid):
        holdfast.enqueue_many([send.new("a"), send.using(expires=clock.now(), delay=5).new("b")])

    assert [job.id for job in holdfast.find()] == [taken.id]


def test_a_write_that_fails_in_the_middle_stores_nothing(store: Store, sql: RawSql) -> None:
    if sql.postgres:
        sql("alter table {queue:mail} add constraint odd check (payload <> '[13]')")
    else:
        sql(
            "create trigger odd before insert on {queue:mail} when new.payload = '[13]' begin select raise(abort, 'odd'); end"
        )
    jobs = [NewJob("mail", "send", f"[{number}]", job_key=f"k{number}") for number in range(20)]

    with pytest.raises(Exception, match="odd"):
        store.add(jobs)

    assert (
        sql.value("select count(*) from {job}")
        == sql.value("select count(*) from {key}")
        == sql.value("select count(*) from {ready}")
        == 0
    )
    sql("alter table {queue:mail} drop constraint odd" if sql.postgres else "drop trigger odd")
    assert len(store.add(jobs)) == 20


def test_enqueues_inside_a_transaction_commit_together(app: Make) -> None:
    holdfast, other = app(), app()
    send = declared(holdfast)
    send.enqueue("before")

    with holdfast.transaction() as connection:
        first = send.enqueue("a")
        second = send.using(connection=connection).enqueue("b")
        third = holdfast.enqueue("mail", "send", {"to": "c"})
        many = send.enqueue_many([{"to": "d"}, {"to": "e"}])
        assert len(other.find()) == 1  # nobody else sees them yet

    assert [job.payload["to"] for job in reversed(other.find())] == ["before", "a", "b", "c", "d", "e"]
    assert holdfast.run_until_idle() == 6
    for job in (first, second, third, *many):
        assert job.refresh().outcome == "success"


@pytest.mark.fault(9, "the caller's transaction is rolled back")
def test_enqueues_inside_a_transaction_roll_back_together(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)
    kept = send.using(job_key="kept").enqueue("x")

    with rolled_back(), holdfast.transaction():
        send.using(job_key="k").enqueue("a")
        send.enqueue_many([{"to": "b"}])
        send.using(job_key="kept", priority=1, on_duplicate="replace").enqueue("y")
        raise Undone

    assert [job.id for job in holdfast.find()] == [kept.id]
    assert kept.refresh() == kept
    assert not send.using(job_key="k").enqueue("again").duplicate
    assert holdfast.run_until_idle() == 2


def test_the_callers_own_tables_are_in_the_same_transaction(app: Make, sql: RawSql) -> None:
    holdfast = app()
    send = declared(holdfast)
    send.enqueue("before")
    sql(f"create table {sql.instance}_orders (number int)")

    with rolled_back(), holdfast.transaction() as connection:
        connection.execute(f"insert into {sql.instance}_orders values (1)")
        send.enqueue("a")
        raise Undone
    with holdfast.transaction() as connection:
        connection.execute(f"insert into {sql.instance}_orders values (2)")
        send.enqueue("b")

    assert sql(f"select number from {sql.instance}_orders") == [{"number": 2}]
    assert [job.payload["to"] for job in holdfast.find()] == ["b", "before"]


ENDED_INSIDE = "was ended inside it, by a `commit` or `rollback`"


def enqueue_and_end(app: App, send: Any, word: str) -> None:
    with app.transaction() as connection:
        send.using(job_key="before").enqueue()
        connection.execute(word)
        with pytest.raises(Invalid, match=ENDED_INSIDE):
            send.using(job_key="after").enqueue()


@pytest.mark.parametrize("word", ["commit", "rollback"])
def test_a_transaction_that_was_ended_inside_takes_no_jobs_and_is_no_success(app: Make, word: str) -> None:
    own = app()
    send: Any = own.queue("mail").job(lambda: None, name="send")
    own.find()
    with pytest.raises(Invalid, match=ENDED_INSIDE):
        enqueue_and_end(own, send, word)

    assert [job.job_key for job in own.find()] == (["before"] if word == "commit" else [])
    assert send.enqueue().state == "initial"


def test_a_duplicate_does_not_kill_the_transaction(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)
    living = send.using(job_key="k").enqueue("x")

    with holdfast.transaction():
        assert send.using(job_key="k").enqueue("a").id == living.id
        with pytest.raises(DuplicateJob):
            send.using(job_key="k", on_duplicate="raise").enqueue("b")
        own = send.using(job_key="own").enqueue("c")
        assert send.using(job_key="own").enqueue("d").id == own.id

    assert {job.id for job in holdfast.find()} == {living.id, own.id}


def test_transactions_belong_to_their_thread_and_do_not_nest(app: Make, url: str) -> None:
    holdfast = app()
    send = declared(holdfast)
    send.enqueue("before")
    seen: list[bool] = []

    with rolled_back(), holdfast.transaction():
        with pytest.raises(Invalid, match="do not nest"), holdfast.transaction():
            pass
        if url.startswith("postgresql"):  # SQLite has one writer at a time

            def elsewhere() -> None:
                send.enqueue("other thread")
                seen.append(True)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
        raise Undone

    assert [job.payload["to"] for job in holdfast.find()] == (["other thread"] if seen else []) + ["before"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("act", ["enqueue", "enqueue of a new type", "submit", "transaction", "nothing", "raise"])
def test_a_process_that_is_forked_inside_has_no_part_in_the_transaction_and_does_not_end_it(
    app: Make, act: str
) -> None:
    holdfast = app()
    send = declared(holdfast)
    flow = holdfast.workflow("flow")
    flow.step(lambda task: None, name="first")
    acts: dict[str, Callable[[], object]] = {
        "enqueue": lambda: send.enqueue("child"),
        "enqueue of a new type": lambda: holdfast.enqueue("mail", "new"),
        "submit": lambda: flow.submit("child"),
        "transaction": lambda: holdfast.transaction().__enter__(),
        "nothing": lambda: None,
        "raise": lambda: 1 / 0,
    }
    send.enqueue("before")
    parent, (hears, says) = os.getpid(), os.pipe()
    try:
        with holdfast.transaction():
            send.enqueue("parent")
            child = os.fork()
            if child == 0:
                acts[act]()
            else:
                os.waitpid(child, 0)
                send.enqueue("parent again")
    except BaseException as error:
        if os.getpid() == parent:
            raise
        os.write(says, f"{type(error).__name__}: {error}".encode())
    finally:
        if os.getpid() != parent:
            os._exit(0)
    os.close(says)
    with open(hears) as heard:
        told = heard.read()
    assert ("ZeroDivisionError" if act == "raise" else "Invalid: This process was forked inside") in told
    assert [job.payload["to"] for job in holdfast.find()] == ["parent again", "parent", "before"]
    assert holdfast.workflow_runs() == []


def test_a_task_on_the_event_loop_enqueues_in_its_transaction(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)
    send.enqueue("before")

    async def work(fail: bool) -> None:
        with holdfast.transaction():
            await asyncio.gather(*(send.using(job_key=f"k{number}").aenqueue(str(number)) for number in range(5)))
            if fail:
                raise Undone

    with pytest.raises(Undone):
        asyncio.run(work(True))
    assert len(holdfast.find()) == 1
    asyncio.run(work(False))
    assert len(holdfast.find()) == 6


@pytest.mark.timeout(20)
def test_two_tasks_of_an_event_loop_do_not_stop_each_other(app: Make, url: str) -> None:
    holdfast = app(patience=10)
    send = declared(holdfast)
    send.enqueue("before")

    async def work(number: int) -> None:
        with holdfast.transaction():
            await send.aenqueue(str(number))
            await asyncio.sleep(0.05)

    async def both() -> list[BaseException | None]:
        return await asyncio.gather(work(1), work(2), return_exceptions=True)

    one, other = asyncio.run(both())
    assert one is None
    if url.startswith("sqlite"):
        assert isinstance(other, Unavailable)
        assert "another task of this event loop" in str(other)
        asyncio.run(work(2))
    assert len(holdfast.find()) == 3


@pytest.mark.claim("J1")
def test_an_id_that_was_rolled_back_is_not_given_to_another_job(app: Make, clock: MovableClock) -> None:
    holdfast = app()
    send = declared(holdfast)
    with rolled_back(), holdfast.transaction():
        gone = send.enqueue("never")
        send.enqueue_many([{"to": "never"}] * 3)
        raise Undone
    with rolled_back(), holdfast.transaction():
        raise Undone

    assert send.enqueue("now").id > gone.id + 3
    with pytest.raises(NotFound):
        gone.refresh()
    assert [job.payload["to"] for job in holdfast.find()] == ["now"]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_enqueueing_takes_part_in_the_callers_transaction_on_the_callers_connection(
    app: Make, sql: RawSql, end: str
) -> None:
    """A psycopg connection, or an apsw connection to the same file."""
    holdfast = app()
    send = declared(holdfast)
    send.enqueue("before")
    own = sql.connection

    try:
        with sql.transaction():
            job = send.using(connection=own, job_key="k").enqueue("a")
            jobs = holdfast.enqueue_many([send.new("b"), send.using(delay=60).new("c")], connection=own)
            named = holdfast.enqueue("mail", "send", {"to": "d"}, connection=own)
            assert send.using(connection=own, job_key="k").enqueue("e").duplicate
            if end == "rollback":
                raise Undone
    except Undone:
        pass

    found = [job.payload["to"] for job in reversed(holdfast.find())]
    assert found == (["before", "a", "b", "c", "d"] if end == "commit" else ["before"])
    assert holdfast.run_until_idle() == (4 if end == "commit" else 1)
    if end == "commit":
        assert [each.refresh().status for each in (job, *jobs, named)] == [
            "completed",
            "completed",
            "pending",
            "completed",
        ]


def test_an_enqueue_through_a_callers_connection_outside_a_transaction_is_refused(app: Make, sql: RawSql) -> None:
    """It could not be all or nothing."""
    holdfast = app()
    send = declared(holdfast)
    send.enqueue("before")

    with pytest.raises(Invalid, match="not in a transaction"):
        send.using(connection=sql.connection).enqueue("a")

    assert len(holdfast.find()) == 1


def test_a_connection_that_is_closed_is_refused(app: Make, url: str, sql: RawSql) -> None:
    send = declared(app())
    send.enqueue("before")
    closed = RawSql(url, "x").connection
    closed.close()

    with pytest.raises(Invalid, match="connection= is closed"):
        send.using(connection=closed).enqueue("a")

    assert sql.value("select count(*) from {job}") == 1


def test_a_connection_to_another_database_is_refused(
    app: Make, url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    send = declared(app())
    send.enqueue("before")
    other = f"sqlite:///{tmp_path}/other.db" if url.startswith("sqlite") else request.getfixturevalue("postgres").url()
    stranger = RawSql(other, "x")

    with pytest.raises(Invalid, match="connection= is open on"), stranger.transaction():
        send.using(connection=stranger.connection).enqueue("a")
    stranger.close()


def test_a_psycopg_connection_with_its_own_habits_works(
    app: Make, postgres_url: str, instance: str, clock: MovableClock
) -> None:
    """Not autocommit, rows as dictionaries: the caller's business."""
    with App(postgres_url, name=instance, clock=clock) as holdfast:
        send = declared(holdfast)
        send.enqueue("before")
        with psycopg.connect(postgres_url, row_factory=psycopg.rows.dict_row) as own:
            send.using(connection=own, job_key="k").enqueue("a")
            own.rollback()
            send.using(connection=own, job_key="k").enqueue("b")
        assert [job.payload["to"] for job in holdfast.find()] == ["b", "before"]
        assert own.closed


@pytest.mark.parametrize("kind", ["sqlite3", "nonsense", "the other database's"])
def test_a_connection_of_another_library_is_refused_with_the_reason(
    app: Make, url: str, tmp_path: Path, kind: str
) -> None:
    send = declared(app())
    send.enqueue("before")
    connection: Any = object()
    if kind == "sqlite3":
        connection = sqlite3.connect(":memory:")
    elif kind != "nonsense":
        connection = (
            apsw.Connection(":memory:")
            if url.startswith("postgresql")
            else psycopg.Connection.__new__(psycopg.Connection)
        )

    with pytest.raises(Invalid, match="connection= is a ") as refused:
        send.using(connection=connection).enqueue("a")

    assert "app.transaction()" in str(refused.value)
    if url.startswith("sqlite"):
        assert "two SQLite libraries in one process drop each other's locks" in str(refused.value)
    if kind == "sqlite3":
        assert "sqlite3.Connection" in str(refused.value)
    assert len(send.app.find()) == 1


def test_in_memory_only_the_apps_own_connection_will_do(clock: MovableClock) -> None:
    with App("sqlite://:memory:", clock=clock) as holdfast:
        send = declared(holdfast)
        with holdfast.transaction() as own:
            send.using(connection=own).enqueue("a")
        stranger = apsw.Connection(":memory:")
        stranger.execute("begin immediate")
        with pytest.raises(Invalid, match="this instance lives in memory"):
            send.using(connection=stranger).enqueue("b")
        with rolled_back(), holdfast.transaction():
            send.enqueue("c")
            raise Undone
        assert [job.payload["to"] for job in holdfast.find()] == ["a"]


def test_callers_that_come_together_share_a_commit_and_each_gets_their_own_jobs(store: Store, sql: RawSql) -> None:
    added: dict[int, list[int]] = {}

    def enqueue(number: int) -> None:
        jobs = store.add([NewJob("mail", "send", f"[{number}]") for _ in range(number + 1)])
        added[number] = [job.id for job in jobs]

    threads = [threading.Thread(target=enqueue, args=(number,)) for number in range(6)]
    with store.lock:  # type: ignore[attr-defined]
        for thread in threads:
            thread.start()
        while len(store._adding) < 5:  # type: ignore[attr-defined]  # the first one goes alone
            pass
    for thread in threads:
        thread.join()

    for number, ids in added.items():
        assert len(ids) == number + 1
        assert {sql.row(job_id)["payload"] for job_id in ids} == {f"[{number}]"}
    assert len({job_id for ids in added.values() for job_id in ids}) == 21


@pytest.mark.claim("R1")
def test_jobs_added_in_a_transaction_are_found_by_workers(app: Make, clock: MovableClock) -> None:
    holdfast = app()
    send = declared(holdfast)
    with holdfast.transaction():
        now, later = send.enqueue("now"), send.using(delay=60).enqueue("later")
    worker = WorkerByHand(holdfast.store, ["send"])

    assert [call.id for call in worker.claim(5)] == [now.id]
    clock.advance(60)
    assert [call.id for call in worker.claim(5)] == [later.id]
    assert add(holdfast.store).id > later.id


def test_a_type_that_is_new_is_registered_with_its_job(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)
    send.enqueue()
    with rolled_back(), holdfast.transaction():
        holdfast.enqueue("mail", "unheard", {})
        raise Undone
    assert "unheard" not in holdfast.store.types()

    with holdfast.transaction():
        send.enqueue()
        holdfast.enqueue("mail", "unheard", {})
        holdfast.enqueue("mail", "unheard", {})
    assert holdfast.store.types()["unheard"].queue == "mail"
    assert [job.job_type for job in holdfast.find()] == ["unheard", "unheard", "send", "send"]
