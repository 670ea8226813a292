"""F2 to F11, F15, F16 of the pure part: the seed's three tables row by row, and every small graph."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import structs

from holdfast import IllegalMove
from holdfast.workflows import states
from holdfast.workflows.states import (
    MOVES,
    RETRY_MOVES,
    STEP_STATES,
    TASK_STATES,
    WORKFLOW_STATES,
    Result,
    Step,
    StepState,
    TaskState,
    WorkflowState,
    next_state,
    settle,
    workflow_state,
)

S = StepState


@pytest.mark.claim("F2")
@pytest.mark.parametrize(
    ("table", "state", "done", "result"),
    [
        ("task", "UNDONE", False, "unknown"),
        ("task", "SUCCESS", True, "success"),
        ("task", "FAILED", True, "failed"),
        ("task", "ERROR", True, "error"),
        ("step", "DORMANT", False, "unknown"),
        ("step", "START", False, "unknown"),
        ("step", "READY", False, "unknown"),
        ("step", "SUCCESS", True, "success"),
        ("step", "FAILED", True, "failed"),
        ("step", "ACCEPTABLE_FAILED", True, "success"),
        ("step", "ERROR", True, "error"),
        ("step", "IGNORED", True, "success"),
        ("step", "SKIP_BY_FAILED", True, "failed"),
        ("step", "SKIP_BY_ERROR", True, "error"),
        ("workflow", "UNDONE", False, "unknown"),
        ("workflow", "SUCCESS", True, "success"),
        ("workflow", "FAILED", True, "failed"),
        ("workflow", "ERROR", True, "error"),
        ("workflow", "STUCK", False, "error"),
    ],
)
def test_a_state_of_the_tables_is_done_or_not_and_has_a_result(table: str, state: str, done: bool, result: str) -> None:
    tables: dict[str, tuple[Any, Any]] = {
        "task": (TaskState, TASK_STATES),
        "step": (StepState, STEP_STATES),
        "workflow": (WorkflowState, WORKFLOW_STATES),
    }
    names, pairs = tables[table]
    assert (pairs[names(state)].done, pairs[names(state)].result) == (done, Result(result))
    assert set(pairs) == set(names)


LEGAL = {
    "DORMANT": "START READY IGNORED ACCEPTABLE_FAILED SKIP_BY_FAILED SKIP_BY_ERROR",
    "START": "READY FAILED ACCEPTABLE_FAILED ERROR",
    "READY": "SUCCESS FAILED ACCEPTABLE_FAILED ERROR",
}


@pytest.mark.claim("F3")
@pytest.mark.parametrize(("was", "to"), list(itertools.product(StepState, StepState)))
def test_a_step_moves_as_the_table_says_and_not_otherwise(was: StepState, to: StepState) -> None:
    if to in LEGAL.get(was, "").split():
        assert states.move(Step("s", was), to).state is to
    else:
        with pytest.raises(IllegalMove, match=f"`{was}` may not become `{to}`"):
            states.move(Step("s", was), to)


@pytest.mark.claim("F3")
def test_only_a_step_with_all_its_tasks_created_can_succeed() -> None:
    assert [was for was, to in MOVES.items() if S.SUCCESS in to] == [S.READY]


def step(state: StepState = S.DORMANT, **facts: Any) -> Step:
    return Step("s", state, **facts)


KNOWN = (Result.SUCCESS, Result.FAILED, Result.ERROR)


@pytest.mark.claim("F3", "F16")
@pytest.mark.parametrize(("was", "to"), list(itertools.product(S, S)))
def test_the_way_between_two_states_goes_by_the_tables(was: StepState, to: StepState) -> None:
    near = {state: MOVES.get(state, frozenset()) | RETRY_MOVES.get(state, frozenset()) for state in S}
    reached = set(near[was])
    while more := {further for state in reached for further in near[state]} - reached:
        reached |= more
    for were_created, all_created, failed in itertools.product((False, True), (False, True), (0, 1)):
        before = Step("a", was, all_created=were_created)
        way = states.way(before, Step("a", to, failed=failed, all_created=all_created))
        assert bool(way) is (to in reached and to is not was)
        assert way[-1:] in ((), (to,))
        assert all(following in near[state] for state, following in itertools.pairwise((was, *way)))


@pytest.mark.claim("F3", "F4", "F7", "F16")
@pytest.mark.parametrize(
    ("was", "to", "facts", "expected"),
    [
        (S.DORMANT, S.SUCCESS, {"all_created": True}, [S.READY, S.SUCCESS]),
        (S.DORMANT, S.FAILED, {"all_created": True, "failed": 1}, [S.READY, S.FAILED]),
        (S.DORMANT, S.FAILED, {"failed": 1}, [S.START, S.FAILED]),
        (S.START, S.ERROR, {"errors": 1}, [S.ERROR]),
        (S.START, S.ERROR, {"all_created": True, "errors": 1}, [S.READY, S.ERROR]),
        (S.DORMANT, S.ACCEPTABLE_FAILED, {}, [S.ACCEPTABLE_FAILED]),
        (S.DORMANT, S.ACCEPTABLE_FAILED, {"all_created": True, "failed": 1}, [S.READY, S.ACCEPTABLE_FAILED]),
        (S.SKIP_BY_ERROR, S.SUCCESS, {"all_created": True}, [S.DORMANT, S.READY, S.SUCCESS]),
        (S.ERROR, S.SUCCESS, {"all_created": True}, [S.START, S.READY, S.SUCCESS]),
    ],
)
def test_the_way_between_two_states_fits_the_tasks(
    was: StepState, to: StepState, facts: dict[str, Any], expected: list[StepState]
) -> None:
    assert list(states.way(Step("a", was), Step("a", to, **facts))) == expected


@pytest.mark.claim("F4")
@pytest.mark.parametrize("others", list(itertools.product(KNOWN, repeat=2)))
def test_a_step_sleeps_while_a_dependency_is_undone_whatever_the_others_are(others: tuple[Result, ...]) -> None:
    assert next_state(step(), [*others, Result.UNKNOWN], phase_open=True) is S.DORMANT


@pytest.mark.claim("F5", "F7", "F8")
@pytest.mark.parametrize(("can_fail", "ignored"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("others", [(), *itertools.product(KNOWN, repeat=1), *itertools.product(KNOWN, repeat=2)])
def test_what_dependencies_do_to_a_step(others: tuple[Result, ...], can_fail: bool, ignored: bool) -> None:
    found = next_state(step(can_fail=can_fail, ignored=ignored), others, phase_open=True)
    if Result.ERROR in others:
        assert found is S.SKIP_BY_ERROR  # also for a step that can fail
    elif Result.FAILED in others:
        assert found is (S.ACCEPTABLE_FAILED if can_fail else S.SKIP_BY_FAILED)
    else:
        assert found is (S.IGNORED if ignored else S.START)


@pytest.mark.claim("F4", "F5", "F6")
@pytest.mark.parametrize("state", [S.START, S.READY])
@pytest.mark.parametrize(("undone", "succeeded", "failed", "errors"), list(itertools.product([0, 2], repeat=4)))
@pytest.mark.parametrize("can_fail", [False, True])
def test_what_tasks_do_to_a_step(
    state: StepState, undone: int, succeeded: int, failed: int, errors: int, can_fail: bool
) -> None:
    tasks = step(state, can_fail=can_fail, undone=undone, succeeded=succeeded, failed=failed, errors=errors)
    found = next_state(structs.replace(tasks, all_created=state is S.READY), [], phase_open=True)
    if undone:
        assert found is state
    elif errors:
        assert found is S.ERROR
    elif failed:
        assert found is (S.ACCEPTABLE_FAILED if can_fail else S.FAILED)
    else:
        assert found is (S.SUCCESS if state is S.READY else S.START)


@pytest.mark.claim("F3")
def test_a_step_is_ready_when_its_last_task_is_created() -> None:
    assert next_state(step(S.START, undone=3, all_created=True), [], phase_open=True) is S.READY


@pytest.mark.claim("F12")
def test_a_step_without_tasks_succeeds_at_once() -> None:
    assert [each.state for each in settle([step(all_created=True)])] == [S.SUCCESS]


# Every graph of up to three steps, with every result of their tasks and every trait.

ENDS = ("success", "failed", "error")
TRAITS = list(itertools.product([False, True], repeat=2))  # can fail, ignored


def graphs(size: int) -> Iterator[tuple[tuple[str, ...], ...]]:
    """What each of the steps a, b, c comes after: any of those before it."""
    names = "abc"[:size]
    subsets = [
        list(itertools.chain.from_iterable(itertools.combinations(names[:at], n) for n in range(at + 1)))
        for at in range(size)
    ]
    return itertools.product(*subsets)


def small(size: int) -> Iterator[tuple[list[Step], tuple[str, ...]]]:
    for after, ends in itertools.product(graphs(size), itertools.product(ENDS, repeat=size)):
        for traits in (
            itertools.product(TRAITS, repeat=size) if size < 3 else itertools.product(TRAITS[::3], repeat=size)
        ):
            steps = [
                Step("abc"[at], after=after[at], can_fail=can_fail, ignored=ignored)
                for at, (can_fail, ignored) in enumerate(traits)
            ]
            yield steps, ends


def run(steps: Sequence[Step], ends: Sequence[str], order: Sequence[int], fail_fast: bool = False) -> list[Step]:
    """Play a run: each step has one task, which ends as told, in this order as far as there is a choice."""
    now = settle(steps, fail_fast)
    for _ in range(3 * len(steps) + 1):
        now = settle(
            [structs.replace(each, undone=1, all_created=True) if each.state is S.START else each for each in now],
            fail_fast,
        )
        running = [at for at in order if now[at].state is S.READY and now[at].undone]
        if not running:
            return now
        at = running[0]
        counts = {"success": "succeeded", "failed": "failed", "error": "errors"}
        now = list(now)
        now[at] = structs.replace(now[at], undone=0, **{counts[ends[at]]: 1})
        now = settle(now, fail_fast)
    raise AssertionError("it does not come to an end")


def expected(steps: Sequence[Step], ends: Sequence[str]) -> list[StepState]:
    """The states that the tables of the seed give, worked out without any order."""
    found: dict[str, StepState] = {}
    for each, end in zip(steps, ends, strict=True):
        results = {STEP_STATES[found[name]].result for name in each.after}
        if Result.ERROR in results:
            found[each.name] = S.SKIP_BY_ERROR
        elif Result.FAILED in results:
            found[each.name] = S.ACCEPTABLE_FAILED if each.can_fail else S.SKIP_BY_FAILED
        elif each.ignored:
            found[each.name] = S.IGNORED
        elif end == "failed":
            found[each.name] = S.ACCEPTABLE_FAILED if each.can_fail else S.FAILED
        else:
            found[each.name] = S.ERROR if end == "error" else S.SUCCESS
    return [found[each.name] for each in steps]


@pytest.mark.claim("F4", "F5", "F6", "F7", "F8", "F9")
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_small_graph_ends_as_the_tables_say_whatever_finishes_first(size: int) -> None:
    for steps, ends in small(size):
        wanted = expected(steps, ends)
        for order in itertools.permutations(range(size)):
            ended = run(steps, ends, order)
            assert [each.state for each in ended] == wanted, (steps, ends, order)
        results = {STEP_STATES[state].result for state in wanted}
        overall = "ERROR" if Result.ERROR in results else "FAILED" if Result.FAILED in results else "SUCCESS"
        assert workflow_state(ended) == overall


@pytest.mark.claim("F9")
def test_independent_branches_run_on_after_an_error_unless_it_is_to_fail_fast() -> None:
    steps = [Step("a"), Step("b"), Step("c", after=("b",)), Step("last", phase=1)]
    ends = ["error", "success", "success", "success"]
    assert [each.state for each in run(steps, ends, [0, 1, 2, 3])] == [S.ERROR, S.SUCCESS, S.SUCCESS, S.SUCCESS]
    fast = run(steps, ends, [0, 1, 2, 3], fail_fast=True)
    assert [each.state for each in fast] == [
        S.ERROR,
        S.SUCCESS,
        S.SKIP_BY_ERROR,
        S.SUCCESS,
    ]  # the finally step still runs
    assert workflow_state(fast) is WorkflowState.ERROR


@pytest.mark.claim("F9")
def test_a_step_that_fail_fast_cut_short_ends_in_error_when_its_tasks_are_done() -> None:
    cut = [Step("a", S.ERROR, errors=1), Step("b", S.START, undone=1)]
    assert settle(cut, fail_fast=True)[1].state is S.START
    assert settle([cut[0], Step("b", S.START, succeeded=1)], fail_fast=True)[1].state is S.ERROR


@pytest.mark.claim("F11")
@pytest.mark.parametrize("end", ENDS)
def test_a_phase_starts_when_everything_before_it_is_done_whatever_the_results(end: str) -> None:
    steps = [Step("work"), Step("clean", phase=1), Step("tell", phase=2)]
    assert [each.state for each in settle(steps)] == [S.START, S.DORMANT, S.DORMANT]
    ended = run(steps, [end, "success", "success"], [0, 1, 2])
    assert [each.state for each in ended[1:]] == [S.SUCCESS, S.SUCCESS]


@pytest.mark.claim("F10")
def test_a_circle_that_got_past_the_checks_is_shown_as_stuck() -> None:
    steps = settle([Step("a", after=("b",)), Step("b", after=("a",))])
    assert workflow_state(steps) is WorkflowState.STUCK


@pytest.mark.claim("F16")
def test_retry_undoes_what_erred_and_leaves_what_failed() -> None:
    was = [
        Step("a", S.ERROR, succeeded=3, errors=2, all_created=True),
        Step("b", S.ERROR, succeeded=3, errors=2),
        Step("c", S.SKIP_BY_ERROR, after=("a",)),
        Step("d", S.FAILED, failed=1, all_created=True),
        Step("e", S.SKIP_BY_FAILED, after=("d",)),
        Step("f", S.SUCCESS, succeeded=1, all_created=True, phase=1),
    ]
    now = states.retry(was)
    assert [(each.state, each.undone, each.errors) for each in now] == [
        (S.READY, 2, 0),
        (S.START, 2, 0),
        (S.DORMANT, 0, 0),
        (S.FAILED, 0, 0),
        (S.SKIP_BY_FAILED, 0, 0),
        (S.SUCCESS, 0, 0),
    ]
    for before, after in zip(was, now, strict=True):
        assert before.state is after.state or after.state in RETRY_MOVES[before.state]


@pytest.mark.claim("F16")
def test_abort_ends_what_is_not_done_in_every_phase() -> None:
    was = [Step("a", S.SUCCESS), Step("b", S.READY, undone=1), Step("c", S.START), Step("d"), Step("e", phase=1)]
    ended = states.abort(was)
    assert [each.state for each in ended] == [S.SUCCESS, S.ERROR, S.ERROR, S.SKIP_BY_ERROR, S.SKIP_BY_ERROR]
    assert workflow_state(ended) is WorkflowState.ERROR


@pytest.mark.claim("F15")
def test_progress_is_the_effort_that_is_done() -> None:
    steps: list[tuple[Step, float, int | None]] = [
        (Step("a", S.SUCCESS), 2, 1),
        (Step("b", S.READY, undone=3, succeeded=1, all_created=True), 4, 4),
        (Step("c", S.START, undone=50, succeeded=50), 1, 1000),
        (Step("d"), 3, 1),
        (Step("e", S.FAILED), 0, 1),
    ]
    assert states.progress(steps) == pytest.approx((2 + 1 + 0.05) / 10, abs=1e-4)
    assert states.progress([(Step("a", S.SUCCESS), 1, 1)]) == 1.0


@pytest.mark.claim("F4", "F5")
@given(some.data())
def test_larger_graphs_end_alike_in_any_order(data: some.DataObject) -> None:
    size = data.draw(some.integers(4, 12))
    steps = [
        Step(
            f"s{at}",
            after=tuple(f"s{other}" for other in sorted(data.draw(some.sets(some.integers(0, at - 1), max_size=3))))
            if at
            else (),
            can_fail=data.draw(some.booleans()),
            ignored=data.draw(some.booleans()),
        )
        for at in range(size)
    ]
    ends = data.draw(some.lists(some.sampled_from(ENDS), min_size=size, max_size=size))
    order = data.draw(some.permutations(range(size)))
    assert [each.state for each in run(steps, ends, order)] == expected(steps, ends)
