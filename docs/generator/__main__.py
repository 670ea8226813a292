"""Write the reference pages, or say which are stale."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generator import buildfile, cli, errors, fleetfile, http, python, reasons, settings, states, tables

FOLDER = Path(__file__).resolve().parent.parent / "reference"
CURE = "Run `make docs` and commit the pages."
PAGES: Mapping[str, Callable[[], str]] = {
    "python.md": python.page,
    "cli.md": cli.page,
    "http.md": http.page,
    "states.md": states.page,
    "reasons.md": reasons.page,
    "errors.md": errors.page,
    "settings.md": settings.page,
    "tables.md": tables.page,
    "build-file.md": buildfile.page,
    "fleet-file.md": fleetfile.page,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.generator", description="The reference pages.")
    verb = parser.add_mutually_exclusive_group(required=True)
    verb.add_argument("--check", action="store_true", help="exit 1 when a page is stale")
    verb.add_argument("--write", action="store_true", help="write docs/reference")
    options = parser.parse_args(arguments)
    if options.write:
        FOLDER.mkdir(exist_ok=True)
        for name, page in PAGES.items():
            (FOLDER / name).write_text(page())
        return 0
    found = stale()
    print("\n".join(found) or f"{len(PAGES)} reference pages, all as the code makes them.")
    return 1 if found else 0


def stale() -> list[str]:
    """Pages that are missing, differ from what the code makes, or that nothing makes."""
    old = [
        name for name, page in PAGES.items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != page()
    ]
    stray = [file.name for file in FOLDER.glob("*.md") if file.name not in PAGES]
    return [f"docs/reference/{name} is stale. {CURE}" for name in old] + [
        f"docs/reference/{name} is made by nothing. Remove it, or write it elsewhere." for name in stray
    ]


if __name__ == "__main__":
    sys.exit(main())
