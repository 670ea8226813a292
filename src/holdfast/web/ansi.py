"""Text with the colour codes of a terminal as HTML: every character escaped, every colour one of our own classes.

- Colours, bold, dim, italic, underline and inverse are kept; every other escape and control character is dropped.
- Of 256 or 16 million colours the nearest of the sixteen is taken: an exact one would need a style in the page.
- What a carriage return has overwritten is left out, as on a terminal.
- A text of any kind and length takes time in proportion to its length, and never fails.
"""

import re
from collections.abc import Iterator, Sequence

from markupsafe import Markup, escape
from msgspec import Struct, structs

NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
SIXTEEN = (
    *((0, 0, 0), (205, 49, 49), (13, 188, 121), (229, 229, 16), (36, 114, 200), (188, 63, 188), (17, 168, 205)),
    *((229, 229, 229), (102, 102, 102), (241, 76, 76), (35, 209, 139), (245, 245, 67), (59, 142, 234)),
    *((214, 112, 214), (41, 184, 219), (255, 255, 255)),
)
ESCAPE = re.compile(
    r"\x1b\[(?P<codes>[0-9;:]*)m"  # colours
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # anything else about the cursor or the screen
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # titles, links and other texts to the terminal
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?",
    re.MULTILINE,
)
LONGEST_CODE = 3  # digits; others mean nothing, and Python does not read thousands of them
MOST_CODES = 32  # of one sequence that count; more is no terminal's
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9a\x9c-\x9f\u202a-\u202e\u2066-\u2069]")
SWITCHES = {
    1: ("bold", True),
    2: ("dim", True),
    3: ("italic", True),
    4: ("underline", True),
    7: ("inverse", True),
    23: ("italic", False),
    24: ("underline", False),
    27: ("inverse", False),
}


class Style(Struct, frozen=True):
    """How the text looks from here on."""

    ink: str = ""
    paper: str = ""
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    inverse: bool = False

    @property
    def classes(self) -> str:
        ink, paper = (self.paper, self.ink) if self.inverse else (self.ink, self.paper)
        words = [f"ink-{ink}" if ink else "", f"paper-{paper}" if paper else ""]
        if self.inverse and not (self.ink or self.paper):
            words.append("inverse")
        words += [name for name in ("bold", "dim", "italic", "underline") if getattr(self, name)]
        return " ".join(word for word in words if word)


PLAIN = Style()


def lines(text: str) -> list[Markup]:
    """The lines of a text as HTML; a colour goes on from line to line."""
    style, made = PLAIN, []
    for line in text.split("\n"):
        html, style = rendered(line, style)
        made.append(html)
    return made


def html(text: str) -> Markup:
    """A text as HTML, in one piece."""
    return Markup("\n").join(lines(text))


def rendered(line: str, style: Style = PLAIN) -> tuple[Markup, Style]:
    """One line as HTML, and how the next one begins."""
    made = []
    for piece, style in _pieces(_overwritten(line), style):  # noqa: B020
        if piece:
            shown, classes = escape(piece), style.classes
            made.append(Markup('<span class="{}">{}</span>').format(classes, shown) if classes else shown)
    return Markup("").join(made), style


def plain(text: str) -> str:
    """A text without what is meant for a terminal."""
    return CONTROL.sub("", ESCAPE.sub("", text))


def _overwritten(line: str) -> str:
    """What is left on the line; the colours that were set before still hold."""
    kept, _, last = line.rstrip("\r").rpartition("\r")
    return "".join(found.group() for found in ESCAPE.finditer(kept) if found["codes"] is not None) + last


def _pieces(line: str, style: Style) -> Iterator[tuple[str, Style]]:
    at = 0
    for found in ESCAPE.finditer(line):
        yield _visible(line[at : found.start()]), style
        at = found.end()
        if found["codes"] is not None:
            style = _styled(style, _numbers(found["codes"]))
    yield _visible(line[at:]), style


def _numbers(codes: str) -> list[int]:
    """The codes of a sequence; those that are too long are dropped."""
    found = re.split("[;:]", codes, maxsplit=MOST_CODES)[:MOST_CODES]
    return [int(code or 0) for code in found if len(code) <= LONGEST_CODE]


def _visible(text: str) -> str:
    return CONTROL.sub("", text)


def _styled(style: Style, codes: Sequence[int]) -> Style:
    rest = list(codes)
    while rest:
        code = rest.pop(0)
        if code == 0:
            style = PLAIN
        elif code == 22:
            style = structs.replace(style, bold=False, dim=False)
        elif code in SWITCHES:
            style = structs.replace(style, **dict([SWITCHES[code]]))
        elif code in (38, 48):
            colour, rest = _exact(rest)
            style = structs.replace(style, **{"ink" if code == 38 else "paper": colour})
        else:
            style = _coloured(style, code)
    return style


def _coloured(style: Style, code: int) -> Style:
    tens, colour = divmod(code, 10)
    if code in (39, 49):
        return structs.replace(style, **{"ink" if code == 39 else "paper": ""})
    if colour > 7 or tens not in (3, 4, 9, 10):
        return style
    name = NAMES[colour] if tens in (3, 4) else f"bright-{NAMES[colour]}"
    return structs.replace(style, **{"ink" if tens in (3, 9) else "paper": name})


def _exact(rest: list[int]) -> tuple[str, list[int]]:
    """The name for one of 256 colours or for red, green and blue; and the codes behind it."""
    if rest[:1] == [5] and len(rest) > 1:
        return _of_256(rest[1]), rest[2:]
    if rest[:1] == [2] and len(rest) > 3:
        return _nearest(rest[1], rest[2], rest[3]), rest[4:]
    return "", []


def _of_256(number: int) -> str:
    if number < 16:
        return _named(number)
    if number >= 232:
        grey = 8 + 10 * (min(number, 255) - 232)
        return _nearest(grey, grey, grey)
    steps = (0, 95, 135, 175, 215, 255)
    cube = number - 16
    return _nearest(steps[cube // 36], steps[cube // 6 % 6], steps[cube % 6])


def _nearest(red: int, green: int, blue: int) -> str:
    wanted = red, green, blue
    return _named(
        min(range(16), key=lambda each: sum((a - b) ** 2 for a, b in zip(SIXTEEN[each], wanted, strict=True)))
    )


def _named(number: int) -> str:
    return NAMES[number] if number < 8 else f"bright-{NAMES[number - 8]}"
