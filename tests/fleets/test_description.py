"""Descriptions of fleets: what may stand in one, and everything that is wrong told at once with its place."""

import math
import random
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.simulation import chance, description
from holdfast.simulation.description import WrongDescription, changed, duration, fleet, read
from holdfast.simulation.fleet import Burst, Every, Exponential, Fixed, Percentiles, Poisson

SMALL = """
[queues.mail]
limit = 3

[types.send]
arrivals = { per_minute = 2 }

[workers.one]
"""

WRONG = """[simulation]
days = 0
zone = "Europe/Amsterdan"

[queues.mail]
limit = -1
throttler = { kind = "rat", count = 1 }

[queues.Mail]

[types.send]
queue = "mial"

[types.scan]
queue = "mail"
arrivals = { per_our = 5 }
duration = { p50 = 3, p90 = 2 }
failure_rate = 1.5
time_windows = ["25:00-26:00"]
throttle_factr = 2

[workers.one]
queues = ["mall"]
start = "late"
"""


def problems(text: str, *changes: str) -> tuple[str, ...]:
    with pytest.raises(WrongDescription) as caught:
        fleet(changed(read(text, "fleet.toml"), changes))
    return caught.value.problems


def test_a_small_description_is_complete() -> None:
    found = fleet(read(SMALL, "fleet.toml"))
    assert found.seconds == 86_400
    assert found.queues[0].throttle_limit == 3
    plan = found.types["send"]
    assert (plan.row.queue, plan.template.timeout, plan.template.retries) == ("mail", 30, 3)
    assert plan.arrivals == (Poisson((120.0,)),)
    assert plan.duration == Fixed(1.0)
    assert found.workers[0].concurrency == 100


def test_everything_that_is_wrong_is_told_at_once_with_its_line() -> None:
    found = problems(WRONG)
    for line, words in (
        (2, "`days` is 0; give a number above 0 and at most 366."),
        (3, "did you mean Europe/Amsterdam?"),
        (6, "`limit` is -1; give a number of at least 0."),
        (7, "`throttler`"),
        (9, "Queue name 'Mail': use lower-case letters"),
        (12, "`mial` is no queue of this file. Did you mean `mail`?"),
        (16, "`arrivals` is {'per_our': 5}; give { per_hour = 600 }"),
        (17, "a higher percentile cannot be shorter"),
        (18, "`failure_rate` is 1.5; give a number of at least 0 and at most 1."),
        (19, "`time_windows`"),
        (20, "`throttle_factr` is not a known key. Did you mean `throttle_factor`?"),
        (23, "`mall` is none of the queues of this file. Did you mean `mail`?"),
        (24, "`start` is 'late'; give times of the day"),
    ):
        assert any(told.startswith(f"fleet.toml:{line}: ") and words in told for told in found), (line, words, found)
    assert len(found) == 13


def test_an_empty_description_says_what_is_missing() -> None:
    assert [told.split("; ")[1] for told in problems("")] == [
        "write one as [queues.NAME].",
        "write one as [types.NAME].",
        "write one as [workers.NAME].",
    ]


def test_what_is_not_toml_is_told_with_its_line() -> None:
    assert "fleet.toml: is not TOML: " in problems("[queues\n")[0]
    assert "line 1" in problems("[queues\n")[0]


def test_a_change_goes_over_what_the_file_says() -> None:
    found = fleet(
        changed(
            read(SMALL, "fleet.toml"),
            [
                "queues.mail.limit=20",
                "workers.more.count=2",
                "types.send.time_windows=['22:00-06:00']",
                "simulation.zone=Europe/Paris",
            ],
        )
    )
    assert found.queues[0].throttle_limit == 20
    assert [plan.name for plan in found.workers] == ["one", "more"]
    assert found.types["send"].row.default_time_windows == ("22:00-06:00",)
    assert found.zone == "Europe/Paris"
    assert fleet(read(SMALL, "fleet.toml")).queues[0].throttle_limit == 3


def test_a_change_that_is_wrong_is_told_as_it_was_written() -> None:
    assert problems(SMALL, "queues.mail.limti=20") == (
        "--set queues.mail.limti=20: `limti` is not a known key. Did you mean `limit`?",
    )
    assert problems(SMALL, "types.send.throttle_factor=5")[0].startswith("--set types.send.throttle_factor=5: ")
    with pytest.raises(Invalid, match="is no change; write what and how"):
        changed(read(SMALL, "fleet.toml"), ["=3"])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (2, Fixed(2.0)),
        ({"exponential": 4}, Exponential(4.0)),
        ({"p50": 1, "p84.1344746": math.e}, Percentiles(((0.0, 0.0), (1.0, 1.0)))),
        ({"median": 1, "p84.1344746": math.e, "max": 9}, Percentiles(((0.0, 0.0), (1.0, 1.0)), 0.0, 9.0)),
    ],
)
def test_durations(written: Any, meant: Any) -> None:
    found = duration(written)
    if isinstance(meant, Percentiles):
        assert isinstance(found, Percentiles)
        for (at, value), (wanted_at, wanted) in zip(found.points, meant.points, strict=True):
            assert (at, value) == pytest.approx((wanted_at, wanted), abs=1e-6)
        assert (found.least, found.most) == (meant.least, meant.most)
    else:
        assert found == meant


@pytest.mark.parametrize("written", [-1, "long", {}, {"p50": 1}, {"p0": 1, "p50": 2}, {"p50": 1, "x": 2}, {"mean": 1}])
def test_a_duration_that_is_none_is_refused(written: Any) -> None:
    with pytest.raises(Invalid):
        duration(written)


def test_what_is_drawn_has_the_percentiles_that_were_asked_for() -> None:
    asked = duration({"p50": 1, "p90": 3, "p99": 20, "max": 60})
    luck = random.Random(3)
    drawn = sorted(chance.seconds_of(asked, luck) for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(1, rel=0.05)
    assert drawn[18_000] == pytest.approx(3, rel=0.05)
    assert drawn[19_800] == pytest.approx(20, rel=0.1)
    assert drawn[-1] == 60
    lognormal = duration({"mean": 10, "deviation": 5})
    assert sum(chance.seconds_of(lognormal, luck) for _ in range(20_000)) / 20_000 == pytest.approx(10, rel=0.02)


def test_arrivals() -> None:
    windows = description.windows.parse_all(["mon-fri 08:00-18:00"])
    found = description.arrivals(
        [
            {"every": 10, "during": ["mon-fri 08:00-18:00"]},
            {"by_hour": list(range(24))},
            {"burst": 5, "at": ["09:00", "08:00"], "within": 60},
        ]
    )
    assert found[0] == Every(10.0, windows)
    assert found[1] == Poisson(tuple(map(float, range(24))))
    assert isinstance(found[2], Burst)
    assert [at.hour for at in found[2].at] == [8, 9]
    with pytest.raises(Invalid, match="24 numbers"):
        description.arrivals({"by_hour": [1, 2]})
