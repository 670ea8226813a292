"""The one table that a run prints, and the file that keeps it."""

import json
import platform
import sqlite3
import subprocess
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import apsw
import msgspec
import psutil
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from tests.postgres_server import BINARIES

RESULTS = Path(__file__).parent / "results"


class Row(Struct, frozen=True):
    """One line. `ratio` is ours to the reference; the target is about it, or about our figure where there is no reference."""

    measure: str
    unit: str
    ours: float | None
    reference: float | None = None
    reference_name: str = ""
    at_least: float | None = None
    at_most: float | None = None
    worker_cpu: float = 0.0
    server_cpu: float = 0.0
    memory: float = 0.0
    note: str = ""
    failed: bool = False

    @property
    def ratio(self) -> float | None:
        return self.ours / self.reference if self.ours is not None and self.reference else None

    @property
    def target(self) -> str:
        mark = "×" if self.reference else ""
        if self.at_least is not None:
            return f"≥ {self.at_least:g} {mark}".strip()
        return f"≤ {self.at_most:g} {mark}".strip() if self.at_most is not None else ""

    @property
    def met(self) -> bool | None:
        judged = self.ratio if self.reference else self.ours
        if self.failed:
            return False
        if judged is None or (self.at_least is None and self.at_most is None):
            return None
        return judged >= self.at_least if self.at_least is not None else judged <= (self.at_most or 0.0)


def show(rows: list[Row], title: str) -> None:
    table = Table(title=title, title_justify="left")
    for column in (
        "measure",
        "reference",
        "ours",
        "unit",
        "ratio",
        "target",
        "ok?",
        "µs/job\nworker",
        "µs/job\nserver",
        "MB",
        "note",
    ):
        table.add_column(column, justify="left" if column in ("measure", "reference", "unit", "note") else "right")
    for row in rows:
        met = {True: "yes", False: "[bold red]no[/]", None: ""}[row.met]
        reference = f"{row.reference_name} {number(row.reference)}".strip()
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        costs = [f"{value:.1f}" if value else "" for value in (row.worker_cpu, row.server_cpu, row.memory)]
        table.add_row(row.measure, reference, number(row.ours), row.unit, ratio, row.target, met, *costs, row.note)
    Console(width=None if Console().is_terminal else 180).print(table)


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def save(rows: list[Row], kind: str, settings: dict[str, Any], file: Path | None = None) -> Path:
    """Under bench/results, named by date and machine, unless a file is given."""
    now = datetime.now()
    machine = described()
    name = (
        f"{now:%Y-%m-%d-%H%M}-{kind}-{machine['cores']}cores-{machine['memory_gb']}gb-{machine['system']}.json".lower()
    )
    target = file or RESULTS / name
    target.parent.mkdir(exist_ok=True)
    lines = [{**msgspec.to_builtins(row), "ratio": row.ratio, "target": row.target, "met": row.met} for row in rows]
    content = {
        "time": now.isoformat(timespec="seconds"),
        "machine": machine,
        "versions": versions(),
        "settings": settings,
        "rows": lines,
    }
    target.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return target


def described() -> dict[str, Any]:
    """The machine, without its name or paths."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        models = [
            line.partition(":")[2].strip()
            for line in information.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = models[0] if models else model
    return {
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "processor": model,
        "system": f"{platform.system()}-{platform.machine()}",
    }


def versions() -> dict[str, str]:
    done = subprocess.run([BINARIES / "postgres", "--version"], capture_output=True, text=True, check=False)
    found = {"python": platform.python_version(), "postgres": done.stdout.strip(), "sqlite": apsw.sqlite_lib_version()}
    found["sqlite3 module"] = sqlite3.sqlite_version
    for package in ("holdfast", "psycopg", "apsw", "msgspec"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "from source"
    return found
