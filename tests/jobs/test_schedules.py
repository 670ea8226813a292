"""Schedules as values: what is refused, when they come, what is done about times that were missed (W6)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Invalid
from holdfast.jobs import schedules
from holdfast.jobs.schedules import Schedule, firings, first_time, next_time

pytestmark = pytest.mark.claim("W6")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def make(**given: Any) -> Schedule:
    return schedules.make(given.pop("name", "nightly"), job_type="send", **given)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "give one of cron, every and at"),
        ({"every": 60, "at": [NOON]}, "give one of cron, every and at, not every and at"),
        ({"cron": "0 3 * * *"}, "cron needs the zone whose clock it goes by"),
        ({"cron": "99 3 * * *", "zone": "UTC"}, "its minute `99` is wrong"),
        ({"cron": 5, "zone": "UTC"}, "it is not a text"),
        ({"cron": "0 3 * * *", "zone": "Europe/Amsterdan"}, "did you mean Europe/Amsterdam"),
        ({"every": 60, "zone": "UTC"}, "zone='UTC' is for cron"),
        ({"every": 0}, "every=0; give seconds, from 0.1"),
        ({"every": -5}, "every=-5"),
        ({"every": True}, "every=True"),
        ({"every": float("nan")}, "every=nan"),
        ({"at": []}, "give a list of 1 to 10,000 aware datetimes"),
        ({"at": "2026-01-01"}, "give a list of 1 to 10,000 aware datetimes"),
        ({"at": [datetime(2026, 1, 1)]}, "is not an aware datetime; give it a time zone"),
        ({"every": 60, "start": datetime(2026, 1, 1)}, "start: datetime.datetime(2026, 1, 1, 0, 0) is not an aware"),
        ({"every": 60, "start": NOON, "end": NOON}, "is not after start=2026-01-01T12:00:00+00:00; give a later end"),
        ({"every": 60, "start": after(1), "end": after(2), "name": "no/slash"}, "its name has letters"),
        ({"cron": "0 3 * * *", "zone": "UTC", "start": NOON, "end": after(60)}, "it has no time at all"),
        ({"every": 60, "misfire": "twice"}, "misfire='twice'; it may be 'skip', 'once', 'all'"),
        ({"every": 60, "options": {"delay": 5}}, "unknown option 'delay'; known are cron, zone"),
        ({"every": 60, "options": {"on_duplicate": "raise"}}, "it may be 'return' or 'replace'"),
        ({"every": 60, "payload": {"to": "{who}"}}, "names a variable `who` that there is not"),
        ({"every": 60, "options": {"job_key": "{who}"}}, "names a variable `who` that there is not"),
    ],
)
def test_what_is_wrong_is_refused_with_its_cure(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid) as refused:
        make(**wrong)
    assert told in str(refused.value)
    assert str(refused.value).startswith("schedule '")


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(Invalid, match=r"minute `99`.*Also: .*zone.*Also: .*misfire"):
        make(cron="99 3 * * *", zone="Nowhere", misfire="never")


def test_a_schedule_survives_its_stored_form() -> None:
    made = make(
        at=[after(5), after(1)],
        start=NOON,
        payload={"run": "{count}", "where": "{region}"},
        const={"region": ["eu"]},
        options={"priority": 3, "job_key": "k"},
    )
    assert msgspec.json.decode(msgspec.json.encode(made), type=Schedule) == made


def test_a_period_is_aligned_whenever_it_is_stored() -> None:
    hourly = make(every=3600)
    assert next_time(hourly, after(17)) == after(3600)
    assert next_time(hourly, after(3599.999999)) == after(3600)
    assert next_time(hourly, after(3600)) == after(7200)
    assert make(every=timedelta(hours=1)) == hourly


def test_a_period_with_a_start_is_aligned_to_it() -> None:
    shifted = make(every=3600, start=after(7))
    assert next_time(shifted, NOON - timedelta(days=1)) == after(7)
    assert next_time(shifted, after(7)) == after(3607)


def test_the_start_belongs_to_it_and_the_end_does_not() -> None:
    bounded = make(every=60, start=NOON, end=after(120))
    assert next_time(bounded, NOON - timedelta(1)) == NOON
    assert next_time(bounded, NOON) == after(60)
    assert next_time(bounded, after(60)) is None


def test_points_in_time_come_in_order_and_once_each() -> None:
    points = make(at=[after(5), after(1), after(5)])
    assert points.at == (after(1), after(5))
    assert [next_time(points, after(at)) for at in (0, 1, 4.9, 5)] == [after(1), after(5), after(5), None]


def test_it_begins_behind_now_unless_now_was_named() -> None:
    assert first_time(make(every=60), NOON) == after(60)
    assert first_time(make(every=60, start=NOON), NOON) == NOON
    assert first_time(make(at=[NOON, after(9)]), NOON) == NOON
    assert first_time(make(at=[NOON, after(9)]), after(1)) == after(9)


def test_a_time_that_is_due_fires_under_every_policy() -> None:
    for misfire in schedules.MISFIRES:
        found = firings(make(every=60, misfire=misfire), NOON, after(0.2))
        assert (found.times, found.next_time, found.passed_over) == ((NOON,), after(60), False)


def test_after_downtime_all_fires_each_time_once_the_last_and_skip_none() -> None:
    def fired(misfire: str, now: float) -> tuple[list[float], datetime | None]:
        found = firings(make(every=60, misfire=misfire), NOON, after(now))
        return [(time - NOON).total_seconds() for time in found.times], found.next_time

    assert fired("all", 210) == ([0, 60, 120, 180], after(240))
    assert fired("once", 210) == ([180], after(240))
    assert fired("skip", 210) == ([], after(240))
    assert fired("skip", 181) == ([180], after(240))  # that one is not missed


def test_skip_forgives_a_tenth_of_the_period_a_second_at_least_and_a_minute_at_most() -> None:
    def fires(every: float, late: float) -> bool:
        begin = datetime(2026, 1, 1, tzinfo=UTC)  # whole days, too
        return bool(firings(make(every=every, misfire="skip"), begin, begin + timedelta(seconds=late)).times)

    assert [fires(every, late) for every, late in ((600, 60), (600, 61), (86400, 60), (86400, 61))] == [
        True,
        False,
        True,
        False,
    ]
    assert (fires(5, 1), fires(5, 1.1)) == (True, False)


@pytest.mark.parametrize("given", [{"every": 1}, {"cron": "* * * * * *", "zone": "Europe/Amsterdam"}])
def test_a_year_of_downtime_is_no_long_walk(given: dict[str, Any]) -> None:
    now = NOON + timedelta(days=365, milliseconds=300)
    whole = now.replace(microsecond=0)
    everything = firings(make(misfire="all", **given), NOON, now)
    assert everything.times == tuple(after(index) for index in range(schedules.BATCH))
    assert everything.next_time == after(schedules.BATCH)
    assert firings(make(**given), NOON, now) == schedules.Firings((whole,), whole + timedelta(seconds=1), True)
    assert firings(make(misfire="skip", **given), NOON, now).times == (whole,)


@settings(max_examples=100)
@given(
    late=st.floats(0, 5 * 86400),
    cron=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 */5 * * MON,TUE", "0,1,2,59 3 * * *"]),
    misfire=st.sampled_from(schedules.MISFIRES),
)
def test_whatever_was_missed_each_time_fires_at_most_once_and_the_next_is_the_first_behind_now(
    late: float, cron: str, misfire: str
) -> None:
    schedule = make(cron=cron, zone="Europe/Amsterdam", misfire=misfire)
    due = next_time(schedule, datetime(2026, 3, 28, tzinfo=UTC))  # a day before the clock is set forward
    assert due is not None
    now = due + timedelta(seconds=late)
    expected = [due]
    while (following := next_time(schedule, expected[-1])) is not None and following <= now:
        expected.append(following)
    fired: list[datetime] = []
    left: datetime | None = due
    while left is not None and left <= now:
        found = firings(schedule, left, now)
        fired += found.times
        left = found.next_time
    assert left == next_time(schedule, now)
    assert fired == {"all": expected, "once": expected[-1:], "skip": fired and expected[-1:]}[misfire]


def test_a_changed_payload_leaves_a_time_that_is_due() -> None:
    assert schedules.changed_time(make(every=60, payload={"to": "b"}), NOON, None, after(200)) == NOON


def test_another_timing_counts_from_now_and_keeps_what_is_due_if_it_is_its_time_too() -> None:
    twice = make(cron="0 12,20 * * *", zone="UTC")
    later = make(cron="0 20 * * *", zone="UTC")
    assert schedules.changed_time(twice, NOON, None, after(60)) == NOON
    assert schedules.changed_time(later, NOON, None, after(60)) == NOON.replace(hour=20)


def test_no_change_fires_a_time_again_although_the_clock_was_set_back() -> None:
    assert schedules.changed_time(make(every=1800), after(7200), after(3600), after(60)) == after(5400)


def test_a_firing_fills_payload_and_key() -> None:
    schedule = make(
        cron="0 3 * * *",
        zone="Europe/Amsterdam",
        payload={"day": "{time:%Y-%m-%d}", "run": "{count}"},
        options={"job_key": "report-{count}", "priority": 5},
    )
    made = schedules.made(schedule, 4, datetime(2025, 12, 31, 23, 30, tzinfo=UTC))
    assert made == schedules.Made({"day": "2026-01-01", "run": 4}, {"job_key": "report-4", "priority": 5})


def test_its_times_in_words() -> None:
    words = [make(cron="0  3 * * *", zone="UTC").when, make(every=90).when, make(at=[NOON]).when]
    assert words == ["0 3 * * *", "every 90 s", "at 1 point in time"]
