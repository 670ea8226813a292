"""`holdfast tokens`: access over HTTP: the tokens of programs, the sessions of browsers, login links."""

from datetime import datetime
from typing import Annotated

import typer

from holdfast import views
from holdfast.cli.command import Call, Function, noun
from holdfast.cli.output import say, say_json
from holdfast.config import LONGEST
from holdfast.errors import Invalid, quoted
from holdfast.jobs.names import check_token_name
from holdfast.stores.contract import TokenRow
from holdfast.web.callers import SCOPES

DAY = 86400  # seconds


def add_to(root: typer.Typer) -> None:
    verbs: dict[str, Function] = {"create": create, "list": list_, "revoke": revoke}
    noun(root, "tokens", "Tokens, browser sessions and login links: access over HTTP.", verbs)


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
    from holdfast.stores.contract import NewToken
    from holdfast.web import secret

    if scope not in SCOPES:
        raise Invalid(f"--scope is {quoted(scope)}; it may be {', '.join(SCOPES)}.")
    token = secret.new()
    if days is not None and days * DAY > LONGEST:
        raise Invalid(f"--days is {days:g}; give at most {LONGEST / DAY:.0f}, or leave it out: then it never expires.")
    lasts = None if days is None else timedelta(days=days)
    named = check_token_name(name or f"{scope}-{secret.hashed(token)[:6]}")
    new = NewToken(name=named, hash=secret.hashed(token), scope=scope, lasts=lasts)
    with instance.existing(call.settings()) as app:
        row = app.store.add_token(new, instance.actor())
    if call.json:
        say_json({"token": token, **views.token(row)})
    else:
        say(f"Token `{row.name}` with scope {row.scope}, shown only now:\n  {token}")


def list_(call: Call) -> None:
    """Every token, and the browser sessions and login links that are valid, the newest first; never the secrets."""
    from holdfast.cli import instance, tables

    with instance.existing(call.settings()) as app:
        found, now = app.store.tokens(app.lost_after), app.store.now()
    if call.json:
        say_json([views.token(row) for row in found])
        return
    rows = [
        (
            str(row.id),
            row.name,
            row.kind,
            row.scope,
            tables.relative(row.create_time, now),
            _moment(row.use_time, now),
            _moment(_end(row), now),
            "expired" if row.expires_time is not None and row.expires_time <= now else "",
        )
        for row in found
    ]
    tables.show(
        tables.listing(("id", "name", "kind", "scope", "created", "used", "expires", ""), rows),
        empty="There are no tokens. `holdfast tokens create` makes one.",
    )


def _moment(value: datetime | None, now: datetime) -> str:
    from holdfast.cli import tables

    return "–" if value is None else tables.relative(value, now)


def _end(row: TokenRow) -> datetime | None:
    """Its end, if it is not used before."""
    return min(filter(None, (row.expires_time, row.idle_expires_time)), default=None)


def revoke(
    call: Call,
    named: Annotated[
        str, typer.Argument(metavar="[NAME|ID]", help="What to revoke, by its name or id.", show_default=False)
    ] = "",
    sessions: Annotated[bool, typer.Option("--sessions", help="Every browser session and login link.")] = False,
) -> None:
    """Revoke a token, a session or a login link. Takes effect at once, also for the sessions that were made with it."""
    from holdfast.cli import instance

    if bool(named) == sessions:
        raise Invalid("Give the name or id of what to revoke, or --sessions for every browser session.")
    with instance.existing(call.settings()) as app:
        actor = instance.actor()
        ended = app.store.revoke_sessions(actor) if sessions else app.store.revoke_token(named, actor)
    if call.json:
        say_json({"revoked": named or None, "sessions": ended})
    else:
        begins = f"`{named}` is revoked. " if named else ""
        say(f"{begins}{ended} browser session{'s' * (ended != 1)} ended.")
