"""The labels of a pull request, where the forge sends all that it has and not the one that changed.

Gitea and Forgejo send the same event for a label that is added and for one that is removed, with the labels that the
pull request has afterwards. The store keeps the labels last known, and what an event adds to them decides.
"""

from datetime import datetime

from msgspec import Struct


class PullRequestLabels(Struct, frozen=True):
    """The labels that a pull request has, as an event of its forge says."""

    pull_request: int
    names: tuple[str, ...]
    time: datetime | None = None  # of the last change of the pull request, if the forge says it


def is_older(said: PullRequestLabels, known: PullRequestLabels | None) -> bool:
    """Return whether an event is older than the labels last known. Events without a time count in the order in which they come."""
    if known is None or known.time is None or said.time is None:
        return False
    return said.time < known.time


def added(said: PullRequestLabels, known: PullRequestLabels | None) -> frozenset[str]:
    """Return the labels that are new. Of a pull request whose labels are not known yet, all are."""
    if is_older(said, known):
        return frozenset()
    return frozenset(said.names) - frozenset(known.names if known is not None else ())
