"""README and pages: their links lead somewhere, their tree is the tree, their commands exist."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from docs.generator.text import anchor
from holdfast.cli import commands
from tests.docs.blocks import DOCS, ROOT, blocks

README = ROOT / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    broken = [target for target in links(page) if not leads_somewhere(page, target)]

    assert broken == []


def links(page: Path) -> list[str]:
    found = LINK.findall(FENCED.sub("", page.read_text()))
    return [target for target in found if not target.startswith("http")]


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, heading = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists() or not heading:
        return file.exists()
    return heading in {
        anchor(line.lstrip("# ").replace("`", "")) for line in file.read_text().splitlines() if line.startswith("#")
    }


def test_the_lines_in_the_readme_are_the_first_example() -> None:
    (first, *_) = [block.text for block in blocks(README) if block.runs]
    example = (ROOT / "examples" / "first.py").read_text()

    assert first == example.partition('"""\n\n')[2]


def test_the_tree_in_the_readme_is_the_tree() -> None:
    shown = set(tree())
    package = ROOT / "src" / "holdfast"
    there = {entry for entry in package.iterdir() if entry.suffix == ".py" or has_code(entry)}

    assert sorted(path for path in shown if not path.exists()) == []
    assert sorted(str(entry.relative_to(package)) for entry in there - shown) == []


def tree() -> Iterator[Path]:
    """The paths of the README's tree; two spaces are one level."""
    (text,) = [block.text for block in blocks(README) if "ARCHITECTURE.md" in block.text]
    levels: list[Path] = [ROOT]
    for line in text.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        levels = [*levels[: depth + 1], levels[depth] / name]
        yield levels[-1]


def has_code(folder: Path) -> bool:
    return any(file.read_text().strip() for file in folder.glob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_shown_exists_with_its_options(page: Path) -> None:
    lines = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
    called = [shlex.split(line, comments=True) for line in lines if line.startswith("holdfast ")]

    assert [words for words in called if not is_command(words[1:])] == []


@lru_cache(maxsize=1)
def root() -> Any:
    return get_command(commands())


def is_command(words: list[str]) -> bool:
    command = root()
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    options = {option for parameter in command.params for option in parameter.opts}
    return not getattr(command, "commands", {}) and all(word in options for word in words if word.startswith("--"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_is_python(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python" and page.parent.name != "reference":
            ast.parse(block.text)
