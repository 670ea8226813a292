"""Which labels an event adds to those that are known."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.builds.labels import PullRequestLabels, added, is_older

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def said(*names: str, at: float | None = None) -> PullRequestLabels:
    return PullRequestLabels(7, names, None if at is None else NOW + timedelta(seconds=at))


@pytest.mark.claim("B1")
@pytest.mark.parametrize(
    ("known", "now", "new"),
    [
        (None, said("a", "b"), {"a", "b"}),
        (said("a"), said("a", "b"), {"b"}),
        (said("a", "b"), said("a"), set()),
        (said(), said("a"), {"a"}),
        (said("a", at=5), said("b", at=5), {"b"}),
        (said("a", at=5), said("b", at=4), set()),
        (said("a", at=5), said("b"), {"b"}),
        (said("a"), said("b", at=4), {"b"}),
    ],
)
def test_a_label_is_new_if_it_was_not_known_and_the_event_is_not_older(
    known: PullRequestLabels | None, now: PullRequestLabels, new: set[str]
) -> None:
    assert added(now, known) == new


def test_only_times_tell_that_an_event_is_older() -> None:
    assert is_older(said(at=4), said(at=5))
    assert not any(is_older(said(at=at), known) for at in (None, 5, 6) for known in (None, said(), said(at=5)))
