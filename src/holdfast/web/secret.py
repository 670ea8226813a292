"""The secrets of tokens and sessions: random, shown once, kept as hashes."""

import hashlib
import secrets

PREFIX = "hf_"  # so that scanners find one that was published by mistake


def new() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def hashed(secret: str) -> str:
    """As it is stored. A secret is random and long: nothing slower is needed to keep it from being guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def csrf_token(cookie: str) -> str:
    """What the forms of a browser with this cookie carry. Another site cannot know it."""
    return hashed(f"csrf {cookie}")
