"""The errors that Holdfast raises to its callers.

    HoldfastError              code             exit  HTTP
    ├── Invalid                invalid             2   400   the caller asked for something that cannot be
    ├── NotFound               not_found           3   404   no such job, queue, type or instance
    ├── Conflict               conflict            4   409   true now, but in the way of what was asked
    │   ├── DuplicateJob       duplicate_job       4   409   the key is held by a living job
    │   └── IllegalMove        illegal_move        4   409   the state machine has no such move
    ├── Unavailable            unavailable         5   503   the database cannot be used right now
    └── JobFailed              job_failed          1   500   `unwrap` of a job that did not succeed

Rules:
- A message is one paragraph: what happened, to what, why, and the one thing to do next.
- A message quotes an input by `quoted`, `backticked` or `shown_path`, which cut it: an input may be of any size.
- A handler's failure is an outcome, not one of these.
"""

import re
import reprlib
from typing import Any, ClassVar

LONGEST_QUOTE = 80  # characters of an input that a message repeats
LONGEST_PATH = 1024  # characters of a path that a message has whole
LONG_QUOTE = re.compile(r"([`'])([^`']{79})[^`']{2,}\1")
BRIEF = reprlib.Repr()
BRIEF.maxother = BRIEF.maxstring = BRIEF.maxlong = 4 * LONGEST_QUOTE  # it cuts in the middle, behind where we cut


def quoted(value: object) -> str:
    """Return the value as Python writes it, cut after 80 characters, for a message."""
    return cut_short(repr(value[:LONGEST_QUOTE]) if isinstance(value, str | bytes) else BRIEF.repr(value))


def backticked(name: object) -> str:
    """Return a name that nothing has checked, cut after 80 characters and in backticks, for a message."""
    return f"`{cut_short(str(name))}`"


def shown_path(path: object) -> str:
    """Return a path for a message: whole if a file can have it, else cut as a name is."""
    text = str(path)
    return text if len(text) <= LONGEST_PATH else cut_short(text)


def reason(error: OSError | ValueError) -> str:
    """Return why a file cannot be read, without its path."""
    return str(getattr(error, "strerror", None) or error)


def with_short_quotes(message: object) -> str:
    """Return the words of msgspec or typer; of an input that they quote, 80 characters."""
    return LONG_QUOTE.sub(r"\1\2…\1", str(message))


def cut_short(text: str) -> str:
    """Return the first 80 characters of a text, for a message."""
    return text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 1]}…"


class HoldfastError(Exception):
    """The root of everything Holdfast raises on purpose."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500


class Invalid(HoldfastError):
    """The request itself is wrong; asking again will not help."""

    code = "invalid"
    exit_code = 2
    http_status = 400


class NotFound(HoldfastError):
    """What was named does not exist."""

    code = "not_found"
    exit_code = 3
    http_status = 404


class Conflict(HoldfastError):
    """The present state of things forbids the request."""

    code = "conflict"
    exit_code = 4
    http_status = 409


class DuplicateJob(Conflict):
    """A living job already has this type and key; `job` is that job, where it is known."""

    code = "duplicate_job"

    def __init__(self, message: str, job: Any = None) -> None:
        super().__init__(message)
        self.job = job


class IllegalMove(Conflict):
    """A move that the state machine does not have."""

    code = "illegal_move"


class Unavailable(HoldfastError):
    """The database cannot be reached or cannot be trusted right now."""

    code = "unavailable"
    exit_code = 5
    http_status = 503
    passing = False  # True where waiting may be enough
    locked = False  # True where somebody else kept a lock for too long


class JobFailed(HoldfastError):
    """Raised by `unwrap`: the job ended, but not in success. `job` is the final job."""

    code = "job_failed"

    def __init__(self, message: str, job: Any = None) -> None:
        super().__init__(message)
        self.job = job
