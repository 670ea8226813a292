"""A lease ends with the last commit about its jobs, whichever pump makes it: by it they are found when the worker is gone."""

import pytest

from holdfast.stores.contract import Claimed, Done
from holdfast.worker.hand import Hand
from holdfast.worker.judge import Judge

LEASE = 7


def call(number: int) -> Claimed:
    return Claimed("mail", LEASE, number, 1, "send", None, "{}", None, 0)


@pytest.fixture
def hand() -> Hand:
    """With two pumps, and two jobs of one lease in it."""
    made = Hand(10, 2, Judge({}, lambda _: None, lambda _: None))  # type: ignore[arg-type, return-value]
    made.take([call(1), call(2)])
    return made


def ended(hand: Hand, number: int, pump: int) -> tuple[list[Done], list[int]]:
    """A job ended, and a pump takes it to the database; and which leases it ends there."""
    hand.finished.append(Done(call(number), 0.0, None))
    done, _, leases = hand.take_finished(pump)
    return done, leases


@pytest.mark.claim("R1", "C3")
def test_a_lease_outlives_what_another_pump_has_not_committed(hand: Hand) -> None:
    first, leases = ended(hand, 1, pump=0)
    assert leases == []
    second, leases = ended(hand, 2, pump=1)
    assert leases == []  # the first pump may still crash with job 1
    hand.settled(second, (), (), 1)
    assert hand.take_finished(1)[2] == []
    hand.settled(first, (), (), 0)
    assert hand.known_leases() == [LEASE]
    assert hand.take_finished(1)[2] == [LEASE]
    hand.settled((), (), [LEASE], 1)
    assert (hand.known_leases(), hand.take_finished(0)[2]) == ([], [])


@pytest.mark.claim("R1")
def test_a_lease_ends_in_the_turn_that_settles_its_last_jobs(hand: Hand) -> None:
    first, _ = ended(hand, 1, pump=0)
    hand.settled(first, (), (), 0)
    second, leases = ended(hand, 2, pump=1)
    assert leases == [LEASE]
    hand.settled(second, (), leases, 1)
    assert hand.known_leases() == []


def test_what_a_pump_could_not_commit_at_first_is_not_in_its_own_way(hand: Hand) -> None:
    ended(hand, 1, pump=0)
    _, leases = ended(hand, 2, pump=0)
    assert leases == [LEASE]


def test_jobs_are_quick_while_more_than_there_are_slots_for_end_in_a_tenth_of_a_second(hand: Hand) -> None:
    assert not hand.quick
    for moment in range(1, 9):
        hand.measure(0, 30, moment / 10)
    assert hand.quick
    for moment in range(9, 29):
        hand.measure(0, 3, moment / 10)
    assert not hand.quick
