"""Sends one request to a forge, and says whether it is worth sending again.

- A redirect is not followed: the token is for the address that the settings name.
- Nothing of the answer but its status and how long to wait is looked at.
"""

import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from holdfast.builds.statuses import Message

PATIENCE = 20.0  # seconds for an answer
LONGEST_WAIT = 3600.0
WORTH_IT = (408, 425, 429)  # and everything from 500 on


class Unheard(Exception):
    """The forge did not take it. `again`: it may later, `after` so many seconds if it said so."""

    def __init__(self, text: str, again: bool, after: float | None = None) -> None:
        super().__init__(text)
        self.again = again
        self.after = after


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def send(message: Message) -> None:
    """Post it; `Unheard` if the forge did not take it."""
    request = urllib.request.Request(message.url, data=message.body, headers=message.headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=PATIENCE):
            return
    except urllib.error.HTTPError as error:
        with error:
            after = _seconds(error.headers.get("Retry-After"))
            limited = error.code == 403 and (after is not None or error.headers.get("X-RateLimit-Remaining") == "0")
            again = error.code in WORTH_IT or error.code >= 500 or limited
            raise Unheard(f"it answered {error.code}", again, after) from None
    except (OSError, HTTPException) as error:
        raise Unheard(f"it cannot be reached: {error}", again=True) from error


def _seconds(text: str | None) -> float | None:
    if text is None or not (text.isascii() and text.isdigit()):
        return None
    return min(float(text), LONGEST_WAIT)
