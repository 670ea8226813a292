"""On which line of a TOML text each key and each element of a list stands: `tomllib` does not say.

Only for texts that `tomllib` has read without complaint: nothing here looks for mistakes.
"""

import re
import tomllib
from collections.abc import Mapping

Place = tuple[str, ...]
BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
SPACE = re.compile(r"[ \t]*")
KEY = re.compile(r"[A-Za-z0-9_-]+|\"(?:[^\"\\]|\\.)*\"|'[^']*'")
TEXT = re.compile(
    r"\"\"\"(?:[^\\]|\\.)*?\"{3,5}(?!\")|'''.*?'{3,5}(?!')|\"(?:[^\"\\]|\\.)*\"|'[^']*'",
    re.DOTALL,
)
BARE = re.compile(r"[^,\]}\n#]*")


def lines(text: str) -> Mapping[Place, int]:
    """The line, from 1 on, of each place: `("steps", "test", "run", "0")`."""
    return _Walk(text.replace("\r\n", "\n")).found


def line_of(places: Mapping[Place, int], place: Place) -> int:
    """The line of a place, or of the nearest thing around it that has one."""
    while place and place not in places:
        place = place[:-1]
    return places.get(place, 1)


class _Walk:
    def __init__(self, text: str) -> None:
        self.found: dict[Place, int] = {}
        self._text = text
        self._at = 0
        self._line, self._counted = 1, 0
        table: Place = ()
        while self._skip(BLANK) < len(text):
            if text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Place:
        line, brackets = self._line_here(), 2 if self._text.startswith("[[", self._at) else 1
        self._at += brackets
        place = self._keys()
        self._skip(SPACE)
        self._at += brackets
        self._note(place, line)
        return place

    def _pair(self, table: Place) -> None:
        line = self._line_here()
        place = (*table, *self._keys())
        self._skip(SPACE)
        self._at += 1  # the equals sign
        self._note(place, line)
        self._skip(SPACE)
        self._value(place)

    def _keys(self) -> Place:
        """A key, or several with dots between them."""
        names: list[str] = []
        while True:
            self._skip(SPACE)
            match = KEY.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            names.append(_plain(match[0]))
            self._skip(SPACE)
            if self._text[self._at : self._at + 1] != ".":
                return tuple(names)
            self._at += 1

    def _value(self, place: Place) -> None:
        opened = self._text[self._at]
        if opened in "[{":
            self._at += 1
            self._several(place, "]" if opened == "[" else "}")
        elif opened in "\"'":
            self._skip(TEXT)
        else:
            self._skip(BARE)

    def _several(self, place: Place, end: str) -> None:
        index = 0
        while self._text[self._skip(BLANK)] != end:
            if self._text[self._at] == ",":
                self._at += 1
            elif end == "]":
                self._note((*place, str(index)), self._line_here())
                self._value((*place, str(index)))
                index += 1
            else:
                self._pair(place)
        self._at += 1

    def _note(self, place: Place, line: int) -> None:
        for length in range(1, len(place) + 1):
            self.found.setdefault(place[:length], line)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._at

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line


def _plain(key: str) -> str:
    return next(iter(tomllib.loads(f"{key} = 0"))) if key[0] in "\"'" else key
