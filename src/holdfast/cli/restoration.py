"""`holdfast migrate --restored`: make an instance safe to start after its database was restored from a backup."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.cli import instance, projects
from holdfast.cli.command import Call
from holdfast.cli.output import say
from holdfast.clock import sleep
from holdfast.errors import Conflict
from holdfast.stores.contract import Store
from holdfast.worker.building.folder import owner_of

HEARTBEAT = 5.0  # seconds, unless the settings name another
BEATS = 2.5  # heartbeats to watch for, before a worker counts as gone


def begin_anew(call: Call, store: Store, heartbeat: float | None, ids_after: int | None) -> dict[str, Any]:
    """Do it and return what was done. `Conflict` if a worker is alive."""
    refuse_living(store, BEATS * (heartbeat or HEARTBEAT))
    folder = builds_folder(call)
    done = store.begin_anew(ids_after, last_id_in(folder), owner_of(folder), instance.actor())
    tokens = [row.name for row in store.tokens(0.0) if row.kind == "token"]
    return {
        "ids_after": done.ids_after,
        "workers": done.workers,
        "jobs": done.jobs,
        "sessions": done.sessions,
        "tokens": tokens,
    }


def refuse_living(store: Store, seconds: float) -> None:
    """Watch the counters of workers: one that moves belongs to a worker that is alive."""
    before = beats(store)
    if not before:
        return
    with Console(stderr=True).status(f"Watching for {seconds:g} seconds whether workers are alive …"):
        sleep(seconds)
    living = [
        f"{worker} ({name})" for (worker, name), beat in beats(store).items() if before.get((worker, name)) != beat
    ]
    if living:
        raise Conflict(
            f"These workers are alive: {', '.join(living)}. Stop every worker and server of the instance, then call this again. "
            "Nothing was changed."
        )


def beats(store: Store) -> Mapping[tuple[int, str], object]:
    return {(row.id, row.name): row.beat_time for row in store.workers()}


def builds_folder(call: Call) -> Path:
    """The folder that the settings file names, else the one beside the working directory that projects have by default."""
    found = projects.settings_of(call)
    return Path.cwd() / "builds" if found is None else found[1] / found[0].folder


def last_id_in(folder: Path) -> int:
    """The greatest job id that has a folder; 0 if there is none."""
    if not folder.is_dir():
        return 0
    names = (entry.name for entry in folder.iterdir())
    return max((int(name) for name in names if name.isascii() and name.isdecimal() and len(name) < 19), default=0)


def report(done: Mapping[str, Any], name: str) -> None:
    """Say what was done, and what a person has to do."""
    say(f"Instance `{name}` begins anew after a restore:")
    say(f"- Ids of new jobs are greater than {done['ids_after']}.")
    say(f"- {done['workers']} workers of the backup are lost; the {done['jobs']} jobs that they held start again.")
    say(f"- {done['sessions']} browser sessions and login links ended.")
    if done["tokens"]:
        say(f"- These tokens are valid: {', '.join(done['tokens'])}.")
        say("  Revoke those again that you revoked after the backup: `holdfast tokens revoke NAME`.")
