"""`holdfast hooks`: play the forge, for people who try their hooks out."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.command import Call, Function, noun
from holdfast.cli.output import complain, say, say_json
from holdfast.errors import Invalid, backticked


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {"send": send}
    noun(root, "hooks", "Hooks: send a signed webhook as a forge would.", verbs)


def send(
    call: Call,
    forge: Annotated[
        str, typer.Argument(metavar="FORGE", help="github, gitlab, gitea or generic.", show_default=False)
    ],
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="As the settings name it.", show_default=False)],
    repo: Annotated[Path, typer.Option(help="The repository that it is about.")] = Path("."),
    event: Annotated[
        str, typer.Option(help="push, tag, delete, pull_request, synchronize, label, closed, merged, ping.")
    ] = "push",
    to: Annotated[str, typer.Option(help="Where the server is.")] = "http://127.0.0.1:8765",
    branch: Annotated[str | None, typer.Option(help="Instead of the one that is checked out.")] = None,
    commit: Annotated[str, typer.Option(help="Anything that git knows as one.")] = "HEAD",
    tag: Annotated[str, typer.Option(help="Of the event `tag`.")] = "v1",
    number: Annotated[int, typer.Option(help="Of the pull request.")] = 1,
    label: Annotated[str, typer.Option(help="Of the event `label`.")] = "rebuild",
    fork: Annotated[bool, typer.Option("--fork", help="The pull request is a stranger's.")] = False,
    secret_env: Annotated[
        str | None, typer.Option(help="The variable with the secret, instead of the settings' own.")
    ] = None,
    delivery: Annotated[str | None, typer.Option(help="The id of the delivery, instead of a new one.")] = None,
) -> None:
    """Sign and send what a forge would send about a repository; the server's answer decides the exit code."""
    from holdfast.builds.webhooks import FORGES
    from holdfast.cli import sending

    if forge not in FORGES:
        raise Invalid(f"There is no forge {backticked(forge)}; known are {', '.join(FORGES)}.")
    secret = sending.secret(call, forge, project, secret_env)
    facts = sending.facts(repo, commit, branch, tag=tag, number=number, label=label, fork=fork)
    answer = sending.send(forge, project, event, facts, secret, to, delivery)
    if answer.exit_code:
        complain(sending.told(answer))
        raise typer.Exit(answer.exit_code)
    if call.json:
        say_json(answer.body)
    else:
        say(sending.told(answer))
