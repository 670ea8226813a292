"""`python -m bench.compare OLD NEW`: the same groups on two commits, in turns. Prints the median of the ratios new : old.

- Each commit gets a worktree and an environment of its own in a temporary folder.
- A pair is one quick run of each commit. Every second pair begins with the new one.
- A ratio above 1 is better: rates as new : old, times, sizes and costs as old : new.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

GROUPS = ("exec", "enqueue", "latency", "throttled", "workflows", "items")
Ratios = dict[str, list[float]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare")
    parser.add_argument("old", help="a commit")
    parser.add_argument("new", help="a commit")
    parser.add_argument("--pairs", type=int, default=10, help="runs of each commit (10)")
    parser.add_argument("--only", nargs="+", default=GROUPS, metavar="NAME", help="groups whose name begins so")
    parser.add_argument("--least", type=float, default=0.95, help="exit with 1 if a median is below this (0.95)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, trees(Path(name), arguments.old, arguments.new) as folders:
        ratios = compared(folders, arguments.pairs, arguments.only)
    show(ratios, f"{arguments.new} : {arguments.old}, {arguments.pairs} pairs", arguments.least)
    return 1 if any(median(found) < arguments.least for found in ratios.values()) else 0


@contextmanager
def trees(folder: Path, *commits: str) -> Iterator[list[Path]]:
    """Check out each commit with its environment; remove both at the end."""
    made = list[Path]()
    try:
        for number, commit in enumerate(commits):
            tree = folder / str(number)
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], check=True)
            made.append(tree)
            subprocess.run(["make", "--silent", ".venv/.ready"], cwd=tree, check=True)
        yield made
    finally:
        for tree in made:
            subprocess.run(["git", "worktree", "remove", "--force", tree], check=False)


def compared(folders: list[Path], pairs: int, groups: list[str]) -> Ratios:
    """Return the ratios of all pairs by measure. A measure counts only if both commits have it."""
    ratios: Ratios = {}
    for pair in range(pairs):
        order = folders if pair % 2 == 0 else folders[::-1]
        figures = {folder: measured(folder, groups) for folder in order}
        old, new = (figures[folder] for folder in folders)
        for measure in old.keys() & new.keys():
            (before, unit), (after, _) = old[measure], new[measure]
            ratios.setdefault(measure, []).append(
                after / before if unit.endswith("/s") or unit == "per s" else before / after
            )
        print(f"\r{pair + 1} of {pairs} pairs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return ratios


def measured(folder: Path, groups: list[str]) -> dict[str, tuple[float, str]]:
    """Run the groups once and return each measure's figure and unit."""
    file = folder / "compare.json"
    file.unlink(missing_ok=True)
    command = [folder / ".venv/bin/python", "-m", "bench", "--quick", "--only", *groups, "--json", file]
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False)  # a failed measure has no figure
    rows = json.loads(file.read_text())["rows"]
    return {row["measure"]: (row["ours"], row["unit"]) for row in rows if row["ours"] and not row["failed"]}


def show(ratios: Ratios, title: str, least: float) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("measure", "median", "lowest", "highest", "ok?"):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for measure, found in sorted(ratios.items()):
        middle = median(found)
        table.add_row(
            measure, *(f"{value:.2f}" for value in (middle, min(found), max(found))), "yes" if middle >= least else "no"
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    sys.exit(main())
