"""The log of a build as text for standard output: what its commands wrote, without what only a terminal should get.

- A terminal gets colours. It gets no other escape code: a build of a stranger could write one that moves the cursor,
  sets the title or fills the clipboard.
- A pipe and a file get no escape code, and neither does a terminal if `NO_COLOR` is set.
- The log comes in pieces. An escape code, or a letter, that is cut by the end of a piece is held back for the next one.
"""

import codecs
import re

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, the cursor, the screen
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links, the clipboard
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)|\x9b[0-?]*[ -/]*)\Z")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
LONGEST_HELD = 4096  # characters; a longer code is none


class LogText:
    """Turns the pieces of a log into text."""

    def __init__(self, colours: bool) -> None:
        self._kept = COLOUR if colours else None
        self._letters = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def text(self, piece: bytes) -> str:
        """Return the text of the next piece."""
        whole = self._held + self._letters.decode(piece)
        cut = UNFINISHED.search(whole, max(0, len(whole) - LONGEST_HELD))
        whole, self._held = (whole, "") if cut is None else (whole[: cut.start()], cut[0])
        return "".join(self._shown(whole))

    def _shown(self, whole: str) -> list[str]:
        shown, at = [], 0
        for code in ESCAPE.finditer(whole):
            shown.append(CONTROL.sub("", whole[at : code.start()]))
            if self._kept is not None and self._kept.fullmatch(code[0]):
                shown.append(code[0])
            at = code.end()
        return [*shown, CONTROL.sub("", whole[at:])]
