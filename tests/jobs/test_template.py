"""Templates: variables in braces, their types, and what is refused before anything is stored."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs import template

TIME = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
CONST = {"region": "eu", "rate": 2.5, "tags": ["a", "b"], "on": True, "none": None}


def filled(value: Any, zone: str = "UTC") -> Any:
    return template.fill(value, CONST, 7, TIME, zone)


@pytest.mark.claim("W6")
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{count}", 7),
        ("{time}", "2026-01-31T23:30:00Z"),
        ("{region}", "eu"),
        ("{rate}", 2.5),
        ("{tags}", ["a", "b"]),
        ("{none}", None),
    ],
)
def test_a_text_that_is_one_variable_becomes_its_value(written: str, value: Any) -> None:
    assert filled(written) == value
    assert type(filled(written)) is type(value)


@pytest.mark.claim("W6")
def test_inside_a_longer_text_a_variable_is_written_out() -> None:
    assert filled("{region}-{count}: {rate}, {on}") == "eu-7: 2.5, true"
    assert filled("at {time}") == "at 2026-01-31T23:30:00Z"


@pytest.mark.claim("W6")
def test_time_takes_a_form_and_the_zone_says_which_day_it_is() -> None:
    assert filled("{time:%Y-%m-%d}") == "2026-01-31"
    assert filled("day {time:%Y-%m-%d %H:%M}", "Europe/Amsterdam") == "day 2026-02-01 00:30"


@pytest.mark.claim("W6")
def test_a_brace_is_written_twice() -> None:
    assert list(template.problems("{{count}} is {count}", {})) == []
    assert filled("{{count}} is {count}") == "{count} is 7"
    assert filled("{{}}") == "{}"


@pytest.mark.claim("W6")
def test_variables_stand_anywhere_in_the_values_and_not_in_the_keys() -> None:
    value = {"{count}": ["{count}", {"deep": ("{region}", 5, None)}], "plain": 1.5}
    assert filled(value) == {"{count}": [7, {"deep": ["eu", 5, None]}], "plain": 1.5}


@pytest.mark.claim("W6")
@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{cuont}", "did you mean `{count}`?"),
        ("{zzz}", "known are count, time, region"),
        ("{}", "names a variable `` that there is not"),
        ("a { b", "has a single `{`; write a brace twice"),
        ("a } b", "has a single `}`; write a brace twice"),
        ("{count:%Y}", "only `time` takes one"),
        ("tags: {tags}", "let it stand alone"),
    ],
)
def test_what_cannot_be_filled_is_told_at_once(written: str, told: str) -> None:
    (problem,) = template.problems({"x": [written]}, CONST)
    assert told in problem


@pytest.mark.parametrize("name", ["count", "time", "two words", "", "1st"])
def test_a_constant_has_a_name_that_can_be_written_and_is_not_taken(name: str) -> None:
    (problem,) = template.problems("plain", {name: 1})
    assert "const" in problem


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_text_with_its_braces_doubled_comes_back_as_it_was(value: Any) -> None:
    def doubled(item: Any) -> Any:
        if isinstance(item, str):
            return item.replace("{", "{{").replace("}", "}}")
        if isinstance(item, dict):
            return {name: doubled(inner) for name, inner in item.items()}
        return [doubled(inner) for inner in item] if isinstance(item, list) else item

    assert list(template.problems(doubled(value), {})) == []
    assert filled(doubled(value)) == value
