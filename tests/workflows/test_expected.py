"""F4, I8: the end of a lone task is worked out before it is known what it finds; it counts only if all was as expected.

That is PostgreSQL's way; what is asserted holds on both stores.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import App
from holdfast.clock import Clock
from holdfast.errors import Conflict
from holdfast.stores.contract import Claimed, Done, Want
from holdfast.stores.postgres.jobs import Mistaken, PostgresStore
from holdfast.stores.postgres.wire import Wire
from holdfast.workflows.task import Task
from tests.by_hand import WorkerByHand
from tests.raw_sql import RawSql
from tests.workflows.ways import Ways, noted

Make = Callable[..., App]
AddStep = Callable[..., None]


class Chain:
    """A run whose first task has ended, and whose second was made and claimed with it."""

    def __init__(self, own: App, **last: Any) -> None:
        workflow = own.workflow("w", params={"n": 0})
        for name, after in (("one", []), ("two", ["one"]), ("three", ["two"])):
            workflow.step(name=name, after=after, **(last if name == "three" else {}))(lambda task: None)
        self.own, self.run = own, workflow.submit("t")
        self.worker = WorkerByHand(own.store, ("w.one", "w.two", "w.three", "w.more"), ("workflows",))
        self.first = self.worker.claim_one("workflows")
        (self.second,) = self.end(self.first)

    def end(self, call: Claimed, result: str | None = None, effects: str | None = None) -> list[Claimed]:
        """Plain success, and what was claimed with it."""
        done = [Done(call, 1.0, result, effects)]
        answer = self.worker.turn(done=done, ended_leases=[call.lease], wants=[Want("workflows", 10)])
        self.stale = answer.stale
        return list(answer.claimed)

    def states(self) -> list[str]:
        return [step.state.value for step in self.run.refresh().steps.values()]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return noted(
        monkeypatch,
        (Mistaken, "__init__", "mistaken"),
        (PostgresStore, "settle_ahead", "ahead"),
        (PostgresStore, "settle_and_look", "looked"),
    )


@pytest.fixture
def on_postgres(app: Make) -> bool:
    own = app()
    return isinstance(own.store, PostgresStore)


def test_a_chain_is_worked_ahead(app: Make, ways: Ways, on_postgres: bool) -> None:
    chain = Chain(app())
    (third,) = chain.end(chain.second)
    assert chain.end(third) == []
    assert (chain.states(), chain.run.refresh().state.value) == (["SUCCESS"] * 3, "SUCCESS")
    assert ways == (["looked", "ahead", "ahead"] if on_postgres else [])


def touched_by(action: str, chain: Chain, by: App) -> None:
    if action == "hold":
        by.hold("create", workflow="w")
    elif action == "abort":
        by.workflow_run("w", "t").abort()
    else:
        chain.worker.store = by.store
        chain.worker.hand_back(chain.second)
        chain.worker.store = chain.own.store


@pytest.mark.parametrize("other", [False, True], ids=["we", "others"])
@pytest.mark.parametrize(
    ("action", "stale", "states"),
    [
        ("hold", 0, ["SUCCESS", "SUCCESS", "START"]),
        ("abort", 0, ["SUCCESS", "ERROR", "SKIP_BY_ERROR"]),
        ("hand back", 1, ["SUCCESS", "READY", "DORMANT"]),
    ],
)
def test_what_was_done_meanwhile_counts(
    app: Make, ways: Ways, on_postgres: bool, action: str, stale: int, states: list[str], other: bool
) -> None:
    """By somebody else, or by whoever works ahead."""
    chain = Chain(app())
    touched_by(action, chain, app() if other else chain.own)
    claimed = chain.end(chain.second)
    assert (chain.stale, chain.states()) == (stale, states)
    assert [call.id for call in claimed] == ([chain.second.id] if stale else [])
    assert ways == (["looked", "ahead", "mistaken", "looked"] if on_postgres else [])


def diamond(step: AddStep) -> list[str]:
    step("one")
    step("left", after=["one"])
    step("right", after=["one"])
    step("join", after=["left", "right"])
    step("last", after=["join"])
    return ["one", "left", "right", "join", "last"]


def phases(step: AddStep) -> list[str]:
    step("one")
    step("two", after=["one"])
    step("third", phase=1)
    step("fourth", after=["third"], phase=1)
    return ["one", "two", "third", "fourth"]


def shards(step: AddStep) -> list[str]:
    step("one")
    step("two", after=["one"])
    step("many", after=["two"], shards=30, max_undone=10)
    step("last", after=["many"])
    return ["one", "two", *(f"many.shard-{number}" for number in range(30)), "last"]


def items(step: AddStep) -> list[str]:
    def numbers(task: Any, cursor: int | None) -> Iterator[tuple[int, int]]:
        for number in range(0 if cursor is None else cursor + 1, 30):
            yield number, number

    step("one")
    step("two", after=["one"])
    step("each", after=["two"], items=numbers, max_undone=10)
    step("last", after=["each"])
    return ["one", "two", *(f"each.item-{number}" for number in range(30)), "last"]


def effects(step: AddStep) -> list[str]:
    step("one")
    step("two", lambda task: task.publish(n=1), after=["one"])
    step("three", lambda task: task.repartition("four", shards=5), after=["two"])
    step("four", after=["three"])
    step("five", after=["four"])
    return ["one", "two", "three", *(f"four.shard-{number}" for number in range(5)), "five"]


@pytest.mark.parametrize("shape", [diamond, phases, shards, items, effects])
def test_each_task_of_every_shape_runs_once(app: Make, shape: Callable[[AddStep], list[str]]) -> None:
    own, ran = app(clock=Clock()), list[str]()
    workflow = own.workflow("w")

    def step(name: str, effect: Callable[[Task], None] = lambda task: None, **options: Any) -> None:
        @workflow.step(name=name, **options)
        def run(task: Task) -> None:
            effect(task)
            ran.append(task.name)

    expected = shape(step)
    with own.worker():
        assert workflow.submit("t").wait(60).state == "SUCCESS"
    assert sorted(ran) == sorted(expected)


@pytest.mark.claim("F13")
def test_a_step_that_was_cut_long_before_it_begins_is_expected_as_it_was_cut(app: Make) -> None:
    """And not as it was declared."""
    own, seen = app(clock=Clock()), list[str]()
    workflow = own.workflow("w")
    workflow.step(name="a")(lambda task: task.repartition("last", shards=5))
    for name, after in (("b", "a"), ("c", "b"), ("d", "c")):
        workflow.step(name=name, after=[after])(lambda task: None)
    workflow.step(name="last", after=["d"])(lambda task: seen.append(task.name))
    with own.worker():
        assert workflow.submit("t").wait(60).state == "SUCCESS"
    assert sorted(seen) == [f"last.shard-{number}" for number in range(5)]


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_what_could_not_be_sent_does_not_go_out_later(app: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(app(clock=Clock()))
    with monkeypatch.context() as patch:
        patch.setattr(Wire, "send_off", lambda _: {}["trouble"])
        with pytest.raises(KeyError, match="trouble"):
            chain.end(chain.second)
    assert len(chain.end(chain.second)) == 1
    assert (chain.stale, chain.states()) == (0, ["SUCCESS", "SUCCESS", "READY"])


REFUSED = (
    "create sequence refused",
    """create function refuse() returns trigger language plpgsql as
    $$ begin if nextval('refused') = 1 then raise 'refused' using errcode = '23514'; end if; return null; end $$""",
    """create constraint trigger refuse after insert on {queue:workflows} deferrable initially deferred for each row
    when (new.job_type = 'w.three') execute function refuse()""",
)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_nothing_begins_whose_commit_was_refused(app: Make, ways: Ways, sql: RawSql) -> None:
    """What follows is made ready while the commit is not answered yet."""
    own = app(clock=Clock())
    chain = Chain(own)
    for statement in REFUSED:
        sql(statement)
    with pytest.raises(Conflict, match="refused"):
        chain.end(chain.second)
    assert (ways, chain.states()) == (["looked", "ahead"], ["SUCCESS", "READY", "DORMANT"])
    (third,) = chain.end(chain.second)
    assert (chain.end(third), chain.states()) == ([], ["SUCCESS"] * 3)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_task_runs_once_although_the_commit_it_was_made_with_was_refused(app: Make, sql: RawSql) -> None:
    own, seen = app(clock=Clock()), list[str]()
    workflow = own.workflow("w")
    for name, after in (("one", []), ("two", ["one"]), ("three", ["two"])):
        workflow.step(name=name, after=after)(lambda task: seen.append(task.name))
    own.store.queues()
    for statement in REFUSED:
        sql(statement)
    with own.worker():
        assert workflow.submit("t").wait(60).state == "SUCCESS"
    assert seen == ["one", "two", "three"]
    assert sql.value("select last_value from refused") > 1


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_who_fails_while_a_commit_is_not_answered_leaves_the_connection_in_order(
    app: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(app(clock=Clock()))
    with monkeypatch.context() as patch:
        patch.setattr(PostgresStore, "expect", lambda *_: {}["trouble"])
        with pytest.raises(KeyError, match="trouble"):
            chain.end(chain.second)
    assert chain.states() == ["SUCCESS", "SUCCESS", "READY"]  # it had been sent
    assert chain.end(chain.second) == []
    assert chain.stale == 1


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_what_stands_behind_a_held_task_is_claimed_after_that_commit(app: Make, ways: Ways) -> None:
    """The line is cleared in a transaction of its own."""
    chain = Chain(app(clock=Clock()))
    for trigger in ("held", "behind"):
        chain.own.workflows["w"].submit(trigger)
    chain.own.hold("pick", workflow="w", trigger="held")
    claimed = chain.end(chain.second)
    assert [call.job_key for call in claimed] == ["behind:one", "t:three"]
    assert (ways, chain.states()) == (["looked", "ahead"], ["SUCCESS", "SUCCESS", "READY"])
