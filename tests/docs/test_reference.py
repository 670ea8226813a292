"""The reference is what the code says, and names everything that is public."""

from typing import Any

import pytest
from typer.main import get_command

import holdfast
from docs.generator import __main__ as generator
from docs.generator import cli, python, states, text
from holdfast.cli import commands
from holdfast.jobs.states import MOVES


def headings(page: str) -> set[str]:
    lines = (generator.FOLDER / page).read_text().splitlines()
    return {line.lstrip("#").strip() for line in lines if line.startswith("#")}


@pytest.mark.parametrize("page", generator.PAGES)
def test_a_page_is_what_the_code_makes(page: str) -> None:
    assert (generator.FOLDER / page).read_text() == generator.PAGES[page](), generator.CURE


def test_nothing_else_stands_among_the_made_pages() -> None:
    assert {file.name for file in generator.FOLDER.iterdir()} == set(generator.PAGES)


def test_every_public_name_has_its_heading_and_no_other_name_claims_to_be_one() -> None:
    assert set(holdfast.__all__) <= headings("python.md")
    assert set(python.MET).isdisjoint(holdfast.__all__)


def test_every_public_method_of_the_app_has_its_heading_or_is_called_internal() -> None:
    public = {name for name in vars(holdfast.App) if not name.startswith("_")}

    assert {f"App.{name}" for name in public - python.INTERNAL["App"]} <= headings("python.md")


def test_every_command_has_its_heading() -> None:
    root: Any = get_command(commands())

    assert {path for path, _ in cli.walk(root, "holdfast")} <= headings("cli.md")


def test_the_diagram_has_an_arrow_for_every_move() -> None:
    drawn = states.diagram()

    for (state, event), target in MOVES.items():
        arrow = next(line for line in drawn.splitlines() if line.strip().startswith(f"{state} --> {target}:"))
        assert event in arrow


def test_a_name_without_a_meaning_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"without a meaning \['b'\], without a name \['c'\]"):
        text.exactly({"a": "", "c": ""}, ["a", "b"], "it")
