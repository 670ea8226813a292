"""F12: on PostgreSQL lots of items are sent before those in front of them are answered, on a connection of their own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import App
from holdfast.clock import Clock
from holdfast.errors import Unavailable
from holdfast.stores.contract import NewJob
from holdfast.stores.postgres.items import Mistaken, Sent, Stream
from tests.faults.fleet import until
from tests.raw_sql import RawSql
from tests.workflows.made_by_hand import Scene
from tests.workflows.ways import Ways, noted

pytestmark = [pytest.mark.claim("F12"), pytest.mark.parametrize("url", ["postgres"], indirect=True)]
Make = Callable[..., App]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return noted(monkeypatch, (Mistaken, "__init__", "mistaken"), (Stream, "send", "lot"))


class Making(Scene):
    """One item of the step is there, so the lots after it go over the stream. Time goes by itself."""

    def __init__(self, app: Make) -> None:
        super().__init__(app(clock=Clock()))
        self.make(1)
        self.store: Any

    @property
    def stream(self) -> Stream:
        assert isinstance(self.store._stream, Stream)
        return self.store._stream

    def put(self, *produced: int, run: int | None = None) -> None:
        """Lots of one item, each behind so many."""
        for number in produced:
            self.store.add_items(run or self.run.id, "each", number, ["x"], None, False)

    def put_two(self) -> None:
        """Whoever stores them finds the second one when it has sent the first."""
        with self.stream.connection.lock:
            self.put(1, 2)

    def wait_for_both(self) -> None:
        until(lambda: len(self.stream._unanswered) == 2, what="two lots are on their way")

    def send(self, run: int) -> Sent:
        """The second item of this run."""
        return self.stream.send(self.store.prepared(self.store._makers[run, "each"].maker, 1, ["x"], None))

    def stored(self) -> bool:
        """When all have been answered."""
        return bool(self.store.items_stored(self.run.id, "each"))

    def begun(self) -> list[str]:
        return [(call.job_key or "").replace("each.", "") for call in self.lender.taken]

    def counts(self) -> tuple[int, int]:
        step = self.run.refresh().steps["each"]
        return step.created, step.undone


@contextmanager
def locked(sql: RawSql, run: int) -> Iterator[None]:
    with sql.transaction():
        sql("select from {run} where id = :run for update", run=run)
        yield


def others_publish(sql: RawSql, run: int) -> None:
    """So that no lot that was made before is as its run is."""
    sql("update {run} set publication = publication + 1 where id = :run", run=run)


def test_a_lot_is_sent_before_the_one_in_front_of_it_is_answered(app: Make, sql: RawSql, ways: Ways) -> None:
    scene = Making(app)
    with locked(sql, scene.run.id):
        scene.put_two()
        scene.wait_for_both()
        assert scene.begun() == ["t:item-0"], "nothing of them is told before it is answered"
    assert scene.stored()
    assert scene.begun() == ["t:item-0", "t:item-1", "t:item-2"]
    assert (scene.counts(), ways) == ((3, 3), ["lot", "lot"])


def test_both_are_looked_at_if_the_first_was_not_as_expected(app: Make, sql: RawSql, ways: Ways) -> None:
    """And are made step by step, with what was published meanwhile."""
    scene = Making(app)
    with locked(sql, scene.run.id):
        scene.put_two()
        others_publish(sql, scene.run.id)
    assert scene.stored()
    assert (scene.counts(), ways) == ((3, 3), ["lot", "lot", "mistaken", "mistaken"])
    assert [call.payload.rpartition(":")[2] for call in scene.lender.taken] == ["0}", "1}", "1}"]
    assert scene.lender.unknown == [], "it is known that nothing had begun"


def test_neither_is_made_if_nobody_waits_for_them_any_more(app: Make, sql: RawSql, ways: Ways) -> None:
    scene, other = Making(app), app(clock=Clock())
    with locked(sql, scene.run.id):
        scene.put_two()
        other.hold("create", workflow="w")
    assert not scene.stored()
    assert (scene.counts(), scene.begun()) == ((1, 1), ["t:item-0"])


def test_the_lot_of_another_maker_is_stored_though_the_one_in_front_of_it_is_not(app: Make, sql: RawSql) -> None:
    scene = Making(app)
    other = scene.own.workflows["w"].submit("u")
    scene.put(0, run=other.id)
    scene.in_line()  # and taken, so that what is made now is next
    with locked(sql, scene.run.id):
        ours, theirs = scene.send(scene.run.id), scene.send(other.id)
        others_publish(sql, scene.run.id)
    scene.stream.answer(theirs).end(True)
    with pytest.raises(Mistaken):
        scene.stream.answer(ours)
    assert scene.counts() == (1, 1)
    assert other.refresh().steps["each"].created == 2
    assert scene.begun() == ["t:item-0", "u:item-1"]


@pytest.mark.broken_on_purpose  # what the run waits for is a job that is not its own
def test_lots_are_looked_at_if_a_key_is_taken(app: Make, ways: Ways) -> None:
    """The one behind it as well: what it is stored by was to be prepared with the first one."""
    scene = Making(app)
    held = NewJob(queue="workflows", job_type="w.each", payload="{}", job_key="t:each.item-1", delay=3600.0)
    [stranger] = scene.store.add([held])
    scene.put_two()
    assert scene.stored()
    assert (scene.counts(), ways) == ((3, 3), ["lot", "lot", "mistaken", "mistaken"])
    waiting = {job.job_key: job.id for job in scene.own.find(state="initial", job_type="w.each")}
    assert waiting["t:each.item-1"] == stranger.id


def test_makers_whose_connection_is_lost_are_told_and_go_on_from_the_database(app: Make, sql: RawSql) -> None:
    scene = Making(app)
    with locked(sql, scene.run.id):
        scene.put_two()
        scene.wait_for_both()
        sql("select pg_terminate_backend(:pid)", pid=scene.stream.connection.database.info.backend_pid)
        with pytest.raises(Unavailable):
            scene.stored()
    assert (scene.counts(), scene.begun(), len(scene.lender.unknown)) == ((1, 1), ["t:item-0"], 2)
    scene.put(1)
    scene.put(2)
    assert scene.stored()
    assert (scene.counts(), scene.begun()) == ((3, 3), ["t:item-0", "t:item-1", "t:item-2"])


def sessions(sql: RawSql) -> int:
    found: int = sql.value(
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'holdfast'"
    )
    return found


def test_all_makers_of_a_process_have_one_connection_and_close_it_with_the_store(app: Make, sql: RawSql) -> None:
    scene = Making(app)
    before = sessions(sql)
    runs = [scene.own.workflows["w"].submit(f"u{number}") for number in range(4)]
    for run in runs:
        scene.put(0, run=run.id)
    threads = [threading.Thread(target=scene.put, args=(1, 2, 3), kwargs={"run": run.id}) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(scene.store.items_stored(run.id, "each") for run in runs)
    assert [run.refresh().steps["each"].created for run in runs] == [4] * 4
    assert sessions(sql) == before + 1
    scene.own.close()
    until(lambda: sessions(sql) == before - 1, what="both connections are closed")


def test_lots_that_were_not_as_expected_leave_nothing_prepared_behind(app: Make, sql: RawSql) -> None:
    """The connection lives as long as the process."""
    scene = Making(app)
    scene.store.takers.clear()
    for number in range(1, 31):
        others_publish(sql, scene.run.id)
        scene.put(number)
        assert scene.store._makers[scene.run.id, "each"].finish()
    prepared = scene.stream.connection.database.execute("select count(*) from pg_prepared_statements", prepare=False)
    assert prepared.fetchall()[0][0] < 10


def test_whoever_hears_of_a_lost_connection_leaves_the_next_one_alone(app: Make, sql: RawSql) -> None:
    scene = Making(app)
    other = scene.own.workflows["w"].submit("u")
    scene.put(0, run=other.id)
    connection = scene.stream.connection
    with locked(sql, scene.run.id):
        ours, old = scene.send(scene.run.id), connection.database
        sql("select pg_terminate_backend(:pid)", pid=old.info.backend_pid)
        until(lambda: connection._dead(old), what="it is lost")
    with locked(sql, other.id):
        theirs = scene.send(other.id)
        with pytest.raises(Unavailable):
            scene.stream.answer(ours)
        assert connection.database is not old
    scene.stream.answer(theirs).end(True)
    assert other.refresh().steps["each"].created == 2


def test_a_maker_that_was_overtaken_stays_so(app: Make, sql: RawSql, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although its second lot would fit behind what the other one has made in place of the first."""
    scene, rival = Making(app), app(clock=Clock())
    scene.store.takers.clear()
    was, made = scene.store.store_slowly, []

    def store_slowly(lot: Any) -> Any:
        if not made:
            made.append(rival.store.add_items(scene.run.id, "each", 1, ["rival"], None, False))
        return was(lot)

    monkeypatch.setattr(scene.store, "store_slowly", store_slowly)
    with locked(sql, scene.run.id):
        scene.put_two()
        others_publish(sql, scene.run.id)
    assert not scene.stored()
    assert scene.counts() == (2, 2)


def test_whoever_hears_of_an_error_looks_at_the_connection_while_nobody_else_uses_it(
    app: Make, sql: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would read what another maker waits for."""
    scene = Making(app)
    connection: Any = scene.stream.connection
    was, alone = connection.lost, []

    def lost(error: Any) -> Any:
        alone.append(connection.lock._is_owned())
        return was(error)

    monkeypatch.setattr(connection, "lost", lost)
    with locked(sql, scene.run.id):
        ours = scene.send(scene.run.id)
        pid = connection.database.info.backend_pid
        waits = "select count(*) from pg_stat_activity where pid = :pid and wait_event_type = 'Lock'"
        until(lambda: sql.value(waits, pid=pid), what="it waits for the run")
        sql("select pg_cancel_backend(:pid)", pid=pid)
        with pytest.raises(Unavailable):
            scene.stream.answer(ours)
    assert alone == [True]
