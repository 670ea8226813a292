"""The rules of placement: who asks for what, and which duties a worker has."""

from typing import Any

import pytest

from holdfast import App, Invalid
from holdfast.jobs.placement import (
    DUTIES,
    Asks,
    Colleague,
    DutyRule,
    Preference,
    asking,
    check_rule,
    duties_of,
)

pytestmark = pytest.mark.claim("F20")
GPU = {"paint": Preference(("gpu",), 7.0)}


def other(*labels: str, types: tuple[str, ...] = ("paint", "send"), takes_jobs: bool = True) -> Colleague:
    return Colleague(types, labels, takes_jobs)


def test_whoever_has_the_preferred_labels_asks_for_everything() -> None:
    assert asking(("paint", "send"), GPU, ("gpu", "big"), [other("gpu")]) == Asks(("paint", "send"))


def test_others_leave_it_to_a_live_worker_that_has_them() -> None:
    assert asking(("paint", "send"), GPU, (), [other(), other("gpu")]) == Asks(("send",), (("paint", 7.0),))


@pytest.mark.parametrize(
    "colleague",
    [
        other(),
        other("gpu", types=("send",)),
        other("gpu", takes_jobs=False),
    ],
    ids=["without the label", "without the type", "that takes no jobs"],
)
def test_nobody_is_waited_for_who_would_not_take_it(colleague: Colleague) -> None:
    assert asking(("paint", "send"), GPU, (), [colleague]) == Asks(("paint", "send"))


def test_all_of_several_labels_are_preferred_together() -> None:
    wanted = {"paint": Preference(("gpu", "big"))}
    assert asking(("paint",), wanted, ("gpu",), [other("gpu", "big")]).late == (("paint", 5.0),)
    assert asking(("paint",), wanted, ("big", "gpu"), [other("gpu", "big")]).late == ()


def test_a_worker_that_leaves_jobs_to_others_looks_for_them_in_time() -> None:
    assert Asks(("send",)).look_every is None
    assert Asks((), (("paint", 7.0), ("draw", 3.0))).look_every == 1.5


def rule(duty: str, on: bool, id: int = 1, **whom: Any) -> DutyRule:
    return DutyRule(duty, on, id=id, **whom)


def duties(*rules: DutyRule, own: tuple[str, ...] = DUTIES) -> tuple[str, ...]:
    return duties_of(own, rules, "1.4.2", "web-7", ("gpu", "big"))


@pytest.mark.parametrize(
    "whom",
    [
        {},
        {"label": "gpu"},
        {"host": "web-7"},
        {"host": "web-*"},
        {"version": "1.4.2"},
        {"version": "1.4.*"},
        {"label": "big", "host": "web-?", "version": "1.*"},
    ],
)
def test_a_rule_fits_by_label_host_and_version(whom: dict[str, str]) -> None:
    assert duties(rule("sweep", False, **whom)) == ("run", "schedule", "serve")


@pytest.mark.parametrize(
    "whom", [{"label": "cpu"}, {"host": "web-8"}, {"version": "1.4"}, {"label": "gpu", "host": "db"}]
)
def test_a_rule_that_does_not_fit_changes_nothing(whom: dict[str, str]) -> None:
    assert duties(rule("sweep", False, **whom)) == DUTIES


def test_the_newest_rule_that_fits_wins_over_settings_and_older_rules() -> None:
    off, on = rule("run", False, 1), rule("run", True, 2, host="web-7")
    assert "run" in duties(on, off)
    assert "run" not in duties(on, rule("run", False, 3, label="gpu"))
    assert duties(rule("run", True), own=("sweep",)) == ("run", "sweep")


def test_bad_duties_and_rules_are_refused() -> None:
    app = App("sqlite://:memory:")
    with pytest.raises(Invalid, match="no duty 'dance'; known are run, sweep, schedule, serve"):
        check_rule(rule("dance", True))
    with pytest.raises(Invalid, match="host=''"):
        check_rule(rule("run", True, host=""))
    with pytest.raises(Invalid, match="no duty 'dance'"):
        app.worker(duties=["dance"])
    with pytest.raises(Invalid, match="no duty 'dance'"):
        app.switch_duty("dance", False)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"prefers": ["gpu"], "prefer_for": -1}, "prefer_for=-1"),
        ({"prefers": [""]}, "prefers"),
        ({"labels": [7]}, "labels"),
        ({"labels": 5}, "labels"),
        ({"prefers": None}, "prefers"),
    ],
)
def test_bad_preferences_are_refused_where_they_are_written(given: dict[str, Any], told: str) -> None:
    queue = App("sqlite://:memory:").queue("work")
    with pytest.raises(Invalid, match=told):
        queue.job(name="paint", **given)(lambda: None)
    step = App("sqlite://:memory:").workflow("report").step
    with pytest.raises(Invalid, match=told):
        step(name="paint", **given)(lambda task: None)


def test_one_label_may_be_written_as_a_text() -> None:
    paint = App("sqlite://:memory:").queue("work").job(name="paint", labels="gpu", prefers="big")(lambda: None)
    assert (paint.row().labels, paint.row().prefers) == (("gpu",), ("big",))
