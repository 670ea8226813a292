"""What `holdfast doctor` looks at, in order; a check that makes the later ones pointless ends the list.

Nothing here changes anything: no file or instance is made, no version raised.
"""

import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from holdfast import file_modes
from holdfast.builds.project import BuildSettings
from holdfast.cli import instance, project_checks
from holdfast.cli.version import installed
from holdfast.config import Settings
from holdfast.database_url import shown
from holdfast.errors import Unavailable
from holdfast.stores.contract import DamagedRow, Filter, Store, WorkerRow

OLDEST_PYTHON = (3, 11)
NAMED = 5  # job types named in a line
NEWEST = 50_000  # rows of each table that are read to see whether one is damaged
ROWS_NAMED = 10  # damaged rows named in a line
DECLARED = ("__type", "__queue", "__schedule", "__routine", "__workflow")  # tables of what code declares
WORKING = {
    "run": "no job starts",
    "sweep": "nobody recovers the jobs of lost workers",
    "schedule": "no schedule fires",
}


class Check(Struct, frozen=True):
    """One thing looked at."""

    name: str
    ok: bool
    detail: str
    warning: bool = False  # all works, and something should be changed

    @property
    def mark(self) -> str:
        if not self.ok:
            return "✗"
        return "!" if self.warning else "✓"

    @property
    def worded(self) -> str:
        """The detail for programs, which get no mark."""
        return f"warning: {self.detail}" if self.warning else self.detail


def run(settings: Settings, builds: tuple[BuildSettings, Path] | None = None) -> Iterator[Check]:
    """The checks. `NotFound` and `Invalid` if there is no instance to look at, or several."""
    yield Check("Holdfast", True, installed())
    yield Check("Python", sys.version_info >= OLDEST_PYTHON, platform.python_version())
    if builds is not None:
        yield from (Check(*answer) for answer in project_checks.checks(*builds))
        yield from (Check(name, True, text, warning=True) for name, text in project_checks.warnings(*builds))
    url = shown(instance.database(settings))
    try:
        name = instance.choose(settings)
        store = instance.open_as_is(settings, name)
    except Unavailable as error:
        yield Check("database", False, str(error))
        return
    try:
        yield Check("database", True, url)
        yield Check("instance", True, name)
        yield from _modes([*store.files(), *([] if builds is None else [str(builds[1] / builds[0].folder)])])
        yield from _of_store(store, instance.named(settings, name).lost_after)
    except Unavailable as error:
        yield Check("database answers", False, str(error))
    finally:
        store.close()


def _modes(paths: Sequence[str]) -> Iterator[Check]:
    """Whether other users of this machine may read what Holdfast keeps."""
    found = {path: file_modes.too_wide(path) for path in paths if os.path.exists(path)}
    for wanted in sorted({mode for mode in found.values() if mode is not None}):
        wide = [path for path, mode in found.items() if mode == wanted]
        detail = f"other users of this machine may read {', '.join(wide)}. Run: chmod {wanted:o} {shlex.join(wide)}"
        yield Check("file modes", True, detail, warning=True)


def _of_store(store: Store, lost_after: float) -> Iterator[Check]:
    found = [Check(*answer) for answer in store.check()]
    yield from found
    if not all(check.ok for check in found):
        return
    now = store.now()
    workers = store.workers()
    silent = [row for row in workers if (now - row.beat_time).total_seconds() > lost_after]
    live = [row for row in workers if row not in silent]
    yield _heard(live, silent, now)
    yield _on_duty(live)
    yield _covered(store, live)
    paused = [queue.name for queue in store.queues() if queue.paused]
    yield Check("queues", True, f"paused: {', '.join(paused)}" if paused else "none is paused")
    yield _readable(store.damaged_rows(NEWEST))


def _readable(damaged: Sequence[DamagedRow]) -> Check:
    """Whether each row can be read. Pages and commands show what cannot, so only people can mend it."""
    if not damaged:
        return Check("rows", True, f"none is damaged, of the newest {NEWEST:,} of each table")
    named = [f"{row.table} {row.key} ({', '.join(row.columns)})" for row in damaged[:ROWS_NAMED]]
    more = [f"and {len(damaged) - ROWS_NAMED:,} more"] if len(damaged) > ROWS_NAMED else []
    cures = ["Write the column as it was, for instance from a backup"]
    if any(row.living for row in damaged):
        cures.append("end a job that has not ended: `holdfast jobs abort ID`")
    if any(row.table.endswith(DECLARED) for row in damaged):
        cures.append(
            "start a worker whose code declares the type, queue, schedule, routine or workflow: it stores it again"
        )
    cannot = f"{len(damaged):,} cannot be read" if len(damaged) > 1 else "1 cannot be read"
    return Check("rows", False, f"{cannot}: {', '.join([*named, *more])}. {'; or '.join(cures)}.")


def _heard(live: Sequence[WorkerRow], silent: Sequence[WorkerRow], now: datetime) -> Check:
    if not silent:
        return Check("workers", True, f"{len(live)} alive")
    told = ", ".join(f"{row.id} ({row.name}) for {(now - row.beat_time).total_seconds():.0f} s" for row in silent)
    return Check("workers", False, f"{len(live)} alive; not heard of: {told}. Any live worker takes over their jobs.")


def _on_duty(live: Sequence[WorkerRow]) -> Check:
    """Whether somebody runs, sweeps and fires schedules (F20)."""
    if not live:
        return Check("duties", True, "no worker is alive")
    counts = {duty: sum(duty in row.duties for row in live) for duty in WORKING}
    lacking = [f"`{duty}` ({meant})" for duty, meant in WORKING.items() if not counts[duty]]
    if not lacking:
        return Check("duties", True, ", ".join(f"{duty} {count}" for duty, count in counts.items()))
    told = ", ".join(lacking)
    return Check(
        "duties", False, f"no live worker has the duty {told}. `holdfast workers duty list` shows who switched it off."
    )


def _covered(store: Store, live: Sequence[WorkerRow]) -> Check:
    """Whether somebody handles what waits (Q4)."""
    handled = {job_type for row in live if "run" in row.duties for job_type in row.types}
    unhandled = [name for name in store.types() if name not in handled]
    waiting = [name for name in unhandled if store.find(Filter(job_type=name, status="pending", limit=1))]
    if not waiting:
        return Check("waiting jobs", True, "a live worker handles each type" if live else "none")
    told = ", ".join(waiting[:NAMED]) + (", …" if len(waiting) > NAMED else "")
    return Check(
        "waiting jobs", False, f"no live worker handles {told}. Start one that does: `holdfast worker module:app`."
    )
