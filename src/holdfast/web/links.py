"""Login links: addresses that log a browser in once.

The command line makes them without the extra `web`: nothing of it is imported here.
"""

from datetime import timedelta

from holdfast.app import App
from holdfast.stores.contract import NewToken
from holdfast.web import secret

LINK_LASTS = timedelta(minutes=10)


def new_link(app: App, *, name: str, scope: str = "admin", actor: str, server: int | None = None) -> str:
    """Store a login link and return its one-time token; with `server` that server alone accepts it."""
    token = secret.new()
    new = NewToken(name=name, hash=secret.hashed(token), scope=scope, kind="login", lasts=LINK_LASTS, server=server)
    app.store.add_token(new, actor)
    return token


def link(address: str, token: str) -> str:
    """The login link below the address of a server."""
    return f"{address}/login?token={token}"
