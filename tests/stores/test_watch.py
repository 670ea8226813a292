"""What is heard through LISTEN, and that closing a watch does not wait for something to be heard."""

import time
from collections.abc import Callable

import psycopg
import pytest

from holdfast import App
from holdfast.stores.postgres import adding
from holdfast.stores.postgres import watch as module
from holdfast.stores.postgres.watch import ChannelWatch
from tests.faults.fleet import until


@pytest.fixture
def listening(postgres_url: str) -> Callable[[list[str]], ChannelWatch]:
    def begin(heard: list[str]) -> ChannelWatch:
        watch = ChannelWatch(postgres_url, "holdfast_watch", heard.append)
        until(lambda: heard == [""], what="it listens")
        return watch

    return begin


def test_everything_that_is_told_is_heard(
    postgres_url: str, listening: Callable[[list[str]], ChannelWatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TEST_EVERY", 0.0)  # so that it tests its ears all the time
    heard: list[str] = []
    watch = listening(heard)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        for number in range(300):
            other.execute("select pg_notify('holdfast_watch', %s)", [str(number)])
    until(lambda: len(heard) == 301, what="all was heard")
    watch.close()
    assert heard[1:] == [str(number) for number in range(300)]


def test_closing_does_not_wait(listening: Callable[[list[str]], ChannelWatch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN", 100.0)
    watch = listening([])
    began = time.monotonic()
    watch.close()
    assert time.monotonic() - began < 50


@pytest.mark.claim("W1")
@pytest.mark.parametrize(
    ("seconds", "told"), [(0.001, 1), (0.006, 2)], ids=["while workers look again", "when workers have looked again"]
)
def test_who_stores_a_job_soon_after_another_tells_of_it_if_that_took_long(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, seconds: float, told: int
) -> None:
    """Of a queue that was just told of nobody is told again: whoever took the first job looks again. That may be over."""
    now = [100.0]
    monkeypatch.setattr(adding, "monotonic", lambda: now[0])
    with App(postgres_url, name="tests") as app, psycopg.connect(postgres_url, autocommit=True) as listener:
        send = app.queue("mail").job(lambda n: None, name="send")
        send.enqueue(n=0)
        listener.execute(f'listen "{app.store.channel}"'.encode())  # type: ignore[attr-defined]
        now[0] += 1
        send.enqueue(n=1)
        stored = app.store._alone  # type: ignore[attr-defined]
        monkeypatch.setattr(app.store, "_alone", lambda *asked: (stored(*asked), now.append(now.pop() + seconds))[0])
        send.enqueue(n=2)
        heard = [notify.payload for notify in listener.notifies(timeout=0.5)]
    assert heard == ["mail"] * told
