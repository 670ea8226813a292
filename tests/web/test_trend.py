"""The curves of the dashboard, from glances."""

from datetime import UTC, datetime, timedelta

from holdfast.stores.contract import Ended, Glance
from holdfast.web.trend import STEP, STEPS, Trend, spread

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def glance(*ends: tuple[str, float, int], now: datetime = NOW, since: float | None = None) -> Glance:
    """Ends as (queue, seconds ago, how many)."""
    made = tuple(Ended(queue, now - timedelta(seconds=ago), count) for queue, ago, count in ends)
    ends_since = None if since is None else now - timedelta(seconds=since)
    return Glance(now, (), (), {}, ends=made, ends_since=ends_since)


def test_a_glance_at_a_quiet_instance_fills_the_whole_curve() -> None:
    trend = Trend()
    trend.take(glance(("mail", 1, 5), ("print", 2, 10), ("mail", 6, 20)))
    assert trend.rates(NOW) == [0.0] * (STEPS - 2) + [20 / STEP, 15 / STEP]
    assert trend.rates(NOW, "mail")[-1] == 5 / STEP


def test_what_earlier_glances_saw_of_a_busy_instance_is_remembered() -> None:
    trend = Trend()
    trend.take(glance(("mail", 1, 100), since=2))
    later = NOW + timedelta(seconds=2 * STEP)
    trend.take(glance(("mail", 1, 40), now=later, since=2))
    assert trend.rates(later) == [50.0, 0.0, 20.0]


def test_steps_that_are_over_are_forgotten() -> None:
    trend = Trend()
    trend.take(glance(("mail", 1, 100)))
    later = NOW + timedelta(seconds=(STEPS + 2) * STEP)
    trend.take(glance(now=later))
    assert trend.rates(later) == [0.0] * STEPS


def test_moments_are_spread_over_the_parts_of_a_time() -> None:
    times = [NOW - timedelta(minutes=minutes) for minutes in (0, 1, 31, 59, 61)]
    assert spread(times, NOW, timedelta(hours=1), 2) == [2.0, 2.0]
