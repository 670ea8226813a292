"""Where things stand in a picture: the graph of a run, the bars of its steps in time, and small curves of numbers.

Nothing here writes SVG or knows a colour: the templates draw these values, and the stylesheet paints them by state.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import pairwise

import igraph
from msgspec import Struct

NODE_WIDTH, NODE_HEIGHT = 164, 58
GAP_ACROSS, GAP_DOWN = 42, 18
MARGIN = 12
PHASE_GAP = 34  # room for the line between two phases
MOST_DRAWN = 400  # steps; a picture of more tells nothing that their list does not

Edge = tuple[int, int]


class Node(Struct, frozen=True):
    """The box of a step."""

    name: str
    x: float
    y: float


class Link(Struct, frozen=True):
    """From one step to one that comes after it, as the path of an SVG."""

    source: str
    target: str
    path: str


class Border(Struct, frozen=True):
    """The line before a phase."""

    phase: int
    x: float


class Picture(Struct, frozen=True):
    """A graph of steps, laid out from left to right."""

    width: float
    height: float
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    borders: tuple[Border, ...]


class Planned(Struct, frozen=True):
    """What the layout knows of a step."""

    name: str
    after: tuple[str, ...]
    phase: int = 0


class Bar(Struct, frozen=True):
    """A step in time; both ends are shares of the whole span."""

    name: str
    start: float
    length: float


class Tick(Struct, frozen=True):
    """A mark on the axis of time."""

    at: float  # share of the whole span
    seconds: float


class Timeline(Struct, frozen=True):
    """Bars over one span of time."""

    seconds: float
    bars: Mapping[str, Bar]
    ticks: tuple[Tick, ...]


@lru_cache(maxsize=256)
def graph(steps: tuple[Planned, ...]) -> Picture:
    """Steps in columns, each right of what it comes after, phases behind each other; few lines cross."""
    layers = _layers(steps)
    index = {step.name: place for place, step in enumerate(steps)}
    edges = [(index[name], index[step.name]) for step in steps for name in step.after if name in index]
    levels = [layers[step.name] for step in steps]
    split, chains = _split(edges, levels)
    drawn = igraph.Graph(n=len(levels), edges=[*split, *_between_phases(steps, edges, layers)], directed=True)
    rows = [place[0] for place in drawn.layout_sugiyama(layers=levels).coords] if levels else []
    borders = _borders(steps, layers)
    places = [_place(level, row, borders) for level, row in zip(levels, rows, strict=True)]
    top = min((y for _, y in places), default=0)
    places = [(x, y - top + MARGIN) for x, y in places]
    return Picture(
        width=max((x for x, _ in places), default=0) + NODE_WIDTH + MARGIN,
        height=max((y for _, y in places), default=0) + NODE_HEIGHT + MARGIN,
        nodes=tuple(Node(step.name, *place) for step, place in zip(steps, places, strict=False)),
        links=tuple(
            Link(steps[edge[0]].name, steps[edge[1]].name, _path([places[each] for each in chain]))
            for edge, chain in zip(edges, chains, strict=True)
        ),
        borders=tuple(
            Border(phase, _column(level, borders) - (GAP_ACROSS + PHASE_GAP) / 2) for level, phase in borders
        ),
    )


def _layers(steps: Sequence[Planned]) -> dict[str, int]:
    """The column of each step: behind what it comes after, and behind all smaller phases."""
    after = {step.name: step.after for step in steps}
    layers: dict[str, int] = {}
    floor = 0
    for phase in sorted({step.phase for step in steps}):
        waiting = [step.name for step in steps if step.phase == phase]
        while waiting:
            ready = [name for name in waiting if all(other in layers or other not in after for other in after[name])]
            for name in ready or waiting:
                layers[name] = max([floor, *(layers[other] + 1 for other in after[name] if other in layers)])
            waiting = [name for name in waiting if name not in layers]
        floor = max(layers.values()) + 1
    return layers


def _split(edges: Sequence[Edge], levels: list[int]) -> tuple[list[Edge], list[list[int]]]:
    """Long edges with a bend in each column that they pass; the bends are added to `levels`."""
    split, chains = [], []
    for source, target in edges:
        chain = [source]
        for level in range(levels[source] + 1, levels[target]):
            levels.append(level)
            chain.append(len(levels) - 1)
        chain.append(target)
        chains.append(chain)
        split += list(pairwise(chain))
    return split, chains


def _between_phases(steps: Sequence[Planned], edges: Sequence[Edge], layers: Mapping[str, int]) -> list[Edge]:
    """From the last column of a phase to the first of the next: not drawn, but it keeps the phases side by side."""
    found: list[Edge] = []
    phases = sorted({step.phase for step in steps})
    for phase, following in pairwise(phases):
        ends = [place for place, step in enumerate(steps) if step.phase == phase]
        last = max(layers[steps[place].name] for place in ends)
        begins = [place for place, step in enumerate(steps) if step.phase == following]
        first = [place for place in begins if layers[steps[place].name] == last + 1]
        ends = [place for place in ends if layers[steps[place].name] == last]
        found += [(source, target) for source in ends[:10] for target in first[:10] if (source, target) not in edges]
    return found


def _borders(steps: Sequence[Planned], layers: Mapping[str, int]) -> list[tuple[int, int]]:
    """The first column of each phase but the first, and the phase."""
    firsts: dict[int, int] = {}
    for step in steps:
        firsts[step.phase] = min(layers[step.name], firsts.get(step.phase, layers[step.name]))
    return [(firsts[phase], phase) for phase in sorted(firsts)[1:]]


def _place(level: int, row: float, borders: Sequence[tuple[int, int]]) -> tuple[float, float]:
    return _column(level, borders), row * (NODE_HEIGHT + GAP_DOWN)


def _column(level: int, borders: Sequence[tuple[int, int]]) -> float:
    passed = sum(first <= level for first, _ in borders)
    return MARGIN + level * (NODE_WIDTH + GAP_ACROSS) + passed * PHASE_GAP


def _path(places: Sequence[tuple[float, float]]) -> str:
    """A smooth line from the right side of the first box, through the bends, to the left side of the last."""
    (x, y), *bends = places
    x, y = x + NODE_WIDTH, y + NODE_HEIGHT / 2
    parts = [f"M{x:g} {y:g}"]
    for number, (left, top) in enumerate(bends, 1):
        to_x, to_y = left, top + NODE_HEIGHT / 2
        half = (to_x - x) / 2
        parts.append(f"C{x + half:g} {y:g} {to_x - half:g} {to_y:g} {to_x:g} {to_y:g}")
        x, y = to_x, to_y
        if number < len(bends):
            x += NODE_WIDTH
            parts.append(f"H{x:g}")
    return "".join(parts)


def timeline(spans: Mapping[str, tuple[datetime | None, datetime | None]], start: datetime, end: datetime) -> Timeline:
    """Bars of what has started; what has not ended goes on to `end`."""
    whole = max((end - start).total_seconds(), 0.001)
    bars = {}
    for name, (begun, ended) in spans.items():
        if begun is not None:
            left = min(1.0, max(0.0, (begun - start).total_seconds() / whole))
            right = min(1.0, max(left, ((ended or end) - start).total_seconds() / whole))
            bars[name] = Bar(name, left, right - left)
    return Timeline(whole, bars, _ticks(whole))


def _ticks(whole: float) -> tuple[Tick, ...]:
    """Up to six round marks."""
    step = _round_step(whole / 5)
    return tuple(Tick(count * step / whole, count * step) for count in range(int(whole / step) + 1))


def _round_step(seconds: float) -> float:
    """The next longer time that people count in."""
    for known in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400):
        if 0.5 < seconds <= known:
            return known
    if seconds > 0.5:
        return math.ceil(seconds / 86400) * 86400.0
    scale: float = 10.0 ** math.floor(math.log10(seconds))
    return next(scale * factor for factor in (1, 2, 5, 10) if seconds <= scale * factor * 1.000001)


def curve(values: Sequence[float], width: float, height: float) -> tuple[str, str]:
    """A line through the values, and the area below it, as paths of an SVG; empty without two values."""
    if len(values) < 2:
        return "", ""
    top = max(*values, 1e-9)
    inner = height - 2  # the line itself has a width
    step = width / (len(values) - 1)
    points = [f"{place * step:.1f} {height - 1 - value / top * inner:.1f}" for place, value in enumerate(values)]
    line = "M" + "L".join(points)
    return line, f"{line}L{width:g} {height:g}L0 {height:g}Z"
