"""R6: what a breaker and a retry budget learn, as pure functions."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs import breaker as breaking
from holdfast.jobs.breaker import HALF_LIFE, SPARE, Breaker, BreakerState
from holdfast.jobs.retry import Adaptive, put_off

pytestmark = pytest.mark.claim("R6")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Adaptive(breaker=3, probe=30, budget=0.2)
JOB, OTHER = 7, 8


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def failed(breaker: Breaker, times: int = 1, job: int = JOB, named: datetime | None = None) -> Breaker:
    for _ in range(times):
        breaker = breaking.failed(breaker, POLICY, job, named, NOW)
    return breaker


OPEN = failed(Breaker("send"), 3)
PROBING = breaking.probing(OPEN, JOB)


def test_a_new_breaker_is_closed_and_may_not_be_probed() -> None:
    assert Breaker("send").closed
    assert not breaking.may_probe(Breaker("send"), later(1e9))


def test_the_last_failure_of_a_run_opens_it() -> None:
    assert failed(Breaker("send"), 2).closed
    assert (OPEN.state, OPEN.opened_time, OPEN.probe_time) == (BreakerState.OPEN, NOW, later(30))


def test_it_may_be_probed_from_its_probe_time_on() -> None:
    assert not breaking.may_probe(OPEN, later(29.999))
    assert breaking.may_probe(OPEN, later(30))
    assert not breaking.may_probe(PROBING, later(1e9))


@pytest.mark.parametrize(("named", "expected"), [(None, 30), (10, 30), (31, 31), (5000, 5000)])
def test_it_is_never_probed_before_a_retry_after(named: float | None, expected: float) -> None:
    at = None if named is None else later(named)
    assert failed(Breaker("send"), 3, named=at).probe_time == later(expected)
    assert failed(PROBING, named=at).probe_time == later(expected)


def test_only_the_probe_closes_it() -> None:
    assert breaking.succeeded(OPEN, 5, False, NOW).state is BreakerState.OPEN
    closed = breaking.succeeded(PROBING, 1, True, NOW)
    assert (closed.state, closed.failures, closed.probe, closed.opened_time) == (BreakerState.CLOSED, 0, None, None)


def test_the_failure_of_another_job_does_not_end_the_probe() -> None:
    assert failed(PROBING, job=OTHER).state is BreakerState.PROBING
    assert failed(PROBING).state is BreakerState.OPEN


def test_a_released_probe_may_be_followed_by_another_at_once() -> None:
    released = breaking.released(PROBING)
    assert breaking.may_probe(released, later(30))
    assert released.probe == JOB  # so that the next one is another job


@given(st.lists(st.sampled_from(["failed", "succeeded"]), max_size=30))
def test_it_is_open_exactly_after_a_run_as_long_as_declared(ends: list[str]) -> None:
    breaker, run, opened = Breaker("send"), 0, False
    for end in ends:
        breaker = failed(breaker) if end == "failed" else breaking.succeeded(breaker, 1, False, NOW)
        run = run + 1 if end == "failed" else 0
        opened = opened or run >= POLICY.breaker
    assert breaker.closed is not opened


@given(st.integers(1, 300), st.integers(0, 300))
def test_successes_of_unknown_order_are_spread_evenly_among_the_failures(failures: int, successes: int) -> None:
    before = [breaking.successes_before(number, failures, successes) for number in range(1, failures + 1)]
    assert before == sorted(before)
    runs = [before.count(number) for number in range(successes + 1)]
    assert sum(runs) == failures
    assert max(runs) - min(runs) <= 1


def test_a_success_between_two_failures_ends_the_run_and_opens_or_closes_nothing() -> None:
    assert breaking.interrupted(failed(Breaker("send"), 2)) == Breaker("send")
    assert breaking.interrupted(OPEN) == OPEN
    assert breaking.interrupted(PROBING) == PROBING


@given(st.integers(0, 1000), st.floats(0, 1))
def test_the_budget_grants_a_share_of_the_successes_and_a_few_to_spare(successes: int, share: float) -> None:
    policy, breaker = Adaptive(budget=share), breaking.succeeded(Breaker("send"), successes, False, NOW)
    granted = 0
    while breaking.affords(breaker, policy, NOW):
        breaker = breaking.retried(breaker, NOW)
        granted += 1
    assert granted == int(SPARE + share * successes)


def test_what_the_budget_remembers_halves_again_and_again() -> None:
    breaker = breaking.succeeded(Breaker("send"), 80, False, NOW)
    later_on = breaking.succeeded(breaker, 0, False, later(3 * HALF_LIFE))
    assert later_on.successes == pytest.approx(10)
    assert breaking.retried(later_on, later(4 * HALF_LIFE)).successes == pytest.approx(5)


def test_a_clock_that_goes_back_makes_nothing_younger() -> None:
    breaker = breaking.succeeded(Breaker("send"), 8, False, later(600))
    assert breaking.succeeded(breaker, 0, False, NOW).successes == 8


@given(st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_a_retry_over_the_budget_waits_about_the_most_and_never_longer(jitter: float, luck: float) -> None:
    policy = Adaptive(most=100, jitter=jitter)
    assert 50 <= put_off(policy, luck) <= 100
