"""How a page of the dashboard is written: its route, its frame, and the answer to a form.

    @page("/workers")
    def workers(frame: TheFrame, site: TheSite) -> Html: ...
        return frame.show("workers.html", rows=rows)

- A page is a GET that needs scope `read`; what changes something is a POST of a form that needs `operate`, carries the
  session's CSRF token, and answers with a redirect, so that loading again repeats nothing.
- Pages are rendered on the server, whole. The script loads the same page again and takes over what has changed.
"""

import hashlib
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import quote, unquote

from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.enums import RequestEncodingType
from litestar.params import Body

from holdfast.web.callers import caller_of
from holdfast.web.cookies import is_secure
from holdfast.web.pages import drawn
from holdfast.web.site import Site, TheSite

Html = Response[str]
Form = Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)]
Decorator = Callable[[Callable[..., Any]], Any]
TOLD = "holdfast_told"  # the cookie with what the next page is to say
LONGEST_TOLD = 500  # characters
NAVIGATION = (
    ("overview", "/", "Overview"),
    ("jobs", "/jobs", "Jobs"),
    ("workflows", "/workflows", "Workflows"),
    ("builds", "/builds", "Builds"),
    ("queues", "/queues", "Queues"),
    ("schedules", "/schedules", "Schedules"),
    ("workers", "/workers", "Workers"),
    ("archive", "/archive", "Archive"),
    ("settings", "/settings", "Settings"),
)


def page(path: str) -> Decorator:
    """A page that is looked at."""
    return get(path, opt={"needs": "read"}, include_in_schema=False, sync_to_thread=True)


def action(path: str) -> Decorator:
    """A form that changes something."""
    return post(path, opt={"needs": "operate"}, include_in_schema=False, sync_to_thread=True, status_code=200)


def surroundings(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """What the frame of a page is filled with."""
    caller = caller_of(request.scope)
    return {
        "root": request.scope.get("root_path", "").rstrip("/"),
        "instance": "",
        "csrf_token": (caller.csrf_token or "") if caller else "",
        "person": caller.name if caller is not None and caller.csrf_token is not None else "",
        "may_operate": caller is not None and caller.may("operate"),
        "navigation": NAVIGATION,
        "told": unquote(request.cookies.get(TOLD, ""))[:LONGEST_TOLD],
        "fingerprint": fingerprint(),
    }


class Frame:
    """What stands around every page: who looks, at which instance, and where it is mounted."""

    def __init__(self, request: Request[Any, Any, Any], site: Site) -> None:
        self.request = request
        self.site = site
        self.root: str = request.scope.get("root_path", "").rstrip("/")
        self.caller = caller_of(request.scope)
        assert self.caller is not None, "a page is shown to nobody"

    @property
    def actor(self) -> str:
        """As the audit names who acts."""
        assert self.caller is not None
        return self.caller.actor

    def asked(self, name: str, default: str = "") -> str:
        """A parameter of the address; an empty one is none."""
        return str(self.request.query_params.get(name, "")).strip() or default

    def show(self, template: str, now: datetime, status: int = 200, **values: Any) -> Html:
        """The page."""
        around = surroundings(self.request) | {"instance": self.site.app.name, "now": now}
        answer = Response(drawn.render(template, **around, **values), media_type="text/html", status_code=status)
        if around["told"]:
            answer.delete_cookie(TOLD, path=f"{self.root}/")
        return answer

    def go(self, path: str, told: str) -> Html:
        """After a form: to another page, which says what was done."""
        answer: Html = Response("", media_type="text/html", status_code=303, headers={"Location": self.root + path})
        answer.set_cookie(
            key=TOLD,
            value=quote(told[:LONGEST_TOLD]),
            path=f"{self.root}/",
            max_age=30,
            httponly=True,
            samesite="lax",
            secure=is_secure(self.request.scope, self.site.public_url),
        )
        return answer

    def confirm(
        self, now: datetime, title: str, sentence: str, button: str, back: str, form: Form, **more: Any
    ) -> Html:
        """Ask before something that cannot be taken back: the same form again, with `sure` in it."""
        kept = {name: value for name, value in form.items() if name not in ("csrf_token", "sure")}
        return self.show(
            "confirm.html", now, title=title, sentence=sentence, button=button, back=back, kept=kept, **more
        )


def new_frame(request: Request[Any, Any, Any], site: TheSite) -> Frame:
    return Frame(request, site)


TheFrame = NamedDependency[Frame]  # as a page is given it


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Of the stylesheet and the script: in their addresses, so that a browser keeps them until they change."""
    found = hashlib.sha256()
    for name in ("holdfast.css", "holdfast.js"):
        found.update(files("holdfast.web").joinpath("static", name).read_bytes())
    return found.hexdigest()[:12]
