"""What a forge sends: whether it comes from the forge, and what it asks for.

Rules:
- Whoever has not signed the raw body with HMAC-SHA256, or does not have GitLab's token, is nobody. SHA-1 is not looked
  at, and an empty secret signs nothing. Signatures are compared in constant time.
- A delivery counts once. Its id says so where the sender signs it; else its body does, under any id.
- What the headers alone show to be wrong is refused before the body; the body is hashed while it comes.
- Only what is needed is read, and every name in it is checked; what is not known is ignored by its name.
- Nothing here does I/O. Header names are in lower case.
"""

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from urllib.parse import parse_qs

from msgspec import Struct

from holdfast.builds import forges
from holdfast.builds.forges import Asks, Ignored, Ping
from holdfast.builds.labels import PullRequestLabels
from holdfast.errors import Invalid

FORGES = ("github", "gitlab", "gitea", "generic")
LONGEST_BODY = 25 * 1024 * 1024  # bytes: the most that GitHub sends
LONGEST_DELIVERY = 200
DIGEST = re.compile("[0-9a-f]{64}")
TOLERANCE = 300.0  # seconds that the time in a signature may be off
REMEMBERED = 90 * 86400.0  # seconds for which a delivery, or its body, does not count again
SIGNED_ID = re.compile(r"[A-Za-z0-9._:-]{1,200}")  # never the beginning of a body, so a signed body is no signed id

Headers = Mapping[str, str]
Encode = Callable[[bytes], str]


class Delivery(Struct, frozen=True):
    """One thing that a forge told."""

    forge: str
    id: str  # the same when it is sent again
    event: str
    asks: Asks
    body: str | None = None  # its SHA-256, where the id is not signed
    labels: PullRequestLabels | None = None  # that the pull request has, if the forge says all of them
    default_branch: str | None = None  # of the repository, if the forge says it


class SignatureCheck:
    """Whether the sender of a body knows the secret; the body comes in parts."""

    def __init__(self, given: Sequence[str], key: bytes, begin: bytes = b"", encode: Encode = bytes.hex) -> None:
        self._given = given
        self._code = hmac.new(key, begin, sha256)
        self._encode = encode

    def add(self, part: bytes) -> None:
        self._code.update(part)

    def passes(self) -> bool:
        """After the last part."""
        expected = self._encode(self._code.digest())
        return any(_same(each, expected) for each in self._given)


class TokenCheck:
    """GitLab's secret token, which says nothing of the body, has been compared already."""

    def add(self, part: bytes) -> None: ...

    def passes(self) -> bool:
        return True


Check = SignatureCheck | TokenCheck


def begin_check(forge: str, secret: str, headers: Headers, now: datetime) -> Check | None:
    """A check for the body; None if the headers show already that its sender does not know the secret."""
    begin = CHECKS.get(forge)
    return begin(secret, headers, now) if begin is not None and secret else None


def signed(forge: str, secret: str, headers: Headers, body: bytes, now: datetime) -> bool:
    """Whether who sent this knows the secret."""
    check = begin_check(forge, secret, headers, now)
    if check is None:
        return False
    check.add(body)
    return check.passes()


def signature(secret: str, body: bytes) -> str:
    """HMAC-SHA256 in hexadecimal digits."""
    return hmac.new(secret.encode(), body, sha256).hexdigest()


def read(forge: str, headers: Headers, body: bytes) -> Delivery:
    """What was sent; `Invalid` says what is wrong with it."""
    event = _first(headers, EVENT_HEADERS[forge])
    identity = _first(headers, DELIVERY_HEADERS[forge])[:LONGEST_DELIVERY]
    if not identity.isprintable():
        raise Invalid("The id of the delivery is no plain text.")
    content = _json(headers, body)
    asks, digest = READERS[forge](event, content), sha256(body).hexdigest()
    return Delivery(
        forge=forge,
        id=identity or f"sha256:{digest}",
        event=_name(event, asks),
        asks=asks,
        body=None if signs_id(forge, headers) else digest,
        labels=forges.labels_of_gitea(event, content) if forge == "gitea" else None,
        default_branch=forges.default_branch(content),
    )


def signs_id(forge: str, headers: Headers) -> bool:
    """Return whether the signature covers the id of the delivery and the time, not only the body."""
    header = ID_SIGNED_BY.get(forge)
    return header is not None and header in headers


def content_with_id(identity: str, moment: str, body: bytes) -> bytes:
    """Return the content to sign if the signature covers the id and the time in seconds since 1970."""
    return f"{identity}.{moment}.".encode() + body


def _by_digest(names: tuple[str, ...]) -> Callable[[str, Headers, datetime], Check | None]:
    """Signed by a digest of the body in one of these headers, with or without `sha256=` before it."""

    def begin(secret: str, headers: Headers, now: datetime) -> Check | None:
        return _digest_check(secret, _first(headers, names).removeprefix("sha256="))

    return begin


def _by_generic(secret: str, headers: Headers, now: datetime) -> Check | None:
    """By id, time and body where the sender names a time, else by the body alone."""
    if not signs_id("generic", headers):
        return _by_body(secret, headers, now)
    identity, moment = headers.get("x-holdfast-delivery", ""), headers["x-holdfast-timestamp"]
    if not SIGNED_ID.fullmatch(identity) or not _is_recent(moment, now):
        return None
    given = headers.get("x-holdfast-signature", "").removeprefix("sha256=")
    return _digest_check(secret, given, content_with_id(identity, moment, b""))


def _by_github(secret: str, headers: Headers, now: datetime) -> Check | None:
    given = headers.get("x-hub-signature-256", "")
    return _digest_check(secret, given.removeprefix("sha256=")) if given.startswith("sha256=") else None


def _digest_check(secret: str, given: str, begin: bytes = b"") -> Check | None:
    """A check by a digest in hexadecimal digits; `begin` is signed before the body."""
    return SignatureCheck([given], secret.encode(), begin) if DIGEST.fullmatch(given) else None


def _by_gitlab(secret: str, headers: Headers, now: datetime) -> Check | None:
    """By the signature of a signing token where there is one, else by the secret token itself."""
    if "webhook-signature" not in headers:
        return TokenCheck() if _same(headers.get("x-gitlab-token", ""), secret) else None
    identity, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not identity or not _is_recent(moment, now):
        return None
    given = [each.removeprefix("v1,") for each in headers["webhook-signature"].split() if each.startswith("v1,")]
    content = content_with_id(identity, moment, b"")
    return SignatureCheck(given, _signing_key(secret), content, _base64) if given else None


def standard_signature(secret: str, content: bytes) -> str:
    """HMAC-SHA256 in base64, as GitLab writes it."""
    return _base64(hmac.new(_signing_key(secret), content, sha256).digest())


def _base64(digest: bytes) -> str:
    return b64encode(digest).decode()


def _is_recent(moment: str, now: datetime) -> bool:
    return moment.isascii() and moment.isdigit() and abs(int(moment[:12]) - now.timestamp()) <= TOLERANCE


def _signing_key(secret: str) -> bytes:
    """A signing token is `whsec_` and the key in base64."""
    if secret.startswith("whsec_"):
        try:
            return b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _same(given: str, expected: str) -> bool:
    return bool(expected) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _first(headers: Headers, names: tuple[str, ...]) -> str:
    return next((headers[name] for name in names if headers.get(name)), "")


def _json(headers: Headers, body: bytes) -> bytes:
    """The JSON, also where it comes as a form."""
    if not headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return body
    try:
        return parse_qs(body.decode("ascii"), max_num_fields=10)["payload"][0].encode()
    except (UnicodeError, ValueError, KeyError):
        raise Invalid("The body is a form without the field `payload`. Have the forge send JSON.") from None


def _name(event: str, asks: Asks) -> str:
    if isinstance(asks, Ping):
        return "ping"
    return forges.plain_name(event) if event or isinstance(asks, Ignored) else "push"


_by_body = _by_digest(("x-holdfast-signature", "x-hub-signature-256", "x-signature-256", "x-signature"))
ID_SIGNED_BY = {"gitlab": "webhook-signature", "generic": "x-holdfast-timestamp"}  # the header that says so
CHECKS: Mapping[str, Callable[[str, Headers, datetime], Check | None]] = {
    "github": _by_github,
    "gitlab": _by_gitlab,
    "gitea": _by_digest(("x-gitea-signature", "x-forgejo-signature", "x-hub-signature-256")),
    "generic": _by_generic,
}
EVENT_HEADERS = {
    "github": ("x-github-event",),
    "gitlab": ("x-gitlab-event",),
    "gitea": ("x-gitea-event", "x-forgejo-event"),
    "generic": ("x-holdfast-event", "x-github-event"),
}
DELIVERY_HEADERS = {
    "github": ("x-github-delivery",),
    "gitlab": ("webhook-id", "idempotency-key", "x-gitlab-event-uuid"),
    "gitea": ("x-gitea-delivery", "x-forgejo-delivery"),
    "generic": ("x-holdfast-delivery", "x-request-id", "x-github-delivery"),
}
READERS: Mapping[str, Callable[[str, bytes], Asks]] = {
    "github": forges.read_github,
    "gitlab": forges.read_gitlab,
    "gitea": forges.read_gitea,
    "generic": forges.read_generic,
}
