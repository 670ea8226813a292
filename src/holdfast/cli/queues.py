"""`holdfast queues`: how full they are; pause and resume."""

from typing import Annotated, Any

import typer

from holdfast import views
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.output import say, say_json

Name = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {"list": list_, "pause": pause, "resume": resume}
    noun(root, "queues", "Queues: how full they are, pause and resume.", verbs)


def list_(call: Call) -> None:
    """Every queue of the instance, with its jobs by status."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        counts = app.store.counts()
        found = [views.queue(row, counts.get(row.name, {})) for row in app.store.queues()]
    if call.json:
        say_json(found)
        return
    headers = ("queue", *views.STATUSES, "limit", "order", "")
    rows = [_cells(queue) for queue in found]
    tables.show(
        tables.listing(headers, rows, right=(*views.STATUSES, "limit"), spare=("limit", "order")),
        empty="There are no queues yet.",
    )


def pause(call: Call, queue: Name) -> None:
    """Start no more jobs of a queue until it is resumed. What runs goes on."""
    _set(call, queue, paused=True)


def resume(call: Call, queue: Name) -> None:
    """Start jobs of a paused queue again."""
    _set(call, queue, paused=False)


def _set(call: Call, queue: str, *, paused: bool) -> None:
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        act = app.pause if paused else app.resume
        act(queue, actor=instance.actor())
        shape = next(
            views.queue(row, app.store.counts().get(queue, {})) for row in app.store.queues() if row.name == queue
        )
    if call.json:
        say_json(shape)
    else:
        say(f"Queue `{queue}` is {'paused: no job of it starts until it is resumed' if paused else 'open'}.")


def _cells(queue: dict[str, Any]) -> list[str]:
    limit = f"{queue['throttle_limit']:g}" if queue["throttle_limit"] >= 1 else "–"
    jobs = [str(queue["jobs"][status]) for status in views.STATUSES]
    return [queue["name"], *jobs, limit, queue["order"], "paused" if queue["paused"] else ""]
