"""The rules of routines: what one may be, and when its next turn comes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import App, Fixed, Invalid, Linear
from holdfast.jobs import routines
from holdfast.jobs.job import Outcome
from holdfast.jobs.routines import TurnEnd

pytestmark = pytest.mark.claim("F19")
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def make(**given: Any) -> routines.Routine:
    return routines.make(**{"name": "poll", "scale": 1, "every": 10, "keep": 100, "policy": None, **given})


def seconds(routine: routines.Routine, end: TurnEnd, failures: int, luck: float = 0.0) -> float:
    return (routines.next_time(routine, end, failures, NOW, luck) - NOW).total_seconds()


def test_after_success_the_next_turn_comes_after_the_interval() -> None:
    assert seconds(make(every=timedelta(minutes=2)), TurnEnd(Outcome.SUCCESS), 0) == 120


def test_after_errors_it_comes_later_and_never_sooner_than_the_interval() -> None:
    failed = TurnEnd(Outcome.ERROR)
    assert [seconds(make(every=1), failed, count) for count in (1, 2, 5)] == [1, 2, 16]
    assert seconds(make(every=60), failed, 1) == 60
    assert seconds(make(every=1), failed, 100) <= 300
    assert seconds(make(every=1, policy=Linear(10, 5)), TurnEnd(Outcome.FAILED), 3) == 20


def test_what_the_handler_says_wins() -> None:
    said = NOW + timedelta(seconds=3)
    assert seconds(make(every=60), TurnEnd(Outcome.SUCCESS, None, said), 0) == 3
    assert seconds(make(every=60, policy=Fixed(500)), TurnEnd(Outcome.ERROR, None, said), 4) == 3


def test_failures_are_counted_in_a_row_and_an_abort_is_none() -> None:
    assert routines.failures_after(TurnEnd(Outcome.ERROR), 2) == 3
    assert routines.failures_after(TurnEnd(Outcome.FAILED), 0) == 1
    assert routines.failures_after(TurnEnd(Outcome.ABORTED), 2) == 2
    assert routines.failures_after(TurnEnd(Outcome.SUCCESS), 2) == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"scale": 0}, "scale=0"),
        ({"scale": 1001}, "scale=1001"),
        ({"scale": True}, "scale=True"),
        ({"every": -1}, "every=-1"),
        ({"every": "10"}, "every='10'"),
        ({"every": float("nan")}, "every=nan"),
        ({"keep": 0}, "keep=0"),
        ({"policy": 5}, "retry=5"),
        ({"name": "a b"}, "a b"),
        ({"name": "n" * 200}, "at most 192"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        make(**given)


def test_declaring_refuses_what_cannot_be_where_it_is_written() -> None:
    app = App("sqlite://:memory:")
    with pytest.raises(Invalid, match="scale=0"):
        app.routine(every=1, name="poll", scale=0)(lambda turn: None)
    with pytest.raises(Invalid, match="isolation='cage'"):
        app.routine(every=1, name="poll", isolation="cage")(lambda turn: None)
