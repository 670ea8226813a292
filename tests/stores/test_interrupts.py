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
