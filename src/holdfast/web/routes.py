"""How a route is written: what it needs, what it answers, what may go wrong, all for the check and for the document.

    @look("/jobs/{job_id:int}", answers=JobShape, errors=(NotFound,))
    def job(site: TheSite, job_id: JobId) -> Shape: ...

- `look` is for GET and needs scope `read`; `act` is for what changes something and names its scope; `watch` streams, `fetch`
  gives a file.
- Handlers are plain functions, called in a thread: stores block. Only those of `watch` are coroutines.
- The first sentence of a handler's docstring is its summary in the document.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from litestar import delete, get, patch, post, put, route
from litestar.openapi.datastructures import ResponseSpec

from holdfast.errors import HoldfastError
from holdfast.web.callers import PUBLIC
from holdfast.web.problems import MEDIA_TYPE, Problem

METHODS = {"POST": post, "PUT": put, "PATCH": patch, "DELETE": delete}
Decorator = Callable[[Callable[..., Any]], Any]
Errors = tuple[type[HoldfastError], ...]
MEANINGS = {
    400: "The request is wrong; asking again will not help.",
    401: "No token, or one that is not worth anything.",
    403: "The token's scope does not reach this.",
    404: "What was named does not exist.",
    408: "The body did not come in time.",
    409: "The present state of things forbids it.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    503: "The database cannot be used right now.",
}


def look(
    path: str,
    *,
    answers: Any = None,
    errors: Errors = (),
    needs: str = "read",
    headers_alone: bool = False,
    **more: Any,
) -> Decorator:
    """A route that only reads; with `headers_alone` it may be asked by HEAD too."""
    responses = _documented(200, answers, {400, 401, 403, 503}, errors)
    verb = partial(route, http_method=["GET", "HEAD"]) if headers_alone else get
    return _route(verb, path, needs, responses=responses, sync_to_thread=True, **more)


def watch(
    path: str, *, errors: Errors = (), streams: str = "Server-sent events.", media_type: str = "text/event-stream"
) -> Decorator:
    """A route that streams what happens."""
    stream = ResponseSpec(str, generate_examples=False, description=streams, media_type=media_type)
    responses = _documented(200, None, {400, 401, 403, 503}, errors) | {200: stream}
    return _route(get, path, "read", responses=responses)


def fetch(path: str, *, errors: Errors = ()) -> Decorator:
    """A route whose answer is a file."""
    file = ResponseSpec(bytes, generate_examples=False, description="The file.", media_type="application/octet-stream")
    responses = _documented(200, None, {400, 401, 403, 503}, errors) | {200: file}
    return _route(get, path, "read", responses=responses, sync_to_thread=True)


def act(
    path: str,
    *,
    needs: str,
    answers: Any = None,
    method: str = "POST",
    status: int = 200,
    errors: Errors = (),
    also: Mapping[int, tuple[Any, str]] | None = None,
    **more: Any,
) -> Decorator:
    """A route that changes something; `also` are further answers that are no errors."""
    responses = _documented(status, answers, {400, 401, 403, 408, 413, 415, 503}, errors)
    for other, (shape, means) in (also or {}).items():
        responses[other] = ResponseSpec(shape, generate_examples=False, description=means)
    return _route(METHODS[method], path, needs, responses=responses, status_code=status, sync_to_thread=True, **more)


def _route(verb: Any, path: str, needs: str, **options: Any) -> Decorator:
    def decorate(function: Callable[..., Any]) -> Any:
        text = inspect.getdoc(function) or ""
        scope = "" if needs == PUBLIC else f"\n\nNeeds a token with scope `{needs}`, or one that includes it."
        noun = function.__module__.rpartition(".")[2]
        return verb(
            path,
            opt={"needs": needs},
            raises=[],
            summary=text.partition("\n")[0].removesuffix("."),
            description=text + scope,
            operation_id=f"{noun}.{function.__name__}",
            **options,
        )(function)

    return decorate


def _documented(status: int, answers: Any, statuses: set[int], errors: Errors) -> dict[int, ResponseSpec]:
    found = {
        each: ResponseSpec(Problem, generate_examples=False, description=MEANINGS[each], media_type=MEDIA_TYPE)
        for each in sorted(statuses | {error.http_status for error in errors})
    }
    if answers is not None:
        found[status] = ResponseSpec(answers, generate_examples=False, description="Done.")
    return found
