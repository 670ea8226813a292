"""A message about a long input repeats 80 characters of it at most, by every argument, file and setting."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import holdfast
from holdfast import App, HoldfastError, Invalid, config
from holdfast.builds import buildfile
from holdfast.builds.project import read_settings
from holdfast.declare import OPTIONS
from holdfast.simulation import description
from holdfast.testing import rehearse
from holdfast.worker.settings import WorkerSettings
from tests.long_inputs import LONG, too_much

TEXTS = (LONG, f"{LONG}\0", f"{LONG[:2500]}/{LONG}", f"{{{LONG}}}", [LONG], LONG.encode())
BLOCKING = {
    "await_final",
    "point_at",
    "run_until_idle",
    "run_worker",
    "wait",
    "wait_for_store",
    "worker",
    "worker_for_ever",
}
INTERNAL = {"aadd", "add", "declare", "enqueue_once", "redeclare", "store_run"}
VALUES = {
    "every": 5,
    "job_id": 1,
    "job_type": "send",
    "level": "pick",
    "on": True,
    "payload": {"to": "ada"},
    "queue": "mail",
    "routine": "tick",
    "schedule": "nightly",
    "step": "count",
    "workflow": "report",
}
VALUES_OF_CLASSES = (
    "Adaptive",
    "Exponential",
    "Fixed",
    "Linear",
    "Reschedule",
    "Retry",
    "Snooze",
    "per_key",
    "rate",
    "share",
)


@pytest.fixture
def shop() -> Iterator[App]:
    with App("sqlite://:memory:", name="shop") as app:
        mail = app.queue("mail")

        @mail.job
        def send(
            to: str, copies: int = 1, kind: Literal["plain", "rich"] = "plain", more: list[int] | None = None
        ) -> None: ...

        report = app.workflow("report", params={"day": "monday"})
        report.step()(count)
        app.schedule("nightly", job=send, cron="0 3 * * *", zone="UTC", payload={"to": "ada"})
        app.routine(every=5)(tick)
        report.submit("monday")
        send.enqueue(to="ada")
        yield app


def count(task: Any) -> None: ...


def tick(turn: Any) -> None: ...


def refusal(call: Callable[..., Any], *given: Any, **named: Any) -> str:
    """The message with which a call is refused; empty if it is not, or if Python refuses a value of that type."""
    try:
        made = call(*given, **named)
        if inspect.iscoroutine(made):
            made.close()
    except HoldfastError as error:
        return str(error)
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    return ""


def verbs(thing: Any) -> Iterator[Callable[..., Any]]:
    """The public methods of an object that only ask or change."""
    for name in dir(type(thing)):
        verb = getattr(type(thing), name)
        if not name.startswith("_") and name not in BLOCKING | INTERNAL and inspect.isfunction(verb):
            yield getattr(thing, name)


def calls(verb: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The verb with each of its arguments too long, and with what else it needs."""
    parameters = [each for each in inspect.signature(verb).parameters.values() if each.kind is not each.VAR_POSITIONAL]
    for long in parameters:
        needed = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
        values = {each.name: VALUES.get(each.name, "ada") for each in needed}
        for text in TEXTS:
            if long.kind is not long.VAR_KEYWORD:
                yield (), {**values, long.name: text}
            elif isinstance(text, str):
                yield (), {**values, text: 1}


def sweep(*things: Any) -> dict[str, str]:
    """What each of these callables answers to long arguments."""
    found = {}
    for verb in things:
        for number, (given, named) in enumerate(calls(verb)):
            found[f"{getattr(verb, '__qualname__', verb)} {number}"] = refusal(verb, *given, **named)
    return {what: message for what, message in found.items() if message}


def assert_short(messages: dict[str, str], least: int) -> None:
    assert len(messages) >= least
    assert {what: message.replace(LONG, "LONG") for what, message in messages.items() if too_much(message)} == {}


def test_verbs_repeat_little(shop: App) -> None:
    run, job, send = shop.workflow_run("report", "monday"), shop.find()[0], shop.job_types["send"]
    things = (shop, shop.queues["mail"], send, shop.workflows["report"], run, job)
    assert_short(sweep(*(verb for thing in things for verb in verbs(thing))), 300)


def test_values_and_apps_repeat_little() -> None:
    assert_short(sweep(*(getattr(holdfast, name) for name in VALUES_OF_CLASSES), App), 60)


def test_options_repeat_little(shop: App) -> None:
    send, found = shop.job_types["send"], {}
    for text in TEXTS:
        tables = App("sqlite://:memory:", table_naming_strategy=lambda *_, table=text: table)
        for option in (*OPTIONS, "connection"):
            found[f"using {option} {text!r:.9}"] = refusal(
                lambda **named: send.using(**named).enqueue(to="a"), **{option: text}
            )
        for setting in WorkerSettings.__struct_fields__:
            found[f"worker {setting} {text!r:.9}"] = refusal(shop.worker, **{setting: text})
        for argument in ("to", "copies", "kind", "more"):
            found[f"enqueue {argument} {text!r:.9}"] = refusal(send.enqueue, **{"to": "ada", argument: text})
        found[f"table {text!r:.9}"] = refusal(tables.queue, "mail")
        with rehearse(shop) as jobs:
            for option in ("job_key", "state", "count"):
                found[f"enqueued {option} {text!r:.9}"] = refusal(jobs.enqueued, **{option: text})
    assert_short({what: message for what, message in found.items() if message}, 60)


def test_urls_repeat_little() -> None:
    files, servers = (LONG, f"sqlite:///{LONG}", f"sqlite:////{LONG}/a"), (f"{LONG}/a", f"a/{LONG} ", f"a?{LONG}=1")
    urls = (*files, f"{LONG}://a", *(f"postgresql://{server}" for server in servers))
    assert_short({url[:20] + url[-9:]: refusal(lambda url=url: App(url).find()) for url in urls}, len(urls))


FILES = {
    "settings": lambda text: config.resolve({}, {}, text, "holdfast.toml"),
    "projects": lambda text: read_settings(config.tomllib.loads(text), "holdfast.toml"),
    "build": lambda text: buildfile.read(text, "holdfast.build.toml"),
    "fleet": lambda text: description.fleet(description.read(text, "fleet.toml")),
}
TABLES = {
    "settings": ("url", "patience", "worker.queues", "serve.port", "log.level"),
    "projects": ("projects.shop.repository", "projects.shop.branches", "projects.shop.secret", "builds.folder"),
    "build": (
        "steps.a.run",
        "steps.a.after",
        "steps.a.if",
        "steps.a.timeout",
        "steps.a.outputs",
        f"steps.{LONG}",
        f"steps.{LONG}.run",
    ),
    "fleet": (
        "simulation.zone",
        "simulation.start",
        "queues.mail.throttle_limit",
        "types.send.arrivals",
        "workers.a.count",
        f"queues.{LONG}.limit",
        f"types.{LONG}",
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_repeat_little(kind: str) -> None:
    values = [f'"{LONG}"', f'["{LONG}"]', f'{{ {LONG} = "a" }}', "1"]
    texts = [f"{key} = {value}" for key in TABLES[kind] for value in values]
    texts += [f"{LONG} = 1", f"{LONG}.a = 1"]
    assert_short({text[:60]: message for text in texts if (message := refusal(FILES[kind], text))}, 8)


@pytest.mark.parametrize("key", ["name", "params", "steps", "priority", "stepList", "workflowName"])
def test_definitions_repeat_little(key: str, tmp_path: Path) -> None:
    app, found = App("sqlite://:memory:"), {}
    for value in (
        f'"{LONG}"',
        f'["{LONG}"]',
        f'[{{"name": "{LONG}"}}]',
        f'{{"{LONG}": 1}}',
        f'[{{"name": "a", "after": ["{LONG}"]}}]',
    ):
        file = tmp_path / "report.json"
        file.write_text(f'{{"{key}": {value}}}')
        found[value[:40]] = refusal(app.load_workflow, file, {})
    assert_short(found, 5)


def test_what_is_short_is_repeated_whole() -> None:
    with pytest.raises(Invalid, match="Job type 'a b': use letters"):
        App("sqlite://:memory:").reset_breaker("a b")
