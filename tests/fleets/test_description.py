"""Descriptions of fleets: what may stand in one, and everything that is wrong told at once with its place."""

import math
import random
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.jobs.windows import parse_all
from holdfast.simulation import chance
from holdfast.simulation.description import WrongDescription, changed, fleet, over, read
from holdfast.simulation.fleet import Burst, Every, Exponential, Fixed, Percentiles, Poisson
from holdfast.simulation.values import arrivals, duration

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
limit = "many"
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
        (6, "`limit` is 'many'; give a number."),
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = " + "9" * 5000, "thousands of digits; write a smaller one"),
        ("x = " + "[" * 5000 + "]" * 5000, "deeper than 20 levels"),
        ("x = " + "[" * 25 + "]" * 25, "deeper than 20 levels"),
        (".".join("a" * 3000) + " = 1", "deeper than 20 levels"),
    ],
)
def test_toml_that_is_no_description_is_told(text: str, words: str) -> None:
    assert words in problems(text)[0]
    with pytest.raises(Invalid, match="--set"):
        fleet(changed(read(SMALL, "fleet.toml"), [text]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("types.send.queue=['mail']", "`['mail']` is no queue of this file. Did you mean `mail`?"),
        ("types.send.queue={a=1}", "is no queue of this file. Known are mail."),
        ("types.send.duration=1e303", "`duration` is 1e+303; give a number of at least 0 and at most 315,360,000."),
        ("types.send.duration={p50=1, median=1}", "it has a percentile twice (median is p50): give each once."),
        ("types.send.duration={p50=1, 'p50.0'=2}", "it has a percentile twice"),
        ("types.send.duration={mean=1e-200, deviation=1}", "`duration` has `mean`, which is 1e-200; give a number"),
        ("types.send.duration={p50=1, p90=1e300}", "`duration` has `p90`, which is 1e+300; give a number"),
        ("types.send.duration={p50=1, p90=2, min=3, max=2}", "its min is above its max: exchange them."),
        ("types.send.duration={exponential=1, min=3, max=2}", "its min is above its max"),
        ("types.send.payload={r={eu=1e308, us=1e308}}", "that add up to a finite number above 0."),
        ("types.send.payload={r={}}", "that add up to a finite number above 0."),
        ("types.send.expires_after=3e11", "`expires_after` is 300000000000.0; give a number above 0 and at most 315"),
        ("types.send.prefer_for=1e305", "`prefer_for` is 1e+305; give"),
        ("types.send.retry={kind='fixed', seconds=1, secnds=2}", "`retry` has `secnds`, which is not known with kind"),
        ("queues.mail.throttler={kind='rate', count=1, per=1, brst=2}", "`brst`, which is not known with kind 'rate'."),
        ("types.send.arrivals=[{every=1e308}]", "`arrivals` has `every`, which is 1e+308; give a number"),
        ("types.send.arrivals=[{every=1e-9}]", "`every`, which is 1e-09; give a number of at least 1e-06"),
        (
            "types.send.arrivals=[{every=0.001}]",
            "about 86,400,000 jobs of all types come in 24 h, and at most 50,000,000",
        ),
        (
            "types.send={retries='none', failure_rate=1, duration=0, retry={kind='fixed', seconds=0}}",
            "about 259,200,000 retries of all types come in 24 h, and at most 1,000,000 are played; give them an end with "
            "`retries` or a delay with `retry`, or play fewer hours.",
        ),
        ("types.send={retries=1000, duration=2, timeout=0.05}", "retries of all types come in 24 h"),
        ("types.send.arrivals=[{per_second=1e305}]", "`per_second`, which is 1e+305; give a number"),
        ("types.send.arrivals=[{per_second=600}]", "about 51,840,000 jobs"),
        ("types.send.arrivals=[{per_hour=1e308}]", "`per_hour`, which is 1e+308; give a number"),
        ("types.send.arrivals=[{per_day=3e7}, {per_day=3e7}]", "about 60,000,000 jobs"),
        (f"types.send.arrivals=[{{by_hour={[2.5e6] * 24}}}]", "about 60,000,000 jobs"),
        ("types.send.arrivals=[{burst=2147483647, at='09:00'}]", "`burst`, which is 2147483647; give a whole number"),
        ("types.send.arrivals=[{burst=30_000_000, at=['09:00', '10:00']}]", "about 60,000,000 jobs"),
        ("types.send.arrivals=[{burst=2, at='09:00', within=1e308}]", "`within`, which is 1e+308; give a number"),
        (
            "types.send.arrivals=[{burst=2, at=['00:10', '00:20Z']}]",
            "`at`, which is ['00:10', '00:20Z']; leave the zone",
        ),
        ("workers.one.start=['08:00Z']", "`start` is ['08:00Z']; leave the zone out: all times of day are in that of"),
        ("workers.one.grace=1e305", "`grace` is 1e+305; give"),
        ("workers.one.restart_after=1e305", "`restart_after` is 1e+305; give"),
        ("workers.one.crashes_every=0.001", "`crashes_every` is 0.001; give a number of at least 1 and at most"),
        (
            "workers.one={count=1000, crashes_every=600}",
            "about 144,000 crashes of all workers come in 24 h, and at most",
        ),
        ("workers.one={count=1000, crashes=['01:00'], crashes_every=864}", "about 101,000 crashes"),
        ("simulation.lost_after=1e-6", "`lost_after` is 1e-06; give a number of at least 0.01 and at most"),
        (
            "simulation.start=9999-12-31T00:00:00Z",
            "`start` is 9999-12-31 00:00:00+00:00; give a year from 1970 to 9000.",
        ),
        ("simulation.start=0001-01-01T00:00:00+05:00", "give a year from 1970 to 9000."),
    ],
)
def test_what_could_not_be_played_is_refused_before_it_begins(change: str, words: str) -> None:
    found = problems(SMALL, change)
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    "change",
    [
        "{retries='none', failure_rate=1, duration=20, retry={kind='fixed', seconds=0}}",  # the limit is 3
        "{retries='none', failure_rate=0.9, duration=0, retry={kind='none'}}",
        "{retries=20, failure_rate=1, duration=0, retry={kind='none'}}",
        "{retries='none', failure_rate=1, duration=0, retry={kind='adaptive', first=0, probe=600}}",
        "{retries='none', failure_rate=1, duration=0, arrivals=[{burst=3000, at='00:00'}]}",
        "{retries='none', duration={exponential=10}, timeout=10}",
    ],
)
def test_retries_that_end_are_played(change: str) -> None:
    assert fleet(changed(read(SMALL, "fleet.toml"), [f"types.send={change}"]))


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("[simulation]\nhours = 1\ndays = 1", "`hours` and `days`"),
        ("[queues.more]\nlimit = 1\nthrottle_limit = 2", "`limit`"),
    ],
)
def test_what_is_said_twice_is_refused(table: str, line: str) -> None:
    found = problems(f"{table}\n{SMALL}", "types.send.queue=mail")
    assert len(found) == 1
    assert found[0].startswith(f"fleet.toml:2: {line}")
    assert found[0].endswith("say the same; give one of the two.")


def test_a_change_goes_over_what_says_the_same_by_another_name() -> None:
    described = changed(read(SMALL, "fleet.toml"), ["simulation.days=3"])
    found = fleet(changed(described, ["simulation.hours=1", "queues.mail.throttle_limit=20"]))
    assert (found.seconds, found.queues[0].throttle_limit) == (3600, 20)
    described = read(f"{SMALL}[workers.hours]\n[workers.days]\n", "fleet.toml")
    found = fleet(changed(described, ["workers.hours.count=1", "workers.days.count=2"]))
    assert [(plan.name, plan.count) for plan in found.workers] == [("one", 1), ("hours", 1), ("days", 2)]


def test_a_change_goes_over_what_the_file_says() -> None:
    found = fleet(
        changed(
            read(SMALL, "fleet.toml"),
            [
                "queues.mail.limit=20",
                "workers.one.count=2",
                "types.send.time_windows=['22:00-06:00']",
                "simulation.zone=Europe/Paris",
            ],
        )
    )
    assert found.queues[0].throttle_limit == 20
    assert [(plan.name, plan.count) for plan in found.workers] == [("one", 2)]
    assert found.types["send"].row.default_time_windows == ("22:00-06:00",)
    assert found.zone == "Europe/Paris"
    assert fleet(read(SMALL, "fleet.toml")).queues[0].throttle_limit == 3


def test_a_change_that_is_wrong_is_told_as_it_was_written() -> None:
    assert problems(SMALL, "queues.mail.limti=20") == (
        "--set queues.mail.limti=20: `limti` is not a known key. Did you mean `limit`?",
    )
    assert problems(SMALL, "workers.one.count=2", "workers.one.count=x")[0].startswith("--set workers.one.count=x: ")
    at_once = "types.send={retries='none', retry={kind='none'}, duration=0}"
    endless = problems(SMALL, at_once, "types.send.failure_rate=1", "types.send.priority=3")
    assert endless[0].startswith("--set types.send.failure_rate=1: about")
    with pytest.raises(Invalid, match="is no change; write what and how"):
        changed(read(SMALL, "fleet.toml"), ["=3"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("workers.on.count=3", "`on` is none of the workers. Did you mean `one`?"),
        ("queues.mial.throttle_limit=3", "`mial` is none of the queues. Did you mean `mail`?"),
        ("types.sned={retries=3}", "`sned` is none of the types. Did you mean `send`?"),
        ("types.scan.retries=3", "`scan` is none of the types. Known are send."),
    ],
)
def test_a_change_of_what_is_not_there_is_refused(change: str, told: str) -> None:
    assert problems(SMALL, change) == (f"--set {change}: {told}",)
    assert len(problems(SMALL, change, "workers.one.count=x", "types.send.retires=3")) == 3
    assert problems(f"queues = 3\n{SMALL.replace('[queues.mail]', '[x]')}", change)


@pytest.mark.parametrize("limit", ["-1", "0", "0.5", "-1e300"])
def test_a_limit_below_1_is_none(limit: str) -> None:
    described = changed(read(SMALL, "fleet.toml"), [f"queues.mail.limit={limit}", "types.send.throttle_factor=9"])
    assert fleet(described).queues[0].throttle_limit == float(limit)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ([], "fleet.toml:7"),
        (["types.send.retries=1"], "fleet.toml:7"),
        (["types.send.throttle_factor=5"], "--set types.send.throttle_factor=5"),
        (["types.send.retries=1", "queues.mail.limit=2"], "--set queues.mail.limit=2"),
        (["queues.mail.throttle_limit=2"], "--set queues.mail.throttle_limit=2"),
    ],
)
def test_a_type_whose_jobs_could_never_start_is_named_with_what_it_is_due_to(changes: list[str], place: str) -> None:
    text = SMALL.replace("arrivals", "retries = 2\nthrottle_factor = 4\narrivals")
    (told,) = problems(text, *changes)
    assert told.startswith(f"{place}: Type `send`: throttle_factor ")
    assert "is above the queue's throttle_limit" in told


def test_for_a_day_that_was_nothing_is_made_up() -> None:
    content = {"queues": {"mail": {}}, "types": {"send": {}, "scan": {"prefer_for": -1}}, "workers": {"some": {}}}
    written = read("[simulation]\nstart = 2026-01-05T00:00:00Z\n\n[types.send]\nduration = 3\n", "more.toml")
    described = changed(over(written, content, "2026-03-02"), ["types.send.arrivals={every=10}"])
    with pytest.raises(WrongDescription) as caught:
        fleet(described)
    own = "is not for a day that was, whose jobs come and end as they did; take it away."
    assert caught.value.problems == (
        "--from-archive 2026-03-02: types.scan.prefer_for: `prefer_for` is -1; give a number of at least 0 and at most "
        "315,360,000.",
        f"more.toml:2: `start` {own}",
        f"more.toml:5: `duration` {own}",
        f"--set types.send.arrivals={{every=10}}: `arrivals` {own}",
    )
    assert fleet(
        over(read("[workers.some]\nstart='09:00'", "more.toml"), {**content, "types": {"a": {}}}, "2026-03-02")
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (2, Fixed(2.0)),
        ({"exponential": 4}, Exponential(4.0)),
        ({"exponential": 4, "min": 2, "max": 9}, Exponential(4.0, 2.0, 9.0)),
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


@pytest.mark.parametrize(
    "written",
    [{"exponential": 10}, {"mean": 10, "deviation": 20}, {"p50": 10, "p90": 30}, {"p50": 1e-6, "p50.01": 3e8}],
)
def test_nothing_is_drawn_outside_of_min_and_max(written: dict[str, float]) -> None:
    luck = random.Random(3)
    drawn = {chance.seconds_of(duration({**written, "min": 5, "max": 15}), luck) for _ in range(500)}
    assert (min(drawn), max(drawn)) == (5, 15)
    assert max(chance.seconds_of(duration(written), luck) for _ in range(500)) <= 315_360_000


def test_arrivals() -> None:
    windows = parse_all(["mon-fri 08:00-18:00"])
    found = arrivals(
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
        arrivals({"by_hour": [1, 2]})
