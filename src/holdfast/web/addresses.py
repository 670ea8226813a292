"""One address for each job and each build: rules of a proxy and searches in logs find all that happens to it.

An id in an address is a positive number in digits. Everything else that Python reads as a number is not found: a sign, zeros
before it, spaces, underscores, digits of other scripts, and digits that are percent-encoded. Neither is an address with
an empty part, such as a slash at its end.
"""

from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from holdfast.errors import NotFound, quoted

LARGEST = 2**63 - 1


async def refuse_other_spellings(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A Litestar guard of the whole application."""
    ids = {name: value for name, value in connection.path_params.items() if isinstance(value, int)}
    if not ids:
        return
    written = _path(connection).split("/")[1:]
    if "" in written:
        raise NotFound("A part of the address is empty. Write single slashes, and none at its end.")
    template = connection.scope["path_template"].strip("/").split("/")
    for part, text in zip(template, written[-len(template) :], strict=False):
        value = ids.get(part.strip("{}"))
        if value is not None and (text != str(value) or not 0 < value <= LARGEST):
            raise NotFound(f"{quoted(text)} is no id. Write it in digits, without a sign and without zeros before it.")


def _path(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """As the client wrote it, if the server says so."""
    raw = connection.scope.get("raw_path")
    return connection.scope["path"] if raw is None else raw.partition(b"?")[0].decode("latin-1")
