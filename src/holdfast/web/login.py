"""`/login` and `/logout`: how a browser gets a session, and how it ends.

- A login link is used up by the session that it makes. A token stays, and its session ends with it.
- The form is open to everybody. A form that a page of another site has sent is refused.
"""

from typing import Annotated, Any

import anyio.to_thread
from litestar import Request, Response, Router, get, post
from litestar.exceptions import PermissionDeniedException
from litestar.params import FromQuery, QueryParameter

from holdfast.web import auth, secret
from holdfast.web.callers import PUBLIC
from holdfast.web.cookies import cookie, root
from holdfast.web.login_form import form, login_cookie, own_page, wants_page
from holdfast.web.problems import MEDIA_TYPE, UNAUTHORIZED, of_status
from holdfast.web.site import Site, TheSite

Back = Annotated[str, QueryParameter(name="next", description="The page to show after the login.")]
LONGEST_FORM = 1 << 16  # bytes
USED_LINK = (
    "This login link is not valid: a link works once, within ten minutes. Ask for another one, or paste a token."
)
WRONG_TOKEN = "This token is not valid: it is misspelt, or was revoked, or its time is over."
OLD_FORM = "This form is old, or your browser keeps no cookies. Paste the token again."


@get("/login", opt={"needs": PUBLIC}, include_in_schema=False, sync_to_thread=True)
def show_login(
    request: Request[Any, Any, Any], site: TheSite, token: FromQuery[str] = "", back: Back = ""
) -> Response[Any]:
    """The form; with the one-time token of a login link, a session and the way to the dashboard."""
    if not token:
        return form(request, 200, back=back)
    session = secret.new()
    if not _use_link(site, token, session):
        return _refused(request, 401, USED_LINK, back)
    return _logged_in(request, site, session, "")


@post(
    "/login",
    opt={"needs": PUBLIC},
    include_in_schema=False,
    status_code=303,
    request_max_body_size=LONGEST_FORM,
)
async def log_in(request: Request[Any, Any, Any], site: TheSite) -> Response[Any]:
    """The form, filled in: a session of the token, or of the login link whose token it is."""
    sent = {name: str(value) for name, value in (await request.form()).items()}
    back = sent.get("next", "")
    try:
        _refuse_forgery(request, sent.get("csrf_token"))
    except PermissionDeniedException as error:
        return _refused(request, 403, error.detail, back)
    token, session = sent.get("token", "").strip(), secret.new()
    if not await anyio.to_thread.run_sync(_enter, site, token, session):
        return _refused(request, 401, WRONG_TOKEN, back)
    return _logged_in(request, site, session, back)


def _refuse_forgery(request: Request[Any, Any, Any], shown: str | None) -> None:
    """A browser must send our own form. A program names no origin and may leave the CSRF token out: no page can lure it."""
    auth.refuse_other_sites(request)
    is_browser = "origin" in request.headers or "sec-fetch-site" in request.headers
    if shown is None and not is_browser:
        return
    expected = secret.csrf_token(request.cookies.get(login_cookie(request).name, ""))
    if not auth.is_same(shown or "", expected):
        raise PermissionDeniedException(OLD_FORM)


def _enter(site: Site, token: str, session: str) -> bool:
    by_token = site.app.store.log_in_with_token(secret.hashed(token), secret.hashed(session), site.session_limits)
    return by_token or _use_link(site, token, session)


def _use_link(site: Site, token: str, session: str) -> bool:
    server = None if site.registration is None else site.registration.server
    return site.app.store.log_in(secret.hashed(token), secret.hashed(session), site.session_limits, server)


def _logged_in(request: Request[Any, Any, Any], site: Site, session: str, back: str) -> Response[Any]:
    """A session cookie, and the way to a page."""
    answer = Response("", media_type="text/html", status_code=303, headers={"Location": own_page(request, back)})
    lasts = site.session_limits.lifetime.total_seconds()
    cookie(request.scope, site.public_url).put(answer, session, lasts)
    if login_cookie(request).name in request.cookies:
        login_cookie(request).drop(answer)
    return answer


def _refused(request: Request[Any, Any, Any], status: int, said: str, back: str) -> Response[Any]:
    """The form again, with the reason; a program gets a problem."""
    if wants_page(request):
        return form(request, status, said, back)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    problem = of_status(status, UNAUTHORIZED if status == 401 else said)
    return Response(problem, status_code=status, media_type=MEDIA_TYPE, headers=headers)


@post("/logout", opt={"needs": "read"}, include_in_schema=False, sync_to_thread=True)
def log_out(request: Request[Any, Any, Any], site: TheSite) -> Response[str]:
    """End the session of this browser."""
    kept = cookie(request.scope, site.public_url)
    site.app.store.log_out(secret.hashed(request.cookies.get(kept.name, "")))
    if wants_page(request):
        answer = Response(
            "", media_type="text/html", status_code=303, headers={"Location": f"{root(request.scope)}/login"}
        )
    else:
        answer = Response("You are logged out.", media_type="text/plain", status_code=200)
    kept.drop(answer)
    return answer


router = Router("/", route_handlers=[show_login, log_in, log_out])
