"""The one check that every request passes.

- Deny by default: a route says what scope it `needs`; one that says nothing is closed to everybody.
- A token comes as `Authorization: Bearer …`; a browser has a session cookie, made from a login link or a token. All are
  kept as hashes only.
- What a session changes must bring its CSRF token, in the header `X-CSRF-Token` or the form field `csrf_token`, and must
  not come from another site. Nothing but a login link changes anything by GET.
"""

import hmac
from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.exceptions import MethodNotAllowedException, NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler

from holdfast.app import App
from holdfast.web import links, secret
from holdfast.web.callers import PUBLIC, TROUBLE, Caller, caller_of
from holdfast.web.hosts import is_own_origin
from holdfast.web.site import Site, site_of

SAFE = ("GET", "HEAD", "OPTIONS")
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
FOREIGN = "This change was asked for by a page of another site."
OLD = "The CSRF token is missing or old. Send it as X-CSRF-Token or csrf_token, or load the page again."


def make_login(app: App, name: str = "app", scope: str = "admin") -> str:
    """The one-time token of a login link, for an address that ends in `/login?token=…`."""
    return links.new_link(app, name=name, scope=scope, actor="app")


def identify(site: Site, authorization: list[str], cookie: str | None, *, is_use: bool = True) -> Caller | None:
    """Who shows these; None if they are not valid. Asks the store, and tells it of the use: it blocks."""
    if authorization:
        kind, _, token = authorization[0].partition(" ")
        if len(authorization) > 1 or kind.lower() != "bearer" or not token.strip():
            return None
        return _known(site, token.strip(), "token", None, is_use)
    return None if cookie is None else _known(site, cookie, "session", secret.csrf_token(cookie), is_use)


def _known(site: Site, shown: str, kind: str, csrf_token: str | None, is_use: bool) -> Caller | None:
    with site.reader() as store:
        row = store.token(secret.hashed(shown), kind)
        if row is not None and is_use:
            site.uses.record(store, row)
    return None if row is None else Caller(row.name, row.scope, csrf_token)


async def allow(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """The check. A Litestar guard of the whole application: no route is without it."""
    needed = handler.opt.get("needs")
    if needed == PUBLIC:
        return
    caller = caller_of(connection.scope)
    if caller is None:
        trouble: Exception | None = connection.scope.get(TROUBLE)  # type: ignore[assignment]
        raise trouble or NotAuthorizedException()
    if needed is None:
        raise MethodNotAllowedException
    if not caller.may(needed):
        raise PermissionDeniedException(
            f"This needs a token with scope `{needed}`; yours has `{caller.scope}`. Make one with `holdfast tokens create`."
        )
    if caller.csrf_token is not None and connection.scope.get("method") not in SAFE:
        await _refuse_forgery(connection, caller.csrf_token)


async def _refuse_forgery(connection: ASGIConnection[Any, Any, Any, Any], expected: str) -> None:
    """A session's change must come from our own pages."""
    refuse_other_sites(connection)
    headers = connection.headers
    shown = headers.get("x-csrf-token")
    if shown is None and isinstance(connection, Request) and headers.get("content-type", "").startswith(FORMS):
        shown = str((await connection.form()).get("csrf_token") or "")
    if not is_same(shown or "", expected):
        raise PermissionDeniedException(OLD)


def refuse_other_sites(connection: ASGIConnection[Any, Any, Any, Any]) -> None:
    """What a browser says of where a request comes from must be this server, or its public address."""
    headers, public_url = connection.headers, site_of(connection.scope).public_url
    foreign = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
    origin = headers.get("origin")
    if foreign or (origin is not None and not is_own_origin(origin, headers.get("host", ""), public_url)):
        raise PermissionDeniedException(FOREIGN)


def is_same(shown: str, expected: str) -> bool:
    """Compares in a time that says nothing."""
    return hmac.compare_digest(shown.encode(), expected.encode())
