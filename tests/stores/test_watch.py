"""What is heard through LISTEN, and that closing a watch does not wait for something to be heard."""

import time
from collections.abc import Callable

import psycopg
import pytest

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
