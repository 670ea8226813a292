"""What `holdfast move` does: opens both sides, shows how far it is, and tells what came of it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct, structs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.cli import instance
from holdfast.cli.command import Call
from holdfast.clock import Clock
from holdfast.database_url import resolve
from holdfast.errors import HoldfastError, Invalid
from holdfast.stores.moving import Move, jobs_among, open_side


class Told(Struct, frozen=True):
    """An answer for programs and for people."""

    shape: dict[str, Any]
    text: str


@contextmanager
def opened(call: Call, source: str | None, target: str, grace: float) -> Iterator[Move]:
    """The move of the instance that is meant."""
    settings = structs.replace(call.settings(), **({} if source is None else {"url": source}))
    url = instance.database(settings)
    for given in (url, target):
        if resolve(given) == ("sqlite", ":memory:"):
            raise Invalid("An instance in memory ends with its process and cannot be moved. Name a file.")
    name = instance.choose(settings)
    made = _missing(target)
    here, there = open_side(url, name, Clock()), None
    try:
        there = open_side(target, name, Clock())
        yield Move(here, there, grace)
    finally:
        here.close()
        if there is not None:
            unused = made is not None and not there.store.instances()
            there.close()
            if unused and made is not None:
                os.unlink(made)


def _missing(url: str) -> str | None:
    """The file that opening the store will make."""
    kind, path = resolve(url)
    return path if kind == "sqlite" and not os.path.exists(path) else None


def plan(move: Move) -> Told:
    """What would be moved; nothing is changed."""
    move.check()
    if move.is_done():
        text = f"Instance `{move.source.instance}` was moved from {move.source.told} to {move.target.told} before. Nothing would be done."
        return Told({**_sides(move), "dry_run": True, "already": True}, text)
    tables = move.source.tables()
    rows = {table.name: move.source.count(table) for table in tables}
    jobs, total = jobs_among(tables, rows), sum(rows.values())
    last = sum(rows[table.name] for table in tables if table.walk is None)
    shape = {
        **_sides(move),
        "dry_run": True,
        "already": False,
        "jobs": jobs,
        "rows": total,
        "rows_while_sealed": last,
        "tables": rows,
    }
    text = (
        f"Instance `{move.source.instance}` would be moved from {move.source.told} to {move.target.told}: {_counted(jobs, 'job')}, "
        f"{_counted(total, 'row')} in all. While nothing can be written {_counted(last, 'row')} would be copied, and what changed shortly "
        "before. Nothing was changed."
    )
    return Told(shape, text)


def abandon(move: Move) -> Told:
    """The source works again."""
    move.abandon()
    text = f"The move of instance `{move.source.instance}` to {move.target.told} is abandoned. It works in {move.source.told} as before."
    return Told({**_sides(move), "abandoned": True}, text)


def carry_out(move: Move) -> Told:
    """All of it, or what is left of it."""
    try:
        with shown() as tell:
            move.tell = tell
            done = move.run()
    except KeyboardInterrupt:
        raise HoldfastError(
            "Interrupted. What was copied stays, and so does a seal of the source. Call `holdfast move` again: it goes on, or says that it is "
            "done. Until the target is open it can be called with --abandon."
        ) from None
    shape = {**_sides(move), "jobs": done.jobs, "rows": sum(done.tables.values()), "copied": done.copied}
    shape |= {
        "refused_for": done.refused_for,
        "idle_for": done.idle_for,
        "tables": done.tables,
        "already": done.already,
    }
    outage = (
        f"Nothing could be written for {done.refused_for:.1f} s, and workers started nothing for {done.idle_for:.1f} s."
    )
    if done.already:
        text = f"Instance `{done.instance}` was moved from {done.source} to {done.target} before; nothing was left to do. {outage}"
        return Told(shape, text)
    text = (
        f"Instance `{done.instance}` is moved from {done.source} to {done.target}: {_counted(done.jobs, 'job')}, "
        f"{_counted(sum(done.tables.values()), 'row')} in {len(done.tables)} tables, compared. {outage} Point programs and workers at "
        "the new URL and restart them; what still uses the old one is told where it went."
    )
    return Told(shape, text)


@contextmanager
def shown() -> Iterator[Callable[[str, int, int], None]]:
    """How far it is, on a terminal's standard error and nowhere else."""
    out = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, disable=not out.is_terminal, transient=True) as progress:
        task = progress.add_task("Begins", total=None)

        def tell(doing: str, rows: int, total: int) -> None:
            progress.update(task, description=doing, completed=rows, total=max(rows, total))

        yield tell


def _sides(move: Move) -> dict[str, Any]:
    return {"instance": move.source.instance, "from": move.source.told, "to": move.target.told}


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
