"""`holdfast migrate`: bring an instance to the version of this code."""

from typing import Annotated

import typer

from holdfast.cli.command import Call, command
from holdfast.cli.output import say, say_json
from holdfast.errors import Invalid


def add_to(root: typer.Typer) -> None:
    command(root, "migrate")(migrate)


def migrate(
    call: Call,
    restored: Annotated[
        bool,
        typer.Option(
            "--restored",
            help="The database was restored from a backup: skip ids that were given out since, end all browser sessions "
            "and login links, mark all workers as lost. Stop every worker and server before.",
        ),
    ] = False,
    ids_after: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            min=0,
            help="With --restored: the last id of a job that was given out. Without it a million ids are skipped.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Set up the instance, or bring it to this version."""
    from holdfast.cli import instance, restoration

    if ids_after is not None and not restored:
        raise Invalid("--ids-after says which ids were given out before a restore. Add --restored, or leave it out.")
    settings = call.settings()
    name = instance.choose(settings, sets_up=not restored)
    store = instance.open_as_is(settings, instance.named(settings, name).name)
    try:
        done = list(store.migrate())
        begun = restoration.begin_anew(call, store, settings.heartbeat, ids_after) if restored else None
    finally:
        store.close()
    if call.json:
        say_json({"instance": name, "done": done} | ({} if begun is None else {"restored": begun}))
        return
    if done:
        say(f"Instance `{name}`: {', '.join(done)}.")
    elif begun is None:
        say(f"Instance `{name}` is up to date.")
    if begun is not None:
        restoration.report(begun, name)
