"""What a run needs next (F3 to F12, F15, F16): runs are played to their end by plans alone, in any order and any batches.

Every play keeps its own books: which tasks were made and which are undone. After each plan the counters must agree with
them, no step may be left that could still move, and the numbers kept about all steps must be what counting gives.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import structs

from holdfast.workflows import states
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.partition import Items, Packs, Partition, Shards, Simple, count
from holdfast.workflows.plan import (
    Ended,
    NewTasks,
    Plan,
    Planning,
    Shape,
    StepRow,
    account,
    as_step,
    overview,
    plan,
)
from holdfast.workflows.states import STEP_STATES, Result, StepState, WorkflowState

S = StepState
Task = tuple[str, int]


def step(name: str, **facts: Any) -> StepDefinition:
    return StepDefinition(name=name, **facts)


def workflow(*steps: StepDefinition, **facts: Any) -> Definition:
    return Definition(name="report", steps=steps, **facts)


def fresh(definition: Definition) -> list[StepRow]:
    return [StepRow(each.name, each.partition) for each in definition.steps]


class Play:
    """A run that is played: `fate` says how a task ends, `items` how many there are of a step."""

    def __init__(
        self,
        definition: Definition,
        fate: Callable[[Task], str] = lambda task: "succeeded",
        ignore: Sequence[str] = (),
        items: int = 0,
        whole: bool = True,
    ) -> None:
        self.definition, self.shape = definition, Shape(definition)
        self.fate, self.ignore, self.items, self.whole = fate, ignore, items, whole
        self.rows = {row.name: row for row in fresh(definition)}
        self.seen = overview(definition, fresh(definition))
        self.undone: list[Task] = []
        self.made: list[Task] = []
        self._plan(self.shape.phases[self.seen.phase])

    @property
    def states(self) -> list[StepState]:
        return [self.rows[each.name].state for each in self.definition.steps]

    @property
    def done(self) -> bool:
        return all(STEP_STATES[state].done for state in self.states)

    def end(self, tasks: Sequence[Task]) -> None:
        """These end at once, in one transaction."""
        before = dict(self.rows)
        for task in tasks:
            self.undone.remove(task)
        ends = [Ended(task[0], **{self.fate(task): 1}) for task in tasks]
        self.rows = {row.name: row for row in account(list(self.rows.values()), ends)}
        self._plan({task[0]: None for task in tasks}, before)

    def run(self, choose: random.Random, most: int = 1) -> "Play":
        """To its end, in batches of any size up to `most`."""
        for _ in range(100_000):
            if not self.undone:
                assert self.done, self.states
                return self
            self.end(choose.sample(self.undone, choose.randint(1, min(most, len(self.undone)))))
        raise AssertionError("it does not come to an end")

    def retry(self) -> None:
        """What erred runs again (F16)."""
        again = states.retry([as_step(each, self.rows[each.name]) for each in self.definition.steps])
        erred = [task for task in self.made if self.fate(task) == "errors"]
        self.undone += [task for task in erred if self.rows[task[0]].state is S.ERROR]
        for now in again:
            self.rows[now.name] = structs.replace(
                self.rows[now.name], state=now.state, undone=now.undone, errors=now.errors
            )
        self.seen = overview(self.definition, list(self.rows.values()))
        self.fate = lambda task: "succeeded"
        self._plan(self.rows)

    def _plan(self, touched: Any, before: dict[str, StepRow] | None = None) -> None:
        planned = self._whole() if self.whole else self._part(list(touched), before or self.rows)
        self.rows |= {row.name: row for row in planned.steps}
        self.seen = planned.overview
        for new in planned.tasks:
            assert new.first == sum(name == new.step for name, _ in self.made)
            made = [(new.step, new.first + at) for at in range(new.count)]
            self.made += made
            self.undone += made
        self._check()
        for name in planned.items:
            self._make_items(name)

    def _whole(self) -> Plan:
        return plan(self.definition, list(self.rows.values()), self.ignore)

    def _part(self, touched: list[str], before: dict[str, StepRow]) -> Plan:
        """With no more steps than the plan asks for."""
        known = set(touched)
        while True:
            now = {name: self.rows[name] for name in known}
            was = {name: before[name] for name in known}
            found = Planning(self.shape, now, self.seen, self.ignore, before=was).made(touched)
            if isinstance(found, Plan):
                return found
            assert known.isdisjoint(found.names)
            known |= set(found.names)

    def _make_items(self, name: str) -> None:
        row, most = self.rows[name], self.definition.step(name).most_undone
        more = min(most - row.undone, self.items - row.created)
        made = [(name, row.created + at) for at in range(more)]
        self.made += made
        self.undone += made
        created = row.created + more
        before = dict(self.rows)
        self.rows[name] = structs.replace(
            row, created=created, undone=row.undone + more, all_created=created == self.items
        )
        if created == self.items:
            self._plan([name], before)

    def _check(self) -> None:
        for each in self.definition.steps:
            row = self.rows[each.name]
            of = [task for task in self.made if task[0] == each.name]
            assert row.created == len(of) == row.undone + row.done_tasks
            assert row.undone == sum(task[0] == each.name for task in self.undone) <= each.most_undone
            assert row.all_created or row.state not in (S.READY, S.SUCCESS)
        steps = [
            as_step(each, self.rows[each.name], each.can_ignore and each.name in self.ignore)
            for each in self.definition.steps
        ]
        assert states.settle(steps, self.definition.fail_fast) == steps
        assert self.seen.state is states.workflow_state(steps)
        counted = overview(self.definition, list(self.rows.values()))
        kept = counted if self.done else self.seen  # which phase is open matters to nobody in the end
        of_phase = {"phase": kept.phase, "phase_undone": kept.phase_undone, "phase_erred": kept.phase_erred}
        assert structs.replace(self.seen, progress=0, **of_phase) == structs.replace(counted, progress=0)
        assert self.seen.progress == pytest.approx(counted.progress, abs=0.001)


def shuffled(seed: int = 0) -> random.Random:
    return random.Random(seed)


@pytest.mark.claim("F3", "F12")
def test_a_step_that_may_start_gets_its_tasks_and_others_sleep() -> None:
    begun = plan(workflow(step("a"), step("b", partition=Shards(3)), step("c", after=("a",))), (rows := [
        StepRow("a", Simple()), StepRow("b", Shards(3)), StepRow("c", Simple())
    ]))  # fmt: skip
    assert [row.state for row in begun.steps] == [S.READY, S.READY, S.DORMANT]
    assert begun.tasks == (NewTasks("a", 0, 1), NewTasks("b", 0, 3))
    assert begun.state is WorkflowState.UNDONE
    assert all(row.state is S.DORMANT for row in rows)


@pytest.mark.claim("F12")
@pytest.mark.parametrize("partition", [Shards(23), Packs(0, 229, 10)])
@pytest.mark.parametrize("most", [1, 2, 7, 23, 50])
def test_never_more_tasks_are_undone_than_may_be_and_new_ones_come_as_old_ones_end(
    partition: Partition, most: int
) -> None:
    play = Play(workflow(step("a", partition=partition, max_undone=most)))
    assert len(play.undone) == min(most, 23)
    assert play.states == [S.READY if most >= 23 else S.START]
    play.end(play.undone[:1])
    assert len(play.made) == min(most + 1, 23)
    assert play.run(shuffled(), most=3).states == [S.SUCCESS]
    assert play.made == [("a", index) for index in range(23)]


@pytest.mark.claim("F12")
def test_at_most_50_are_undone_where_nothing_is_said() -> None:
    assert len(Play(workflow(step("a", partition=Shards(1_000_000)))).undone) == 50


@pytest.mark.claim("F12")
def test_infinite_packs_go_on_for_ever() -> None:
    play = Play(workflow(step("a", partition=Packs(0, None, 10), max_undone=3)))
    for _ in range(200):
        play.end([shuffled().choice(play.undone)])
        assert (play.states, len(play.undone)) == ([S.START], 3)
    assert play.seen.progress == 0.0


@pytest.mark.claim("F12")
@pytest.mark.parametrize("empty", [Shards(0), Packs(0, -1, 10), Shards(2, first=2)])
def test_an_empty_partition_is_success_at_once_and_starts_what_comes_after_it(empty: Partition) -> None:
    play = Play(
        workflow(
            step("a", partition=empty),
            step("b", after=("a",), partition=empty),
            step("c", after=("b",)),
            step("d", phase=1, partition=empty),
        )
    )
    assert play.states == [S.SUCCESS, S.SUCCESS, S.READY, S.DORMANT]
    assert play.made == [("c", 0)]
    assert play.run(shuffled()).states == [S.SUCCESS] * 4
    assert Play(workflow(step("a", partition=empty))).seen.state is WorkflowState.SUCCESS


@pytest.mark.claim("F4")
@pytest.mark.parametrize(("fate", "ends"), [("failed", S.FAILED), ("errors", S.ERROR)])
def test_a_spoiled_step_gets_no_more_tasks_and_ends_when_the_others_have(fate: str, ends: StepState) -> None:
    play = Play(
        workflow(step("a", partition=Shards(100), max_undone=3)),
        lambda task: fate if task == ("a", 1) else "succeeded",
    )
    play.end([("a", 1)])
    assert (play.states, len(play.made)) == ([S.START], 3)
    play.end([("a", 0)])
    assert (play.states, len(play.made)) == ([S.START], 3)
    play.end([("a", 2)])
    assert play.states == [ends]


@pytest.mark.claim("F9")
@pytest.mark.parametrize("names", list(itertools.permutations(["bad", "many", "late"])))
def test_with_fail_fast_an_error_ends_the_making_of_tasks_wherever_its_step_stands(names: tuple[str, ...]) -> None:
    declared = {
        "bad": step("bad"),
        "many": step("many", partition=Shards(10), max_undone=2),
        "late": step("late", after=("many",)),
    }
    fate = {"bad": "errors"}
    definition = workflow(*(declared[name] for name in names), step("last", phase=1), fail_fast=True)
    for whole in (True, False):
        play = Play(definition, lambda task: fate.get(task[0], "succeeded"), whole=whole)
        play.end([("many", 0), ("bad", 0)])  # together: what is known to be over gets no new task
        assert len([task for task in play.made if task[0] == "many"]) == 2
        ended = dict(zip((*names, "last"), play.run(shuffled()).states, strict=True))
        assert ended == {"bad": S.ERROR, "many": S.ERROR, "late": S.SKIP_BY_ERROR, "last": S.SUCCESS}
        assert play.seen.state is WorkflowState.ERROR


@pytest.mark.claim("F9")
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_with_fail_fast_a_step_whose_dependency_just_ended_does_not_begin_beside_an_error(
    order: tuple[int, ...],
) -> None:
    steps = (step("good"), step("next", after=("good",)), step("bad"))
    definition = workflow(*(steps[at] for at in order), fail_fast=True)
    for whole in (True, False):
        play = Play(definition, lambda task: "errors" if task[0] == "bad" else "succeeded", whole=whole)
        play.end([("good", 0), ("bad", 0)])
        assert dict(zip((steps[at].name for at in order), play.states, strict=True)) == {
            "good": S.SUCCESS,
            "next": S.SKIP_BY_ERROR,
            "bad": S.ERROR,
        }


@pytest.mark.claim("F9", "F11")
@pytest.mark.parametrize("turned", [False, True])
def test_with_fail_fast_a_later_phase_runs_although_one_of_its_steps_is_skipped_for_an_error_before(
    turned: bool,
) -> None:
    last = (step("undo", phase=1, after=("bad",)), step("clean", phase=1))
    definition = workflow(step("bad"), *(reversed(last) if turned else last), fail_fast=True)
    for whole in (True, False):
        play = Play(definition, lambda task: "errors" if task[0] == "bad" else "succeeded", whole=whole)
        ended = play.run(shuffled())
        found = dict(zip((each.name for each in definition.steps), ended.states, strict=True))
        assert found == {"bad": S.ERROR, "undo": S.SKIP_BY_ERROR, "clean": S.SUCCESS}


@pytest.mark.claim("F12")
def test_items_are_wanted_while_half_of_what_may_be_undone_is_free() -> None:
    definition = workflow(step("a", partition=Items(), max_undone=10))
    (row,) = fresh(definition)
    assert plan(definition, [row]).items == ("a",)
    started = structs.replace(row, state=S.START)
    for undone, wanted in ((10, ()), (6, ()), (5, ("a",)), (0, ("a",))):
        assert plan(definition, [structs.replace(started, created=10, undone=undone)]).items == wanted
    assert plan(definition, [structs.replace(started, created=10, undone=2, failed=1)]).items == ()
    assert plan(definition, [structs.replace(started, created=10, undone=2, all_created=True)]).items == ()


@pytest.mark.claim("F12")
@pytest.mark.parametrize("items", [0, 1, 7, 100])
def test_items_are_played_to_their_end(items: int) -> None:
    play = Play(workflow(step("a", partition=Items(), max_undone=7), step("b", after=("a",))), items=items)
    assert play.run(shuffled(), most=4).states == [S.SUCCESS, S.SUCCESS]
    assert sum(task[0] == "a" for task in play.made) == items


@pytest.mark.claim("F4", "F12")
def test_the_failure_of_what_makes_items_is_the_failure_of_the_step() -> None:
    row = StepRow("a", Items(), S.START, created=3, undone=1, succeeded=2)
    (failed,) = account([row], [Ended("a", errors=1, counted=False)])
    assert (failed.undone, failed.errors) == (1, 1)
    definition = workflow(step("a", partition=Items()))
    assert plan(definition, [failed]).steps[0].state is S.START
    (last,) = account([failed], [Ended("a", succeeded=1)])
    assert plan(definition, [last]).steps[0].state is S.ERROR


@pytest.mark.claim("F16")
def test_a_plan_that_may_not_make_tasks_makes_none() -> None:
    definition = workflow(step("a"), step("b", partition=Items()))
    held = plan(definition, fresh(definition), may_create=False)
    assert (held.tasks, held.items) == ((), ())
    assert [row.state for row in held.steps] == [S.START, S.START]


@pytest.mark.claim("F8")
def test_only_a_step_that_may_be_ignored_is() -> None:
    definition = workflow(step("a", can_ignore=True), step("b"), step("c", after=("a",)))
    play = Play(definition, ignore=["a", "b"])
    assert play.states == [S.IGNORED, S.READY, S.READY]


@pytest.mark.claim("F15")
def test_progress_grows_with_every_task_and_is_1_at_the_end() -> None:
    play = Play(workflow(step("a", partition=Shards(4), effort=3), step("b", after=("a",), effort=1)))
    seen = [play.seen.progress]
    while play.undone:
        play.end(play.undone[:1])
        seen.append(play.seen.progress)
    assert seen == pytest.approx([0, 0.1875, 0.375, 0.5625, 0.75, 1.0])


# Every graph of up to three steps, every result of their tasks, in every order.

FATES = ("succeeded", "failed", "errors")
RESULT = {"succeeded": Result.SUCCESS, "failed": Result.FAILED, "errors": Result.ERROR}


def graphs(size: int) -> Iterator[tuple[tuple[str, ...], ...]]:
    names = "abc"[:size]
    return itertools.product(
        *(
            list(itertools.chain.from_iterable(itertools.combinations(names[:at], n) for n in range(at + 1)))
            for at in range(size)
        )
    )


def expected(definition: Definition, fates: dict[str, str], ignore: Sequence[str] = ()) -> list[StepState]:
    """What the tables of states give, worked out without any order."""
    found: dict[str, StepState] = {}
    for each in definition.steps:
        results = {STEP_STATES[found[name]].result for name in each.after}
        empty = count(each.partition) == 0
        if Result.ERROR in results:
            found[each.name] = S.SKIP_BY_ERROR
        elif Result.FAILED in results:
            found[each.name] = S.ACCEPTABLE_FAILED if each.can_fail else S.SKIP_BY_FAILED
        elif each.can_ignore and each.name in ignore:
            found[each.name] = S.IGNORED
        elif empty or fates[each.name] == "succeeded":
            found[each.name] = S.SUCCESS
        elif fates[each.name] == "errors":
            found[each.name] = S.ERROR
        else:
            found[each.name] = S.ACCEPTABLE_FAILED if each.can_fail else S.FAILED
    return [found[each.name] for each in definition.steps]


def overall(found: Sequence[StepState]) -> WorkflowState:
    results = {STEP_STATES[state].result for state in found}
    if Result.ERROR in results:
        return WorkflowState.ERROR
    return WorkflowState.FAILED if Result.FAILED in results else WorkflowState.SUCCESS


@pytest.mark.claim("F4", "F5", "F6", "F7", "F9")
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_small_graph_is_driven_to_the_end_that_the_tables_give(size: int, whole: bool) -> None:
    traits = [False, True] if size < 3 else [False]
    for after, fates, can_fail in itertools.product(
        graphs(size), itertools.product(FATES, repeat=size), itertools.product(traits, repeat=size)
    ):
        names = "abc"[:size]
        definition = workflow(*(step(names[at], after=after[at], can_fail=can_fail[at]) for at in range(size)))
        told = dict(zip(names, fates, strict=True))
        wanted = expected(definition, told)
        for order in itertools.permutations(names):
            play = Play(definition, lambda task, told=told: told[task[0]], whole=whole)  # type: ignore[misc]
            while play.undone:
                play.end([min(play.undone, key=lambda task: order.index(task[0]))])
            assert play.states == wanted, (after, fates, order)
            assert play.seen.state is overall(wanted)


PARTITIONS = some.sampled_from([Simple(), Shards(0), Shards(1), Shards(9), Packs(0, 24, 10), Packs(5, 4, 1), Items()])


@some.composite
def definitions(draw: some.DrawFn, fail_fast: bool = False) -> Definition:
    size = draw(some.integers(1, 8))
    phases = sorted(draw(some.lists(some.integers(0, 3), min_size=size, max_size=size)))
    steps = [
        step(
            f"s{at}",
            after=tuple(f"s{other}" for other in sorted(draw(some.sets(some.integers(0, at - 1), max_size=3))))
            if at
            else (),
            phase=phases[at],
            partition=draw(PARTITIONS),
            can_fail=draw(some.booleans()),
            can_ignore=draw(some.booleans()),
            max_undone=draw(some.sampled_from([None, 1, 2, 5])),
            effort=draw(some.sampled_from([0, 1, 2.5])),
        )
        for at in range(size)
    ]
    return workflow(*draw(some.permutations(steps)), fail_fast=fail_fast)


def in_reading_order(definition: Definition) -> Definition:
    return structs.replace(definition, steps=tuple(sorted(definition.steps, key=lambda each: each.name)))


@pytest.mark.claim("F4", "F5", "F8", "F11", "F12")
@given(some.data())
def test_any_order_and_any_batches_come_to_the_same_end(data: some.DataObject) -> None:
    definition = data.draw(definitions())
    items = data.draw(some.integers(1, 12))
    fates = {each.name: data.draw(some.sampled_from(FATES)) for each in definition.steps}
    bad = {each.name: data.draw(some.integers(0, 12)) for each in definition.steps}
    ignore = data.draw(some.lists(some.sampled_from([each.name for each in definition.steps]), unique=True))

    def tasks(each: StepDefinition) -> int:
        total = count(each.partition)
        return items if total is None else total

    # One task of a step ends badly: which of several would be made at all is a matter of time.
    sizes = {each.name: tasks(each) for each in definition.steps}

    def fate(task: Task) -> str:
        return fates[task[0]] if task[1] == bad[task[0]] % max(1, sizes[task[0]]) else "succeeded"

    straight = in_reading_order(definition)
    wanted = dict(zip((each.name for each in straight.steps), expected(straight, fates, ignore), strict=True))
    play = Play(definition, fate, ignore, items, whole=data.draw(some.booleans()))
    play.run(shuffled(data.draw(some.integers(0, 1000))), most=data.draw(some.sampled_from([1, 3, 100])))
    assert dict(zip((each.name for each in definition.steps), play.states, strict=True)) == wanted
    assert play.seen.state is overall(list(wanted.values()))


@pytest.mark.claim("F9")
@given(some.data())
def test_fail_fast_makes_no_task_of_a_phase_with_an_error_and_ends_all_the_same(data: some.DataObject) -> None:
    definition = data.draw(definitions(fail_fast=True))
    chance = shuffled(data.draw(some.integers(0, 1000)))
    fates: dict[Task, str] = {}
    phases = {each.name: each.phase for each in definition.steps}
    play = Play(
        definition,
        lambda task: fates.setdefault(task, chance.choice(FATES)),
        items=5,
        whole=data.draw(some.booleans()),
    )
    while play.undone:
        erred = {phases[name] for name, row in play.rows.items() if row.state is S.ERROR}
        made = len(play.made)
        play.end(chance.sample(play.undone, chance.randint(1, min(3, len(play.undone)))))
        assert not any(phases[name] in erred for name, _ in play.made[made:])
    assert play.done


@pytest.mark.claim("F16")
@given(some.data())
def test_a_retry_ends_as_if_nothing_had_erred(data: some.DataObject) -> None:
    definition = data.draw(definitions(fail_fast=data.draw(some.booleans())))
    erred = {each.name: data.draw(some.booleans()) for each in definition.steps}
    whole = data.draw(some.booleans())
    play = Play(definition, lambda task: "errors" if erred[task[0]] else "succeeded", items=6, whole=whole)
    play.run(shuffled(data.draw(some.integers(0, 1000))), most=3)
    made = set(play.made)
    if play.seen.state is WorkflowState.ERROR:
        play.retry()
        play.run(shuffled(data.draw(some.integers(0, 1000))), most=3)
    assert play.states == [S.SUCCESS] * len(definition.steps)
    assert made <= set(play.made)
    assert len(play.made) == len(set(play.made))
