"""JSON without its traps."""

import json

import pytest

from holdfast import strict_json


def test_what_json_can_say_is_read() -> None:
    assert strict_json.parse(' {"a": [1, 2.5, null, true, {"a": "ä"}]} ') == {"a": [1, 2.5, None, True, {"a": "ä"}]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "an object has the name 'c' twice"),
        ("[NaN]", "NaN is no number of JSON"),
        ("[-Infinity]", "-Infinity is no number of JSON"),
        ("[" * 200_000, "it is nested too deeply"),
    ],
)
def test_what_readers_understand_differently_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        strict_json.parse(text)
    assert not isinstance(refused.value, json.JSONDecodeError)


@pytest.mark.parametrize("text", ["text", "Infinity War", "NaNny"])
def test_what_is_no_json_is_told_apart(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        strict_json.parse(text)
