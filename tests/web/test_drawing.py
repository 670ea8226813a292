"""Where things stand in a picture."""

from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest

from holdfast.web import drawing
from holdfast.web.drawing import NODE_HEIGHT, NODE_WIDTH, Planned

START = datetime(2026, 11, 16, tzinfo=UTC)


def steps(**after: str) -> tuple[Planned, ...]:
    return tuple(Planned(name, tuple(words.split())) for name, words in after.items())


def test_every_step_stands_right_of_what_it_comes_after() -> None:
    picture = drawing.graph(steps(a="", b="a", c="a", d="b c", e="a d"))
    at = {node.name: node.x for node in picture.nodes}
    assert at["a"] < at["b"] == at["c"] < at["d"] < at["e"]
    assert {(link.source, link.target) for link in picture.links} == {
        ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "e"), ("d", "e"),
    }  # fmt: skip


def test_no_two_boxes_overlap_and_all_are_inside() -> None:
    wide = {f"s{number}": "first" for number in range(30)}
    picture = drawing.graph(steps(first="", **wide, last=" ".join(wide)))
    for one, other in combinations(picture.nodes, 2):
        assert abs(one.x - other.x) >= NODE_WIDTH or abs(one.y - other.y) >= NODE_HEIGHT
    assert all(0 <= node.x <= picture.width - NODE_WIDTH for node in picture.nodes)
    assert all(0 <= node.y <= picture.height - NODE_HEIGHT for node in picture.nodes)


def test_a_line_over_several_columns_passes_between_the_boxes() -> None:
    picture = drawing.graph(steps(a="", b="a", c="b", d="c a"))
    long = next(link for link in picture.links if (link.source, link.target) == ("a", "d"))
    level = next(node.y for node in picture.nodes if node.name == "b") + NODE_HEIGHT / 2
    assert "H" in long.path
    assert f" {level:g}H" not in long.path


def test_a_later_phase_stands_behind_a_border_and_right_of_everything_earlier() -> None:
    planned = (Planned("a", ()), Planned("b", ("a",)), Planned("tidy", (), phase=1), Planned("last", (), phase=5))
    picture = drawing.graph(planned)
    at = {node.name: node.x for node in picture.nodes}
    assert at["a"] < at["b"] < at["tidy"] < at["last"]
    assert [border.phase for border in picture.borders] == [1, 5]
    assert at["b"] + NODE_WIDTH < picture.borders[0].x < at["tidy"]


@pytest.mark.parametrize("count", [0, 1, drawing.MOST_DRAWN])
def test_graphs_of_every_size_are_drawn(count: int) -> None:
    chain = tuple(Planned(f"s{place}", (f"s{place - 1}",) if place else ()) for place in range(count))
    assert len(drawing.graph(chain).nodes) == count


def test_bars_stand_where_their_time_is() -> None:
    spans = {
        "over": (START, START + timedelta(seconds=5)),
        "going on": (START + timedelta(seconds=5), None),
        "not begun": (None, None),
    }
    line = drawing.timeline(spans, START, START + timedelta(seconds=20))
    assert {name: (bar.start, bar.length) for name, bar in line.bars.items()} == {
        "over": (0, 0.25),
        "going on": (0.25, 0.75),
    }


@pytest.mark.parametrize("seconds", [0.0, 0.0004, 0.7, 3, 42, 500, 90_000, 9e6, 1e9])
def test_an_axis_has_a_few_round_marks(seconds: float) -> None:
    ticks = drawing.timeline({}, START, START + timedelta(seconds=seconds)).ticks
    assert 1 <= len(ticks) <= 11
    assert all(0 <= tick.at <= 1.0001 for tick in ticks)


def test_a_curve_reaches_from_edge_to_edge() -> None:
    line, area = drawing.curve([0, 2, 4], 100, 20)
    assert line == "M0.0 19.0L50.0 10.0L100.0 1.0"
    assert area.endswith("L100 20L0 20Z")
    assert drawing.curve([3], 100, 20) == ("", "")
    assert "nan" not in drawing.curve([0, 0], 100, 20)[0]
