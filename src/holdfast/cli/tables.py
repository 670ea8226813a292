"""Tables for people, drawn with rich.

- On a terminal they fit its width: what is too long is cut, except in columns that must stay whole.
- In a pipe or a file there are no boxes and no colours, and nothing is cut.
- No text is read as markup.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdfast.cli.output import say, visible
from holdfast.jobs.wording import moment, relative, span

__all__ = [
    "cell",
    "coloured",
    "console",
    "facts",
    "indented",
    "listing",
    "moment",
    "relative",
    "show",
    "shows_colours",
    "span",
]

WIDTH_OF_A_PIPE = 4000
NARROW = 80
LEAST_WIDTH = 4
COLOURS = {
    "initial": "cyan",
    "running": "yellow",
    "error": "magenta",
    "success": "green",
    "failed": "red",
    "aborted": "red",
}


def console() -> Console:
    """Standard output as it is: a terminal of some width, or something else."""
    out = Console(highlight=False, emoji=False, markup=False)
    if not out.is_terminal:
        out.width = WIDTH_OF_A_PIPE
    return out


def shows_colours() -> bool:
    """Return whether standard output is a terminal with colours, and the user has not switched them off (`NO_COLOR`)."""
    out = console()
    return out.color_system is not None and not out.no_color


def show(*parts: RenderableType, empty: str = "") -> None:
    """Print the parts below each other; a table without rows is the sentence `empty`."""
    out = console()
    for part in parts:
        if isinstance(part, Table) and not part.row_count and empty:
            say(empty)
        else:
            out.print(part)


def listing(
    headers: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    whole: Collection[str] = (),
    right: Collection[str] = (),
    spare: Collection[str] = (),
) -> Table:
    """A table with a row for each thing. `whole` columns are never cut, `spare` ones are left out of a narrow terminal."""
    out = console()
    kept = [index for index, header in enumerate(headers) if out.width >= NARROW or header not in spare]
    table = Table(
        box=box.SIMPLE_HEAD if out.is_terminal else None, show_edge=False, pad_edge=False, header_style="bold"
    )
    for header in (headers[index] for index in kept):
        justify: Literal["left", "right"] = "right" if header in right else "left"
        table.add_column(header, no_wrap=header in whole, justify=justify, min_width=min(LEAST_WIDTH, len(header)))
    for row in rows:
        table.add_row(*(cell(row[index]) for index in kept))
    return table


def facts(pairs: Sequence[tuple[str, str | Text]]) -> Table:
    """Names and values below each other; long values go on in the next line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, value if isinstance(value, Text) else Text(visible(value)))
    return table


def cell(value: str | Text) -> Text:
    """A value on one line, cut where its column ends."""
    text = value.copy() if isinstance(value, Text) else Text(visible(" ".join(value.split())))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def indented(part: RenderableType) -> RenderableType:
    return Padding(part, (0, 0, 0, 4), expand=False)


def coloured(words: str, kind: str) -> Text:
    return Text(words, style=COLOURS.get(kind, ""))
