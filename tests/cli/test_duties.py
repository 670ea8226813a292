"""`holdfast workers duty`: rules about the duties of workers, and what `workers list` and `doctor` say of them."""

import pytest

from holdfast import App
from holdfast.jobs.placement import DUTIES
from tests.cli.conftest import Call

pytestmark = pytest.mark.claim("F20")


def test_a_duty_is_switched_listed_and_the_rule_removed(cli: Call, shop: App, url: str) -> None:
    assert "There are no rules" in cli("workers", "duty", "list", "--url", url).out
    made = cli("workers", "duty", "off", "sweep", "--label", "gpu", "--url", url, "--json").json
    assert (made["duty"], made["on"], made["label"], made["host"], made["version"]) == (
        *("sweep", False, "gpu", None, None),
    )
    assert (
        "`run` is on for workers with host db" in cli("workers", "duty", "on", "run", "--host", "db", "--url", url).out
    )
    listed = cli("workers", "duty", "list", "--url", url, "--json").json
    assert [(rule["duty"], rule["on"]) for rule in listed] == [("run", True), ("sweep", False)]
    assert "workers with label gpu" in cli("workers", "duty", "--url", url).out
    assert "is removed" in cli("workers", "duty", "remove", made["id"], "--url", url).out
    assert [rule.duty for rule in shop.duty_rules()] == ["run"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("off", "dance"), 2, "known are run, sweep, schedule, serve"),
        (("toggle", "run"), 2, "say on, off, list or remove"),
        (("remove", "sweep"), 2, "give the id of a rule"),
        (("remove", "99"), 3, "no rule 99"),
        (("off", "run", "--host", ""), 2, "host=''"),
    ],
)
def test_what_makes_no_sense_is_refused(
    cli: Call, shop: App, url: str, words: tuple[str, ...], code: int, told: str
) -> None:
    answer = cli("workers", "duty", *words, "--url", url)
    assert (answer.code, told in answer.err) == (code, True)
    assert shop.duty_rules() == []


def test_the_list_of_workers_shows_their_duties(cli: Call, shop: App, url: str) -> None:
    with shop.worker(duties=["run", "sweep"], name="half"), shop.worker(name="whole"):
        found = cli("workers", "list", "--url", url, "--json").json
        assert {row["name"]: tuple(row["duties"]) for row in found} == {"whole": DUTIES, "half": ("run", "sweep")}
        told = cli("workers", "list", "--url", url).out
        assert "run, sweep" in told


@pytest.mark.parametrize("lacking", ["run", "sweep", "schedule"])
def test_doctor_complains_when_nobody_has_a_duty(cli: Call, shop: App, url: str, lacking: str) -> None:
    kept = [duty for duty in DUTIES if duty != lacking]
    with shop.worker(duties=kept):
        answer = cli("doctor", "--url", url)
        assert answer.code == 1
        assert f"no live worker has the duty `{lacking}`" in answer.out
        with shop.worker():
            assert cli("doctor", "--url", url).code == 0
