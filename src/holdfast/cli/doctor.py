"""`holdfast doctor`: is everything as it should be?"""

import typer

from holdfast.cli.command import Call, command
from holdfast.cli.output import say, say_json


def add_to(root: typer.Typer) -> None:
    command(root, "doctor")(doctor)


def doctor(call: Call) -> None:
    """Check the database, the instance and its workers. Exit code 1 if something is wrong, 0 beside warnings (!)."""
    from holdfast.cli import checks
    from holdfast.cli.projects import settings_of

    found = []
    for check in checks.run(call.settings(), settings_of(call)):
        found.append(check)
        if not call.json:  # each as it is known: without an instance the list ends in an error
            say(f"{check.mark} {check.name}: {check.detail}")
    if call.json:
        say_json([{"name": check.name, "ok": check.ok, "detail": check.worded} for check in found])
    raise typer.Exit(0 if all(check.ok for check in found) else 1)
