"""The code blocks of a Markdown page, and a way to run them as a reader would: in order, in one Python, in one folder.

- ```` ```python ```` is run; `python file=NAME` is written to that file instead; `python no-run` is only looked at.
- ```` ```text ```` behind a block that is run is what that block must print.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DRIVER = """
import contextlib, io, json, sys
sys.path.insert(0, "")
namespace, said = {"__name__": "__main__"}, []
for where, code in json.load(sys.stdin):
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(compile(code, where, "exec"), namespace)
    said.append(told.getvalue())
json.dump(said, sys.stdout)
"""


class Block(NamedTuple):
    language: str
    options: str
    text: str
    line: int

    @property
    def file(self) -> str:
        found = re.search(r"file=(\S+)", self.options)
        return found[1] if found else ""

    @property
    def runs(self) -> bool:
        return self.language == "python" and not self.file and "no-run" not in self.options


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(match[1], match[2].strip(), match[3], text.count("\n", 0, match.start()) + 2)
        for match in FENCE.finditer(text)
    ]


def run(page: Path, folder: Path, replace: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Run the page's blocks with other words for some of theirs; each prints what the page says."""
    found = [block._replace(text=_replaced(block.text, replace)) for block in blocks(page)]
    for block in found:
        if block.file:
            (folder / block.file).write_text(block.text)
    code = [(f"{page.name} from line {block.line}", block.text) for block in found if block.runs]
    said = python(["-c", DRIVER], folder, settings, json.dumps(code))
    assert json.loads(said) == expected(found)


def expected(found: list[Block]) -> list[str]:
    """What each block that is run must print: the text block right behind it, or nothing."""
    following = [*found[1:], Block("", "", "", 0)]
    pairs = zip(found, following[: len(found)], strict=True)
    return [after.text if after.language == "text" else "" for block, after in pairs if block.runs]


def python(arguments: list[str], folder: Path, settings: Mapping[str, str] | None = None, told: str = "") -> str:
    """What a Python in that folder prints; it must end well."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))}
    surroundings |= {"PYTHONPATH": str(ROOT / "src"), **(settings or {})}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=surroundings,
        input=told,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _replaced(text: str, replace: Mapping[str, str]) -> str:
    for old, new in replace.items():
        text = text.replace(old, new)
    return text
