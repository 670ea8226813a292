"""The one check that every request passes, and how a browser logs in.

- Deny by default: a route says what scope it `needs`; one that says nothing is closed to everybody.
- A token comes as `Authorization: Bearer …`; a browser has a session cookie, made from a one-time token in the address
  that `holdfast serve` prints. Both are kept as hashes only.
- What a session changes must bring its CSRF token, in the header `X-CSRF-Token` or the form field `csrf_token`, and must
  not come from another site. Nothing but the login changes anything by GET.
"""

import hmac
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from litestar import Request, Response, Router, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import MethodNotAllowedException, NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromQuery
from litestar.response import Redirect

from holdfast.app import App
from holdfast.stores.contract import TokenRow
from holdfast.web import secret
from holdfast.web.callers import PUBLIC, TROUBLE, Caller, caller_of
from holdfast.web.site import Site, TheSite

SAFE = ("GET", "HEAD", "OPTIONS")
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
LOGIN_LASTS = timedelta(hours=24)
SESSION_LASTS = timedelta(days=7)


def make_login(app: App) -> str:
    """A one-time token for the address that a browser logs in with."""
    token = secret.new()
    app.store.add_token("login", secret.hashed(token), kind="login", scope="admin", lasts=LOGIN_LASTS, actor="serve")
    return token


def identify(site: TheSite, authorization: list[str], cookie: str | None) -> Caller | None:
    """Who shows these; None if they are worth nothing. Blocks: asks the store."""
    if authorization:
        kind, _, token = authorization[0].partition(" ")
        if len(authorization) > 1 or kind.lower() != "bearer" or not token.strip():
            return None
        return _caller(_known(site, token.strip(), "token"), None)
    if cookie is None:
        return None
    return _caller(_known(site, cookie, "session"), cookie)


def _known(site: Site, shown: str, kind: str) -> TokenRow | None:
    with site.reader() as store:
        return store.token(secret.hashed(shown), kind)


def _caller(row: TokenRow | None, session: str | None) -> Caller | None:
    if row is None:
        return None
    return Caller(row.name, row.scope, None if session is None else secret.hashed(f"csrf {session}"))


def cookie_name(scope: Mapping[str, Any]) -> str:
    """Cookies do not know ports, but two servers on one machine must not take each other's."""
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    port = host.rpartition(":")[2]
    return f"holdfast_session_{port}" if port.isdigit() else "holdfast_session"


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
    headers = connection.headers
    origin = headers.get("origin")
    foreign = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
    if foreign or (origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()):
        raise PermissionDeniedException("This change was asked for by a page of another site.")
    shown = headers.get("x-csrf-token")
    if shown is None and isinstance(connection, Request) and headers.get("content-type", "").startswith(FORMS):
        shown = str((await connection.form()).get("csrf_token") or "")
    if not hmac.compare_digest((shown or "").encode(), expected.encode()):
        raise PermissionDeniedException(
            "The CSRF token is missing or old. Send it as X-CSRF-Token or csrf_token, or load the page again."
        )


@get("/login", opt={"needs": PUBLIC}, include_in_schema=False, sync_to_thread=True)
def login(request: Request[Any, Any, Any], site: TheSite, token: FromQuery[str] = "") -> Redirect:
    """Turn the one-time token into a session, and go to the dashboard."""
    session = secret.new()
    if not site.app.store.log_in(secret.hashed(token), secret.hashed(session), SESSION_LASTS):
        raise NotAuthorizedException
    root = request.scope.get("root_path", "")
    answer = Redirect(f"{root}/", status_code=303)
    answer.set_cookie(
        key=cookie_name(request.scope),
        value=session,
        path=f"{root}/",
        max_age=int(SESSION_LASTS.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=request.scope["scheme"] == "https",
    )
    return answer


@post("/logout", opt={"needs": "read"}, include_in_schema=False, sync_to_thread=True)
def logout(request: Request[Any, Any, Any], site: TheSite) -> Response[str]:
    """End the session of this browser."""
    name = cookie_name(request.scope)
    site.app.store.log_out(secret.hashed(request.cookies.get(name, "")))
    answer = Response("You are logged out.", media_type="text/plain", status_code=200)
    answer.delete_cookie(name, path=f"{request.scope.get('root_path', '')}/")
    return answer


router = Router("/", route_handlers=[login, logout])
