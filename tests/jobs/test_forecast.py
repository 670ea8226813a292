"""E2: what history tells, and when it does not tell enough."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.jobs import forecast
from holdfast.jobs.forecast import Usual

pytestmark = pytest.mark.claim("E2")

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def ago(*seconds: float) -> list[datetime]:
    return [NOON - timedelta(seconds=each) for each in seconds]


def test_the_usual_time_is_the_median_and_what_nine_of_ten_do_not_exceed() -> None:
    assert forecast.usual([float(number) for number in range(1, 101)]) == Usual(50.0, 91.0, 100)
    assert forecast.usual([9.0, 1.0, 2.0, 3.0, 1.0]) == Usual(2.0, 9.0, 5)


def test_four_successes_are_not_enough() -> None:
    assert forecast.usual([1.0] * 4) is None
    assert forecast.usual([1.0] * 5) == Usual(1.0, 1.0, 5)


def test_the_speed_is_that_of_the_last_ten_ends() -> None:
    assert forecast.speed(ago(*range(1, 31)), NOON, NOON) == 1.0
    assert forecast.speed(ago(*range(1, 10)), NOON, NOON) is None


def test_the_speed_counts_all_ends_since_the_job_is_due() -> None:
    slow_then_quick = ago(*[1.0] * 10, *range(11, 31))

    assert forecast.speed(slow_then_quick, NOON - timedelta(seconds=30), NOON) == 1.0
    assert forecast.speed(slow_then_quick, NOON - timedelta(seconds=2), NOON) == 10.0


def test_a_time_in_which_the_queue_was_idle_does_not_count() -> None:
    assert forecast.speed(ago(*range(1, 11), *[3600.0] * 50), NOON - timedelta(seconds=10), NOON) == 1.0


def test_ends_all_at_this_moment_have_no_speed() -> None:
    assert forecast.speed(ago(*[0.0] * 20), NOON, NOON) is None


def test_a_job_with_room_for_it_starts_now() -> None:
    assert forecast.start(NOON, 0, None) == NOON
    assert forecast.start(NOON, 3, None) is None
    assert forecast.start(NOON, 3, 0.5) == NOON + timedelta(seconds=6)


def test_a_job_that_takes_longer_than_most_has_no_forecast_end() -> None:
    took = Usual(10.0, 30.0, 5)

    assert forecast.end(NOON, took, NOON) == NOON + timedelta(seconds=10)
    assert forecast.end(NOON, took, NOON + timedelta(seconds=20)) == NOON + timedelta(seconds=30)
    assert forecast.end(NOON, took, NOON + timedelta(seconds=40)) is None
    assert forecast.end(NOON, None, NOON) is None
    assert forecast.end(None, took, NOON) is None
