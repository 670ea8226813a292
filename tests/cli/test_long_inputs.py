"""A message about a long input repeats 80 characters of it at most, by every argument and option."""

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from docs.generator.cli import is_option, walk
from holdfast import App
from holdfast.cli import commands
from tests.cli.terminal import Call
from tests.long_inputs import LONG, too_much

ENDLESS = ("bench", "demo", "dev", "serve", "simulate", "top", "worker")  # some of their options take any text
VALUES = {"INTEGER": "1", "FLOAT": "1"}


def calls(url: str) -> Iterator[list[str]]:
    """Each command with each of its arguments and options too long, and with what else it needs."""
    for path, command in walk(get_command(commands()), "holdfast"):
        words = path.split()[1:]
        if words[0] in ENDLESS:
            continue
        options = [each for each in command.params if not getattr(each, "is_flag", False)]
        for long in options:
            given = [each for each in options if each.required or each.name in ("url", "instance")]
            others = {"url": url, "instance": "shop"}
            values = {each: LONG if each is long else others.get(each.name, "") for each in (*given, long)}
            yield [*words, *(word for each, value in values.items() for word in written(each, value))]


def written(parameter: Any, text: str) -> list[str]:
    value = text or VALUES.get(parameter.type.name.upper(), "send")
    return [parameter.opts[-1], value] if is_option(parameter) else [value]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_complaint_repeats_little_of_what_was_typed(cli: Call, shop: App, url: str) -> None:
    answers = [(words, cli(*words)) for words in calls(url)]
    refused = [(" ".join(words).replace(LONG, "LONG"), answer.err) for words, answer in answers if answer.code]

    assert len(refused) > 100
    assert {command: err.replace(LONG, "LONG") for command, err in refused if too_much(err)} == {}
