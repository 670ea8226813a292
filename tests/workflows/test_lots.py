"""F12: items after the first ones are stored by one round trip, and so are their ends; it counts only if all was as expected.

That is PostgreSQL's way; what is asserted holds on both stores.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast import App
from holdfast.clock import Clock
from holdfast.compose import Run
from holdfast.errors import Unavailable
from holdfast.jobs.states import Raised
from holdfast.stores.contract import Done
from holdfast.stores.postgres.items import Mistaken, Stream
from holdfast.stores.postgres.jobs import PostgresStore
from tests.by_hand import WorkerByHand, error
from tests.faults.fleet import until
from tests.raw_sql import RawSql
from tests.workflows.made_by_hand import Lender, Scene
from tests.workflows.ways import Ways, noted

pytestmark = pytest.mark.claim("F12")
Make = Callable[..., App]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return noted(
        monkeypatch,
        (Mistaken, "__init__", "mistaken"),
        (Stream, "send", "lot"),
        (PostgresStore, "_exchange_counted", "counted"),
        (PostgresStore, "settle_and_look", "looked"),
    )


@pytest.fixture
def scene(app: Make) -> Scene:
    return Scene(app())


@pytest.fixture
def on_postgres(scene: Scene) -> bool:
    return isinstance(scene.store, PostgresStore)


def step(scene: Scene) -> tuple[int, int, int]:
    seen = scene.run.refresh().steps["each"]
    return seen.created, seen.undone, seen.succeeded


def test_the_second_lot_is_stored_by_one_round_trip(scene: Scene, ways: Ways, on_postgres: bool) -> None:
    assert (scene.make(2), scene.make(3)) == ([0, 1], [0, 1, 2, 3, 4])
    assert (step(scene), scene.in_line()) == ((5, 5, 0), 0)
    assert ways == (["lot"] if on_postgres else [])


def test_what_is_stored_so_stands_in_line_where_nobody_lends(scene: Scene, sql: RawSql) -> None:
    scene.make(2)
    scene.store.takers.clear()
    scene.make(3)
    assert [call.job_key for call in scene.worker.claim(100, "workflows")] == [f"t:each.item-{at}" for at in (2, 3, 4)]


def test_a_cursor_is_kept_with_its_lot(scene: Scene, sql: RawSql, ways: Ways, on_postgres: bool) -> None:
    for produced, cursor in ((0, "a"), (1, "b"), (2, None)):
        scene.store.add_items(scene.run.id, "each", produced, ["x"], cursor, False)
        assert sql.value("select cursor as c from {step} where name = 'each'") == ('"b"' if produced else '"a"')
    assert ways == (["lot", "lot"] if on_postgres else [])


def test_what_is_published_meanwhile_is_told_to_the_next_lot(scene: Scene, ways: Ways, on_postgres: bool) -> None:
    scene.make(1)
    scene.worker.turn(done=[Done(scene.first, 1.0, None, '{"publish": {"n": 1}}')])
    ways.clear()
    scene.make(1)
    told = [call.payload.rpartition(":")[2] for call in scene.lender.taken if "item" in (call.job_key or "")]
    assert told == ["0}", "1}"]
    assert ways == (["lot", "mistaken"] if on_postgres else [])


def hold(own: App) -> None:
    own.hold("create", workflow="w")


def abort(own: App) -> None:
    own.workflow_run("w", "t").abort()


def make(own: App) -> None:
    assert own.store.add_items(own.workflow_run("w", "t").id, "each", 1, ["theirs"], None, False) is not None


def make_and_end(own: App) -> None:
    """So that the keys of what they made are free again."""
    lender = own.store.takers[0]
    assert isinstance(lender, Lender)
    make(own)
    lender.worker.succeed(*lender.taken[1:])


@pytest.mark.parametrize("other", [False, True], ids=["we", "others"])
@pytest.mark.parametrize("action", [hold, abort, make, make_and_end])
def test_items_that_nobody_waits_for_any_more_are_not_made(
    app: Make, ways: Ways, action: Callable[[App], None], other: bool
) -> None:
    scene = Scene(app())
    scene.make(1)
    by = app() if other else scene.own
    by.store.takers[:] = [scene.lender]
    action(by)
    made, begun = step(scene), len(scene.lender.taken)
    assert scene.store.add_items(scene.run.id, "each", 1, ["ours"], None, False) is None
    assert (step(scene), len(scene.lender.taken)) == (made, begun)
    assert not getattr(scene.store, "_makers", None), "who is not waited for is forgotten"


def test_never_more_are_made_than_may_be_undone(app: Make, ways: Ways) -> None:
    scene = Scene(app(), max_undone=4)
    scene.make(2)
    scene.make(2)
    assert step(scene) == (4, 4, 0)
    assert scene.store.add_items(scene.run.id, "each", 4, ["more"], None, False) is None
    assert step(scene) == (4, 4, 0)


def test_ends_of_items_are_only_counted(scene: Scene, sql: RawSql, ways: Ways, on_postgres: bool) -> None:
    scene.make(3)
    assert sql.value("select count(*) as n from {key} where job_key like '%item-%'") == 3
    assert scene.worker.succeed(*scene.lender.taken[:2], result='"fine"') == 0
    assert step(scene) == (3, 1, 2)
    assert scene.own.get(scene.lender.taken[0].id).result == "fine"
    assert sql.value("select job_key as k from {key} where job_key like '%item-%'") == "t:each.item-2"
    assert ways == (["counted"] if on_postgres else [])


@pytest.mark.parametrize("again", [False, True], ids=["handed back", "claimed again"])
@pytest.mark.claim("J5")
def test_the_end_of_a_stale_attempt_does_not_count(scene: Scene, ways: Ways, on_postgres: bool, again: bool) -> None:
    scene.make(3)
    first, *rest = scene.lender.taken
    scene.worker.hand_back(first)
    if again:
        other = WorkerByHand(scene.store, scene.worker.types, ("workflows",)).claim_one("workflows")
        assert (other.id, other.attempt) == (first.id, 2)
    assert scene.worker.succeed(first, *rest) == 1
    assert step(scene) == (3, 1, 2)
    assert (scene.own.get(first.id).state, scene.own.get(first.id).attempt) == ("running", 1 + again)
    assert ways == (["counted", "mistaken", "looked"] if on_postgres else [])


def test_ends_after_a_failure_are_looked_at(scene: Scene) -> None:
    scene.make(3)
    first, *rest = scene.lender.taken
    scene.worker.tell(first, Raised(error("failed"), None, 1.0))
    assert scene.worker.succeed(*rest) == 0
    assert scene.run.refresh().steps["each"].state == "FAILED"


def test_ends_without_a_maker_call_for_another_one(app: Make) -> None:
    scene = Scene(app(), max_undone=4)
    scene.make(3)
    scene.worker.succeed(scene.maker)
    assert scene.in_line() == 0
    scene.worker.succeed(*scene.lender.taken[:1])
    made = [*scene.lender.taken[3:], *scene.worker.claim(10, "workflows")]
    assert [call.job_key for call in made] == ["t:each.items"]


def test_ends_after_the_error_of_another_step_are_looked_at(app: Make) -> None:
    """With `fail_fast` no more items are made, and the last end of those that were ends the step."""
    scene = Scene(app(), fail_fast=True)
    scene.make(2)
    assert scene.worker.fail(scene.first) is not None
    scene.worker.succeed(*scene.lender.taken)
    assert scene.run.refresh().steps["each"].state == "ERROR"


def test_ends_after_the_last_item_end_the_step(scene: Scene, ways: Ways, on_postgres: bool) -> None:
    scene.make(2)
    assert scene.store.add_items(scene.run.id, "each", 2, ["last"], None, True) is not None
    scene.worker.succeed(*scene.lender.taken)
    assert scene.run.refresh().steps["each"].state == "SUCCESS"
    assert ways == (["counted", "mistaken", "looked"] if on_postgres else [])


def test_ends_in_a_run_that_is_over_are_counted_there(scene: Scene) -> None:
    scene.make(2)
    scene.run.abort()
    scene.worker.succeed(*scene.lender.taken)
    assert scene.run.refresh().state == "ERROR"


# A thread stores them where time goes by itself


def listed(own: App, items: Callable[..., Iterator[Any]], most: int, retries: int = 3) -> list[int]:
    done: list[int] = []
    workflow = own.workflow("w")

    @workflow.step(items=items, max_undone=most, retries=retries)
    async def each(task: Any) -> None:
        done.append(task.item)

    return done


def test_thousands_of_items_are_made_once_each(app: Make, sql: RawSql, ways: Ways) -> None:
    own = app(clock=Clock())
    done = listed(own, lambda task: iter(range(3000)), 400)
    with own.worker():
        run = own.workflows["w"].submit("t").wait(100)
    assert (run.state, sorted(done)) == ("SUCCESS", list(range(3000)))
    assert sql.value("select count(*) as n from {key}") == 0
    if sql.postgres:
        assert ways.count("lot") >= 5


def test_an_error_of_the_generator_ends_the_step_with_what_was_made(app: Make) -> None:
    def numbers(task: Any) -> Iterator[int]:
        yield from range(700)
        raise ValueError("no more")

    own = app(clock=Clock())
    done = listed(own, numbers, 300, retries=0)
    with own.worker():
        run = own.workflows["w"].submit("t").wait(100)
    assert run.state == "ERROR"
    assert run.steps["each"].created == len(done) == run.steps["each"].succeeded
    assert not getattr(own.store, "_makers", None), "nobody goes on from there"


def is_over(run: Run) -> bool:
    with suppress(Unavailable):  # our own session was ended too
        return run.refresh().state != "UNDONE"
    return False


def test_items_are_made_although_the_database_went_away_meanwhile(app: Make, sql: RawSql) -> None:
    if not sql.postgres:
        pytest.skip("a file does not go away")
    own, ended = app(clock=Clock()), threading.Event()

    def numbers(task: Any, cursor: int | None) -> Iterator[tuple[int, int]]:
        for number in range(0 if cursor is None else cursor + 1, 3000):
            if number == 1500 and not ended.is_set():
                ended.set()
                sql(
                    "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
                    "and datname = current_database()"
                )
            yield number, number

    done = listed(own, numbers, 400)
    with own.worker():
        run = own.workflows["w"].submit("t")
        until(lambda: is_over(run), what="the run is done")
    assert (run.refresh().state, set(done)) == ("SUCCESS", set(range(3000)))


def test_a_maker_without_a_thread_to_store_with_is_told(app: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is made again, when there is room for one."""
    own, refused = app(clock=Clock()), threading.Event()
    was = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if self.name == "holdfast-items" and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        was(self)

    done = listed(own, lambda task: iter(range(1500)), 400)
    monkeypatch.setattr(threading.Thread, "start", start)
    with own.worker():
        run = own.workflows["w"].submit("t").wait(100)
    assert (run.state, set(done)) == ("SUCCESS", set(range(1500)))
    assert refused.is_set() is isinstance(own.store, PostgresStore)


def test_makers_in_one_process_do_not_take_each_others_room(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what has begun for one of them would be told by the other, whose transaction may come to nothing."""
    store: Any = scene.store
    other, looked, locked = scene.own.workflows["w"].submit("u"), threading.Event(), threading.Event()
    was = store._item_jobs

    def prepared(head: Any, *rest: Any) -> Any:
        if head.trigger == "t":
            looked.set()
            assert locked.wait(30)
        return was(head, *rest)

    monkeypatch.setattr(store, "_item_jobs", prepared)
    thread = threading.Thread(target=scene.make, args=(1,))
    thread.start()
    assert looked.wait(30)
    scene.worker.claim(100, "workflows")
    with store.connection.lock:
        locked.set()
        thread.join(0.2)  # until it waits for the store
        store.add_items(other.id, "each", 0, ["other"], None, False)
    thread.join(30)
    assert {call.job_key for call in scene.lender.taken} == {"u:each.item-0", "t:each.item-0"}
