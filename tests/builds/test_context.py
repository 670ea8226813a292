"""Contexts: when a result of one is that of another."""

from itertools import product

import pytest

from holdfast.builds import context
from holdfast.builds.context import READABLE, Context, event_of, has_same_result

pytestmark = pytest.mark.claim("B1", "B4")
MAIN = Context(trusted=True, event="push", branch="main")


def test_a_result_is_that_of_its_own_context_whatever_conditions_read() -> None:
    for read in (None, (), READABLE):
        assert has_same_result(MAIN, Context(trusted=True, event="push", branch="main"), read)


def test_trust_is_never_passed_over() -> None:
    untrusted = Context(trusted=False, event="push", branch="main")
    for one, two in ((MAIN, untrusted), (untrusted, MAIN)):
        assert not has_same_result(one, two, ())


def test_what_is_not_known_may_be_read() -> None:
    assert not has_same_result(MAIN, Context(trusted=True, event="push", branch="next"), None)


@pytest.mark.parametrize("name", READABLE)
def test_a_name_counts_where_its_values_differ(name: str) -> None:
    values = {"event": "tag", "branch": "next", "tag": "v1"}
    other = Context(**{"trusted": True, "event": "push", "branch": "main", "tag": None, name: values[name]})
    assert not has_same_result(MAIN, other, (name,))
    assert has_same_result(MAIN, other, [each for each in (*READABLE, "env.X", "commit") if each != name])


def test_what_is_not_there_is_empty() -> None:
    assert has_same_result(MAIN, Context(trusted=True, event="push", branch="main", tag=""), READABLE)


def test_equal_contexts_have_equal_texts_and_others_have_others() -> None:
    every = [
        Context(trusted=trusted, event=event, branch=branch, tag=tag)
        for trusted, event, branch, tag in product((True, False), ("push", "tag"), (None, "a", "b"), (None, "a", "b"))
    ]
    assert len({context.encode(each) for each in every}) == len(every)
    assert [context.decode(context.encode(each)) for each in every] == every


def test_an_event_is_named_by_what_asks() -> None:
    assert [event_of(*asks) for asks in ((None, None), (None, "v1"), (5, None), (5, "v1"))] == [
        "push",
        "tag",
        "pull_request",
        "pull_request",
    ]
