"""`holdfast queues`: how full they are; pause, resume and limit; the breakers of their job types."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from holdfast import views
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid, quoted
from holdfast.stores.contract import Store

Name = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {"list": list_, "pause": pause, "resume": resume, "limit": limit}
    verbs |= {"breakers": breakers, "reset": reset}
    noun(root, "queues", "Queues: how full they are, pause, resume and limit; breakers of their job types.", verbs)


def list_(call: Call) -> None:
    """Every queue of the instance, with its jobs by status."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        found = _queues(app.store)
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
    _act(
        call,
        queue,
        "is paused: no job of it starts until it is resumed",
        lambda app, actor: app.pause(queue, actor=actor),
    )


def resume(call: Call, queue: Name) -> None:
    """Start jobs of a paused queue again."""
    _act(call, queue, "is open", lambda app, actor: app.resume(queue, actor=actor))


def limit(
    call: Call,
    queue: Name,
    throttle_limit: Annotated[str, typer.Argument(metavar="LIMIT", help="a number (below 1: no limit), or `declared`")],
) -> None:
    """Set a queue's throttle_limit; it wins over the declared one until `declared` takes it back."""
    try:
        wanted = None if throttle_limit == "declared" else float(throttle_limit)
    except ValueError:
        raise Invalid(
            f"LIMIT {quoted(throttle_limit)}: give a number, or `declared` for the limit that the code declares."
        ) from None
    said = (
        "has the limit that the code declares"
        if wanted is None
        else f"has a limit of {wanted:g}"
        if wanted >= 1
        else "has no limit"
    )
    _act(call, queue, said, lambda app, actor: app.limit(queue, wanted, actor=actor))


def breakers(call: Call) -> None:
    """The breaker and the retry budget of each job type with adaptive retry."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        found, now = app.breakers(), app.store.now()
    if call.json:
        say_json([views.breaker(each) for each in found])
        return
    headers = ("job type", "state", "failures", "next probe", "successes", "retries")
    rows = []
    for each in found:
        probe = "–" if each.probe_time is None else tables.relative(each.probe_time, now)
        probe = f"job {each.probe}" if each.state == "probing" else probe
        counts = (f"{each.successes:.1f}", f"{each.retries:.1f}")
        rows.append([each.job_type, each.state.value, str(each.failures), probe, *counts])
    empty = "No job type is declared with retry=Adaptive(…), so there are no breakers."
    tables.show(tables.listing(headers, rows, right=("failures", "successes", "retries")), empty=empty)


def reset(call: Call, job_type: Annotated[str, typer.Argument(metavar="JOB_TYPE", show_default=False)]) -> None:
    """Close the breaker of a job type and forget its failures and its budget."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        shape = views.breaker(app.reset_breaker(job_type, actor=instance.actor()))
    if call.json:
        say_json(shape)
    else:
        say(f"The breaker of job type `{job_type}` is closed; its jobs start again.")


def _act(call: Call, queue: str, said: str, action: Callable[[Any, str], None]) -> None:
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        action(app, instance.actor())
        shape = next(shape for shape in _queues(app.store) if shape["name"] == queue)
    if call.json:
        say_json(shape)
    else:
        say(f"Queue `{queue}` {said}.")


def _queues(store: Store) -> list[dict[str, Any]]:
    counts, loads = store.counts(), {load.name: load for load in store.glance().queues}
    return [views.queue(row, counts.get(row.name, {}), loads.get(row.name)) for row in store.queues()]


def _cells(queue: dict[str, Any]) -> list[str]:
    limit = f"{queue['throttle_limit']:g}" if queue["throttle_limit"] >= 1 else "–"
    jobs = [str(queue["jobs"][status]) for status in views.STATUSES]
    return [queue["name"], *jobs, limit, queue["order"], "paused" if queue["paused"] else ""]
