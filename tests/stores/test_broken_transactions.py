"""Transactions that fail half-way, callers that are interrupted, answers that come twice: nothing is lost in silence."""

import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import App, Conflict, HoldfastError, Unavailable
from holdfast.clock import MovableClock
from holdfast.jobs.job import JobError
from holdfast.jobs.states import Decided, Raised
from holdfast.stores.contract import NewJob, Report, Store, TypeRow
from tests.by_hand import WorkerByHand, add
from tests.postgres_server import Server
from tests.raw_sql import RawSql


def shop(postgres_url: str, instance: str) -> tuple[App, Any]:
    app = App(postgres_url, name=instance)
    return app, app.queue("mail").job(name="send")(lambda: None)


@pytest.mark.claim("Q6")
def test_a_transaction_that_postgresql_gave_up_is_not_called_a_success(postgres_url: str, instance: str) -> None:
    app, send = shop(postgres_url, instance)
    with app:
        with pytest.raises(Conflict, match="rolled"):
            enqueue_and_go_on_after_an_error(app, send)
        assert app.find() == []


def enqueue_and_go_on_after_an_error(app: App, send: Any) -> None:
    with app.transaction() as connection:
        send.enqueue()
        with contextlib.suppress(psycopg.Error):
            connection.execute("select 1 / 0")


@pytest.mark.claim("Q6")
def test_a_connection_lost_inside_a_transaction_is_not_replaced_in_the_middle_of_it(
    postgres_url: str, postgres: Server, instance: str
) -> None:
    app, send = shop(postgres_url, instance)
    with app:
        with pytest.raises((HoldfastError, psycopg.Error)):
            enqueue_and_go_on_after_a_loss(app, send, postgres)
        assert app.find() == []


def enqueue_and_go_on_after_a_loss(app: App, send: Any, postgres: Server) -> None:
    with app.transaction() as connection:
        send.enqueue()
        with psycopg.connect(postgres.url(), autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s)", (connection.info.backend_pid,))
        for _ in range(2):
            with contextlib.suppress(HoldfastError, psycopg.Error):
                send.enqueue()


@pytest.mark.claim("R1")
def test_an_unknown_commit_of_many_callers_is_not_repeated(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have happened: each caller is told so, and nothing is stored a second time."""
    calls = []

    def unknown(jobs: list[NewJob]) -> Any:
        calls.append(len(jobs))
        raise Unavailable("it may or may not have happened")

    monkeypatch.setattr(store, "add_batch", unknown)
    errors = together(store, 3)
    assert [type(error) for error in errors] == [Unavailable] * 3
    assert sum(calls) == 3


def together(store: Store, count: int) -> list[BaseException]:
    """Callers who all come while the store is busy."""
    errors: list[BaseException] = []

    def call() -> None:
        try:
            store.add([NewJob("mail", "send", "{}")])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(count)]
    with store.lock:  # type: ignore[attr-defined]
        for thread in threads:
            thread.start()
        while len(store._adding) < count - 1:  # type: ignore[attr-defined]  # the first one goes alone
            pass
    for thread in threads:
        thread.join(30)
    return errors


@pytest.mark.claim("R1")
def test_an_interrupted_caller_does_not_keep_the_others_waiting(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:

        def interrupted(jobs: list[NewJob]) -> Any:
            raise KeyboardInterrupt

        patched.setattr(store, "add_batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.add([NewJob("mail", "send", "{}")])
    done = threading.Thread(target=lambda: store.add([NewJob("mail", "send", "{}")]), daemon=True)
    done.start()
    done.join(20)
    assert not done.is_alive()


@pytest.mark.claim("W1")
def test_a_job_whose_hint_was_lost_keeps_the_time_it_is_wanted_at(
    store: Store, sql: RawSql, clock: MovableClock
) -> None:
    wanted = clock.now() + timedelta(days=59)
    job = add(store, scheduled_run_time=wanted, time_windows=("00:00-12:00",))
    sql("delete from {waiting}")
    clock.advance(120)
    store.restore(0, 1000, 60)
    assert store.get(job.id).scheduled_run_time == job.scheduled_run_time
    assert WorkerByHand(store).claim(10) == []


@pytest.mark.claim("W1")
def test_a_job_that_cannot_start_before_it_expires_ends_then(store: Store, clock: MovableClock) -> None:
    """And not at the next opening of its window, its key held until then."""
    clock.advance(9 * 3600)
    job = add(store, time_windows=("09:00-10:00",), expires_time=clock.now() + timedelta(hours=3), job_key="k")
    clock.advance(2 * 3600)
    store.shut()
    assert not store.get(job.id).final
    clock.advance(2 * 3600)
    WorkerByHand(store).claim(10)
    store.shut()
    ended = store.get(job.id)
    assert (ended.outcome, ended.error and ended.error.kind) == ("error", "expired")


@pytest.mark.claim("R5")
def test_only_the_first_answer_of_a_retry_handler_counts(store: Store) -> None:
    store.register([], [TypeRow("send", "mail", has_handler=True, has_retry_handler=True)])
    worker = WorkerByHand(store)
    job, error = add(store), JobError("E", "no", "exception")
    worker.tell(worker.claim_one(), Raised(error))
    assert store.undecided(["send"]) == [job.id]
    first = store.report([Report(job.id, Decided(error, retry_delay=60.0), 1)])
    second = store.report([Report(job.id, Decided(error, give_up=True), 1)])
    assert first[0] is not None
    assert second == [None]
    assert store.get(job.id).state == "error"


@pytest.mark.claim("W2")
def test_a_process_that_only_enqueues_heeds_an_order_that_was_changed_elsewhere(
    app: Callable[..., App], clock: MovableClock
) -> None:
    old, new = app(), app()
    send = old.queue("mail").job(name="send")(lambda: None)
    send.enqueue()
    new.queue("mail", order="schedule")
    assert new.store.queues()[0].claim_order == "schedule"
    clock.advance(1)
    send.using(priority=1).enqueue()
    assert [call.id for call in WorkerByHand(new.store, ("send",)).claim(10)] == [1, 2]
