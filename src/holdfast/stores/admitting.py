"""Who may ask over HTTP, and what was asked: tokens, logins and sessions by their hashes, requests by their keys."""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import structs

from holdfast.errors import Conflict, NotFound, backticked
from holdfast.jobs.job import Job
from holdfast.stores.contract import NewJob, RequestKey, TokenRow
from holdfast.stores.listing import Listing
from holdfast.stores.statements import RowDict

REQUESTS_ARE_KNOWN = timedelta(days=7)


class Admitting(Listing):
    """Adds the verbs about tokens and requests."""

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
                raise NotFound(f"There is no token {backticked(name)} in instance `{self.instance}`.")
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

    def add_once(self, new: NewJob, request: RequestKey) -> Job:
        """Add a job, or give the one that the same request has added before; `Conflict` if it asked for something else."""
        params = {"owner": request.owner, "key": request.key}
        with self.work():
            now = self.now()
            self.run("forget_requests", {"since": self.time(now - REQUESTS_ARE_KNOWN)})
            if self.run("take_request", {**params, "print": request.print, "now": self.time(now)}):
                job = self.insert([new])[0]
                self.run("note_request", {**params, "job": job.id, "duplicate": job.duplicate})
                return job
            known = self.rows("request", params)[0]
            if known["print"] != request.print:
                raise Conflict(
                    f"The Idempotency-Key `{request.key}` was used for another body, which made job {known['job']}. Use a new key."
                )
            return structs.replace(self._get(known["job"]), duplicate=bool(known["duplicate"]))

    def _token_of(self, row: RowDict) -> TokenRow:
        times = self._known(row["create_time"]), self.moment(row["expires_time"])
        return TokenRow(row["id"], row["name"], row["scope"], *times)
