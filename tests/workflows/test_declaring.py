"""F1, F12, F13: what code hands in for workflows is checked early, and told what to do instead."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from holdfast import WAIT, App, Invalid
from holdfast.clock import Clock
from holdfast.compose import Workflow

Make = Callable[..., App]


@pytest.fixture
def unconnected() -> App:
    """Declaring does no I/O."""
    return App("sqlite:///nowhere/at/all.db")


@pytest.fixture
def workflow(unconnected: App) -> Workflow:
    return unconnected.workflow("w")


async def async_items(task: Any) -> AsyncIterator[int]:
    yield 1


async def items_later(task: Any) -> list[int]:
    return [1]


def items(task: Any) -> Iterator[int]:
    yield 1


def plain(task: Any) -> None: ...


@pytest.mark.claim("F1")
@pytest.mark.parametrize(
    ("function", "told"),
    [
        pytest.param(5, "5 is no function", id="number"),
        pytest.param(items, "its function yields", id="generator"),
        pytest.param(async_items, "its function yields", id="async generator"),
        pytest.param(lambda: None, "its function takes no task", id="nothing"),
        pytest.param(lambda task, other, third: None, "takes `other`, `third` too", id="more"),
        pytest.param(lambda task, *, other: None, "takes `other` too", id="keyword"),
        pytest.param(lambda *, task: None, "its function takes no task", id="keyword only"),
    ],
)
def test_a_function_that_cannot_be_called_with_a_task_is_refused_where_it_is_declared(
    workflow: Workflow, function: Any, told: str
) -> None:
    with pytest.raises(Invalid, match=f"Step `s`: .*{told}"):
        workflow.step(name="s")(function)
    workflow.step(name="s")(plain)  # what was refused is not there


@pytest.mark.claim("F1")
@pytest.mark.parametrize(
    "function",
    [
        lambda *tasks: None,
        lambda task, other=1: None,
        lambda task, other=[], *, third={}: None,
        lambda task, *, other=1, **more: None,
        print,
    ],
)
def test_parameters_with_defaults_are_left_alone(workflow: Workflow, function: Any) -> None:
    workflow.step(name="s")(function)


@pytest.mark.claim("F12")
@pytest.mark.parametrize(
    ("maker", "told"),
    [
        pytest.param([1, 2], r"items=\[1, 2\]; give a function", id="list"),
        pytest.param(lambda: [1], "takes no task", id="nothing"),
        pytest.param(lambda cursor: [1], "takes no task", id="cursor alone"),
        pytest.param(lambda task, other: [1], "takes `other` too", id="more"),
        pytest.param(async_items, "is async", id="async generator"),
        pytest.param(items_later, "is async", id="coroutine"),
    ],
)
def test_what_cannot_make_items_is_refused_where_it_is_declared(workflow: Workflow, maker: Any, told: str) -> None:
    with pytest.raises(Invalid, match=f"Step `s`: .*{told}"):
        workflow.step(name="s", items=maker)(plain)


@pytest.mark.claim("F12")
@pytest.mark.parametrize("maker", [items, lambda task, cursor: [], lambda task, *, cursor=None: [], lambda *tasks: []])
def test_what_makes_items_may_take_a_cursor(workflow: Workflow, maker: Any) -> None:
    workflow.step(name="s", items=maker)(plain)


@pytest.mark.claim("F1")
def test_a_step_that_is_refused_may_be_declared_again(workflow: Workflow) -> None:
    with pytest.raises(Invalid, match="isolation='vm'"):
        workflow.step(name="s", isolation="vm")(plain)
    workflow.step(name="s")(plain)
    assert [step.name for step in workflow.definition.steps] == ["s"]


@pytest.mark.claim("F1")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"after": 5}, "after=5; give a list"),
        ({"params": [1]}, r"params=\[1\]; give a dict"),
    ],
)
def test_options_of_a_wrong_kind_are_told(workflow: Workflow, options: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        workflow.step(name="s", **options)(plain)


@pytest.mark.claim("F1")
def test_a_workflow_of_a_wrong_kind_is_told(unconnected: App) -> None:
    with pytest.raises(Invalid, match="Workflow name None"):
        unconnected.workflow(None)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=r"workflow 'x': params=\[1\]; give a dict"):
        unconnected.workflow("x", params=[1])  # type: ignore[arg-type]
    assert "x" not in unconnected.workflows


@pytest.mark.claim("F1", "F8")
@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"params": [1]}, r"params=\[1\]; give a dict"),
        ({"steps": ["s"]}, r"steps=\['s'\]; give a dict"),
        ({"steps": {"s": 5}}, r"steps\['s'\]=5; give a dict"),
        ({"ignore": 5}, "ignore=5; give a list"),
        ({"ignore": "other"}, r"ignore `other`, which is no step\.$"),
        ({"steps": {"s": {"shardConf": {"shard": 4}}}}, r"step `s` a `shardConf`, .*`task\.repartition`"),
        ({"steps": {"s": {"n": 1, "packConf": {}}}}, r"step `s` a `packConf`, .*`task\.repartition`"),
        ({"ignore": ["ss"]}, r"ignore `ss`, which is no step\. Did you mean `s`\?$"),
    ],
)
def test_a_request_of_a_wrong_kind_is_told(app: Make, request_: dict[str, Any], told: str) -> None:
    own = app()
    workflow = own.workflow("w")
    workflow.step(name="s", can_ignore=True)(plain)
    with pytest.raises(Invalid, match=told):
        workflow.submit("t", **request_)
    assert own.workflow_runs() == []
    assert workflow.submit("t", ignore="s", params=None, steps=None).steps["s"].state == "IGNORED"  # type: ignore[arg-type]


def test_a_param_that_a_step_declares_may_have_any_name(app: Make) -> None:
    workflow = app().workflow("w")
    workflow.step(name="s", params={"shardConf": None})(plain)
    assert workflow.submit("t", steps={"s": {"shardConf": 4}}).state == "UNDONE"


def ends_with(own: App, **options: Any) -> str:
    """What a step that cannot go on is told."""
    function = options.pop("function", plain)
    workflow = own.workflow("w")
    workflow.step(name="s", retries=0, **options)(function)
    workflow.step(name="late", phase=1)(plain)
    run = workflow.submit("t")
    own.run_until_idle()
    assert run.refresh().steps["s"].state == "ERROR"
    return next(str(job.error) for job in own.find(job_type="w.s"))


@pytest.mark.claim("F12")
@pytest.mark.parametrize(
    ("maker", "told"),
    [
        pytest.param(lambda task: 5, "Step `s`: its items are 5", id="nothing to go through"),
        pytest.param(lambda task: [1, object()], "item 1 of step `s` has no JSON form", id="no JSON"),
        pytest.param(lambda task: [float("nan")], "item 0 of step `s` is nan", id="no number"),
        pytest.param(lambda task, cursor: [1], "its items gave 1; who takes a `cursor` gives pairs", id="no pairs"),
        pytest.param(lambda task, cursor: [(object(), 1)], "the cursor has no JSON form", id="no JSON as a cursor"),
    ],
)
def test_items_that_cannot_be_are_told(app: Make, maker: Any, told: str) -> None:
    assert told in ends_with(app(), items=maker)


@pytest.mark.claim("F12")
def test_items_come_as_what_json_makes_of_them(app: Make) -> None:
    own, seen = app(), list[Any]()
    workflow = own.workflow("w")
    workflow.step(name="s", items=lambda task: [{"a": [1, None]}, (1, 2), "é\0"])(lambda task: seen.append(task.item))
    workflow.submit("t")
    own.run_until_idle()
    assert seen == [{"a": [1, None]}, [1, 2], "é\0"]


@pytest.mark.claim("F12")
def test_items_that_take_their_time_do_not_keep_the_loop_from_others(app: Make) -> None:
    own, beside = app(clock=Clock()), threading.Event()
    workflow = own.workflow("w")

    def waits(task: Any) -> list[int]:
        assert beside.wait(60), "nothing else ran on the loop meanwhile"
        return [1]

    async def nothing(task: Any) -> None: ...

    async def other(task: Any) -> None:
        await asyncio.sleep(0)
        beside.set()

    workflow.step(name="slow", items=waits, retries=0, priority=1)(nothing)
    workflow.step(name="beside", priority=2)(other)
    with own.worker(concurrency=4):
        assert workflow.submit("t").wait(90).state == "SUCCESS"


@pytest.mark.claim("F13")
@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda task: task.repartition("lat", shards=2), "no step `lat`. Did you mean `late`?"),
        (lambda task: task.repartition("s", shards=2), "Step `s` has begun"),
        (lambda task: task.repartition("late"), "give shards= or packs="),
        (lambda task: task.repartition("late", shards=-2), "total is -2"),
    ],
)
def test_a_partition_that_cannot_be_changed_is_told(app: Make, act: Any, told: str) -> None:
    assert told in ends_with(app(), function=act)


@pytest.mark.claim("F13", "R3")
def test_a_task_that_waits_cannot_publish(app: Make) -> None:
    def both(task: Any) -> Any:
        task.publish(n=1)
        return WAIT

    assert "publish in a step after it" in ends_with(app(), function=both)


@pytest.mark.claim("F13")
def test_what_a_task_does_to_its_params_no_other_task_sees(app: Make) -> None:
    own, seen = app(), list[list[int]]()
    workflow = own.workflow("w", params={"list": []})

    def adds(task: Any) -> None:
        task.params["list"].append(task.index)
        seen.append(task.params["list"])

    workflow.step(name="s", shards=3)(adds)
    workflow.submit("t")
    own.run_until_idle()
    assert seen == [[0], [1], [2]]


@pytest.mark.claim("F13")
@pytest.mark.parametrize("fails", [True, False])
def test_only_a_task_that_succeeds_publishes(app: Make, fails: bool) -> None:
    own, seen = app(), list[Any]()
    workflow = own.workflow("w")

    def publishes(task: Any) -> None:
        task.publish(n=1)
        task.repartition("then", shards=3)
        if fails:
            raise RuntimeError("after all")

    workflow.step(name="s", retries=0)(publishes)
    workflow.step(name="then", phase=1)(lambda task: seen.append(task.params))
    workflow.submit("t")
    own.run_until_idle()
    assert seen == ([{}] if fails else [{"n": 1}] * 3)
