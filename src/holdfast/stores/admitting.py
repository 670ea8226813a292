"""Who may ask over HTTP: tokens, one-time logins and sessions, known by their hashes only."""

from collections.abc import Sequence
from datetime import timedelta

from holdfast.errors import Conflict, NotFound
from holdfast.stores.contract import TokenRow
from holdfast.stores.explaining import Explaining
from holdfast.stores.statements import RowDict


class Admitting(Explaining):
    """Adds the verbs about tokens."""

    def add_token(
        self, name: str, hash: str, *, kind: str, scope: str, lasts: timedelta | None, actor: str
    ) -> TokenRow:
        """Store a secret's hash; `Conflict` if a token has the name. What has expired goes."""
        with self.work():
            now = self.now()
            self.run("forget_tokens", {"now": self.time(now)})
            if kind == "token":
                if any(row["name"] == name for row in self.rows("tokens", {"kind": kind})):
                    raise Conflict(f"There is a token `{name}` already. Choose another name, or revoke that one first.")
                self._audit(actor, "create token", detail=f"{name} ({scope})")
            expires = None if lasts is None else now + lasts
            params = {"name": name, "kind": kind, "scope": scope, "hash": hash}
            row = self.rows("add_token", {**params, "now": self.time(now), "expires_time": self.time(expires)})[0]
            return self._token_of(row)

    def token(self, hash: str, kind: str) -> TokenRow | None:
        """The token with this hash, if it has not expired."""
        with self.lone():
            params = {"hash": hash, "kind": kind, "now": self.time(self.given_now())}
            return next((self._token_of(row) for row in self.rows("token", params)), None)

    def tokens(self) -> Sequence[TokenRow]:
        """Every token that was made for a program, the expired ones too; the newest first."""
        with self.lone():
            return [self._token_of(row) for row in self.rows("tokens", {"kind": "token"})]

    def revoke_token(self, name: str, actor: str) -> None:
        with self.work():
            if not self.run("revoke_token", {"name": name}):
                raise NotFound(f"There is no token `{name}` in instance `{self.instance}`.")
            self._audit(actor, "revoke token", detail=name)

    def log_in(self, login: str, session: str, lasts: timedelta) -> bool:
        """Use a one-time token up and store a session in its place; False if it is worth nothing."""
        with self.work():
            now = self.now()
            found = self.rows("use_login", {"hash": login, "now": self.time(now)})
            if not found:
                return False
            params = {"name": found[0]["name"], "kind": "session", "scope": found[0]["scope"], "hash": session}
            self.rows("add_token", {**params, "now": self.time(now), "expires_time": self.time(now + lasts)})
            return True

    def log_out(self, session: str) -> None:
        with self.lone_write():
            self.run("drop_session", {"hash": session})

    def _token_of(self, row: RowDict) -> TokenRow:
        times = self._known(row["create_time"]), self.moment(row["expires_time"])
        return TokenRow(row["id"], row["name"], row["scope"], *times)
