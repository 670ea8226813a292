"""Cron expressions: what is refused, and the hours that a clock skips and repeats."""

from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.jobs import cron

AMSTERDAM = "Europe/Amsterdam"  # 2026: forward on March 29 at 02:00, back on October 25 at 03:00


def at(text: str, zone: str = "UTC", fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)


def times(expression: str, after: datetime, count: int, zone: str = AMSTERDAM) -> list[str]:
    """Its next times as the zone's clock shows them, with the offset."""
    found = []
    for _ in range(count):
        following = cron.next_time(expression, zone, after)
        assert following is not None
        assert following > after
        after = following
        found.append(after.astimezone(ZoneInfo(zone)).strftime("%m-%d %H:%M:%S %z"))
    return found


@pytest.mark.claim("W6")
@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("", "it has 0 fields"),
        ("0 3 * *", "it has 4 fields"),
        ("0 0 3 * * * *", "it has 7 fields"),
        ("61 3 * * *", "its minute `61` is wrong; that field takes 0-59"),
        ("0 24 * * *", "its hour `24` is wrong; that field takes 0-23"),
        ("0 3 0 * *", "its day-of-month `0` is wrong"),
        ("0 3 * 13 *", "its month `13` is wrong; that field takes 1-12 or JAN-DEC"),
        ("0 3 * * MONDAY", "its day-of-week `MONDAY` is wrong"),
        ("60 0 3 * * *", "its second `60` is wrong"),
        ("*/0 * * * *", "its minute `*/0` is wrong"),
        (
            "0 3 30 2 *",
            "its day-of-month `30` is wrong; that field takes 1-31, L or LW, and a day that its months have",
        ),
        ("0 0 * 2 MON#5,", "its day-of-week `MON#5,` is wrong"),
    ],
)
def test_what_is_wrong_is_named_with_what_the_field_takes(expression: str, told: str) -> None:
    assert told in (cron.problem_of(expression) or "")


@settings(max_examples=300)
@given(st.lists(st.text("0123456789*/,-#LWMONJA", min_size=1, max_size=5), min_size=5, max_size=6).map(" ".join))
def test_any_text_is_an_expression_or_has_a_problem(expression: str) -> None:
    if cron.problem_of(expression) is None:
        assert cron.next_time(expression, "UTC", at("2026-01-01T00:00:00")) is not None


@pytest.mark.claim("W6")
def test_five_fields_and_six_with_seconds_first() -> None:
    begin = at("2026-01-01T00:00:00")
    assert times("30 4 * * *", begin, 2, "UTC") == ["01-01 04:30:00 +0000", "01-02 04:30:00 +0000"]
    assert times("15 30 4 * * MON", begin, 2, "UTC") == ["01-05 04:30:15 +0000", "01-12 04:30:15 +0000"]


@pytest.mark.claim("W6")
def test_a_zone_says_whose_clock_it_is() -> None:
    begin = at("2026-06-30T12:00:00")
    assert cron.next_time("0 3 * * *", AMSTERDAM, begin) == at("2026-07-01T01:00:00")
    assert cron.next_time("0 3 * * *", "Asia/Kathmandu", begin) == at("2026-06-30T21:15:00")


@pytest.mark.claim("W6")
def test_a_time_of_day_that_the_clock_skips_comes_at_the_next_valid_instant() -> None:
    begin = at("2026-03-28T12:00:00")
    for expression in ("30 2 * * *", "0 30 2 * * *", "0,30 2 * * *", "15,30,45 0 2 * * *"):
        found = times(expression, begin, 1)
        assert found == ["03-29 03:00:00 +0200"], expression
    assert times("30 2 * * *", begin, 2) == ["03-29 03:00:00 +0200", "03-30 02:30:00 +0200"]
    assert times("0 2,3 * * *", begin, 3) == ["03-29 03:00:00 +0200", "03-30 02:00:00 +0200", "03-30 03:00:00 +0200"]


@pytest.mark.claim("W6")
def test_a_time_of_day_that_the_clock_repeats_comes_once() -> None:
    begin = at("2026-10-24T12:00:00")
    expected = ["10-25 02:30:00 +0200", "10-26 02:30:00 +0100"]
    assert times("30 2 * * *", begin, 2) == expected
    assert times("0 30 2 * * *", begin, 2) == expected
    # Also when it is asked in the middle of the second showing.
    assert times("30 2 * * *", at("2026-10-25T02:10:00", AMSTERDAM, fold=1), 1) == expected[1:]


@pytest.mark.claim("W6")
def test_what_goes_by_passing_time_skips_no_interval_and_doubles_none() -> None:
    spring = times("*/30 * * * *", at("2026-03-29T00:20:00"), 3)
    assert spring == ["03-29 01:30:00 +0100", "03-29 03:00:00 +0200", "03-29 03:30:00 +0200"]
    autumn = times("*/30 * * * *", at("2026-10-25T00:20:00"), 4)
    assert autumn == [
        "10-25 02:30:00 +0200",
        "10-25 02:00:00 +0100",
        "10-25 02:30:00 +0100",
        "10-25 03:00:00 +0100",
    ]


ZONES = (AMSTERDAM, "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/St_Johns", "UTC")
CHANGES = {  # a day before a change of the clock, roughly
    AMSTERDAM: ("2026-03-28", "2026-10-24"),
    "America/New_York": ("2026-03-07", "2026-10-31"),
    "Australia/Lord_Howe": ("2026-04-03", "2026-10-02"),
    "Africa/Cairo": ("2026-04-23", "2026-10-28"),
    "America/St_Johns": ("2026-03-07", "2026-10-31"),
    "UTC": ("2026-03-28", "2026-10-24"),
}
fields = st.sampled_from
passing = st.tuples(fields(["*", "*/7", "*/15", "*/30"]), fields(["*", "*/2", "2", "0", "3"])) | st.tuples(
    fields(["0", "5,35", "59"]), fields(["*", "*/2", "*/3"])
)


@settings(max_examples=60)
@given(zone=fields(ZONES), which=fields([0, 1]), minute_hour=passing, offset=st.integers(0, 2 * 86400))
@pytest.mark.claim("W6")
def test_times_that_pass_are_the_minutes_at_which_the_clock_fits(
    zone: str, which: int, minute_hour: tuple[str, str], offset: int
) -> None:
    expression = " ".join((*minute_hour, "* * *"))
    begin = at(CHANGES[zone][which] + "T00:00:00") + timedelta(seconds=offset)
    end = begin + timedelta(hours=30)
    expected, minute, fits = [], begin.replace(second=0) + timedelta(minutes=1), CronSim(expression, begin)
    while minute <= end:
        wall = minute.astimezone(ZoneInfo(zone))
        if wall.minute in fits.minutes and wall.hour in fits.hours:
            expected.append(minute)
        minute += timedelta(minutes=1)
    found, after = [], begin
    while (following := cron.next_time(expression, zone, after)) is not None and following <= end:
        found.append(following)
        after = following
    assert found == expected


@settings(max_examples=60)
@given(
    zone=fields(ZONES),
    which=fields([0, 1]),
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    offset=st.integers(0, 86400),
)
@pytest.mark.claim("W6")
def test_a_time_of_day_comes_once_on_every_day(zone: str, which: int, minute: int, hour: int, offset: int) -> None:
    after = at(CHANGES[zone][which] + "T00:00:00") + timedelta(seconds=offset)
    found = []
    for _ in range(4):
        following = cron.next_time(f"{minute} {hour} * * *", zone, after)
        assert following is not None
        found.append(following.astimezone(ZoneInfo(zone)))
        after = following
    assert all(later.date() - earlier.date() == timedelta(days=1) for earlier, later in pairwise(found))


def test_there_are_no_times_behind_the_calendar() -> None:
    assert cron.next_time("0 0 29 2 *", "UTC", at("9999-03-01T00:00:00")) is None
    assert cron.next_time("* * * * *", AMSTERDAM, at("9999-12-31T23:59:59")) is None
