"""R1: a program that is interrupted while it enqueues, and goes on: whatever line it was at, nothing is left half done.

As in a notebook, or where a signal's handler raises to end what takes too long.
"""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import pytest

from holdfast import App
from holdfast.stores.sqlite.connection import Connection
from tests.faults.fleet import until
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("R1")
TIMES = 300


class Interrupted(BaseException):
    """What the handler raises."""


@contextmanager
def interrupting() -> Iterator[Callable[[float], None]]:
    """Gives what arms a timer; when it is over, an interrupt comes, unless it was disarmed by 0."""

    def interrupt(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seconds_of(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


@pytest.fixture(params=[False, True], ids=["alone", "with a watch"])
def own(app: Callable[..., App], request: pytest.FixtureRequest) -> Iterator[App]:
    made = app()

    @made.queue("mail").job()
    def send(n: int) -> None: ...

    watch = made.store.watch(lambda news: None) if request.param else None
    yield made
    if watch is not None:
        watch.close()


def test_whoever_is_interrupted_while_it_enqueues_can_go_on(own: App, url: str, instance: str) -> None:
    send, luck, accepted, interrupts = own.job_types["send"], random.Random(1), list[int](), 0
    accepted += [send.enqueue(n=number).id for number in range(20)]
    usual = median(seconds_of(lambda: accepted.append(send.enqueue(n=0).id)) for _ in range(20))
    with interrupting() as arm:
        for number in range(20 * TIMES):
            if interrupts == TIMES:
                break
            try:
                arm(luck.uniform(1e-6, usual * 1.2))
                job = send.enqueue(n=number)
                arm(0)
                accepted.append(job.id)
            except Interrupted:
                interrupts += 1
            arm(0)
            connection = own.store.connection  # type: ignore[attr-defined]
            assert connection.depth == 0, f"interrupt {interrupts} left it inside a transaction"
            assert not connection.lock._is_owned(), f"interrupt {interrupts} left it locked"
            accepted.append(send.enqueue(n=-1).id)
    assert interrupts == TIMES, "hardly anything was interrupted"
    elsewhere = threading.Thread(target=lambda: accepted.append(send.enqueue(n=-2).id), daemon=True)
    elsewhere.start()
    elsewhere.join(20)
    assert not elsewhere.is_alive(), "another thread waits for ever"
    sql = RawSql(url, instance)
    stored = {row["id"] for row in sql("select id from {job}")}
    sql.close()
    assert set(accepted) <= stored, "what was acknowledged is not there"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_an_enqueue_needs_is_made_again_if_its_making_was_interrupted(
    own: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Connection.patiently

    def interrupted(self: Connection, statement: str, values: tuple[Any, ...] = ()) -> Any:
        if "create temp trigger" in statement:
            raise Interrupted
        return made(self, statement, values)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "patiently", interrupted)
        with pytest.raises(Interrupted):
            own.job_types["send"].enqueue(n=1)
    assert own.job_types["send"].enqueue(n=2).refresh().state == "initial"


@pytest.mark.timeout(120)
@pytest.mark.claim("C4")
def test_a_worker_beside_whoever_is_interrupted_loses_no_job_and_no_slot(app: Callable[..., App]) -> None:
    own, luck, interrupts = app(), random.Random(2), 0

    @own.queue("mail").job()
    def send(n: int) -> None: ...

    with own.worker(concurrency=2) as worker, interrupting() as arm:
        usual = median(seconds_of(lambda: send.enqueue(n=0).unwrap(20)) for _ in range(20))
        for number in range(20 * TIMES):
            if interrupts == TIMES:
                break
            try:
                arm(luck.uniform(1e-6, usual))
                send.enqueue(n=number)
                arm(0)
            except Interrupted:
                interrupts += 1
            arm(0)
            if number % 50 == 49:
                until(lambda: not living(own) and worker.hand.count == 0, what="all have run, and no slot is kept")
        assert interrupts == TIMES, "hardly anything was interrupted"
        until(lambda: not living(own), what="all have run")
        assert send.enqueue(n=-1).wait(20).outcome == "success"


def living(own: App) -> list[int]:
    return [job.id for job in own.find(limit=100) if job.state != "final"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("interrupted", ["offer", "give", "let_go"])
def test_wherever_an_enqueue_with_an_offer_is_interrupted_its_job_runs_and_its_slot_is_free(
    app: Callable[..., App], monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    own, calls = app(), list[int]()
    own.queue("mail").job(name="send")(lambda: calls.append(1))
    send = own.job_types["send"]
    with own.worker(concurrency=1, poll=3600) as worker:
        send.enqueue().unwrap(20)
        until(lambda: worker.hand.count == 0, what="it is idle")
        real = getattr(worker, interrupted)

        def interrupt(*told: Any) -> None:
            if interrupted == "offer":
                real(*told)
            raise Interrupted

        with monkeypatch.context() as patch:
            patch.setattr(worker, interrupted, interrupt)
            with pytest.raises(Interrupted):
                send.enqueue()
        stored = [job for job in own.find() if job.id > 1]
        assert len(stored) == (interrupted != "offer")
        until(lambda: not living(own) and worker.hand.count == 0, what="it has run")
        assert send.enqueue().wait(20).outcome == "success"
        assert len(calls) == len(own.find())
        assert {job.attempt for job in stored for job in [job.refresh()]} <= {1, 2}
