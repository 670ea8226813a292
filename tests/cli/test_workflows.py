"""`holdfast workflows`: runs looked at, held and released from the command line."""

import pytest

from holdfast import App
from tests.cli.conftest import Call


def declare(shop: App) -> None:
    report = shop.workflow("report")
    report.step(name="work", shards=2)(lambda task: None)
    report.step(name="then", after=["work"])(lambda task: None)
    shop.redeclare()
    shop.store.queues()  # stores what is declared


@pytest.mark.claim("F17")
def test_hold_and_release_one_run(cli: Call, shop: App, url: str) -> None:
    declare(shop)
    run = shop.submit("report", "monday")
    held = cli("workflows", "hold", "pick", "report", "monday", "--url", url, "--json").json
    assert (held["level"], held["workflow"], held["trigger"]) == ("pick", "report", "monday")
    assert shop.run_until_idle() == 0
    shown = cli("workflows", "show", "report", "monday", "--url", url, "--json").json
    assert shown["holds"] == [held]
    assert cli("workflows", "holds", "--url", url, "--json").json == [held]
    for page in (("show", "report", "monday"), ("list",), ("holds",)):
        assert "starting tasks of run `monday` of workflow `report`" in cli("workflows", *page, "--url", url).out
    assert cli("workflows", "release", "pick", "report", "monday", "--url", url, "--json").json == []
    shop.run_until_idle()
    assert run.refresh().state == "SUCCESS"
    assert cli("workflows", "holds", "--url", url).out == "Nothing is held.\n"


@pytest.mark.claim("F17")
def test_a_held_submission_is_exit_code_four_and_says_how_to_go_on(cli: Call, shop: App, url: str) -> None:
    declare(shop)
    said = cli("workflows", "hold", "submit", "--url", url).out
    assert said == "Submitting of every workflow is held. `holdfast workflows release submit` lets it go on.\n"
    answer = cli("workflows", "submit", "report", "monday", "--url", url)
    assert answer.code == 4
    assert "`holdfast workflows release submit` lets it go on" in answer.err
    assert cli("workflows", "release", "submit", "--url", url).out == "Submitting of every workflow goes on.\n"
    assert cli("workflows", "submit", "report", "monday", "--url", url).code == 0


@pytest.mark.parametrize("params", ['{"day": 1, "day": 2}', "[1]", "[" * 60_000])
def test_params_that_are_no_object_of_json_submit_nothing(cli: Call, shop: App, url: str, params: str) -> None:
    declare(shop)
    answer = cli("workflows", "submit", "report", "monday", "--params", params, "--url", url)
    assert (answer.code, answer.out) == (2, "")
    assert shop.workflow_runs() == []


@pytest.mark.claim("F17")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("hold", "pikc"), 2),
        (("hold", "submit", "report", "monday"), 2),
        (("hold", "pick", "repot"), 3),
        (("hold", "pick", "report", "sunday"), 3),
        (("release", "pick"), 3),
    ],
)
def test_what_cannot_be_held_has_its_exit_code(
    cli: Call, shop: App, url: str, arguments: tuple[str, ...], code: int
) -> None:
    declare(shop)
    shop.submit("report", "monday")
    answer = cli("workflows", *arguments, "--url", url)
    assert (answer.code, answer.out) == (code, "")


@pytest.mark.claim("E1")
def test_explain_tells_of_one_step_or_of_all_that_are_not_done(cli: Call, shop: App, url: str) -> None:
    declare(shop)
    shop.submit("report", "monday")
    told = cli("workflows", "explain", "report", "monday", "--url", url, "--json").json
    assert [(each["step"], each["reason"]) for each in told] == [("work", "tasks"), ("then", "after")]
    one = cli("workflows", "explain", "report", "monday", "then", "--url", url, "--json").json
    assert one == told[1]
    said = cli("workflows", "explain", "report", "monday", "then", "--url", url).out
    assert said == "after: Step `then` waits for step `work`, which is `READY`.\n"
    assert "waits for step `work`, which is `READY`." in cli("workflows", "show", "report", "monday", "--url", url).out
    assert cli("workflows", "explain", "report", "monday", "tehn", "--url", url).code == 3
    shop.run_until_idle()
    said = cli("workflows", "explain", "report", "monday", "--url", url).out
    assert said == "Run `monday` of workflow `report` is done: `SUCCESS`.\n"
