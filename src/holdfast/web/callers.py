"""The caller of a request: the name and the scope of a token or a session.

The command line makes tokens without the extra `web`: nothing of it is imported here.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

SCOPES = ("read", "enqueue", "operate", "admin")  # each includes the ones before
PUBLIC = "public"  # needs no caller: /healthz, /readyz, hooks, badges, the login itself
SITE = "holdfast.site"  # the keys of what the gate adds to an ASGI scope: the site,
KEY = "holdfast.caller"  # the caller,
TROUBLE = "holdfast.trouble"  # the error that kept the gate from finding the caller


class Caller(Struct, frozen=True):
    """A program with a token, or a person whose browser has a session."""

    name: str
    scope: str
    csrf_token: str | None = None  # of a browser's session: every change must bring it

    @property
    def actor(self) -> str:
        """As the audit names it."""
        return f"{'token' if self.csrf_token is None else 'session'}:{self.name}"

    def may(self, needed: str) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(needed)


def caller_of(scope: Mapping[str, Any]) -> Caller | None:
    found: Caller | None = scope.get(KEY)
    return found
