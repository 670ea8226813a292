"""`holdfast routines`: endless loops over the cluster; look at them, pause, resume and remove."""

from typing import Annotated, Any

import typer

from holdfast import views
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.output import say, say_json
from holdfast.errors import NotFound, backticked

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {"list": list_, "show": show, "pause": pause, "resume": resume, "remove": remove}
    noun(root, "routines", "Routines: endless loops over the cluster.", verbs)


def list_(
    call: Call,
    removed: Annotated[bool, typer.Option("--removed", help="Also those that an operator removed.")] = False,
) -> None:
    """Every routine, the newest first."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        rows = sorted(app.routines(removed=removed), key=lambda row: (row.create_time, row.name), reverse=True)
        now = app.store.now()
    found = [views.routine(row) for row in rows]
    if call.json:
        say_json(found)
        return
    headers = ("routine", "every", "scale", "running", "failing", "turns", "last turn", "")
    cells = []
    for row, shape in zip(rows, found, strict=True):
        ends = [part.last_end_time for part in row.parts if part.last_end_time is not None]
        counts = [str(shape[name]) for name in ("scale", "running", "failing", "turns")]
        last = tables.relative(max(ends), now) if ends else "–"
        cells.append((row.name, tables.span(row.routine.every), *counts, last, _standing(shape)))
    right = ("scale", "running", "failing", "turns")
    tables.show(tables.listing(headers, cells, right=right, spare=("turns",)), empty="There are no routines.")


def show(call: Call, name: Name) -> None:
    """One routine with its parts: who has each, its next turn, its failures and its checkpoint."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        row = next((row for row in app.routines(removed=True) if row.name == name), None)
        now = app.store.now()
    if row is None:
        raise NotFound(f"There is no routine {backticked(name)}. `holdfast routines list` shows those there are.")
    shape = views.routine(row)
    if call.json:
        say_json(shape)
        return
    pairs = [("routine", name), ("every", tables.span(row.routine.every)), ("scale", str(row.routine.scale))]
    standing = _standing(shape)
    tables.show(tables.facts([*pairs, ("state", standing)] if standing else pairs))
    headers = ("part", "state", "job", "worker", "next turn", "turns", "failures", "last error", "checkpoint")
    cells = [
        (
            str(part["index"]),
            part["state"],
            str(part["job"] or "–"),
            str(part["worker"] or "–"),
            "–" if seen.next_time is None or part["state"] == "running" else tables.relative(seen.next_time, now),
            str(part["turns"]),
            str(part["failures"]),
            "" if seen.error is None else f"{seen.error.type}: {seen.error.message}",
            "" if seen.checkpoint is None else views.text(seen.checkpoint),
        )
        for part, seen in zip(shape["parts"], row.parts, strict=True)
    ]
    right = ("part", "job", "turns", "failures")
    tables.show(tables.listing(headers, cells, right=right, spare=("worker", "turns")), empty="It has no parts yet.")


def pause(call: Call, name: Name) -> None:
    """Begin no more turns of a routine until it is resumed. Those that run end."""
    _switch(call, name, "pause_routine", "is paused: no turn of it begins until it is resumed")


def resume(call: Call, name: Name) -> None:
    """Let a paused routine go on from its checkpoints, or a removed one begin anew."""
    _switch(call, name, "resume_routine", "goes on")


def remove(call: Call, name: Name) -> None:
    """End a routine and forget its checkpoints. It stays removed, though code declares it, until it is resumed."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        app.remove_routine(name, actor=instance.actor())
    if call.json:
        say_json({"name": name, "removed": True})
    else:
        say(f"Routine `{name}` is removed.")


def _switch(call: Call, name: str, verb: str, said: str) -> None:
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        row = getattr(app, verb)(name, actor=instance.actor())
    if call.json:
        say_json(views.routine(row))
    else:
        say(f"Routine `{name}` {said}.")


def _standing(shape: dict[str, Any]) -> str:
    return "removed" if shape["removed"] else "paused" if shape["paused"] else ""
