"""Requests as Holdfast reads them: JSON bodies strictly, and no query parameter that nobody knows.

A body is JSON and nothing else: no NaN, no name twice in an object, no nesting beyond reason, no unknown field, no text
where a number belongs.
"""

import hashlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException, InternalServerException

from holdfast import strict_json
from holdfast.errors import Invalid, with_short_quotes

RESERVED = {"request", "site", "caller", "data"}
HEADERS = {"idempotency_key", "last_event_id"}


class StrictRequest(Request[Any, Any, Any]):
    """A request whose JSON is checked before anything sees it."""

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The body in parts. A client that leaves in the middle of it is no failure of ours."""
        try:
            async for part in super().stream():
                yield part
        except InternalServerException as error:
            raise HTTPException(status_code=400, detail="The body was cut off.") from error

    async def json(self) -> Any:
        """The body as the handler's `data` wants it; `Invalid` names what is wrong."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await self.body()
        if kind != "application/json" and (body or kind):
            raise HTTPException(status_code=415, detail="Send the body as JSON, with `Content-Type: application/json`.")
        field = getattr(self.route_handler, "parsed_data_field", None)
        found = read(body) if body else {}
        if field is None or field.raw is Any:
            return found
        try:
            return msgspec.convert(found, field.raw, strict=True)
        except msgspec.ValidationError as error:
            raise Invalid(f"The body does not fit: {with_short_quotes(error)}.") from error


def has_body(scope: Any) -> bool:
    """Whether a request of HTTP/1.1 announces a body."""
    lengths = [value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")]
    return any(length != b"0" for length in lengths)


def read(body: bytes) -> Any:
    try:
        return strict_json.parse(body.decode())
    except ValueError as error:
        raise Invalid(f"The body is not JSON: {error}.") from error


def fingerprint(value: Any) -> str:
    """The same for the same content, in whatever order it was written."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


async def refuse_nul(request: Request[Any, Any, Any]) -> None:
    """The same of the address and the form of a page."""
    form = await request.form() if request.method == "POST" else {}
    _refuse_nul(request.path_params, request.query_params, form)


def _refuse_nul(*texts: Mapping[str, Any]) -> None:
    if any("\0" in str(value) for part in texts for value in part.values()):
        raise Invalid("A name or filter has a NUL character in it, which no text here has.")


def refuse_unknown(request: Request[Any, Any, Any]) -> None:
    """A filter that is misspelt must not become a list of everything; and no name or filter has a NUL in it."""
    _refuse_nul(request.path_params, request.query_params)
    handler = request.route_handler
    provided = handler.resolve_dependencies()
    fields = dict(handler.parsed_fn_signature.parameters)
    for name in fields.keys() & provided.keys() - RESERVED:
        fields |= provided[name].parsed_fn_signature.parameters
    for name in RESERVED | HEADERS | provided.keys() | request.path_params.keys():
        fields.pop(name, None)
    known = {getattr(field.kwarg_definition, "name", None) or name for name, field in fields.items()}
    for name in request.query_params:
        if name not in known:
            there = f"known are {', '.join(sorted(known))}" if known else "there are none here"
            raise Invalid(f"Unknown query parameter `{name}`; {there}.")
