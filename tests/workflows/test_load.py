"""F1: definitions from what JSON, TOML and YAML give, in our own words and in TasCreed's; everything wrong at once."""

import contextlib
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import UNSET

from holdfast import Fixed, Invalid
from holdfast.jobs import retry
from holdfast.workflows.definition import Definition, StepDefinition, problems
from holdfast.workflows.load import load
from holdfast.workflows.partition import Items, Packs, Partition, Shards, Simple

pytestmark = pytest.mark.claim("F1")


def refused(content: Any, where: str = "") -> list[str]:
    """The places of what is wrong, in the order they are told; then all must be told at once."""
    with pytest.raises(Invalid) as caught:
        load(content, where)
    reasons = str(caught.value).split(" cannot be", 1)[1].split(": ", 1)[1]
    parts = reasons.split(" (")
    return [part.split(") ", 1)[-1].split(": ")[0].removeprefix("(") for part in parts if ": " in part]


def reason(content: Any) -> str:
    """The only thing that is wrong."""
    with pytest.raises(Invalid) as caught:
        load(content)
    assert "reasons" not in str(caught.value), str(caught.value)
    return str(caught.value).split(" cannot be: ", 1)[1].removesuffix(".")


def ours(**facts: Any) -> dict[str, Any]:
    """A workflow whose only step has these keys."""
    return {"name": "report", "steps": [{"name": "a", **facts}]}


def theirs(**facts: Any) -> dict[str, Any]:
    return {"jobName": "report", "steps": [{"stepName": "a", **facts}]}


def one_step(content: Any) -> StepDefinition:
    (found,) = load(content).steps
    return found


# Our own words.


def test_our_own_keys_are_the_names_of_the_python_api() -> None:
    found = load(
        {
            "name": "report",
            "params": {"day": "2026-11-15"},
            "priority": 10,
            "unique_alive": True,
            "fail_fast": True,
            "queue": "reports",
            "duration": 900,
            "version": 3,
            "steps": [
                {"name": "prep"},
                {
                    "name": "calc",
                    "after": ["prep"],
                    "phase": 1,
                    "shards": 4,
                    "can_fail": True,
                    "can_ignore": True,
                    "archive": True,
                    "effort": 2.5,
                    "params": {"x": [1, None]},
                    "max_undone": 2,
                    "retries": 7,
                    "retry": {"kind": "fixed", "seconds": 5},
                    "timeout": 60,
                    "priority": 1,
                    "queue": "heavy",
                    "labels": ["gpu"],
                    "handler": "calculate",
                    "duration": 30,
                },
            ],
        }
    )
    assert found == Definition(
        name="report",
        params={"day": "2026-11-15"},
        priority=10,
        unique_alive=True,
        fail_fast=True,
        queue="reports",
        duration=900,
        version="3",
        steps=(
            StepDefinition(name="prep"),
            StepDefinition(
                name="calc",
                after=("prep",),
                phase=1,
                partition=Shards(4),
                can_fail=True,
                can_ignore=True,
                archive=True,
                effort=2.5,
                params={"x": [1, None]},
                max_undone=2,
                retries=7,
                retry=retry.encode(Fixed(5)).replace("5.0", "5"),  # type: ignore[union-attr]
                timeout=60,
                priority=1,
                queue="heavy",
                labels=("gpu",),
                handler="calculate",
                duration=30,
            ),
        ),
    )
    assert retry.decode(found.steps[1].retry) == Fixed(5)


def test_a_step_with_nothing_but_a_name_is_as_in_python() -> None:
    assert one_step(ours()) == StepDefinition(name="a")


def test_steps_may_be_a_table_from_name_to_step() -> None:
    found = load({"name": "report", "steps": {"prep": None, "calc": {"after": "prep", "shards": 2}}})
    assert found.steps == (
        StepDefinition(name="prep"),
        StepDefinition(name="calc", after=("prep",), partition=Shards(2)),
    )


@pytest.mark.claim("F12")
@pytest.mark.parametrize(
    ("facts", "partition"),
    [
        ({}, Simple()),
        ({"shards": 4}, Shards(4)),
        ({"shards": {"total": 4, "first": 2}}, Shards(4, 2)),
        ({"packs": [0, 925, 100]}, Packs(0, 925, 100)),
        ({"packs": [0, None, 100]}, Packs(0, None, 100)),
        ({"packs": {"start": 0, "end": 9, "size": 5, "first": 1}}, Packs(0, 9, 5, 1)),
        ({"packs": {"start": 0, "size": 5, "infinite": True}}, Packs(0, None, 5)),
        ({"items": True}, Items()),
        ({"items": False}, Simple()),
        ({"shards": None, "packs": None}, Simple()),
    ],
)
def test_partitions_in_our_words(facts: dict[str, Any], partition: Partition) -> None:
    assert one_step(ours(**facts)).partition == partition


@pytest.mark.parametrize("nothing", [None, "none"])
def test_no_limit_is_null_or_the_word_none_where_there_is_no_null(nothing: Any) -> None:
    found = one_step(ours(retries=nothing, timeout=nothing))
    assert (found.retries, found.timeout) == (None, None)


@pytest.mark.claim("R4")
def test_a_file_that_says_the_default_has_said_it() -> None:
    for content, said in [
        (ours(), (UNSET, UNSET)),
        (ours(retries=3, timeout=30), (3, 30)),
        (theirs(), (UNSET, None)),
        (theirs(maxPickTimes=3, timeout=30), (3, 30)),
    ]:
        found = one_step(content)
        assert (found.retries, found.timeout) == said


@pytest.mark.parametrize("key", ["after", "params", "labels", "effort", "phase", "queue", "max_undone"])
def test_every_other_key_that_is_null_is_not_given(key: str) -> None:
    assert one_step(ours(**{key: None})) == StepDefinition(name="a")


# TasCreed's.

SAMPLE = {
    "jobName": "sample",
    "version": 1,
    "priority": 10,
    "uniqueAliveInstance": True,
    "params": {"k1": "v1"},
    "traits": [],
    "duration": 300_000,
    "steps": [
        {"stepName": "prep", "stepType": "SHARD", "shardConf": {"shard": 4, "maxTaskCount": 2}},
        {
            "stepName": "calc",
            "stepType": "PACK",
            "packConf": {"size": 100, "start": 0, "end": 1005, "maxTaskCount": 6},
            "dependentStep": "prep",
            "ignorable": True,
            "effort": 5,
        },
        {"stepName": "aggr-1", "dependency": {"steps": ["calc"]}, "traits": ["canFail"], "duration": 1500},
        {"stepName": "aggr-2", "dependency": {"doneSteps": ["calc"], "phase": 1}, "params": {"p1": "2"}},
    ],
}


def test_a_definition_of_tascreed_loads_as_it_is() -> None:
    assert load(SAMPLE) == Definition(
        name="sample",
        version="1",
        priority=90,
        unique_alive=True,
        params={"k1": "v1"},
        duration=300,
        steps=(
            StepDefinition(name="prep", partition=Shards(4), max_undone=2, timeout=None),
            StepDefinition(
                name="calc",
                partition=Packs(0, 1005, 100),
                max_undone=6,
                after=("prep",),
                can_ignore=True,
                effort=5,
                timeout=None,
            ),
            StepDefinition(name="aggr-1", after=("calc",), can_fail=True, duration=1.5, timeout=None),
            StepDefinition(name="aggr-2", after=("calc",), phase=1, params={"p1": "2"}, timeout=None),
        ),
    )


@pytest.mark.parametrize(("there", "here"), [(None, 100), (0, 100), (10, 90), (100, 0), (250, -150)])
def test_a_higher_priority_there_is_a_lower_one_here(there: int | None, here: int) -> None:
    assert load({**theirs(), "priority": there}).priority == here


@pytest.mark.parametrize(
    ("spelling", "field"),
    [
        *((name, "can_fail") for name in ("CAN_FAIL", "canFail", "can-fail")),
        *((name, "can_ignore") for name in ("CAN_IGNORE", "canIgnore", "can-ignore", "ignorable")),
        *((name, "archive") for name in ("ARCHIVE", "archive")),
    ],
)
def test_every_spelling_of_a_trait(spelling: str, field: str) -> None:
    found = one_step(theirs(traits=[spelling]))
    assert [name for name in ("can_fail", "can_ignore", "archive") if getattr(found, name)] == [field]


def test_a_trait_wins_over_the_older_key() -> None:
    assert one_step(theirs(ignorable=False, traits=["canIgnore"])).can_ignore
    assert not one_step(theirs(ignorable=False)).can_ignore


def test_traits_of_a_whole_job_are_known_and_change_nothing() -> None:
    assert load({**theirs(), "traits": ["CAN_FAIL", "archive"]}) == load(theirs())


@pytest.mark.claim("F12")
@pytest.mark.parametrize(
    ("facts", "partition"),
    [
        ({}, Simple()),
        ({"stepType": "SIMPLE"}, Simple()),
        ({"type": "SHARD", "shardConf": {"sharding": 4}}, Shards(4)),
        ({"stepType": "SHARD", "shardConf": {"shard": 4, "startShardId": 2}}, Shards(4, 2)),
        ({"stepType": "PACK", "packConf": {"size": 10, "start": 5, "end": 9}}, Packs(5, 9, 10)),
        ({"stepType": "PACK", "packConf": {"size": 10, "start": 5, "end": 9, "startPackId": 3}}, Packs(5, 9, 10, 3)),
        ({"stepType": "PACK", "packConf": {"size": 10, "start": 5, "infinite": True}}, Packs(5, None, 10)),
        ({"stepType": "PACK", "packConf": {"size": 10, "start": 5, "end": 9, "infinite": True}}, Packs(5, None, 10)),
        ({"stepType": "PACK", "packConf": {"size": 10, "start": 5, "end": 9, "infinite": False}}, Packs(5, 9, 10)),
    ],
)
def test_partitions_in_tascreeds_words(facts: dict[str, Any], partition: Partition) -> None:
    assert one_step(theirs(**facts)).partition == partition


@pytest.mark.claim("F12")
@pytest.mark.parametrize(("there", "here"), [(None, 50), (6, 6), (0, 50), (-1, 50)])
def test_the_most_tasks_at_a_time_are_50_unless_it_is_above_0(there: int | None, here: int) -> None:
    shards = theirs(stepType="SHARD", shardConf={"shard": 4, "maxTaskCount": there})
    assert one_step(shards).most_undone == here


@pytest.mark.parametrize(("there", "here"), [(None, UNSET), (0, 0), (5, 5), (-1, None)])
@pytest.mark.parametrize("key", ["maxPickTimes", "maxErrorTimes"])
def test_so_many_failures_are_forgiven_as_it_may_be_picked_again(key: str, there: int | None, here: Any) -> None:
    assert one_step(theirs(**{key: there})).retries == here


def test_a_class_is_a_handler_to_be_mapped_and_an_affinity_is_a_label() -> None:
    found = one_step(theirs(exeClass="com.example.Calc", affinityRule="eu"))
    assert (found.handler, found.labels) == ("com.example.Calc", ("eu",))


def test_both_ways_to_name_dependencies_count_together() -> None:
    content: dict[str, Any] = {
        "jobName": "report",
        "steps": [
            {"stepName": "a"},
            {"stepName": "b"},
            {"stepName": "c", "dependentStep": "a", "dependency": {"steps": ["b"]}},
            {"stepName": "d", "dependency": {}, "dependentStep": None},
        ],
    }
    assert [each.after for each in load(content).steps] == [(), (), ("b", "a"), ()]


def test_what_tascreed_does_not_have_may_be_added() -> None:
    found = load({**theirs(timeout=60, queue="heavy", retry={"kind": "none"}), "fail_fast": True, "queue": "reports"})
    assert (found.fail_fast, found.queue) == (True, "reports")
    assert (found.steps[0].timeout, found.steps[0].queue, found.steps[0].retry) == (60, "heavy", '{"kind":"none"}')


@pytest.mark.parametrize("marked", [{"jobName": "x"}, {"name": "x", "steps": [{"name": "a", "stepType": "SIMPLE"}]}])
def test_one_key_of_tascreed_makes_it_tascreeds(marked: dict[str, Any]) -> None:
    content = {"steps": [{"name": "a"}], "priority": 10, **marked}
    assert load(content).priority == 90
    assert load({"name": "x", "steps": [{"name": "a"}], "priority": 10}).priority == 10


# Everything that is wrong.


def test_everything_wrong_in_our_words_is_told_at_once_and_in_order() -> None:
    content = {
        "name": "a report",
        "queue": "Reports",
        "owner": "me",
        "steps": [
            {"name": "prep", "after": "calc"},
            {"name": "calc", "after": ["prep", "nobody"], "shrads": 4, "phase": -1},
            {"name": "prep", "packs": [0, 9], "effort": "much"},
            "tell",
            {"packs": [0, 9, 0], "timeout": 0, "params": []},
            {"name": "sum", "shards": 2, "items": True},
            {"name": "late", "after": ["end"], "retry": {"kind": "fixed"}},
            {"name": "end", "phase": 1},
        ],
    }
    assert refused(content, "report.json") == [
        *("owner", "name", "queue", "steps"),
        *("steps[1].shrads", "steps[1].phase", "steps[1].after"),
        *("steps[2].packs", "steps[2].effort", "steps[2].name"),
        "steps[3]",
        *("steps[4].name", "steps[4].packs[2]", "steps[4].params", "steps[4].timeout"),
        "steps[5]",
        *("steps[6].retry", "steps[6].after"),
    ]


def test_everything_wrong_in_tascreeds_words_is_told_at_once_and_in_order() -> None:
    content = {
        "jobName": "report",
        "name": "report",
        "priority": "high",
        "duration": 0,
        "traits": ["canFial"],
        "steps": [
            {"stepName": "a", "dependentStep": "c", "stepType": "SHRAD"},
            {"stepName": "b", "stepType": "PACK", "packConf": {"size": 0, "start": 1.5, "ende": 5}},
            {"stepName": "c", "stepType": "SHARD", "dependency": {"steps": ["a", "x"], "phaze": 1}},
            {"stepName": "d", "stepType": "SHARD", "shardConf": {"shard": "4", "startShardId": -1}},
            {"stepName": "e", "shardConf": {"shard": 4}, "traits": "canFail", "maxPickTimes": "x"},
            {"stepName": "f", "dependency": {"steps": ["b"], "doneSteps": ["b"], "phase": "1"}, "ignorable": 1},
            {"stepName": "g", "dependency": [], "stepType": "PACK", "packConf": 7, "duration": "x"},
        ],
    }
    assert refused(content) == [
        *("name", "duration", "traits[0]", "priority", "steps"),
        "steps[0].stepType",
        *("steps[1].packConf.end", "steps[1].packConf.ende", "steps[1].packConf.start", "steps[1].packConf.size"),
        *("steps[2].dependency.phaze", "steps[2].shardConf", "steps[2].dependency.steps"),
        *("steps[3].shardConf.shard", "steps[3].shardConf.startShardId"),
        *("steps[4].traits", "steps[4].shardConf", "steps[4].maxPickTimes"),
        *("steps[5].dependency.steps", "steps[5].dependency.phase", "steps[5].ignorable"),
        *("steps[6].duration", "steps[6].dependency", "steps[6].packConf"),
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (ours(shrads=4), "steps[0].shrads: is not a known key. Did you mean `shards`?"),
        ({**ours(), "prority": 5}, "prority: is not a known key. Did you mean `priority`?"),
        (ours(after="b"), "steps[0].after: `b` is no step of this workflow"),
        (ours(after="a"), "steps: a → a is a circle: each comes after the next, so none could ever start"),
        (ours(items="readers"), "steps[0].items: is 'readers'; give true: what makes the items is a function"),
        (ours(packs={"start": 0, "size": 5}), "steps[0].packs.end: there is none; give the last number, or say that they are infinite"),
        (theirs(stepType="PAKC"), "steps[0].stepType: is 'PAKC'; give SIMPLE, SHARD or PACK. Did you mean `PACK`?"),
        (theirs(traits=["canfail"]), "steps[0].traits[0]: is 'canfail', which is no trait. Did you mean `can-fail`?"),
        (
            theirs(dependentSteps="a"),
            "steps[0].dependentSteps: is not a key of TasCreed's form, which this is because of `jobName`. "
            "Did you mean `dependentStep`?",
        ),
        (theirs(name="b"), "steps[0].name: `stepName` says the same; give one of them"),
        (theirs(duration=-5), "steps[0].duration: is -5; give milliseconds above 0"),
        (
            theirs(packConf={"size": 1, "start": 0, "end": 1}),
            'steps[0].packConf: the step is SIMPLE and would not use it; give "stepType": "PACK" or leave it out',
        ),
        ({"name": "x", "steps": {"a": {"name": "b"}}}, "steps.a.name: the step is called `a` by the key of its table; leave this out"),
        ({"name": "x", "steps": {"a": {"effort": -1}}}, "steps.a.effort: is -1; give a number, 0 or more"),
        ({"name": "x", "steps": {"a b": {}}}, "steps.a b: is 'a b'; give letters, digits, _ and -, at most 200"),
        ({"name": "x", "steps": {"a": 5}}, "steps.a: is 5; give a table with the name of the step and more"),
        ({"name": "x", "steps": 5}, "steps: is 5; give a list of tables"),
        ({"name": "x", "steps": []}, "steps: there are none; a workflow needs one at least"),
        ({"steps": [{"name": "a"}]}, "name: there is none; give letters, digits, _ and -, at most 200"),
        ({"name": "x", "steps": [{"name": "a"}], 5: 6}, "5: is a key that is no text; write it in quotes"),
        ([], "it is []; give a table with a name and steps"),
        (None, "it is None; give a table with a name and steps"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place_and_what_to_do(content: Any, told: str) -> None:
    assert reason(content) == told


def test_the_file_is_named_when_it_is_known() -> None:
    with pytest.raises(Invalid, match=r"^flows/report\.toml: workflow `report` cannot be: steps\[0\]\.effort: is -1;"):
        load(ours(effort=-1), "flows/report.toml")


def test_what_its_reader_found_is_told_too() -> None:
    with pytest.raises(Invalid, match=r"for 2 reasons: \(1\) line 3: the key `a` stands twice\. \(2\) steps\[0\]"):
        load(ours(effort=-1), known=["line 3: the key `a` stands twice"])


VALUES = some.recursive(
    some.none() | some.booleans() | some.integers(-3, 200) | some.floats() | some.sampled_from(["a", "b", "", "SHARD", "none"]),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from(["a", "start", "size", "shard", "steps"]), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
OWN_KEYS = ("name", "after", "phase", "shards", "packs", "items", "effort", "retries", "retry", "labels", "params", "x")
THEIR_KEYS = ("stepName", "stepType", "dependency", "dependentStep", "shardConf", "packConf", "traits", "maxPickTimes")


@given(
    some.dictionaries(some.sampled_from(("name", "jobName", "priority", "traits", "duration", "params", "x")), VALUES),
    some.lists(some.dictionaries(some.sampled_from(OWN_KEYS + THEIR_KEYS), VALUES, max_size=6) | VALUES, max_size=4),
)
def test_whatever_is_written_is_read_or_refused_and_left_as_it_was(top: dict[str, Any], steps: list[Any]) -> None:
    content = {**top, "steps": steps}
    before = deepcopy(content)
    with contextlib.suppress(Invalid):
        assert problems(load(content)) == []
    assert msgspec.json.encode(content) == msgspec.json.encode(before)
