"""F1 of the pure part: what a definition holds, everything that can be wrong with it, and how a run keeps it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast import Invalid
from holdfast.workflows import definition as definitions
from holdfast.workflows.definition import Definition, StepDefinition, problems
from holdfast.workflows.partition import Items, Packs, Shards


def step(name: Any = "a", **facts: Any) -> StepDefinition:
    return StepDefinition(name=name, **facts)


def workflow(*steps: StepDefinition, **facts: Any) -> Definition:
    return Definition(**{"name": "report", "steps": steps or (step(),), **facts})


def places(definition: Definition) -> list[str]:
    return [problem.partition(":")[0] for problem in problems(definition)]


@pytest.mark.claim("F1")
def test_a_definition_that_is_right_is_given_back() -> None:
    right = workflow(
        step("prep"),
        step("calc", after=("prep",), partition=Packs(0, 925, 100), effort=0, timeout=None, retries=None),
        step("tell", after=("calc", "prep"), can_fail=True, can_ignore=True, labels=("mail",), queue="mail"),
        step("clean", phase=1, after=("prep",)),
    )
    assert problems(right) == []
    assert definitions.check(right) is right


@pytest.mark.claim("F1")
@pytest.mark.parametrize(
    ("facts", "place"),
    [
        ({"name": "a b"}, "name"),
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"priority": "high"}, "priority"),
        ({"priority": float("nan")}, "priority"),
        ({"priority": True}, "priority"),
        ({"unique_alive": 1}, "unique_alive"),
        ({"fail_fast": "no"}, "fail_fast"),
        ({"queue": "Reports"}, "queue"),
        ({"queue": None}, "queue"),
        ({"duration": 0}, "duration"),
        ({"version": 1}, "version"),
        ({"params": [1]}, "params"),
        ({"params": {1: 2}}, "params"),
        ({"params": {"x": float("inf")}}, "params"),
    ],
)
def test_a_wrong_value_of_a_workflow_is_named(facts: dict[str, Any], place: str) -> None:
    assert places(workflow(**facts)) == [place]


@pytest.mark.claim("F1")
@pytest.mark.parametrize(
    "facts",
    [
        {"after": "prep"},
        {"after": ("",)},
        {"after": (7,)},
        {"phase": -1},
        {"phase": 1.5},
        {"phase": 2**31},
        {"phase": None},
        {"can_fail": 0},
        {"can_ignore": "yes"},
        {"archive": None},
        {"effort": -1},
        {"effort": float("nan")},
        {"effort": "much"},
        {"params": "x"},
        {"params": {"x": object()}},
        {"max_undone": 0},
        {"max_undone": 2.5},
        {"retries": -1},
        {"retries": True},
        {"retry": '{"kind": "never"}'},
        {"retry": '{"kind": "fixed", "seconds": -1}'},
        {"retry": 5},
        {"timeout": 0},
        {"timeout": "30"},
        {"timeout": float("inf")},
        {"priority": "low"},
        {"queue": "two__words"},
        {"labels": ["gpu"]},
        {"labels": (" ",)},
        {"handler": ""},
        {"duration": -2},
    ],
)
def test_a_wrong_value_of_a_step_is_named_with_the_step(facts: dict[str, Any]) -> None:
    assert places(workflow(step("a", **facts))) == [f"steps.a.{next(iter(facts))}"]


@pytest.mark.claim("F1")
def test_a_workflow_needs_a_step() -> None:
    assert problems(Definition(name="report")) == ["steps: there are none; a workflow needs one at least"]


@pytest.mark.claim("F1")
def test_an_unknown_step_is_named_with_the_nearest_known_one() -> None:
    (problem,) = problems(workflow(step("prepare"), step("calc", after=("prepaer",))))
    assert problem == "steps.calc.after: `prepaer` is no step of this workflow. Did you mean `prepare`?"


@pytest.mark.claim("F1", "F11")
def test_a_step_cannot_come_after_one_of_a_later_phase() -> None:
    (problem,) = problems(workflow(step("a", after=("b",)), step("b", phase=2)))
    assert problem == "steps.a.after: `b` is in phase 2, which starts when all of phase 0 is done"
    assert problems(workflow(step("a"), step("b", phase=2, after=("a",)))) == []


@pytest.mark.claim("F1")
def test_every_step_of_a_name_that_is_taken_is_told() -> None:
    found = definitions.findings(workflow(step("a"), step("b"), step("a"), step("a")))
    assert [(each.step, each.field) for each in found] == [(2, "name"), (3, "name")]


@pytest.mark.fault(11, "a cycle")
@pytest.mark.claim("F1", "F10")
def test_circles_are_told_with_everything_else() -> None:
    wrong = workflow(
        step("a", after=("b",)),
        step("b", after=("a",)),
        step("c", after=("c",), effort=-1),
        step("d", after=("nobody",)),
        queue="?",
    )
    found = problems(wrong)
    assert [problem.partition(":")[0] for problem in found] == [
        "queue",
        "steps.c.effort",
        "steps.d.after",
        "steps",
        "steps",
    ]
    assert found[-2:] == [
        "steps: a → b → a is a circle: each comes after the next, so none could ever start",
        "steps: c → c is a circle: each comes after the next, so none could ever start",
    ]


@pytest.mark.claim("F1")
def test_numbers_of_partitions_are_told_with_everything_else() -> None:
    wrong = workflow(step("a", partition=Packs(None, "x", 0), effort="x"), step("b", partition=Shards(-1)))  # type: ignore[arg-type]
    assert places(wrong) == ["steps.a.start", "steps.a.end", "steps.a.size", "steps.a.effort", "steps.b.total"]


@pytest.mark.claim("F1", "F21")
def test_workflow_and_step_must_make_a_job_type_together() -> None:
    assert problems(workflow(step("s" * 100), name="w" * 99)) == []
    (problem,) = problems(workflow(step("s" * 100), name="w" * 100))
    assert "longer than 200 characters" in problem


@pytest.mark.claim("F1")
def test_a_refusal_has_every_reason_in_one_paragraph() -> None:
    with pytest.raises(Invalid) as one:
        definitions.check(workflow(step(effort=-1)))
    assert str(one.value) == "Workflow `report` cannot be: steps.a.effort: is -1; give a number, 0 or more."
    with pytest.raises(Invalid) as two:
        definitions.check(workflow(step("prep"), step("calc", after=("perp",)), queue="?"), where="report.json")
    assert str(two.value) == (
        "report.json: workflow `report` cannot be, for 2 reasons: (1) queue: is '?'; give lower-case letters, words joined "
        "by single underscores, at most 40 characters. (2) steps.calc.after: `perp` is no step of this workflow. "
        "Did you mean `prep`?"
    )


ANYTHING = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(),
    some.floats(),
    some.text(max_size=3),
    some.tuples(some.integers() | some.text(max_size=2)),
    some.lists(some.integers(), max_size=2),
    some.dictionaries(some.text(max_size=2) | some.integers(), some.integers() | some.binary(max_size=2), max_size=2),
)
FIELDS = [field for field in StepDefinition.__struct_fields__ if field != "partition"]


@pytest.mark.claim("F1")
@given(some.lists(some.dictionaries(some.sampled_from(FIELDS), ANYTHING, max_size=5), max_size=3), ANYTHING)
def test_whatever_a_definition_is_made_of_it_is_told_and_never_raised(steps: list[dict[str, Any]], other: Any) -> None:
    made = tuple(StepDefinition(**{"name": "a", **facts}) for facts in steps)
    definition = Definition(name="report", steps=made, priority=other, params=other, queue=other)
    if not problems(definition):
        assert definitions.check(definitions.decode(definitions.encode(definition)))


@pytest.mark.claim("F1")
def test_a_run_keeps_every_field_as_it_was() -> None:
    kept = workflow(
        step("a", partition=Items(), params={"x": [1, None, "é"]}, retry='{"kind":"none"}', handler="calc", duration=5),
        step("b", after=("a",), phase=3, partition=Shards(4, 2), timeout=None, retries=None, labels=("gpu", "eu")),
        params={"day": "2026-11-15"},
        unique_alive=True,
        version="7",
    )
    assert definitions.decode(definitions.encode(kept)) == kept


@pytest.mark.claim("F1")
def test_what_older_code_kept_is_as_if_it_had_been_said() -> None:
    """It wrote the defaults as well."""
    (found,) = definitions.decode('{"name": "report", "steps": [{"name": "a", "retries": 3, "timeout": 30}]}').steps
    assert (found.retries, found.timeout) == (3, 30)


@pytest.mark.claim("F12")
def test_at_most_50_tasks_are_undone_and_1000_of_items_unless_it_is_said() -> None:
    assert step().most_undone == step(partition=Packs(0, None, 1)).most_undone == 50
    assert step(partition=Items()).most_undone == 1000
    assert step(partition=Items(), max_undone=3).most_undone == 3


@pytest.mark.claim("F13")
def test_params_of_a_later_source_win() -> None:
    assert definitions.merged({"a": 1, "b": 1}, {"b": 2, "c": 2}, {}, {"c": 3}) == {"a": 1, "b": 2, "c": 3}


def test_a_step_is_found_by_its_name_or_the_nearest_is_named() -> None:
    assert workflow(step("prepare")).step("prepare").name == "prepare"
    with pytest.raises(Invalid, match=r"has no step `prepaer`\. Did you mean `prepare`\?"):
        workflow(step("prepare")).step("prepaer")


@pytest.mark.claim("F14")
@pytest.mark.parametrize("trigger", ["", "a/b", "x" * 201, None, 5, "a\0b", "\ud800", ".", ".."])
def test_a_trigger_is_a_short_text_that_can_be_a_part_of_an_address(trigger: Any) -> None:
    assert definitions.check_trigger("2026-11-15 ü") == "2026-11-15 ü"
    assert definitions.check_trigger("...") == "..."
    with pytest.raises(Invalid, match="trigger="):
        definitions.check_trigger(trigger)
