"""The throttle: which jobs start now without passing the queue's limit."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.jobs.throttle import Admission, Candidate, admit, check_factor

LIMITS = st.sampled_from([1, 1.5, 2, 3, 10])
FACTORS = st.sampled_from([0, 0.1, 0.2, 0.25, 0.3, 0.7, 1, 1.5, 2, 5])
CANDIDATES = st.lists(st.tuples(FACTORS, st.booleans()), max_size=20).map(
    lambda rows: [Candidate(number, factor, runnable) for number, (factor, runnable) in enumerate(rows, start=1)]
)


def jobs(*factors: float) -> list[Candidate]:
    return [Candidate(number, factor) for number, factor in enumerate(factors, start=1)]


@pytest.mark.claim("W3")
def test_limit_ten_and_factor_two_run_exactly_five() -> None:
    assert admit(10, 0, jobs(*[2] * 8)) == Admission((1, 2, 3, 4, 5), reserved_for=6)


@pytest.mark.claim("W3")
@pytest.mark.parametrize("limit", [0, 0.99, -1])
def test_a_limit_below_one_is_no_limit(limit: float) -> None:
    assert admit(limit, 1000, jobs(5, 0, 100)) == Admission((1, 2, 3))


@pytest.mark.claim("W3")
def test_what_already_runs_counts() -> None:
    assert admit(3, 2, jobs(1, 1)) == Admission((1,), reserved_for=2)


@pytest.mark.claim("W3")
def test_a_heavy_job_at_the_head_keeps_light_ones_from_starving_it() -> None:
    assert admit(10, 7, jobs(5, 1, 1)) == Admission((), reserved_for=1)


@pytest.mark.claim("W3")
def test_the_reservation_ends_when_the_heavy_job_fits() -> None:
    assert admit(10, 5, jobs(5, 1)) == Admission((1,), reserved_for=2)
    assert admit(10, 3, jobs(5, 1, 1)) == Admission((1, 2, 3))


@pytest.mark.claim("W3")
def test_light_jobs_ahead_of_the_heavy_one_still_start() -> None:
    assert admit(10, 7, jobs(1, 5, 1)) == Admission((1,), reserved_for=2)


@pytest.mark.claim("W3")
def test_factor_zero_is_admitted_on_a_full_queue_and_behind_a_reservation() -> None:
    assert admit(10, 10, jobs(0, 5, 0, 1, 0)) == Admission((1, 3, 5), reserved_for=2)


@pytest.mark.claim("W3")
def test_a_job_that_nobody_can_run_reserves_nothing_and_is_passed_over() -> None:
    assert admit(10, 7, [Candidate(1, 5, runnable=False), Candidate(2, 0, runnable=False), Candidate(3, 1)]) == (
        Admission((3,))
    )


@pytest.mark.claim("W3")
def test_a_job_above_a_lowered_limit_reserves_nothing_and_is_passed_over() -> None:
    assert admit(2, 0, jobs(5, 1)) == Admission((2,))


@pytest.mark.claim("W3")
def test_a_limit_lowered_below_what_runs_admits_nothing_counted() -> None:
    assert admit(2, 6, jobs(1, 0, 1)) == Admission((2,), reserved_for=1)


@pytest.mark.claim("W3")
@pytest.mark.parametrize(("limit", "factor", "count"), [(1, 0.1, 10), (3, 0.3, 10), (7, 0.7, 10), (100, 0.01, 10_000)])
def test_fractions_fill_a_limit_exactly(limit: float, factor: float, count: int) -> None:
    admission = admit(limit, 0, jobs(*[factor] * (count + 1)))
    assert len(admission.admitted) == count
    assert admission.reserved_for == count + 1


@pytest.mark.claim("W3")
def test_fractions_summed_by_the_database_fit_as_well() -> None:
    used = sum([0.1] * 9) + 1e-12
    assert admit(1, used, jobs(0.1)) == Admission((1,))


@pytest.mark.claim("W3")
@given(LIMITS, st.integers(0, 12), CANDIDATES)
@example(limit=1, used=0, candidates=jobs(*[0.1] * 10))
def test_the_choice_is_the_one_of_exact_arithmetic(limit: float, used: int, candidates: list[Candidate]) -> None:
    total, whole = Fraction(used), Fraction(str(limit))
    admitted, reserved_for = [], None
    for candidate in (candidate for candidate in candidates if candidate.runnable):
        factor = Fraction(str(candidate.throttle_factor))
        if factor == 0:
            admitted.append(candidate.id)
        elif factor <= whole and reserved_for is None:
            if total + factor <= whole:
                total += factor
                admitted.append(candidate.id)
            else:
                reserved_for = candidate.id
    assert admit(limit, used, candidates) == Admission(tuple(admitted), reserved_for)


@pytest.mark.claim("W3")
@given(LIMITS, CANDIDATES, st.data())
def test_a_reserved_job_is_admitted_once_enough_has_ended(
    limit: float, candidates: list[Candidate], data: st.DataObject
) -> None:
    reserved_for = admit(limit, data.draw(FACTORS), candidates).reserved_for
    if reserved_for is not None:
        rest = [candidate for candidate in candidates if candidate.id >= reserved_for]
        assert reserved_for in admit(limit, 0, rest).admitted


@pytest.mark.claim("W3")
@pytest.mark.parametrize("factor", [-1, -0.001, math.nan, math.inf, True, "1", None, 10**400])
@pytest.mark.parametrize("limit", [0, 10])
def test_a_factor_that_is_no_finite_number_or_negative_is_refused(factor: float, limit: float) -> None:
    with pytest.raises(Invalid, match="finite number, 0 or more"):
        check_factor(factor, limit)


@pytest.mark.claim("W3")
@pytest.mark.parametrize(("factor", "limit"), [(11, 10), (1.5, 1), (10.001, 10)])
def test_a_factor_above_the_limit_is_refused_and_names_both(factor: float, limit: float) -> None:
    with pytest.raises(Invalid, match=f"throttle_factor {factor} is above the queue's throttle_limit {limit}"):
        check_factor(factor, limit)


@pytest.mark.claim("W3")
@pytest.mark.parametrize(("factor", "limit"), [(10, 10), (0, 10), (0.5, 1), (11, 0), (11, 0.5)])
def test_a_factor_within_the_limit_or_without_one_is_accepted(factor: float, limit: float) -> None:
    check_factor(factor, limit)
