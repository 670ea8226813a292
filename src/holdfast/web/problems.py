"""Errors as RFC 9457 problem details: `application/problem+json` with a stable `code`.

- A `HoldfastError` brings its own code and status; everything else gets one from `CODES`.
- Without a caller every answer is the same 401: it does not tell what exists.
- A browser that asks for a page gets the same sentence as a page; without a session, the form to log in with.
"""

import logging
from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.exceptions import HTTPException
from msgspec import Meta, Struct, field

from holdfast.errors import HoldfastError, with_short_quotes
from holdfast.web import login_form
from holdfast.web.callers import caller_of
from holdfast.web.login_form import wants_page
from holdfast.web.pages import drawn
from holdfast.web.pages.page import surroundings

logger = logging.getLogger("holdfast.web")

MEDIA_TYPE = "application/problem+json"
CODES = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "wrong_host",
    500: "internal",
    503: "unavailable",
}
UNAUTHORIZED = "Show who you are: a token in `Authorization: Bearer …`, or a login."
UNEXPECTED = "Something went wrong in the server that nobody expected. Its log has the traceback."


class Problem(Struct, frozen=True):
    """What went wrong (RFC 9457). `code` is stable; `detail` is for people."""

    status: Annotated[int, Meta(examples=[409])]
    code: Annotated[str, Meta(examples=["illegal_move"])]
    title: Annotated[str, Meta(examples=["Conflict"])]
    detail: Annotated[str, Meta(examples=["Job 42 (send) is final already: success."])]
    type: str = "about:blank"
    errors: list[str] = field(default_factory=list)  # each thing that is wrong, where there are several


def answer(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """The response for anything that was raised."""
    problem = described(error)
    if caller_of(request.scope) is None and problem.status in (403, 404, 405):
        problem = of_status(401, UNAUTHORIZED)
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else dict(getattr(error, "headers", None) or {})
    if wants_page(request) and caller_of(request.scope) is None and problem.status == 401:
        return login_form.for_stranger(request)
    if wants_page(request):
        return Response(page(request, problem), status_code=problem.status, media_type="text/html", headers=headers)
    return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


def described(error: Exception) -> Problem:
    if isinstance(error, HoldfastError):
        status = error.http_status
        if status >= 500:
            logger.warning("%s", error)
        return Problem(status, error.code, HTTPStatus(status).phrase, str(error))
    if isinstance(error, HTTPException) and error.status_code < 500:
        status, wrong = error.status_code, _wrong(error.extra)
        detail = UNAUTHORIZED if status == 401 else f"{'; '.join(wrong)}." if wrong else error.detail
        return Problem(status, CODES.get(status, "refused"), HTTPStatus(status).phrase, detail, errors=wrong)
    logger.error("A request failed", exc_info=error)
    return of_status(500, UNEXPECTED)


def of_status(status: int, detail: str) -> Problem:
    return Problem(status, CODES[status], HTTPStatus(status).phrase, detail)


def _wrong(extra: Any) -> list[str]:
    """What Litestar found wrong with parameters, as sentences."""
    if not isinstance(extra, list):
        return []
    named = [(str(each.get("key", "")), each.get("message", "")) for each in extra if isinstance(each, dict)]
    return [
        "The body is missing; send it as JSON"
        if key == "data"
        else f"`{key.removeprefix('in_')}`: {with_short_quotes(message)}"
        for key, message in named
    ]


def page(request: Request[Any, Any, Any], problem: Problem) -> str:
    """In the frame of the dashboard for a caller; a stranger's page names nothing."""
    if caller_of(request.scope) is not None:
        return drawn.render("trouble.html", **surroundings(request), problem=problem)
    return drawn.render("stranger.html", problem=problem)
