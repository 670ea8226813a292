"""Throttlers: shares, limits for each key, rates, and what a function may answer."""

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ADMIT, REFUSE, Invalid, Reschedule, per_key, rate, share
from holdfast.jobs import throttlers
from holdfast.jobs.throttle import Candidate, Usage, Why, check_pool, choose, words
from holdfast.jobs.throttlers import Function, Rate, decode, encode, pool_of, refill, seconds_until, size_of

pytestmark = pytest.mark.claim("W4")
REGIONS = share("region", {"eu": 40, "us": 30, "ap": 30})
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def in_regions(count: int, *regions: str, factor: float = 1) -> list[Candidate]:
    return [Candidate(number, factor, pool=regions[number % len(regions)]) for number in range(1, count + 1)]


def test_a_hundred_slots_are_split_forty_thirty_thirty_by_region() -> None:
    candidates = in_regions(600, "eu", "us", "ap")
    admitted = set(choose(Usage(throttler=REGIONS), candidates).admitted)
    taken = [candidate.pool for candidate in candidates if candidate.id in admitted]
    assert {pool: taken.count(pool) for pool in ("eu", "us", "ap")} == {"eu": 40, "us": 30, "ap": 30}


def test_a_full_share_reserves_nothing_of_the_others() -> None:
    choice = choose(Usage(100, 40, REGIONS, {"eu": 40}), [Candidate(1, pool="eu"), Candidate(2, pool="us")])
    assert (choice.admitted, choice.reserved_for) == ((2,), None)
    assert choice.held[1].why is Why.POOL


def test_a_heavy_job_keeps_the_light_ones_of_its_share_from_starving_it() -> None:
    candidates = [Candidate(1, 5, pool="eu"), Candidate(2, pool="eu"), Candidate(3, pool="us")]
    choice = choose(Usage(throttler=REGIONS, pools={"eu": 37}), candidates)
    assert choice.admitted == (3,)
    assert (choice.held[2].why, choice.held[2].reserved_for) == (Why.RESERVED, 1)


def test_the_queues_limit_holds_beside_the_shares() -> None:
    assert len(choose(Usage(10, 0, REGIONS), in_regions(60, "eu", "us", "ap")).admitted) == 10


def test_factor_zero_takes_no_slot_of_a_share_and_no_token() -> None:
    assert choose(Usage(throttler=REGIONS, pools={"eu": 40}), [Candidate(1, 0, pool="eu")]).admitted == (1,)
    assert choose(Usage(throttler=rate(1, 60), tokens=0), [Candidate(1), Candidate(2, 0)]).admitted == (2,)


def test_values_without_a_share_have_the_others_together() -> None:
    throttler = share("region", {"eu": 40}, others=3)
    candidates = [Candidate(number, pool=pool_of(throttler, {"region": f"r{number}"})) for number in range(1, 9)]
    assert choose(Usage(throttler=throttler), candidates).admitted == (1, 2, 3)
    free = share("region", {"eu": 40}, others=None)
    assert size_of(free, pool_of(free, {"region": "sa"})) is None


def test_a_limit_for_each_key_holds_for_every_value_by_itself() -> None:
    throttler = per_key("customer", 2, {"acme": 3})
    payloads = [{"customer": name} for name in ("acme", "bolt", "cog") for _ in range(5)]
    candidates = [Candidate(n, pool=pool_of(throttler, payload)) for n, payload in enumerate(payloads)]
    assert choose(Usage(throttler=throttler), candidates).admitted == (0, 1, 2, 5, 6, 10, 11)


@pytest.mark.parametrize(
    ("payload", "pool"),
    [
        ({"customer": {"id": "x"}}, "x"),
        ({"customer": {"id": 7}}, "7"),
        ({"customer": {"id": True}}, "true"),
        ({"customer": {"id": {"b": 1, "a": 2}}}, '{"a":2,"b":1}'),
        ({"customer": {"id": None}}, ""),
        ({"customer": "x"}, ""),
        ({}, ""),
    ],
)
def test_the_key_is_found_in_the_payload_by_its_path(payload: dict[str, Any], pool: str) -> None:
    assert pool_of(per_key("customer.id", 1), payload) == pool


def test_a_bucket_is_full_at_first_gains_with_time_and_never_overflows() -> None:
    hundred = rate(100, per=60)
    assert refill(hundred, None, 0) == 100
    assert refill(hundred, 0, 6) == pytest.approx(10)
    assert refill(hundred, 95, 60) == 100
    assert refill(hundred, 5, -3600) == 5
    assert seconds_until(hundred, 0.5, 1) == pytest.approx(0.3)


def test_without_a_token_nothing_behind_starts_and_the_next_token_is_named() -> None:
    choice = choose(Usage(throttler=rate(2, per=60), tokens=1.5), [Candidate(1), Candidate(2), Candidate(3, 0.1)])
    assert choice.admitted == (1,)
    assert choice.held[2].seconds == pytest.approx(15)
    assert (choice.held[3].why, choice.held[3].reserved_for) == (Why.RESERVED, 2)


def test_a_job_heavier_than_the_bucket_starts_from_a_full_one_and_leaves_a_debt() -> None:
    small = rate(10, per=1, burst=2)
    assert choose(Usage(throttler=small, tokens=1.9), [Candidate(1, 5)]).admitted == ()
    assert choose(Usage(throttler=small, tokens=2), [Candidate(1, 5)]).admitted == (1,)
    assert seconds_until(small, 2 - 5, 1) == pytest.approx(0.4)


@given(st.floats(0.1, 50), st.floats(0.1, 100), st.floats(1, 20), st.lists(st.floats(0, 30), min_size=1, max_size=60))
def test_no_span_of_time_sees_more_starts_than_burst_and_rate_allow(
    count: float, per: float, burst: float, pauses: list[float]
) -> None:
    bucket, tokens, now = rate(count, per, burst), None, 0.0
    starts: list[float] = []
    for pause in pauses:
        now += pause
        tokens = refill(bucket, tokens, pause)
        admitted = choose(Usage(throttler=bucket, tokens=tokens), [Candidate(n) for n in range(30)]).admitted
        tokens -= len(admitted)
        starts += [now] * len(admitted)
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            assert last - first + 1 <= burst + (starts[last] - starts[first]) * count / per + 1e-6


def test_a_function_admits_refuses_and_reschedules_and_what_it_does_not_name_is_refused() -> None:
    verdicts = {1: ADMIT, 2: REFUSE, 3: Reschedule(delay=60)}
    usage = Usage(throttler=Function("busy"), verdicts=verdicts, now=NOW)
    choice = choose(usage, [Candidate(1), Candidate(2), Candidate(3), Candidate(4)])
    assert choice.admitted == (1,)
    assert [choice.held[job].why for job in (2, 3, 4)] == [Why.REFUSED, Why.RESCHEDULED, Why.REFUSED]
    assert choice.held[3].at == NOW + timedelta(minutes=1)


def test_the_limit_holds_for_what_a_function_admits_and_what_it_refuses_reserves_nothing() -> None:
    usage = Usage(3, 0, Function("busy"), verdicts={1: REFUSE, 2: ADMIT, 3: ADMIT}, now=NOW)
    choice = choose(usage, [Candidate(1, 3), Candidate(2, 2), Candidate(3, 2)])
    assert (choice.admitted, choice.reserved_for) == ((2,), 3)


@pytest.mark.parametrize("answers", [[ADMIT], [ADMIT] * 3, [ADMIT, True], [ADMIT, None], None, 5])
def test_anything_but_an_answer_for_each_candidate_is_invalid(answers: Any) -> None:
    with pytest.raises(Invalid):
        throttlers.check_verdicts(answers, 2)


def test_a_time_to_reschedule_to_may_be_in_any_zone() -> None:
    east = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=1)))
    assert Reschedule(at=east).time(NOW) == datetime(2026, 1, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "make",
    [
        lambda: share("region", {}),
        lambda: share("region", [("eu", 1)]),  # type: ignore[arg-type]
        lambda: share("", {"eu": 1}),
        lambda: share("a..b", {"eu": 1}),
        lambda: share("region", {"eu": -1}),
        lambda: share("region", {"": 1}),
        lambda: share("region", {"eu": 1}, others=math.nan),
        lambda: per_key("customer", -1),
        lambda: per_key("customer", True),
        lambda: per_key(7, 1),  # type: ignore[arg-type]
        lambda: per_key("customer", 1, {"a": "b"}),  # type: ignore[dict-item]
        lambda: rate(0, per=60),
        lambda: rate(1, per=0),
        lambda: rate(1, per=math.inf),
        lambda: rate(1, per=1e12),
        lambda: rate(1, per=1, burst=0),
        lambda: Reschedule(),
        lambda: Reschedule(delay=1, at=NOW),
        lambda: Reschedule(at=datetime(2026, 1, 1)),
        lambda: Reschedule(delay=-1),
        lambda: throttlers.named(lambda running, candidates: [], "queue"),
        lambda: throttlers.named(5, "queue"),
    ],
)
def test_a_throttler_that_means_nothing_is_refused_where_it_is_written(make: Any) -> None:
    with pytest.raises(Invalid):
        make()


@pytest.mark.parametrize(
    "throttler", [REGIONS, share("a", {"b": 1}, others=None), per_key("a.b", 5, {"x": 1}), rate(1.5, 60), Function("f")]
)
def test_a_throttler_is_kept_as_json_and_read_again(throttler: Any) -> None:
    assert decode(encode(throttler)) == throttler


def test_what_is_no_throttler_is_refused_when_it_is_read() -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        decode('{"kind": "magic"}')


@pytest.mark.parametrize(
    ("region", "factor", "ok"), [("eu", 40, True), ("eu", 41, False), ("sa", 1, False), ("sa", 0, True)]
)
def test_a_job_that_its_share_could_never_let_start_is_refused(region: str, factor: float, ok: bool) -> None:
    pool = pool_of(REGIONS, {"region": region})
    if ok:
        check_pool(REGIONS, pool, factor)
    else:
        with pytest.raises(Invalid, match="could never start"):
            check_pool(REGIONS, pool, factor)


def test_every_reason_is_told_in_words() -> None:
    slow: Rate = rate(1, per=60)
    usages = [
        (Usage(10, 10), [Candidate(1), Candidate(2)]),
        (Usage(2, 0), [Candidate(1, 5), Candidate(2, runnable=False)]),
        (
            Usage(throttler=REGIONS, pools={"eu": 40}),
            [Candidate(1, pool="eu"), Candidate(2, pool="eu"), Candidate(3, 99, pool="eu")],
        ),
        (Usage(throttler=slow, tokens=0), [Candidate(1)]),
        (Usage(throttler=Function("f"), verdicts={2: Reschedule(delay=1)}, now=NOW), [Candidate(1), Candidate(2)]),
    ]
    told = {
        held.why: words(held, usage.throttler) for usage, jobs in usages for held in choose(usage, jobs).held.values()
    }
    assert set(told) == set(Why)
    assert told[Why.POOL] == "40 of the 40 slots of region 'eu' are used and it needs 1"
    assert told[Why.RATE] == "the rate has no token for it for another 60 s"
