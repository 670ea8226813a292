"""The form with which a person logs in: the page `/login`, and the answer to a browser that asks for a page without a session.

- It names nothing of the instance, and brings its own style: a stranger may read no file of the dashboard.
- It carries a CSRF token that belongs to a cookie of its own, so that no other site can log a browser in.
- After the login the browser is back on the page that it asked for. An address that is not a page of ours is ignored.
"""

import base64
import hashlib
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from litestar import Request, Response
from markupsafe import Markup

from holdfast.web import secret
from holdfast.web.cookies import LOGIN, Cookie, cookie, root
from holdfast.web.pages import drawn
from holdfast.web.site import site_of

STYLE = files("holdfast.web").joinpath("templates", "login.css").read_text("utf-8")
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
FORM_LASTS = 3600.0  # seconds
LONGEST_PAGE = 4000  # characters of an address
PLEASE = "Paste an access token, or ask an administrator for a login link."
ENDED = "Your session has ended. Log in again, and you are back on this page."


def wants_page(request: Request[Any, Any, Any]) -> bool:
    """A person looks: not a program, and not under /api."""
    return "text/html" in request.headers.get("accept", "") and not request.scope["path"].startswith("/api/")


def form(request: Request[Any, Any, Any], status: int, said: str = "", back: str = "") -> Response[str]:
    """The form; `said` is why it is shown, `back` the page to show after the login."""
    kept = login_cookie(request)
    value = request.cookies.get(kept.name) or secret.new()
    text = drawn.render(
        "login.html",
        style=Markup(STYLE),
        action=f"{root(request.scope)}/login",
        csrf_token=secret.csrf_token(value),
        back=own_page(request, back),
        said=said,
        please=PLEASE,
    )
    answer = Response(text, media_type="text/html", status_code=status, headers={"content-security-policy": POLICY})
    if status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    kept.put(answer, value, FORM_LASTS)
    return answer


def for_stranger(request: Request[Any, Any, Any]) -> Response[str]:
    """The answer to a browser without a session, or with one that has ended."""
    public_url = site_of(request.scope).public_url
    had_session = cookie(request.scope, public_url).name in request.cookies
    return form(request, 401, ENDED if had_session else "", asked_page(request))


def login_cookie(request: Request[Any, Any, Any]) -> Cookie:
    """The cookie that the form belongs to."""
    return cookie(request.scope, site_of(request.scope).public_url, LOGIN)


def asked_page(request: Request[Any, Any, Any]) -> str:
    """The address of the page that was asked for; empty if it was a form that was sent."""
    if request.method not in ("GET", "HEAD"):
        return ""
    above, path = root(request.scope), _written_path(request)
    whole = path if above and path.startswith(f"{above}/") else f"{above}{path}"
    query = request.scope["query_string"].decode("latin-1")
    return f"{whole}?{query}" if query else whole


def _written_path(request: Request[Any, Any, Any]) -> str:
    """The path with its escapes, which the decoded one has lost."""
    raw: bytes | None = request.scope.get("raw_path")
    return quote(request.scope["path"]) if raw is None else raw.decode("latin-1").partition("?")[0]


def own_page(request: Request[Any, Any, Any], back: str) -> str:
    """The address if it is a page of this application, else that of the first page.

    A browser reads `//evil` and `/\\evil` as addresses of another site, and leaves tabs and line ends out before it looks.
    """
    first = f"{root(request.scope)}/"
    printable = back.isascii() and back.isprintable() and len(back) <= LONGEST_PAGE and not set(back) & set(' \\"<>')
    if not printable or not back.startswith(first) or back.startswith("//"):
        return first
    return first if back.partition("?")[0] == f"{first}login" else back
