"""F12, F13: makers of items beside others who touch the same run while the items are being stored."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App
from holdfast.stores.contract import Claimed, Done, NewJob
from tests.by_hand import WorkerByHand
from tests.faults.fleet import until
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("F12")
Make = Callable[..., App]
TYPES = ("w.first", "w.each")


class Made:
    """A run whose items are made by hand, at most ten undone, beside a task that has begun."""

    def __init__(self, own: App) -> None:
        workflow = own.workflow("w")
        workflow.step(name="first")(lambda task: None)
        workflow.step(name="each", items=lambda task: (), max_undone=10)(lambda task: None)
        self.own, self.run = own, workflow.submit("t")
        self.worker = WorkerByHand(own.store, TYPES, ("workflows",))
        calls = {call.job_key: call for call in self.worker.claim(10, "workflows")}
        self.first, self.maker = calls["t:first"], calls["t:each.items"]
        self.other: Any = own.store.another(5)  # type: ignore[attr-defined]

    def add(self, store: Any, produced: int, count: int) -> int | None:
        found: int | None = store.add_items(self.run.id, "each", produced, list(range(count)), None, False)
        return found

    def while_others(self, act: Callable[[], Any]) -> None:
        """Once, when the maker has looked at the run and is about to store."""
        stores = self.other._store_items

        def later(*args: Any) -> Any:
            self.other._store_items = stores
            act()
            return stores(*args)

        self.other._store_items = later

    def succeed(self, call: Claimed, effects: str | None = None) -> None:
        self.worker.turn(done=[Done(call, 1.0, None, effects)])

    def stored(self) -> list[Any]:
        return [task.job.payload for task in self.run.refresh().steps["each"].tasks()]


@pytest.fixture
def made(app: Make) -> Any:
    found = Made(app())
    yield found
    found.other.close()


@pytest.mark.claim("F13")
def test_what_is_published_while_items_are_stored_is_told_to_them(made: Made) -> None:
    """And their maker goes on: in a run whose tasks publish all the time it would never come to an end otherwise."""
    made.while_others(lambda: made.succeed(made.first, '{"publish":{"n":1}}'))
    assert made.add(made.other, 0, 4) == 6
    assert [task["publication"] for task in made.stored()] == [1] * 4


def test_items_that_somebody_else_has_made_are_made_once(made: Made) -> None:
    made.while_others(lambda: made.add(made.own.store, 0, 4))
    assert made.add(made.other, 0, 4) is None
    assert len(made.stored()) == made.run.refresh().steps["each"].created == 4


def test_a_maker_that_is_late_makes_no_more_than_may_be_undone(made: Made) -> None:
    assert made.add(made.own.store, 0, 6) == 4
    assert made.add(made.other, 6, 5) is None
    assert made.add(made.other, 6, 4) == 0


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_maker_that_was_overtaken_does_not_wait_for_those_who_wait_for_it(made: Made, sql: RawSql) -> None:
    """It has the run: a task that ends meanwhile has given up its key, and wants the run."""
    ends: list[threading.Thread] = []
    inserts = made.other.insert

    def overtaken() -> None:
        made.add(made.own.store, 0, 4)
        made.calls = made.worker.claim(4, "workflows")  # type: ignore[attr-defined]

    def insert(jobs: Any) -> Any:
        ends.append(threading.Thread(target=made.worker.succeed, args=made.calls))  # type: ignore[attr-defined]
        ends[0].start()
        until(
            lambda: sql(
                "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            )
        )
        return inserts(jobs)

    made.while_others(overtaken)
    made.other.insert = insert
    assert made.add(made.other, 0, 4) is None
    assert not ends


@pytest.mark.broken_on_purpose  # what the run waits for is a job that is not its own
def test_an_item_whose_key_somebody_holds_keeps_no_other_from_being_stored(made: Made) -> None:
    held = NewJob(queue="workflows", job_type="w.each", payload="{}", job_key="t:each.item-1", delay=3600.0)
    [stranger] = made.own.store.add([held])
    assert made.add(made.other, 0, 3) == 7
    found = {job.job_key: job.id for job in made.own.find(job_type="w.each") if job.state == "initial"}
    assert found.keys() == {"t:each.item-0", "t:each.item-1", "t:each.item-2"}
    assert found["t:each.item-1"] == stranger.id
