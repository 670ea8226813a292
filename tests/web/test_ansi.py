"""Colour codes of terminals as HTML."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.web import ansi


def test_colours_become_classes_and_everything_is_escaped() -> None:
    assert ansi.html("\x1b[1;31m<b>&\x1b[0m plain") == '<span class="ink-red bold">&lt;b&gt;&amp;</span> plain'
    assert ansi.html("\x1b[44m\x1b[93mx") == '<span class="ink-bright-yellow paper-blue">x</span>'


def test_a_colour_goes_on_in_the_next_line_until_it_is_taken_back() -> None:
    assert ansi.lines("\x1b[32mone\ntwo\x1b[39m\nthree") == [
        '<span class="ink-green">one</span>',
        '<span class="ink-green">two</span>',
        "three",
    ]


@pytest.mark.parametrize(
    ("codes", "classes"),
    [("38;5;196", "ink-red"), ("38;2;10;180;120", "ink-green"), ("48;5;238", "paper-bright-black"), ("7", "inverse")],
)
def test_of_many_colours_the_nearest_of_sixteen_is_taken(codes: str, classes: str) -> None:
    assert ansi.html(f"\x1b[{codes}mx") == f'<span class="{classes}">x</span>'


@pytest.mark.parametrize(
    "text",
    [
        "\x1b]8;;https://evil.example\x07word\x1b]8;;\x07",
        "\x1b]0;title\x1b\\word",
        "\x1b[2J\x1b[1;1Hword",
        "wo\x00rd\x07",
        "\x1b[?25lword",
        "\u202eword\u202c",
    ],
)
def test_whatever_else_is_meant_for_a_terminal_is_dropped(text: str) -> None:
    assert ansi.html(text) == "word"
    assert ansi.plain(text) == "word"


def test_what_a_carriage_return_has_overwritten_is_left_out() -> None:
    assert ansi.html("\x1b[32m 10 %\r 50 %\r100 %\n") == '<span class="ink-green">100 %</span>\n'


@given(st.text(alphabet=st.sampled_from("\x1b[];m0123478\\\x07\r\n<>&\"'ab"), max_size=80))
def test_no_text_becomes_an_element_of_its_own(text: str) -> None:
    html = str(ansi.html(text))
    for part in html.split("<")[1:]:
        assert part.startswith(('span class="', "/span>"))
    assert "\x1b" not in html
