"""The context of a build: what its result depends on besides the commit (B1, B4)."""

from collections.abc import Collection

import msgspec
from msgspec import Struct

READABLE = ("event", "branch", "tag")  # what conditions can read of a context, besides trust


class Context(Struct, frozen=True, kw_only=True):
    """For what a commit is built. Conditions read the event, the branch and the tag; trust decides about secrets."""

    trusted: bool
    event: str
    branch: str | None = None
    tag: str | None = None


decode = msgspec.json.Decoder(Context).decode


def encode(context: Context) -> str:
    """The stored form: equal contexts have equal texts."""
    return msgspec.json.encode(context).decode()


def event_of(pull_request: int | None, tag: str | None) -> str:
    """The event that asks for a build, as a project and a condition name it."""
    return "pull_request" if pull_request is not None else "tag" if tag else "push"


def has_same_result(built: Context, wanted: Context, read: Collection[str] | None) -> bool:
    """Return whether a build in one context has the result of another context too.

    `read` holds the names that the conditions of the build file read; None means that they are not known.
    """
    if built == wanted:
        return True
    if built.trusted != wanted.trusted or read is None:
        return False
    return all(_value(built, name) == _value(wanted, name) for name in READABLE if name in read)


def _value(context: Context, name: str) -> str:
    """As a condition reads it: a missing value is empty."""
    value: str | None = getattr(context, name)
    return value or ""
