"""Conditions of steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.builds import condition
from holdfast.builds.condition import COMPARISONS, And, Compares, Condition, Holds, Name, Not, Or, Text, Unreadable

FACTS = {"branch": "main", "event": "push", "tag": "", "env.MODE": "quick", "project": "demo"}

pytestmark = pytest.mark.claim("B6")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("branch == 'main'", True),
        ('branch == "main"', True),
        ("branch != 'main'", False),
        ("'main' == branch", True),
        ("branch like 'ma*'", True),
        ("branch like 'm?in'", True),
        ("branch like 'Main'", False),
        ("not branch like 'release/*'", True),
        ("tag", False),
        ("branch", True),
        ("not tag", True),
        ("env.MODE == 'quick'", True),
        ("env.UNKNOWN", False),
        ("env.UNKNOWN == ''", True),
        ("branch == 'x' or event == 'push'", True),
        ("branch == 'main' and event == 'x'", False),
        ("event == 'push' or event == 'x' and branch == 'x'", True),
        ("(event == 'push' or event == 'x') and branch == 'x'", False),
        ("not (branch == 'x') and not tag", True),
        ("not not branch", True),
        ("branch == 'and'", False),
        ("branch=='main'and(tag or event)", True),
        ("branch == event", False),
    ],
)
def test_it_holds_or_does_not(text: str, holds: bool) -> None:
    assert condition.holds(condition.read(text), FACTS) is holds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has nothing where a name"),
        ("branch ==", "has nothing where a name"),
        ("branch = 'main'", "has `=` where `and`"),
        ("brunch == 'main'", "asks for `brunch`"),
        ("branch == main", "asks for `main`"),
        ("(branch", "where `)` is expected"),
        ("branch) or tag", "has `)` where"),
        ("branch == 'main", "has `'`"),
        ("and", "has `and` where a name"),
        ("branch like", "has nothing"),
        ("__import__('os')", "asks for `__import__`"),
        ("$(touch x)", "has `$`"),
        ("branch == 'a' 'b'", "has `'b'` where"),
        ("(" * 60 + "tag" + ")" * 60, "too deeply"),
        ("not " * 60 + "tag", "too deeply"),
        ("tag or " * 400 + "tag", "longer than"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(Unreadable) as refused:
        condition.read(text)
    assert why in str(refused.value)


@pytest.mark.claim("B4")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("branch", {"branch"}),
        ("'text'", set()),
        ("branch == 'main' and event != 'tag'", {"branch", "event"}),
        ("not (tag like 'v*' or 'x' == env.MODE) and commit == project", {"tag", "env.MODE", "commit", "project"}),
        ("branch == tag", {"branch", "tag"}),
        ("trusted and trusted", {"trusted"}),
    ],
)
def test_its_names_are_those_that_stand_in_it(text: str, names: set[str]) -> None:
    assert condition.names(condition.read(text)) == names


WORDS = some.sampled_from(["", "main", "m*", "v1"])
NAMES = some.sampled_from(["branch", "tag", "event", "env.MODE"])
OPERANDS = some.builds(Text, WORDS) | some.builds(Name, NAMES)
CONDITIONS: some.SearchStrategy[Condition] = some.recursive(
    some.builds(Holds, OPERANDS) | some.builds(Compares, OPERANDS, some.sampled_from(sorted(COMPARISONS)), OPERANDS),
    lambda inner: some.builds(Not, inner) | some.builds(And, inner, inner) | some.builds(Or, inner, inner),
)
SOME_FACTS = some.dictionaries(NAMES, WORDS)


@pytest.mark.claim("B4")
@given(CONDITIONS, SOME_FACTS, SOME_FACTS)
def test_it_depends_on_no_other_names(given_condition: Condition, one: dict[str, str], two: dict[str, str]) -> None:
    names = condition.names(given_condition)
    same = {**two, **{name: one.get(name, "") for name in names}}
    assert condition.holds(given_condition, same) == condition.holds(given_condition, one)
