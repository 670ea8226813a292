"""Who hears of a write to an SQLite file: everybody of others' writes, and of our own only who has to know."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import App
from holdfast.stores.contract import News
from holdfast.stores.sqlite.connection import Connection
from holdfast.stores.sqlite.watch import FileWatch
from tests.faults.fleet import until


class Heard(list[News]):
    """What a watch was told."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[App]:
    with declared(tmp_path) as app:
        app.find()
        yield app


@pytest.fixture
def stranger(own: App, tmp_path: Path) -> Iterator[apsw.Connection]:
    """As another process has it."""
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    connection.execute("create table other (x)")
    yield connection
    connection.close()


@pytest.fixture
def heard(own: App, stranger: apsw.Connection) -> Iterator[Heard]:
    """By a worker's store, which belongs to the app. All is quiet."""
    found, store = Heard(), own.store.another(5)
    watch = store.watch(found.append)
    assert isinstance(watch, FileWatch)
    if watch._inotify < 0:
        pytest.skip("there is no inotify here")
    yield found
    watch.close()
    store.close()


def declared(folder: Path) -> App:
    app = App(f"sqlite:///{folder}/jobs.db")

    @app.queue("mail").job()
    def send() -> None: ...

    return app


def is_told(heard: Heard) -> None:
    until(lambda: News.ANYTHING in heard, what="it was heard")


def test_our_own_writes_wake_no_watch(own: App, heard: Heard, stranger: apsw.Connection) -> None:
    for _ in range(20):
        own.job_types["send"].enqueue()
    assert heard == []
    stranger.execute("insert into other values (1)")  # what comes after it is heard again
    is_told(heard)


def test_what_a_worker_of_this_process_has_to_know_it_is_told(own: App, heard: Heard) -> None:
    own.pause("mail")
    assert heard == [News.QUEUES]


def test_another_app_of_this_process_is_told_of_new_jobs(own: App, heard: Heard, tmp_path: Path) -> None:
    with declared(tmp_path) as other:
        other.job_types["send"].enqueue()
    assert News.JOBS in heard


@pytest.mark.claim("R1")
@pytest.mark.parametrize("ended", [True, False], ids=["committed", "at it"])
def test_who_writes_before_we_listen_again_is_heard(
    own: App, heard: Heard, stranger: apsw.Connection, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """Else its jobs would wait until the worker looks by itself."""
    listen: Callable[[Any], None] = FileWatch.listen

    def too_late(self: FileWatch) -> None:
        stranger.execute("begin immediate")
        stranger.execute("insert into other values (1)")
        stranger.cache_flush()  # to the log: of the commit itself nothing is to be heard
        if ended:
            stranger.execute("commit")
        listen(self)

    with monkeypatch.context() as patch:
        patch.setattr(FileWatch, "listen", too_late)
        own.job_types["send"].enqueue()
    assert heard == [News.ANYTHING]
    if not ended:
        stranger.execute("rollback")


def test_who_cannot_begin_leaves_nobody_deaf(
    own: App, heard: Heard, stranger: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "data_version", lambda self: {}["trouble"])
        with pytest.raises(KeyError, match="trouble"):
            own.pause("mail")
    assert not own.store.connection.shared.writing.locked()  # type: ignore[attr-defined]
    heard.clear()
    stranger.execute("insert into other values (1)")
    is_told(heard)
    own.pause("mail")


def test_who_was_interrupted_before_it_listened_hears_of_it_after_its_next_write(
    own: App, heard: Heard, stranger: apsw.Connection
) -> None:
    with own.store.work(listens=False):  # type: ignore[attr-defined]
        pass
    stranger.execute("insert into other values (1)")
    assert heard == []
    own.job_types["send"].enqueue()
    assert News.ANYTHING in heard


def test_who_listens_later_hears_of_what_came_meanwhile(own: App, heard: Heard, stranger: apsw.Connection) -> None:
    own.store.hush()
    own.job_types["send"].enqueue()
    stranger.execute("insert into other values (1)")
    assert heard == []
    own.store.listen()
    assert News.ANYTHING in heard
    heard.clear()
    own.job_types["send"].enqueue()  # from now on after each write
    stranger.execute("insert into other values (2)")
    is_told(heard)


def test_what_was_stored_before_a_key_was_found_taken_is_told(own: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that are alike and too long for one statement."""
    monkeypatch.setattr("holdfast.stores.statements.MOST_TEXT", 1)
    send, told = own.job_types["send"], list[None]()
    taken = send.using(job_key="b").enqueue()
    own.store.listeners.append(lambda: told.append(None))
    store: Any = own.store
    with store.work():
        ids = store.insert_alike([send.using(job_key=key).new() for key in ("a", "b")])
    assert (ids[1], len(told)) == (taken.id, 1)
    assert own.get(ids[0]).job_key == "a"


def test_a_watch_that_is_closed_is_told_nothing(own: App, tmp_path: Path) -> None:
    found = Heard()
    store = own.store.another(5)
    store.watch(found.append).close()
    own.pause("mail")
    own.job_types["send"].enqueue()
    assert found == []
    store.close()


@pytest.mark.claim("C6")
def test_a_worker_beside_runs_what_the_same_process_enqueues_at_once(own: App) -> None:
    """Without its poll, which would find it too."""
    with own.worker(poll=3600):
        for _ in range(5):
            own.job_types["send"].enqueue().wait(30)
