"""`holdfast tokens`: who may ask over HTTP."""

from typing import Annotated

import typer

from holdfast import views
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.output import say, say_json
from holdfast.config import LONGEST
from holdfast.errors import Invalid, quoted
from holdfast.jobs.names import check_token_name
from holdfast.web.callers import SCOPES

DAY = 86400  # seconds

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {"create": create, "list": list_, "revoke": revoke}
    noun(root, "tokens", "Tokens: who may ask over HTTP, and what.", verbs)


def create(
    call: Call,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="How the audit names its holder; without one it is made up.")
    ] = "",
    scope: Annotated[
        str, typer.Option(help=f"What it may: {', '.join(SCOPES)}; each includes the ones before.")
    ] = "read",
    days: Annotated[float | None, typer.Option(min=0.0, help="It expires after so many; without it, never.")] = None,
) -> None:
    """Make a token and show it, this once: only its hash is kept."""
    from datetime import timedelta

    from holdfast.cli import instance
    from holdfast.web import secret

    if scope not in SCOPES:
        raise Invalid(f"--scope is {quoted(scope)}; it may be {', '.join(SCOPES)}.")
    token = secret.new()
    if days is not None and days * DAY > LONGEST:
        raise Invalid(f"--days is {days:g}; give at most {LONGEST / DAY:.0f}, or leave it out: then it never expires.")
    lasts = None if days is None else timedelta(days=days)
    named = check_token_name(name or f"{scope}-{secret.hashed(token)[:6]}")
    with instance.existing(call.settings()) as app:
        row = app.store.add_token(
            named, secret.hashed(token), kind="token", scope=scope, lasts=lasts, actor=instance.actor()
        )
    if call.json:
        say_json({"token": token, **views.token(row)})
    else:
        say(f"Token `{row.name}` with scope {row.scope}, shown only now:\n  {token}")


def list_(call: Call) -> None:
    """Every token, the newest first; never the secret itself."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        found, now = app.store.tokens(), app.store.now()
    if call.json:
        say_json([views.token(row) for row in found])
        return
    rows = [
        (
            row.name,
            row.scope,
            tables.relative(row.create_time, now),
            "–" if row.expires_time is None else tables.relative(row.expires_time, now),
            "expired" if row.expires_time is not None and row.expires_time <= now else "",
        )
        for row in found
    ]
    tables.show(
        tables.listing(("name", "scope", "created", "expires", ""), rows),
        empty="There are no tokens. `holdfast tokens create` makes one.",
    )


def revoke(call: Call, name: Name) -> None:
    """Take a token back: it is worth nothing from now on."""
    from holdfast.cli import instance

    with instance.existing(call.settings()) as app:
        app.store.revoke_token(name, instance.actor())
    if call.json:
        say_json({"revoked": name})
    else:
        say(f"Token `{name}` is revoked.")
