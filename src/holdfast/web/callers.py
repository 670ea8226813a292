"""Who asks, and what they may: a token's or a session's name and scope.

The command line makes tokens without the extra `web`: nothing of it is imported here.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

SCOPES = ("read", "enqueue", "operate", "admin")  # each includes the ones before
PUBLIC = "public"  # needs no caller: /healthz, /readyz, hooks, badges, the login itself
KEY = "holdfast.caller"
TROUBLE = "holdfast.trouble"  # why it is not known who asks


class Caller(Struct, frozen=True):
    """Somebody who has shown a token or a session cookie."""

    name: str
    scope: str
    csrf_token: str | None = None  # of a browser's session: every change must bring it

    @property
    def actor(self) -> str:
        """As the audit names it."""
        return "browser" if self.csrf_token is not None else f"token:{self.name}"

    def may(self, needed: str) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(needed)


def caller_of(scope: Mapping[str, Any]) -> Caller | None:
    found: Caller | None = scope.get(KEY)
    return found
