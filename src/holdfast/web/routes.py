"""How a route is written: what it needs, what it answers, what may go wrong, all for the check and for the document.

    @look("/jobs/{job_id:int}", answers=JobShape, errors=(NotFound,))
    def job(site: Site, job_id: int) -> Shape: ...

- `look` is for GET and needs scope `read`; `act` is for what changes something and names its scope.
- Handlers are plain functions, called in a thread: stores block.
"""

from collections.abc import Callable, Mapping
from typing import Any

from litestar import delete, get, patch, post, put
from litestar.openapi.datastructures import ResponseSpec

from holdfast.errors import HoldfastError
from holdfast.web.problems import MEDIA_TYPE, Problem

METHODS = {"POST": post, "PUT": put, "PATCH": patch, "DELETE": delete}
Decorator = Callable[[Callable[..., Any]], Any]
MEANINGS = {
    400: "The request is wrong; asking again will not help.",
    401: "No token, or one that is not worth anything.",
    403: "The token's scope does not reach this.",
    404: "What was named does not exist.",
    409: "The present state of things forbids it.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    503: "The database cannot be used right now.",
}


def look(
    path: str, *, answers: Any = None, errors: tuple[type[HoldfastError], ...] = (), needs: str = "read", **more: Any
) -> Decorator:
    """A route that only reads."""
    statuses = {400, 401, 403, 503, *(error.http_status for error in errors)}
    return get(
        path,
        opt={"needs": needs},
        responses=_documented(200, answers, statuses),
        raises=[],
        sync_to_thread=True,
        **more,
    )


def watch(path: str, *, errors: tuple[type[HoldfastError], ...] = ()) -> Decorator:
    """A route that streams what happens as server-sent events; its handler is a coroutine."""
    statuses = {400, 401, 403, 503, *(error.http_status for error in errors)}
    stream = ResponseSpec(
        str, generate_examples=False, description="Server-sent events.", media_type="text/event-stream"
    )
    return get(path, opt={"needs": "read"}, responses=_documented(200, None, statuses) | {200: stream}, raises=[])


def act(
    path: str,
    *,
    needs: str,
    answers: Any = None,
    method: str = "POST",
    status: int = 200,
    errors: tuple[type[HoldfastError], ...] = (),
    also: Mapping[int, tuple[Any, str]] | None = None,
    **more: Any,
) -> Decorator:
    """A route that changes something."""
    statuses = {400, 401, 403, 413, 415, 503, *(error.http_status for error in errors)}
    return METHODS[method](
        path,
        opt={"needs": needs},
        status_code=status,
        responses=_documented(status, answers, statuses) | _others(also or {}),
        raises=[],
        sync_to_thread=True,
        **more,
    )


def _others(also: Mapping[int, tuple[Any, str]]) -> dict[int, ResponseSpec]:
    return {
        status: ResponseSpec(answers, generate_examples=False, description=means)
        for status, (answers, means) in also.items()
    }


def _documented(status: int, answers: Any, statuses: set[int]) -> dict[int, ResponseSpec]:
    found = {
        each: ResponseSpec(Problem, generate_examples=False, description=MEANINGS[each], media_type=MEDIA_TYPE)
        for each in sorted(statuses)
    }
    if answers is not None:
        found[status] = ResponseSpec(answers, generate_examples=False, description="Done.")
    return found
