"""`holdfast workers`: who is working, and the duties they have."""

from typing import Annotated

import typer

from holdfast import views
from holdfast.cli.command import Call, noun
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid, quoted
from holdfast.jobs.placement import DUTIES


def add_to(root: typer.Typer) -> None:
    noun(root, "workers", "Workers: who is working, and their duties.", {"list": list_, "duty": duty})


def list_(call: Call) -> None:
    """Every live worker, the newest first."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        found, in_hand = sorted(app.store.workers(), key=lambda row: -row.id), app.store.glance().in_hand
        now = app.store.now()
    if call.json:
        say_json([views.worker(row, in_hand.get(row.id, 0)) for row in found])
        return
    headers = ("id", "name", "queues", "types", "slots", "jobs", "labels", "duties", "started", "last beat", "")
    rows = [
        (
            str(row.id),
            row.name,
            ", ".join(row.queues),
            str(len(row.types)),
            str(row.concurrency),
            str(in_hand.get(row.id, 0)),
            ", ".join(row.labels),
            "all" if row.duties == DUTIES else ", ".join(row.duties) or "none",
            tables.relative(row.start_time, now),
            tables.relative(row.beat_time, now),
            "stopping" if row.stopping else "",
        )
        for row in found
    ]
    tables.show(
        tables.listing(
            headers, rows, whole=("id",), right=("id", "types", "slots", "jobs"), spare=("types", "labels", "duties")
        ),
        empty="No worker is alive.",
    )


def duty(
    call: Call,
    action: Annotated[
        str, typer.Argument(metavar="ACTION", help="on, off, list or remove.", show_default=False)
    ] = "list",
    what: Annotated[
        str, typer.Argument(metavar="DUTY", help="run, sweep, schedule or serve; of remove, a rule's id.")
    ] = "",
    label: Annotated[str | None, typer.Option(help="Only workers with this label.")] = None,
    host: Annotated[str | None, typer.Option(help="Only workers on this host; * and ? stand for anything.")] = None,
    version: Annotated[str | None, typer.Option(help="Only workers of this version of Holdfast; * and ? too.")] = None,
) -> None:
    """Switch a duty of workers on or off by rule, list the rules, remove one. Workers obey within a heartbeat."""
    if action == "list":
        _rules(call)
    elif action == "remove":
        _remove_rule(call, what)
    elif action in ("on", "off"):
        _switch(call, action == "on", what, {"label": label, "host": host, "version": version})
    else:
        raise Invalid(f"workers duty {quoted(action)}: say on, off, list or remove.")


def _rules(call: Call) -> None:
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        rules = list(reversed(app.duty_rules()))
        now = app.store.now()
    if call.json:
        say_json([views.duty_rule(rule) for rule in rules])
        return
    cells = [
        (
            "–" if rule.create_time is None else str(rule.id),  # of a move: nobody can remove it
            *(rule.duty, "on" if rule.on else "off", rule.whom, rule.actor),
            "" if rule.create_time is None else tables.relative(rule.create_time, now),
        )
        for rule in rules
    ]
    empty = "There are no rules: every worker has the duties of its own settings."
    tables.show(tables.listing(("id", "duty", "", "whom", "by", "since"), cells, right=("id",)), empty=empty)


def _remove_rule(call: Call, what: str) -> None:
    from holdfast.cli import instance

    if not what.isdecimal():
        raise Invalid(f"workers duty remove {what}: give the id of a rule, which `holdfast workers duty list` shows.")
    with instance.existing(call.settings()) as app:
        app.drop_duty_rule(int(what), actor=instance.actor())
    if call.json:
        say_json({"id": int(what), "removed": True})
    else:
        say(f"Rule {what} is removed.")


def _switch(call: Call, on: bool, what: str, whom: dict[str, str | None]) -> None:
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        rule = app.switch_duty(what, on, **whom, actor=instance.actor())
    if call.json:
        say_json(views.duty_rule(rule))
    else:
        say(f"Rule {rule.id}: `{rule.duty}` is {'on' if rule.on else 'off'} for {rule.whom}.")
