"""How a worker behaves around throttled queues: what it leaves alone for a moment, and what it keeps free."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from holdfast import App
from holdfast.clock import Clock
from holdfast.stores.contract import Report
from holdfast.worker import resting
from holdfast.worker.hand import Hand
from holdfast.worker.resting import LOCKED_FOR, LONGEST, SHORTEST, Rests

pytestmark = pytest.mark.claim("W3", "W4")


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> Rests:
    monkeypatch.setattr(resting.random, "random", lambda: 1.0)
    return Rests()


def find(rests: Rests, full: Mapping[str, float | None], now: float, claimed: Sequence[str] = ()) -> None:
    rests.found(["mail", "work"], full, set(claimed), now)


def test_a_queue_that_was_full_is_left_alone_and_longer_each_time(rests: Rests) -> None:
    now, pauses = 0.0, []
    for _ in range(6):
        find(rests, {"mail": None}, now)
        assert rests.awake(["mail", "work"], now) == ["work"]
        ends = rests.ends(["mail", "work"])
        assert ends.keys() == {"mail"}
        pauses.append(round(ends["mail"] - now, 3))
        now = ends["mail"]
        assert rests.awake(["mail"], now) == ["mail"]
    assert pauses == [SHORTEST, 0.04, 0.08, 0.16, LONGEST, LONGEST]


def test_a_queue_whose_lock_somebody_keeps_is_left_alone_for_a_second_whatever_ends(rests: Rests) -> None:
    rests.locked(["mail"], 10.0)
    rests.end()
    rests.end(["mail"])
    assert rests.awake(["mail", "work"], 10.0 + LOCKED_FOR - 0.001) == ["work"]
    assert rests.due(10.0 + LOCKED_FOR) == ["mail"]
    assert rests.awake(["mail"], 10.0 + LOCKED_FOR) == ["mail"]
    find(rests, {"mail": None}, 12.0)
    rests.end()
    assert rests.awake(["mail"], 12.0) == ["mail"]


def test_a_claim_begins_the_rest_anew_and_a_queue_that_is_not_full_has_none(rests: Rests) -> None:
    for _ in range(5):
        find(rests, {"mail": None}, 0.0)
    find(rests, {"mail": None}, 0.0, ["mail"])
    assert rests.ends(["mail"]) == {"mail": SHORTEST}
    find(rests, {}, 0.0)
    assert rests.awake(["mail"], 0.0) == ["mail"]


def test_what_ends_in_our_hand_ends_the_rest_of_its_queue(rests: Rests) -> None:
    find(rests, {"mail": None, "work": None}, 0.0)
    rests.end(["mail"])
    assert rests.awake(["mail", "work"], 0.0) == ["mail"]
    rests.end()
    assert rests.awake(["mail", "work"], 0.0) == ["mail", "work"]


def test_a_look_is_planned_once_for_the_time_of_the_next_token(rests: Rests) -> None:
    find(rests, {"mail": 3.0}, 10.0)
    assert rests.next_look() == 13.0
    assert rests.due(12.9) == []
    assert rests.due(13.0) == ["mail"]
    assert rests.awake(["mail"], 10.0) == ["mail"]
    assert rests.next_look() is None
    assert rests.due(13.0) == []


class NoJudge:
    def wants(self, report: Report) -> bool:
        return False


def test_a_worker_that_serves_a_throttled_queue_takes_nothing_ahead_of_its_slots() -> None:
    judge: Any = NoJudge()
    hand = Hand(10, 1, judge)
    hand._rates = [10_000.0]
    assert hand.reserve(500) == 500
    hand.answered(500)
    hand.throttled = True
    assert hand.reserve(500) == 10
    assert hand.reserve(500) == 0
    assert hand.reserve(500, ending=4) == 4


def test_a_limited_queue_is_worked_off_without_anybody_calling(app: Callable[..., App]) -> None:
    shop = app(clock=Clock())

    @shop.queue("mail", throttle_limit=5).job
    async def send(n: int) -> int:
        return n

    jobs = send.enqueue_many([{"n": n} for n in range(400)])
    with shop.worker(poll=3600, concurrency=5):
        assert [job.wait(30).result for job in jobs] == list(range(400))
