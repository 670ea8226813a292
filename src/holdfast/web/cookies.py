"""The cookies of a browser: names that no other server of the machine uses, and `Secure` wherever people come by https.

- Behind `--public-url https://…` a cookie is `Secure` however the request reached us, because the proxy hides the scheme.
- A `Secure` cookie of a whole site has the prefix `__Host-`: no page of a neighbouring domain can set it.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from litestar import Response
from msgspec import Struct

SESSION = "session"
LOGIN = "login"  # binds the login form to the browser that asked for it


class Cookie(Struct, frozen=True):
    """The name of a cookie and how it is kept."""

    name: str
    path: str
    secure: bool

    def put(self, answer: Response[Any], value: str, lasts: float) -> None:
        """Have the browser keep it for so many seconds."""
        answer.set_cookie(
            key=self.name,
            value=value,
            path=self.path,
            max_age=int(lasts),
            httponly=True,
            samesite="lax",
            secure=self.secure,
        )

    def drop(self, answer: Response[Any]) -> None:
        """Have the browser forget it."""
        answer.set_cookie(
            key=self.name, value="", path=self.path, max_age=0, httponly=True, samesite="lax", secure=self.secure
        )


def cookie(scope: Mapping[str, Any], public_url: str | None, purpose: str = SESSION) -> Cookie:
    """Cookies do not know ports, but two servers on one machine must not take each other's."""
    path = f"{root(scope)}/"
    secure = is_secure(scope, public_url)
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    port = urlsplit(public_url).netloc if public_url is not None and secure else host
    port = port.rpartition(":")[2]
    prefix = "" if not secure else "__Host-" if path == "/" else "__Secure-"
    name = f"{prefix}holdfast_{purpose}"
    return Cookie(f"{name}_{port}" if port.isdigit() else name, path, secure)


def is_secure(scope: Mapping[str, Any], public_url: str | None) -> bool:
    """Whether people come by https."""
    return scope["scheme"] == "https" or (public_url is not None and public_url.startswith("https:"))


def root(scope: Mapping[str, Any]) -> str:
    """The path that the application is mounted at; empty where it is alone."""
    found: str = scope.get("root_path", "")
    return found.rstrip("/")
