"""The ledger of guarantees: which tests hold which of them.

- The words are in `docs/guarantees.toml`; a test names those it holds with `@pytest.mark.claim("J2", …)`.
- `python docs/claims.py` prints every guarantee with its tests; `--write` makes `docs/guarantees.md` from both;
  `--check` fails when a guarantee in force has no test, a test names an unknown one, or the page is stale.
"""

import argparse
import contextlib
import io
import sys
from pathlib import Path
from typing import Literal

import msgspec
import pytest

ROOT = Path(__file__).resolve().parent.parent
CURE = "Run `make docs` and commit the page."

Holders = dict[str, list[str]]


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One guarantee. `scope` is `now` when it is in force, `later` while it is only intended.

    `not_yet` names the part of a guarantee in force that is still to come.
    """

    number: str
    title: str
    scope: Literal["now", "later"]
    text: str
    not_yet: str = ""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    claim: tuple[Claim, ...]


class Ledger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    section: tuple[Section, ...]

    def claims(self) -> list[Claim]:
        return [claim for section in self.section for claim in section.claim]


class CollectionFailed(Exception):
    """The tests could not be collected; the message is what pytest said."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Which tests hold which guarantee.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    verb = parser.add_mutually_exclusive_group()
    verb.add_argument("--check", action="store_true", help="exit 1 when the ledger does not hold")
    verb.add_argument("--write", action="store_true", help="write docs/guarantees.md")
    options = parser.parse_args(arguments)

    ledger = read(options.root / "docs" / "guarantees.toml")
    page = options.root / "docs" / "guarantees.md"
    try:
        holders = collect(options.root)
    except CollectionFailed as error:
        print(error, file=sys.stderr)
        return 1
    if options.write:
        page.write_text(render(ledger, holders))
        return 0
    if options.check:
        found = problems(ledger, holders) + stale(page, render(ledger, holders))
        print("\n".join(found) or f"{sum(c.scope == 'now' for c in ledger.claims())} guarantees in force, all held.")
        return 1 if found else 0
    print(listing(ledger, holders))
    return 0


def read(path: Path) -> Ledger:
    """The ledger as it is written. A number that appears twice is an error."""
    ledger = msgspec.toml.decode(path.read_bytes(), type=Ledger)
    numbers = [claim.number for claim in ledger.claims()]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise SystemExit(f"{path}: {', '.join(twice)} is written more than once.")
    return ledger


def collect(root: Path) -> Holders:
    """Every claim a test names, with the tests that name it, as pytest itself collects and marks them."""
    marks = Marks()
    said = io.StringIO()
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(
            [*options, "--rootdir", str(root), "-c", str(root / "pyproject.toml"), str(root / "tests")], [marks]
        )
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise CollectionFailed(said.getvalue())
    return {number: sorted(tests) for number, tests in marks.holders.items()}


class Marks:
    """A pytest plugin that notes the claims of what was collected; the parameters of a test make no difference."""

    def __init__(self) -> None:
        self.holders: dict[str, set[str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            test = item.nodeid.partition("[")[0]
            for mark in item.iter_markers("claim"):
                for number in mark.args:
                    self.holders.setdefault(str(number), set()).add(test)


def problems(ledger: Ledger, holders: Holders) -> list[str]:
    """What is wrong between the ledger and the tests, a sentence each."""
    known = {claim.number for claim in ledger.claims()}
    missing = [f"{c.number} ({c.title}): no test holds it." for c in ledger.claims() if unheld(c, holders)]
    unknown = [
        f"{test}: claims {number}, which docs/guarantees.toml does not have."
        for number in sorted(holders.keys() - known)
        for test in holders[number]
    ]
    return missing + unknown


def unheld(claim: Claim, holders: Holders) -> bool:
    return claim.scope == "now" and not holders.get(claim.number)


def stale(page: Path, text: str) -> list[str]:
    if page.exists() and page.read_text() == text:
        return []
    return [f"{page.name} is stale. {CURE}"]


def listing(ledger: Ledger, holders: Holders) -> str:
    """Claim → tests for the terminal, and at the end what is missing."""
    lines = []
    for claim in ledger.claims():
        tests = holders.get(claim.number, [])
        lines.append(f"{claim.number:<4}{claim.title}" + ("" if claim.scope == "now" else "  (later)"))
        lines += [f"      {test}" for test in tests]
    found = problems(ledger, holders)
    return "\n".join([*lines, "", *(found or ["Every guarantee in force has a test."])])


def render(ledger: Ledger, holders: Holders) -> str:
    """The page `docs/guarantees.md`."""
    parts = [HEAD]
    for section in ledger.section:
        parts.append(f"## {section.title}\n")
        parts += [entry(claim, holders.get(claim.number, [])) for claim in section.claim]
    return "\n".join(parts)


def entry(claim: Claim, tests: list[str]) -> str:
    mark = "" if claim.scope == "now" else "*Intended; not in force yet.* "
    text = f"### {claim.number} {claim.title}\n\n{mark}{claim.text.strip()}\n"
    if claim.not_yet:
        text += f"\n*Not in force yet:* {claim.not_yet}\n"
    by_file: dict[str, list[str]] = {}
    for test in tests:
        file, _, name = test.partition("::")
        by_file.setdefault(file, []).append(f"  - `{name}`")
    held = ["\n".join([f"- [{file}](../{file})", *names]) for file, names in by_file.items()]
    return text + ("\nHeld by\n\n" + "\n".join(held) + "\n" if held else "")


HEAD = """\
# What Holdfast guarantees

Each guarantee has a number that code, tests and decisions refer to, and the tests that hold it are listed with it.
This page is made from `guarantees.toml` and the tests by `make docs`; why some of it is so stands in
[decisions](decisions/README.md).
"""


if __name__ == "__main__":
    sys.exit(main())
