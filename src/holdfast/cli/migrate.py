"""`holdfast migrate`: bring an instance to the version of this code."""

import typer

from holdfast.cli.command import Call, command
from holdfast.cli.output import say, say_json


def add_to(root: typer.Typer) -> None:
    command(root, "migrate")(migrate)


def migrate(call: Call) -> None:
    """Set up the instance, or bring it to this version."""
    from holdfast.cli import instance

    settings = call.settings()
    name = instance.choose(settings, sets_up=True)
    store = instance.open_as_is(settings, instance.named(settings, name).name)
    try:
        done = list(store.migrate())
    finally:
        store.close()
    if call.json:
        say_json({"instance": name, "done": done})
    elif done:
        say(f"Instance `{name}`: {', '.join(done)}.")
    else:
        say(f"Instance `{name}` is up to date.")
