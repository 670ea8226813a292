"""`holdfast workers`: who is working."""

import typer

from holdfast import views
from holdfast.cli.command import Call, noun
from holdfast.cli.output import say_json


def add_to(root: typer.Typer) -> None:
    noun(root, "workers", "Workers: who is working.", {"list": list_})


def list_(call: Call) -> None:
    """Every live worker, the newest first."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        found = sorted(app.store.workers(), key=lambda row: -row.id)
        now = app.store.now()
    if call.json:
        say_json([views.worker(row) for row in found])
        return
    headers = ("id", "name", "queues", "types", "slots", "labels", "started", "last beat", "")
    rows = [
        (
            str(row.id),
            row.name,
            ", ".join(row.queues),
            str(len(row.types)),
            str(row.concurrency),
            ", ".join(row.labels),
            tables.relative(row.start_time, now),
            tables.relative(row.beat_time, now),
            "stopping" if row.stopping else "",
        )
        for row in found
    ]
    tables.show(
        tables.listing(headers, rows, whole=("id",), right=("id", "types", "slots"), spare=("types", "labels")),
        empty="No worker is alive.",
    )
