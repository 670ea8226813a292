"""The retry policy: how soon and how often a failed job is tried again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.jobs import retry
from holdfast.jobs.retry import DEFAULT, Adaptive, Exponential, Fixed, Linear, NoDelay, Policy

LUCK = st.floats(0, 1, exclude_max=True)
FAILURES = st.integers(1, 2**63)
SECONDS = st.floats(0, retry.LONGEST)
GROWTH = {"first": SECONDS, "factor": st.floats(1, 1000), "most": SECONDS, "jitter": st.floats(0, 1)}
POLICIES: st.SearchStrategy[Policy] = st.one_of(
    st.builds(NoDelay),
    st.builds(Fixed, SECONDS),
    st.builds(Linear, SECONDS, SECONDS, SECONDS),
    st.builds(Exponential, **GROWTH),
    st.builds(Adaptive, **GROWTH, budget=st.floats(0, 1), breaker=st.integers(1, 1000), probe=SECONDS),
)


@pytest.mark.claim("R5")
def test_three_retries_are_up_to_four_executions() -> None:
    assert [retry.may_retry(3, failures) for failures in (1, 2, 3, 4, 5)] == [True, True, True, False, False]


@pytest.mark.claim("R5")
def test_no_retries_means_the_first_failure_is_the_last() -> None:
    assert not retry.may_retry(0, 1)


@pytest.mark.claim("R5")
def test_retries_none_is_without_limit() -> None:
    assert retry.may_retry(None, 10**9)


@pytest.mark.claim("R5")
@pytest.mark.parametrize("failures", [1, 2, 50])
def test_by_default_a_timeout_is_retried_at_once(failures: int) -> None:
    assert retry.delay(None, failures, "timeout", 0.9) == 0.0


@pytest.mark.claim("R5")
def test_by_default_an_exception_is_retried_after_one_second_doubling_up_to_five_minutes() -> None:
    shortest = [retry.delay(None, failures, "exception", 0.0) for failures in range(1, 9)]
    assert shortest == [1, 2, 4, 8, 16, 32, 64, 128]
    assert retry.delay(None, 100, "exception", 0.999999999) == pytest.approx(300)


@pytest.mark.claim("R5")
def test_jitter_lengthens_a_delay_by_up_to_its_share() -> None:
    policy = Exponential(first=10, factor=2, most=1000, jitter=0.5)
    assert retry.delay(policy, 2, "exception", 0.0) == 20
    assert retry.delay(policy, 2, "exception", 0.5) == 25
    assert retry.delay(policy, 2, "exception", 0.999) == pytest.approx(30, rel=1e-3)


@pytest.mark.claim("R5")
def test_jitter_does_not_round_past_the_most() -> None:
    assert retry.delay(Exponential(first=7, most=7, jitter=0.2), 1, "exception", 1 - 2**-53) == 7


@pytest.mark.claim("R5")
def test_jitter_still_spreads_delays_that_have_reached_the_most() -> None:
    policy = Exponential(first=1, factor=2, most=300, jitter=0.5)
    delays = [retry.delay(policy, 40, "exception", luck) for luck in (0.0, 0.5, 0.999)]
    assert delays == pytest.approx([200, 250, 299.9])


@pytest.mark.claim("R5")
def test_a_given_policy_holds_for_timeouts_too() -> None:
    assert retry.delay(DEFAULT, 1, "timeout", 0.0) == 1
    assert retry.delay(Fixed(5), 1, "timeout", 0.0) == 5


@pytest.mark.claim("R5")
def test_no_delay_is_always_at_once_and_a_fixed_one_always_the_same() -> None:
    assert [retry.delay(NoDelay(), failures, "exception", 0.5) for failures in (1, 9)] == [0, 0]
    assert [retry.delay(Fixed(2.5), failures, "exception", 0.5) for failures in (1, 9)] == [2.5, 2.5]


@pytest.mark.claim("R5")
def test_a_linear_delay_grows_by_its_step_up_to_its_most() -> None:
    policy = Linear(5, 10, most=30)
    assert [retry.delay(policy, failures, "exception", 0.5) for failures in (1, 2, 3, 4, 5)] == [5, 15, 25, 30, 30]


@pytest.mark.claim("R6")
@given(st.builds(Exponential, **GROWTH), FAILURES, LUCK)
def test_the_adaptive_delay_is_the_exponential_one(policy: Exponential, failures: int, luck: float) -> None:
    adaptive = Adaptive(policy.first, policy.factor, policy.most, policy.jitter)
    assert retry.delay(adaptive, failures, "exception", luck) == retry.delay(policy, failures, "exception", luck)


@pytest.mark.claim("R5")
@given(POLICIES, FAILURES, st.sampled_from(["exception", "timeout"]), LUCK)
def test_a_delay_is_never_negative_and_never_above_the_most(
    policy: Policy, failures: int, kind: str, luck: float
) -> None:
    highest = getattr(policy, "most", getattr(policy, "seconds", 0))
    assert 0 <= retry.delay(policy, failures, kind, luck) <= highest


@pytest.mark.claim("R5")
@given(POLICIES, st.integers(1, 2000), LUCK)
def test_a_later_failure_never_waits_less(policy: Policy, failures: int, luck: float) -> None:
    sooner, later = (retry.delay(policy, count, "exception", luck) for count in (failures, failures + 1))
    assert sooner <= later


@pytest.mark.parametrize("first", [0, 1])
def test_a_number_of_failures_beyond_all_floats_gives_the_most_at_once(first: float) -> None:
    assert retry.delay(Exponential(first=first, factor=2, most=300, jitter=0), 2**63, "exception", 0.5) == first * 300


@pytest.mark.parametrize("failures", [0, -1])
def test_a_delay_before_the_first_failure_is_refused(failures: int) -> None:
    with pytest.raises(Invalid, match=f"after {failures} failures"):
        retry.delay(None, failures, "exception", 0.0)


@pytest.mark.claim("R5")
@given(POLICIES)
def test_a_policy_survives_being_stored(policy: Policy) -> None:
    assert retry.decode(retry.encode(policy)) == policy


def test_no_policy_is_stored_as_nothing() -> None:
    assert retry.encode(None) is None
    assert retry.decode(None) is None


def test_the_stored_form_names_its_kind_and_every_field() -> None:
    assert retry.encode(Exponential()) == '{"kind":"exponential","first":1,"factor":2,"most":300,"jitter":0.1}'
    assert retry.encode(NoDelay()) == '{"kind":"none"}'


@pytest.mark.parametrize(
    "text",
    ["", "5", "{}", '{"kind":"sometimes"}', '{"kind":"fixed"}', '{"kind":"fixed","seconds":"5"}'],
)
def test_text_that_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        retry.decode(text)


def test_a_stored_policy_is_checked_like_a_written_one() -> None:
    with pytest.raises(Invalid, match=r"Fixed\(seconds=-1\.0\)"):
        retry.decode('{"kind":"fixed","seconds":-1}')


@pytest.mark.parametrize("wrong", [-1, -0.001, math.nan, math.inf, -math.inf, True, "5", None, 1e300, 10**400])
@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (Fixed, "seconds"),
        (Linear, "first"),
        (Linear, "step"),
        (Linear, "most"),
        *[(Exponential, field) for field in ("first", "factor", "most", "jitter")],
        *[(Adaptive, field) for field in ("first", "factor", "most", "jitter", "budget", "breaker", "probe")],
    ],
)
def test_a_wrong_number_is_refused_and_named(policy: type, field: str, wrong: object) -> None:
    fields: dict[str, object] = {"first": 1, "step": 1} if policy is Linear else {}
    with pytest.raises(Invalid, match=rf"{policy.__name__}\({field}="):
        policy(**{**fields, field: wrong})


@pytest.mark.parametrize("wrong", [{"factor": 0.99}, {"jitter": 1.01}, {"breaker": 0}, {"breaker": 2.5}, {"budget": 2}])
def test_a_shrinking_factor_and_shares_above_the_whole_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Invalid, match=next(iter(wrong))):
        Adaptive(**wrong)  # type: ignore[arg-type]


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Fixed(5).seconds = 6  # type: ignore[misc]
