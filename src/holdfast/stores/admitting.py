"""Access over HTTP: tokens, login links and sessions by their hashes, servers by their addresses, requests by their keys."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from holdfast.errors import Conflict, NotFound, backticked
from holdfast.jobs.job import Job
from holdfast.stores.contract import NewJob, NewToken, RequestKey, SessionLimits, TokenRow
from holdfast.stores.listing import Listing
from holdfast.stores.reader import RowReader
from holdfast.stores.statements import RowDict, encode_json

REQUESTS_ARE_KNOWN = timedelta(days=7)
SERVERS_ARE_KNOWN = timedelta(days=1)  # after their last heartbeat
ADDED = {"token": "create token", "login": "create login link"}


class Admitting(Listing):
    """Adds the verbs about tokens, servers and requests."""

    def add_token(self, new: NewToken, actor: str) -> TokenRow:
        """Store a secret's hash; `Conflict` if a token has the name. Removes expired links and sessions."""
        with self.work():
            now = self.now()
            self.run("forget_tokens", {"now": self.time(now)})
            if new.kind == "token" and self.rows("token_named", {"name": new.name}):
                raise Conflict(f"There is a token `{new.name}` already. Choose another name, or revoke that one first.")
            self._audit(actor, ADDED[new.kind], detail=f"{new.name} ({new.scope})")
            expires = None if new.lasts is None else now + new.lasts
            params = {name: getattr(new, name) for name in ("name", "kind", "scope", "hash")}
            access = {"queues": _encoded(new.queues), "server": new.server, "parent": None, "idle_expires_time": None}
            made = self._add(params, access, now, expires)
            return self._token_of(self.rows("token_by_id", {"id": made})[0])

    def _add(self, token: dict[str, Any], access: dict[str, Any], now: datetime, expires: datetime | None) -> int:
        times = {"now": self.time(now), "expires_time": self.time(expires)}
        made: int = self.rows("add_token", {**token, **times})[0]["id"]
        self.run("add_access", {**access, "token": made})
        return made

    def token(self, hash: str, kind: str) -> TokenRow | None:
        """The token or session with this hash, if it is still valid."""
        with self.lone():
            params = {"hash": hash, "kind": kind, "now": self.time(self.given_now())}
            return next((self._token_of(row) for row in self.rows("token", params)), None)

    def tokens(self, alive_within: float) -> Sequence[TokenRow]:
        """Every token of a program, the expired ones too, and the sessions and login links that are valid; newest first.

        The link of a server is valid while the server's last heartbeat is at most `alive_within` seconds old.
        """
        with self.work(write=False):
            now = self.now()
            params = {"now": self.time(now), "alive_since": self.time(now - timedelta(seconds=alive_within))}
            return [self._token_of(row) for row in self.rows("tokens", params)]

    def use_token(self, token: int, idle_timeout: timedelta | None) -> None:
        """Store that it was used now. With `idle_timeout` it lives on for so long."""
        with self.work():
            now = self.now()
            idle_expires = None if idle_timeout is None else now + idle_timeout
            self.run("use_token", {"id": token, "now": self.time(now), "idle_expires_time": self.time(idle_expires)})

    def revoke_token(self, named: str, actor: str) -> int:
        """Remove every token, session and link of this name, else the one of this id, with the sessions that were made with it.

        Returns how many sessions ended; `NotFound` if there is nothing of this name or id.
        """
        with self.work():
            gone = self.rows("revoke_tokens_named", {"name": named})
            if not gone and named.isascii() and named.isdigit() and len(named) < 19:
                gone = self.rows("revoke_token", {"id": int(named)})
            if not gone:
                raise NotFound(
                    f"There is no token, session or login link {backticked(named)} in instance `{self.instance}`. `holdfast tokens list` shows them."
                )
            return self._revoked(gone, actor)

    def revoke_sessions(self, actor: str) -> int:
        """End every browser session and every login link; how many sessions that were."""
        with self.work():
            return self._revoked(self.rows("revoke_sessions"), actor)

    def _revoked(self, gone: Sequence[RowDict], actor: str) -> int:
        for row in gone:
            self._audit(actor, f"revoke {row['kind']}", detail=row["name"])
        return sum(row["kind"] == "session" for row in gone)

    def log_in(self, link: str, session: str, limits: SessionLimits, server: int | None) -> bool:
        """Use a login link up and store a session in its place; False if the link is not valid at this server."""
        with self.work():
            now = self.now()
            found = self.rows("use_login", {"hash": link, "now": self.time(now), "server": server})
            for row in found:
                self._add_session({**row, "queues": None}, None, session, limits, now)
            return bool(found)

    def log_in_with_token(self, token: str, session: str, limits: SessionLimits) -> bool:
        """Store a session that may do what the token may, and ends with it at the latest; False if the token is not valid."""
        with self.work():
            now = self.now()
            found = self.rows("token", {"hash": token, "kind": "token", "now": self.time(now)})
            for row in found:
                self._add_session(row, row["id"], session, limits, now)
            return bool(found)

    def _add_session(
        self, row: RowDict, parent: int | None, session: str, limits: SessionLimits, now: datetime
    ) -> None:
        self.run("forget_tokens", {"now": self.time(now)})
        ends = now + limits.lifetime
        if parent is not None and row["expires_time"] is not None:
            ends = min(ends, self._known(row["expires_time"]))
        token = {"name": row["name"], "scope": row["scope"], "kind": "session", "hash": session}
        idle_expires = self.time(min(ends, now + limits.idle_timeout))
        access = {"queues": row["queues"], "parent": parent, "server": None, "idle_expires_time": idle_expires}
        self._add(token, access, now, ends)
        self._audit(
            f"session:{row['name']}", "log in", detail=f"{'login link' if parent is None else 'token'} ({row['scope']})"
        )

    def log_out(self, session: str) -> None:
        with self.work():
            for row in self.rows("drop_session", {"hash": session}):
                self._audit(f"session:{row['name']}", "log out")

    def add_server(self, address: str) -> int:
        """Store where a server that starts now can be reached; its number."""
        with self.work():
            now = self.now()
            self.run("forget_servers", {"before": self.time(now - SERVERS_ARE_KNOWN)})
            found: int = self.rows("add_server", {"address": address, "now": self.time(now)})[0]["id"]
            return found

    def beat_server(self, server: int) -> bool:
        """Store that the server runs; False if it was forgotten."""
        with self.work():
            return bool(self.run("beat_server", {"id": server, "now": self.time(self.now())}))

    def drop_server(self, server: int) -> None:
        """Forget a server that ends, and the login links that it printed."""
        with self.work():
            self.run("drop_logins_of_server", {"id": server})
            self.run("drop_server", {"id": server})

    def newest_server(self, alive_within: float) -> str | None:
        """The address of the server that started last, of those with a heartbeat in the last so many seconds."""
        with self.work(write=False):
            alive_since = self.now() - timedelta(seconds=alive_within)
            rows = self.rows("newest_server", {"alive_since": self.time(alive_since)})
            return rows[0]["address"] if rows else None

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
        values = {name: row[name] for name in ("id", "name", "kind", "scope")}
        return TokenRow(
            **values,
            queues=None if row["queues"] is None else RowReader(row).texts("queues"),
            create_time=self._known(row["create_time"]),
            expires_time=self.moment(row["expires_time"]),
            use_time=self.moment(row["use_time"]),
            idle_expires_time=self.moment(row["idle_expires_time"]),
        )


def _encoded(queues: tuple[str, ...] | None) -> str | None:
    return None if queues is None else encode_json(queues).decode()
